//! Devices in another program's trace: the sentence that answers first, what each device waited for, and what to do about it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use brickscope_profile::text::{brief, count, percent, printable_text};
use brickscope_profile::{Phase, Profile};

use crate::findings::device::{Gap, OnDevice, Ran};
use crate::no_passes;
use crate::passes::Whole;
use crate::ran;
use crate::ranks;
use crate::rate::{self, ByDevice, Rate};
use crate::view::device::{
    OF_UNKNOWN_PART, main_phase, on_device, passes, reached, top_brick, which,
};
use crate::words::time;

/// A wait of less than this part of a pass isn't worth a word.
const LEAST_WAIT: f64 = 0.1;
/// The most devices that the first sentence names one by one.
const MOST_DEVICES: usize = 2;

/// How fast it was, how busy devices were, the longest wait and the longest brick: in a few lines. The rest is in [`details`].
/// What a rate by the device's clock is of is always said; without `has_room`, the longest brick isn't then: the table has it.
pub(super) fn headline(profile: &Profile, has_room: bool) -> String {
    let Some(phase) = main_phase(profile) else { return without_passes(profile) };
    let mut parts = vec![rate_of(profile, phase, Basis::Short)];
    let by = ByDevice::of(profile, phase);
    let of_host = of_host(profile);
    // One of another rank that is shown by itself.
    let all: Vec<usize> = (0..profile.devices.len()).collect();
    let devices = if of_host.is_empty() { &all[..] } else { &of_host[..] };
    match devices {
        few if few.len() <= MOST_DEVICES => {
            parts.extend(few.iter().map(|&index| busy(profile, index, phase)));
        }
        many => parts.push(busy_range(profile, many, phase)),
    }
    let said_ns = by.and_then(|by| by.hole_ns());
    // Of another rank's host it isn't known how long launches took.
    parts.extend(longest_wait(profile, &of_host, phase, said_ns));
    let mut shown = devices.iter().filter(|_| has_room || by.is_none());
    let top = shown.find_map(|&index| {
        let device = profile.devices.get(index)?;
        Some((index, top_brick(profile, device, phase)?, Whole::of(device, phase)?))
    });
    if let Some((index, top, whole)) = top {
        let on = if devices.len() > 1 {
            format!(" on {}", which(profile, index))
        } else {
            String::new()
        };
        let of = if whole.is_busy_time() { "its busy time" } else { "the span" };
        let part = match top.ran_ns {
            Some(ns) => format!("{} of {of}", percent(ns as f64, whole.ns() as f64)),
            None => OF_UNKNOWN_PART.to_owned(),
        };
        parts.push(format!("{} takes the most time{on}, {part}", brief(top.brick)));
    }
    parts.join("; ") + "."
}

/// The devices that the host of the profile drove. Those of other ranks have tables of their own, and what all of them waited
/// for each other.
fn of_host(profile: &Profile) -> Vec<usize> {
    let devices = profile.devices.iter().enumerate();
    let of_host = devices.filter(|(_, device)| ranks::is_of_host(profile, device.rank));
    of_host.map(|(index, _)| index).collect()
}

/// How much is said of what a rate is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Basis {
    Short,
    Whole,
}

/// How fast passes were, or why that isn't known.
fn rate_of(profile: &Profile, phase: Phase, basis: Basis) -> String {
    let name = phase.heading();
    if profile.phase(phase).is_none() {
        return format!("{name}: the host timed no pass");
    }
    let Some(rate) = Rate::of(profile, phase) else {
        let only_launches = |index| {
            let around = on_device(profile, index, phase).and_then(|of| of.around);
            around.is_some_and(|around| around.after_ns > 0)
        };
        let why = if has_tokens_of_no_clock(profile, phase) {
            "the clocks of host and device don't fit"
        } else if (0..profile.devices.len()).any(only_launches) {
            "the host's passes end before their kernels do"
        } else {
            "no tokens were reported"
        };
        return format!("{name}: no rate, since {why}");
    };
    let by = match ByDevice::of(profile, phase) {
        Some(by) if basis == Basis::Whole => by.says(),
        Some(by) => by.in_short(),
        None => {
            let of = rate::repeated(profile, phase);
            let basis = of.map_or_else(String::new, |of| format!(" ({})", rate::basis(of)));
            format!("the host's clock{basis}")
        }
    };
    format!("{name}: {:.1} tokens/s by {by}", rate.tokens_per_second)
}

