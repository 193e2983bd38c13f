//! Measurements by runs: a command runs under `brickscope run`, and what counts is the time of a pass, or of a brick in it.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use brickscope_analysis::compare::{
    Counted, LEAST_PROCESSES, Process, Side, Turn, Verdict, Versus, evened, look_after, pass_ns,
    versus,
};
use brickscope_analysis::view::{self, Circumstances};
use serde::{Deserialize, Serialize};

use super::reading::{Kept, Measured, Reading};
use crate::interrupt;
use crate::runs::again::{Line, make};
use crate::runs::command::process;
use crate::text::{count, printable};

/// What counts of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    /// The name of the phase.
    pub(crate) phase: String,
    /// The brick whose time counts; `None` for the whole pass.
    pub(crate) brick: Option<String>,
    /// How many measurements by the whole pass there were when the search chose the brick.
    pub(crate) chosen_after: Option<u64>,
}

impl Figure {
    /// The nanoseconds of a token of a pass, of the fastest quarter of the passes.
    fn of(&self, process: &Process) -> Result<f64> {
        let test = process.tests.iter().find(|test| test.name == self.phase);
        let names =
            |names: Vec<&str>| names.into_iter().map(printable).collect::<Vec<_>>().join(", ");
        let test = test.with_context(|| {
            let tests = process.tests.iter().map(|test| test.name.as_str()).collect();
            format!("its run has no {} pass: it has {} (--phase)", self.phase, names(tests))
        })?;
        let ns =
            // Of all runs alike: what disturbs a run only adds time, and may be there or not.
            pass_ns(test, self.brick.as_deref(), Counted::FastestQuarter).with_context(|| {
                let bricks = test.bricks.iter().map(|brick| brick.name.as_str()).collect();
                let brick = printable(self.brick.as_deref().unwrap_or_default());
                format!("its {} pass has no brick {brick}: it has {}", self.phase, names(bricks))
            })?;
        ensure!(ns > 0.0, "its run says that {} took no time", self.told());
        // Commits may differ in how many tokens a pass has.
        Ok(ns / test.tokens.max(1) as f64)
    }

    /// `the time of DownProjection in a token of decode`.
    pub(crate) fn told(&self) -> String {
        match &self.brick {
            Some(brick) => format!("the time of {} in a token of {}", printable(brick), self.phase),
            None => format!("the time of a token of {}", self.phase),
        }
    }
}

/// Measures once, in the folder of a commit or a version.
pub(crate) fn measure(
    line: &Line,
    folder: &Path,
    revision: &str,
    work: &Path,
    figure: &Figure,
) -> Result<Measured> {
    let out = work.join("run");
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| out.display().to_string())?;
    }
    let mut line = Line { folder: Some(folder.to_owned()), ..line.clone() };
    line.env.push(("BRICKSCOPE_REVISION".into(), revision.into()));
    let began = Instant::now();
    let made = make(&line, &out);
    let seconds = began.elapsed().as_secs_f64();
    let _ = fs::remove_dir_all(&out);
    if interrupt::is_asked() {
        return Ok(Measured::Interrupted);
    }
    let profile = match made {
        Ok(profile) => profile,
        Err(error) if error.is::<interrupt::Nothing>() => return Ok(Measured::Interrupted),
        Err(error) => return Ok(Measured::Failed(format!("{error:#}"))),
    };
    let engine = profile.run.as_ref().map(|run| run.backend.clone());
    let machine = view::machine_in_words(&profile);
    let others_share = profile.other_load.as_ref().map(|load| load.others_share());
    let read = process("its run", profile).and_then(|process| {
        let value = figure.of(&process)?;
        let run = Box::new(Kept { process, engine, machine, others_share, seconds });
        Ok(Reading { value, receipt: None, run: Some(run) })
    });
    Ok(match read {
        Ok(reading) => Measured::Value(reading),
        Err(error) => Measured::Failed(format!("{error:#}")),
    })
}

/// Runs of two revisions beside each other.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) versus: Versus,
    pub(crate) ran: Circumstances,
}

/// Compares two revisions, `a` before `b`, by pairs of their runs in the order in which they ran: of each run the revision and
/// its file in `folder`. `look` says how often they were compared so; without it they were as often as `versus` would have.
pub(crate) fn beside(
    folder: &Path,
    pairs: &[[(usize, &str); 2]],
    [a, b]: [usize; 2],
    look: Option<u32>,
    least: f64,
    seed: u64,
) -> Result<Beside> {
    let a_first: Vec<bool> = pairs.iter().map(|[first, _]| first.0 == a).collect();
    let mut chosen = evened(&a_first, seed);
    if chosen.len() < LEAST_PROCESSES {
        // Then all, which count as two samples.
        chosen = (0..pairs.len()).collect();
    }
    let mut sides = ["A", "B"].map(|name| Side { name: name.to_owned(), processes: Vec::new() });
    let mut ran = Circumstances { pairs: chosen.len(), ..Circumstances::default() };
    let mut others = Vec::new();
    let runs = chosen.iter().flat_map(|&pair| pairs[pair]);
    for (place, (revision, name)) in (0..).zip(runs) {
        let Kept { mut process, engine, machine, others_share, seconds } =
            Kept::load(&folder.join(name))?;
        let side = usize::from(revision == b);
        process.name = format!("{}, run {name}", sides[side].name);
        process.turns = vec![Turn { among: "bisect".to_owned(), place }];
        sides[side].processes.push(process);
        ran.engines[side] = ran.engines[side].take().or(engine);
        ran.machine = ran.machine.take().or(machine);
        ran.seconds += seconds;
        others.extend(others_share);
    }
    let n = others.len();
    ran.others_share = (n > 0).then(|| others.iter().sum::<f64>() / n as f64);
    let left = pairs.len() - chosen.len();
    if left > 0 {
        let left = count(left as u64, "other pair");
        ran.notes.push(format!("left out, so that either goes first as often: {left}"));
    }
    let seen = (0..chosen.len()).filter_map(look_after).max().unwrap_or(0);
    let versus = versus(&sides[0], &sides[1], look.unwrap_or(seen + 1), least)?;
    Ok(Beside { versus, ran })
}

