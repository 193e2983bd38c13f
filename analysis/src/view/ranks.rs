//! Several ranks of a job, or devices of one file: what each waited in collectives, and how that is known.

use std::fmt::Write;

use brickscope_profile::text::{count, printable, printable_text, shortened};
use brickscope_profile::{Profile, Rank, Ranks};

use crate::links::{Member, SlowLink, several};
use crate::ranks::{InCollectives, OfKind, OfRank, Straggler};
use crate::text::wrap;
use crate::view::layout::{COLUMNS, labelled, wrapped};
use crate::view::tables::Limits;
use crate::words::{size, time};

/// Ranks whose waits are told one by one.
const MOST_TOLD: usize = 4;

/// Slow links that are told one by one.
const MOST_LINKS: usize = 4;

/// Ranks of which it is told how their clocks lie.
const MOST_CLOCKS: usize = 8;

/// `Ranks    4: rank 3 is the straggler, …` or `Devices  4: device 3 …`, if there are several.
pub(super) fn in_summary(profile: &Profile) -> Option<String> {
    let ranks = several(profile)?;
    let members = Member::of(profile);
    let one = members.one();
    let head = format!("{:8} {}", title(members), how_many(profile, ranks));
    let Some(sums) = InCollectives::of(profile) else {
        return Some(match members {
            Member::Rank => format!("{head}, which have no collective in common"),
            Member::Device => {
                format!("{head} with collectives, of which none is known to be the same on two")
            }
        });
    };
    if let Some(of) = &sums.straggler {
        let found = match sums.lacks_some() {
            true => format!("; {}", sums.found_in_words()),
            false => String::new(),
        };
        return Some(format!("{head}: {}{found}", straggler(of, members)));
    }
    let found = sums.found_in_words();
    let timed = sums.collectives.saturating_sub(sums.with_a_root);
    if timed == 0 {
        return Some(format!("{head}: {found}; in each, one {one} has a part of its own"));
    }
    let transfer = sums.transfer_ns()?;
    // Of one that was in others only, no wait is known.
    let waits = || sums.ranks.iter().filter(|of| of.known_wait_ns().is_some());
    let least = waits().min_by_key(|of| of.wait_ns)?;
    let most = waits().max_by_key(|of| of.wait_ns)?;
    let verb = if timed == 1 { "transfers" } else { "transfer" };
    let those = match sums.with_a_root {
        0 => format!("{found} and {verb}"),
        _ => format!("{found}; the {timed} without a root {verb}"),
    };
    // A wait is no part of the transfer: a rank that waits takes both.
    Some(format!(
        "{head}: {those} for {}; beside that {one} {} waits {}, {one} {} {}",
        time(transfer as f64),
        most.rank,
        time(most.wait_ns as f64),
        least.rank,
        time(least.wait_ns as f64)
    ))
}

/// What there is of a file with collectives and no devices, in a sentence.
pub(super) fn alone(profile: &Profile) -> Option<String> {
    let ranks = profile.ranks.as_ref().filter(|_| profile.devices.is_empty())?;
    let collectives = count(ranks.collectives.len() as u64, "collective");
    Some(match ranks.ranks.len() {
        1 => format!("It has {collectives} of one rank, and times of nothing else."),
        n => format!("It has {collectives} of {n} ranks, and times of nothing else."),
    })
}

/// What to do with such a file.
pub(super) fn next(profile: &Profile) -> Option<&'static str> {
    let ranks = profile.ranks.as_ref().filter(|_| profile.devices.is_empty())?;
    Some(match ranks.ranks.len() {
        1 => "import the files of all ranks together: then what each waits for the others is known",
        _ => "see what each group transfers and each rank waits: the full report has it",
    })
}

/// `2`, or `2 of 128` if the job has more.
fn how_many(profile: &Profile, ranks: &Ranks) -> String {
    let mut conditions = profile.imported.iter().flat_map(|imported| &imported.conditions);
    match conditions.find(|(name, _)| name == "ranks") {
        Some((_, of)) => printable_text(of),
        None => ranks.ranks.len().to_string(),
    }
}

/// What they are called where a line begins.
fn title(members: Member) -> &'static str {
    match members {
        Member::Rank => "Ranks",
        Member::Device => "Devices",
    }
}

fn straggler(of: &Straggler, members: Member) -> String {
    format!(
        "{} {} is the straggler: the others wait {} {} for it ({} of {} collectives)",
        members.one(),
        of.rank,
        time(of.others_wait_a_pass_ns()),
        of.basis(),
        of.last,
        of.of
    )
}

