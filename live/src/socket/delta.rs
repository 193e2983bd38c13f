//! Frames as differences from a frame that was sent whole.
//!
//! Most of a frame is names, which don't change; a difference has the numbers that do.

use brickscope::{
    BrickKernel, BrickStats, CounterSums, CpuWait, DeviceProfile, Dropped, Lane, Latency,
    LayerBrick, Observed, Pass, Percentiles, PhaseTotal, Profile, ThreadShare, TileBalance,
    TileStats, TileThread, Total,
};
use brickscope_analysis::requests::Now;
use serde::{Deserialize, Serialize};

use super::Frame;
use super::frame::is_same;

/// A frame as its difference from one that was sent whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// As in [`Frame`].
    pub seq: u64,
    /// The number of the whole frame that this one differs from: the newest whole frame that was sent.
    pub on: u64,
    /// As in [`Frame`].
    pub at_ns: u64,
    /// As in [`Frame`].
    pub made_ns: u64,
    /// Recorded spans: `overhead.spans` of the profile.
    pub spans: u64,
    /// The fields of the profile that have changed.
    pub changed: Changed,
    /// The rows of `totals` that have changed.
    pub totals: Vec<RowDelta>,
    /// The rows of the totals of device streams that have changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_totals: Vec<DeviceRowDelta>,
    /// Present in a frame with details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
}

/// What has changed of that which only frames with details have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Details {
    /// Of `layers`: index, `count`, `total_ns`, `exclusive_ns`.
    pub layers: Vec<[u64; 4]>,
    /// Of `brick_kernels`: index, `count`, `total_ns`.
    pub brick_kernels: Vec<[u64; 3]>,
    /// The requests, whole, if anything of them has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Now>,
}

impl Details {
    /// `None` if the rows don't describe the same things in the same order, or if there are no requests any more.
    fn between(base: &Frame, now: &Frame) -> Option<Self> {
        let (before, after) = (&base.profile.layers, &now.profile.layers);
        let (inside_before, inside) = (&base.profile.brick_kernels, &now.profile.brick_kernels);
        let is_emptied = base.requests.is_some() && now.requests.is_none();
        if before.len() != after.len() || inside_before.len() != inside.len() || is_emptied {
            return None;
        }
        let requests = now.requests.clone().filter(|now| base.requests.as_ref() != Some(now));
        let mut details = Self { requests, ..Self::default() };
        for (place, (a, b)) in (0..).zip(before.iter().zip(after)) {
            if (a.phase, a.layer, &a.name) != (b.phase, b.layer, &b.name) {
                return None;
            }
            let sums = |row: &LayerBrick| [place, row.count, row.total_ns, row.exclusive_ns];
            details.layers.extend(Some(sums(b)).filter(|now| *now != sums(a)));
        }
        for (place, (a, b)) in (0..).zip(inside_before.iter().zip(inside)) {
            if (a.phase, &a.brick, &a.kernel) != (b.phase, &b.brick, &b.kernel) {
                return None;
            }
            let sums = |row: &BrickKernel| [place, row.count, row.total_ns];
            details.brick_kernels.extend(Some(sums(b)).filter(|now| *now != sums(a)));
        }
        Some(details)
    }

    fn onto(self, base: &Profile, profile: &mut Profile) -> Result<(), String> {
        profile.layers.clone_from(&base.layers);
        profile.brick_kernels.clone_from(&base.brick_kernels);
        let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX);
        for [place, count, total_ns, exclusive_ns] in self.layers {
            let row =
                profile.layers.get_mut(at(place)).ok_or("a row of `layers` that doesn't exist")?;
            (row.count, row.total_ns, row.exclusive_ns) = (count, total_ns, exclusive_ns);
        }
        for [place, count, total_ns] in self.brick_kernels {
            let row = profile.brick_kernels.get_mut(at(place));
            let row = row.ok_or("a row of `brick_kernels` that doesn't exist")?;
            (row.count, row.total_ns) = (count, total_ns);
        }
        Ok(())
    }
}