/// Whether tokens of passes are known, and not in which of the host's times they were computed.
fn has_tokens_of_no_clock(profile: &Profile, phase: Phase) -> bool {
    profile.devices.iter().filter(|device| device.clock_misfits().any()).any(|device| {
        let passes = device.streams.iter().flat_map(|stream| &stream.passes);
        passes.filter(|pass| pass.phase == phase).any(|pass| pass.tokens > 0)
    })
}

/// How busy a device was by a file's times.
fn busy(profile: &Profile, index: usize, phase: Phase) -> String {
    let which = which(profile, index);
    let Some(of) = on_device(profile, index, phase) else {
        let device = profile.devices.get(index);
        let why = device.and_then(|device| device.busy(Some(phase)).err());
        let why = why.map_or_else(|| "there is none".to_owned(), |why| printable_text(&why.reason));
        return format!("how busy {which} was is unknown: {why}");
    };
    let (busy, all) = (of.busy, profile.phase(phase).map_or(of.busy.passes, |host| host.passes));
    let in_passes = match (busy.passes, all) {
        (1, 1) => String::new(),
        (n, all) if n == all => format!(" (sum of {n} passes)"),
        (n, all) => format!(" (in {n} of {})", passes(all)),
    };
    // Of passes that overlap, or beside what is of none.
    let is_worth = of.others_ns > 0 && of.others_ns as f64 >= LEAST_WAIT * busy.span_ns as f64;
    let others = match is_worth {
        true => format!(", and with other work for {} of the rest", time(of.others_ns as f64)),
        false => String::new(),
    };
    format!(
        "{which} is busy {} of {} from its first kernel to its last, {}{in_passes}{others}",
        time(busy.busy_ns as f64),
        time(busy.span_ns as f64),
        percent(busy.busy_ns as f64, busy.span_ns as f64)
    )
}

/// How busy the least and the most busy of many devices were.
fn busy_range(profile: &Profile, devices: &[usize], phase: Phase) -> String {
    let known = devices.iter().filter_map(|&index| {
        let busy = profile.devices.get(index)?.busy(Some(phase)).ok()?;
        (busy.span_ns > 0).then(|| busy.busy_ns as f64 / busy.span_ns as f64)
    });
    let mut parts: Vec<f64> = known.collect();
    parts.sort_by(f64::total_cmp);
    match (parts.first(), parts.last()) {
        (Some(&least), Some(&most)) => format!(
            "{} are busy {} to {} of the time from their first kernels to their last",
            count(parts.len() as u64, "device"),
            percent(least, 1.0),
            percent(most, 1.0)
        ),
        _ => format!("how busy {} were is unknown", count(devices.len() as u64, "device")),
    }
}

/// What a device waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    /// Between its kernels, for the host to launch the next one.
    Launches,
    /// Between them, with the next one launched.
    Launched,
    /// Between them, for what isn't known.
    Unknown,
    /// For the host to launch the first kernel of a pass.
    FirstLaunch,
    /// Before that kernel, with it launched.
    FirstLaunched,
    /// Behind the last kernel, for the end of the host's pass.
    Host,
}

/// Its waits, which don't overlap, summed over the passes.
fn waits(of: &OnDevice<'_>) -> [(u64, For); 6] {
    let around = of.around.unwrap_or_default();
    [
        (of.late_ns, For::Launches),
        (of.queued_ns, For::Launched),
        (of.unknown_ns, For::Unknown),
        (around.unlaunched_ns, For::FirstLaunch),
        (around.before_ns.saturating_sub(around.unlaunched_ns), For::FirstLaunched),
        (around.behind_ns, For::Host),
    ]
}

