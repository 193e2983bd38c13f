//! Samples a program with a known distribution of time.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod known;
#[path = "../../../examples/known_split.rs"]
mod known_split;
mod perf_event;
mod refuse;
mod timer;

use std::process::{Command, Stdio};

use brickscope_sampler::perf_event::{Options, record};

/// A command that runs one task in this program, through [`tasks`].
fn this_program(task: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "sampling::tasks", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("TASK", task).stderr(Stdio::null()).stdout(Stdio::null());
    command
}

#[test]
#[ignore = "the other tests run it in processes of their own"]
fn tasks() {
    match std::env::var("TASK").as_deref() {
        Ok("spin") => {
            known_split::run(2, 1_000);
        }
        Ok("spin for long") => {
            known_split::run(1, 30_000);
        }
        Ok("children") => {
            for _ in 0..2 {
                this_program("spin").status().expect("a child");
            }
        }
        Ok("abort") => {
            known_split::run(1, 200);
            std::process::abort();
        }
        Ok("interrupted") => perf_event::interrupt_all_but_me(),
        Ok("refused") => {
            refuse::refuse_perf_event_open();
            let recorded = record(this_program("spin"), &Options::default(), |_| ());
            println!("{}", recorded.expect_err("perf_event_open is refused"));
        }
        Ok(task) => timer::task(task),
        Err(error) => unreachable!("{error}"),
    }
}
