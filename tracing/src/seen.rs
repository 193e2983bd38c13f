//! What was seen and not recorded, or not as the map meant it.

use std::fmt;

/// What a [`BrickLayer`](crate::BrickLayer) saw. As text, it says what is not in the profile, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// Spans that were made since the layer was.
    pub made: u64,
    /// Spans that the map doesn't know. In a pass they are bricks with their own names.
    pub unmapped: Vec<Unmapped>,
    /// Entries of spans where no pass was open, on that thread: before or after one, or on another thread than the pass's.
    /// They are not recorded. Counted while the profiler is on.
    pub outside: u64,
    /// Exits in a pass of spans that others were entered after, which still were. Time goes to the span that was entered
    /// last.
    pub out_of_order: u64,
}

/// Spans that a map doesn't know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unmapped {
    /// Where they are made: mostly the path of a module.
    pub target: &'static str,
    /// Their name, and their brick's.
    pub name: &'static str,
    /// How many were made.
    pub made: u64,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.made == 0 {
            return f.write_str(
                "no spans were made: the layer has to be installed before the model is loaded, and no filter may turn \
                 its spans off (candle's have the level TRACE)",
            );
        }
        write!(f, "{} spans were made", self.made)?;
        for Unmapped { target, name, made } in &self.unmapped {
            write!(f, "\nnot in the map: {made} of {target}::{name}")?;
        }
        if self.outside > 0 {
            write!(f, "\nnot recorded: {} entries outside of a pass's thread", self.outside)?;
        }
        if self.out_of_order > 0 {
            write!(f, "\nended before a span inside of them: {}", self.out_of_order)?;
        }
        Ok(())
    }
}
