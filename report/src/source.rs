//! The source of a table's times: the host, or a stream of a device.

use brickscope_analysis::typical;
use brickscope_profile::{Phase, Profile, Total};
use serde_json::{Map, Value, json};

use super::figure::{From, at};

/// The profile of the host or of a stream, and its place in the file.
pub(super) struct Source<'p> {
    /// Its display name, if there is more than one source.
    pub(super) title: Option<String>,
    /// The prefix of pointers: empty for the host, `/devices/0/streams/1` for a stream, and in a comparison
    /// with `A:` or `B:` before it.
    pub(super) base: String,
    pub(super) profile: &'p Profile,
    pub(super) is_device: bool,
    /// The run and the device, if it is one of its streams in tables of passes.
    pub(super) device: Option<(&'p Profile, usize)>,
    /// The phase that `profile` is what it is judged by, instead of what is in the file.
    pub(super) judged: Option<Phase>,
}

/// The most streams with their own tables.
pub(super) const MOST_STREAMS: usize = 8;

impl<'p> Source<'p> {
    pub(super) fn host(profile: &'p Profile, run: &str) -> Self {
        let is_only = profile.devices.is_empty();
        Self {
            title: (!is_only).then(|| "Host".to_owned()),
            base: run.to_owned(),
            profile,
            is_device: false,
            device: None,
            judged: None,
        }
    }

    /// What a phase is judged by on each screen, where that isn't what is in the file.
    pub(super) fn judged(&self, phase: Phase) -> Option<Profile> {
        let judged = typical::judged(self.profile, phase);
        let (other, own) = (judged.phase(phase)?, self.profile.phase(phase)?);
        // On a device other passes were timed by brick, which is no other time of the same passes.
        let is_other = other != own && other.wall_ns > 0 && other.passes == own.passes;
        (is_other && !self.is_device).then(|| judged.into_owned())
    }

    /// This source with the times that a phase is judged by.
    pub(super) fn by<'j>(&self, judged: &'j Profile, phase: Phase) -> Source<'j> {
        Source {
            title: None,
            base: self.base.clone(),
            profile: judged,
            is_device: false,
            device: None,
            judged: Some(phase),
        }
    }

    /// A place below this source.
    pub(super) fn at(&self, rest: &str) -> From {
        match self.judged {
            Some(phase) => json!(["judged", self.base, phase.name(), rest]),
            None => at(format!("{}{rest}", self.base)),
        }
    }

    /// A field of one of the `totals`.
    pub(super) fn of_total(&self, total: &Total, field: &str) -> From {
        let index = self.profile.totals.iter().position(|other| std::ptr::eq(other, total));
        self.at(&format!("/totals/{}/{field}", index.unwrap_or(usize::MAX)))
    }

    /// A field of the sums of a phase.
    pub(super) fn of_phase(&self, phase: Phase, field: &str) -> From {
        let index = self.profile.phases.iter().position(|total| total.phase == phase);
        self.at(&format!("/phases/{}/{field}", index.unwrap_or(usize::MAX)))
    }

    /// The sum of a column over the spans that pass a filter.
    pub(super) fn of_rows(&self, column: &str, filter: Map<String, Value>) -> From {
        json!(["rows", self.base, column, filter])
    }
}

/// The columns of `spans`, by number.
pub(super) const START: usize = 6;
pub(super) const DURATION: usize = 7;
pub(super) const EXCLUSIVE: usize = 8;

/// Calls `with` for the host and for the streams of all devices, up to a limit. The source that ran the
/// bricks comes first. Only one stream's spans are copied at a time.
pub(super) fn each(profile: &Profile, run: &str, mut with: impl FnMut(&Source<'_>)) -> usize {
    let streams = profile.devices.iter().enumerate().flat_map(|(device, of)| {
        of.streams.iter().enumerate().map(move |(stream, at)| (device, of, stream, at))
    });
    let mut left_out = 0;
    for (nth, (device, of, stream, what)) in streams.enumerate() {
        if nth >= MOST_STREAMS {
            left_out += 1;
            continue;
        }
        let Some(on_stream) = profile.on_device(device, stream) else { continue };
        with(&Source {
            title: Some(format!("{}, {}", of.name, what.name)),
            base: format!("{run}/devices/{device}/streams/{stream}"),
            profile: &on_stream,
            is_device: true,
            device: Some((profile, device)),
            judged: None,
        });
    }
    with(&Source::host(profile, run));
    left_out
}

/// The heading of a phase.
pub(super) fn heading(phase: Option<Phase>) -> &'static str {
    match phase {
        Some(phase) => phase.heading(),
        None => "Outside of passes",
    }
}
