//! Sampling isn't supported on this system or processor.

use super::{Options, TimerError};
use crate::recording::Recording;

#[derive(Debug)]
pub(super) enum Running {}

impl Running {
    pub(super) fn finish(self) -> Recording {
        match self {}
    }
}

pub(super) fn start(_options: &Options) -> Result<Running, TimerError> {
    let here = format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH);
    Err(TimerError::Unsupported(here))
}