/// The one brick of a phase that is slower, where the whole pass doesn't tell.
pub(crate) fn only_slower(versus: &Versus, phase: &str) -> Option<String> {
    let test = versus.comparison.tests.iter().find(|test| test.name == phase)?;
    if matches!(test.whole.verdict, Verdict::Slower | Verdict::Faster) {
        return None;
    }
    let mut slower = test.bricks.iter().filter(|brick| brick.verdict == Verdict::Slower);
    let brick = slower.next()?;
    slower.next().is_none().then(|| brick.name.clone())
}

#[cfg(test)]
mod tests {
    use brickscope_analysis::compare::{Brick, Test};

    use super::*;

    /// A run whose passes take about so long in two bricks; `seed` makes it differ from others.
    fn kept(attention: f64, feed: f64, seed: u64) -> Kept {
        let mut test = Test { name: "decode".to_owned(), ..Test::default() };
        test.bricks = ["Attention", "Feed"]
            .map(|name| Brick { name: name.to_owned(), ..Brick::default() })
            .to_vec();
        for pass in 0..8 {
            // The first brick is noisy, the second is not.
            let noisy = 1.0 + 0.3 * ((seed * 7919 + pass % 2) % 101) as f64 / 101.0;
            let even = 1.0 + 0.01 * ((seed * 104_729 + pass) % 103) as f64 / 103.0;
            let times = [attention * noisy, feed * even].map(|ns| ns as u64);
            test.bricks[0].ns.push(times[0]);
            test.bricks[1].ns.push(times[1]);
            test.wall_ns.push(times.iter().sum());
            test.unattributed_ns.push(0);
        }
        let process = Process { tests: vec![test], ..Process::default() };
        Kept { process, engine: None, machine: None, others_share: Some(0.25), seconds: 0.5 }
    }

    fn figure(phase: &str, brick: Option<&str>) -> Figure {
        let brick = brick.map(str::to_owned);
        Figure { phase: phase.to_owned(), brick, chosen_after: None }
    }

    #[test]
    fn a_pass_or_a_brick_in_it_counts() {
        let run = kept(1e6, 1e5, 1);
        let of = |phase, brick| figure(phase, brick).of(&run.process);
        let (whole, feed) = (of("decode", None), of("decode", Some("Feed")));
        assert!(whole.expect("a pass") > 1e6 && (1e5..1.02e5).contains(&feed.expect("a brick")));
        let why = of("prefill", None).expect_err("no pass").to_string();
        assert!(why.contains("no prefill pass: it has decode"), "{why}");
        let why = of("decode", Some("Fed")).expect_err("no brick").to_string();
        assert!(why.contains("no brick Fed: it has Attention, Feed"), "{why}");
    }

    #[test]
    fn where_the_whole_is_noisy_the_brick_that_moved_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let names: Vec<String> = (0..40).map(|n| format!("{n:06}.json")).collect();
        let mut pairs = Vec::new();
        for pair in 0..20 {
            let good_first = pair % 2 == 0;
            let revisions = if good_first { [0, 9] } else { [9, 0] };
            for (turn, revision) in revisions.into_iter().enumerate() {
                let feed = if revision == 9 { 1.1e5 } else { 1e5 };
                let n = 2 * pair + turn;
                kept(1e6, feed, n as u64).save(&folder.path().join(&names[n])).expect("saved");
            }
            pairs.push([(revisions[0], &*names[2 * pair]), (revisions[1], &*names[2 * pair + 1])]);
        }
        let found = beside(folder.path(), &pairs, [0, 9], Some(1), 0.02, 7).expect("compared");
        assert_eq!(only_slower(&found.versus, "decode").as_deref(), Some("Feed"), "{found:?}");
        assert_eq!(only_slower(&found.versus, "prefill"), None);
        assert_eq!((found.ran.pairs, found.ran.others_share), (20, Some(0.25)));
        assert_eq!(found.ran.seconds, 20.0);
        // Ten of one order and two of the other.
        let uneven = [&pairs[1..2], &pairs[3..4]].concat();
        let uneven: Vec<_> = pairs.iter().step_by(2).chain(&uneven).copied().collect();
        let found = beside(folder.path(), &uneven, [0, 9], None, 0.02, 7).expect("compared");
        assert_eq!(found.ran.pairs, 5);
        assert_eq!(
            found.ran.notes,
            ["left out, so that either goes first as often: 7 other pairs"]
        );
    }
}