/// The longest wait of any device, if it is worth a word. `said_ns` is how long nothing ran, where the rate says that.
fn longest_wait(
    profile: &Profile,
    devices: &[usize],
    phase: Phase,
    said_ns: Option<u64>,
) -> Option<String> {
    let all = devices.iter().filter_map(|&index| {
        let of = on_device(profile, index, phase)?;
        let (ns, what) = waits(&of).into_iter().max_by_key(|&(ns, _)| ns)?;
        Some((ns, what, index, of))
    });
    let (ns, what, index, of) = all.max_by_key(|&(ns, ..)| ns)?;
    if ns == 0 || (ns as f64) < LEAST_WAIT * of.busy.span_ns as f64 {
        return None;
    }
    let who = if devices.len() > 1 { which(profile, index) } else { "it".to_owned() };
    let is_between = matches!(what, For::Launches | For::Launched | For::Unknown);
    let nearly_all = of.longest.filter(|gap| gap.ns > of.busy.span_ns / 2);
    if let Some((gap, around)) = nearly_all.zip(of.around_longest(profile))
        && is_between
        && of.busy.passes == 1
    {
        return Some(one_gap(&gap, &around, &who, said_ns == Some(gap.ns)));
    }
    let took = time(ns as f64);
    Some(match what {
        For::Launches => format!("in between {who} waited {took} for the host's launches"),
        For::Launched => format!("in between {who} waited {took} with work launched"),
        For::Unknown => format!("in between {who} did nothing for {took}"),
        For::FirstLaunch => {
            format!("before its first kernel {who} waited {took} for the host to launch it")
        }
        For::FirstLaunched => {
            format!("before its first kernel {who} waited {took} with work launched")
        }
        For::Host => {
            let (hosts, go) = if of.busy.passes == 1 { ("pass", "goes") } else { ("passes", "go") };
            format!("behind its last kernel the host's {hosts} {go} on for {took}")
        }
    })
}