/// What a reader of a page is told of ranks: who comes last, and where each comes from. Sentences without a full stop.
pub(super) fn in_words(profile: &Profile) -> Vec<String> {
    let Some(ranks) = several(profile) else { return Vec::new() };
    let sums = InCollectives::of(profile);
    let many = Member::of(profile).many();
    let mut all = vec![match &sums {
        Some(sums) => format!("{many} {}: {}", how_many(profile, ranks), verdict(sums)),
        None => format!("{many} {}: {}", how_many(profile, ranks), none_in_common(profile)),
    }];
    let links = sums.iter().flat_map(|sums| &sums.slow_links);
    all.extend(links.take(MOST_LINKS).map(SlowLink::in_words));
    let few = ranks.ranks.iter().take(MOST_CLOCKS);
    all.extend(few.map(|rank| about(profile, rank, &ranks.ranks[0])));
    if let more @ 1.. = ranks.ranks.len().saturating_sub(MOST_CLOCKS) {
        all.push(count(more as u64, &format!("more {}", Member::of(profile).one())));
    }
    all
}

/// That nothing is known to be one collective.
fn none_in_common(profile: &Profile) -> &'static str {
    match Member::of(profile) {
        Member::Rank => "they have no collective in common",
        Member::Device => "no collective is known to be the same on two of them",
    }
}

/// Who the straggler is, or why there is none.
fn verdict(sums: &InCollectives) -> String {
    match (&sums.straggler, &sums.straggler_absent) {
        (Some(of), _) => straggler(of, sums.members),
        (None, Some(why)) => why.reason.clone(),
        (None, None) => format!("no {} is known to come last", sums.members.one()),
    }
}

/// The tables of ranks, of operations and of layers.
pub(super) fn in_report(profile: &Profile, limits: &Limits, text: &mut String) {
    let Some(ranks) = several(profile) else { return };
    let members = Member::of(profile);
    text.push('\n');
    wrapped(&format!("{}: {}", heading(members), how_many(profile, ranks)), text);
    let sums = InCollectives::of(profile);
    if let Some(sums) = &sums {
        table(sums, limits, text);
        kinds(sums, limits, text);
        layers(sums, limits, text);
    }
    text.push('\n');
    let mut lines = Vec::new();
    lines.push(match &sums {
        Some(sums) => ("last", verdict(sums)),
        None => ("common", none_in_common(profile).to_owned()),
    });
    let links = sums.iter().flat_map(|sums| &sums.slow_links);
    for (nth, link) in links.take(MOST_LINKS).enumerate() {
        lines.push((if nth == 0 { "slow link" } else { "" }, link.in_words()));
    }
    if let Some((n, size)) = InCollectives::incomplete(profile) {
        lines.push((
            "waits",
            format!(
                "{} of groups of up to {size} {}, of which some aren't here: the waits are at least these",
                count(n, "collective"),
                members.many()
            ),
        ));
    }
    for (nth, rank) in ranks.ranks.iter().enumerate().take(MOST_CLOCKS) {
        let label = if nth == 0 { members.many() } else { "" };
        lines.push((label, about(profile, rank, &ranks.ranks[0])));
    }
    if let more @ 1.. = ranks.ranks.len().saturating_sub(MOST_CLOCKS) {
        lines.push(("", format!("{more} more: `--as json`, ranks")));
    }
    if ranks.left_out > 0 {
        lines.push(("left out", format!("collectives without room: {}", ranks.left_out)));
    }
    labelled(&lines, text);
}

/// What the tables of the report are of: devices have others there.
fn heading(members: Member) -> &'static str {
    match members {
        Member::Rank => "Ranks",
        Member::Device => "Devices with collectives",
    }
}

/// The times of each rank.
fn table(sums: &InCollectives, limits: &Limits, text: &mut String) {
    let row = |cells: [&str; 8]| {
        let [rank, n, all, transfer, wait, root, last, own] = cells;
        format!(
            "{rank:>4} {n:>11} {all:>8} {transfer:>8} {wait:>8} {root:>11} {last:>14} {own:>8}\n"
        )
    };
    let rank = match sums.members {
        Member::Rank => "Rank",
        Member::Device => "Dev.",
    };
    let header = [rank, "Collectives", "Time", "Transfer", "Wait", "With a root", "Last", "Own"];
    text.push_str(&row(header));
    let _ = writeln!(text, "{}", "-".repeat(79));
    let ms = |ns: u64| time(ns as f64);
    let known = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), ms);
    for of_rank in sums.ranks.iter().take(limits.rows) {
        let OfRank { rank, collectives, time_ns, with_a_root_ns, last, of, own_ns, .. } = of_rank;
        text.push_str(&row([
            &rank.to_string(),
            &collectives.to_string(),
            &ms(*time_ns),
            &known(of_rank.known_transfer_ns()),
            &known(of_rank.known_wait_ns()),
            &ms(*with_a_root_ns),
            &format!("{last} of {of}"),
            &known(*own_ns),
        ]));
    }
    more(sums.ranks.len(), limits, text);
}

