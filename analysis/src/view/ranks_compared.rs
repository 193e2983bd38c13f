//! The ranks of two runs beside each other, under the tables of a comparison.

use std::fmt::Write;

use brickscope_profile::Absent;
use brickscope_profile::text::{count, printable, printable_text, shortened};

use crate::compare::{FoundIn, LinkChange, RanksChange, StragglerChange, TwoTimes};
use crate::links::{Member, in_short};
use crate::ranks::Straggler;
use crate::text::{markdown, wrap};
use crate::view::layout::{COLUMNS, labelled};
use crate::words::time;

/// Rows of a table.
const MOST_ROWS: usize = 16;

/// Slow links that are told one by one.
const MOST_LINKS: usize = 4;

/// What is said of them beside the tables, a sentence each, without a full stop. The first one says what is compared.
#[must_use]
pub fn ranks_compared_in_words(of: &RanksChange) -> Vec<String> {
    let lines = lines(of).into_iter().map(|(_, line)| line);
    std::iter::once(heading(of)).chain(lines).map(|line| printable_text(&line)).collect()
}

/// The section of a text.
pub(super) fn section(of: &RanksChange, out: &mut String) {
    out.push('\n');
    for line in wrap(&heading(of), COLUMNS) {
        let _ = writeln!(out, "{line}");
    }
    if !of.ranks.is_empty() {
        by_rank(of, out);
    }
    if let (false, Some(sum)) = (of.transfers.is_empty(), &of.transfer) {
        by_kind(of, sum, out);
    }
    let lines = lines(of);
    if !lines.is_empty() {
        out.push('\n');
    }
    labelled(&lines, out);
}

/// The section of a comment.
pub(super) fn section_markdown(of: &RanksChange, out: &mut String) {
    let _ = write!(out, "\n{}\n", markdown(&heading(of)));
    if !of.ranks.is_empty() {
        let one = of.members.one();
        let _ = writeln!(out, "\n| {one} | own, A | B | B:A | wait, A | B | B − A |");
        out.push_str("|--:|--:|--:|--:|--:|--:|--:|\n");
        for row in of.ranks.iter().take(MOST_ROWS) {
            let [own_a, own_b, ratio] = with_ratio(&row.own);
            let [wait_a, wait_b, apart] = with_difference(&row.wait);
            let rank = row.rank;
            let _ = writeln!(
                out,
                "| {rank} | {own_a} | {own_b} | {ratio} | {wait_a} | {wait_b} | {apart} |"
            );
        }
        more_markdown(of.ranks.len(), out);
    }
    if !of.transfers.is_empty() {
        out.push_str("\n| collective | group | transfer, A | B | B:A |\n|---|---|--:|--:|--:|\n");
        for row in of.transfers.iter().take(MOST_ROWS) {
            let [a, b, ratio] = with_ratio(&row.transfer);
            let [name, group] = [&row.name, &row.group].map(|name| markdown(&printable(name)));
            let _ = writeln!(out, "| {name} | {group} | {a} | {b} | {ratio} |");
        }
        more_markdown(of.transfers.len(), out);
    }
    for (_, line) in lines(of) {
        let _ = write!(out, "\n{}\n", markdown(&line));
    }
}

/// What is compared.
fn heading(of: &RanksChange) -> String {
    let title = match of.members {
        Member::Rank => "Ranks",
        Member::Device => "Devices with collectives",
    };
    if let Some(why) = &of.absent {
        return format!("{title}: {}", why.reason);
    }
    let (one, a, b) = (of.members.one(), of.a.len(), of.b.len());
    let which = match (of.have_same(), a == b) {
        (true, _) => format!("{a} in each"),
        (false, false) => format!("{a} in A and {b} in B, so not {one} by {one}"),
        (false, true) => format!(
            "{a} in each, but others ({} in A, {} in B), so not {one} by {one}",
            in_short(&of.a),
            in_short(&of.b)
        ),
    };
    format!("{title}: {which}; one run each, no verdict")
}

