//! What a load came to, as a screen of 80 columns or as JSON.

use std::fmt::Write;

use brickscope_analysis::requests::times;
use brickscope_analysis::text::{digits, labelled, pass_time};
use brickscope_analysis::view;
use brickscope_profile::Profile;
use brickscope_profile::text::{count, grouped, printable_text};
use serde_json::{Value, json};

use crate::{Figures, Pace, Plan};

/// The most reasons of failures on a screen.
const MOST_REASONS: usize = 5;

/// A load that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Screen<'s> {
    /// What was to be asked.
    pub plan: &'s Plan,
    /// The server's address.
    pub url: &'s str,
    /// The model that was asked for, if one was.
    pub model: Option<&'s str>,
    /// What came of it.
    pub figures: &'s Figures,
    /// Its run.
    pub profile: &'s Profile,
    /// By what requests were due: `Poisson`, or a trace's name.
    pub paced: &'s str,
    /// The limits of good requests, as they were stated.
    pub slo: Option<&'s str>,
}

impl Screen<'_> {
    /// The screen.
    #[must_use]
    pub fn text(&self) -> String {
        let Figures { sent, answered, failed, lasted_ns, .. } = self.figures;
        let mut text = String::new();
        let mut row = |label: &str, value: String| text += &(labelled(label, &value) + "\n");
        let model = self.model.map(|model| format!(", model {}", printable_text(model)));
        row("server   ", format!("{}{}", self.url, model.unwrap_or_default()));
        let seconds = *lasted_ns as f64 / 1e9;
        let not_sent = match self.figures.not_sent {
            0 => String::new(),
            not_sent => format!("; {} more were not sent", grouped(not_sent)),
        };
        let per_second = |number: u64| format!("{}/s", digits(self.figures.rate_of(number)));
        row(
            "sent     ",
            format!(
                "{}, {}; in {seconds:.1} s, {}{not_sent}",
                count(*sent, "request"),
                self.pace(),
                per_second(*sent)
            ),
        );
        if self.plan.pace == Pace::Open {
            let of = &self.figures.late;
            let shown = |ns: Option<u64>| ns.map(|ns| pass_time(ns as f64));
            let p50 = shown(of.p50_ns).map_or(String::new(), |p50| format!("{p50} at p50, "));
            let most = shown(of.longest_ns).unwrap_or_default();
            row("late     ", format!("{p50}{most} at most: from due to sent, part of all times"));
        }
        let more = failed.len().saturating_sub(MOST_REASONS);
        let reasons = failed.iter().take(MOST_REASONS);
        let reasons: Vec<String> =
            reasons.map(|(why, n)| format!("{} {}", grouped(*n), printable_text(why))).collect();
        let reasons =
            if reasons.is_empty() { String::new() } else { format!("; {}", reasons.join("; ")) };
        let more = if more > 0 { format!("; and {more} other reasons") } else { String::new() };
        row("answered ", format!("{}{reasons}{more}", grouped(*answered)));
        if let Some(tokens) = self.figures.answer_tokens {
            let prompts = self.figures.prompt_tokens.map_or(String::new(), |prompts| {
                let cached = self.figures.cached_tokens.map_or(String::new(), |cached| {
                    format!(", {} of them cached", grouped(cached))
                });
                format!("; {} of prompts{cached}", grouped(prompts))
            });
            row(
                "tokens   ",
                format!("{} of answers, {}{prompts}", grouped(tokens), per_second(tokens)),
            );
        } else {
            let pieces = self.figures.pieces;
            row(
                "pieces   ",
                format!(
                    "{}, {}; the server doesn't say how many tokens",
                    grouped(pieces),
                    per_second(pieces)
                ),
            );
        }
        if let (Some(good), Some(slo)) = (self.figures.good, self.slo) {
            row(
                "goodput  ",
                format!(
                    "{}: {} of {} within {}",
                    per_second(good),
                    grouped(good),
                    grouped(*sent),
                    printable_text(slo)
                ),
            );
        }
        let _ = write!(text, "\n{}", view::times_of_requests(self.profile));
        text
    }

    fn pace(&self) -> String {
        match (self.plan.pace, self.plan.rate()) {
            (Pace::Closed(clients), _) => count(clients.get() as u64, "client"),
            (Pace::Open, None) => "at once".to_owned(),
            (Pace::Open, Some(rate)) => {
                format!("{}, due at {}/s", self.paced, digits(rate))
            }
        }
    }

    /// All figures: `run` is the folder that the run was written to.
    #[must_use]
    pub fn json(&self, run: Option<String>) -> Value {
        json!({
            "run": run,
            "url": self.url,
            "model": self.model,
            "due_per_second": self.plan.rate(),
            "figures": self.figures,
            "times": times(self.profile),
        })
    }
}
