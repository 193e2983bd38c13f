//! Samples a command and prints how many samples each thread has.
//!
//! `record [--frequency N] [--stack-bytes N] [--user] COMMAND [ARGUMENT]...`

use std::process::{Command, ExitCode};

use brickscope_sampler::perf_event::{Options, record};
use brickscope_sampler::{Ending, Recording};

fn main() -> ExitCode {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    let number = |arguments: &mut dyn Iterator<Item = String>| {
        arguments.next().and_then(|text| text.parse().ok()).unwrap_or_default()
    };
    let program = loop {
        match arguments.next().as_deref() {
            Some("--frequency") => options.frequency = number(&mut arguments),
            Some("--stack-bytes") => options.stack_bytes = number(&mut arguments) as u32,
            Some("--user") => options.kernel = false,
            Some(program) => break program.to_owned(),
            None => {
                eprintln!("usage: record [OPTION]... COMMAND [ARGUMENT]...");
                return ExitCode::from(2);
            }
        }
    };
    let mut command = Command::new(program);
    command.args(arguments);
    match record(command, &options, |_| ()) {
        Ok((recording, status)) => {
            print(&recording);
            eprintln!("{status}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print(recording: &Recording) {
    let n_samples = recording.samples.len();
    let with = |ending| recording.samples.iter().filter(|sample| sample.ending == ending).count();
    eprintln!(
        "{n_samples} samples of {}, {} lost; unwound to the root {}, cut {}, lost {}",
        recording.event,
        recording.lost,
        with(Ending::Root),
        with(Ending::Cut),
        with(Ending::Lost),
    );
    let n_kernel = recording.samples.iter().filter(|sample| sample.n_kernel > 0).count();
    eprintln!("{n_kernel} in the kernel; {} addresses", recording.addresses.len());
    for thread in &recording.threads {
        let samples = recording.samples.iter().filter(|sample| sample.tid == thread.tid);
        eprintln!("{:>8} {:>8} {:6} {}", thread.pid, thread.tid, samples.count(), thread.name);
    }
    for note in &recording.notes {
        eprintln!("note: {note}");
    }
}
