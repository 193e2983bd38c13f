//! The short ways and the careful ones write the same rows, whatever is called in whatever order; and so do spans that
//! are timed one by one and timestamps that are labelled afterwards.

use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::{BrickStats, Data, Phase, Source, Work};
use proptest::prelude::*;

use super::timestamps::MOST_TEMPLATES;
use super::{Looked, Open, OpenPass, PLAIN, Recorder, Timestamps, thread};
use crate::clock::{Clock, MockClock};
use crate::fold::Slot;
use crate::machine::LoadReading;
use crate::row::{NameIdx, Record};
use crate::template::{GrowingWork, PassTemplate, PassTemplateBuilder};

#[derive(Debug, Clone, Copy)]
enum Step {
    Begin(NameIdx),
    BeginKernel(NameIdx),
    BeginBoth(NameIdx),
    /// These are of one of the spans that are open, counted from the last.
    End(usize),
    EndKernel(usize),
    EndBoth(usize),
    EndLast(usize),
    Lap(usize),
    LapBoth(usize),
    NextKernel(usize),
    Forget(usize),
    BeginPass,
    EndPass,
    DiscardPass,
    BeginLayer(u16),
    Switch(bool),
    Reset,
    Turn(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let which = || prop_oneof![4 => Just(0_usize), 1 => 0..4_usize];
    prop_oneof![
        6 => (0..20_u16).prop_map(Step::Begin),
        3 => (0..20_u16).prop_map(Step::BeginKernel),
        3 => (0..20_u16).prop_map(Step::BeginBoth),
        6 => which().prop_map(Step::End),
        3 => which().prop_map(Step::EndKernel),
        3 => which().prop_map(Step::EndBoth),
        3 => which().prop_map(Step::EndLast),
        3 => which().prop_map(Step::Lap),
        3 => which().prop_map(Step::LapBoth),
        3 => which().prop_map(Step::NextKernel),
        1 => which().prop_map(Step::Forget),
        2 => Just(Step::BeginPass),
        2 => Just(Step::EndPass),
        1 => Just(Step::DiscardPass),
        1 => (0..3_u16).prop_map(Step::BeginLayer),
        1 => any::<bool>().prop_map(Step::Switch),
        1 => Just(Step::Reset),
        9 => (0..50_u64).prop_map(Step::Turn),
    ]
}

/// One of the two, with what is open in it.
struct Side {
    recorder: Recorder,
    hand: MockClock,
    /// With the kernel that is open in it, if there is one.
    open: Vec<(Open, Open)>,
    pass: Option<OpenPass>,
    is_careful: bool,
}

impl Side {
    fn new(is_careful: bool, capacity: usize) -> Self {
        let hand = MockClock::default();
        let recorder = Recorder::new(hand.clock(), capacity);
        recorder.set_active(true);
        Self { recorder, hand, open: Vec::new(), pass: None, is_careful }
    }

    fn take(&mut self, which: usize) -> Option<(Open, Open)> {
        let at = self.open.len().checked_sub(1 + which)?;
        Some(self.open.remove(at))
    }

