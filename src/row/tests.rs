//! What is read back from rows.

use brickscope_profile::{CounterReading, Disturbance};

use super::*;

const SPAN: Span = Span {
    kind: SpanKind::Layer,
    start: 1,
    duration: 2,
    exclusive: 3,
    work: Work { elements: 4, flops: 5, bytes: 6, data: Data::Weights(2) },
    name: 9,
    layer: 10,
    flags: flag::MOVED | flag::OVERLAPPING,
    source: Source::HostOrder,
};

const PLAIN: Span = Span { kind: SpanKind::Brick, flags: 0, source: Source::Host, ..SPAN };

#[test]
fn what_bytes_are_is_kept_where_it_fits_and_amounts_always() {
    let work = |elements, bytes, data| Work { elements, flops: 7, bytes, data };
    let most = u64::from(u32::MAX);
    for kept in [
        work(u64::MAX, 5, Data::Unstated),
        work(u64::MAX, 5, Data::Activations),
        work(most, 1 << 40, Data::Weights((1 << 40) - most)),
        work(0, 0, Data::Weights(0)),
        work(1, 9, Data::Kv(9)),
    ] {
        assert_eq!(unpacked_work(packed_work(kept)), kept);
    }
    // Too many elements, too many activations, and less than nothing of them.
    for lost in [
        work(most + 1, 9, Data::Weights(8)),
        work(1, 1 << 40, Data::Kv(1)),
        work(1, 8, Data::Weights(9)),
    ] {
        let unstated = Work { data: Data::Unstated, ..lost };
        assert_eq!(unpacked_work(packed_work(lost)), unstated);
    }
    // More bytes than a row has room for: 4.6 exabytes.
    let all = work(1, u64::MAX, Data::Unstated);
    assert_eq!(unpacked_work(packed_work(all)), Work { bytes: MOST_BYTES, ..all });
}

fn record(span: Span) -> Record {
    Record { pass: 7, order: 8, event: Event::Span(span) }
}

/// An event of each kind that is neither a brick nor a kernel.
fn other_events() -> Vec<Event> {
    let mark = Mark { at: 11, number: 12 };
    let figures = Figures::new([Some(1), None, Some(0), Some(u64::MAX), Some(6), None]);
    let reading = CounterReading {
        cycles: Some(5),
        branch_misses: Some(0),
        wanted_ns: 3,
        counted_ns: 2,
        ..CounterReading::default()
    };
    let ends = Phase::ALL.map(|phase| {
        Event::Pass(PassEnd { phase, start: 1, wall: 2, covered: 3, tokens: 4, position: 5 })
    });
    let work = TileWork { tiles: 5, elements: 6, flops: 7 };
    let others = [
        Event::Span(SPAN),
        Event::NestedPass,
        Event::Abandoned,
        Event::Discarded,
        Event::Tile(Tile { level: 2, start: 3, duration: 4, work }),
        Event::Product(Product { start: 3, longest: 4, offered: 5 }),
        Event::Load(figures),
        Event::LoadUnknown,
        Event::LoadAtMost(figures),
        Event::Counters(Counted::new(9, &reading)),
        Event::HandOff(mark),
        Event::TakeOver(mark),
    ];
    others.into_iter().chain(ends).collect()
}

#[test]
fn a_record_is_read_back_as_it_was_written() {
    let row = Row::default();
    let spans = [SpanKind::Brick, SpanKind::Kernel].map(|kind| Event::Span(Span { kind, ..SPAN }));
    for event in other_events().into_iter().chain(spans) {
        let record = Record { event, ..record(SPAN) };
        row.store(&record);
        assert_eq!(row.records().collect::<Vec<_>>(), [record]);
    }
}

#[test]
fn every_kind_of_a_row_is_read_back() {
    for (kind, bits) in Kind::ALL.into_iter().zip(0..) {
        assert_eq!(kind as u8, bits);
    }
}

