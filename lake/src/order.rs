//! The commits of runs: one by its name, and all in the order of a repository's history.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use brickscope_analysis::fleet::{Fleet, Observation};
use brickscope_profile::text::{count, printable_text};

use crate::store::Lake;
use crate::works::{LEAST_DIGITS, Works};

/// The runs of a commit, which may be abbreviated; `None` if there are none.
pub fn of_commit(runs: &[Observation], commit: &str) -> Result<Option<Vec<Observation>>> {
    let names: BTreeSet<&str> = runs.iter().map(|run| run.commit.as_str()).collect();
    let name = match names.get(commit) {
        Some(name) => *name,
        None => {
            let is_same = |name: &&&str| {
                name.starts_with(commit)
                    || (name.len() >= LEAST_DIGITS && commit.starts_with(**name))
            };
            let mut begin = names.iter().filter(is_same);
            let Some(name) = begin.next() else { return Ok(None) };
            if let Some(other) = begin.next() {
                bail!("{commit:?} may be {name} or {other}");
            }
            name
        }
    };
    Ok(Some(runs.iter().filter(|run| run.commit == name).cloned().collect()))
}

/// Why no work has runs of both commits: one may be of no run, and then those that are come along.
#[must_use]
pub fn not_both(works: &Works, commits: [&str; 2]) -> String {
    /// More are no help.
    const MOST: usize = 12;
    let all: Vec<Observation> = works.values().flatten().cloned().collect();
    let is_unknown = |commit: &&str| matches!(of_commit(&all, commit), Ok(None));
    let unknown: Vec<&str> = commits.into_iter().filter(is_unknown).collect();
    if unknown.is_empty() {
        return "no work was measured at both commits".to_owned();
    }
    let mut older = Fleet::order_by_time(&all);
    let newest = older.split_off(older.len().saturating_sub(MOST));
    let more = match older.len() {
        0 => String::new(),
        n => format!(", and {}", count(n as u64, "older one")),
    };
    let (unknown, newest) = (unknown.join(" or "), newest.join(", "));
    printable_text(&format!("no run is of commit {unknown}: there are {newest}{more}"))
}

/// The runs whose commits are in the history of a repository, and these commits in its order. They may be
/// abbreviated, and of trees with changes that aren't committed.
pub fn ordered(
    lake: &Lake,
    repo: &Path,
    runs: &[Observation],
) -> Result<(Vec<Observation>, Vec<String>)> {
    let git = std::process::Command::new("git")
        .arg("-C")
        .arg(repo)
        .args(["rev-list", "--reverse", "--topo-order", "HEAD"])
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .output()
        .context("can't run git")?;
    let said = String::from_utf8_lossy(&git.stderr);
    ensure!(git.status.success(), "git rev-list in {}: {}", repo.display(), said.trim());
    let history = String::from_utf8_lossy(&git.stdout);
    let history: Vec<&str> = history.lines().collect();
    // Where each commit stands, and its name: of one with changes, right after it.
    let mut places: BTreeMap<&str, Option<(usize, bool, String)>> = BTreeMap::new();
    for run in runs {
        places.entry(&run.commit).or_insert_with_key(|commit| {
            let clean = commit.strip_suffix("-dirty");
            let hash = clean.unwrap_or(commit);
            let mut begin = (0..).zip(&history).filter(|(_, full)| full.starts_with(hash));
            let (at, full) = begin.next().filter(|_| !hash.is_empty() && hash.len() >= 4)?;
            // Ambiguous ones have no place.
            begin.next().is_none().then(|| {
                let short: String = full.chars().take(12).collect();
                let name = if clean.is_some() { short + "-dirty" } else { short };
                (at, clean.is_some(), name)
            })
        });
    }
    let unknown: Vec<&str> =
        places.iter().filter(|(_, place)| place.is_none()).map(|(commit, _)| *commit).collect();
    if !unknown.is_empty() {
        (lake.host().tell)(&format!(
            "left out: {} that the history of HEAD in {} doesn't have: {}",
            count(unknown.len() as u64, "commit"),
            printable_text(&repo.to_string_lossy()),
            printable_text(&unknown.join(", "))
        ));
    }
    let mut order: Vec<&(usize, bool, String)> = places.values().flatten().collect();
    order.sort();
    order.dedup();
    let order = order.into_iter().map(|(_, _, name)| name.clone()).collect();
    let renamed = runs.iter().filter_map(|run| {
        let (_, _, name) = places.get(run.commit.as_str())?.as_ref()?;
        Some(Observation { commit: name.clone(), ..run.clone() })
    });
    Ok((renamed.collect(), order))
}

#[cfg(test)]
mod tests {
    use brickscope_analysis::compare::Work;

    use super::*;
    use crate::works::OfWork;

    #[test]
    fn an_unknown_commit_is_named_beside_those_that_there_are() {
        let run = |commit: usize| Observation {
            machine: "m1".to_owned(),
            commit: format!("c{commit}"),
            session: "1".to_owned(),
            time: commit as i64,
            value: 1.0,
        };
        let work = OfWork { name: "tg128".to_owned(), work: Work::default() };
        let works = |commits: usize| Works::from([(work.clone(), (0..commits).map(run).collect())]);
        assert_eq!(
            not_both(&works(3), ["c1", "c9"]),
            "no run is of commit c9: there are c0, c1, c2"
        );
        assert_eq!(not_both(&works(3), ["c1", "c2"]), "no work was measured at both commits");
        let many = not_both(&works(14), ["x", "y"]);
        assert!(many.starts_with("no run is of commit x or y: there are c2, c3"), "{many}");
        assert!(many.ends_with("c13, and 2 older ones"), "{many}");
    }
}