fn by_rank(of: &RanksChange, out: &mut String) {
    let row = |cells: [&str; 7]| {
        let [rank, own_a, own_b, ratio, wait_a, wait_b, apart] = cells;
        format!(
            "{rank:>4} {own_a:>12} {own_b:>10} {ratio:>8} {wait_a:>13} {wait_b:>10} {apart:>11}\n"
        )
    };
    let rank = match of.members {
        Member::Rank => "Rank",
        Member::Device => "Dev.",
    };
    out.push_str(&row([rank, "Own, A", "B", "B:A", "Wait, A", "B", "B − A"]));
    for change in of.ranks.iter().take(MOST_ROWS) {
        let [own_a, own_b, ratio] = with_ratio(&change.own);
        let [wait_a, wait_b, apart] = with_difference(&change.wait);
        let rank = change.rank.to_string();
        out.push_str(&row([&rank, &own_a, &own_b, &ratio, &wait_a, &wait_b, &apart]));
    }
    more(of.ranks.len(), out);
}

fn by_kind(of: &RanksChange, sum: &TwoTimes, out: &mut String) {
    let row = |name: &str, group: &str, [a, b, ratio]: [&str; 3]| {
        let (name, group) = (shortened(name, 24, ""), shortened(group, 16, ""));
        format!("{name:24} {group:16} {a:>13} {b:>10} {ratio:>8}\n")
    };
    out.push('\n');
    out.push_str(&row("Collective", "Group", ["Transfer, A", "B", "B:A"]));
    for change in of.transfers.iter().take(MOST_ROWS) {
        let times = with_ratio(&change.transfer);
        out.push_str(&row(&change.name, &change.group, times.each_ref().map(String::as_str)));
    }
    more(of.transfers.len(), out);
    if of.transfers.len() > 1 {
        out.push_str(&row("all", "", with_ratio(sum).each_ref().map(String::as_str)));
    }
}

fn more(all: usize, out: &mut String) {
    if let rest @ 1.. = all.saturating_sub(MOST_ROWS) {
        let _ = writeln!(out, "({rest} more: `--json`)");
    }
}

fn more_markdown(all: usize, out: &mut String) {
    if let rest @ 1.. = all.saturating_sub(MOST_ROWS) {
        let _ = writeln!(out, "\n({rest} more: `--json`)");
    }
}

/// Both times, and how often A's goes into B's.
fn with_ratio(of: &TwoTimes) -> [String; 3] {
    let ratio = of.ratio.map(|ratio| format!("{ratio:.3}"));
    [known(of.a_ns), known(of.b_ns), ratio.unwrap_or_else(dash)]
}

/// Both times, and by how much B's is longer.
fn with_difference(of: &TwoTimes) -> [String; 3] {
    [known(of.a_ns), known(of.b_ns), of.apart_ns.map_or_else(dash, difference)]
}

fn known(ns: Option<u64>) -> String {
    ns.map_or_else(dash, |ns| time(ns as f64))
}

fn dash() -> String {
    "-".to_owned()
}

/// `+100 µs`, `−100 µs` or `0 ns`.
fn difference(ns: i64) -> String {
    let sign = match ns {
        1.. => "+",
        0 => "",
        _ => "−",
    };
    format!("{sign}{}", time(ns.unsigned_abs() as f64))
}

/// `, B:A 1.030`, if it is known.
fn ratio_behind(of: &TwoTimes) -> String {
    of.ratio.map_or_else(String::new, |ratio| format!(", B:A {ratio:.3}"))
}

/// What stands under the tables, with a label each.
fn lines(of: &RanksChange) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let one = of.members.one();
    // With the same ranks the tables have both.
    if !of.have_same() {
        lines.extend(of.slowest.map(|slowest| {
            let [a, b, _] = with_ratio(&slowest.own);
            let a = format!("{one} {} in A, {a}", slowest.a_rank);
            let b = format!("{one} {} in B, {b}", slowest.b_rank);
            ("slowest", format!("by itself {a}, and {b}{}", ratio_behind(&slowest.own)))
        }));
        lines.extend(of.transfer.map(|sum| {
            let [a, b, _] = with_ratio(&sum);
            ("transfer", format!("of all collectives {a} in A and {b} in B{}", ratio_behind(&sum)))
        }));
    }
    lines.extend(of.unlike.as_ref().map(|why| ("not alike", why.reason.clone())));
    lines.extend(of.straggler.as_ref().map(|straggler| ("last", last(of, straggler))));
    for (nth, link) in of.slow_links.iter().take(MOST_LINKS).enumerate() {
        lines.push((if nth == 0 { "slow link" } else { "" }, slow_link(link, of.have_same())));
    }
    if let more @ 1.. = of.slow_links.len().saturating_sub(MOST_LINKS) {
        lines.push(("", format!("{} more: `--json`", count(more as u64, "slow link"))));
    }
    for (letter, found) in [("A", &of.a_found), ("B", &of.b_found)] {
        lines.extend(found.as_ref().map(|found| ("found", format!("in {letter} {found}"))));
    }
    for (letter, n) in [("A", of.a_incomplete), ("B", of.b_incomplete)] {
        if n > 0 {
            let n = count(n, "collective");
            let why = "that aren't in it: the waits are at least these";
            lines.push(("waits", format!("{n} of {letter} with {} {why}", of.members.many())));
        }
    }
    lines
}

