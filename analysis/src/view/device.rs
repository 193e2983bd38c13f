//! Devices in the report: what each did by its own clock, and how that is known.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write;

use brickscope_profile::graph::path_table;
use brickscope_profile::text::{
    MOST_ROWS, brief, count, micros, percent, printable, printable_text, shortened,
};
use brickscope_profile::{
    Absent, Busy, DeviceProfile, DeviceStream, Grain, GrainTotal, LayerTotal, Phase, PhaseTotal,
    Profile, SyncMode, Total, TreeOptions,
};

use crate::findings::{self, device::OnDevice};
use crate::passes::all_streams;
use crate::path;
use crate::ran;
use crate::ranks;
use crate::rate::{self, ByDevice, Rate};
use crate::roofline::{known_part, verdict_of_device};
use crate::typical::OnePass;
use crate::view::layout::{labelled, milliseconds, wrapped};
use crate::view::machine::told;
use crate::view::roofline;
use crate::view::tables::{Limits, PATH_ROWS, Rest, tables};
use crate::words::time;

/// The first things that a user of a device wants to know of a run of ours: how fast it is, and how busy it was.
pub(super) fn headline(profile: &Profile) -> String {
    let Some(phase) = main_phase(profile) else {
        return "No pass was recorded, on the host or on a device.".to_owned();
    };
    let host = profile.phase(phase);
    let mut parts = Vec::new();
    let name = phase.heading();
    let rate = Rate::of(profile, phase).filter(|_| host.is_some());
    let basis = rate::repeated(profile, phase).map(|of| format!(" ({})", rate::basis(of)));
    match host.map(|_| rate.map(|rate| rate.tokens_per_second)) {
        Some(Some(rate)) => {
            let basis = basis.unwrap_or_default();
            parts.push(format!("{name}: {rate:.1} tokens/s by the host's clock{basis}"));
        }
        Some(None) => parts.push(format!("{name}: no rate, since no tokens were reported")),
        None => parts.push(format!("{name}: the host timed no pass")),
    }
    let has_rate = host.is_some_and(|total| total.tokens_per_second().is_some());
    // Those of other ranks have tables of their own, and what all of them waited for each other.
    let of_host = |(_, device): &(usize, &DeviceProfile)| ranks::is_of_host(profile, device.rank);
    for (index, device) in profile.devices.iter().enumerate().filter(of_host) {
        let which = which(profile, index);
        parts.push(match busy_share(profile, device, phase) {
            Ok((busy, wall_ns)) => format!(
                "{which} is busy {} of {} (in {} of {})",
                percent(busy.busy_ns as f64, wall_ns as f64),
                if has_rate { "that" } else { "the host's time" },
                busy.passes,
                passes(host.map_or(0, |total| total.passes))
            ),
            Err(reason) => format!("how busy {which} was is unknown: {reason}"),
        });
        if let Some(reached) = reached(profile, index, phase) {
            parts.push(format!("{which}: {reached}"));
        }
        if let Some(Top { brick, ran_ns, wall_ns }) = top_brick(profile, device, phase) {
            let part = match ran_ns {
                Some(ns) => format!("{} of the span", percent(ns as f64, wall_ns as f64)),
                None => OF_UNKNOWN_PART.to_owned(),
            };
            parts.push(format!("{} takes the most time there, {part}", brief(brick)));
        }
    }
    let mut text = parts.join("; ") + ".";
    if let Some(after) = serialised(profile.sync_mode) {
        text.push_str(&format!(
            " The run was serialised: waiting after every {after} slows it down; see \
             `--sync deferred`."
        ));
    }
    text
}

/// The phase that the first screen is about: the host's first one, else a device's.
pub(super) fn main_phase(profile: &Profile) -> Option<Phase> {
    let phases = Phase::SHOWN;
    let is_on_device = |phase: &Phase| {
        let streams = profile.devices.iter().flat_map(|device| &device.streams);
        streams.flat_map(|stream| &stream.phases).any(|of| of.phase == *phase)
    };
    let of_host = phases.into_iter().find(|&phase| profile.phase(phase).is_some());
    of_host.or_else(|| phases.into_iter().find(is_on_device))
}