/// A pass that is mostly one gap: where it lies, and how busy the rest is.
fn one_gap(gap: &Gap, [before, after]: &[Ran<'_>; 2], who: &str, is_said: bool) -> String {
    let why = match gap.late_ns {
        Some(late) if late >= gap.ns / 2 => ", the host being late",
        Some(_) => ", with work launched",
        None => "",
    };
    let what = match is_said {
        true => format!("the {} lie", time(gap.ns as f64)),
        false => format!("nothing ran for {}", time(gap.ns as f64)),
    };
    format!(
        "{what} between {} and {}{why}; from there on {who} is busy {} of {}",
        brief(before.brick),
        brief(after.brick),
        time(gap.rest_ns.saturating_sub(gap.idle_ns) as f64),
        time(gap.rest_ns as f64)
    )
}

/// All that is known of how fast passes were, how busy each device was, and what it waited for: a sentence each, without a
/// full stop.
pub(super) fn details(profile: &Profile) -> Vec<String> {
    if profile.imported.is_none() || profile.devices.is_empty() {
        return Vec::new();
    }
    let Some(phase) = main_phase(profile) else {
        return vec![format!("no event is a pass: {}", no_passes::to_do(profile))];
    };
    let mut parts = vec![rate_of(profile, phase, Basis::Whole)];
    for index in of_host(profile) {
        parts.push(busy(profile, index, phase));
        parts.extend(waits_in_words(profile, index, phase));
        if let Some(reached) = reached(profile, index, phase) {
            parts.push(format!("{}: {reached}", which(profile, index)));
        }
    }
    parts
}

/// What a device waited for. All of it is of the time from the first kernel of a pass to its last: a kernel counts to the
/// pass that launched it.
fn waits_in_words(profile: &Profile, index: usize, phase: Phase) -> Vec<String> {
    let Some(of) = on_device(profile, index, phase) else { return Vec::new() };
    let mut parts = Vec::new();
    let is_worth = |ns: u64| ns as f64 >= LEAST_WAIT * of.busy.span_ns as f64 && ns > 0;
    if is_worth(of.queued_ns) {
        parts.push(format!(
            "in between it waited {} although work was launched, for what the file doesn't tell",
            time(of.queued_ns as f64)
        ));
    }
    if is_worth(of.late_ns) {
        parts.push(format!(
            "in between it waited {} for the host's launches",
            time(of.late_ns as f64)
        ));
    }
    let longest = of.longest.filter(|gap| is_worth(gap.ns)).zip(of.around_longest(profile));
    if let Some((gap, [before, after])) = longest {
        parts.push(format!(
            "the longest time in a pass in which nothing ran, {}, lies between {} ({}) and {} ({}); from there on \
             it is busy {} of {}",
            time(gap.ns as f64),
            brief(before.brick),
            brief(before.kernel),
            brief(after.brick),
            brief(after.kernel),
            time(gap.rest_ns.saturating_sub(gap.idle_ns) as f64),
            time(gap.rest_ns as f64)
        ));
    }
    let Some(around) = of.around else { return parts };
    let (hosts, go) = if of.busy.passes == 1 { ("pass", "goes") } else { ("passes", "go") };
    if is_worth(around.before_ns) {
        let why = match around.unlaunched_ns {
            ns if ns >= around.before_ns / 2 => {
                format!("for {} of it the host had launched nothing", time(ns as f64))
            }
            0 => "with work launched: for what, the file doesn't tell".to_owned(),
            ns => format!(
                "for {} of it with work launched: for what, the file doesn't tell",
                time(around.before_ns.saturating_sub(ns) as f64)
            ),
        };
        parts.push(format!(
            "before its first kernel it waited {} from the begin of the host's {hosts}, {why}",
            time(around.before_ns as f64)
        ));
    }
    if is_worth(around.behind_ns) {
        parts.push(format!(
            "behind its last kernel the host's {hosts} {go} on for {}",
            time(around.behind_ns as f64)
        ));
    }
    if is_worth(around.after_ns) {
        parts.push(format!(
            "{} of it is behind the end of the host's {hosts} that launched it",
            time(around.after_ns as f64)
        ));
    }
    parts
}

/// What to do about the longest of a device's waits in a file, if all of them together take longer than `longest_ns`: of the
/// device that waits for the longest. A wait with work launched is a finding.
pub(super) fn wait(profile: &Profile, phase: Phase, longest_ns: f64) -> Option<String> {
    profile.imported.as_ref()?;
    let devices = of_host(profile).into_iter().filter_map(|at| {
        let of = on_device(profile, at, phase)?;
        wait_of(&which(profile, at), &of, longest_ns)
    });
    devices.max_by_key(|(sum, _)| *sum).map(|(_, advice)| advice)
}

/// How long a device waited, and what to do about it.
fn wait_of(which: &str, of: &OnDevice<'_>, longest_ns: f64) -> Option<(u64, String)> {
    let around = of.around.unwrap_or_default();
    let late_ns = of.late_ns.saturating_add(around.unlaunched_ns);
    let queued_ns = of.queued_ns.saturating_add(of.before_first_ns());
    let all = [late_ns, queued_ns, around.behind_ns, of.unknown_ns];
    let sum = all.iter().fold(0, |sum, &ns| u64::saturating_add(sum, ns));
    let most = late_ns.max(queued_ns).max(around.behind_ns);
    if sum as f64 <= longest_ns || most <= of.unknown_ns {
        return None;
    }
    let a_pass = time(most as f64 / of.busy.passes.max(1) as f64);
    let advice = if most == late_ns {
        format!("launch earlier: {which} waits {a_pass} a pass for the host")
    } else if most == queued_ns {
        format!(
            "find out what {which} waits for: {a_pass} a pass with work launched, and nothing in the file ran"
        )
    } else {
        format!(
            "look at the host (`--host --full`): its pass goes on for {a_pass} behind {which}'s last kernel"
        )
    };
    Some((sum, advice))
}

/// What to do about gaps of another rank's device that is shown by itself: what its host did is in its own file alone.
pub(super) fn of_other_rank_next(profile: &Profile, phase: Phase) -> Option<String> {
    let [device] = &profile.devices[..] else { return None };
    let rank = device.rank.filter(|_| !ranks::is_of_host(profile, device.rank))?;
    let of = on_device(profile, 0, phase)?;
    Some(format!(
        "import the file of rank {rank} alone, to see what it waits for: nothing ran for {} of {}, and the host in this run \
         is another rank's",
        time(of.busy.idle_ns.saturating_sub(of.others_ns) as f64),
        time(of.busy.span_ns as f64)
    ))
}

/// How to record ranges and calls of the host, where a file of devices has none: then no event of it could be a pass.
#[must_use]
pub fn host_to_record(profile: &Profile) -> Option<&'static str> {
    no_passes::host_to_record(profile)
}

