//! The memory that reading takes: what a file holds, and little besides, however much of a kind there is.

// A global allocator that counts can't be had without it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use brickscope::{BrickProfiler, MockClock, Phase};
use brickscope_analysis::compare::{Process, UnusableProfile};
use brickscope_analysis::stacks::{Level, Stacks};
use brickscope_analysis::typical::Typical;
use brickscope_formats::export::{folded, speedscope};
use brickscope_formats::import::{self, Format, Options, WeightUnit};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all functions pass their arguments on to the system's allocator, which keeps the contract; the counting besides
// allocates nothing and can't unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: the caller's promises are the ones that it asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `pointer` came from `alloc` above, hence from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // As the system does with what is large: it moves pages instead of copying them.
        let live = LIVE.fetch_add(size, Relaxed) + size;
        PEAK.fetch_max(live - layout.size(), Relaxed);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promises are the ones that it asks for.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test at a time, since live bytes are counted for all threads.
static ALONE: Mutex<()> = Mutex::new(());

/// The most bytes at once while this ran, beyond those before it.
fn peak<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = run();
    (result, PEAK.load(Relaxed) - before)
}

const STACKS: usize = 65_536;
const FRAMES: usize = 20;

/// Stacks of frames of two thousand names, no two alike, and hardly two with the same beginning.
fn text() -> String {
    let mut state = 1_u64;
    let mut lines = String::new();
    for _ in 0..STACKS {
        lines += "main";
        for _ in 1..FRAMES {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            lines += &format!(";function {}", (state >> 33) % 2_000);
        }
        lines += " 3\n";
    }
    lines
}

#[test]
fn a_stack_takes_little_more_than_its_frames_to_read_to_sum_up_and_to_write() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = text();
    let path = Path::new("many.folded");
    let (stacks, read): (Stacks, _) = peak(|| folded::read(&text, path).expect("stacks"));
    assert_eq!(stacks.total(), 3 * STACKS as u64);
    let to_sum = peak(|| (stacks.by_class(), stacks.inclusive(Level::Function))).1;
    let to_fold = peak(|| folded::write(&stacks, &mut io::sink()).expect("written")).1;
    let to_speedscope =
        peak(|| speedscope::write(&stacks, "many", &mut io::sink()).expect("written")).1;
    let to_pprof = peak(|| {
        brickscope_formats::export::pprof::write(&stacks, &mut io::sink()).expect("written")
    })
    .1;
    let options = Options { unit: Some(WeightUnit::Samples), ..Options::default() };
    let to_import = peak(|| import::read(&text, path, Format::Folded, &options).expect("stacks")).1;
    // Twenty frames are 80 bytes.
    for (what, took, most) in [
        ("read", read, 220),
        ("sum up", to_sum, 20),
        ("write folded", to_fold, 20),
        ("write for speedscope", to_speedscope, 40),
        ("write for pprof", to_pprof, 40),
        ("import", to_import, 20),
    ] {
        let each = took / STACKS;
        assert!(each <= most, "to {what} takes {each} bytes for each stack, of at most {most}");
    }
}

/// Each pass has one brick of many: a table of all bricks by all passes would be empty but for these.
#[test]
fn many_passes_and_many_bricks_take_no_table_of_both() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Just too many for `compare`, in whose resampling each brick has a time in each pass.
    const BRICKS: usize = 4_000;
    const PASSES: usize = 17_000;
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for nth in 0..PASSES {
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start(&format!("brick {}", nth % BRICKS));
        hand.advance(100);
        profiler.stop(timer, 1);
        profiler.end_pass(pass, 1, nth as u64);
    }
    let profile = profiler.profile();
    assert_eq!(profile.spans.len(), PASSES, "{:?}", profile.dropped);
    let (typical, took) = peak(|| Typical::of(&profile, Phase::Decode).expect("passes"));
    assert_eq!(typical.bricks.len(), BRICKS);
    let each = took / PASSES;
    assert!(each < 2_000, "{each} bytes for each pass");
    let (refused, took) = peak(|| Process::from_profile("many", &profile).map(drop));
    let many = UnusableProfile::TooManyTimes { bricks: BRICKS, passes: PASSES };
    assert_eq!(refused, Err(many));
    let each = took / PASSES;
    assert!(each < 2_000, "{each} bytes for each pass");
}