/// `the device`, or which of several.
pub(super) fn which(profile: &Profile, index: usize) -> String {
    ranks::name_of_device(profile, index)
}

/// What ran on a device in the passes of a phase, and how it lies to the host's passes.
pub(super) fn on_device(profile: &Profile, index: usize, phase: Phase) -> Option<OnDevice<'_>> {
    findings::device::on_device(profile, index, profile.devices.get(index)?, phase).ok()
}

/// How fast passes were by the clock of devices, where that is known and not by the host's; and how busy each device of
/// another program's trace was in the passes of each phase: what it is of, the figure, and the times.
#[must_use]
pub fn busy_in_words(profile: &Profile) -> Vec<[String; 3]> {
    let rate = |phase: Phase| {
        let by = ByDevice::of(profile, phase)?;
        let whose = if by.devices == 1 { "device" } else { "devices" };
        let of = format!("{} on the {whose}", phase.heading());
        Some([of, format!("{:.1} tokens/s", by.tokens_per_second()), by.basis()])
    };
    let mut all: Vec<[String; 3]> = Phase::SHOWN.into_iter().filter_map(rate).collect();
    for (index, device) in profile.devices.iter().enumerate() {
        for phase in Phase::SHOWN {
            let (Some(_), Ok(busy)) = (&profile.imported, device.busy(Some(phase))) else {
                continue;
            };
            let of = format!("{}, {} busy", phase.heading(), which(profile, index));
            let times = format!(
                "{} of {} from its first kernel to its last, in {}",
                time(busy.busy_ns as f64),
                time(busy.span_ns as f64),
                passes(busy.passes)
            );
            all.push([of, percent(busy.busy_ns as f64, busy.span_ns as f64), times]);
        }
    }
    all
}

/// How near to its roof a device came, if its limits were measured: `far from the memory roof: 31 % of 4373 GB/s`.
pub(super) fn reached(profile: &Profile, index: usize, phase: Phase) -> Option<String> {
    Some(verdict_of_device(profile, index, phase)?.says())
}

/// What to know of a run in which a device's operations ran one at a time: that they did, and what it costs. Sentences
/// without a full stop; none for other runs.
#[must_use]
pub fn serialised_notes(profile: &Profile) -> Vec<String> {
    let of = || Phase::SHOWN.into_iter().filter_map(|p| profile.serialised(p));
    let mut devices: Vec<&str> = Vec::new();
    for device in of().flat_map(|of| &of.devices) {
        if !devices.contains(&device.as_str()) {
            devices.push(device);
        }
    }
    if devices.is_empty() {
        return Vec::new();
    }
    let devices = printable_text(&devices.join(", "));
    let (whole, other): (Vec<_>, Vec<_>) = of().partition(|of| of.whole_passes > 0);
    let rates = match (&whole[..], &other[..]) {
        (_, []) => "rates are of passes left whole".to_owned(),
        (_, [of, ..]) => {
            format!("no {} pass was left whole, so its rate is of such passes", of.phase)
        }
    };
    let mut notes =
        vec![format!("nodes on {devices} ran one at a time, timed with launch and wait; {rates}")];
    let costs = whole.iter().map(|of| match (&of.cost, &of.cost_absent) {
        (Some(cost), _) => {
            let [estimate, low, high] =
                [cost.estimate, cost.low, cost.high].map(|part| 100.0 * part);
            // Of what takes several times as long, tenths of a percent say nothing.
            let digits = usize::from(estimate < 99.95);
            format!("{} {estimate:+.digits$} % ({low:+.digits$} to {high:+.digits$} %)", of.phase)
        }
        (None, _) => format!("of {} unknown, too few pairs", of.phase),
    });
    let costs: Vec<String> = costs.collect();
    if !costs.is_empty() {
        notes.push(format!("passes timed so, beside whole ones: {}", costs.join(", ")));
    }
    notes
}

