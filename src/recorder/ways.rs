//! The short ways and the careful ones do the same: whatever is called in whatever order, they write
//! the same rows.

use proptest::prelude::*;

use super::row::Record;
use super::{NameIdx, OFF, Open, OpenPass, Recorder};
use crate::brick::{Phase, Work};
use crate::clock::{Clock, MockClock};
use crate::machine::LoadReading;
use crate::recorder::Looked;

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
    NextKernel(usize),
    Forget(usize),
    BeginPass,
    EndPass,
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
        3 => which().prop_map(Step::NextKernel),
        1 => which().prop_map(Step::Forget),
        2 => Just(Step::BeginPass),
        2 => Just(Step::EndPass),
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
            self.recorder.plain.store(OFF, super::Relaxed);
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
            Step::NextKernel(which) => {
                if let Some((brick, kernel)) = self.take(which) {
                    self.open.push((brick, self.recorder.next_detail(kernel, work, 5)));
                }
            }
            Step::Forget(which) => drop(self.take(which)),
            Step::BeginPass => {
                if let Some(pass) = recorder.begin_pass(look) {
                    self.pass = Some(pass);
                }
            }
            Step::EndPass => {
                if let Some(pass) = self.pass.take() {
                    recorder.end_pass(pass, Phase::Decode, 1, 2, look);
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

    fn records(&self) -> Vec<Record> {
        let mut all = Vec::new();
        self.recorder.collect(|mut log| {
            all.extend(log.lanes().into_iter().flat_map(|lane| lane.records));
        });
        all
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 512 }))]

    #[test]
    fn both_ways_write_the_same_rows(
        steps in prop::collection::vec(step(), 1..120),
        capacity in prop_oneof![Just(0_usize), Just(3), Just(1000)],
    ) {
        let mut sides = [Side::new(false, capacity), Side::new(true, capacity)];
        for (at, &step) in steps.iter().enumerate() {
            let work = Work { elements: at as u64, flops: 2 * at as u64, bytes: 3 };
            sides.iter_mut().for_each(|side| side.run(step, work));
            let [short, careful] = &sides;
            prop_assert_eq!(short.open.len(), careful.open.len());
        }
        let [short, careful] = &sides;
        prop_assert_eq!(short.records(), careful.records());
    }
}

/// What happens in a pass whose bricks come one after the other.
#[derive(Debug, Clone, Copy)]
enum InPassStep {
    Begin(NameIdx),
    Next(NameIdx),
    End,
    EndSeveral,
    /// A brick that is timed otherwise: it may lie inside another, around it, or overlap it.
    BeginOther,
    EndOther,
    /// Another pass: none, if one is open.
    BeginPass,
    Layer(u16),
    Switch(bool),
    Reset,
    Turn(u64),
}

fn step_in_pass() -> impl Strategy<Value = InPassStep> {
    prop_oneof![
        6 => (0..20_u16).prop_map(InPassStep::Begin),
        3 => (20..30_u16).prop_map(InPassStep::Next),
        6 => Just(InPassStep::End),
        3 => Just(InPassStep::EndSeveral),
        2 => Just(InPassStep::BeginOther),
        2 => Just(InPassStep::EndOther),
        1 => Just(InPassStep::BeginPass),
        1 => (0..3_u16).prop_map(InPassStep::Layer),
        2 => prop::bool::weighted(0.7).prop_map(InPassStep::Switch),
        1 => Just(InPassStep::Reset),
        9 => (0..50_u64).prop_map(InPassStep::Turn),
    ]
}

/// By what the bricks of a pass are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Timers,
    InPass,
    /// With the short ways closed.
    InPassWithCare,
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

