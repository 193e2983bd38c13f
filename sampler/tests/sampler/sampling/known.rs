//! The expected samples of `known_split`.

use std::time::{Duration, Instant};

use brickscope_sampler::Recording;
use brickscope_testing::patience::first_to_judge;

use super::known_split;

/// The processes with workers of [`known_split::run`].
pub(crate) fn spinning(recording: &Recording) -> Vec<u32> {
    let workers = recording.threads.iter().filter(|thread| thread.name.starts_with("worker-"));
    let mut processes: Vec<_> = workers.map(|thread| thread.pid).collect();
    processes.dedup();
    processes
}

/// The number of a process's samples in the function that takes a quarter of the time, and in the one that takes three
/// quarters.
pub(crate) fn hits(recording: &Recording, pid: u32) -> [usize; 2] {
    // Each process maps the file at a different address.
    let offsets = known_split::places().map(|place| {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let mut lines = maps.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        let around = |fields: &Vec<&str>| {
            let (start, end) = fields[0].split_once('-').expect("addresses");
            (number(start)..number(end)).contains(&place)
        };
        let fields = lines.find(around).expect("the code is mapped");
        place - number(fields[0].split_once('-').expect("addresses").0) + number(fields[2])
    });
    let exe = std::env::current_exe().expect("a path");
    let process = recording.processes.iter().find(|process| process.pid == pid);
    let mappings = &process.expect("it has mapped code").mappings;
    let code = mappings.iter().filter(|mapping| mapping.file == exe);
    let code: Vec<_> = code.collect();
    let offset = |address| {
        let mapping = code.iter().find(|mapping| mapping.addresses.contains(&address))?;
        Some(address - mapping.addresses.start + mapping.file_offset)
    };
    let mut hits = [0; 2];
    for sample in recording.samples.iter().filter(|sample| sample.pid == pid) {
        let leaf = recording.addresses[sample.stack.start];
        let Some(leaf) = offset(leaf) else { continue };
        // More than the length of either function; if both are closer than that, the nearer one counts.
        let near = |&place: &u64| (0..512).contains(&(leaf.wrapping_sub(place)));
        let nearest = (0..2).filter(|&at| near(&offsets[at])).max_by_key(|&at| offsets[at]);
        if let Some(at) = nearest {
            hits[at] += 1;
        }
    }
    hits
}

/// Asserts that the second of two functions has the share of samples that it has of the time by the clock.
pub(crate) fn assert_shares([seldom, often]: [usize; 2], by_clock: f64) {
    let all = (seldom + often) as f64;
    let share = often as f64 / all;
    let sigma = (by_clock * (1.0 - by_clock) / all).sqrt();
    let allowed = 5.0 * sigma + 0.02;
    assert!((share - by_clock).abs() < allowed, "{share} of {all}, {by_clock} by the clock");
    assert!((0.55..0.9).contains(&by_clock), "{by_clock}");
}

/// The first recording of threads that spin of which nothing was lost. On a busy machine whoever empties the buffers may
/// get no processor in time; where each thread had one, so that the recording took less than `at_rest`, a loss may be a
/// coincidence once, but not five times.
pub(crate) fn none_lost(
    at_rest: Duration,
    recorded: impl Fn() -> (Recording, u64),
) -> Option<Recording> {
    let mut lost_at_rest = 0;
    first_to_judge(|_| {
        let begun = Instant::now();
        let (recording, lost) = recorded();
        let took = begun.elapsed();
        if lost == 0 {
            return Ok(recording);
        }
        lost_at_rest += u32::from(took < at_rest);
        let why = format!("{lost} samples or records were lost in {took:?}: {:?}", recording.notes);
        assert!(lost_at_rest < 5, "{why}");
        Err(why)
    })
}
