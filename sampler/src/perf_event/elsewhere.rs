//! Sampling isn't supported on this system or processor.

use std::process::{Command, ExitStatus};

use super::{Abilities, Options, Progress, RecordError};
use crate::recording::Recording;

pub(super) fn record(
    _command: Command,
    _options: &Options,
    _on_tick: impl FnMut(&Progress),
) -> Result<(Recording, ExitStatus), RecordError> {
    Err(here())
}

pub(super) fn probe() -> Result<Abilities, RecordError> {
    Err(here())
}

fn here() -> RecordError {
    let here = format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH);
    RecordError::Unsupported(here)
}