#[test]
fn a_brick_and_its_kernel_are_read_back_as_two() {
    let brick = record(PLAIN);
    let kernel = Span { kind: SpanKind::Kernel, exclusive: 0, name: 65_000, ..PLAIN };
    let kernel = Record { order: brick.order + 1, ..record(kernel) };
    let row = Row::default();
    let home = u64::from(brick.pass) | 99 << 32;
    let what = u64::from(brick.order) << 32 | u64::from(PLAIN.name);
    let times = [PLAIN.start, PLAIN.duration, PLAIN.exclusive];
    let layer = u32::from(PLAIN.layer) << 16;
    row.store_brick_kernel(times, PLAIN.work, [home, what], layer, 65_000);
    assert!(row.is_brick_kernel() && !row.is_outside());
    assert_eq!([row.load_plain(), row.load_plain_outside()], [None; 2]);
    assert_eq!(row.records().collect::<Vec<_>>(), [kernel, brick]);
    row.store_brick_kernel(times, PLAIN.work, [0, what], layer, 0);
    assert!(row.is_brick_kernel() && row.is_outside());
    assert_eq!([row.load_plain(), row.load_plain_outside()], [None; 2]);
    row.store_brick(times, PLAIN.work, [home, what], layer);
    assert!(!row.is_brick_kernel());
    assert_eq!(row.records().collect::<Vec<_>>(), [brick]);
    row.store_kernel(times, PLAIN.work, [home, what], layer);
    let kernel = record(Span { kind: SpanKind::Kernel, ..PLAIN });
    assert_eq!(row.records().collect::<Vec<_>>(), [kernel]);
}

#[test]
fn what_stands_before_timestamps_is_read_back() {
    let block = Block {
        template: u32::MAX,
        timestamps: 17,
        position: 1 << 40,
        pass: 7,
        order: u32::MAX - 1,
        layer: NONE,
    };
    let row = Row::default();
    row.store_block(&block);
    assert!(row.is_block() && !row.is_brick_kernel());
    assert!(row.load_plain().is_none() && !row.ends_pass());
    assert_eq!(row.load_block(), block);
    row.store_block(&Block { pass: 0, ..block });
    assert_eq!([row.load_plain(), row.load_plain_outside()], [None; 2]);
    assert_eq!([0, 1, 8, 9].map(Block::rows), [0, 1, 1, 2]);
    row.store_timestamps([10, 11, 12, 13, 14, 15, 16, 17]);
    assert_eq!([0, 7, 8, 18].map(|number| row.timestamp(number)), [10, 17, 10, 12]);
}

#[test]
fn only_bricks_and_kernels_with_nothing_else_to_tell_are_plain() {
    let row = Row::default();
    let load = |record: Record| {
        row.store(&record);
        [row.load_plain(), row.load_plain_outside()]
    };
    for span in [PLAIN, Span { kind: SpanKind::Kernel, ..PLAIN }] {
        assert_eq!(load(record(span)), [Some(span.timing(7)), None]);
        let outside = Record { pass: 0, ..record(span) };
        assert_eq!(load(outside), [Some(span.timing(0)); 2]);
    }
    for pass in [0, 7] {
        let load = |event| load(Record { pass, order: 8, event });
        assert_eq!(load(Event::Span(Span { flags: flag::MOVED, ..PLAIN })), [None; 2]);
        assert_eq!(load(Event::Span(Span { source: Source::HostOrder, ..PLAIN })), [None; 2]);
        for event in other_events() {
            assert_eq!(load(event), [None; 2]);
        }
    }
}

#[test]
fn only_the_end_of_a_pass_and_its_abandonment_end_it() {
    let row = Row::default();
    for event in other_events() {
        let ends = matches!(event, Event::Pass(_) | Event::Abandoned | Event::Discarded);
        row.store(&Record { pass: 7, order: 0, event });
        assert_eq!(row.ends_pass(), ends, "{event:?}");
        row.store(&Record { pass: 0, order: 0, event });
        assert!(!row.ends_pass());
    }
}

#[test]
fn figures_that_are_not_known_stay_unknown() {
    let waits = Disturbance {
        run_queue_wait_ns: Some(0),
        throttled_ns: Some(7),
        page_faults: Some(u32::MAX.into()),
        ..Disturbance::default()
    };
    let switches = Disturbance {
        involuntary_switches: Some(5),
        disk_faults: Some(0),
        ..Disturbance::default()
    };
    for disturbance in [waits, switches, Disturbance::default()] {
        assert_eq!(Figures::from(&disturbance).disturbance(), disturbance);
    }
    let reading = CounterReading {
        cycles: Some(5),
        branch_misses: Some(0),
        wanted_ns: 3,
        counted_ns: 2,
        ..CounterReading::default()
    };
    let row = Row::default();
    row.store(&Record { pass: 1, order: 2, event: Event::Counters(Counted::new(3, &reading)) });
    let Some(Record { event: Event::Counters(counted), .. }) = row.load() else {
        panic!("{row:?}");
    };
    assert_eq!((counted.brick, counted.reading()), (3, reading));
}
