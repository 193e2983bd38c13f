//! From what was recorded to sums, profiles and text.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::name::{NameIdx, OTHER_BRICK};
use brickscope_profile::{
    Absent, Among, Anchor, AsProfile, BrickCategory, BrickId, BrickStats, CategoryStats, ClockInfo,
    Dropped, Name, Overhead, Profile, Run, Source,
};

use super::sums::BrickSums;
use super::{BrickProfiler, short_forms, tiles};
use crate::fold::{Fold, Slot};
use crate::names::brick_name;
use crate::sync::lock_unmodelled as lock;
use crate::{collect, cost};

/// # Reading what was recorded
///
/// These return copies, since other threads may go on recording. A copy has everything that a thread ended before
/// the call, if the caller has synchronised with that thread, for example by joining it.
///
/// The sums of a brick or a category are those of the host and of all devices together. Totals are of the host alone,
/// since it waits while a device works: both together would count that time twice. Only where the host recorded no brick
/// are they of devices. [`Profile::on_device`] has a device alone.
impl BrickProfiler {
    /// Everything that was recorded, as plain data, with what the system says of this machine. The model, the run and
    /// the machine's ceilings are for the caller to add; [`Profile::save_run`] writes it to a folder.
    ///
    /// ```
    /// use brickscope::{BrickProfiler, Model};
    ///
    /// let profiler = BrickProfiler::enabled();
    /// // … passes …
    /// let mut profile = profiler.profile();
    /// assert!(profile.machine.is_some());
    /// // What isn't known stays empty, and is not shown.
    /// profile.model = Some(Model { path: "tiny.gguf".to_owned(), layers: 2, ..Model::default() });
    /// # #[cfg(feature = "kernels")]
    /// # fn roofs(profile: &mut brickscope::Profile) {
    /// // Takes a second. `brickscope machine --add-to RUN` does it afterwards.
    /// profile.ceilings = brickscope::machine::ceilings_of_threads(4).ok();
    /// # }
    /// ```
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.warn_once(false);
        let (mut profile, refused) = self.described(self.recorder.clock().describe());
        if !self.recorder.clock().is_mock() {
            profile.machine = Some(crate::machine::detect());
            profile.among = Among::of_this_process(crate::machine::boot_id().as_deref());
        }
        profile.clock.anchors = self.anchors();
        profile.shares = self.thread_shares();
        profile.checksums = self.checksums().all();
        profile.digests = self.checksums().digests();
        let graph = self.graph().by_hand();
        profile.graph = (graph.num_nodes() > 0).then(|| graph.as_ref().clone());
        profile.ptx = self.graph().ptx_registry();
        // Before the passes: else a token could be there without the pass that made it.
        let requests = lock(&self.requests).copied();
        collect::fill(&mut profile, &self.recorder, refused);
        requests.fill(&mut profile);
        profile.latency.take_requests(&profile.requests);
        let devices = lock(&self.devices).clone();
        profile.devices =
            devices.iter().map(|device| device.profile(&profile.names, refused)).collect();
        profile.counters_absent = lock(&self.counters).absent();
        match self.watch.other_load() {
            Ok(load) => profile.other_load = Some(load),
            Err(absent) => profile.other_load_absent = Some(absent),
        }
        profile.dropped.unfinished += self.device().pending() as u64;
        profile.overhead = self.overhead(std::mem::take(&mut profile.overhead));
        profile
    }

    /// The parts of [`profile`](Self::profile) that a live view needs. Its cost doesn't grow with the length of the
    /// run.
    ///
    /// A snapshot has sums, but no single spans and no dependencies. Of the passes it has only the newest of each
    /// thread, and the newest whose disturbance is known. It has no requests (those are
    /// [`lately`](crate::handles::RequestRecorder::lately)), no graph, no sources of kernels, no checksums and
    /// no digests, and the machine's load is not looked at. With [`sum_layers`](Self::sum_layers) it has bricks by
    /// layer and kernels by brick.
    ///
    /// The times of tokens are those of all passes, including those that a profile has no room for. A prompt counts
    /// once a pass has followed it, since until then it may go on.
    #[must_use]
    pub fn snapshot(&self) -> Profile {
        let mut profile = self.snapshot_with(true);
        profile.clock.anchors = self.anchors();
        profile
    }

    /// When profiling was first turned on, and now.
    fn anchors(&self) -> Vec<Anchor> {
        let first = *lock(&self.anchor);
        first.into_iter().chain(self.recorder.clock().anchor()).collect()
    }

    /// Like [`snapshot`](Self::snapshot), without the parts that take longer than all the rest: bricks by layer,
    /// kernels by brick, and the histograms, hence the percentiles, of the host's `totals`.
    #[must_use]
    pub fn snapshot_without_details(&self) -> Profile {
        self.snapshot_with(false)
    }

    /// Sets whether bricks are also summed by layer, and kernels by brick. Off by default.
    ///
    /// A [`snapshot`](Self::snapshot) needs these sums, since it has no spans to make them from. They begin with
    /// this call, so a layer's sums can be less than those of `totals`. Turning this off forgets them; rows are
    /// folded faster without.
    pub fn sum_layers(&self, sum: bool) {
        self.recorder.sum_layers(sum);
    }

    /// What one well-known brick did.
    #[must_use]
    pub fn brick_stats(&self, brick: BrickId) -> BrickStats {
        let one = (brick.name().to_owned(), brick as NameIdx, brick.category());
        self.sums_of([one]).together().remove(0)
    }

    /// What the brick of this name did. `None` if no brick has the name.
    #[must_use]
    pub fn stats(&self, name: &str) -> Option<BrickStats> {
        if let Some(brick) = BrickId::from_str(name) {
            return Some(self.brick_stats(brick));
        }
        let index = *self.read_names().index.get(&brick_name(name))?;
        let one = (name.to_owned(), index, BrickCategory::Other);
        Some(self.sums_of([one]).together().remove(0))
    }

    /// All bricks: the fifteen well-known ones, then the others in the order of their first use.
    pub fn all_brick_stats(&self) -> impl Iterator<Item = BrickStats> + use<> {
        self.brick_sums().together().into_iter()
    }

    /// Sums by category, indexed by `BrickCategory as usize`.
    #[must_use]
    pub fn category_stats(&self) -> [CategoryStats; BrickCategory::COUNT] {
        self.brick_sums().by_category()
    }

    /// The nanoseconds that bricks of the host account for, or, if it has none, those of devices. Where bricks nest, each
    /// nanosecond counts once.
    ///
    /// A brick that was timed elsewhere ([`record_elapsed`](Self::record_elapsed)) or moved between threads counts
    /// in full where it is not known what lies inside it.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        let bricks = self.brick_sums();
        bricks.total().exclusive_ns
    }

    /// What was recorded in short, with a line for each brick. The report that `brickscope profile` prints is a method of
    /// `brickscope_analysis::Report`.
    #[must_use]
    pub fn summary(&self) -> String {
        short_forms::summary(self.brick_sums())
    }

    /// The bricks as JSON: `total_tokens`, `total_ns`, `total_throughput`, and `bricks`, each with `name`, `count`,
    /// `total_ns`, `exclusive_ns`, `avg_us`, `min_us`, `max_us`, `throughput` and `pct`, its part of `total_ns`. Those that
    /// ran on devices while the host recorded bricks of its own are in `device_bricks`.
    ///
    /// [`Profile::to_json`] has everything that was recorded.
    #[must_use]
    pub fn to_json(&self) -> String {
        short_forms::bricks_json(&self.brick_sums())
    }
}

