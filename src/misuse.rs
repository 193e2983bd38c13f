//! Mistakes that an embedder makes and that no sum shows: what is timed adds up all the same, but is not where it was meant
//! to be.
//!
//! [`BrickProfiler::misuse`](crate::BrickProfiler::misuse) lists them, each with the call that mends it.

use std::fmt;

use brickscope_profile::text::printable;

/// A mistake in the calls of a [`BrickProfiler`](crate::BrickProfiler), with how often it was made.
///
/// Shown as a sentence: how often, what happened, and which call mends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Misuse {
    /// Passes that were dropped, or are still open on the thread that asks.
    UnendedPasses(u64),
    /// Passes that were begun while another one was open on their thread. They are not recorded.
    NestedPasses(u64),
    /// Bricks, kernels and layers that never ended, mostly since their timers were dropped.
    UnendedSpans(u64),
    /// Spans of threads that neither began a pass nor joined one, after another thread began one: parts of a pass that it
    /// doesn't have. They are of well-known bricks, or of names that passes have too. Work under names of its own, such as
    /// that of a thread that only tokenizes, is none, and the first screen says how long it took; unless some thread joined a
    /// pass and timed no share of it, which leaves its spans among these.
    SpansWithoutPass(u64),
    /// Bricks that began inside of another one and ended after it.
    CrossingBricks(u64),
    /// How often a layer ended before another one or a brick that began in it, or a brick before a layer that began in it.
    /// What follows has the wrong layer, or lies in none.
    CrossingLayers(u64),
    /// Layers that ended in another pass than they began in, or in none. No pass has them.
    StraddlingLayers(u64),
    /// Passes of another profiler that this one was to end. They are abandoned.
    ForeignPasses(u64),
    /// Timers of another profiler that this one was to stop. They are not recorded.
    ForeignTimers(u64),
    /// How often a brick or a kernel was begun by a key of another profiler. Their times are under a name that says so.
    ForeignKeys(u64),
    /// Passes for [`record_pass`](crate::BrickProfiler::record_pass) that begin before the profiler was made, as by another
    /// clock they may seem to.
    EarlyPasses(u64),
    /// Timers that were stopped on another thread than they were started on. No pass has them.
    MovedTimers(u64),
    /// Bricks that ended in another pass than they began in. No pass has them.
    StraddlingBricks(u64),
    /// Bricks of a device that were issued and not settled.
    UnsettledBricks(u64),
    /// How often bricks of a device were settled apart from the pass that issued them. No pass has them.
    SettledApart(u64),
    /// What was told of requests that the profiler doesn't have, or of such as had ended. It is not recorded.
    UnknownRequests(u64),
}

impl Misuse {
    /// How often it happened. Never 0 of what [`BrickProfiler::misuse`](crate::BrickProfiler::misuse) returns.
    #[must_use]
    pub fn count(&self) -> u64 {
        match *self {
            Self::UnendedPasses(count)
            | Self::NestedPasses(count)
            | Self::UnendedSpans(count)
            | Self::SpansWithoutPass(count)
            | Self::CrossingBricks(count)
            | Self::CrossingLayers(count)
            | Self::StraddlingLayers(count)
            | Self::ForeignPasses(count)
            | Self::ForeignTimers(count)
            | Self::ForeignKeys(count)
            | Self::EarlyPasses(count)
            | Self::MovedTimers(count)
            | Self::StraddlingBricks(count)
            | Self::UnsettledBricks(count)
            | Self::SettledApart(count)
            | Self::UnknownRequests(count) => count,
        }
    }