/// Who it is that others wait for.
fn last(all: &RanksChange, of: &StragglerChange) -> String {
    let one = all.members.one();
    let waits = |of: &Straggler| {
        format!("the others wait {} {} for it", time(of.others_wait_a_pass_ns()), of.basis())
    };
    let none = |why: &Option<Absent>| {
        why.as_ref().map_or_else(String::new, |why| format!(": {}", why.reason))
    };
    match (&of.a, &of.b) {
        (Some(a), Some(b)) if of.is_in == FoundIn::Both => {
            format!("the same straggler, {one} {}: in A {}, in B {}", a.rank, waits(a), waits(b))
        }
        (Some(a), Some(b)) => format!(
            "{}: {one} {} in A ({}), {one} {} in B ({})",
            // Of other sets, it may be of the same number.
            if all.have_same() { "another straggler" } else { "a straggler in each" },
            a.rank,
            waits(a),
            b.rank,
            waits(b)
        ),
        (Some(a), None) => format!(
            "{one} {} is the straggler in A ({}), and none is named in B{}",
            a.rank,
            waits(a),
            none(&of.b_absent)
        ),
        (None, Some(b)) => format!(
            "{one} {} is the straggler in B ({}), and none is named in A{}",
            b.rank,
            waits(b),
            none(&of.a_absent)
        ),
        (None, None) => "no straggler is named in A or in B".to_owned(),
    }
}