/// What the host waited after, within passes.
pub(super) fn serialised(mode: SyncMode) -> Option<&'static str> {
    match mode {
        SyncMode::Immediate => Some("brick"),
        SyncMode::PerLayer => Some("layer"),
        SyncMode::Deferred | SyncMode::None => None,
    }
}

pub(super) fn passes(n: u64) -> String {
    if n == 1 { "1 pass".to_owned() } else { format!("{n} passes") }
}

/// Said instead of a share of a brick.
pub(super) const OF_UNKNOWN_PART: &str =
    "of how much isn't known, as streams may have run it at once";

/// The brick that takes the most time on a device.
pub(super) struct Top<'p> {
    pub(super) brick: &'p str,
    /// How long it ran: on several streams at once counts once. `None` if that isn't known.
    pub(super) ran_ns: Option<u64>,
    /// From the first mark to the last.
    pub(super) wall_ns: u64,
}

pub(super) fn top_brick<'p>(
    profile: &'p Profile,
    device: &'p DeviceProfile,
    phase: Phase,
) -> Option<Top<'p>> {
    if let Some(busy) = all_streams(device, phase) {
        let all = ran::by(profile, device, phase, |_, name| name).into_iter();
        let (brick, ran) =
            all.max_by_key(|(name, ran)| (ran.or_sum_ns(), std::cmp::Reverse(*name)))?;
        return Some(Top { brick, ran_ns: ran.ns(), wall_ns: busy.span_ns });
    }
    let of_phase = |stream: &DeviceStream| {
        let total = stream.phases.iter().find(|total| total.phase == phase)?;
        // Passes of which only layers, or the whole, were timed have no bricks.
        let fine = stream.grains.iter().filter(|of| of.phase == phase && of.grain > Grain::Layer);
        let fine: u64 = fine.map(|of| of.wall_ns).fold(0, u64::saturating_add);
        Some(if fine > 0 { fine } else { total.wall_ns }).filter(|&wall| wall > 0)
    };
    // And on how many streams.
    let mut sums: HashMap<&str, (u64, u32)> = HashMap::new();
    let mut longest = 0;
    for stream in &device.streams {
        let Some(wall) = of_phase(stream) else { continue };
        longest = longest.max(wall);
        let totals =
            stream.totals.iter().filter(|of| of.phase == Some(phase) && of.category.is_some());
        for total in totals.filter(|of| of.stats.exclusive_ns > 0) {
            let (sum, on) = sums.entry(&total.stats.name).or_default();
            *sum = sum.saturating_add(total.stats.exclusive_ns);
            *on += 1;
        }
    }
    let all = sums.into_iter();
    let (brick, (ns, on)) = all.max_by_key(|&(name, (ns, _))| (ns, std::cmp::Reverse(name)))?;
    // Streams may have run it at once.
    let ran_ns = Some(ns).filter(|_| on == 1);
    Some(Top { brick, ran_ns, wall_ns: longest })
}

/// How busy a device was in passes that the host timed too, and the host's wall time of these.
fn busy_share(
    profile: &Profile,
    device: &DeviceProfile,
    phase: Phase,
) -> Result<(Busy, u64), &'static str> {
    if device.includes_waits {
        return Err("its bricks' times include waits for the host");
    }
    let by_pass = device.busy_by_pass(Some(phase));
    if by_pass.is_empty() {
        return Err("no pass there had all of its bricks timed");
    }
    // The host's passes by position and tokens, in the order of time.
    let mut host: HashMap<(u64, u64), VecDeque<(u64, u64)>> = HashMap::new();
    for pass in profile.passes.iter().filter(|pass| pass.phase == phase) {
        let same = host.entry((pass.position, pass.tokens)).or_default();
        same.push_back((pass.start_ns, pass.wall_ns));
    }
    // The device's, each at its earliest begin on any stream.
    let mut timed: BTreeMap<u32, (u64, (u64, u64))> = BTreeMap::new();
    for pass in device.streams.iter().flat_map(|stream| &stream.passes) {
        let key = (pass.position, pass.tokens);
        let begin = &mut timed.entry(pass.serial).or_insert((pass.start_ns, key)).0;
        *begin = (*begin).min(pass.start_ns);
    }
    let slack = device.clock_error_ns().unwrap_or(0);
    let (mut sum, mut wall_ns) = (Busy::default(), 0_u64);
    for (serial, (start, key)) in timed {
        let Some(busy) = by_pass.get(&serial) else { continue };
        let Some(same) = host.get_mut(&key) else { continue };
        // The host issued it within one of its passes, not in one that ended before; each matches once.
        let end = |&(begin, wall): &(u64, u64)| begin.saturating_add(wall).saturating_add(slack);
        while same.front().is_some_and(|pass| end(pass) < start) {
            same.pop_front();
        }
        let is_begun = |&(begin, _): &(u64, u64)| begin <= start.saturating_add(slack);
        if let Some((_, wall)) = same.front().copied().filter(is_begun) {
            same.pop_front();
            wall_ns = wall_ns.saturating_add(wall);
            sum.add(busy);
        }
    }
    match sum.passes {
        0 => Err("no pass was timed both there and on the host"),
        _ if sum.busy_ns > wall_ns => Err("the host's passes end before the device's do"),
        _ => Ok((sum, wall_ns)),
    }
}