impl AsProfile for BrickProfiler {
    fn as_profile(&self) -> Cow<'_, Profile> {
        Cow::Owned(self.profile())
    }
}

impl BrickProfiler {
    /// What each brick did, in one look at the logs.
    pub(super) fn brick_sums(&self) -> BrickSums {
        self.sums_of(self.brick_names_and_numbers())
    }

    fn brick_names_and_numbers(&self) -> Vec<(String, NameIdx, BrickCategory)> {
        let names = self.read_names();
        let brick = |(name, index): (&Name, NameIdx)| {
            Some((name.name.clone(), index, name.brick_category()?))
        };
        let mut bricks: Vec<_> = names.list.iter().zip(0..).filter_map(brick).collect();
        if names.refused > 0 {
            bricks.push(("(other)".to_owned(), OTHER_BRICK, BrickCategory::Other));
        }
        bricks
    }

    /// What each of these bricks did, in all phases and by all sources.
    fn sums_of(
        &self,
        bricks: impl IntoIterator<Item = (String, NameIdx, BrickCategory)>,
    ) -> BrickSums {
        let (mut host, mut numbers, mut categories) = (Vec::new(), Vec::new(), Vec::new());
        for (name, index, category) in bricks {
            host.push(BrickStats { name, min_ns: u64::MAX, ..Default::default() });
            numbers.push(index);
            categories.push(category);
        }
        let mut devices = host.clone();
        let add = |sums: &mut [BrickStats], fold: &Fold| {
            for (stats, &index) in sums.iter_mut().zip(&numbers) {
                for source in Source::ALL {
                    for slot in Slot::ALL {
                        if let Some(sums) = fold.sums(source, slot, index) {
                            sums.add_to(stats);
                        }
                    }
                }
            }
        };
        self.recorder.collect(|log| add(&mut host, log.fold()));
        let with_clock = lock(&self.devices).clone();
        with_clock.iter().for_each(|device| device.each_fold(|fold| add(&mut devices, fold)));
        BrickSums { host, devices, categories }
    }

