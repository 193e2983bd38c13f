//! Two sides compared: how that is printed, and the exit code.

use std::process::ExitCode;

use anyhow::Result;
use brickscope_analysis::compare::{CompareError, Comparison, Options, Outcome, Side, compare};
use brickscope_analysis::view;

use crate::flags::{ComparisonArgs, ComparisonFormat};
use crate::output;

/// `models_may_differ` if what another model brings is a question, and not if a change is judged.
pub(crate) fn compared(
    a: &Side,
    b: &Side,
    how: &ComparisonArgs,
    models_may_differ: bool,
) -> Result<Comparison> {
    let usual = Options::default();
    let options = Options {
        threshold: how.threshold,
        min_share: how.min_share.unwrap_or(usual.min_share),
        is_forced: how.force,
        models_may_differ,
        phase: how.phase.map(Into::into),
        ..usual
    };
    compare(a, b, &options).map_err(|error| match error {
        CompareError::Unlike(_) => {
            anyhow::anyhow!("{error}; --force compares them anyway")
        }
        error => error.into(),
    })
}

pub(crate) fn print(comparison: &Comparison, how: &ComparisonArgs) -> Result<()> {
    let format = how.format();
    let text = match format {
        ComparisonFormat::Text => view::comparison(comparison),
        ComparisonFormat::Md => view::comparison_markdown(comparison),
        ComparisonFormat::Json => view::comparison_json(comparison),
        ComparisonFormat::Bmf => view::comparison_bmf(comparison),
    };
    output::print(text)
}

/// The exit codes that the help of both commands lists.
pub(crate) fn exit_code(outcome: Outcome) -> ExitCode {
    ExitCode::from(match outcome {
        Outcome::Pass => 0,
        Outcome::Slower => 1,
        Outcome::Inconclusive => 3,
    })
}