/// What went wrong, for all devices.
pub(super) fn notes(profile: &Profile) -> Vec<String> {
    let mut notes = serialised_notes(profile);
    notes.extend(losses(profile));
    notes
}

/// What devices have no times of, and why.
pub(super) fn losses(profile: &Profile) -> Vec<String> {
    let mut notes = Vec::new();
    for (index, device) in profile.devices.iter().enumerate() {
        let mut note = |text: String| notes.push(format!("device {index}: {text}"));
        if let Some(why) = &device.lost {
            note(format!(
                "{}; passes read back before that are in the tables",
                printable_text(why)
            ));
        }
        if let Some(why) = &device.failure {
            note(format!("a call failed: {}", printable_text(why)));
        }
        let outside = "they have no times";
        for (what, n) in [
            ("passes that were in flight when the profile was made", device.unsettled_passes),
            ("passes whose times could not be read back", device.lost_passes),
            ("passes whose marks were out of order", device.disordered_passes),
            ("passes that were abandoned", device.abandoned_passes),
            ("passes with more marks than there is room for", device.overfull_passes),
        ] {
            if n > 0 {
                note(format!("{what}: {n} ({outside})"));
            }
        }
        if device.dropped_dependencies > 0 {
            note(format!(
                "waits between streams with one side lost: {}",
                device.dropped_dependencies
            ));
        }
        for stream in &device.streams {
            stream.dropped.lines().for_each(|line| {
                let name = printable(&stream.name);
                let label = if name.starts_with("stream") { "" } else { "stream " };
                note(format!("{label}{name}: {line}"));
            });
        }
    }
    notes
}

/// Each device: what it is, its tables, and one of its passes.
pub(super) fn sections(profile: &Profile, limits: &Limits, text: &mut String) {
    let (mut others, mut example) = (0, None);
    for (index, device) in profile.devices.iter().enumerate() {
        if !ranks::is_of_host(profile, device.rank) {
            others += 1;
            example = example.or(Some(index));
            continue;
        }
        section(profile, (index, device), limits, text);
    }
    if let Some(index) = example {
        let devices = count(others, "device");
        text.push('\n');
        wrapped(&format!("{devices} of other ranks: `--device {index}` and on"), text);
    }
}

