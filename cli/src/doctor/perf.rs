//! Hardware counters and sampling, both through `perf_event_open`.

use brickscope::probe_counters;

use super::Finding;

pub(super) fn counters() -> Finding {
    const NAME: &str = "counters";
    match probe_counters() {
        Err(missing) => Finding::bad(NAME, missing.what, missing.fix),
        Ok(reading) => {
            let counters = [
                ("cycles", reading.cycles),
                ("instructions", reading.instructions),
                ("LLC misses", reading.llc_misses),
                ("branch misses", reading.branch_misses),
            ];
            let named = |has: bool| {
                let names = counters.iter().filter(move |(_, count)| count.is_some() == has);
                names.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
            };
            let (has, lacks) = (named(true), named(false));
            if lacks.is_empty() {
                Finding::good(NAME, has)
            } else {
                Finding::bad(
                    NAME,
                    format!("{has}, but not {lacks}"),
                    "none: the kernel has no access to the others on this processor",
                )
            }
        }
    }
}

#[cfg(feature = "flamegraph")]
pub(super) fn sampling() -> Finding {
    const NAME: &str = "sampling";
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
        Some(format!("{name}={}", text.trim()))
    };
    let settings: Vec<_> =
        ["perf_event_paranoid", "kptr_restrict"].into_iter().filter_map(read).collect();
    match brickscope::probe_sampling() {
        Ok(()) => Finding::good(NAME, format!("own code, by cpu-clock; {}", settings.join(", "))),
        Err(missing) => Finding::bad(NAME, missing.what, missing.fix),
    }
}