    /// A bit of its own, whatever it counts.
    pub(crate) fn bit(&self) -> u32 {
        let nth = match self {
            Self::UnendedPasses(_) => 0,
            Self::NestedPasses(_) => 1,
            Self::UnendedSpans(_) => 2,
            Self::SpansWithoutPass(_) => 3,
            Self::CrossingBricks(_) => 4,
            Self::CrossingLayers(_) => 5,
            Self::StraddlingLayers(_) => 6,
            Self::ForeignPasses(_) => 7,
            Self::ForeignTimers(_) => 8,
            Self::ForeignKeys(_) => 9,
            Self::EarlyPasses(_) => 10,
            Self::MovedTimers(_) => 11,
            Self::StraddlingBricks(_) => 12,
            Self::UnsettledBricks(_) => 13,
            Self::SettledApart(_) => 14,
            Self::UnknownRequests(_) => 15,
        };
        1 << nth
    }

    /// What was miscounted, what happened to it, and what to call.
    fn told(&self) -> [&'static str; 3] {
        match self {
            Self::UnendedPasses(_) => [
                "pass",
                "without an end",
                "call end_pass before its timer is dropped and before the profile is read, or \
                 discard_pass for a pass that failed",
            ],
            Self::NestedPasses(_) => [
                "pass",
                "begun inside of another on the same thread, and not recorded",
                "call end_pass before the next begin_pass; passes of tasks that take turns on a \
                 thread are for record_pass",
            ],
            Self::UnendedSpans(_) => [
                "span",
                "begun and never ended",
                "give each timer to stop_brick, stop_kernel or end_layer before it is dropped \
                 and before disable, or time with brick, whose guard ends by itself",
            ],
            Self::SpansWithoutPass(_) => [
                "span",
                "of bricks of passes, on threads that joined none",
                "call join_pass there, and time shares by begin of what it returns, not by \
                 start_brick",
            ],
            Self::CrossingBricks(_) => [
                "brick",
                "begun inside of another that ended first",
                "call stop_brick in the reverse order of start_brick, or lap for bricks that \
                 follow each other",
            ],
            Self::CrossingLayers(_) => [
                "layer",
                "crossed by another layer or by a brick",
                "call end_layer in the reverse order of begin_layer, after stop_brick of what began \
                 in the layer",
            ],
            Self::StraddlingLayers(_) => [
                "layer",
                "begun in one pass and ended in another or in none",
                "call end_layer before end_pass",
            ],
            Self::ForeignPasses(_) => [
                "pass",
                "of another profiler, and not ended here",
                "call end_pass of the profiler whose begin_pass returned it",
            ],
            Self::ForeignTimers(_) => [
                "timer",
                "of another profiler, and not recorded here",
                "call stop_brick of the profiler whose start_brick returned it",
            ],
            Self::ForeignKeys(_) => [
                "span",
                "begun by a key of another profiler, whose names this one doesn't know",
                "call named_brick and kernel of the profiler whose start_brick gets the key",
            ],
            Self::EarlyPasses(_) => [
                "pass",
                "recorded with a begin before the profiler was made",
                "give record_pass readings of profiler.clock().now()",
            ],
            Self::MovedTimers(_) => [
                "timer",
                "stopped on another thread than started, so that no pass has that time",
                "call stop_brick on the thread of start_brick; a pass that changes threads is \
                 for record_pass",
            ],
            Self::StraddlingBricks(_) => [
                "brick",
                "begun in one pass and ended in another or in none",
                "call stop_brick before end_pass",
            ],
            Self::UnsettledBricks(_) => [
                "brick",
                "of a device issued and not settled",
                "call device().finalize once the device was waited for",
            ],
            Self::SettledApart(_) => [
                "time",
                "bricks of a device were settled apart from the pass that issued them",
                "call device().finalize before end_pass, on its thread, with no other brick timed \
                 in between",
            ],
            Self::UnknownRequests(_) => [
                "call",
                "about requests that are not known or have ended",
                "name requests by what arrive or record of the same profiler returned, and call \
                 token before end",
            ],
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, [what, happened, mend]) = (self.count(), self.told());
        let many = match what {
            _ if count == 1 => "",
            "pass" => "es",
            _ => "s",
        };
        write!(f, "{count} {what}{many} {happened}: {mend}")
    }
}