/// A device: what it is, its tables, and one of its passes.
pub(super) fn section(
    profile: &Profile,
    (index, device): (usize, &DeviceProfile),
    limits: &Limits,
    text: &mut String,
) {
    let what = [&device.name, &device.api, &device.driver].map(|part| printable(part));
    text.push('\n');
    wrapped(&format!("Device {index}: {}", what.join(", ")), text);
    let is_told = profile.imported.is_some();
    labelled(&facts(device, is_told), text);
    for phase in Phase::SHOWN {
        all_streams_table(profile, device, phase, limits, text);
    }
    let busiest = busiest(device, limits.streams);
    for (at, stream) in device.streams.iter().enumerate() {
        if !busiest.contains(&at) {
            continue;
        }
        let Some(on) = profile.on_device(index, at) else { continue };
        stream_tables(device, stream, (&on, is_told), limits, text);
    }
    let others = device.streams.iter().enumerate().filter(|(at, _)| !busiest.contains(at));
    let others: Vec<u64> = others.map(|(_, stream)| own_ns(stream)).collect();
    if !others.is_empty() {
        let sum = others.iter().fold(0, |sum, &ns| u64::saturating_add(sum, ns));
        let n = count(others.len() as u64, "more stream");
        let _ =
            writeln!(text, "\n{n}, {} of work: `--device {index} --stream N`", milliseconds(sum));
    }
    if device.streams.iter().all(|stream| stream.totals.is_empty() && stream.passes.is_empty()) {
        let why = match profile.sync_mode {
            SyncMode::None => ": the sync mode `none` times nothing",
            _ => "",
        };
        let _ = writeln!(text, "\nNothing was timed on it{why}.");
    }
    if let Some(whole) = profile.whole_device(index) {
        one_pass(profile, index, &whole, limits, text);
    }
}

/// What ran in the passes of a phase on any of a device's streams. Nothing for a device of one stream, which has
/// [its own table](stream_tables), and where not all of its passes are known.
fn all_streams_table(
    profile: &Profile,
    device: &DeviceProfile,
    phase: Phase,
    limits: &Limits,
    text: &mut String,
) {
    let Some(busy) = all_streams(device, phase) else { return };
    let all = ran::by(profile, device, phase, |span, name| ran::shown_name(name, span.source));
    // As the first screen has them: the own times of all spans, and how many these are.
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let of_phase = |total: &&Total| total.phase == Some(phase) && total.category.is_some();
    for total in device.streams.iter().flat_map(|of| of.totals.iter().filter(of_phase)) {
        let name = ran::shown_name(&total.stats.name, total.source);
        let (own, n) = sums.entry(name).or_default();
        *own = own.saturating_add(total.stats.exclusive_ns);
        *n = n.saturating_add(total.stats.count);
    }
    let rows = sums.iter().map(|(name, &(own, n))| {
        let ran_ns = match all.get(name) {
            Some(ran) => ran.ns(),
            // All of its time is that of others inside of it.
            None => (own == 0).then_some(0),
        };
        (name, ran_ns, own, n)
    });
    let mut rows: Vec<(&String, Option<u64>, u64, u64)> = rows.collect();
    rows.sort_by_key(|&(_, ran_ns, own, _)| std::cmp::Reverse(ran_ns.unwrap_or(own)));
    let row = |name: &str, [avg, ran, n, share]: [&str; 4]| {
        format!("{name:20} {avg:>10} {ran:>10} {n:>8} {share:>7}\n")
    };
    text.push('\n');
    wrapped(
        &format!(
            "{} on the device, all streams: {}, {} from first mark to last",
            phase.heading(),
            passes(busy.passes),
            milliseconds(busy.span_ns)
        ),
        text,
    );
    text.push_str(&row("Brick", ["Avg (µs)", "Ran (µs)", "Count", "Share"]));
    let _ = writeln!(text, "{}", "-".repeat(59));
    let part = |ns: u64| percent(ns as f64, busy.span_ns as f64);
    for &(name, ran, own, n) in rows.iter().take(limits.rows) {
        text.push_str(&row(
            &shortened(name, 20, ""),
            [
                &micros(own as f64 / n.max(1) as f64),
                &ran.map_or_else(|| "-".to_owned(), |ns| micros(ns as f64)),
                &n.to_string(),
                &ran.map_or_else(|| "-".to_owned(), part),
            ],
        ));
    }
    if rows.len() > limits.rows {
        let _ = writeln!(text, "({} more)", rows.len() - limits.rows);
    }
    let n = busy.passes.to_string();
    text.push_str(&row("(gaps)", ["", &micros(busy.idle_ns as f64), &n, &part(busy.idle_ns)]));
    text.push_str(&row("wall", ["", &micros(busy.span_ns as f64), &n, &part(busy.span_ns)]));
    let at_once = match busy.overlap_ns {
        0 => String::new(),
        ns => format!("; for {} of it several streams ran at once", part(ns)),
    };
    wrapped(
        &format!(
            "Ran: on one stream at least. Shares are of the wall{at_once}. Tables of single streams follow."
        ),
        text,
    );
}