/// Runs passes of such steps.
fn run_passes(by: By, capacity: usize, passes: &[Vec<InPassStep>]) -> Left {
    let hand = MockClock::default();
    let recorder = Recorder::new(hand.clock(), capacity);
    recorder.set_active(true);
    let look = |_: &mut Option<LoadReading>| Looked::No;
    let mut at = 0;
    for steps in passes {
        let pass = recorder.begin_pass(look);
        let bricks = recorder.in_pass(pass.as_ref());
        // Of timers: the brick, its last kernel, how many it had, and the work of the last.
        let mut open: Option<(Open, Open, NameIdx, usize, Work)> = None;
        let (mut others, mut inner) = (Vec::new(), Vec::new());
        for &step in steps {
            at += 1;
            let work = Work { elements: at, flops: 2 * at, bytes: 3 };
            let whole = Work { bytes: 4, ..work };
            if by == By::InPassWithCare {
                recorder.plain.store(OFF, super::Relaxed);
            }
            match step {
                InPassStep::Begin(name) if by == By::Timers => {
                    let brick = recorder.begin_both(name);
                    let kernel = if brick.is_off() { Open::OFF } else { brick.inner(name + 1) };
                    open = Some((brick, kernel, name + 1, 1, work));
                }
                InPassStep::Begin(name) => bricks.begin(name, name + 1, work),
                InPassStep::Next(name) if by == By::Timers => {
                    if let Some((brick, kernel, _, n, ended)) = open {
                        let kernel = recorder.next_detail(kernel, ended, name);
                        open = Some((brick, kernel, name, n + 1, work));
                    }
                }
                InPassStep::Next(name) => bricks.next(name, work),
                InPassStep::End if by == By::Timers => match open.take() {
                    Some((brick, _, name, 1, work)) => recorder.end_both(brick, name, work),
                    Some((brick, kernel, _, _, work)) => {
                        recorder.end_last(brick, kernel, work, work);
                    }
                    None => {}
                },
                InPassStep::End => bricks.end(),
                InPassStep::EndSeveral if by == By::Timers => {
                    if let Some((brick, kernel, _, _, work)) = open.take() {
                        recorder.end_last(brick, kernel, work, whole);
                    }
                }
                InPassStep::EndSeveral => bricks.end_several(whole),
                InPassStep::BeginOther => others.push(recorder.begin_brick(40)),
                InPassStep::EndOther => {
                    if let Some(other) = others.pop() {
                        recorder.end_brick(other, work);
                    }
                }
                InPassStep::BeginPass => inner.extend(recorder.begin_pass(look)),
                InPassStep::Layer(layer) => drop(recorder.begin_layer(layer)),
                InPassStep::Switch(on) => recorder.set_active(on),
                InPassStep::Reset => recorder.reset(),
                InPassStep::Turn(nanos) => hand.advance(nanos),
            }
        }
        for pass in pass.into_iter().chain(inner) {
            recorder.end_pass(pass, Phase::Decode, 1, 2, look);
        }
    }
    left_by(&recorder)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 512 }))]

    #[test]
    fn bricks_of_a_pass_are_recorded_as_by_timers(
        passes in prop::collection::vec(prop::collection::vec(step_in_pass(), 1..60), 1..4),
        capacity in prop_oneof![Just(0_usize), Just(3), Just(1000)],
    ) {
        let timers = run_passes(By::Timers, capacity, &passes);
        prop_assert_eq!(&run_passes(By::InPass, capacity, &passes), &timers);
        prop_assert_eq!(&run_passes(By::InPassWithCare, capacity, &passes), &timers);
    }
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
    Work { elements: name.into(), flops: 2, bytes: 3 }
}

fn time_at_once(recorder: &Recorder, bricks: &super::InPass<'_>, hand: &MockClock, part: &Part) {
    match *part {
        Part::Turn(nanos) => hand.advance(nanos),
        Part::Brick(name) => {
            let open = recorder.begin_brick(name);
            hand.advance(1);
            recorder.end_brick(open, work_of(name));
        }
        Part::BrickKernel(name, nanos) => {
            bricks.begin(name, name + 1, work_of(name));
            hand.advance(nanos);
            bricks.end();
        }
        Part::Kernels(name, ref kernels) => {
            for (i, (&nanos, kernel)) in kernels.iter().zip(30..).enumerate() {
                match i {
                    0 => bricks.begin(name, kernel, work_of(kernel)),
                    _ => bricks.next(kernel, work_of(kernel)),
                }
                hand.advance(nanos);
            }
            bricks.end_several(work_of(name));
        }
        Part::Layer(layer, ref parts) => {
            let (open, before) = recorder.begin_layer(layer);
            parts.iter().for_each(|part| time_at_once(recorder, bricks, hand, part));
            recorder.end_layer(open, before);
        }
    }
}

