//! Several ranks of one job, and the collectives that they took part in together.

use serde::{Deserialize, Serialize};

use crate::absent::Absent;

/// The ranks of a profile, and their collectives. The trace of one rank has it too: with what is known of its own. Where one
/// file has several devices with collectives, these are the devices, each with its index as its number; no device of such a
/// profile has a [rank](crate::DeviceProfile::rank).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ranks {
    /// The ranks, the lowest first. The host's spans and passes of a profile are those of the first.
    pub ranks: Vec<Rank>,
    /// What kinds of collectives there are.
    #[serde(default)]
    pub kinds: Vec<CollectiveKind>,
    /// The collectives, in the order of their begin. Of several ranks, those that are known to be the same on two or more.
    #[serde(default)]
    pub collectives: Vec<Collective>,
    /// Collectives for which there was no room.
    #[serde(default)]
    pub left_out: u64,
}

/// A rank: a process of the job with its device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rank {
    /// Its number in the job.
    pub rank: u32,
    /// The file that it was read from.
    pub file: String,
    /// When the first event of that file began, in nanoseconds of the file's own clock.
    pub origin_ns: i64,
    /// What was added to its times, beside the difference of the origins, to bring them to the first rank's clock: the median
    /// of what the ends of common collectives are apart. 0 where they are no further apart than they scatter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shift_ns: Option<i64>,
    /// By no more than this do nine tenths of these ends miss the shift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shift_spread_ns: Option<u64>,
    /// Why its clock isn't aligned: its times lie to those of others as the files state it, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shift_absent: Option<Absent>,
    /// By what its collectives were found to be the same as those of lower ranks: the least certain way that was needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched_by: Option<MatchedBy>,
    /// The collectives of its file.
    pub collectives: u64,
    /// Those of them that no other rank is known to have.
    pub unmatched: u64,
    /// What it sent to one other rank, or received from it: no collective.
    pub point_to_point: u64,
}

/// By what a collective on one rank is known to be the same as one on another rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchedBy {
    /// Both files, or the one of both devices, state its number in its process group.
    Number,
    /// Both files have equally many of a kind, and in this order each could have met its like.
    Order,
    /// They end at once.
    Ends,
}

impl MatchedBy {
    /// For sentences: `by their order`.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Number => "by their numbers",
            Self::Order => "by their order",
            Self::Ends => "by their ends",
        }
    }
}

/// A kind of collectives: an operation of a group of ranks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct CollectiveKind {
    /// The operation: `all_reduce`, `all_gather`; or the name of the kernel, if that tells no more.
    pub name: String,
    /// The process group; where a file doesn't state it, the stream: `stream 20`, or the devices of one file that did it
    /// together: `devices 0-3`.
    pub group: String,
    /// The ranks of the group, as the file writes them, which may be cut.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub members: String,
    /// How many ranks the group has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u32>,
    /// The bytes that a rank puts in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl CollectiveKind {
    /// Whether its ranks have different parts in it: then a short time is not that of the rank that came last.
    #[must_use]
    pub fn has_root(&self) -> bool {
        ["broadcast", "reduce", "gather", "scatter"].contains(&&*self.name)
    }
}

/// A collective.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Collective {
    /// An index into [`Ranks::kinds`].
    pub kind: u32,
    /// Its number in its group, if the file states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// The serial of the pass that launched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<u32>,
    /// Its layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<u16>,
    /// Its times on each rank, the lowest rank first.
    pub on: Vec<OnRank>,
}

impl Collective {
    /// The shortest of its times. A rank can end only after all have begun, so the last to come has no wait in its time: what
    /// the others took more, they waited. `None` if only one rank has it.
    #[must_use]
    pub fn transfer_ns(&self) -> Option<u64> {
        if self.on.len() < 2 {
            return None;
        }
        self.on.iter().map(|on| on.duration_ns).min()
    }
}

/// The times of a collective on a rank. In files: an array of the three, with `null` for a begin that isn't known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "(u32, Option<u64>, u64)", into = "(u32, Option<u64>, u64)")]
pub struct OnRank {
    /// The rank.
    pub rank: u32,
    /// When it began, in nanoseconds of the profile; `None` where the file states durations alone.
    pub start_ns: Option<u64>,
    /// How long it took there.
    pub duration_ns: u64,
}

impl From<(u32, Option<u64>, u64)> for OnRank {
    fn from((rank, start_ns, duration_ns): (u32, Option<u64>, u64)) -> Self {
        Self { rank, start_ns, duration_ns }
    }
}

impl From<OnRank> for (u32, Option<u64>, u64) {
    fn from(on: OnRank) -> Self {
        (on.rank, on.start_ns, on.duration_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(rank: u32, duration_ns: u64) -> OnRank {
        OnRank { rank, start_ns: Some(5), duration_ns }
    }

    #[test]
    fn the_transfer_is_the_shortest_time_of_two_ranks_or_more() {
        let mut of = Collective { on: vec![on(0, 30), on(1, 20), on(2, 25)], ..Default::default() };
        assert_eq!(of.transfer_ns(), Some(20));
        of.on.truncate(1);
        assert_eq!(of.transfer_ns(), None);
    }

    #[test]
    fn times_on_ranks_are_arrays_in_files() {
        let of = Collective { kind: 3, on: vec![on(1, 20)], ..Default::default() };
        let text = serde_json::to_string(&of).expect("it is plain");
        assert_eq!(text, r#"{"kind":3,"on":[[1,5,20]]}"#);
        assert_eq!(serde_json::from_str::<Collective>(&text).expect("it was written"), of);
        let of = Collective { on: vec![OnRank { start_ns: None, ..on(1, 20) }], ..of };
        let text = serde_json::to_string(&of).expect("it is plain");
        assert_eq!(text, r#"{"kind":3,"on":[[1,null,20]]}"#);
        assert_eq!(serde_json::from_str::<Collective>(&text).expect("it was written"), of);
    }
}
