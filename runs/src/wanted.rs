//! Which runs of a folder a list has: those that ran in some days, or have some tag.

use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use brickscope_profile::save::{parse_rfc3339, unix_seconds};

use crate::list::{List, Row};

const DAY: u64 = 86_400;

/// A moment, or a day as a whole, in seconds since 1970: its first and its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    first: u64,
    last: u64,
}

impl Moment {
    fn at(text: &str, now: u64) -> Option<Self> {
        let ago = |unit: &str, seconds: u64| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            Some(now.saturating_sub(number.saturating_mul(seconds)))
        };
        let moment = |text: &str| parse_rfc3339(text).and_then(|_| unix_seconds(text));
        let at = ago("d", DAY).or_else(|| ago("h", 3_600)).or_else(|| moment(text));
        if let Some(at) = at {
            return Some(Self { first: at, last: at });
        }
        let first = moment(&format!("{text}T00:00:00Z"))?;
        Some(Self { first, last: first + DAY - 1 })
    }
}

impl FromStr for Moment {
    type Err = String;

    /// `7d` or `12h` before now, `2026-11-20`, or `2026-11-20T12:00:00Z`.
    fn from_str(text: &str) -> Result<Self, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self::at(text, now).ok_or_else(|| {
            "must be a number of days or hours ago (7d, 12h), a day (2026-11-20) or a moment in UTC \
             (2026-11-20T12:00:00Z)"
                .to_owned()
        })
    }
}

/// Which runs are wanted; by default all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those whose work ran then or later.
    pub since: Option<Moment>,
    /// Those whose work ran then or before.
    pub until: Option<Moment>,
    /// Those with a tag like this, in which `*` is any text and `?` any letter.
    pub tag: Option<String>,
}

impl Wanted {
    /// Leaves those in the list.
    pub fn keep(&self, list: &mut List) {
        list.rows.retain(|row| self.has(row));
    }

    fn has(&self, row: &Row) -> bool {
        let ran = unix_seconds(&row.created);
        let is_late = self.since.is_none_or(|since| ran.is_some_and(|ran| ran >= since.first));
        let is_early = self.until.is_none_or(|until| ran.is_some_and(|ran| ran <= until.last));
        let is_like = |glob: &String| row.tag.as_ref().is_some_and(|tag| is_like(glob, tag));
        is_late && is_early && self.tag.as_ref().is_none_or(is_like)
    }
}

/// Whether a text is as a glob says.
fn is_like(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut in_glob, mut in_text) = (0, 0);
    // Where the last `*` stands, and what of the text comes after what it takes.
    let mut star: Option<(usize, usize)> = None;
    while in_text < text.len() {
        match (glob.get(in_glob), star) {
            (Some(b'*'), _) => {
                star = Some((in_glob, in_text));
                in_glob += 1;
            }
            (Some(&of), _) if of == b'?' || of == text[in_text] => {
                in_glob += 1;
                in_text += 1;
            }
            (_, Some((at, from))) => {
                star = Some((at, from + 1));
                (in_glob, in_text) = (at + 1, from + 1);
            }
            (_, None) => return false,
        }
    }
    glob[in_glob..].iter().all(|of| *of == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-29T12:00:00Z.
    fn now() -> u64 {
        unix_seconds("2026-11-29T12:00:00Z").expect("a moment")
    }

    #[test]
    fn moments_are_written_in_four_ways() {
        let at = |text| Moment::at(text, now()).map(|of| (of.first, of.last));
        let day = unix_seconds("2026-11-20T00:00:00Z").expect("a moment");
        assert_eq!(at("7d"), Some((now() - 7 * DAY, now() - 7 * DAY)));
        assert_eq!(at("12h"), Some((now() - DAY / 2, now() - DAY / 2)));
        assert_eq!(at("2026-11-20"), Some((day, day + DAY - 1)));
        assert_eq!(at("2026-11-20T00:00:05Z"), Some((day + 5, day + 5)));
        assert_eq!(at("99999999999999d"), Some((0, 0)));
        for other in ["", "d", "7", "-7d", "2026-13-01", "2026-11", "yesterday", "7 d", "é"] {
            assert_eq!(at(other), None, "{other}");
        }
    }

    #[test]
    fn globs_are_of_whole_tags() {
        for glob in ["best", "*", "b*", "*t", "b??t", "*e*t*", "**"] {
            assert!(is_like(glob, "best"), "{glob}");
        }
        for glob in ["", "bes", "est", "b?t", "*x*", "best?", "B*"] {
            assert!(!is_like(glob, "best"), "{glob}");
        }
        assert!(!is_like(&"*a".repeat(200), &"a".repeat(64)));
    }
}