fn read(readings: &super::Readings<'_>, hand: &MockClock, part: &Part) {
    if let Part::Turn(nanos) = part {
        return hand.advance(*nanos);
    }
    readings.take();
    match part {
        Part::Turn(_) => {}
        Part::Brick(_) => hand.advance(1),
        Part::BrickKernel(_, nanos) => hand.advance(*nanos),
        Part::Kernels(_, kernels) => {
            for (i, &nanos) in kernels.iter().enumerate() {
                if i > 0 {
                    readings.take();
                }
                hand.advance(nanos);
            }
        }
        Part::Layer(_, parts) => parts.iter().for_each(|part| read(readings, hand, part)),
    }
    readings.take();
}

fn tell(told: &mut super::Told<'_>, part: &Part) {
    match *part {
        Part::Turn(_) => {}
        Part::Brick(name) => told.brick(name, work_of(name)),
        Part::BrickKernel(name, _) => told.brick_kernel(name, name + 1, work_of(name)),
        Part::Kernels(name, ref kernels) => {
            let mut brick = told.begin_kernels(name, 30, work_of(30));
            for kernel in (30..).take(kernels.len()).skip(1) {
                brick = told.next_kernel(brick.expect("a reading"), kernel, work_of(kernel));
            }
            told.end_kernels(&brick.expect("a reading"), work_of(name));
        }
        Part::Layer(layer, ref parts) => {
            let layer = told.begin_layer(layer).expect("a reading");
            parts.iter().for_each(|part| tell(told, part));
            told.end_layer(&layer);
        }
    }
}

/// What passes of such parts leave.
fn run_parts(late: bool, capacity: usize, passes: &[Vec<Part>]) -> Left {
    let hand = MockClock::default();
    let recorder = Recorder::new(hand.clock(), capacity);
    recorder.set_active(true);
    let look = |_: &mut Option<LoadReading>| Looked::No;
    let mut room = [0; 2000];
    for parts in passes {
        let pass = recorder.begin_pass(look);
        if late {
            let readings = recorder.readings(pass.as_ref(), &mut room).expect("it is on");
            parts.iter().for_each(|part| read(&readings, &hand, part));
            let mut told = readings.tell().expect("nothing else is recorded");
            // It isn't the pass's any more.
            hand.advance(1000);
            parts.iter().for_each(|part| tell(&mut told, part));
        } else {
            let bricks = recorder.in_pass(pass.as_ref());
            parts.iter().for_each(|part| time_at_once(&recorder, &bricks, &hand, part));
        }
        recorder.end_pass(pass.expect("it is on"), Phase::Decode, 1, 2, look);
        if !late {
            hand.advance(1000);
        }
    }
    left_by(&recorder)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 256 }))]

    #[test]
    fn what_is_told_afterwards_is_recorded_as_what_is_told_at_once(
        passes in prop::collection::vec(prop::collection::vec(part(), 0..12), 1..4),
        capacity in prop_oneof![Just(0_usize), Just(3), Just(1000)],
    ) {
        prop_assert_eq!(run_parts(true, capacity, &passes), run_parts(false, capacity, &passes));
    }
}