    fn run(&mut self, step: Step, work: Work) {
        if self.is_careful {
            // Closes the short ways.
            self.recorder.state.fetch_and(!PLAIN, Relaxed);
        }
        let recorder = &self.recorder;
        let look = |_: &mut Option<LoadReading>| Looked::No;
        match step {
            Step::Begin(name) => self.open.push((recorder.begin_brick(name), Open::OFF)),
            Step::BeginKernel(name) => self.open.push((recorder.begin_detail(name), Open::OFF)),
            Step::BeginBoth(name) => {
                let brick = recorder.begin_both(name);
                let kernel = if brick.is_off() { Open::OFF } else { brick.inner(name + 1) };
                self.open.push((brick, kernel));
            }
            Step::End(which) => {
                if let Some((open, _)) = self.take(which) {
                    self.recorder.end_brick(open, work);
                }
            }
            Step::EndKernel(which) => {
                if let Some((open, _)) = self.take(which) {
                    self.recorder.end_kernel(open, work);
                }
            }
            Step::EndBoth(which) => {
                if let Some((open, _)) = self.take(which) {
                    self.recorder.end_both(open, 7, work);
                }
            }
            Step::EndLast(which) => {
                if let Some((brick, kernel)) = self.take(which) {
                    let more = Work { bytes: work.bytes + 1, ..work };
                    self.recorder.end_last(brick, kernel, work, more);
                }
            }
            Step::Lap(which) => {
                if let Some((open, kernel)) = self.take(which) {
                    self.open.push((self.recorder.lap(open, work, 3), kernel));
                }
            }
            Step::LapBoth(which) => {
                if let Some((open, _)) = self.take(which) {
                    let next = self.recorder.lap_both(open, 7, work, 3);
                    let kernel = if next.is_off() { Open::OFF } else { next.inner(7) };
                    self.open.push((next, kernel));
                }
            }
            Step::NextKernel(which) => {
                if let Some((brick, kernel)) = self.take(which) {
                    self.open.push((brick, self.recorder.next_detail(kernel, work, 5)));
                }
            }
            Step::Forget(which) => drop(self.take(which)),
            Step::BeginPass => {
                if let Some(pass) = recorder.begin_pass(Phase::Decode, look) {
                    self.pass = Some(pass);
                }
            }
            Step::EndPass => {
                if let Some(pass) = self.pass.take() {
                    recorder.end_pass(pass, Phase::Decode, 1, 2, look);
                }
            }
            Step::DiscardPass => {
                if let Some(pass) = self.pass.take() {
                    recorder.discard_pass(pass);
                }
            }
            Step::BeginLayer(layer) => {
                let (open, before) = recorder.begin_layer(layer);
                self.hand.advance(1);
                recorder.end_layer(open, before);
                // And one that stays, so that spans have a layer.
                let _ = recorder.begin_layer(layer);
            }
            Step::Switch(on) => recorder.set_active(on),
            Step::Reset => recorder.reset(),
            Step::Turn(nanos) => self.hand.advance(nanos),
        }
    }
}

proptest! {
    #[test]
    fn both_ways_write_the_same_rows(
        steps in prop::collection::vec(step(), 1..120),
        capacity in prop_oneof![Just(0_usize), Just(3), Just(1000)],
    ) {
        let [short, careful] = both_ways(&steps, capacity);
        prop_assert_eq!(short, careful);
    }
}

/// What the short ways leave, and the careful ones.
fn both_ways(steps: &[Step], capacity: usize) -> [(Left, usize); 2] {
    [false, true].map(|is_careful| {
        let mut side = Side::new(is_careful, capacity);
        for (&step, at) in steps.iter().zip(0..) {
            side.run(step, Work { elements: at, flops: 2 * at, bytes: 3, ..Work::default() });
        }
        (left_by(&side.recorder), side.open.len())
    })
}

#[test]
fn a_kernel_that_began_before_its_brick_hides_no_open_brick() {
    use Step::{Begin, BeginBoth, End, EndLast, Lap, Turn};
    // The second brick ends with the first one's kernel, while a third is open.
    let [short, careful] =
        both_ways(&[BeginBoth(0), Lap(0), Turn(1), Begin(0), EndLast(1), End(0)], 1000);
    assert_eq!(short, careful);
}

/// What was recorded, and how many spans were begun and dropped.
type Left = (Vec<Record>, u64, u64);

fn left_by(recorder: &Recorder) -> Left {
    let (mut records, mut begun, mut dropped) = (Vec::new(), 0, 0);
    recorder.collect(|mut log| {
        begun += log.begun();
        dropped += log.dropped();
        records.extend(log.lanes().into_iter().flat_map(|lane| lane.records));
    });
    (records, begun, dropped)
}

/// What a pass does that takes the same way each time.
#[derive(Debug, Clone)]
enum Part {
    Turn(u64),
    Brick(NameIdx),
    /// A brick that takes so long, of one kernel.
    BrickKernel(NameIdx, u64),
    /// The same of some kernels.
    Kernels(NameIdx, Vec<u64>),
    Layer(u16, Vec<Part>),
}

fn part() -> impl Strategy<Value = Part> {
    let leaf = prop_oneof![
        3 => (0..50_u64).prop_map(Part::Turn),
        1 => (0..20_u16).prop_map(Part::Brick),
        3 => (0..20_u16, 0..50_u64).prop_map(|(name, nanos)| Part::BrickKernel(name, nanos)),
        2 => (0..20_u16, prop::collection::vec(0..50_u64, 1..4))
            .prop_map(|(name, nanos)| Part::Kernels(name, nanos)),
    ];
    leaf.prop_recursive(2, 30, 8, |part| {
        (0..3_u16, prop::collection::vec(part, 0..8)).prop_map(|(i, parts)| Part::Layer(i, parts))
    })
}

fn work_of(name: NameIdx) -> Work {
    let data = match name % 4 {
        0 => Data::Unstated,
        1 => Data::Activations,
        2 => Data::Weights(2),
        _ => Data::Kv(1),
    };
    Work { elements: name.into(), flops: 2, bytes: 3, data }
}

fn time_at_once(recorder: &Recorder, hand: &MockClock, part: &Part) {
    match *part {
        Part::Turn(nanos) => hand.advance(nanos),
        Part::Brick(name) => {
            let open = recorder.begin_brick(name);
            hand.advance(1);
            recorder.end_brick(open, work_of(name));
        }
        Part::BrickKernel(name, nanos) => {
            let open = recorder.begin_both(name);
            hand.advance(nanos);
            recorder.end_both(open, name + 1, work_of(name));
        }
        Part::Kernels(name, ref kernels) => {
            let (brick, last) = (recorder.begin_both(name), 29 + kernels.len() as NameIdx);
            let mut open = brick.inner(30);
            for (&nanos, kernel) in kernels.iter().zip(30..) {
                hand.advance(nanos);
                if kernel < last {
                    open = recorder.next_detail(open, work_of(kernel), kernel + 1);
                }
            }
            recorder.end_last(brick, open, work_of(last), work_of(name));
        }
        Part::Layer(layer, ref parts) => {
            let (open, before) = recorder.begin_layer(layer);
            parts.iter().for_each(|part| time_at_once(recorder, hand, part));
            recorder.end_layer(open, before);
        }
    }
}

/// Where a reading may stand for the next one: never, or where no time has passed since.
#[derive(Debug, Clone, Copy)]
struct Laps {
    are_wanted: bool,
    is_one: bool,
}

impl Laps {
    fn new(are_wanted: bool) -> Self {
        Self { are_wanted, is_one: false }
    }

