//! What is asked of a comparison.

use brickscope_profile::Phase;

use super::LEVEL;

/// How to compare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The smallest change that matters, 0.03 for 3 %.
    pub threshold: f64,
    /// Bricks and categories that take less than this part of their test on both sides are listed, but
    /// not judged.
    pub min_share: f64,
    /// Compare even sides that ran under different conditions.
    pub is_forced: bool,
    /// Compare sides with two models, or with two formats of one: what that brings is the question.
    pub models_may_differ: bool,
    /// The probability of a false alarm: [`LEVEL`], or less of it for who compares more than once.
    pub level: f64,
    /// The only phase whose [tests](super::Test::is_of) are compared and judged; `None` for all tests.
    pub phase: Option<Phase>,
}

impl Default for Options {
    /// A threshold of 3 %, rows from 1 % of their test on, and equal conditions only.
    fn default() -> Self {
        Self {
            threshold: 0.03,
            min_share: 0.01,
            is_forced: false,
            models_may_differ: false,
            level: LEVEL,
            phase: None,
        }
    }
}
