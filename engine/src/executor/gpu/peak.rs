//! What a device does at best: how long its loops run, and which of their runs counts.

/// So long a loop should run at least, so that the launch and the clock's steps are less than a thousandth of it.
const LONG_NS: f64 = 5e6;
/// So many rounds it has at most.
const MOST_ROUNDS: u32 = 1 << 16;
/// Runs go on until so many in a row were no faster than the fastest, since the clock rate of an idle device takes a while
/// to rise; but not longer than this, once there are [`FEWEST_RUNS`].
const NO_FASTER: usize = 8;
const ALL_NS: f64 = 6e8;
const FEWEST_RUNS: usize = 3;
/// Less than this part is no faster.
const FASTER: f64 = 0.002;
/// So often a run may take no time before the clock is taken to stand still.
const MOST_ZEROS: usize = 5;

/// The highest rate of several runs of a loop, a second, since interference only slows a device down. `run` has it go so
/// many rounds, `least` or more, and returns the nanoseconds that they took by the device's clock; `each` is what a round
/// does. `None` if the clock stood still.
pub(crate) fn best_rate<E>(
    each: f64,
    least: u32,
    mut run: impl FnMut(u32) -> Result<f64, E>,
) -> Result<Option<f64>, E> {
    // Its data are touched and its code is loaded: this says nothing.
    let mut rounds = least.clamp(1, MOST_ROUNDS);
    run(rounds)?;
    let (mut best, mut all, mut runs, mut since, mut zeros) = (0.0_f64, 0.0, 0, 0, 0);
    while runs < FEWEST_RUNS || (since < NO_FASTER && all < ALL_NS) {
        let ns = run(rounds)?;
        if ns <= 0.0 {
            zeros += 1;
            if zeros >= MOST_ZEROS {
                return Ok(None);
            }
        }
        if ns < LONG_NS && rounds < MOST_ROUNDS {
            // A little more than that, or else noise decides when this ends. A clock with long steps says little.
            let most = if ns > 0.0 { 64.0 } else { 4.0 };
            let times = (1.25 * LONG_NS / ns.max(1.0)).ceil().clamp(2.0, most) as u32;
            rounds = rounds.saturating_mul(times).min(MOST_ROUNDS);
            continue;
        }
        let rate = if ns > 0.0 { each * f64::from(rounds) / ns * 1e9 } else { 0.0 };
        since = if rate > (1.0 + FASTER) * best { 0 } else { since + 1 };
        best = best.max(rate);
        all += ns;
        runs += 1;
    }
    Ok(Some(best).filter(|&best| best > 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_fastest_run_of_those_that_are_long_enough() {
        // 1 µs to start, then 4 ns a round; now and then it is disturbed.
        let mut runs = Vec::new();
        let rate = best_rate(8.0, 1, |rounds| {
            let disturbed = if runs.len() % 3 == 0 { 2.0 } else { 1.0 };
            runs.push(rounds);
            Ok::<_, ()>(disturbed * (1e3 + 400.0 * f64::from(rounds)))
        });
        let rate = rate.unwrap().unwrap();
        // 8 in 400 ns are 20 million a second, less a thousandth for the start.
        assert!((19.97e6..20e6).contains(&rate), "{rate}");
        assert!(runs.len() < 40 && *runs.last().unwrap() > 12_000, "{runs:?}");
    }

    #[test]
    fn a_slow_device_isn_t_kept_busy_for_long() {
        let mut runs = 0;
        let rate = best_rate(1e9, 3, |rounds| {
            assert_eq!(rounds, 3);
            runs += 1;
            Ok::<_, ()>(1e9)
        });
        assert_eq!((rate, runs), (Ok(Some(3e9)), 4));
    }

    #[test]
    fn a_slow_first_run_doesn_t_make_the_others_short() {
        let mut runs = Vec::new();
        let rate = best_rate(1.0, 1, |rounds| {
            runs.push(rounds);
            let first = if runs.len() == 1 { 1e9 } else { 0.0 };
            Ok::<_, ()>(first + 1e3 + 1e4 * f64::from(rounds))
        });
        assert!((0.999e5..1e5).contains(&rate.unwrap().unwrap()), "{rate:?}");
        assert!(*runs.last().unwrap() >= 500, "{runs:?}");
    }

    #[test]
    fn a_device_whose_clock_rate_rises_is_measured_when_it_has_risen() {
        let mut spent = 0.0;
        let rate = best_rate(1.0, 1, |rounds| {
            // From a third to all of it within 300 ms.
            let speed = f64::min(1.0, 1.0 / 3.0 + spent / 4.5e8);
            let ns = 1e4 * f64::from(rounds) / speed;
            spent += ns;
            Ok::<_, ()>(ns)
        });
        assert_eq!(rate, Ok(Some(1e5)));
    }

    #[test]
    fn a_clock_that_stands_still_gives_no_rate() {
        let mut most = 0;
        let rate = best_rate(1e9, 1, |rounds| {
            most = most.max(rounds);
            Ok::<_, ()>(0.0)
        });
        // Not for hours, if the work takes time and the clock doesn't see it.
        assert_eq!((rate, most), (Ok(None), 256));
        assert_eq!(best_rate(1e9, 1, |_| Err("lost")), Err("lost"));
    }
}
