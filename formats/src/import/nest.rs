//! The order of a file's events: those of a thread nest, but for what clocks and the rounding of times make of them.

use std::cmp::Reverse;
use std::collections::HashSet;

/// By so much an event may miss the one that it nests in, in a file of any unit.
const LEAST_ROUNDED_NS: i64 = 2_000;

/// And in none by more: no clock that programs are timed by is coarser.
const MOST_ROUNDED_NS: i64 = 10_000_000;

/// So many times that differ must be multiples of a unit, for fewer may be so by chance.
const ENOUGH: usize = 16;

/// So many events that begin before the one around them are looked at, from the innermost one on.
const MOST_EARLY: usize = 32;

/// What is known of an event here.
pub(super) trait Event: Copy {
    /// The thread that it is of.
    fn lane(&self) -> u32;

    fn start(&self) -> i64;

    fn end(&self) -> i64;

    /// Gives it another begin or end.
    fn put(&mut self, start: i64, end: i64);

    /// Whether it is work of a device, which needn't nest.
    fn is_of_device(&self) -> bool;

    fn is_pass(&self) -> bool;
}

/// What was done to events so that they nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Nested {
    /// By so much an end or a begin was cut at most, in nanoseconds, and whether that is the unit of all times.
    pub(super) rounded_ns: i64,
    pub(super) is_of_unit: bool,
    /// How many were cut.
    pub(super) cut: u64,
    /// How many were removed, since they go on into a pass.
    pub(super) into_passes: u64,
}

impl Nested {
    /// The most that was cut, as text, with these words behind the time.
    pub(super) fn most(self, of: &str) -> String {
        let most = match self.rounded_ns / 1_000 {
            micros if micros >= 1_000 => format!("{} ms", micros / 1_000),
            micros => format!("{micros} µs"),
        };
        let unit = if self.is_of_unit { ", of which all times are multiples" } else { "" };
        most + of + unit
    }
}

/// Sorts the events of each thread, outer ones first, and cuts what rounding put beyond what is around it. Of those that begin
/// and end together the order is kept.
pub(super) fn nest<E: Event>(timed: &mut Vec<E>) -> Nested {
    let order = |event: &E| (event.lane(), event.start(), Reverse(event.end()));
    timed.sort_by_key(order);
    let (rounded_ns, is_of_unit) = rounded(timed);
    let early = cut_early(timed, rounded_ns);
    if early > 0 {
        timed.sort_by_key(order);
    }
    let (late, into_passes) = cut_to_nest(timed, rounded_ns);
    Nested { rounded_ns, is_of_unit, cut: early + late, into_passes }
}

/// By how much events may miss what they nest in: the unit of the file's times, if that is more than [`LEAST_ROUNDED_NS`],
/// and whether it is. A begin and a duration that are each rounded to a unit put an end off by up to two, but of two ends
/// whose order is known one is beyond the other by less than two, so by one.
fn rounded<E: Event>(timed: &[E]) -> (i64, bool) {
    let of_host = || timed.iter().filter(|event| !event.is_of_device());
    let first = of_host().map(E::start).min().unwrap_or_default();
    let mut unit = MOST_ROUNDED_NS;
    let mut known: Vec<i64> = Vec::new();
    for event in of_host() {
        for ns in [event.start().saturating_sub(first), event.end().saturating_sub(event.start())] {
            while unit > LEAST_ROUNDED_NS && ns % unit != 0 {
                unit /= 10;
            }
            if ns != 0 && known.len() < ENOUGH && !known.contains(&ns) {
                known.push(ns);
            }
        }
        // As most files have it, with their first event.
        if unit <= LEAST_ROUNDED_NS {
            return (LEAST_ROUNDED_NS, false);
        }
    }
    match known.len() < ENOUGH {
        true => (LEAST_ROUNDED_NS, false),
        false => (unit, true),
    }
}

/// Cuts up to `rounded_ns` from events that begin before the one that they lie in, which keeps its begin. Of two that
/// cross, the inner one is that which misses the other by less. Returns how many were cut: they are no longer in order.
fn cut_early<E: Event>(timed: &mut [E], rounded_ns: i64) -> u64 {
    let mut cut = 0;
    // Each with its begin as the file has it.
    let mut stack: Vec<(usize, i64)> = Vec::new();
    for at in 0..timed.len() {
        let event = timed[at];
        if event.is_of_device() {
            continue;
        }
        if stack.last().is_some_and(|&(around, _)| timed[around].lane() != event.lane()) {
            stack.clear();
        }
        while stack.pop_if(|(around, _)| timed[*around].end() <= event.start()).is_some() {}
        // What ends where it begins is no matter of begins.
        let is_over = |other: &E| other.end().saturating_sub(event.start()) <= rounded_ns;
        let mut kept = stack.len();
        let nests = loop {
            let Some((around, begun)) = kept.checked_sub(1).map(|top| stack[top]) else {
                break true;
            };
            let late = event.end().saturating_sub(timed[around].end());
            let early = event.start().saturating_sub(begun);
            let is_over = is_over(&timed[around]);
            if late <= 0 || (!is_over && late <= early.min(rounded_ns)) {
                break true;
            }
            // A pass keeps its begin, whatever goes on behind it.
            if !is_over && timed[around].is_pass() && !event.is_pass() {
                break false;
            }
            if stack.len() - kept == MOST_EARLY || (!is_over && early > rounded_ns) {
                // What goes on into a pass is removed later, and the pass is kept.
                break event.is_pass();
            }
            kept -= 1;
        };
        if !nests {
            continue;
        }
        // Of most events there is nothing, for which no memory is taken.
        let inside = if kept < stack.len() { stack.split_off(kept) } else { Vec::new() };
        stack.push((at, event.start()));
        for (inner, begun) in inside {
            if !is_over(&timed[inner]) {
                cut += u64::from(timed[inner].start() == begun);
                let end = timed[inner].end();
                timed[inner].put(event.start(), end);
                stack.push((inner, begun));
            }
        }
    }
    cut
}