/// The `most` streams of a device with the most work, by their numbers.
fn busiest(device: &DeviceProfile, most: usize) -> Vec<usize> {
    let mut streams: Vec<usize> = (0..device.streams.len()).collect();
    streams.sort_by_key(|&at| std::cmp::Reverse(own_ns(&device.streams[at])));
    streams.truncate(most);
    streams
}

/// The time of its bricks.
fn own_ns(stream: &DeviceStream) -> u64 {
    let bricks = stream.totals.iter().filter(|total| total.category.is_some());
    bricks.fold(0, |sum, total| u64::saturating_add(sum, total.stats.exclusive_ns))
}

/// How its times are known, and what they cost. Of a device in an imported file, the file tells.
fn facts(device: &DeviceProfile, is_told: bool) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if is_told {
        let clock = "as in the file, which doesn't say how it is aligned with the host's";
        lines.push(("clock", clock.to_owned()));
        lines.extend(device.ceilings.as_ref().map(|ceilings| ("ceilings", told(ceilings))));
        lines.extend(busy(device));
        return lines;
    }
    let ticks = &device.ticks;
    let mut clock = format!("{} ns a tick", ticks.ns_per_tick);
    match ticks.resolution_ns {
        Some(step) => clock.push_str(&format!(", steps of {step} ns")),
        None => clock.push_str(", step unknown"),
    }
    match device.clock_error_ns() {
        Some(error) => clock.push_str(&format!(
            "; ± {} µs from the host's ({})",
            micros(error as f64),
            count(device.alignments, "alignment")
        )),
        None => clock.push_str("; not aligned with the host's"),
    }
    if let Some(drift) = device.drift() {
        clock.push_str(&format!(
            "; {:+.1} ± {:.1} ppm over {:.1} s",
            drift.ppm,
            drift.error_ppm,
            drift.over_ns as f64 / 1e9
        ));
    }
    lines.push(("clock", clock));
    lines.push((
        "marks",
        match (&device.stamp, &device.stamp_absent) {
            (Some(stamp), _) => format!(
                "one costs the host {} µs and the device {} µs (mean of {} in a row){}{}",
                micros(stamp.host_ns),
                micros(stamp.device_ns),
                stamp.marks,
                stamp.pass_ns.map_or(String::new(), |ns| {
                    format!(", reading a pass back {} µs", micros(ns))
                }),
                device.budget.map_or(String::new(), |share| {
                    format!("; at most {} % of a pass", 100.0 * share)
                })
            ),
            (None, Some(Absent { reason })) => {
                format!("cost unknown: {}", printable_text(reason))
            }
            (None, None) => "cost unknown".to_owned(),
        },
    ));
    match (&device.ceilings, &device.ceilings_absent) {
        (Some(ceilings), _) => lines.push(("ceilings", told(ceilings))),
        (None, Some(Absent { reason })) => lines.push(("ceilings", printable_text(reason))),
        (None, None) => {}
    }
    if device.unmarked_passes > 0 {
        let n = passes(device.unmarked_passes);
        lines.push((
            "sampled",
            format!("{n} ran without marks, to keep to the budget; the tables cover the others"),
        ));
    }
    for choice in &device.grains {
        let changes = match choice.changes {
            0 => String::new(),
            n => format!(" (changed {})", count(n, "time")),
        };
        let reason = printable_text(&choice.reason);
        lines.push(("grain", format!("{}: {reason}{changes}", choice.phase.name())));
    }
    lines.extend(busy(device));
    lines
}

