//! What a span costs here, beside the bare counter and beside other profilers. Run it with
//! `cargo bench --bench hot_path` at the root of the repository.

mod calm;
mod cold;
mod counter;
mod other_ways;
mod ours;
mod peers;
mod raw;
mod report;
mod row;
mod series;
mod table;
mod threads;

use std::process::ExitCode;

use crate::report::Args;

fn main() -> ExitCode {
    let args = match Args::read() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let mut remarks: Vec<String> = report::other_load().into_iter().collect();

    let peers = peers::rows();
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let mut rows = raw::rows();
    rows.extend(ours::rows());
    rows.extend(other_ways::rows());
    rows.extend(cold::rows());
    match *cores {
        [first, .., last] => rows.extend(threads::rows([first, last])),
        _ => remarks.push("two threads at once: NOT MEASURED, there aren't two CPUs".to_owned()),
    }
    rows.extend(peers);
    let pinned = report::pin(&mut remarks);
    report::run(&args, rows, pinned, remarks)
}