/// A changed row of `totals`: its index there, its sums, its squared deviations, and its further figures.
///
/// The sums are `count`, `total_ns`, `exclusive_ns`, `min_ns`, `max_ns`, `total_elements`, `total_flops` and
/// `total_bytes`; one that was never stated is 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowDelta(pub u32, pub [u64; 8], pub f64, pub Option<Box<Extras>>);

/// The figures of a row besides its sums.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Extras {
    /// As in the profile.
    pub std_dev_ns: Option<f64>,
    /// As in the profile, under the same names.
    pub percentiles: Percentiles,
    /// As in the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<CounterSums>,
}

impl Extras {
    fn from_total(total: &Total) -> Self {
        let &Total { std_dev_ns, percentiles, counters, .. } = total;
        Self { std_dev_ns, percentiles, counters }
    }

    fn onto(self, total: &mut Total) {
        (total.std_dev_ns, total.percentiles) = (self.std_dev_ns, self.percentiles);
        total.counters = self.counters;
    }
}

/// A changed row of the totals of a device's stream: the index of the device, the index of the stream, the row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceRowDelta(pub u32, pub u32, pub RowDelta);

// Lists all fields of a profile, so that the compiler reports one that is forgotten. Those of the first two
// lists may change in a delta, those of the third are handled separately, and a change in any other rules out a
// delta.
macro_rules! changed {
    (
        $($field:ident: $type:ty),*; $($maybe:ident: $inner:ty),*;
        $($own:ident),*; $($rest:ident),* $(,)?
    ) => {
        /// The fields of a profile that have changed; unchanged ones are left out.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Changed {
            $(
                #[doc = concat!("`", stringify!($field), "` of the profile.")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )*
            $(
                #[doc = concat!("`", stringify!($maybe), "` of the profile.")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $maybe: Option<$inner>,
            )*
        }

        impl Changed {
            /// Moves what has changed out of `now`. `None` if this type can't express the change.
            fn take(base: &Profile, now: &mut Profile) -> Option<Self> {
                let Profile { $($field,)* $($maybe,)* $($own: _,)* $($rest,)* } = now;
                if $(*$rest != base.$rest)||* {
                    return None;
                }
                // An omitted field means "unchanged", so a field that has vanished can't be expressed.
                if $(base.$maybe.is_some() && $maybe.is_none())||* {
                    return None;
                }
                Some(Self {
                    $($field: (*$field != base.$field).then(|| std::mem::take($field)),)*
                    $($maybe: $maybe.take().filter(|now| base.$maybe.as_ref() != Some(now)),)*
                })
            }

            /// A profile with these fields, and the others from `base`; those handled separately are left empty.
            fn onto(self, base: &Profile) -> Profile {
                Profile {
                    $($field: self.$field.unwrap_or_else(|| base.$field.clone()),)*
                    $($maybe: self.$maybe.or_else(|| base.$maybe.clone()),)*
                    $($rest: base.$rest.clone(),)*
                    overhead: base.overhead.clone(),
                    totals: Vec::new(),
                    layers: Vec::new(),
                    brick_kernels: Vec::new(),
                }
            }
        }
    };
}

changed! {
    created: String,
    dropped: Dropped,
    phases: Vec<PhaseTotal>,
    latency: Latency,
    passes: Vec<Pass>,
    tiles: Vec<TileStats>,
    tile_threads: Vec<TileThread>,
    shares: Vec<ThreadShare>,
    cpu_waits: Vec<CpuWait>,
    observed: Observed,
    lanes: Vec<Lane>,
    devices: Vec<DeviceProfile>;
    tile_balance: TileBalance;
    overhead, totals, layers, brick_kernels;
    schema_version, brickscope_version, run, model, machine, ceilings, ceilings_absent, process, clock, sync_mode,
    counters_absent, other_load, other_load_absent, checksums, digests, graph, ptx, names, spans, dependencies,
    serialised, grains, not_finite, imported, imported_at, ranks, trials, requests, parts, experts,
    kept, fired, named, among,
}