/// How busy it was in the passes of each phase.
fn busy(device: &DeviceProfile) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if device.includes_waits {
        lines.push((
            "times",
            "a brick's include those in which the device waited for the host".to_owned(),
        ));
    }
    for phase in Phase::ALL {
        if let Ok(busy) = device.busy(Some(phase)) {
            let part = |nanos: u64| percent(nanos as f64, busy.span_ns as f64);
            let overlap = match device.streams.len() {
                1 => String::new(),
                _ => format!(", on two streams or more {}", part(busy.overlap_ns)),
            };
            lines.push((
                "busy",
                format!(
                    "{}: {} of {} from first mark to last{overlap}, gaps {}",
                    phase.name(),
                    part(busy.busy_ns),
                    milliseconds(busy.span_ns),
                    part(busy.idle_ns)
                ),
            ));
        }
    }
    lines
}

fn stream_tables(
    device: &DeviceProfile,
    stream: &DeviceStream,
    (on, is_told): (&Profile, bool),
    limits: &Limits,
    text: &mut String,
) {
    let which = match device.streams.len() {
        1 => String::new(),
        _ => format!(", {}", printable(&stream.name)),
    };
    for total in &stream.phases {
        let phase = total.phase;
        let how_many = match total.tokens {
            // An imported file may not say it.
            0 => passes(total.passes),
            tokens => count(tokens, "token"),
        };
        let _ = write!(
            text,
            "\n{} on the device{which}: {how_many}, {} from first mark to last\n",
            phase.heading(),
            milliseconds(total.wall_ns)
        );
        let rests = rests(&stream.grains, phase, total.unattributed_ns, total.passes);
        tables(on, Some(phase), &rests, None, limits, text);
        if coarse(&stream.grains, total, text) {
            layers(stream, phase, total.wall_ns, text);
        }
        rates(on, phase, is_told, text);
    }
    let is_outside = |total: &Total| total.phase.is_none() && total.category.is_some();
    if stream.totals.iter().any(is_outside) {
        let outside = if stream.phases.is_empty() { "" } else { ", outside of passes" };
        let _ = write!(text, "\nOn the device{which}{outside}\n");
        tables(on, None, &[], None, limits, text);
    }
}

/// Unattributed time: gaps, and what was timed as a whole.
pub(super) fn rests(
    grains: &[GrainTotal],
    phase: Phase,
    unattributed: u64,
    passes: u64,
) -> Vec<Rest<'static>> {
    let grains: Vec<_> = grains.iter().filter(|grains| grains.phase == phase).collect();
    if grains.is_empty() {
        return vec![("(gaps)", unattributed, passes)];
    }
    let mut rests: Vec<Rest<'static>> = Vec::new();
    for (name, grain) in [("(in layers)", Grain::Layer), ("(whole passes)", Grain::Pass)] {
        let of_grain = grains.iter().filter(|total| total.grain == grain);
        rests.extend(of_grain.map(|total| (name, total.timed_ns, total.passes)));
    }
    // Whole passes have gaps only where the caller says that nothing runs.
    let with_gaps = grains.iter().filter(|total| total.grain > Grain::Pass || total.gaps_ns > 0);
    let (gaps, passes) = with_gaps.fold((0, 0), |(gaps, passes), total| {
        (u64::saturating_add(gaps, total.gaps_ns), u64::saturating_add(passes, total.passes))
    });
    if passes > 0 {
        rests.push(("(gaps)", gaps, passes));
    }
    rests
}

/// Says in how many passes of a phase bricks were not timed; `false` if they were in all.
pub(super) fn coarse(grains: &[GrainTotal], total: &PhaseTotal, text: &mut String) -> bool {
    let coarse = grains.iter().filter(|of| of.phase == total.phase && of.grain <= Grain::Layer);
    let n = coarse.map(|of| of.passes).fold(0, u64::saturating_add);
    if n > 0 {
        let note = format!(
            "bricks were not measured in {n} of {} passes: only layers, or the whole pass, were timed",
            total.passes
        );
        wrapped(&note, text);
    }
    n > 0
}