/// The times of each operation of a group.
fn kinds(sums: &InCollectives, limits: &Limits, text: &mut String) {
    let row = |cells: [&str; 6]| {
        let [name, group, n, bytes, transfer, rate] = cells;
        format!("{name:20} {group:12} {n:>6} {bytes:>9} {transfer:>10} {rate:>12}\n")
    };
    text.push('\n');
    let header = ["Collective", "Group", "Count", "Bytes in", "Transfer", "Algorithm bw"];
    text.push_str(&row(header));
    let _ = writeln!(text, "{:21}Wait by {}", "", sums.members.one());
    let _ = writeln!(text, "{}", "-".repeat(78));
    for of in sums.kinds.iter().take(limits.rows) {
        let bytes = of.bytes.map_or("-".to_owned(), |bytes| size(bytes as f64));
        let transfer = of.transfer_ns.map_or("-".to_owned(), |ns| time(ns as f64));
        let rate = of.bytes_per_second();
        let rate = rate.map_or("-".to_owned(), |rate| format!("{}/s", size(rate)));
        text.push_str(&row([
            &shortened(&of.name, 20, ""),
            &shortened(&of.group, 12, ""),
            &of.collectives.to_string(),
            &bytes,
            &transfer,
            &rate,
        ]));
        for line in wrap(&waits(of, sums.members), COLUMNS - 21) {
            let _ = writeln!(text, "{:21}{line}", "");
        }
    }
    more(sums.kinds.len(), limits, text);
}

/// `0: 1.20 ms, 1: 3.40 ms`; of many ranks the most and the least.
fn waits(of: &OfKind, members: Member) -> String {
    if of.transfer_ns.is_none() {
        return format!("a {} has a part of its own", members.one());
    }
    let wait = |of: &OfRank| format!("{}: {}", of.rank, time(of.wait_ns as f64));
    let by_wait = |of: &&OfRank| of.wait_ns;
    let told: Vec<String> = match of.ranks.len() {
        0..=MOST_TOLD => of.ranks.iter().map(wait).collect(),
        _ => {
            let ends = [of.ranks.iter().min_by_key(by_wait), of.ranks.iter().max_by_key(by_wait)];
            ends.into_iter().flatten().map(wait).collect()
        }
    };
    match of.ranks.len() {
        0..=MOST_TOLD => told.join(", "),
        _ => told.join(" to "),
    }
}

/// The layers in which ranks wait the longest.
fn layers(sums: &InCollectives, limits: &Limits, text: &mut String) {
    if sums.layers.is_empty() {
        return;
    }
    let row = |cells: [&str; 4]| {
        let [layer, n, transfer, wait] = cells;
        format!("{layer:>6} {n:>12} {transfer:>10} {wait:>20}\n")
    };
    text.push('\n');
    let waits = format!("Wait of all {}", sums.members.many());
    text.push_str(&row(["Layer", "Collectives", "Transfer", &waits]));
    let _ = writeln!(text, "{}", "-".repeat(51));
    let mut longest: Vec<_> = sums.layers.iter().collect();
    longest.sort_by_key(|of| (std::cmp::Reverse(of.wait_ns), of.layer));
    for of in longest.into_iter().take(limits.rows.min(8)) {
        text.push_str(&row([
            &of.layer.to_string(),
            &of.collectives.to_string(),
            &time(of.transfer_ns as f64),
            &time(of.wait_ns as f64),
        ]));
    }
    if let rest @ 1.. = sums.layers.len().saturating_sub(limits.rows.min(8)) {
        let _ = writeln!(text, "({rest} more, which wait less)");
    }
}

fn more(all: usize, limits: &Limits, text: &mut String) {
    if let rest @ 1.. = all.saturating_sub(limits.rows) {
        let _ = writeln!(text, "({rest} more)");
    }
}

