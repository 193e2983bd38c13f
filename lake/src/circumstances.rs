//! What the runs of a verdict were made beside: other programs, and machines that may be one. Neither is in their speeds.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use brickscope_profile::text::count;

use crate::engine::answer;
use crate::part::ALL_DAYS;
use crate::store::Lake;
use crate::works::{OfWork, WORK, Wanted, conditions, parsed};

/// A part of the CPUs' time that others take, above which a run counts as made beside other programs.
const MUCH: f64 = 0.1;

/// What a run was made beside.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Circumstances {
    machine: String,
    commit: String,
    /// The boot, where the run states it and nobody named the session.
    boot: Option<String>,
    /// The machine as it describes itself, if it states its memory.
    described: Option<String>,
    others_share: Option<f64>,
    /// Whether most of its watched passes were disturbed; `None` if none was watched.
    is_disturbed: Option<bool>,
}

/// The circumstances of the runs that [`works`](crate::works()) has.
pub fn circumstances(
    lake: &Lake,
    wanted: &Wanted<'_>,
) -> Result<BTreeMap<OfWork, Vec<Circumstances>>> {
    let query = format!(
        "SELECT {WORK}, s.work, r.machine, r.commit, r.session, r.others_share, \
           CASE WHEN r.memory_bytes IS NULL THEN NULL \
             ELSE concat_ws(', ', r.cpu, r.logical_cpus, r.memory_bytes, r.hypervisor, r.kernel_release) END, \
           d.watched, d.disturbed \
         FROM speeds s JOIN runs r ON r.run_id = s.run_id \
         LEFT JOIN (SELECT run_id, count(*) AS watched, sum(CASE WHEN is_disturbed THEN 1 ELSE 0 END) AS disturbed \
           FROM passes WHERE is_disturbed IS NOT NULL GROUP BY run_id) d ON d.run_id = r.run_id \
         WHERE s.tokens_per_second > 0 AND r.commit IS NOT NULL{} \
         ORDER BY r.created_s, r.run_id, s.test",
        conditions(wanted),
    );
    let days = (wanted.since.unwrap_or(ALL_DAYS.0), ALL_DAYS.1);
    let mut all: BTreeMap<OfWork, Vec<Circumstances>> = BTreeMap::new();
    for row in answer(lake, days, "", &query)?.rows {
        let [
            Some(name),
            Some(work),
            Some(machine),
            Some(commit),
            session,
            others_share,
            described,
            watched,
            disturbed,
        ] = &row[..]
        else {
            continue;
        };
        let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
        let of = OfWork { name: name.clone(), work: parsed(work)? };
        let passes: Option<(f64, f64)> = number(watched).zip(number(disturbed));
        all.entry(of).or_default().push(Circumstances {
            machine: machine.clone(),
            commit: commit.clone(),
            boot: session.as_deref().and_then(boot_of).map(str::to_owned),
            described: described.clone(),
            others_share: number(others_share),
            is_disturbed: passes.map(|(watched, disturbed)| 2.0 * disturbed > watched),
        });
    }
    Ok(all)
}

/// The boot in a session that nobody named: `b8436eb3 2026-11-29`.
fn boot_of(session: &str) -> Option<&str> {
    let (boot, day) = session.split_once(' ')?;
    let is_boot = boot.len() == 8 && boot.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_day = day.len() == 10
        && day.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    (is_boot && is_day).then_some(boot)
}

/// Why a verdict on these runs may be wrong, a sentence each: of all of them, or of those of the commits that are compared.
#[must_use]
pub fn doubts_of(runs: &[Circumstances], commits: Option<[&str; 2]>) -> Vec<String> {
    // They may be abbreviated, on either side.
    let is_of = |commit: &str, asked: &str| commit.starts_with(asked) || asked.starts_with(commit);
    let is_meant = |run: &&Circumstances| {
        commits.is_none_or(|two| two.iter().any(|asked| is_of(&run.commit, asked)))
    };
    let runs: Vec<&Circumstances> = runs.iter().filter(is_meant).collect();
    let mut doubts = Vec::new();
    let busy: Vec<f64> =
        runs.iter().filter_map(|run| run.others_share).filter(|share| *share > MUCH).collect();
    let of = count(runs.len() as u64, "run");
    if 2 * busy.len() > runs.len() {
        let least = busy.iter().copied().fold(f64::INFINITY, f64::min);
        let most = busy.iter().copied().fold(0.0, f64::max);
        let [least, most] = [least, most].map(|share| format!("{:.0}", 100.0 * share));
        let shares = if least == most { most } else { format!("{least} to {most}") };
        doubts.push(format!(
            "{} of {of} {} made while other programs took {shares} % of the CPUs: a change of that load looks like a \
             commit's, or a machine's",
            busy.len(),
            if busy.len() == 1 { "was" } else { "were" }
        ));
    }
    let disturbed = runs.iter().filter(|run| run.is_disturbed == Some(true)).count();
    if 2 * disturbed > runs.len() {
        doubts.push(format!("in {disturbed} of {of} most passes were disturbed"));
    }
    doubts.extend(one_machine(&runs));
    doubts
}

