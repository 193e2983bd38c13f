//! The result of a search: as text, with a table of what moved, or as JSON.

use std::collections::BTreeSet;

use anyhow::Result;
use brickscope_analysis::bisect::{Commit, Event, Kind, Outcome, Verdict};
use brickscope_analysis::compare::{self, Comparison, Process, Side, Turn, compare};
use brickscope_analysis::receipt::{self, Receipt};
use brickscope_analysis::view::{self, bisect as shown};
use serde::Serialize;
use serde_json::Value;

use super::runs::{self, Beside, Figure};
use super::search::Search;
use crate::in_turns::Form;
use crate::output;
use crate::runs::command::told;
use crate::text::{count, printable_text};

/// Commits of a range that are looked up.
const MOST_COMMITS: usize = 1000;

/// Prints the result.
pub(crate) fn print(search: &Search<'_>, outcome: &Outcome, form: Form) -> Result<()> {
    let state = &search.state;
    let kind = state.kind();
    let named = match outcome.verdict {
        Verdict::Found { after, to } => after + 1..to + 1,
        _ => 0..0,
    };
    let named = named.take(MOST_COMMITS);
    let commits = search
        .repo()
        .into_iter()
        .flat_map(|repo| named.clone().map(move |revision| repo.commit(search.revision(revision))));
    let found = commits.collect::<Result<Vec<Commit>>>()?;
    let beside = runs_beside(search, outcome);
    let bricks = match &beside {
        Some(beside) => {
            moved(&beside.versus.comparison, state.figure.as_ref().map(|of| of.phase.as_str()))
        }
        None => of_receipts(search, outcome)
            .map(|comparison| moved(&comparison, state.test.as_deref()))
            .unwrap_or_default(),
    };
    let left_out = state.left_out.iter();
    let left_out = left_out.map(|(revision, why)| (search.revision(*revision), why.as_str()));
    let ran = state.record.events.iter().filter_map(|event| match event {
        Event::Ran(revision, _) => Some(*revision),
        _ => None,
    });
    let options = &state.record.options;
    let context = shown::Context {
        kind,
        revisions: &state.revisions,
        outcome,
        found,
        left_out: left_out.collect(),
        false_alarm: options.false_alarm,
        wrong: options.wrong,
        least: options.least,
        by: state.figure.as_ref().map(by),
        bricks: bricks.iter().map(Moved::shown).collect(),
        more_is_better: options.more_is_better,
        measured: ran.collect::<BTreeSet<usize>>().len(),
    };
    if form != Form::Json {
        let text = shown::outcome(&context);
        let table = beside.as_ref().map(|Beside { versus, ran }| match form {
            Form::Md => view::versus_markdown(versus, ran),
            _ => view::versus(versus, ran),
        });
        return output::print(match (form, table) {
            // Nothing in it ends the block.
            (Form::Md, table) => {
                let text = text.replace('`', "'");
                format!("```text\n{text}```\n\n{}", table.unwrap_or_default())
            }
            (_, Some(table)) => text + "\n" + &table,
            (_, None) => text,
        });
    }
    let likely = outcome.likely;
    let json = Json {
        verdict: outcome.verdict,
        commits: &context.found,
        parent: match outcome.verdict {
            Verdict::Found { after, .. } => Some(search.revision(after)),
            _ => None,
        },
        good: search.revision(0),
        bad: search.revision(state.record.last),
        versions: match kind {
            Kind::Version => named.map(|revision| search.revision(revision)).collect(),
            Kind::Commit => Vec::new(),
        },
        first_likely: search.revision(likely.first),
        last_likely: search.revision(likely.last),
        left_out: context.left_out.iter().map(|(hash, why)| LeftOut { hash, why }).collect(),
        figure: state.figure.as_ref(),
        bricks: &bricks,
        versus: beside
            .map(|Beside { versus, ran }| serde_json::from_str(&view::versus_json(&versus, &ran)))
            .transpose()?,
        least: options.least,
        false_alarm: options.false_alarm,
        wrong: options.wrong,
        commits_measured: context.measured,
        outcome,
    };
    output::print(serde_json::to_string_pretty(&json)? + "\n")
}

/// What the search went by.
fn by(figure: &Figure) -> String {
    let told = figure.told();
    match figure.chosen_after {
        None => told,
        Some(runs) => format!(
            "{told}, since the whole pass didn't tell good from bad, in {} before these",
            count(runs, "measurement")
        ),
    }
}

