//! What makes a pass worth keeping whole, and how often that came.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What may take too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    /// A token: from the end of the pass that computed the token of its sequence before, to the end of its own pass.
    Token,
    /// A pass, from its begin to its end.
    Pass,
}

impl Timed {
    const ALL: [Self; 2] = [Self::Token, Self::Pass];

    /// As it is written in a condition.
    fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Pass => "pass",
        }
    }

    fn names(self) -> &'static str {
        match self {
            Self::Token => "tokens",
            Self::Pass => "passes",
        }
    }
}

/// A condition by which passes are kept whole, as `token>200ms`. Its text is read by [`FromStr`], and is what it displays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct When {
    timed: Timed,
    over_ns: u64,
}

/// The units of a limit: as they are written, as they are read out, and their nanoseconds.
const UNITS: [(&str, &str, u64); 3] =
    [("s", "s", 1_000_000_000), ("ms", "ms", 1_000_000), ("us", "µs", 1_000)];

impl When {
    /// What is timed.
    #[must_use]
    pub fn timed(self) -> Timed {
        self.timed
    }

    /// What takes longer than this is kept.
    #[must_use]
    pub fn over_ns(self) -> u64 {
        self.over_ns
    }

    /// The limit in the largest unit of which it is a whole number: the number, and the unit as one writes and reads it.
    fn limit(self) -> (u64, &'static str, &'static str) {
        let found = UNITS.iter().find(|(.., ns)| self.over_ns.is_multiple_of(*ns));
        let (written, read, ns) = found.copied().unwrap_or(UNITS[2]);
        (self.over_ns / ns, written, read)
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit, _) = self.limit();
        write!(f, "{}>{number}{unit}", self.timed.name())
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "{why}: write it as 'token>200ms' or 'pass>50ms', in quotation marks, for a shell \
                 takes > for itself"
            )
        };
        let (what, limit) = text.split_once('>').ok_or_else(|| wrong("it has no limit"))?;
        let timed = Timed::ALL.into_iter().find(|timed| timed.name() == what);
        let timed = timed.ok_or_else(|| wrong("only a token or a pass can be too slow"))?;
        let digits = limit.find(|c: char| !c.is_ascii_digit()).unwrap_or(limit.len());
        let (number, unit) = limit.split_at(digits);
        let unit = UNITS.iter().find(|(written, ..)| *written == unit);
        let ns = unit.filter(|_| !number.is_empty()).map(|(.., ns)| *ns);
        let ns = ns.ok_or_else(|| wrong("its limit is no whole number of us, ms or s"))?;
        let over_ns = number.parse::<u64>().ok().and_then(|number| number.checked_mul(ns));
        let over_ns = over_ns.ok_or_else(|| wrong("its limit is longer than 584 years"))?;
        Ok(Self { timed, over_ns })
    }
}

impl TryFrom<String> for When {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<When> for String {
    fn from(when: When) -> Self {
        when.to_string()
    }
}

/// How often a condition came true in a run, and what was kept of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    /// The condition.
    pub when: When,
    /// How many tokens, or passes, took longer.
    pub fired: u64,
    /// For how many of these all passes were kept that they waited for.
    pub whole: u64,
    /// For how many there was no room: slower ones have it.
    pub no_room: u64,
    /// How many waited for more passes than are looked back at, or for one that doesn't count.
    pub apart: u64,
}

impl Fired {
    /// It never came true.
    #[must_use]
    pub fn none(when: When) -> Self {
        Self { when, fired: 0, whole: 0, no_room: 0, apart: 0 }
    }

    /// Adds what came of the same condition elsewhere.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.fired, other.fired),
            (&mut self.whole, other.whole),
            (&mut self.no_room, other.no_room),
            (&mut self.apart, other.apart),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    /// The same where nothing was left out of the run.
    #[must_use]
    pub fn all_whole(self) -> Self {
        Self { whole: self.fired, no_room: 0, apart: 0, ..self }
    }

    /// The same where nothing of what was kept can be told from the rest.
    #[must_use]
    pub fn none_whole(self) -> Self {
        Self { whole: 0, apart: self.apart.saturating_add(self.whole), ..self }
    }

