//! What a finding predicts, in words.

use brickscope_profile::Absent;
use brickscope_profile::text::printable_text;

use super::{Finding, Gain, Waits};
use crate::words::{many, time, whole_percent};

impl Finding {
    /// What it predicts, in a few words: `12 % less (8 to 15 %): 240 µs of 2.00 ms`, or why nothing can be predicted.
    #[must_use]
    pub fn prediction(&self) -> String {
        if let Some(waits) = &self.waits {
            return of_waits(waits);
        }
        match (&self.gain, &self.gain_absent) {
            (Some(gain), _) => in_words(gain),
            (None, Some(Absent { reason })) => format!("unknown: {}", printable_text(reason)),
            (None, None) => "nothing".to_owned(),
        }
    }

    /// What was found, and what it predicts, in a line: `33.3 % of decoding lies between the passes; predicted: up to 33 %
    /// less: 500 µs of 1.50 ms`. Why nothing can be predicted isn't in it.
    #[must_use]
    pub fn line(&self) -> String {
        let predicted = match self.gain.is_some() || self.waits.is_some() {
            true => format!("; predicted: {}", self.prediction()),
            false => String::new(),
        };
        printable_text(&self.what) + &predicted
    }
}

/// `up to 95 % less: 27.0 s of 28.4 s that 115 tokens took, summed over requests`
fn of_waits(waits: &Waits) -> String {
    let Waits { tokens, took_ns, gain_ns, .. } = *waits;
    let (gain, took) = (gain_ns as f64, took_ns as f64);
    let share = if took_ns > 0 { gain / took } else { 0.0 };
    format!(
        "up to {} less: {} of {} that {} took, summed over requests",
        whole_percent(share),
        time(gain),
        time(took),
        many(tokens, "token")
    )
}

/// `12 % less (8 to 15 %): 240 µs of 2.00 ms`
fn in_words(gain: &Gain) -> String {
    let [low, likely, high] = gain.parts();
    let of = |ns: f64| format!("{} of {}", time(ns), time(gain.now_ns));
    match gain.likely_ns {
        Some(ns) if gain.lowest_ns < gain.highest_ns => format!(
            "{} less ({} to {}): {}",
            whole_percent(likely),
            whole_percent(low),
            whole_percent(high),
            of(ns)
        ),
        Some(ns) => format!("{} less: {}", whole_percent(likely), of(ns)),
        None if gain.lowest_ns > 0.0 => format!(
            "{} to {} less: {} to {}",
            whole_percent(low),
            whole_percent(high),
            time(gain.lowest_ns),
            of(gain.highest_ns)
        ),
        None => format!("up to {} less: {}", whole_percent(high), of(gain.highest_ns)),
    }
}