/// The runs of what was found beside those of the one before it; `None` without runs.
fn runs_beside(search: &Search<'_>, outcome: &Outcome) -> Option<Beside> {
    let Verdict::Found { after, to } = outcome.verdict else { return None };
    let state = &search.state;
    state.figure.as_ref()?;
    let pairs = state.receipts_of(after, to);
    let options = &state.record.options;
    let folder = state.kept(search.work());
    let found = runs::beside(&folder, &pairs, [after, to], None, options.least, options.seed);
    let mut beside = match found {
        Ok(beside) => beside,
        Err(error) => {
            tell!("note: there is no table of what moved: {error:#}");
            return None;
        }
    };
    let command = told(&state.measure, Some(1));
    beside.ran.commands = [after, to].map(|of| format!("{}: {command}", search.told(of)));
    if let Some(figure) = &state.figure {
        beside.ran.notes.push(format!(
            "the search judged {} alone; this judges all phases and bricks at once, which takes more runs, so it may be \
             inconclusive where the search isn't",
            figure.told()
        ));
    }
    let noun = state.kind().noun();
    let between = match to - after - 1 {
        0 => String::new(),
        n => format!(", or one of the {} before it that can't be measured", count(n as u64, noun)),
    };
    beside.ran.notes.push(format!(
        "brickscope bisect found B{between} to be what became slower, of {} from {} to {}",
        count(1 + state.record.last as u64, noun),
        search.told(0),
        search.told(state.record.last)
    ));
    Some(beside)
}

/// What was found compared with the one before it; `None` without receipts.
fn of_receipts(search: &Search<'_>, outcome: &Outcome) -> Option<Comparison> {
    let Verdict::Found { after, to } = outcome.verdict else { return None };
    let folder = search.state.kept(search.work());
    let mut sides = [(); 2].map(|()| Side::default());
    let mut place = 0;
    for pair in search.state.receipts_of(after, to) {
        for (revision, name) in pair {
            let path = folder.join(name);
            let receipt = Receipt::from_bytes(&receipt::read(&path).ok()?, &path).ok()?;
            let mut process = Process::from_receipt(name, &receipt);
            process.turns = vec![Turn { among: "bisect".to_owned(), place }];
            sides[usize::from(revision == to)].processes.push(process);
            place += 1;
        }
    }
    for (side, revision) in sides.iter_mut().zip([after, to]) {
        side.name = search.told(revision).to_owned();
    }
    let options = compare::Options { is_forced: true, ..compare::Options::default() };
    compare(&sides[0], &sides[1], &options).ok()
}

/// The bricks that moved, in the test that counts or in all.
fn moved(comparison: &Comparison, wanted: Option<&str>) -> Vec<Moved> {
    let tests = comparison.tests.iter();
    let tests = tests.filter(|test| wanted.is_none_or(|wanted| test.name == wanted));
    let mut moved: Vec<Moved> = tests
        .flat_map(|test| test.bricks.iter().map(move |brick| (test, brick)))
        .filter(|(_, brick)| {
            matches!(brick.verdict, compare::Verdict::Slower | compare::Verdict::Faster)
        })
        .filter_map(|(test, brick)| {
            Some(Moved {
                test: test.name.clone(),
                brick: brick.name.clone(),
                change: brick.change?,
                low: brick.low,
                high: brick.high,
                share: brick.share,
                more_ns: brick.b_ns? - brick.a_ns?,
            })
        })
        .collect();
    moved.sort_by(|a, b| b.more_ns.abs().total_cmp(&a.more_ns.abs()));
    moved.truncate(8);
    moved
}

/// A brick that takes longer, or less long, than before.
#[derive(Debug, Serialize)]
struct Moved {
    test: String,
    brick: String,
    /// 0.03 for 3 % longer.
    change: f64,
    low: Option<f64>,
    high: Option<f64>,
    /// Its part of the test before.
    share: Option<f64>,
    /// Nanoseconds of one sample.
    more_ns: f64,
}

impl Moved {
    fn shown(&self) -> String {
        let share = self.share.map_or(String::new(), |share| {
            format!(", which was {:.1} % of {}", 100.0 * share, printable_text(&self.test))
        });
        format!("{} {:+.1} %{share}", printable_text(&self.brick), 100.0 * self.change)
    }
}

#[derive(Debug, Serialize)]
struct LeftOut<'t> {
    hash: &'t str,
    why: &'t str,
}

/// The result as JSON.
#[derive(Debug, Serialize)]
struct Json<'t> {
    verdict: Verdict,
    commits: &'t [Commit],
    parent: Option<&'t str>,
    good: &'t str,
    bad: &'t str,
    /// What was found among versions, instead of commits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    versions: Vec<&'t str>,
    first_likely: &'t str,
    last_likely: &'t str,
    left_out: Vec<LeftOut<'t>>,
    /// What counts of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    figure: Option<&'t Figure>,
    bricks: &'t [Moved],
    /// What `versus` says of what was found and the one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    versus: Option<Value>,
    least: f64,
    false_alarm: f64,
    wrong: f64,
    commits_measured: usize,
    outcome: &'t Outcome,
}
