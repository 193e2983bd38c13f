//! The sources of stacks that work on this machine, and how to enable the others.

use brickscope_sampler::perf::{self, PerfProgram};
use brickscope_sampler::perf_event;

use crate::doctor::Finding;
use crate::flags::Via;

/// What each source of stacks can do on this machine.
#[derive(Debug)]
pub(crate) struct Abilities {
    /// Our own sampler, or why it doesn't work and how to fix it.
    pub(crate) sampler: Result<perf_event::Abilities, String>,
    /// The program `perf`, likewise.
    pub(crate) perf: Result<PerfProgram, String>,
}

impl Abilities {
    /// Probes the sources without running the user's program. Probes perf only if it is to be used, since
    /// that takes a moment.
    pub(crate) fn probe(with_perf: bool) -> Self {
        let perf = if with_perf { perf::probe() } else { Err("not probed".to_owned()) };
        Self { sampler: perf_event::probe().map_err(|error| error.to_string()), perf }
    }

    /// The best way to sample `brickscope profile` here.
    pub(crate) fn best(&self) -> Via {
        if self.sampler.is_ok() { Via::Sampler } else { Via::Timer }
    }

    /// A line for each source: whether it works, and how to fix it if not.
    pub(crate) fn findings(&self, via: Via) -> Vec<Finding> {
        let mut findings = vec![Finding::good("spans", "measured, on any machine: --via spans")];
        findings.push(match &self.sampler {
            Ok(can) => {
                let of =
                    if can.kernel { "programs and the kernel" } else { "programs, not the kernel" };
                Finding::good("sampler", format!("by perf_event_open and cpu-clock: {of}"))
            }
            Err(why) => Finding::bad("sampler", "perf_event_open can't be used", why.clone()),
        });
        findings.push(Finding::good("timer", "programs that sample themselves, such as `profile`"));
        findings.push(match &self.perf {
            Ok(perf) => Finding::good("perf", format!("{}, by {}", perf.version, perf.event)),
            Err(why) if via == Via::Perf => {
                let fix = match &self.sampler {
                    Ok(_) => "use --via sampler, which works here",
                    Err(why) => why,
                };
                Finding::bad("perf", why.clone(), fix)
            }
            Err(_) if is_installed("perf") => {
                Finding::good("perf", "installed; --via perf finds out whether it may record")
            }
            Err(_) => Finding::bad(
                "perf",
                "not installed",
                "not needed by the other sources; Debian: apt-get install linux-perf",
            ),
        });
        findings
    }
}

fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}