/// Events of a thread nest, but for what clocks and rounding make of their ends: up to `rounded_ns` are cut from an event
/// that ends behind the one around it, or after the next one has begun. A pass isn't lost for an event that goes on into it
/// by more: that event is removed, since no clock was read at an end of it before the pass. Returns how many were cut, and
/// how many removed.
fn cut_to_nest<E: Event>(timed: &mut Vec<E>, rounded_ns: i64) -> (u64, u64) {
    let mut cut = 0;
    let mut removed: HashSet<usize> = HashSet::new();
    // Each with whether it is in a pass, or one.
    let mut stack: Vec<(usize, bool)> = Vec::new();
    for at in 0..timed.len() {
        let event = timed[at];
        if event.is_of_device() {
            continue;
        }
        if stack.last().is_some_and(|&(around, _)| timed[around].lane() != event.lane()) {
            stack.clear();
        }
        while stack.pop_if(|(around, _)| timed[*around].end() <= event.start()).is_some() {}
        // Those that end where it begins, and where it ends itself, if it nests then.
        let (mut kept, mut end) = (stack.len(), event.end());
        let nests = loop {
            let Some((around, is_in_pass)) = kept.checked_sub(1).map(|top| stack[top]) else {
                break true;
            };
            // Of a pass nothing is cut for what may lie in it.
            let is_kept = timed[around].is_pass() && !event.is_pass();
            let around = timed[around].end();
            let late = end.saturating_sub(around);
            if late <= 0 {
                break true;
            }
            let is_over = around.saturating_sub(event.start()) <= rounded_ns;
            let is_cut = is_kept && late <= rounded_ns;
            if is_over && !is_cut {
                kept -= 1;
            } else if late <= rounded_ns {
                end = around;
            } else if event.is_pass() && !is_in_pass {
                kept -= 1;
            } else {
                break false;
            }
        };
        // Else it is left out later.
        if nests {
            for (before, _) in stack.drain(kept..) {
                if timed[before].end().saturating_sub(event.start()) <= rounded_ns {
                    let start = timed[before].start();
                    timed[before].put(start, event.start());
                    cut += 1;
                } else {
                    removed.insert(before);
                }
            }
            cut += u64::from(end != event.end());
            timed[at].put(event.start(), end);
            let is_in_pass = stack.last().is_some_and(|&(_, is)| is) || event.is_pass();
            stack.push((at, is_in_pass));
        }
    }
    if !removed.is_empty() {
        let mut at = 0..;
        timed.retain(|_| at.next().is_none_or(|at| !removed.contains(&at)));
    }
    (cut, removed.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Of {
        start: i64,
        end: i64,
        is_pass: bool,
    }

    impl Event for Of {
        fn lane(&self) -> u32 {
            0
        }

        fn start(&self) -> i64 {
            self.start
        }

        fn end(&self) -> i64 {
            self.end
        }

        fn put(&mut self, start: i64, end: i64) {
            (self.start, self.end) = (start, end);
        }

        fn is_of_device(&self) -> bool {
            false
        }

        fn is_pass(&self) -> bool {
            self.is_pass
        }
    }

    fn event(start: i64, end: i64) -> Of {
        Of { start, end, is_pass: false }
    }

    #[test]
    fn the_unit_of_times_is_that_of_all_of_them() {
        const MS: i64 = 1_000_000;
        // An axis may begin anywhere.
        let of = |unit: i64| -> Vec<Of> {
            (0..20).map(|n| event(7 + n * n * unit, 7 + (n * n + n) * unit)).collect()
        };
        assert_eq!(rounded(&of(MS)), (MS, true));
        assert_eq!(rounded(&of(10_000)), (10_000, true));
        assert_eq!(rounded(&of(1_000)), (LEAST_ROUNDED_NS, false));
        assert_eq!(rounded(&of(1_000 * MS)), (MOST_ROUNDED_NS, true));
        // One that is finer tells that the clock is; a few tell nothing.
        let mut finer = of(MS);
        finer[19].end += 1_000;
        assert_eq!(rounded(&finer), (LEAST_ROUNDED_NS, false));
        assert_eq!(rounded(&of(MS)[..5]), (LEAST_ROUNDED_NS, false));
        assert_eq!(rounded::<Of>(&[]), (LEAST_ROUNDED_NS, false));
    }

    #[test]
    fn a_pass_keeps_its_end_for_an_event_at_it_that_ends_a_little_late() {
        let pass = Of { start: 0, end: 100_000, is_pass: true };
        for (ends, expected, pass_ends) in [(101_000, 100_000, 100_000), (110_000, 110_000, 99_000)]
        {
            let mut timed = vec![pass, event(99_000, ends)];
            assert_eq!(nest(&mut timed).cut, 1);
            assert_eq!(timed, [Of { end: pass_ends, ..pass }, event(99_000, expected)], "{ends}");
        }
    }
}
