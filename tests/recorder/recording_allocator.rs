//! An allocator that records each allocation, including the profiler's own: nothing deadlocks, and
//! what could not be recorded is counted.

#![allow(unsafe_code, reason = "an allocator can't be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use brickscope::{BrickId, BrickProfiler, PassTemplate, Phase, Work};

static PROFILER: OnceLock<BrickProfiler> = OnceLock::new();
static RECORDS: AtomicBool = AtomicBool::new(false);

struct Recording;

fn recorded<R>(run: impl FnOnce() -> R) -> R {
    let profiler = PROFILER.get().filter(|_| RECORDS.load(Relaxed));
    let timer = profiler.map(|profiler| (profiler, profiler.start_brick(BrickId::Embedding)));
    let result = run();
    if let Some((profiler, timer)) = timer {
        profiler.stop_brick(timer, 1);
    }
    result
}

// SAFETY: all it does is to pass calls on to the system's allocator.
unsafe impl GlobalAlloc for Recording {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what the caller promises is what the system's allocator asks for.
        recorded(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: likewise.
        recorded(|| unsafe { System.dealloc(pointer, layout) });
    }
}

#[global_allocator]
static ALLOCATOR: Recording = Recording;

/// Plays a pass of five bricks that is labelled afterwards. Returns whether it was.
fn label_a_pass(profiler: &BrickProfiler, template: &PassTemplate) -> bool {
    let mut room = [0; 10];
    let pass = profiler.begin_pass(Phase::Decode);
    let readings = profiler.timestamps_of(&pass, &mut room).expect("it is on");
    (0..template.timestamps()).for_each(|_| readings.take());
    let is_labelled = readings.end().is_some_and(|unlabelled| unlabelled.label(template, 0));
    profiler.end_pass(pass, 1, 0);
    is_labelled
}

/// It would never end if the profiler waited for itself.
#[test]
fn recording_inside_recording_never_waits_and_loses_nothing_uncounted() {
    let profiler = PROFILER.get_or_init(|| BrickProfiler::new().with_log_capacity(0));
    profiler.enable();
    RECORDS.store(true, Relaxed);
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    let allocate = || {
        let mut template = None;
        for i in 0..rounds {
            if i % 10 == 0 {
                let mut builder = PassTemplate::builder();
                (0..5).for_each(|_| builder.brick(BrickId::Sampling, Work::elements(i)));
                template = Some(builder.build());
            }
            let labelled = label_a_pass(profiler, template.as_ref().expect("it was built"));
            // The first time the log makes room for the template, in which the allocator may record.
            assert!(labelled || i % 10 == 0, "nothing else was recorded in the pass");
            std::hint::black_box(Box::new(i));
            if i % 50 == 0 {
                std::hint::black_box(profiler.profile());
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(allocate);
        allocate();
    });
    RECORDS.store(false, Relaxed);
    let profile = profiler.profile();
    let stats = profiler.brick_stats(BrickId::Embedding);
    assert!(stats.count > 4 * rounds, "{stats:?}");
    assert_eq!(profile.check(), Ok(()));
}