/// Machines that are one, or may be.
fn one_machine(runs: &[&Circumstances]) -> Vec<String> {
    let mut of_boot: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut alike: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for run in runs {
        match (&run.boot, &run.described) {
            (Some(boot), _) => _ = of_boot.entry(boot).or_default().insert(&run.machine),
            // Boots that are known would tell them apart.
            (None, Some(described)) => {
                _ = alike.entry(described).or_default().insert(&run.machine);
            }
            (None, None) => {}
        }
    }
    let names = |machines: &BTreeSet<&str>| {
        /// More are counted.
        const MOST: usize = 4;
        match machines.len() {
            n if n > MOST => count(n as u64, "machine"),
            _ => machines.iter().copied().collect::<Vec<_>>().join(", "),
        }
    };
    let several = |machines: &&BTreeSet<&str>| machines.len() > 1;
    let same: BTreeSet<String> = of_boot.values().filter(several).map(names).collect();
    let alike: BTreeSet<String> = alike.values().filter(several).map(names).collect();
    let same = same.into_iter().map(|names| {
        format!("{names} share a boot: it is one machine under several names, and nothing tells them apart")
    });
    let alike = alike.into_iter().map(|names| {
        format!("{names} describe themselves alike, to the byte of their memory: they may be one machine under several names")
    });
    same.chain(alike).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(machine: &str, commit: &str, others_share: f64) -> Circumstances {
        Circumstances {
            machine: machine.to_owned(),
            commit: commit.to_owned(),
            described: Some("a CPU, 2, 25276502016".to_owned()),
            others_share: Some(others_share),
            is_disturbed: Some(false),
            ..Circumstances::default()
        }
    }

    #[test]
    fn busy_runs_and_machines_that_may_be_one_are_told() {
        let runs = [run("m1", "c1", 0.57), run("m2", "c1", 0.9), run("m1", "c2", 0.02)];
        let said = doubts_of(&runs, None);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("2 of 3 runs were made while other programs took 57 to 90 %"));
        assert!(said[1].starts_with("m1, m2 describe themselves alike"), "{said:?}");
        assert!(doubts_of(&runs, Some(["c2", "c3"])).is_empty());
        let one = doubts_of(&runs[..1], None);
        let begin = "1 of 1 run was made while other programs took 57 % of the CPUs:";
        assert!(one[0].starts_with(begin), "{one:?}");
        // A commit may be abbreviated.
        assert_eq!(doubts_of(&runs, Some(["c1f", "c3"])).len(), 2);
    }

    #[test]
    fn a_boot_tells_machines_apart_or_that_they_are_one() {
        let with_boot = |machine: &str, boot: &str| Circumstances {
            boot: boot_of(&format!("{boot} 2026-11-29")).map(str::to_owned),
            ..run(machine, "c1", 0.0)
        };
        let apart = [with_boot("m1", "b8436eb3"), with_boot("m2", "00000001")];
        assert!(doubts_of(&apart, None).is_empty());
        let one = [with_boot("m1", "b8436eb3"), with_boot("m2", "b8436eb3")];
        let said = doubts_of(&one, None);
        assert!(said.len() == 1 && said[0].starts_with("m1, m2 share a boot"), "{said:?}");
        assert_eq!(boot_of("job 17"), None);
        let disturbed = Circumstances { is_disturbed: Some(true), ..with_boot("m1", "b8436eb3") };
        assert_eq!(doubts_of(&[disturbed], None), ["in 1 of 1 run most passes were disturbed"]);
    }
}