/// In a pass of two readings: what is done with them, then how many spans ended, and how many did not.
fn of_two_readings(room: usize, then: impl FnOnce(&Recorder, super::Readings<'_>)) -> (u64, u64) {
    let look = |_: &mut Option<LoadReading>| Looked::No;
    let hand = MockClock::default();
    let recorder = Recorder::new(hand.clock(), 10);
    recorder.set_active(true);
    let pass = recorder.begin_pass(look);
    let mut room = vec![0; room];
    let readings = recorder.readings(pass.as_ref(), &mut room).expect("it is on");
    readings.take();
    hand.advance(5);
    readings.take();
    then(&recorder, readings);
    recorder.end_pass(pass.expect("it is on"), Phase::Decode, 1, 2, look);
    let (mut ended, mut begun) = (0, 0);
    recorder.collect(|log| {
        ended += log.fold().ended();
        begun += log.begun();
    });
    (ended, begun - ended)
}

#[test]
fn readings_of_which_nobody_says_what_they_were_of_are_counted() {
    let told = of_two_readings(2, |_, readings| {
        readings.tell().expect("all is as it should be").brick(1, Work::default());
    });
    assert_eq!(told, (1, 0));
    assert_eq!(of_two_readings(2, |_, readings| drop(readings)), (0, 2));
    assert_eq!(of_two_readings(2, |_, readings| drop(readings.tell())), (0, 2));
    let no_room = of_two_readings(1, |_, readings| assert!(readings.tell().is_none()));
    assert_eq!(no_room, (0, 2));
    let overlapped = of_two_readings(2, |recorder, readings| {
        recorder.end_brick(recorder.begin_brick(1), Work::default());
        assert!(readings.tell().is_none(), "it can't be told whether they nest");
    });
    assert_eq!(overlapped, (1, 2));
}

#[test]
fn what_is_told_beyond_the_last_reading_is_counted() {
    let more = of_two_readings(2, |_, readings| {
        let mut told = readings.tell().expect("all is as it should be");
        told.brick(1, Work::default());
        told.brick(2, Work::default());
        assert!(told.begin_kernels(3, 4, Work::default()).is_none());
    });
    assert_eq!(more, (1, 3), "a brick; a brick with its kernel");
}

#[test]
fn what_is_recorded_while_readings_are_told_ends_that() {
    let brick = |recorder: &Recorder| recorder.end_brick(recorder.begin_brick(1), Work::default());
    let then = of_two_readings(2, |recorder, readings| {
        let mut told = readings.tell().expect("all is as it should be");
        brick(recorder);
        told.brick(1, Work::default());
    });
    assert_eq!(then, (1, 3), "the one that is told of, and two readings");
    let layer = of_two_readings(2, |recorder, readings| {
        let (open, before) = recorder.begin_layer(1);
        recorder.end_layer(open, before);
        assert!(readings.tell().is_none(), "it can't be told what is in the layer");
    });
    assert_eq!(layer.1, 2);
}

#[test]
fn a_reset_forgets_readings_and_turning_off_has_them_counted() {
    let reset = of_two_readings(2, |recorder, readings| {
        recorder.reset();
        // The thread's next span makes the log one of what comes after.
        recorder.end_brick(recorder.begin_brick(1), Work::default());
        assert!(readings.tell().is_none());
    });
    assert_eq!(reset, (1, 0));
    let off = of_two_readings(2, |recorder, readings| {
        recorder.set_active(false);
        assert!(readings.tell().is_none());
        recorder.set_active(true);
    });
    assert_eq!(off, (0, 2));
}

#[test]
fn only_a_pass_of_its_own_that_is_recorded_has_readings() {
    let look = |_: &mut Option<LoadReading>| Looked::No;
    let [own, other] = [(); 2].map(|()| Recorder::new(MockClock::default().clock(), 10));
    assert!(own.readings(None, &mut []).is_none(), "profiling was off when it began");
    own.set_active(true);
    other.set_active(true);
    let pass = other.begin_pass(look);
    assert!(own.readings(pass.as_ref(), &mut []).is_none(), "it is another's");
    other.set_active(false);
    assert!(other.readings(pass.as_ref(), &mut []).is_none(), "it is off");
    other.set_active(true);
    assert!(other.readings(pass.as_ref(), &mut []).is_some());
    assert!(other.readings(pass.as_ref(), &mut []).is_none(), "it has had them");
}

#[test]
fn bricks_are_not_recorded_in_a_pass_of_somebody_else() {
    let look = |_: &mut Option<LoadReading>| Looked::No;
    let [own, other] = [(); 2].map(|()| {
        let recorder = Recorder::new(MockClock::default().clock(), 10);
        recorder.set_active(true);
        recorder
    });
    let pass = other.begin_pass(look).expect("it is on");
    let bricks = own.in_pass(Some(&pass));
    bricks.begin(1, 2, Work::default());
    bricks.end();
    let spans = |recorder: &Recorder| {
        let mut spans = 0;
        recorder.collect(|log| spans += log.fold().ended());
        spans
    };
    assert_eq!((spans(&own), spans(&other)), (2, 0));
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
        recorder.plain_log().is_some()
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