/// A row for each layer.
fn layers(stream: &DeviceStream, phase: Phase, wall_ns: u64, text: &mut String) {
    let rows: Vec<&LayerTotal> =
        stream.layers.iter().filter(|layer| layer.phase == phase && layer.count > 0).collect();
    if rows.is_empty() {
        return;
    }
    let row = |name: &str, cells: [&str; 6]| {
        let [avg, total, count, share, min, max] = cells;
        format!("{name:20} {avg:>10} {total:>10} {count:>8} {share:>7} {min:>9} {max:>9}\n")
    };
    text.push('\n');
    let header = ["Avg (µs)", "Total (µs)", "Count", "Share", "min (µs)", "max (µs)"];
    text.push_str(&row("Layer", header));
    let _ = writeln!(text, "{}", "-".repeat(79));
    for layer in rows.iter().take(MOST_ROWS) {
        let name = layer.layer.map_or("before and after".to_owned(), |layer| layer.to_string());
        text.push_str(&row(
            &name,
            [
                &micros(layer.total_ns as f64 / layer.count as f64),
                &micros(layer.total_ns as f64),
                &layer.count.to_string(),
                &percent(layer.total_ns as f64, wall_ns as f64),
                &micros(layer.min_ns as f64),
                &micros(layer.max_ns as f64),
            ],
        ));
    }
    if rows.len() > MOST_ROWS {
        let _ = writeln!(text, "({} more)", rows.len() - MOST_ROWS);
    }
}

/// The bandwidth and FLOP/s of its bricks, by their stated work. An imported file tells the work of some.
fn rates(on: &Profile, phase: Phase, is_told: bool, text: &mut String) {
    if is_told {
        if let Some((part, known)) = known_part(on, phase) {
            let bricks = part.bricks(Some(phase));
            let bytes = bricks.iter().map(|brick| brick.stats.total_bytes);
            let bytes = bytes.fold(0, u64::saturating_add);
            let note = format!(
                "The shapes of products tell the work of {} of its bricks' time. In that they moved {:.1} GB/s.",
                known.share(),
                bytes as f64 / known.ns as f64
            );
            text.push('\n');
            wrapped(&note, text);
            roofline::in_report(on, phase, text);
        }
        return;
    }
    let bricks = on.bricks(Some(phase));
    let sum = |of: &dyn Fn(&brickscope_profile::stats::BrickStats) -> u64| {
        bricks.iter().fold(0, |sum, brick| u64::saturating_add(sum, of(&brick.stats)))
    };
    let (bytes, flops) = (sum(&|stats| stats.total_bytes), sum(&|stats| stats.total_flops));
    let nanos = sum(&|stats| stats.exclusive_ns) as f64;
    if nanos <= 0.0 || bytes == 0 && flops == 0 {
        return;
    }
    let note = format!(
        "While its bricks ran, they moved {:.1} GB/s and did {:.1} GFLOP/s by their stated work.",
        bytes as f64 / nanos,
        flops as f64 / nanos
    );
    text.push('\n');
    wrapped(&note, text);
    roofline::in_report(on, phase, text);
}

fn one_pass(profile: &Profile, index: usize, whole: &Profile, limits: &Limits, text: &mut String) {
    let Some((phase, one)) = [Phase::Decode, Phase::Training]
        .into_iter()
        .find_map(|phase| Some((phase, OnePass::of(whole, phase)?)))
    else {
        return;
    };
    let pass = one.pass;
    let Some(graph) = whole.execution_graph(pass.serial) else { return };
    let which = one.which();
    // An imported file doesn't say at which position.
    let at = match profile.imported {
        Some(_) => String::new(),
        None => format!(", at position {}", pass.position),
    };
    let _ = write!(
        text,
        "\nOne {phase} pass on device {index}: {}, {which}{at}\n{}\n",
        milliseconds(pass.wall_ns),
        limits.tree(
            &graph.to_tree(&TreeOptions { fold: true, ..TreeOptions::default() }),
            &format!("--device {index} "),
        )
    );
    // Layers alone have no order.
    let has_bricks = pass.attributed_ns > 0;
    if let Some(why) = path::unknown(profile, index, pass.serial) {
        text.push('\n');
        wrapped(&format!("no critical path: {why}"), text);
        return;
    }
    if let Some(table) = path_table(&graph, PATH_ROWS).filter(|_| has_bricks) {
        let _ = write!(text, "\n{table}");
    }
}
