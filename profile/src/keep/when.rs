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
    /// The first token of a request, from when that arrived until it was sent.
    FirstToken,
}

impl Timed {
    const ALL: [Self; 3] = [Self::Token, Self::Pass, Self::FirstToken];

    /// As it is written in a condition.
    fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Pass => "pass",
            Self::FirstToken => "ttft",
        }
    }

    /// As one of them, or several, are told of.
    fn told(self, is_one: bool) -> &'static str {
        match (self, is_one) {
            (Self::Token, true) => "token",
            (Self::Token, false) => "tokens",
            (Self::Pass, true) => "pass",
            (Self::Pass, false) => "passes",
            (Self::FirstToken, true) => "first token",
            (Self::FirstToken, false) => "first tokens",
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
                "{why}: write it as 'token>200ms', 'pass>50ms' or 'ttft>500ms', in quotation marks, for a \
                 shell takes > for itself"
            )
        };
        let (what, limit) = text.split_once('>').ok_or_else(|| wrong("it has no limit"))?;
        let timed = Timed::ALL.into_iter().find(|timed| timed.name() == what);
        let timed = timed.ok_or_else(|| wrong("only a token, a pass or a ttft can be too slow"))?;
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

/// What there was to ask a condition about that is one of [first tokens](Timed::FirstToken).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// How many requests arrived.
    pub requests: u64,
    /// How many of them were sent a first token, so that it is known how long that took.
    pub first_tokens: u64,
}

impl Asked {
    /// Why nothing can be told of first tokens, if nothing can.
    fn nothing(self) -> Option<String> {
        match self {
            Self { requests: 0, .. } => Some("no request of a server was seen".to_owned()),
            Self { requests: 1, first_tokens: 0 } => {
                // Or not yet, or not at all.
                Some("the only request was not answered in pieces".to_owned())
            }
            Self { requests, first_tokens: 0 } => {
                Some(format!("of {requests} requests none was answered in pieces"))
            }
            Self { .. } => None,
        }
    }
}

/// How often a condition came true in a run, and what was kept of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    /// The condition.
    pub when: When,
    /// How many tokens, passes, or first tokens took longer.
    pub fired: u64,
    /// For how many of these all passes were kept that they waited for.
    pub whole: u64,
    /// For how many there was no room: slower ones have it.
    pub no_room: u64,
    /// How many waited for more passes than are looked back at, or for one that doesn't count.
    pub apart: u64,
    /// Of a condition on first tokens: what it could be asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
}

impl Fired {
    /// It never came true.
    #[must_use]
    pub fn none(when: When) -> Self {
        Self { when, fired: 0, whole: 0, no_room: 0, apart: 0, asked: None }
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
        let Self { when, fired, whole, no_room, apart, asked } = *self;
        if let Some(why) = asked.and_then(Asked::nothing) {
            return format!("whether {when} came true can't be told: {why}");
        }
        let (number, _, unit) = when.limit();
        let over = format!("took over {number} {unit}");
        if fired == 0 {
            return format!("no {} {over}", when.timed.told(true));
        }
        let what = when.timed.told(fired == 1);
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
            return self.check_asked();
        }
        Err(format!("{when} came true {fired} times, and it is told of {counted} what was kept"))
    }

    /// Checks that no first token was late which nobody had.
    fn check_asked(&self) -> Result<(), String> {
        let Self { when, fired, .. } = *self;
        match self.asked {
            Some(Asked { requests, first_tokens })
                if fired > first_tokens || first_tokens > requests =>
            {
                Err(format!(
                    "{when} came true {fired} times, of {first_tokens} first tokens of {requests} requests"
                ))
            }
            _ => Ok(()),
        }
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
            ("ttft>500ms", Timed::FirstToken, 500_000_000),
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
            (">200ms", "only a token, a pass or a ttft"),
            ("tokens>200ms", "only a token, a pass or a ttft"),
            ("TTFT>2s", "only a token, a pass or a ttft"),
            ("token >200ms", "only a token, a pass or a ttft"),
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

    /// That none was late is only said where one could have been.
    #[test]
    fn of_first_tokens_it_is_said_when_none_was_there() {
        let none = Fired::none("ttft>500ms".parse().expect("a condition"));
        let of = |requests, first_tokens| Fired {
            asked: Some(Asked { requests, first_tokens }),
            ..none
        };
        for (fired, said) in [
            (
                of(0, 0),
                "whether ttft>500ms came true can't be told: no request of a server was seen",
            ),
            (
                of(1, 0),
                "whether ttft>500ms came true can't be told: the only request was not answered \
                 in pieces",
            ),
            (
                of(7, 0),
                "whether ttft>500ms came true can't be told: of 7 requests none was answered in pieces",
            ),
            (of(7, 3), "no first token took over 500 ms"),
            (
                Fired { fired: 1, whole: 1, ..of(7, 3) },
                "1 first token took over 500 ms; 1 is kept whole",
            ),
            (
                Fired { fired: 3, whole: 2, apart: 1, ..of(7, 3) },
                "3 first tokens took over 500 ms; 2 are kept whole, 1 waited for too many passes, or \
                 for one left out",
            ),
        ] {
            assert_eq!((&*fired.line(), fired.check()), (said, Ok(())));
        }
        let late = Fired { fired: 4, whole: 4, ..of(7, 3) };
        assert!(late.check().expect_err("one too many").contains("of 3 first tokens"));
        assert!(of(2, 3).check().is_err());
        let json = serde_json::to_string(&of(7, 3)).expect("a text");
        assert_eq!(serde_json::from_str::<Fired>(&json).expect("the same"), of(7, 3));
    }
}