/// Whether it came or went.
fn slow_link(of: &LinkChange, have_same: bool) -> String {
    match (&of.a, &of.b) {
        (Some(a), Some(b)) => format!(
            "in A and in B: {}; these times are of A, and in B {} and {}",
            a.in_words(),
            time(b.transfer_ns as f64),
            time(b.others_ns as f64)
        ),
        (Some(of), None) if !have_same => format!("in A: {}", of.in_words()),
        (None, Some(of)) if !have_same => format!("in B: {}", of.in_words()),
        (Some(a), None) => format!("named in A and not in B: {}", a.in_words()),
        (None, Some(b)) => format!("named in B and not in A: {}", b.in_words()),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::RanksOfRun;
    use brickscope_profile::{Collective, CollectiveKind, OnRank, Profile, Rank, Ranks};

    /// A run of ranks, of which all but one wait 10 µs in each of so many collectives. The late one does 1.2 ms by itself, the
    /// others 1 ms.
    fn run(ranks: u32, late: u32, collectives: usize) -> RanksOfRun {
        let on = |rank| {
            let duration_ns = if rank == late { 20_000 } else { 30_000 };
            OnRank { rank, start_ns: None, duration_ns }
        };
        let on: Vec<OnRank> = (0..ranks).map(on).collect();
        let of = Collective { pass: Some(1), on, ..Collective::default() };
        let kind = CollectiveKind {
            name: "all_reduce".to_owned(),
            group: "0".to_owned(),
            group_size: Some(ranks),
            bytes: Some(4_000),
            ..CollectiveKind::default()
        };
        let profile = Profile {
            ranks: Some(Ranks {
                ranks: (0..ranks).map(|rank| Rank { rank, ..Rank::default() }).collect(),
                kinds: vec![kind],
                collectives: vec![of; collectives],
                left_out: 0,
            }),
            ..Profile::empty(Default::default())
        };
        let mut run = RanksOfRun::of(&profile).expect("there are several");
        for of in run.in_collectives.iter_mut().flat_map(|sums| &mut sums.ranks) {
            of.own_ns = Some(if of.rank == late { 1_200_000 } else { 1_000_000 });
        }
        run
    }

    fn text(a: Option<&RanksOfRun>, b: Option<&RanksOfRun>) -> String {
        let of = RanksChange::of_runs(a, b).expect("one has ranks");
        let mut text = String::new();
        section(&of, &mut text);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(COLUMNS), "{widest:?}: {text}");
        text
    }

    #[test]
    fn ranks_of_two_runs_stand_beside_each_other() {
        let text = text(Some(&run(2, 0, 10)), Some(&run(2, 1, 10)));
        let golden = "
Ranks: 2 in each; one run each, no verdict
Rank       Own, A          B      B:A       Wait, A          B       B − A
   0      1.20 ms    1.00 ms    0.833          0 ns     100 µs     +100 µs
   1      1.00 ms    1.20 ms    1.200        100 µs       0 ns     −100 µs

Collective               Group              Transfer, A          B      B:A
all_reduce               0                       200 µs     200 µs    1.000

last      another straggler: rank 0 in A (the others wait 100 µs in all for
          it), rank 1 in B (the others wait 100 µs in all for it)
";
        assert_eq!(text, golden);
    }

    #[test]
    fn collectives_of_one_rank_alone_are_told_of_the_run_that_has_them() {
        let mut half = run(2, 1, 5);
        for on in half.in_collectives.iter_mut().flat_map(|sums| &mut sums.found) {
            (on.found, on.of) = (5, 10);
        }
        let text = text(Some(&run(2, 0, 10)), Some(&half));
        assert!(text.contains("found     in B 5 of 10 collectives were found on both\n"), "{text}");
        assert!(!text.contains("found     in A"), "{text}");
    }

    #[test]
    fn other_numbers_of_ranks_are_not_compared_rank_by_rank() {
        let text = text(Some(&run(4, 1, 10)), Some(&run(2, 1, 10)));
        let golden = "
Ranks: 4 in A and 2 in B, so not rank by rank; one run each, no verdict

slowest   by itself rank 1 in A, 1.20 ms, and rank 1 in B, 1.20 ms, B:A 1.000
transfer  of all collectives 200 µs in A and 200 µs in B, B:A 1.000
last      a straggler in each: rank 1 in A (the others wait 100 µs in all for
          it), rank 1 in B (the others wait 100 µs in all for it)
";
        assert_eq!(text, golden);
    }

    #[test]
    fn devices_of_one_file_are_called_what_they_are() {
        let [a, b] = [0, 1].map(|late| RanksOfRun { members: Member::Device, ..run(2, late, 10) });
        let text = text(Some(&a), Some(&b));
        for said in [
            "\nDevices with collectives: 2 in each; one run each, no verdict\nDev.       Own, A ",
            "another straggler: device 0 in A (",
            "device 1 in B (",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert!(!text.to_lowercase().contains("rank"), "{text}");
    }

    #[test]
    fn a_comment_says_how_many_rows_it_lacks() {
        let (a, b) = (run(20, 0, 10), run(20, 1, 10));
        let of = RanksChange::of_runs(Some(&a), Some(&b)).expect("both have ranks");
        let mut text = String::new();
        section_markdown(&of, &mut text);
        assert!(text.contains("| 15 |") && !text.contains("| 16 |"), "{text}");
        assert!(text.contains(" |\n\n(4 more: `--json`)\n"), "{text}");
    }

    #[test]
    fn ranks_of_one_run_alone_are_a_line() {
        let of = run(4, 1, 10);
        let said = text(Some(&of), None);
        assert_eq!(said, "\nRanks: only A has several (4), and B is of one or doesn't say\n");
        let said = text(None, Some(&of));
        assert_eq!(said, "\nRanks: only B has several (4), and A is of one or doesn't say\n");
    }

    #[test]
    fn a_comment_has_the_same_figures_and_unlike_sums_no_ratio() {
        let of = RanksChange::of_runs(Some(&run(2, 0, 10)), Some(&run(2, 0, 20)));
        let mut text = String::new();
        section_markdown(&of.expect("both have ranks"), &mut text);
        for said in [
            "| 1 | 1.00 ms | 1.00 ms | - | 100 µs | 200 µs | - |\n",
            "| all\\_reduce | 0 | 200 µs | 400 µs | - |\n",
            "A has 10 collectives in 1 pass, and B 20 collectives in 1 pass, so sums have no ratio",
            "the same straggler, rank 0: in A the others wait 100 µs in all for it, in B the others wait 200 µs",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