/// Where a mistake was made first, as far as what was kept tells it. See
/// [`BrickProfiler::misuse_places`](crate::BrickProfiler::misuse_places).
///
/// Shown as `QkvProjection, layer 0, pass 3, thread main`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MisusePlace {
    /// The brick or kernel.
    pub brick: Option<String>,
    /// Whether that is what other passes have at this place: a timer that was dropped left no name.
    pub is_by_other_passes: bool,
    /// The layer.
    pub layer: Option<u16>,
    /// The serial of the pass, as in [`Pass::serial`](brickscope_profile::Pass::serial).
    pub pass: Option<u32>,
    /// The thread's name, or its number in the system.
    pub thread: Option<String>,
    /// The number of the request.
    pub request: Option<u32>,
}

impl MisusePlace {
    /// `None` if it says nothing.
    pub(crate) fn known(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}

impl fmt::Display for MisusePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brick = self.brick.as_deref().map(printable);
        let brick = brick.map(|name| match self.is_by_other_passes {
            true => format!("where other passes have {name}"),
            false => name,
        });
        let parts = [
            brick,
            self.layer.map(|layer| format!("layer {layer}")),
            self.pass.map(|pass| format!("pass {pass}")),
            self.thread.as_deref().map(|thread| format!("thread {}", printable(thread))),
            self.request.map(|request| format!("request {request}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

/// All of them, as a debug build warns of them: in lines of 80 columns.
pub(crate) fn warning(found: &[(Misuse, Option<MisusePlace>)]) -> String {
    let mut text = String::new();
    let first = "brickscope: all times add up, but some are not where they belong";
    add_paragraph(&mut text, "", first);
    for (misuse, place) in found {
        let place = place.as_ref().map_or(String::new(), |place| format!(" (first: {place})"));
        add_paragraph(&mut text, "  ", &format!("{misuse}{place}"));
    }
    let last = "(each kind is said once, by a debug build; warn_of_misuse(false) turns it off)";
    add_paragraph(&mut text, "  ", last);
    text
}

fn add_paragraph(text: &mut String, indent: &str, words: &str) {
    const WIDTH: usize = 80;
    let mut line = indent.to_owned();
    for word in words.split(' ') {
        if line.len() + word.len() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = format!("{indent}  ");
        }
        line.push_str(word);
        line.push(' ');
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_how_often_what_happened_and_what_to_call() {
        let said = Misuse::SpansWithoutPass(40).to_string();
        let expected = "40 spans of bricks of passes, on threads that joined none: call join_pass";
        assert!(said.starts_with(expected), "{said}");
        let said = [1, 2].map(|count| Misuse::NestedPasses(count).to_string());
        assert!(said[0].starts_with("1 pass begun inside"), "{said:?}");
        assert!(said[1].starts_with("2 passes begun inside"), "{said:?}");
        // What follows the count is the same after one and after many.
        let said = [Misuse::EarlyPasses(438), Misuse::MovedTimers(2)].map(|of| of.to_string());
        let expected = "438 passes recorded with a begin before the profiler was made: give";
        assert!(said[0].starts_with(expected), "{said:?}");
        let expected = "2 timers stopped on another thread than started, so that no pass has that";
        assert!(said[1].starts_with(expected), "{said:?}");
        let place = MisusePlace {
            brick: Some("QkvProjection".to_owned()),
            is_by_other_passes: true,
            layer: Some(0),
            pass: Some(3),
            thread: Some("main".to_owned()),
            request: None,
        };
        assert_eq!(
            place.to_string(),
            "where other passes have QkvProjection, layer 0, pass 3, thread main"
        );
        let found = [(Misuse::UnendedSpans(3), Some(place)), (Misuse::CrossingLayers(1), None)];
        let all = warning(&found);
        assert!(all.contains("(first:"), "{all}");
        assert!(all.lines().count() >= 4 && all.lines().all(|line| line.len() <= 80), "{all}");
        assert!(all.contains("\n  3 spans begun and never ended: give each timer"), "{all}");
    }
}
