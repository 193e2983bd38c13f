//! What a run says of a word whose device has several streams: figures of all of them, as the first screen has them.

use std::cmp::Reverse;

use brickscope_profile::text::{count, printable};
use brickscope_profile::{Busy, DeviceProfile, Phase, Profile};

use crate::passes::{Whole, all_streams};
use crate::ran;
use crate::words::{fraction, time};

/// The first device that ran bricks, if it has several streams, and how long they were busy in the passes of a phase.
pub(super) fn of(profile: &Profile, phase: Phase) -> Option<(&DeviceProfile, Busy)> {
    let ran = |device: &&DeviceProfile| device.streams.iter().any(|of| !of.totals.is_empty());
    let device = profile.devices.iter().find(ran)?;
    Some((device, all_streams(device, phase)?))
}

/// The brick that ran longest, and its part of what shares of the first screen are of.
pub(super) fn longest(profile: &Profile, phase: Phase) -> Option<String> {
    let (device, busy) = of(profile, phase)?;
    let all = ran::by(profile, device, phase, |_, name| name);
    let bricks = count(all.len() as u64, "brick");
    let (name, ran) =
        all.into_iter().max_by_key(|(name, ran)| (ran.or_sum_ns(), Reverse(*name)))?;
    let is_busy_time =
        profile.imported.is_some() && Whole::of(device, phase).is_some_and(Whole::is_busy_time);
    let (whole_ns, what) = match is_busy_time {
        true => (busy.busy_ns, "its busy time"),
        false => (busy.span_ns, "the span"),
    };
    let share = match ran.ns() {
        Some(ns) => format!("{} of {what}", fraction(ns as f64 / whole_ns.max(1) as f64)),
        None => format!("an unknown part of {what}"),
    };
    Some(format!("{bricks}; the longest is {}, {share}", printable(name)))
}

/// The time in which no stream worked.
pub(super) fn gaps(profile: &Profile, phase: Phase) -> Option<String> {
    let (_, busy) = of(profile, phase).filter(|(_, busy)| busy.passes > 0)?;
    let (idle_ns, span_ns, passes) = (busy.idle_ns as f64, busy.span_ns as f64, busy.passes as f64);
    let share = fraction(idle_ns / span_ns.max(1.0));
    Some(format!("{} of {} a pass, {share}", time(idle_ns / passes), time(span_ns / passes)))
}