impl Delta {
    /// The difference of `now` from `base`, which was sent whole.
    ///
    /// # Errors
    ///
    /// Returns `now` if a difference can't express it: it is the last frame, or more than numbers changed.
    pub fn between(base: &Frame, mut now: Frame) -> Result<Self, Box<Frame>> {
        let parts = || {
            let details = match now.details {
                true => Some(Details::between(base, &now)?),
                false => None,
            };
            let (totals, device_totals) = rows_between(&base.profile, &now.profile, now.details)?;
            Some((totals, device_totals, details))
        };
        let Some((totals, device_totals, details)) = (if now.last { None } else { parts() }) else {
            return Err(Box::new(now));
        };
        let Some(mut changed) = Changed::take(&base.profile, &mut now.profile) else {
            return Err(Box::new(now));
        };
        for stream in changed.devices.iter_mut().flatten().flat_map(|device| &mut device.streams) {
            stream.totals = Vec::new();
        }
        let Frame { seq, at_ns, made_ns, profile, .. } = now;
        let spans = profile.overhead.spans;
        let on = base.seq;
        Ok(Self { seq, on, at_ns, made_ns, spans, changed, totals, device_totals, details })
    }

    /// Applies this difference to `base`.
    ///
    /// # Errors
    ///
    /// Says why if this isn't a difference from `base`.
    pub fn onto(self, base: &Frame) -> Result<Frame, String> {
        let Self { seq, on, at_ns, made_ns, spans, changed, totals, device_totals, details } = self;
        if on != base.seq {
            return Err(format!(
                "a difference from frame {on}, but the newest whole frame is {}",
                base.seq
            ));
        }
        let has_devices = changed.devices.is_some();
        let mut profile = changed.onto(&base.profile);
        profile.overhead.spans = spans;
        profile.totals.clone_from(&base.profile.totals);
        let has_details = details.is_some();
        let mut requests = None;
        match details {
            Some(mut details) => {
                requests = details.requests.take().or_else(|| base.requests.clone());
                details.onto(&base.profile, &mut profile)?;
            }
            None => profile.totals.iter_mut().for_each(forget_details),
        }
        for row in totals {
            row.onto(&mut profile.totals)?;
        }
        if has_devices {
            let before = base.profile.devices.iter().flat_map(|device| &device.streams);
            let streams = profile.devices.iter_mut().flat_map(|device| &mut device.streams);
            streams
                .zip(before)
                .for_each(|(stream, before)| stream.totals.clone_from(&before.totals));
        }
        for DeviceRowDelta(device, stream, row) in device_totals {
            let device = profile.devices.get_mut(device as usize);
            let stream = device.and_then(|device| device.streams.get_mut(stream as usize));
            row.onto(&mut stream.ok_or("a row of a stream that doesn't exist")?.totals)?;
        }
        let details = has_details;
        Ok(Frame { seq, at_ns, made_ns, last: false, profile, details, requests })
    }
}

impl RowDelta {
    fn new(place: usize, total: &Total) -> Option<Self> {
        let squared_deviations = total.stats.squared_deviations;
        let extras = Some(Extras::from_total(total)).filter(|extras| *extras != Extras::default());
        // JSON can't express infinities or NaN.
        squared_deviations.is_finite().then_some(Self(
            u32::try_from(place).ok()?,
            sums(&total.stats),
            squared_deviations,
            extras.map(Box::new),
        ))
    }

    fn onto(self, totals: &mut [Total]) -> Result<(), String> {
        let Self(place, sums, squared_deviations, extras) = self;
        let n = totals.len();
        let total = totals
            .get_mut(place as usize)
            .ok_or_else(|| format!("row {place} of `totals`, which has {n} rows"))?;
        let stats = &mut total.stats;
        [
            stats.count,
            stats.total_ns,
            stats.exclusive_ns,
            stats.min_ns,
            stats.max_ns,
            stats.total_elements,
            stats.total_flops,
            stats.total_bytes,
        ] = sums;
        stats.squared_deviations = squared_deviations;
        extras.map(|extras| *extras).unwrap_or_default().onto(total);
        Ok(())
    }
}

