//! How long threads worked at bricks that they share, and how long they waited for each other.

use std::collections::BTreeMap;

use brickscope_profile::{Phase, Profile, Share};

use super::figure::{From, Unit, absent, at, count, div, percent, sum};
use super::html::{Table, note, said};

/// The most rows of threads.
const MOST_THREADS: usize = 64;
/// The most rows of bricks.
const MOST_BRICKS: usize = 32;

pub(super) fn section(profile: &Profile) -> String {
    let mut html = String::new();
    for phase in Phase::SHOWN {
        let by_thread = Summed::by(profile, phase, |nth| profile.shares[nth].thread);
        if by_thread.len() < 2 {
            continue;
        }
        html.push_str(&table(
            &format!("Threads in {phase}"),
            "Thread",
            by_thread
                .iter()
                .map(|(&thread, of)| {
                    let place = at(format!("/shares/{}/thread", of.places[0]));
                    (count(u64::from(thread), place), of)
                })
                .take(MOST_THREADS),
        ));
        let by_brick = Summed::by(profile, phase, |nth| profile.shares[nth].brick.as_str());
        let mut by_brick: Vec<_> = by_brick.into_iter().collect();
        by_brick.sort_by_key(|(_, of)| std::cmp::Reverse(of.share.waited_ns));
        html.push_str(&table(
            &format!("Bricks that threads shared in {phase}, by waiting"),
            "Brick",
            by_brick.iter().map(|(name, of)| (said(name), of)).take(MOST_BRICKS),
        ));
        let more = by_thread.len().saturating_sub(MOST_THREADS)
            + by_brick.len().saturating_sub(MOST_BRICKS);
        if more > 0 {
            html.push_str(&note("Further rows are left out; they are in profile.json."));
        }
    }
    if !html.is_empty() {
        html.push_str(&note(
            "A thread waits at the barriers in a brick and at the one that ends it. Working and waiting were timed on each \
             thread, by two readings of the clock each.",
        ));
    }
    html
}

/// Shares added up, with their places in the file.
#[derive(Default)]
struct Summed {
    share: Share,
    places: Vec<usize>,
}

impl Summed {
    fn by<K: Ord>(
        profile: &Profile,
        phase: Phase,
        key: impl Fn(usize) -> K,
    ) -> BTreeMap<K, Summed> {
        let mut all = BTreeMap::<K, Self>::new();
        for (nth, of) in profile.shares.iter().enumerate().filter(|(_, of)| of.phase == phase) {
            let summed = all.entry(key(nth)).or_default();
            summed.share.add(of.share);
            summed.places.push(nth);
        }
        all
    }

    fn from(&self, field: &str) -> From {
        sum(self.places.iter().map(|nth| at(format!("/shares/{nth}/{field}"))).collect())
    }
}

fn table<'s>(
    title: &str,
    what: &str,
    rows: impl Iterator<Item = (String, &'s Summed)> + Clone,
) -> String {
    let longest = rows.clone().map(|(_, of)| of.share.worked_ns.max(of.share.waited_ns)).max();
    let unit = Unit::of(longest.unwrap_or(0));
    let (worked, waited) = (format!("#Worked, {}", unit.name), format!("#Waited, {}", unit.name));
    let mut table = Table::new(title, &[what, "#Shares", &worked, &waited, "#Waited, %"]);
    for (name, of) in rows {
        let Share { count: shares, worked_ns, waited_ns } = of.share;
        let part = of.share.waited().map_or_else(
            || absent("-"),
            |part| {
                let all = sum(vec![of.from("worked_ns"), of.from("waited_ns")]);
                percent(part, div(of.from("waited_ns"), all))
            },
        );
        table.row(&[
            &name,
            &count(shares, of.from("count")),
            &unit.show(worked_ns, of.from("worked_ns")),
            &unit.show(waited_ns, of.from("waited_ns")),
            &part,
        ]);
    }
    table.end()
}
