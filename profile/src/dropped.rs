//! What was lost, or went otherwise than its caller meant.

use serde::{Deserialize, Serialize};

/// What was lost, or went otherwise than its caller meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    /// Spans that are in the totals, but not in `spans`: the log was full.
    pub spans: u64,
    /// Passes that are in the phases, but not in `passes`.
    pub passes: u64,
    /// Calls that could not be recorded: their thread was being torn down, or they came from
    /// inside another recording call.
    pub homeless: u64,
    /// Deferred bricks whose start lay after the end that settled them.
    pub late: u64,
    /// Hand-offs between threads of which one side did not fit the log, or was forgotten by a reset.
    pub dependencies: u64,
    /// Uses of names of bricks or kernels for which there was no room; in the totals under
    /// `(other)`.
    pub names: u64,
    /// Spans that began and never ended, or ended while recording was off; and readings of the clock of which nobody
    /// said what they were of (`PassTimestamps`).
    pub unfinished: u64,
    /// Bricks and kernels that ended on another thread than they began on; counted outside of
    /// passes.
    pub moved: u64,
    /// Bricks that began and ended in different passes; counted outside of passes.
    pub straddling: u64,
    /// Bricks that overlap another of their thread without nesting.
    pub overlapping: u64,
    /// Passes begun inside a pass; not counted as passes.
    pub nested_passes: u64,
    /// Passes that never ended, because of a panic say; their bricks count outside of passes.
    pub abandoned_passes: u64,
    /// Passes that were open when the profile was collected; it has nothing of them but spans.
    pub open_passes: u64,
    /// Passes whose times other work on the machine disturbed; they are in the statistics.
    pub disturbed_passes: u64,
    /// Passes that were disturbed and left out of the statistics, because that was asked for.
    pub left_out_passes: u64,
    /// In a snapshot (`BrickProfiler::snapshot`), kernels that are in no row of `brick_kernels`: more than there
    /// is room for ran before the brick around them ended. The totals have them.
    #[serde(skip_serializing_if = "is_zero")]
    pub unplaced_kernels: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Dropped {
    /// Each counter, by the name of its field.
    #[doc(hidden)]
    pub fn counts(&self) -> [(&'static str, u64); 16] {
        // Taken apart, so that a new one can't be forgotten.
        let &Self {
            spans,
            passes,
            homeless,
            late,
            dependencies,
            names,
            unfinished,
            moved,
            straddling,
            overlapping,
            nested_passes,
            abandoned_passes,
            open_passes,
            disturbed_passes,
            left_out_passes,
            unplaced_kernels,
        } = self;
        [
            ("spans", spans),
            ("passes", passes),
            ("homeless", homeless),
            ("late", late),
            ("dependencies", dependencies),
            ("names", names),
            ("unfinished", unfinished),
            ("moved", moved),
            ("straddling", straddling),
            ("overlapping", overlapping),
            ("nested_passes", nested_passes),
            ("abandoned_passes", abandoned_passes),
            ("open_passes", open_passes),
            ("disturbed_passes", disturbed_passes),
            ("left_out_passes", left_out_passes),
            ("unplaced_kernels", unplaced_kernels),
        ]
    }

    /// Each counter that isn't zero, with what it means.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let outside = "they count outside of passes";
        [
            ("spans that did not fit the log", self.spans, "the totals count them"),
            ("passes that did not fit the list", self.passes, "the totals count them"),
            ("recording calls with no way to the thread's log", self.homeless, "they are lost"),
            ("deferred bricks that began after the end that settled them", self.late, ""),
            ("hand-offs between threads with one side lost", self.dependencies, ""),
            ("uses of names beyond the room for names", self.names, "they count as (other)"),
            ("spans that began and never ended", self.unfinished, ""),
            ("spans that ended on another thread", self.moved, outside),
            ("bricks that crossed the border of a pass", self.straddling, outside),
            ("bricks that overlap others without nesting", self.overlapping, ""),
            ("passes begun inside a pass", self.nested_passes, "they are no passes of their own"),
            ("passes that never ended", self.abandoned_passes, "their bricks count outside"),
            ("passes that were still open", self.open_passes, "the tables have nothing of them"),
            (
                "passes that other work on this machine disturbed",
                self.disturbed_passes,
                "their times say less of the model than of that",
            ),
            ("disturbed passes left out of the tables", self.left_out_passes, ""),
            (
                "kernels in a row without the end of a brick around them",
                self.unplaced_kernels,
                "no brick has them; the totals do",
            ),
        ]
        .into_iter()
        .filter(|&(_, count, _)| count > 0)
        .map(|(what, count, then)| {
            let then = if then.is_empty() { String::new() } else { format!(" ({then})") };
            format!("{what}: {count}{then}")
        })
    }
}
