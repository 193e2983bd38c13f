//! `brickscope doctor`: shows what this machine offers to a profiler, and how to enable the rest.

use anyhow::Result;

use crate::doctor;
use crate::output;

/// Show what a profiler can measure on this machine, and how to enable the rest.
///
/// Each line is a capability: clock, counters, SIMD, limits, load by other processes, GPUs. A cross
/// comes with a fix. The exit code is 0 even if there are crosses.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope doctor\n  brickscope doctor --json | jq '.[] | select(.ok | not)'"
)]
pub(crate) struct DoctorArgs {
    /// Print a JSON array of {name, ok, found, fix}.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let findings = doctor::examine();
    if args.json {
        return output::print(serde_json::to_string_pretty(&findings)? + "\n");
    }
    output::print_painted(&doctor::text(&findings, output::wants_colour()))
}
