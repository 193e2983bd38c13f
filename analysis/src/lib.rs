//! What a [`Profile`](brickscope_profile::Profile) says: text, rooflines, findings, comparisons, histories. Nothing here
//! measures.
//!
//! ```
//! use brickscope_analysis::Report;
//! use brickscope_profile::{ClockInfo, Profile};
//!
//! let profile = Profile::empty(ClockInfo::default()); // or `Profile::load`, or a `BrickProfiler`
//! println!("{}", profile.report());
//! ```
//!
//! # Map
//!
//! | folder or file | contents |
//! |---|---|
//! | `view/` | text and pictures for people; one file for each: `report.rs`, `comparison.rs`, `roofline_svg.rs` … |
//! | `requests/` | where the time of a server's requests went, what slow tokens have that others don't, what prompts of others cost, and requests of a server that runs |
//! | `roofline/` | how far each brick is from what the machine can do, and what limits it |
//! | `layers.rs` | layers on devices of another program's trace: what they take, and which one is slow |
//! | `rate.rs` | how fast a run was: the figure that every screen says first |
//! | `by_device.rs` | the same by the clock of a device |
//! | `typical/` | what passes and bricks typically take: without disturbed passes and single stalls |
//! | `findings/` | what slows a run down, what would be gained, and how to test it; one rule a file |
//! | `trial.rs` | what a change brings, by runs with it and without it in turns |
//! | `explain/` | what words mean (`words.md`), and what a run says of them |
//! | `waiting.rs`, `words.rs` | how long threads waited for each other; numbers in words |
//! | `text.rs` | text by columns: cut, padded, broken into lines |
//! | `markdown.rs` | tables, code and links |
//! | `backends.rs` | backends side by side |
//! | `stacks/` | spans as stacks for flamegraphs (`spans.rs`), of a device (`device.rs`); the difference of two (`diff.rs`); `flamegraph.json` (`summary.rs`, `shares.rs`, `insights.rs`) |
//! | `passes.rs` | whose the passes of a profile are, which have bricks, who disturbed them |
//! | `ran.rs` | how long bricks ran on a device of several streams, each time once |
//! | `idle.rs` | when devices did nothing at all |
//! | `no_passes.rs` | files in which no event is a pass: which may be some, or how to record any |
//! | `path.rs` | whether a pass on a device has a critical path |
//! | `place.rs` | where a run ran, if nobody says what to show: the host, or a device |
//! | `compare/` | absolute limits of a set of processes, or of a run |
//! | `machine_name.rs` | what may name a machine |
//!
//! Two sets of processes, fleets, bisections, histories and ranks are in `brickscope-compare`, re-exported here: [`compare`],
//! [`fleet`], [`bisect`], `history`, [`ranks`], [`links`].
#![forbid(unsafe_code)]

pub mod backends;
mod by_device;
pub mod compare;
pub mod explain;
pub mod findings;
mod idle;
pub mod layers;
pub mod machine_name;
pub mod markdown;
mod no_passes;
mod passes;
pub mod path;
pub mod place;
mod ran;
pub mod rate;
pub mod requests;
pub mod roofline;
pub mod stacks;
pub mod text;
pub mod trial;
pub mod typical;
pub mod view;
mod waiting;
mod words;

#[cfg(feature = "receipt")]
pub use brickscope_compare::history;
pub use brickscope_compare::{bisect, fleet, links, ranks};
use brickscope_profile::AsProfile;
#[cfg(feature = "receipt")]
pub use brickscope_receipt as receipt;

/// What was recorded, as text for people.
///
/// ```
/// use brickscope::BrickProfiler;
/// use brickscope_analysis::Report;
///
/// println!("{}", BrickProfiler::enabled().report());
/// ```
pub trait Report {
    /// The report that `brickscope profile` prints: [`view::report`].
    #[must_use]
    fn report(&self) -> String;
}

impl<P: AsProfile + ?Sized> Report for P {
    fn report(&self) -> String {
        view::report(&self.as_profile())
    }
}