    /// A profile of what was recorded, and of little else.
    pub(super) fn recorded(&self) -> Profile {
        let (mut profile, refused) = self.described(self.recorder.clock().describe_unmeasured());
        profile.ptx = self.graph().ptx_registry();
        collect::fill(&mut profile, &self.recorder, refused);
        let devices = lock(&self.devices).clone();
        profile.devices =
            devices.iter().map(|device| device.profile(&profile.names, refused)).collect();
        profile
    }

    fn snapshot_with(&self, details: bool) -> Profile {
        let mut clock = self.recorder.clock().describe_unmeasured();
        if !self.recorder.clock().is_mock() {
            clock.absent =
                Some("its step and cost take many readings: the profile has them".to_owned());
        }
        let (mut profile, refused) = self.described(clock);
        collect::fill_with_sums(&mut profile, &self.recorder, refused, details);
        let devices = lock(&self.devices).clone();
        profile.devices =
            devices.iter().map(|device| device.sums(&profile.names, refused)).collect();
        profile.counters_absent = lock(&self.counters).absent();
        let reason = "nobody looked: this is a picture of a run that goes on".to_owned();
        profile.other_load_absent = Some(Absent { reason });
        profile.dropped.unfinished += self.device().pending() as u64;
        profile.overhead = self.overhead(std::mem::take(&mut profile.overhead));
        // Only spans refer to them, and there are none.
        profile.names = Vec::new();
        profile
    }

    /// The parts of a profile that need no logs, and whether there were names without room.
    fn described(&self, clock: ClockInfo) -> (Profile, bool) {
        let mut profile = Profile::empty(clock);
        profile.process = (!self.recorder.clock().is_mock()).then(std::process::id);
        profile.sync_mode = self.device().sync_mode();
        profile.observed = *lock(&self.observed);
        profile.run = lock(&self.backend).clone().map(|backend| Run { backend, ..Run::default() });
        profile.tiles = self.tiles().all_stats().into_iter().filter(tiles::were_timed).collect();
        if !profile.tiles.is_empty() {
            profile.tile_threads = self.tiles().threads();
            profile.tile_balance = self.tiles().balance();
        }
        let names = self.read_names();
        profile.names.clone_from(&names.list);
        profile.dropped =
            Dropped { late: self.late.load(Relaxed), names: names.refused, ..Dropped::default() };
        (profile, names.refused > 0)
    }

    /// What recording cost, of which the spans and the preparations are known already.
    fn overhead(&self, known: Overhead) -> Overhead {
        let clock = self.recorder.clock();
        if lock(&self.counters).were_read() {
            let basis = "absent: hardware counters were read at each brick, and what that takes was \
                         not measured";
            return Overhead { basis: basis.to_owned(), ..known };
        }
        let span_ns = cost::of_a_span(clock);
        let basis = match span_ns {
            None => "absent: a mock clock can't measure a cost".to_owned(),
            Some(_) => {
                let build = if cfg!(debug_assertions) { " (a debug build)" } else { "" };
                format!(
                    "estimate: cost of one span by timers, measured at start-up{build}, times the \
                     spans recorded"
                )
            }
        };
        Overhead { span_ns, basis, ..known }
    }
}