/// Where a rank comes from, how its collectives were found to be common ones, and how its clock lies. Devices of one file have
/// one clock.
fn about(profile: &Profile, of: &Rank, first: &Rank) -> String {
    let members = Member::of(profile);
    let (one, many) = (members.one(), members.many());
    let device = usize::try_from(of.rank).ok().and_then(|index| profile.devices.get(index));
    let from = match (members, device) {
        (Member::Device, Some(device)) => &*device.name,
        _ => &*of.file,
    };
    let mut parts = vec![format!("{one} {}: {}", of.rank, printable(from))];
    let all = of.collectives;
    parts.push(match of.matched_by {
        Some(by) => format!(
            "{} of {} found on other {many}, {}",
            all.saturating_sub(of.unmatched),
            count(all, "collective"),
            by.in_words()
        ),
        None => format!("{}, none found on other {many}", count(all, "collective")),
    });
    if of.point_to_point > 0 {
        parts.push(format!("{} between two {many} apart", of.point_to_point));
    }
    if of.rank != first.rank && members == Member::Rank {
        parts.push(match (of.shift_ns, of.shift_spread_ns, &of.shift_absent) {
            (Some(0), Some(spread), _) => {
                format!("its clock is that of rank {}, within {}", first.rank, time(spread as f64))
            }
            (Some(shift), Some(spread), _) => format!(
                "its clock is {} {} that of rank {}, ± {}",
                time(shift.unsigned_abs() as f64),
                if shift > 0 { "behind" } else { "ahead of" },
                first.rank,
                time(spread as f64)
            ),
            (_, _, Some(why)) => {
                format!("its clock couldn't be aligned: {}", printable_text(&why.reason))
            }
            _ => "its clock couldn't be aligned".to_owned(),
        });
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use brickscope_profile::{Absent, Collective, CollectiveKind, OnRank, Pass, Phase};

    fn two_ranks(n: usize) -> Profile {
        let on = |rank, duration_ns| OnRank { rank, start_ns: None, duration_ns };
        let of = Collective {
            pass: Some(1),
            layer: Some(0),
            on: vec![on(0, 30_000), on(1, 20_000)],
            ..Collective::default()
        };
        let rank = |rank, shift_ns| Rank {
            rank,
            file: format!("rank{rank}.json"),
            collectives: n as u64 + 1,
            unmatched: 1,
            matched_by: Some(brickscope_profile::MatchedBy::Order),
            shift_ns: Some(shift_ns),
            shift_spread_ns: Some(1_500),
            ..Rank::default()
        };
        let kind = CollectiveKind {
            name: "all_reduce".to_owned(),
            group: "0".to_owned(),
            group_size: Some(8),
            bytes: Some(4_000),
            ..CollectiveKind::default()
        };
        let pass = Pass {
            serial: 1,
            phase: Phase::Decode,
            lane: 0,
            tokens: 0,
            position: 0,
            start_ns: 0,
            wall_ns: 0,
            attributed_ns: 0,
            unattributed_ns: 0,
            disturbance: None,
            is_left_out: false,
        };
        Profile {
            passes: vec![pass],
            ranks: Some(Ranks {
                ranks: vec![rank(0, 0), rank(1, -5_000_000)],
                kinds: vec![kind],
                collectives: vec![of; n],
                left_out: 0,
            }),
            ..Profile::empty(Default::default())
        }
    }

    #[test]
    fn the_report_has_each_rank_and_how_its_clock_lies() {
        let mut text = String::new();
        in_report(&two_ranks(10), &Limits::NONE, &mut text);
        let lines = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        for said in [
            "   0          10   300 µs   200 µs   100 µs        0 ns        0 of 10        -\n",
            "   1          10   200 µs   200 µs     0 ns        0 ns       10 of 10        -\n",
            "all_reduce           0                10   40.0 kB     200 µs            -\n",
            "                     0: 100 µs, 1: 0 ns\n",
            "     0           10     200 µs               100 µs\n",
            "rank 1 is the straggler: the others wait 100 µs a pass for it (10 of 10 collectives)",
            "10 collectives of groups of up to 8 ranks",
            "10 of 11 collectives found on other ranks, by their order",
            "its clock is 5.00 ms ahead of that of rank 0, ± 1.50 µs",
        ] {
            assert!(text.contains(said) || lines.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn the_first_screen_has_one_line_of_ranks() {
        assert_eq!(
            in_summary(&two_ranks(10)).as_deref(),
            Some(
                "Ranks    2: rank 1 is the straggler: the others wait 100 µs a pass for it (10 of 10 collectives); 10 of 11 \
                 collectives were found on both"
            )
        );
        assert_eq!(
            in_summary(&two_ranks(2)).as_deref(),
            Some(
                "Ranks    2: 2 of 3 collectives were found on both and transfer for 40.0 µs; beside that rank 0 waits \
                 20.0 µs, rank 1 0 ns"
            )
        );
        assert_eq!(
            in_summary(&two_ranks(1)).as_deref(),
            Some(
                "Ranks    2: 1 of 2 collectives was found on both and transfers for 20.0 µs; beside that rank 0 waits \
                 10.0 µs, rank 1 0 ns"
            )
        );
        let mut unlike = two_ranks(2);
        unlike.ranks.as_mut().expect("they are").ranks[1].collectives = 9;
        unlike.ranks.as_mut().expect("they are").ranks[1].unmatched = 7;
        assert_eq!(
            in_summary(&unlike).as_deref(),
            Some(
                "Ranks    2: 2 collectives were found on several ranks (of rank 1 only 2 of 9) and transfer for 40.0 µs; \
                 beside that rank 0 waits 20.0 µs, rank 1 0 ns"
            )
        );
        // What is transfer isn't known.
        let mut rooted = two_ranks(10);
        rooted.ranks.as_mut().expect("they are").kinds[0].name = "broadcast".to_owned();
        assert_eq!(
            in_summary(&rooted).as_deref(),
            Some(
                "Ranks    2: 10 of 11 collectives were found on both; in each, one rank has a part of its own"
            )
        );
        let mut text = String::new();
        in_report(&rooted, &Limits::NONE, &mut text);
        let row =
            "   0          10   300 µs        -        -      300 µs         0 of 0        -\n";
        assert!(text.contains(row), "{text}");
        let mut alone = two_ranks(1);
        alone.ranks.as_mut().expect("they are").ranks.truncate(1);
        assert_eq!(in_summary(&alone), None);
    }

    #[test]
    fn no_line_of_the_tables_is_wider_than_80_columns() {
        for ranks in [2, 4, 8] {
            let mut profile = two_ranks(10);
            let of = profile.ranks.as_mut().expect("they are");
            of.ranks = (0..ranks).map(|rank| Rank { rank, ..Rank::default() }).collect();
            of.kinds[0].name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL".to_owned();
            of.kinds[0].group = "a group with a long name".to_owned();
            let on = |rank| OnRank {
                rank,
                start_ns: None,
                duration_ns: 98_765_432_100 - 1_234_567 * u64::from(rank),
            };
            of.collectives.iter_mut().for_each(|of| of.on = (0..ranks).map(on).collect());
            let mut text = String::new();
            in_report(&profile, &Limits::NONE, &mut text);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(80), "{widest:?}: {text}");
            assert!(text.contains("0: 12.3 ms") || ranks > 2, "{text}");
        }
        // As many as the trace of a minute has.
        let mut text = String::new();
        in_report(&two_ranks(20_000), &Limits::NONE, &mut text);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80) && text.contains("20000 of 20000"), "{widest:?}: {text}");
    }

    #[test]
    fn a_slow_link_and_the_bandwidth_of_each_group_are_told() {
        let mut profile = two_ranks(0);
        let of = profile.ranks.as_mut().expect("they are");
        of.ranks = (0..8).map(|rank| Rank { rank, ..Rank::default() }).collect();
        (of.kinds[0].group_size, of.kinds[0].bytes) = (Some(4), Some(32_000_000));
        let mut second = of.kinds[0].clone();
        second.group = "1".to_owned();
        of.kinds.push(second);
        for (kind, duration_ns) in [(0, 205_000), (1, 412_000)].repeat(8) {
            let ranks = 4 * kind..4 * kind + 4;
            let on = ranks.map(|rank| OnRank { rank, start_ns: None, duration_ns }).collect();
            of.collectives.push(Collective { kind, on, ..Collective::default() });
        }
        let mut text = String::new();
        in_report(&profile, &Limits::NONE, &mut text);
        let lines = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        for said in [
            "slow link all_reduce of group 1 (ranks 4 to 7) transfers 32 MB in 412 µs, the other group in 205 µs: a slower \
             link",
            // 8 × 32 MB in 8 × 205 µs.
            "1.64 ms   156.1 GB/s\n",
        ] {
            assert!(text.contains(said) || lines.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn a_clock_that_is_not_aligned_is_said_with_the_reason() {
        let why = Absent { reason: "too few".to_owned() };
        let of = Rank { rank: 1, shift_absent: Some(why), ..Rank::default() };
        let said = about(&two_ranks(0), &of, &Rank::default());
        assert!(said.ends_with("its clock couldn't be aligned: too few"), "{said}");
    }
}