    /// What a reader is told: a sentence without a full stop.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { when, fired, whole, no_room, apart } = *self;
        let (number, _, unit) = when.limit();
        let over = format!("took over {number} {unit}");
        if fired == 0 {
            return format!("no {} {over}", when.timed.name());
        }
        let what = if fired == 1 { when.timed.name() } else { when.timed.names() };
        let are = if whole == 1 { "is" } else { "are" };
        let mut line = format!("{fired} {what} {over}; {whole} {are} kept whole");
        if no_room > 0 {
            line += &format!(", no room for {no_room}");
        }
        if apart > 0 {
            line += &format!(", {apart} waited for too many passes, or for one left out");
        }
        line
    }

    /// Checks that each is counted once.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { when, fired, .. } = *self;
        let parts = [self.whole, self.no_room, self.apart];
        let counted = parts.into_iter().fold(0, u64::saturating_add);
        if counted == fired {
            return Ok(());
        }
        Err(format!("{when} came true {fired} times, and it is told of {counted} what was kept"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_condition_is_read_and_written() {
        for (text, timed, over_ns) in [
            ("token>200ms", Timed::Token, 200_000_000),
            ("pass>50ms", Timed::Pass, 50_000_000),
            ("pass>1500us", Timed::Pass, 1_500_000),
            ("token>2s", Timed::Token, 2_000_000_000),
            ("token>0s", Timed::Token, 0),
        ] {
            let when: When = text.parse().expect("a condition");
            assert_eq!((when, &*when.to_string()), (When { timed, over_ns }, text));
            let json = serde_json::to_string(&when).expect("a text");
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<When>(&json).expect("the same"), when);
        }
        let longer: When = "token>2000ms".parse().expect("a condition");
        assert_eq!(longer.to_string(), "token>2s");
    }

    #[test]
    fn what_is_no_condition_is_refused_with_an_example() {
        for (text, why) in [
            ("", "it has no limit"),
            // What is left where a shell wrote to a file `200ms`.
            ("token", "it has no limit"),
            (">200ms", "only a token or a pass"),
            ("tokens>200ms", "only a token or a pass"),
            ("ttft>2s", "only a token or a pass"),
            ("token >200ms", "only a token or a pass"),
            ("token>", "no whole number"),
            ("token>ms", "no whole number"),
            ("token>200", "no whole number"),
            ("token>200 ms", "no whole number"),
            ("token>0.2s", "no whole number"),
            ("token>-1s", "no whole number"),
            ("token>+1s", "no whole number"),
            ("token>200µs", "no whole number"),
            ("token>=200ms", "no whole number"),
            ("token>200ms ", "no whole number"),
            ("token>99999999999999999999s", "longer than 584 years"),
            ("token>18446744074s", "longer than 584 years"),
        ] {
            let refused = text.parse::<When>().expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
            assert!(refused.contains("'token>200ms'"), "{refused}");
        }
        assert!(serde_json::from_str::<When>("\"token\"").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_condition_or_refused(text in ".{0,40}") {
            if let Ok(when) = text.parse::<When>() {
                prop_assert_eq!(when.to_string().parse::<When>(), Ok(when));
            }
        }

        #[test]
        fn what_looks_like_a_condition_is_one_or_refused(
            text in "(token|pass|ttft)?>?[0-9]{0,22}(us|ms|s|µs|m)?",
        ) {
            if let Ok(when) = text.parse::<When>() {
                prop_assert_eq!(when.to_string().parse::<When>(), Ok(when));
            }
        }
    }

    #[test]
    fn how_often_it_came_is_said_in_a_sentence() {
        let when: When = "token>200ms".parse().expect("a condition");
        let none = Fired::none(when);
        assert_eq!(none.line(), "no token took over 200 ms");
        let one = Fired { fired: 1, whole: 1, ..none };
        assert_eq!(one.line(), "1 token took over 200 ms; 1 is kept whole");
        let mut all = Fired { fired: 11, whole: 11, ..none };
        all.merge(&one);
        assert_eq!(all.line(), "12 tokens took over 200 ms; 12 are kept whole");
        let some = Fired { fired: 9, whole: 4, no_room: 3, apart: 2, ..none };
        let said = "9 tokens took over 200 ms; 4 are kept whole, no room for 3, 2 waited for too many passes, or for one \
                    left out";
        assert_eq!((some.line(), some.check()), (said.to_owned(), Ok(())));
        assert_eq!(some.all_whole(), Fired { fired: 9, whole: 9, ..none });
        assert_eq!(some.none_whole().check(), Ok(()));
        let wrong = Fired { fired: 10, ..some }.check().expect_err("one is missing");
        assert!(wrong.contains("came true 10 times, and it is told of 9"), "{wrong}");
        let when = "pass>1500us".parse().expect("a condition");
        let passes = Fired { when, ..all };
        assert_eq!(passes.line(), "12 passes took over 1500 µs; 12 are kept whole");
    }
}