fn sums(stats: &BrickStats) -> [u64; 8] {
    [
        stats.count,
        stats.total_ns,
        stats.exclusive_ns,
        stats.min_ns,
        stats.max_ns,
        stats.total_elements,
        stats.total_flops,
        stats.total_bytes,
    ]
}

fn forget_details(total: &mut Total) {
    (total.std_dev_ns, total.percentiles) = (None, Percentiles::default());
}

/// The rows that differ. `None` if they don't describe the same things in the same order.
fn rows_between(
    base: &Profile,
    now: &Profile,
    has_details: bool,
) -> Option<(Vec<RowDelta>, Vec<DeviceRowDelta>)> {
    let (before, after) = (&base.overhead, &now.overhead);
    if (before.span_ns, &before.basis) != (after.span_ns, &after.basis)
        || base.devices.len() != now.devices.len()
    {
        return None;
    }
    // Distributions are details of the host's totals: a frame without details forgets those of the whole frame.
    let details = |total: &Total| (total.std_dev_ns, total.percentiles);
    let totals = rows(&base.totals, &now.totals, |before, now| {
        details(now) == if has_details { details(before) } else { Default::default() }
    })?;
    let mut device_totals = Vec::new();
    for ((base, now), device) in base.devices.iter().zip(&now.devices).zip(0..) {
        if base.streams.len() != now.streams.len() {
            return None;
        }
        for ((base, now), stream) in base.streams.iter().zip(&now.streams).zip(0..) {
            let rows = rows(&base.totals, &now.totals, |a, b| details(a) == details(b))?;
            device_totals.extend(rows.into_iter().map(|row| DeviceRowDelta(device, stream, row)));
        }
    }
    Some((totals, device_totals))
}

