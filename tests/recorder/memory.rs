//! The memory that recording takes: little, however many spans there are, and in the long run no more.

// A global allocator that counts can't be had without it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use brickscope::{BrickId, BrickProfiler, KernelId, MockClock, Phase, Work};
use brickscope_formats::export::{chrome, csv};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Without a destructor and with a constant to begin with, so that to look at it allocates
    // nothing.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn grown(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// `realloc` and `alloc_zeroed` are the default ones, which call these two: so what is old and what
// is new count together while one is copied to the other.
//
// SAFETY: both functions pass their arguments on to the system's allocator, which keeps the
// contract; the counting besides allocates nothing and can't unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's promises are the ones that it asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `pointer` came from `alloc` above, hence from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test at a time, since live bytes are counted for all threads.
static ALONE: Mutex<()> = Mutex::new(());

const KERNELS: usize = 20;
const SPANS_PER_PASS: u64 = if cfg!(miri) { 20 } else { 500 };

fn kernels(profiler: &BrickProfiler) -> Vec<KernelId> {
    (0..KERNELS).map(|i| profiler.kernel(&format!("kernel {i}"), None)).collect()
}

/// Records `spans` spans on this thread, half of them kernels in bricks. `work` is called in each brick, with its
/// index.
fn record(profiler: &BrickProfiler, kernels: &[KernelId], spans: u64, work: impl Fn(u64)) {
    for i in 0..spans / 2 {
        // In passes of both phases in turn, and outside of them.
        let pass = i / SPANS_PER_PASS % 3;
        let phase = [None, Some(Phase::Prefill), Some(Phase::Decode)][pass as usize];
        if i % SPANS_PER_PASS == 0
            && let Some(phase) = phase
        {
            let timer = profiler.begin_pass(phase);
            record_a_pass(profiler, kernels, i, &work);
            profiler.end_pass(timer, 1, i);
        } else if i % SPANS_PER_PASS == 0 {
            record_a_pass(profiler, kernels, i, &work);
        }
    }
}

fn record_a_pass(profiler: &BrickProfiler, kernels: &[KernelId], first: u64, work: &impl Fn(u64)) {
    for i in first..first + SPANS_PER_PASS {
        let brick = profiler.start_brick(BrickId::ALL[i as usize % BrickId::COUNT]);
        let kernel = profiler.start_kernel(kernels[i as usize % KERNELS]);
        work(i);
        profiler.stop_kernel(kernel, Work::elements(1));
        profiler.stop_brick(brick, 1);
    }
}

/// A number that looks random: the finaliser of splitmix64.
fn scattered(i: u64) -> u64 {
    let i = (i ^ (i >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let i = (i ^ (i >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    i ^ (i >> 31)
}

/// The most bytes that were live, beyond those at the beginning, while two threads recorded this many
/// spans; and the same including the profile that was then taken.
fn peaks(
    make: impl FnOnce() -> BrickProfiler,
    spans: u64,
    work: impl Fn(u64) + Sync,
) -> (usize, usize) {
    const THREADS: u64 = 2;
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let profiler = make().with_log_capacity(0);
    profiler.enable();
    let kernels = kernels(&profiler);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| record(&profiler, &kernels, spans / THREADS, &work));
        }
    });
    let recording = PEAK.load(Relaxed) - before;
    let profile = profiler.profile();
    assert_eq!(profile.overhead.spans, spans);
    assert_eq!(profile.check(), Ok(()));
    (recording, PEAK.load(Relaxed) - before)
}

#[test]
#[cfg_attr(miri, ignore = "to fill wide histograms takes Miri minutes, and shows it nothing new")]
fn sums_alone_take_at_most_8_mib_however_many_spans_there_are() {
    const SPANS: u64 = 2_000_000;
    const MOST: usize = 8 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (recording, with_profile) = peaks(BrickProfiler::new, SPANS, |i| {
        for _ in 0..scattered(i) % 64 {
            std::hint::spin_loop();
        }
    });
    println!("a real clock: at most {recording} bytes, with the profile {with_profile}");
    assert!(with_profile <= MOST, "{recording}, {with_profile}");
    // Each brick and kernel in each phase with durations from 1 ns to 17 s, so that their histograms
    // are as wide as they get. The profile, which has a copy of them, is the caller's.
    let hand = MockClock::default();
    let work = |i| hand.advance(scattered(i) >> (30 + scattered(!i) % 34));
    let (recording, with_profile) = peaks(|| BrickProfiler::with_clock(hand.clock()), SPANS, work);
    println!("durations far apart: at most {recording} bytes, with the profile {with_profile}");
    assert!(recording <= MOST, "{recording}");
}

#[test]
fn once_every_name_was_seen_recording_allocates_nothing() {
    // The list of passes doubles when it is full: the 267 of the warm-up leave it room for 512,
    // and 67 come after. Under Miri it is 13, 16 and 3.
    const WARM_UP: u64 = if cfg!(miri) { 800 } else { 400_000 };
    const SPANS: u64 = WARM_UP / 4;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for kept in [0, 100] {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock()).with_log_capacity(kept);
        profiler.enable();
        let kernels = kernels(&profiler);
        record(&profiler, &kernels, WARM_UP, |_| hand.advance(100));
        let before = ALLOCATIONS.get();
        record(&profiler, &kernels, SPANS, |_| hand.advance(100));
        assert_eq!(ALLOCATIONS.get() - before, 0, "with room for {kept} spans");
        assert_eq!(profiler.profile().overhead.spans, WARM_UP + SPANS);
        assert!(ALLOCATIONS.get() > before, "the allocator counts");
    }
}

#[test]
#[cfg_attr(miri, ignore = "it takes Miri minutes, and shows it nothing new")]
fn an_export_takes_no_more_memory_for_more_spans() {
    const MOST: usize = 256 << 10;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock()).with_log_capacity(1 << 20);
    profiler.enable();
    let kernels = kernels(&profiler);
    record(&profiler, &kernels, 300_000, |_| hand.advance(100));
    let profile = profiler.profile();
    assert_eq!(profile.spans.len(), 300_000);
    type Write<'p> = Box<dyn FnMut() -> std::io::Result<()> + 'p>;
    let sink = std::io::sink;
    let exports: Vec<(&str, Write<'_>)> = vec![
        ("chrome", Box::new(|| chrome::write(&profile, &mut sink()))),
        ("csv", Box::new(|| csv::spans(&profile, &mut sink(), &mut |_| {}))),
        (
            "perfetto",
            Box::new(|| brickscope_formats::export::perfetto::write(&profile, &mut sink())),
        ),
    ];
    for (form, mut write) in exports {
        let before = LIVE.load(Relaxed);
        PEAK.store(before, Relaxed);
        write().expect("nothing can go wrong there");
        let peak = PEAK.load(Relaxed) - before;
        println!("{form}: at most {peak} bytes");
        assert!(peak <= MOST, "{form}: {peak}");
    }
}
