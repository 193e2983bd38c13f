//! Counters of what was lost, or recorded otherwise than its caller intended.

use serde::{Deserialize, Serialize};

/// Counts what was lost, or recorded otherwise than its caller intended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    /// Spans that are in the totals but not in `spans`, because the log was full.
    pub spans: u64,
    /// Passes that are in the phases but not in `passes`.
    pub passes: u64,
    /// Calls that could not be recorded: their thread was being torn down, or they came from
    /// inside another recording call.
    pub homeless: u64,
    /// Deferred bricks that began after the end at which they were settled.
    pub late: u64,
    /// Hand-offs between threads that lack one side: it did not fit the log, or a reset discarded it.
    pub dependencies: u64,
    /// Uses of names of bricks or kernels that did not fit the table of names. The totals have them under
    /// `(other)`.
    pub names: u64,
    /// Spans that began and never ended, or ended while recording was off; deferred bricks that were not settled
    /// (`DeviceRecorder::finalize`); and the timestamps of passes that were never labelled (`PassTimestamps`).
    pub unfinished: u64,
    /// Bricks and kernels that ended on another thread than they began on. They count outside of
    /// passes.
    pub moved: u64,
    /// Bricks that began and ended in different passes. They count outside of passes.
    pub straddling: u64,
    /// Bricks that overlap another of their thread without nesting.
    pub overlapping: u64,
    /// Passes that began inside another pass. They don't count as passes.
    pub nested_passes: u64,
    /// Passes that never ended, for example because of a panic. Their bricks count outside of passes.
    pub abandoned_passes: u64,
    /// Passes that were open when the profile was collected. Only their spans are in it.
    pub open_passes: u64,
    /// Passes that were disturbed: a thread waited for a CPU, see [`Disturbance`](crate::Disturbance). They are in the
    /// statistics.
    pub disturbed_passes: u64,
    /// Passes that were left out of the statistics: disturbed ones, those with a stall, and those that warmed up.
    pub left_out_passes: u64,
    /// Those of `left_out_passes` that were left out when the run was recorded, since they warmed up. Views leave out
    /// disturbed passes by themselves, unless somebody else did before; these are no reason not to.
    #[serde(skip_serializing_if = "is_zero")]
    pub warm_up_passes: u64,
    /// In a snapshot (`BrickProfiler::snapshot`), kernels that are in no row of `brick_kernels`, because
    /// too many ran before the brick around them ended. The totals have them.
    #[serde(skip_serializing_if = "is_zero")]
    pub unplaced_kernels: u64,
    /// Requests, tokens of them, and parts of passes that had no room. Of a request, nothing after such a token is recorded.
    #[serde(skip_serializing_if = "is_zero")]
    pub requests: u64,
    /// Choices of experts that `experts` had no room for: beyond the most experts or layers that it tells apart.
    #[serde(skip_serializing_if = "is_zero")]
    pub experts: u64,
    /// Requests that came to the recorded process, whichever context they were for, and are not recorded: those that came before
    /// the one before them was answered, and those on connections of which too little is known. They are counted as they
    /// come, so that more may have come after one whose length is unknown. Of several runs of a process, one has them: the
    /// first that has requests, or else the first.
    #[serde(skip_serializing_if = "is_zero")]
    pub missed_requests: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Dropped {
    /// Each counter, by the name of its field.
    #[doc(hidden)]
    pub fn counts(&self) -> [(&'static str, u64); 20] {
        // Destructured so that the compiler catches a new counter that is missing below.
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
            warm_up_passes,
            unplaced_kernels,
            requests,
            experts,
            missed_requests,
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
            ("warm_up_passes", warm_up_passes),
            ("unplaced_kernels", unplaced_kernels),
            ("requests", requests),
            ("experts", experts),
            ("missed_requests", missed_requests),
        ]
    }

    /// What was lost, and apart from that what was left out on purpose.
    #[must_use]
    pub fn lost_and_left_out(self) -> [Self; 2] {
        let Self { left_out_passes, warm_up_passes, .. } = self;
        let left_out = Self { left_out_passes, warm_up_passes, ..Self::default() };
        [Self { left_out_passes: 0, warm_up_passes: 0, ..self }, left_out]
    }

    /// Passes that were left out of the statistics, without those that warmed up.
    #[must_use]
    pub fn left_out_later(&self) -> u64 {
        self.left_out_passes.saturating_sub(self.warm_up_passes)
    }

    /// A line for each counter that isn't zero.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        [
            ("spans that did not fit the log", self.spans, "the totals count them"),
            ("passes that did not fit the list", self.passes, "the totals count them"),
            ("recording calls that could not reach a log", self.homeless, "they are lost"),
            ("deferred bricks that began after their settling time", self.late, ""),
            ("hand-offs between threads with one side lost", self.dependencies, ""),
            ("uses of names that did not fit the table", self.names, "they count as (other)"),
            (
                "spans that began and never ended",
                self.unfinished,
                "give each timer to stop_brick before it is dropped",
            ),
            (
                "spans that ended on another thread",
                self.moved,
                "they count outside of passes: call stop_brick on the thread of start_brick",
            ),
            (
                "bricks that ended in another pass",
                self.straddling,
                "they count outside of passes: call stop_brick before end_pass",
            ),
            (
                "bricks that overlap others without nesting",
                self.overlapping,
                "call stop_brick in the reverse order of start_brick",
            ),
            (
                "passes begun inside a pass",
                self.nested_passes,
                "they don't count as passes: call end_pass before the next begin_pass",
            ),
            (
                "passes that never ended",
                self.abandoned_passes,
                "their bricks count outside of passes: call end_pass, or discard_pass if one fails",
            ),
            ("passes that were still open", self.open_passes, "they are not in the tables"),
            ("passes that were disturbed", self.disturbed_passes, "they are still in the tables"),
            ("passes left out of the tables", self.left_out_later(), ""),
            ("passes left out of the tables, since they warm up", self.warm_up_passes, ""),
            (
                "kernels that are assigned to no brick",
                self.unplaced_kernels,
                "too many ran before their brick ended; the totals count them",
            ),
            ("requests, tokens and parts of passes that had no room", self.requests, ""),
            (
                "choices of experts that had no room",
                self.experts,
                "the table of experts lacks them",
            ),
            ("requests that came and are not recorded", self.missed_requests, ""),
        ]
        .into_iter()
        .filter(|&(_, count, _)| count > 0)
        .map(|(what, count, then)| {
            let then = if then.is_empty() { String::new() } else { format!(" ({then})") };
            format!("{what}: {count}{then}")
        })
    }
}
