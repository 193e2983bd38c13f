//! Bytes for other programs, one file a format.

pub mod folded;
mod metrics;
pub mod otlp;
#[cfg(feature = "pprof")]
pub mod pprof;
pub mod prometheus;
pub mod speedscope;

use std::io;

/// What can't be said in a format.
fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