/// The rows of `now` that differ. `is_like` compares their distributions.
fn rows(
    base: &[Total],
    now: &[Total],
    is_like: impl Fn(&Total, &Total) -> bool,
) -> Option<Vec<RowDelta>> {
    if base.len() != now.len() {
        return None;
    }
    let mut rows = Vec::with_capacity(now.len());
    for (place, (base, now)) in base.iter().zip(now).enumerate() {
        let (a, b) = (&base.stats, &now.stats);
        if !is_same(base, now) || base.category != now.category || a.histogram != b.histogram {
            return None;
        }
        let is_as_it_was = sums(a) == sums(b)
            && a.squared_deviations == b.squared_deviations
            && base.counters == now.counters
            && is_like(base, now);
        if !is_as_it_was {
            rows.push(RowDelta::new(place, now)?);
        }
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use brickscope::{
        BrickProfiler, Ending, Histogram, MockClock, Part, Phase, SimulatedDevice, StreamId, Work,
    };
    use proptest::prelude::*;

    use super::*;

    /// What an engine does between two frames.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// A brick with this name, for this long, on the host.
        Brick(u8, u32),
        /// The same on the device, in a pass.
        Launch(u8, u16),
        Pass(bool),
        /// Of the request that came last, one that comes, gets a token with its pass, or ends.
        Comes,
        Token,
        Ends,
        Room(u64),
        Forget,
        /// The snapshot of the next frame has details.
        Details,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0_u8..5, any::<u32>()).prop_map(|(name, ns)| Step::Brick(name, ns)),
            4 => (0_u8..3, any::<u16>()).prop_map(|(name, ns)| Step::Launch(name, ns)),
            4 => any::<bool>().prop_map(Step::Pass),
            2 => Just(Step::Comes),
            4 => Just(Step::Token),
            1 => Just(Step::Ends),
            1 => any::<u64>().prop_map(Step::Room),
            1 => Just(Step::Forget),
            2 => Just(Step::Details),
        ]
    }

    /// The frame that a publisher makes: without histograms.
    fn frame(profiler: &BrickProfiler, seq: u64, details: bool) -> Frame {
        let mut profile = match details {
            true => profiler.snapshot(),
            false => profiler.snapshot_without_details(),
        };
        let streams = profile.devices.iter_mut().flat_map(|device| &mut device.streams);
        for total in profile.totals.iter_mut().chain(streams.flat_map(|stream| &mut stream.totals))
        {
            total.stats.histogram = Histogram::default();
        }
        let lately = if details { profiler.requests().lately() } else { None };
        let requests = lately.map(|lately| Now::of(&lately, seq * 7));
        Frame { seq, at_ns: seq * 7, made_ns: seq, last: false, profile, details, requests }
    }

    fn read_back<T: Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
        let text = serde_json::to_string(value).expect("it is data");
        serde_json::from_str(&text).expect("it was written")
    }

    proptest! {
        /// Whatever an engine does, a whole frame plus a difference equals the frame that it stands for.
        #[test]
        fn a_whole_frame_and_a_difference_are_the_frame(
            rounds in prop::collection::vec(prop::collection::vec(step(), 0..6), 1..12)
        ) {
            let mut device = SimulatedDevice::new(2).with_issue(0);
            let profiler = BrickProfiler::with_clock(device.clock());
            profiler.enable();
            let mut timer = profiler.device().timer(&mut device).expect("a clock");
            profiler.sum_layers(true);
            let mut whole: Option<Frame> = None;
            let mut differences = 0;
            let mut newest = None;
            for (seq, steps) in (1..).zip(&rounds) {
                let mut details = false;
                for &step in steps {
                    match step {
                        Step::Brick(name, ns) => {
                            let layer = profiler.begin_layer(u16::from(name));
                            let timer = profiler.start(&format!("brick {name}"));
                            device.host_works(u64::from(ns));
                            let kernel = profiler.kernel("a kernel", None);
                            profiler.stop_kernel(profiler.start_kernel(kernel), Work::default());
                            profiler.stop(timer, u64::from(name));
                            profiler.end_layer(layer);
                        }
                        Step::Launch(name, ns) => {
                            let stream = StreamId(u16::from(name % 2));
                            timer.begin_pass(&mut device, Phase::Decode, 1, seq).expect("none is open");
                            let name = format!("on the device {name}");
                            timer
                                .brick_named(&mut device, stream, None, &name, Work::elements(1))
                                .expect("room");
                            device.launch(stream, u64::from(ns));
                            timer.end_pass(&mut device).expect("it is open");
                        }
                        Step::Pass(is_prefill) => {
                            let phase = if is_prefill { Phase::Prefill } else { Phase::Decode };
                            let pass = profiler.begin_pass(phase);
                            profiler.stop(profiler.start("inside"), 1);
                            profiler.end_pass(pass, 1, seq);
                        }
                        Step::Comes => newest = Some(profiler.requests().arrive("a request")),
                        Step::Token => {
                            if let Some(newest) = newest {
                                let pass = profiler.begin_pass_of(&[Part::decode(newest, seq)]);
                                device.host_works(seq);
                                profiler.end_pass(pass, 1, seq);
                                profiler.requests().token(newest);
                            }
                        }
                        Step::Ends => {
                            if let Some(newest) = newest {
                                profiler.requests().end(newest, Ending::Stop);
                            }
                        }
                        Step::Room(tokens) => profiler.set_kv_cache_tokens(tokens),
                        Step::Forget => profiler.reset(),
                        Step::Details => details = true,
                    }
                }
                let now = frame(&profiler, seq, details);
                let found = match &whole {
                    Some(whole) => Delta::between(whole, now.clone()),
                    None => Err(Box::new(now.clone())),
                };
                match found {
                    Ok(delta) => {
                        differences += 1;
                        let base = read_back(whole.as_ref().expect("there is one"));
                        let made = read_back(&delta).onto(&base).expect("it is of this frame");
                        prop_assert_eq!(made, now);
                    }
                    Err(unchanged) => {
                        prop_assert_eq!(&*unchanged, &now);
                        whole = Some(now);
                    }
                }
            }
            // Where nothing new appears, a difference is possible.
            if steps_are_few(&rounds) {
                prop_assert_eq!(differences, rounds.len() - 1);
            }
        }
    }

    fn steps_are_few(rounds: &[Vec<Step>]) -> bool {
        rounds.iter().skip(1).flatten().all(|step| matches!(step, Step::Room(_)))
    }

    fn two_frames() -> (Frame, Frame) {
        // A real clock's drift from the system clock differs at each reading.
        let profiler = BrickProfiler::with_clock(MockClock::default().clock());
        profiler.enable();
        profiler.stop(profiler.start("a"), 1);
        let whole = frame(&profiler, 1, true);
        profiler.stop(profiler.start("a"), 1);
        (whole, frame(&profiler, 2, false))
    }

    #[test]
    fn a_difference_has_no_names_and_says_what_it_is_from() {
        let (whole, now) = two_frames();
        let delta = Delta::between(&whole, now).expect("only numbers");
        let [RowDelta(0, [2, ..], _, None)] = delta.totals[..] else {
            panic!("{:?}", delta.totals)
        };
        assert!(delta.changed.lanes.is_none() && delta.changed.devices.is_none());
        let text = serde_json::to_string(&delta).expect("it is data");
        assert!(text.len() < 1_000 && !text.contains("\"name\""), "{text}");

        let other = Frame { seq: 3, ..whole };
        let told = delta.onto(&other).expect_err("of another");
        assert_eq!(told, "a difference from frame 1, but the newest whole frame is 3");
    }

    #[test]
    fn a_difference_that_does_not_fit_is_refused() {
        let (whole, now) = two_frames();
        let delta = Delta::between(&whole, now).expect("only numbers");
        let row = |place| RowDelta(place, [1; 8], 0.0, None);
        let far = Delta { totals: vec![row(7)], ..delta.clone() };
        assert_eq!(
            far.onto(&whole).expect_err("no such row"),
            "row 7 of `totals`, which has 1 rows"
        );
        let device_totals = vec![DeviceRowDelta(0, 1, row(0))];
        let far = Delta { device_totals, ..delta };
        assert_eq!(
            far.onto(&whole).expect_err("no such device"),
            "a row of a stream that doesn't exist"
        );
    }

    #[test]
    fn requests_are_in_a_difference_once_they_have_changed() {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let a = profiler.requests().arrive("a");
        let whole = frame(&profiler, 1, true);
        assert_eq!(whole.requests.as_ref().map(|now| now.going_on), Some(1));
        let same = Frame { seq: 2, ..whole.clone() };
        let delta = Delta::between(&whole, same.clone()).expect("nothing changed");
        assert_eq!(delta.details.as_ref().map(|details| &details.requests), Some(&None));
        assert_eq!(read_back(&delta).onto(&whole), Ok(same));
        hand.advance(5);
        profiler.requests().token(a);
        let now = frame(&profiler, 3, true);
        let delta = Delta::between(&whole, now.clone()).expect("only numbers");
        assert_eq!(read_back(&delta).onto(&whole), Ok(now));
        // A frame without details has none, and takes those of the one before.
        let mut bare = frame(&profiler, 4, false);
        let delta = Delta::between(&whole, bare.clone()).expect("only numbers");
        assert_eq!(read_back(&delta).onto(&whole).map(|frame| frame.requests), Ok(None));
        bare.take_details_of(&whole);
        assert_eq!(bare.requests, whole.requests);
        // Nor can a difference say that there are none any more.
        let none = Frame { requests: None, ..whole.clone() };
        assert!(Delta::between(&whole, none).is_err());
    }

    #[test]
    fn what_hardware_counted_is_in_a_difference() {
        let (whole, mut now) = two_frames();
        now.profile.totals[0].counters = Some(CounterSums::default());
        let delta = Delta::between(&whole, now.clone()).expect("only numbers");
        assert_eq!(read_back(&delta).onto(&whole), Ok(now));
    }
}
