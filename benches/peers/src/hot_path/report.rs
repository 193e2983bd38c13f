//! The command line of a benchmark, and what it prints.

use std::env;
use std::fs;
use std::process::ExitCode;

use brickscope::Machine;
use core_affinity::CoreId;
use serde_json::json;

use crate::row::Row;
use crate::series::{self, Series};
use crate::{calm, table};

const ROUNDS: usize = 600;
const QUICK_ROUNDS: usize = 60;

#[derive(Default)]
pub(crate) struct Args {
    quick: bool,
    json: bool,
    check: bool,
}

impl Args {
    fn parse() -> Result<Self, String> {
        let mut args = Self::default();
        for arg in env::args().skip(1) {
            match &*arg {
                "--quick" => args.quick = true,
                "--json" => args.json = true,
                "--check" => args.check = true,
                _ => return Err(format!("`{arg}`? There are --quick, --json and --check")),
            }
        }
        Ok(args)
    }

    /// Those of this process; what to exit with if they can't be read.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        Self::parse().map_err(|message| {
            eprintln!("{message}");
            ExitCode::from(2)
        })
    }
}

/// Chooses the last CPU for this thread, since the first one has most of the system's interrupts. From here on, threads
/// would inherit it.
pub(crate) fn pin(remarks: &mut Vec<String>) -> Option<CoreId> {
    let last = core_affinity::get_core_ids().unwrap_or_default().last().copied();
    let pinned = last.filter(|&core| core_affinity::set_for_current(core));
    remarks.extend(pinned.is_none().then(|| "the system didn't let us choose a CPU".to_owned()));
    pinned
}

/// Measures the rows and prints them; returns what to exit with.
pub(crate) fn run(
    args: &Args,
    mut rows: Vec<Row<'_>>,
    pinned: Option<CoreId>,
    mut remarks: Vec<String>,
) -> ExitCode {
    let rounds = if args.quick { QUICK_ROUNDS } else { ROUNDS };
    let Series { figures, calm } = series::measure(&mut rows, rounds);
    if figures.iter().any(|row| row.is_disturbed) {
        let row = "some rows had too few rounds with the core for themselves, and are of all (*)";
        remarks.push(format!("{row}: repeat this when the machine is calm"));
    }
    let missed = figures.iter().filter(|row| row.misses()).count();

    let machine = brickscope::machine::detect();
    if args.json {
        let cpu = pinned.map(|core| core.id);
        let rows = table::json(&figures);
        let all = json!({
            "machine": machine, "pinned_to_cpu": cpu, "rounds": rounds, "calm_share": calm,
            "remarks": remarks, "rows": rows, "missed": missed,
        });
        println!("{all:#}");
    } else {
        let about = Page { machine: &machine, pinned, rounds, calm };
        about.print(&table::text(&figures), &remarks, missed);
    }
    if args.check && missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What stands above the table.
struct Page<'a> {
    machine: &'a Machine,
    pinned: Option<CoreId>,
    rounds: usize,
    /// See [`Series::calm`].
    calm: f64,
}

impl Page<'_> {
    fn print(&self, table: &str, remarks: &[String], missed: usize) {
        let Self { machine, pinned, rounds, calm } = *self;
        let cpu = machine.cpu.as_deref().unwrap_or("unnamed processor");
        let pinned = pinned.map_or_else(String::new, |core| format!(", on CPU {}", core.id));
        println!("{cpu}, {} {}{pinned}", machine.os, machine.arch);
        println!(
            "medians of {rounds} rounds, a batch of each row in each; ratios of the same round, with\n\
             the 95 % interval of their median. {:.0} % of the batches count: beside the others a\n\
             loop of additions took over {} times its least, so somebody else was on the core\n",
            100.0 * calm,
            calm::AT_MOST
        );
        println!("{table}");
        for remark in remarks {
            println!("NOTE: {remark}");
        }
        match missed {
            0 => println!("every target is met"),
            1 => println!("1 target is missed"),
            _ => println!("{missed} targets are missed"),
        }
    }
}

/// Says so if other work was on the cores before we began, where the system tells.
pub(crate) fn other_load() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let last_minute: f64 = text.split_whitespace().next()?.parse().ok()?;
    (last_minute >= 0.5).then(|| {
        format!("other work was on the cores (load {last_minute}): repeat this on an idle machine")
    })
}