    fn read(&mut self) {
        self.is_one = self.are_wanted;
    }
}

fn read(timestamps: &Timestamps<'_>, hand: &MockClock, laps: &mut Laps, part: &Part) {
    if let Part::Turn(nanos) = part {
        laps.is_one = false;
        return hand.advance(*nanos);
    }
    let take_if_no_lap = |laps: &mut Laps| {
        if !laps.is_one {
            timestamps.take();
        }
        laps.read();
    };
    take_if_no_lap(laps);
    match part {
        Part::Turn(_) => {}
        Part::Brick(_) => hand.advance(1),
        Part::BrickKernel(_, nanos) => hand.advance(*nanos),
        Part::Kernels(_, kernels) => {
            for (i, &nanos) in kernels.iter().enumerate() {
                if i > 0 {
                    timestamps.take();
                }
                hand.advance(nanos);
            }
        }
        Part::Layer(_, parts) => {
            parts.iter().for_each(|part| read(timestamps, hand, laps, part));
            return take_if_no_lap(laps);
        }
    }
    timestamps.take();
    laps.read();
}

const POSITION: u64 = 7;

fn say(template: &mut PassTemplateBuilder, laps: &mut Laps, part: &Part) {
    // At `POSITION` it is what it is to be.
    let work = |name: NameIdx| {
        let Work { elements, flops, bytes, data } = work_of(name);
        let each = u64::from(name % 3);
        let per_token = Work { elements: each, flops: 0, bytes: 2 * each, ..Work::default() };
        let at_start = Work {
            elements: elements.wrapping_sub(POSITION * each),
            flops,
            bytes: bytes.wrapping_sub(POSITION * 2 * each),
            data,
        };
        GrowingWork { at_start, per_token }
    };
    let lap_if_one = |template: &mut PassTemplateBuilder, laps: &mut Laps| {
        if laps.is_one {
            template.lap();
        }
        laps.read();
    };
    match part {
        Part::Turn(_) => laps.is_one = false,
        _ => lap_if_one(template, laps),
    }
    match *part {
        Part::Turn(_) => {}
        Part::Brick(name) => template.kernels(name, work(name), &[]),
        Part::BrickKernel(name, _) => {
            template.kernels(name, work(name), &[(name + 1, work(name))]);
        }
        Part::Kernels(name, ref kernels) => {
            let kernels: Vec<_> = (30..).map(|k| (k, work(k))).take(kernels.len()).collect();
            template.kernels(name, work(name), &kernels);
        }
        Part::Layer(layer, ref parts) => {
            template.begin_layer(layer);
            parts.iter().for_each(|part| say(template, laps, part));
            lap_if_one(template, laps);
            template.end_layer();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Labelled {
    AtOnce,
    Late,
    /// With as few timestamps as can be.
    LateByLaps,
}

/// What passes of such parts leave.
fn run_parts(labelled: Labelled, capacity: usize, passes: &[Vec<Part>]) -> Recorder {
    let hand = MockClock::default();
    let recorder = Recorder::new(hand.clock(), capacity);
    recorder.set_active(true);
    let look = |_: &mut Option<LoadReading>| Looked::No;
    let mut room = [0; 2000];
    for parts in passes {
        let pass = recorder.begin_pass(Phase::Decode, look);
        if labelled != Labelled::AtOnce {
            let laps = Laps::new(labelled == Labelled::LateByLaps);
            let timestamps = recorder.timestamps(pass.as_ref(), &mut room).expect("it is on");
            let mut read_by = laps;
            parts.iter().for_each(|part| read(&timestamps, &hand, &mut read_by, part));
            let unlabelled = timestamps.end().expect("nothing else is recorded");
            // It isn't the pass's any more.
            hand.advance(1000);
            let mut template = PassTemplate::builder();
            let mut said_by = laps;
            parts.iter().for_each(|part| say(&mut template, &mut said_by, part));
            assert!(unlabelled.label(&template.build(), POSITION));
        } else {
            parts.iter().for_each(|part| time_at_once(&recorder, &hand, part));
        }
        recorder.end_pass(pass.expect("it is on"), Phase::Decode, 1, 2, look);
        if labelled == Labelled::AtOnce {
            hand.advance(1000);
        }
    }
    recorder
}

proptest! {
    #[test]
    fn what_is_labelled_afterwards_is_recorded_as_what_is_timed_at_once(
        passes in prop::collection::vec(prop::collection::vec(part(), 0..12), 1..4),
        capacity in prop_oneof![Just(0_usize), Just(3), Just(20), Just(1000)],
    ) {
        let all = left_by(&run_parts(Labelled::AtOnce, 1000, &passes));
        for labelled in [Labelled::Late, Labelled::LateByLaps] {
            let (late, begun, dropped) = left_by(&run_parts(labelled, capacity, &passes));
            prop_assert_eq!((begun, all.2), (all.1, 0));
            // Readings need fewer rows than spans: more are kept than there are rows.
            prop_assert!(late.len() >= capacity.min(all.0.len()));
            prop_assert_eq!(&late[..], &all.0[..late.len()]);
            if capacity > 0 {
                let spans =
                    |records: &[Record]| records.iter().filter(|r| r.is_span()).count();
                prop_assert_eq!(spans(&late) + dropped as usize, spans(&all.0));
            }
        }
    }

    #[test]
    fn sums_of_what_is_labelled_afterwards_are_those_of_what_is_timed_at_once(
        passes in prop::collection::vec(prop::collection::vec(part(), 0..12), 1..8),
        capacity in prop_oneof![Just(0_usize), Just(10)],
    ) {
        let [at_once, late, by_laps] = [Labelled::AtOnce, Labelled::Late, Labelled::LateByLaps].map(|labelled| {
            let mut sums = Vec::new();
            run_parts(labelled, capacity, &passes).collect(|log| {
                for (name, source, slot, of_name) in log.fold().all_sums() {
                    let mut stats = BrickStats::new("");
                    of_name.add_to(&mut stats);
                    sums.push((name, source, slot, stats));
                }
                sums.retain(|(.., stats)| stats.count > 0);
            });
            sums
        });
        prop_assert_eq!(&late, &at_once);
        prop_assert_eq!(&by_laps, &at_once);
    }
}

/// Does something with a pass of two timestamps; how many spans ended then, and how many did not.
fn of_two_timestamps(room: usize, then: impl FnOnce(&Recorder, Timestamps<'_>)) -> (u64, u64) {
    let look = |_: &mut Option<LoadReading>| Looked::No;
    let hand = MockClock::default();
    let recorder = Recorder::new(hand.clock(), 10);
    recorder.set_active(true);
    let pass = recorder.begin_pass(Phase::Decode, look);
    let mut room = vec![0; room];
    let timestamps = recorder.timestamps(pass.as_ref(), &mut room).expect("it is on");
    timestamps.take();
    hand.advance(5);
    timestamps.take();
    then(&recorder, timestamps);
    recorder.end_pass(pass.expect("it is on"), Phase::Decode, 1, 2, look);
    let (mut ended, mut begun) = (0, 0);
    recorder.collect(|log| {
        ended += log.fold().ended();
        begun += log.begun();
    });
    (ended, begun - ended)
}

/// Of so many bricks without kernels.
fn template_of(bricks: u16) -> PassTemplate {
    let mut template = PassTemplate::builder();
    (0..bricks).for_each(|brick| template.kernels(brick, GrowingWork::default(), &[]));
    template.build()
}

#[test]
fn timestamps_that_nobody_labels_are_counted() {
    let label = |bricks: u16| {
        of_two_timestamps(2, |_, timestamps| {
            let unlabelled = timestamps.end().expect("all is as it should be");
            assert_eq!(unlabelled.label(&template_of(bricks), 0), bricks == 1);
        })
    };
    assert_eq!(label(1), (1, 0));
    assert_eq!([0, 2].map(label), [(0, 2); 2], "of other passes");
    assert_eq!(of_two_timestamps(2, |_, timestamps| drop(timestamps)), (0, 2));
    assert_eq!(of_two_timestamps(2, |_, timestamps| drop(timestamps.end())), (0, 2));
    let no_room = of_two_timestamps(1, |_, timestamps| assert!(timestamps.end().is_none()));
    assert_eq!(no_room, (0, 2));
    let overlapped = of_two_timestamps(2, |recorder, timestamps| {
        recorder.end_brick(recorder.begin_brick(1), Work::default());
        assert!(timestamps.end().is_none(), "they might overlap");
    });
    assert_eq!(overlapped, (1, 2));
}

#[test]
fn what_is_recorded_before_timestamps_are_labelled_leaves_them_unlabelled() {
    let then = of_two_timestamps(2, |recorder, timestamps| {
        let unlabelled = timestamps.end().expect("all is as it should be");
        recorder.end_brick(recorder.begin_brick(1), Work::default());
        assert!(!unlabelled.label(&template_of(1), 0));
    });
    assert_eq!(then, (1, 2));
    let layer = of_two_timestamps(2, |recorder, timestamps| {
        let (open, before) = recorder.begin_layer(1);
        recorder.end_layer(open, before);
        assert!(timestamps.end().is_none(), "they might lie in the layer");
    });
    assert_eq!(layer.1, 2);
}

#[test]
fn a_log_knows_templates_by_their_content_and_only_so_many() {
    let look = |_: &mut Option<LoadReading>| Looked::No;
    let hand = MockClock::default();
    let recorder = Recorder::new(hand.clock(), 0);
    recorder.set_active(true);
    let mut room = [0; 6];
    let mut label = |work: u64| {
        let mut template = PassTemplate::builder();
        // So many that timestamps take fewer rows than spans.
        (0..3).for_each(|_| template.kernels(0, Work::elements(work).into(), &[]));
        let pass = recorder.begin_pass(Phase::Decode, look);
        let timestamps = recorder.timestamps(pass.as_ref(), &mut room).expect("it is on");
        (0..6).for_each(|_| timestamps.take());
        assert!(timestamps.end().expect("all is as it should be").label(&template.build(), 0));
        recorder.end_pass(pass.expect("it is on"), Phase::Decode, 1, 2, look);
    };
    (0..10).for_each(|_| label(1));
    let known = || {
        let mut known = 0;
        recorder.collect(|log| known += log.drained.templates.len());
        known
    };
    assert_eq!(known(), 1);
    let works = MOST_TEMPLATES as u64 + 6;
    (0..works).for_each(&mut label);
    assert_eq!(known(), MOST_TEMPLATES);
    let mut elements = 0;
    recorder.collect(|log| {
        let sums = log.fold().sums(Source::Host, Slot::Decode, 0).expect("it was labelled");
        let mut stats = BrickStats::new("");
        sums.add_to(&mut stats);
        elements = stats.total_elements;
    });
    assert_eq!(
        elements,
        3 * (10 + (works - 1) * works / 2),
        "those that it doesn't know are written row by row"
    );
}

#[test]
fn a_log_that_begins_anew_knows_no_earlier_template() {
    let look = |_: &mut Option<LoadReading>| Looked::No;
    let hand = MockClock::default();
    let recorder = Recorder::new(hand.clock(), 10);
    recorder.set_active(true);
    let [first, second] = [4, 5].map(template_of);
    let label = |template: &PassTemplate| {
        let mut room = vec![0; template.timestamps()];
        let pass = recorder.begin_pass(Phase::Decode, look);
        let timestamps = recorder.timestamps(pass.as_ref(), &mut room).expect("it is on");
        (0..template.timestamps()).for_each(|_| timestamps.take());
        assert!(timestamps.end().expect("all is as it should be").label(template, 0));
        recorder.end_pass(pass.expect("it is on"), Phase::Decode, 1, 2, look);
    };
    label(&first);
    label(&second);
    recorder.reset();
    label(&second);
    let (records, begun, _) = left_by(&recorder);
    assert_eq!((records.len(), begun), (6, 5), "five bricks and their pass");
}

#[test]
fn work_grows_with_the_position() {
    let per_token = Work { elements: 2, flops: 3, bytes: 4, ..Work::default() };
    let grows = GrowingWork { at_start: Work { bytes: u64::MAX, ..work_of(10) }, per_token };
    assert_eq!(grows.at(100), Work { elements: 210, flops: 302, bytes: 399, ..work_of(10) });
    assert_eq!(GrowingWork::from(work_of(1)).at(7), work_of(1));
    // What is read from the KV cache grows as all bytes do.
    let [at_start, each] = [[100, 40], [8, 8]].map(|[bytes, kv]| Work {
        bytes,
        data: Data::Kv(kv),
        ..Work::default()
    });
    let grows = GrowingWork { at_start, per_token: each };
    assert_eq!(grows.at(10), Work { bytes: 180, data: Data::Kv(120), ..Work::default() });
}

#[test]
fn a_reset_forgets_timestamps_and_turning_off_has_them_counted() {
    let reset = of_two_timestamps(2, |recorder, timestamps| {
        recorder.reset();
        // The thread's next span makes the log one of what comes after.
        recorder.end_brick(recorder.begin_brick(1), Work::default());
        assert!(timestamps.end().is_none());
    });
    assert_eq!(reset, (1, 0));
    let off = of_two_timestamps(2, |recorder, timestamps| {
        recorder.set_active(false);
        assert!(timestamps.end().is_none());
        recorder.set_active(true);
    });
    assert_eq!(off, (0, 2));
}

#[test]
fn only_a_pass_of_its_own_that_is_recorded_has_timestamps() {
    let look = |_: &mut Option<LoadReading>| Looked::No;
    let [own, other] = [(); 2].map(|()| Recorder::new(MockClock::default().clock(), 10));
    assert!(own.timestamps(None, &mut []).is_none(), "profiling was off when it began");
    own.set_active(true);
    other.set_active(true);
    let pass = other.begin_pass(Phase::Decode, look);
    assert!(own.timestamps(pass.as_ref(), &mut []).is_none(), "it is another's");
    own.end_brick(own.begin_brick(1), Work::default());
    assert!(own.timestamps(pass.as_ref(), &mut []).is_none(), "though there is a log of its own");
    other.set_active(false);
    assert!(other.timestamps(pass.as_ref(), &mut []).is_none(), "it is off");
    other.set_active(true);
    assert!(other.timestamps(pass.as_ref(), &mut []).is_some());
    assert!(other.timestamps(pass.as_ref(), &mut []).is_none(), "it has had them");
}

#[test]
fn the_short_way_is_open_whenever_it_may_be() {
    let Ok(clock) = Clock::counter() else {
        eprintln!("skipped: no counter here");
        return;
    };
    let recorder = Recorder::new(clock, 10);
    let is_short = || {
        // The first span of a thread makes its log.
        recorder.end_brick(recorder.begin_brick(1), Work::default());
        recorder.near_log(thread::here(), recorder.state.load(Relaxed)).is_some()
    };
    assert!(!is_short(), "it is off");
    recorder.set_active(true);
    assert!(is_short());
    recorder.reset();
    assert!(is_short(), "a reset closes it");
    recorder.set_active(false);
    assert!(!is_short(), "it is off again");
    recorder.set_active(true);
    assert!(is_short());
}

#[test]
fn passes_look_at_others_when_a_look_is_due() {
    let hand = MockClock::default();
    let recorder = Recorder::new(hand.clock(), 10);
    recorder.set_active(true);
    let looks = std::cell::Cell::new(0);
    let look = |since: &mut Option<LoadReading>| {
        looks.set(looks.get() + 1);
        since.insert(LoadReading::default()).lasts_ns = 100;
        Looked::No
    };
    let looks_in = |nanos| {
        let pass = recorder.begin_pass(Phase::Decode, look).expect("it is on");
        hand.advance(nanos);
        recorder.end_pass(pass, Phase::Decode, 1, 2, look);
        looks.take()
    };
    assert_eq!(looks_in(99), 1, "the first begins with one");
    assert_eq!([looks_in(0), looks_in(1)], [0, 1], "after 99 ns it isn't due, after 100 it is");
    hand.advance(49_999);
    assert_eq!(looks_in(0), 1, "a short pause belongs to the pass after it");
    hand.advance(50_000);
    assert_eq!(looks_in(99), 1, "after a pause it is due at the begin");
    assert_eq!(looks_in(1), 1, "and at the end, once it is due again");
    looks_in(1_600_000);
    hand.advance(99_999);
    assert_eq!(looks_in(1), 1, "what is short beside the pass before is no pause");
    looks_in(1_600_000);
    hand.advance(100_000);
    assert_eq!(looks_in(100), 2, "and what is longer is one");
    recorder.reset();
    assert_eq!(looks_in(0), 1, "nothing is known of before");
    recorder.look(|since: &mut _| {
        *since = None;
        Looked::No
    });
    assert_eq!(looks_in(0), 1, "somebody has looked last, and it begins anew");
}
