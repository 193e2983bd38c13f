//! `brickscope profile --check-overhead` in several processes, so that the interval includes the
//! differences between processes.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use brickscope::RatioOfRuns;
use serde::Serialize;

use super::check_overhead::{Arm, Report, SLOW, line};
use crate::figures::{pass_time, signed_percent};
use crate::flags::profile::ProfileArgs;
use crate::output;
use crate::{family, interrupt};
use brickscope::stats::median;

/// The result. `--json` prints it as it is.
#[derive(Serialize)]
struct AllProcesses {
    /// How it was cut short, and after how many processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_short: Option<String>,
    /// From the means of all processes.
    slow_down: Option<RatioOfRuns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_down_absent: Option<String>,
    /// The report of each.
    processes: Vec<Report>,
}

/// Runs this command several times, each for its part of the time.
pub(super) fn run(args: &ProfileArgs) -> Result<()> {
    let program = env::current_exe().context("the path of this program")?;
    let n = args.overhead_processes;
    let mut processes = Vec::new();
    // A process that is cut short ends by itself, and this one has to report the others.
    interrupt::keep();
    for i in 1..=n {
        let mut command = Command::new(&program);
        // Right after the subcommand: there may be a `--` before the model.
        let mut words = env::args_os().skip(1);
        command.args(words.next()).arg("--overhead-process").args(words);
        let _tied = family::tie(&mut command)?;
        let child = command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        let output = child.spawn().and_then(|child| child.wait_with_output());
        let output = output.with_context(|| format!("process {i} of {n}"))?;
        if interrupt::was_child(output.status) {
            break;
        }
        if !output.status.success() {
            bail!("process {i} of {n} failed ({}); see its message above", output.status);
        }
        let report = serde_json::from_slice(&output.stdout);
        processes.push(report.with_context(|| format!("the output of process {i} of {n}"))?);
        if i < n && interrupt::is_asked() {
            break;
        }
    }
    if processes.is_empty() {
        return Err(interrupt::Nothing.into());
    }
    let mut report = AllProcesses::new(processes);
    report.cut_short = interrupt::was_heeded()
        .then(|| format!("interrupted after {} of {n} processes", report.processes.len()));
    let text =
        if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.text() };
    output::print(text)
}

impl AllProcesses {
    fn new(processes: Vec<Report>) -> Self {
        let estimates: Option<Vec<f64>> =
            processes.iter().map(|report| report.slow_down.map(|ratio| ratio.estimate)).collect();
        let (slow_down, slow_down_absent) = match estimates {
            Some(estimates) => {
                let ratio = RatioOfRuns::new(&estimates);
                let why = || "no mean and interval of these figures".to_owned();
                (ratio, ratio.is_none().then(why))
            }
            None => {
                let why = processes.iter().find_map(|report| report.slow_down_absent.clone());
                (None, why)
            }
        };
        Self { cut_short: None, slow_down, slow_down_absent, processes }
    }

    fn text(&self) -> String {
        let Some(first) = self.processes.first() else { return String::new() };
        let n = self.processes.len();
        let mut text = first.setting.heading();
        if let Some(how) = &self.cut_short {
            text += &format!("note: cut short: {how}\n");
        }
        let arm = |of: fn(&Report) -> Arm| {
            let medians: Vec<f64> = self.processes.iter().map(|p| of(p).median_ns).collect();
            let passes: usize = self.processes.iter().map(|p| of(p).passes).sum();
            (pass_time(median(&medians).unwrap_or(f64::NAN)), passes)
        };
        let (median, passes) = arm(|report| report.forward);
        text += &line("forward", &median, &format!("median of {n} medians, {passes} passes"));
        let (median, passes) = arm(|report| report.forward_profiled);
        text +=
            &line("forward_profiled", &median, &format!("median of {n} medians, {passes} passes"));
        text += &line("", "", &format!("{} spans each", first.spans_per_pass));
        for (report, i) in self.processes.iter().zip(1..) {
            let (value, how) = match (report.slow_down, &report.slow_down_absent) {
                (Some(ratio), _) => {
                    let within = format!(
                        "within it {} to {}",
                        signed_percent(ratio.low),
                        signed_percent(ratio.high)
                    );
                    (signed_percent(ratio.estimate), within)
                }
                (None, why) => ("n/a".to_owned(), why.clone().unwrap_or_default()),
            };
            text += &line(&format!("process {i}"), &value, &how);
        }
        let (value, how) = match (self.slow_down, &self.slow_down_absent) {
            (Some(ratio), _) => {
                let interval = format!(
                    "95 % interval {} to {}, of {n} processes",
                    signed_percent(ratio.low),
                    signed_percent(ratio.high)
                );
                (signed_percent(ratio.estimate), interval)
            }
            (None, why) => ("n/a".to_owned(), why.clone().unwrap_or_default()),
        };
        text += &line("slow-down", &value, &how);
        let slow = |of: fn(&Report) -> Arm| -> usize {
            self.processes.iter().map(|report| of(report).slow_passes).sum()
        };
        let (a, b) = (slow(|report| report.forward), slow(|report| report.forward_profiled));
        text + &line("disturbed", "", &format!("{a} and {b} passes over {SLOW} times their median"))
    }
}
