//! Two sides whose runs took turns: how their comparison is printed, when it was measured and again.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use brickscope_analysis::compare::{Options, Side, Turn, Versus, versus};
use brickscope_analysis::view::{self, Circumstances};
use brickscope_runs::Turns as Kept;
use clap::ValueEnum;

use crate::comparison::exit_code;
use crate::flags::{ComparisonArgs, ComparisonFormat};
use crate::output;
use crate::runs::command::{apart, process};
use crate::runs::{load, profile_in};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Tables for people.
    Text,
    /// A table to paste into an issue. Files are named without their folders.
    Md,
    /// Every figure.
    Json,
}

pub(crate) fn print(format: Form, versus: &Versus, ran: Circumstances, paths: bool) -> Result<()> {
    let commands = match format == Form::Md && !paths {
        true => apart(ran.commands.each_ref().map(String::as_str)),
        false => ran.commands,
    };
    let again =
        (format == Form::Md).then(|| again_by(&commands, versus.comparison.threshold, ran.seconds));
    let ran = Circumstances { commands, again, ..ran };
    output::print(match format {
        Form::Json => view::versus_json(versus, &ran),
        Form::Md => view::versus_markdown(versus, &ran),
        Form::Text => view::versus(versus, &ran),
    })
}

/// How long `versus` takes at most, if nobody says otherwise.
pub(crate) const USUAL_TIME: &str = "10m";

/// The command that compares these two again, with as much time as they took.
fn again_by(commands: &[String; 2], threshold: f64, seconds: f64) -> String {
    let is_usual = (threshold - Options::default().threshold).abs() < f64::EPSILON;
    // As it was given, but for what no decimal fraction can be.
    let percent = (threshold * 1e8).round() / 1e6;
    let mut line = view::versus_of(commands.each_ref().map(String::as_str));
    if !is_usual {
        line += &format!(" --threshold {percent}%");
    }
    let is_longer =
        humantime::parse_duration(USUAL_TIME).is_ok_and(|of| seconds > of.as_secs_f64());
    if is_longer {
        line += &format!(" --within {}m", (seconds / 60.0).ceil());
    }
    line
}

/// Says of the runs that `versus` kept in these two folders what it said. `None` of other folders, and where something else is
/// asked.
pub(crate) fn again(folders: [&Path; 2], how: &ComparisonArgs) -> Result<Option<ExitCode>> {
    let format = match how.format() {
        ComparisonFormat::Text => Form::Text,
        ComparisonFormat::Md => Form::Md,
        ComparisonFormat::Json => Form::Json,
        ComparisonFormat::Bmf => return Ok(None),
    };
    // It judged all phases, by one rule.
    if how.force || how.min_share.is_some() || how.phase.is_some() {
        tell_of_other_rule(folders);
        return Ok(None);
    }
    let Some([kept, _]) = Kept::of_both(folders) else { return Ok(None) };
    let Kept { is_a, mut a_first, chosen, look, mut ran, .. } = kept;
    if !is_a {
        a_first.iter_mut().for_each(|a_first| *a_first = !*a_first);
        ran.commands.reverse();
        ran.engines.reverse();
    }
    let run_of = |side: usize, pair: usize| folders[side].join((pair + 1).to_string());
    let is_there =
        |pair: &usize| [0, 1].iter().all(|&side| profile_in(&run_of(side, *pair)).is_file());
    if !chosen.iter().all(is_there) {
        tell!(
            "note: of the runs that `versus` compared some are gone: these are taken for two sets"
        );
        return Ok(None);
    }
    let mut sides = two_sides();
    for &pair in &chosen {
        for (side, of) in sides.iter_mut().enumerate() {
            let name = format!("{}, run {}", of.name, pair + 1);
            let mut process = process(&name, load(&run_of(side, pair))?)?;
            process.turns = turns(pair, (side == 0) == a_first[pair]);
            of.processes.push(process);
        }
    }
    // Who names none asks for the one that was.
    let is_usual = (how.threshold - Options::default().threshold).abs() < f64::EPSILON;
    let threshold = if is_usual { kept.threshold } else { how.threshold };
    let versus = versus(&sides[0], &sides[1], look, threshold)?;
    print(format, &versus, ran, false)?;
    Ok(Some(exit_code(versus.outcome())))
}

/// Says so where `versus` judged these runs by another rule than what follows.
pub(crate) fn tell_of_other_rule(folders: [&Path; 2]) {
    if Kept::of_both(folders).is_some() {
        let [a, b] = folders.map(output::shown);
        tell!(
            "note: `versus` judged these runs by other passes and all phases at once, so its figures differ; this has them: \
             brickscope compare {a} {b}"
        );
    }
}

pub(crate) fn two_sides() -> [Side; 2] {
    ["A", "B"].map(|name| Side { name: name.to_owned(), processes: Vec::new() })
}

/// The place of a run in the order in which all ran.
pub(crate) fn turns(pair: usize, is_first: bool) -> Vec<Turn> {
    let place = 2 * pair as u64 + u64::from(!is_first);
    vec![Turn { among: "turns".to_owned(), place }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_repeats_it_has_the_threshold_and_as_much_time() {
        let again = |threshold, seconds| {
            again_by(&["old -p 1", "new"].map(str::to_owned), threshold, seconds)
        };
        let usual = Options::default().threshold;
        assert_eq!(again(usual, 599.0), "brickscope versus 'old -p 1' new");
        assert_eq!(
            again(0.005, 1390.0),
            "brickscope versus 'old -p 1' new --threshold 0.5% --within 24m"
        );
    }
}
