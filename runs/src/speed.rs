//! How fast a run decoded, as lists say it, and which passes that is of.

use brickscope_analysis::rate::Rule;

use crate::summary::Summary;

/// How fast a run decoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Tokens per second.
    pub tokens_per_second: f64,
    /// Which passes it is of.
    pub rule: Rule,
    /// The part of the time that it leaves out.
    pub left_out_of_wall: Option<f64>,
}

impl Speed {
    /// Of a single run. `None` if it has no rate.
    pub(crate) fn of_run(summary: &Summary) -> Option<Self> {
        let left_out_of_wall = summary.decode_left_out_of_wall;
        Some(Self {
            tokens_per_second: summary.decode_tokens_per_second?,
            rule: Rule::of(left_out_of_wall),
            left_out_of_wall,
        })
    }
}