/// What to do where a file has no passes, and the device did nothing for most of the time: only passes would tell whether
/// anything was to be done.
pub(super) fn without_passes_next(profile: &Profile) -> Option<String> {
    profile.imported.as_ref()?;
    let devices = profile.devices.iter().enumerate();
    let busy = devices.filter_map(|(index, device)| Some((index, device.busy_overall()?)));
    let (index, busy) = busy.max_by_key(|(index, busy)| (busy.busy_ns, Reverse(*index)))?;
    (busy.idle_ns > busy.busy_ns).then(|| {
        let how = match host_to_record(profile) {
            _ if !profile.passes.is_empty() => {
                "record the calls that launch work, which tell its pass".to_owned()
            }
            Some(how) => format!("record what the host did, so that passes can be told ({how})"),
            None => {
                let some = no_passes::candidates(profile);
                let some = some.map_or_else(String::new, |some| format!(", such as {some}"));
                format!("say which events are passes (`import --prefill`, `--decode`){some}")
            }
        };
        format!(
            "{how}: nothing ran on {} for {} of {}, and without passes it isn't known whether work waited",
            which(profile, index),
            time(busy.idle_ns as f64),
            time(busy.span_ns as f64)
        )
    })
}

/// What takes the most time on each device of a file that tells of no passes.
fn without_passes(profile: &Profile) -> String {
    let mut parts = vec!["It has no passes".to_owned()];
    for (index, device) in profile.devices.iter().enumerate().take(MOST_DEVICES) {
        let which = which(profile, index);
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        let totals = device.streams.iter().flat_map(|stream| &stream.totals);
        for total in totals.filter(|total| total.category.is_some()) {
            let sum = sums.entry(&total.stats.name).or_default();
            *sum = sum.saturating_add(total.stats.exclusive_ns);
        }
        let mut all = sums.values().fold(0, |sum, &nanos| u64::saturating_add(sum, nanos));
        // On several streams at once counts once, as in the table.
        if let Some(busy) = device.busy_overall().filter(|_| device.streams.len() > 1) {
            let ran = ran::overall(profile, device, |_, name| name);
            sums = ran.into_iter().map(|(name, ran)| (name, ran.or_sum_ns())).collect();
            all = busy.busy_ns;
        }
        if let Some((top, &nanos)) = sums.iter().max_by_key(|&(name, &ns)| (ns, Reverse(name))) {
            parts.push(format!(
                "on {which}, {} takes the most time, {} of what ran there",
                brief(top),
                percent(nanos as f64, all as f64)
            ));
        }
        if let Some(busy) = device.busy_overall() {
            parts.push(format!(
                "{which} is busy {} of {} from its first kernel to its last",
                time(busy.busy_ns as f64),
                time(busy.span_ns as f64)
            ));
        }
    }
    if let more @ 1.. = profile.devices.len().saturating_sub(MOST_DEVICES) {
        parts.push(format!("{} in the report", count(more as u64, "more device")));
    }
    parts.join("; ") + "."
}
