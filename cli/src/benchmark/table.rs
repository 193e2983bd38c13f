//! Receipts as text: the table of llama-bench, and notes below it.

use std::fmt::Write;
use std::path::Path;

use brickscope::BrickId;
use brickscope_analysis::receipt::v1::{Device, Receipt, Spread, Test};
use brickscope_analysis::view::{Doubt, folded};

use super::rows::{Answer, Measurement, ModelRow};
use super::sums::Choosing;
use crate::output;
use crate::text::{count, printable, printable_text, wrapped};
use brickscope::stats::{median, std_dev};

/// The table, with a row for each test of each process. It has the columns of llama-bench, so that rows
/// of both can go into one table.
pub(crate) fn markdown(measurements: &[Measurement], model: &ModelRow) -> String {
    let mut rows: Vec<[String; 7]> =
        vec![["model", "size", "params", "backend", "threads", "test", "t/s"].map(str::to_owned)];
    for Measurement { receipt, .. } in measurements {
        for test in &receipt.tests {
            rows.push([
                printable(&model.model_type),
                size(model.bytes),
                parameters(receipt.model.parameters),
                printable(&receipt.backend.to_uppercase()),
                receipt.run.threads.to_string(),
                printable(&test.name),
                rate(test),
            ]);
        }
    }
    // Text is aligned to the left, figures to the right.
    let is_text = |column| column == 0 || column == 3;
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 7] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let mut text = String::new();
    for (nth, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let _ = match is_text(column) {
                true => write!(text, "| {cell:width$} "),
                false => write!(text, "| {cell:>width$} "),
            };
        }
        text.push_str("|\n");
        if nth == 0 {
            for (column, width) in widths.into_iter().enumerate() {
                let end = if is_text(column) { "-" } else { ":" };
                let _ = write!(text, "| {}{end} ", "-".repeat(width - 1));
            }
            text.push_str("|\n");
        }
    }
    text
}

/// A line that says if the logits of some passes weren't numbers; it comes first.
pub(crate) fn not_finite(measurements: &[Measurement]) -> String {
    let tests = || measurements.iter().flat_map(|measurement| &measurement.receipt.tests);
    let bad = || tests().filter_map(|test| Some((test, test.not_finite.as_ref()?)));
    let Some((_, first)) = bad().next() else { return String::new() };
    let (passes, of) = bad().fold((0, 0), |(passes, of), (_, bad)| {
        (u64::saturating_add(passes, bad.passes), u64::saturating_add(of, bad.of))
    });
    let mut names: Vec<&str> = bad().map(|(test, _)| &*test.name).collect();
    names.sort_unstable();
    names.dedup();
    let mut text = String::new();
    let sentence = format!(
        "Not a number: the logits of {passes} of {of} passes of {}; {}.",
        names.join(", "),
        printable(&first.origin)
    );
    wrapped("", &sentence, &mut text);
    text
}

fn size(bytes: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    match bytes as f64 / MIB {
        mib @ ..1024.0 => format!("{mib:.2} MiB"),
        mib => format!("{:.2} GiB", mib / 1024.0),
    }
}

fn parameters(n: u64) -> String {
    match n as f64 {
        n @ ..1e9 => format!("{:.2} M", n / 1e6),
        n => format!("{:.2} B", n / 1e9),
    }
}

fn rate(test: &Test) -> String {
    let of = &test.aggregates;
    match (of.avg_ts, of.stddev_ts) {
        (Some(mean), Some(sd)) => format!("{mean:.2} ± {sd:.2}"),
        (Some(mean), None) => format!("{mean:.2}"),
        (None, _) => "n/a".to_owned(),
    }
}

/// The notes on the measurement of one process, below the table.
pub(crate) fn notes(measurement: &Measurement) -> String {
    let Measurement { receipt, folder, answer, choosing } = measurement;
    let mut text = String::new();
    for (nth, test) in receipt.tests.iter().enumerate() {
        of_test(test, choosing.get(nth), &mut text);
    }
    text.push('\n');
    let mut line = |label: &str, value: &str| {
        wrapped(&format!("{label:9} "), value, &mut text);
    };
    if let Some(on) = &receipt.device {
        line("device", &device(on));
    }
    for (label, what) in answer.iter().flat_map(Answer::lines) {
        line(label, &what);
    }
    line("warm-up", &warm_ups(receipt));
    line("overhead", &overhead(receipt));
    line("clock", &clock(receipt));
    line("build", &build(receipt));
    for warning in &receipt.load.doubts {
        line("warning", &printable_text(warning));
    }
    if let Some(absent) = &receipt.load.absent {
        line("load", &printable_text(absent));
    }
    for (what, n) in &receipt.dropped {
        line("dropped", &format!("{}: {n}", printable(what)));
    }
    let _ = writeln!(text, "{:9} {}", "run in", output::shown(folder));
    text
}

/// A device in a few words: its name, how it was driven, its driver and its memory.
pub(crate) fn device(device: &Device) -> String {
    let driver = device.driver.as_ref().map(|driver| printable(driver));
    let memory = device.memory_bytes.map(size);
    let api = printable(&device.api);
    let parts = [Some(printable(&device.name)), Some(api), driver, memory];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn of_test(test: &Test, choosing: Option<&Choosing>, text: &mut String) {
    let of = &test.aggregates;
    let label = format!("\n{}", printable(&test.name));
    text.push_str(&label);
    text.push('\n');
    if let Some(median) = of.median_ts {
        let interval = match (of.low_ts, of.high_ts) {
            // By Student's t, which knows nothing of rates: none is below 0.
            (Some(low), Some(_)) if low <= 0.0 => {
                format!("; {} vary too much for an interval", count(of.samples, "repetition"))
            }
            (Some(low), Some(high)) => {
                format!("; 95 % interval of the mean {low:.2} to {high:.2}")
            }
            _ => "; an interval needs 2 repetitions".to_owned(),
        };
        let value = format!("median {median:.2} of {}{interval}", of.samples);
        wrapped("  t/s         ", &value, text);
    }
    for (label, spread) in [("  first token ", &of.first_token), ("  each token  ", &of.per_token)]
    {
        if spread.count > 0 {
            wrapped(label, &durations(spread), text);
        }
    }
    if let Some(parts) = parts(test, choosing) {
        wrapped("  a pass      ", &parts, text);
    }
}

/// What a pass takes before the layers, in them and behind them, in bricks, and then choosing a token; `None` where that
/// wasn't timed, as on a device. A prompt has logits in its last pass only.
fn parts(test: &Test, choosing: Option<&Choosing>) -> Option<String> {
    // Of a prompt and tokens in one test, the sums tell not which pass was which.
    if test.n_prompt > 0 && test.n_gen > 0 {
        return None;
    }
    let of = &test.aggregates;
    let sum = |brick: BrickId| {
        let at = test.bricks.iter().position(|other| other.name == brick.name())?;
        of.brick_total_ns.get(at).copied()
    };
    let measured = || test.samples.iter().filter(|sample| !sample.is_warm_up);
    let passes: usize = measured().map(|sample| sample.pass_ns.len()).sum();
    let with_logits = if test.n_prompt > 0 { measured().count() } else { passes };
    let (passes, with_logits) = (passes as u64, with_logits as u64);
    let (embed, logits) = (sum(BrickId::Embedding)?, sum(BrickId::LmHead)?);
    // The embedding of a token takes some tens of nanoseconds.
    let us = |ns: u64, n: u64| format!("{:.2}", ns as f64 / 1e3 / n.max(1) as f64);
    let all = of.brick_total_ns.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    let forward = all.saturating_sub(embed).saturating_sub(logits);
    let mut parts = vec![
        format!("embed {}", us(embed, passes)),
        format!("forward {}", us(forward, passes)),
        format!("logits {}", us(logits, with_logits)),
    ];
    let choosing = choosing.filter(|choosing| choosing.tokens > 0);
    parts.extend(choosing.map(|of| format!("sample {}", us(of.ns, of.tokens))));
    Some(parts.join(", ") + " µs")
}

fn durations(spread: &Spread) -> String {
    let ms = |ns: f64| format!("{:.3}", ns / 1e6);
    let mut text = format!("mean {}", spread.mean_ns.map_or("n/a".to_owned(), ms));
    if let Some(sd) = spread.stddev_ns {
        let _ = write!(text, " ± {}", ms(sd));
    }
    let percentiles = [
        ("p50", spread.p50_ns),
        ("p90", spread.p90_ns),
        ("p95", spread.p95_ns),
        ("p99", spread.p99_ns),
    ];
    for (name, value) in percentiles {
        if let Some(ns) = value {
            let _ = write!(text, ", {name} {}", ms(ns as f64));
        }
    }
    let _ = write!(text, " ms, of {}", spread.count);
    let too_few = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];
    let too_few = too_few.into_iter().zip(percentiles).find(|(_, (_, value))| value.is_none());
    if let Some(((name, quantile), _)) = too_few
        && let Some(least) = brickscope::Histogram::least_count(quantile)
    {
        let _ = write!(text, " (a {name} needs {least})");
    }
    text
}

fn warm_ups(receipt: &Receipt) -> String {
    let of = |test: &Test| {
        let n = test.samples.iter().filter(|sample| sample.is_warm_up).count();
        let steady = if test.warm_up.steady { "" } else { " (not steady)" };
        format!("{} {n}{steady}", printable(&test.name))
    };
    let tests: Vec<String> = receipt.tests.iter().map(of).collect();
    let part = receipt.tests.first().map_or(0.0, |test| 100.0 * test.warm_up.within);
    format!(
        "{}; repetitions until the last 3 agreed within {part:.0} %, excluded from all figures",
        tests.join(", ")
    )
}

fn overhead(receipt: &Receipt) -> String {
    let of = &receipt.overhead;
    let Some(span_ns) = of.span_ns else { return printable_text(&of.basis) };
    let walls = receipt.tests.iter().flat_map(|test| &test.samples);
    let wall_ns: u64 = walls.filter(|sample| !sample.is_warm_up).map(|sample| sample.wall_ns).sum();
    let share = 100.0 * span_ns * of.spans as f64 / wall_ns as f64;
    let basis = printable_text(&of.basis);
    format!("{share:.2} % of the walls; {basis}: {span_ns:.0} ns × {}", of.spans)
}

fn clock(receipt: &Receipt) -> String {
    let of = &receipt.clock;
    let mut text = printable(&of.source);
    if let Some(ns) = of.resolution_ns {
        let _ = write!(text, ", resolution {ns:.0} ns");
    }
    if let Some(ns) = of.reading_ns {
        let _ = write!(text, ", {ns:.1} ns per reading");
    }
    if let Some(ppm) = of.drift_ppm {
        let _ = write!(text, ", {ppm:.1} ppm off the system clock");
    }
    text
}

/// How the program was compiled, and for which kernels it found the CPU fit.
fn build(receipt: &Receipt) -> String {
    let stated = |name| receipt.environment.get(name).map(|value: &String| printable(value));
    let flags = stated("RUSTFLAGS").map(|flags| match flags.is_empty() {
        true => "no RUSTFLAGS".to_owned(),
        false => format!("RUSTFLAGS {flags}"),
    });
    let parts = [
        stated("RUST_VERSION"),
        stated("PROFILE"),
        flags,
        Some(format!("kernels for {}", printable(&receipt.run.kernels))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The notes on the measurements of several processes: by test, how their medians differ.
pub(crate) fn across(measurements: &[Measurement], folder: &Path) -> String {
    let mut text = format!("\nMedians of {} processes (t/s)\n", measurements.len());
    let Some(first) = measurements.first() else { return text };
    for (nth, test) in first.receipt.tests.iter().enumerate() {
        let medians = measurements.iter().filter_map(|measurement| {
            measurement.receipt.tests.get(nth).and_then(|test| test.aggregates.median_ts)
        });
        let mut medians: Vec<f64> = medians.collect();
        medians.sort_by(f64::total_cmp);
        let (Some(&least), Some(&most)) = (medians.first(), medians.last()) else { continue };
        let median = median(&medians).unwrap_or(f64::NAN);
        let spread = match std_dev(&medians) {
            Some(sd) => format!(", standard deviation {:.2} %", 100.0 * sd / median),
            None => String::new(),
        };
        let label = format!("  {:14} ", printable(&test.name));
        wrapped(&label, &format!("median {median:.2}, {least:.2} to {most:.2}{spread}"), &mut text);
    }
    text.push('\n');
    let numbers: Vec<String> =
        measurements.iter().map(|of| of.receipt.run.process.to_string()).collect();
    let doubts =
        numbers.iter().zip(measurements).flat_map(|(number, Measurement { receipt, .. })| {
            receipt.load.doubts.iter().map(move |doubt| (&**number, &**doubt))
        });
    for Doubt { text: warning, of } in folded(doubts) {
        let processes = if of.len() == 1 { "process" } else { "processes" };
        let of = of.join(", ");
        let warning = format!("{} ({processes} {of})", printable_text(&warning));
        wrapped("warning   ", &warning, &mut text);
    }
    let n = measurements.len();
    let _ = writeln!(text, "{:9} {}, 1 to {n}", "runs in", output::shown(folder));
    text
}

#[cfg(test)]
mod tests {
    use brickscope_analysis::receipt::Receipt;

    use super::*;
    use crate::benchmark::rows::{Format, render};

    fn model() -> ModelRow {
        ModelRow { model_type: "llama 2M Q8_0".to_owned(), bytes: 1_954_816 }
    }

    /// The receipt in the repository, as process `process` of two.
    fn measurement(process: u32) -> Measurement {
        let text = include_str!("../../../tests/data/receipt-v1.json");
        let mut receipt = Receipt::from_json(text, "receipt-v1.json".as_ref()).expect("a receipt");
        receipt.run.process = process;
        receipt.run.processes = 2;
        let choosing =
            vec![Choosing { tokens: 3, ns: 12_600 }, Choosing { tokens: 12, ns: 49_200 }];
        Measurement { receipt, folder: "runs/it's 1".into(), answer: None, choosing }
    }

    #[test]
    fn the_table_and_its_notes() {
        let one = [measurement(1)];
        insta::assert_snapshot!("table", markdown(&one, &model()) + &notes(&one[0]));
        let mut two = [measurement(1), measurement(2)];
        two[1].receipt.tests[0].aggregates.median_ts = Some(1300.0);
        let [first, second] = &mut two;
        first.receipt.load.doubts.push("pp32: the standard deviation is 12 % of the mean.".into());
        let more = ["pp32: the standard deviation is 9.5 % of the mean.", "tg4: not steady."];
        second.receipt.load.doubts.extend(more.map(str::to_owned));
        insta::assert_snapshot!("processes", across(&two, Path::new("runs")));
    }

    #[test]
    fn no_rate_is_below_zero() {
        let mut one = measurement(1);
        let of = &mut one.receipt.tests[0].aggregates;
        (of.low_ts, of.high_ts) = (Some(-18258.66), Some(53106.71));
        let told = notes(&one);
        let words: Vec<&str> = told.split_whitespace().collect();
        assert!(words.join(" ").contains("repetitions vary too much for an interval"), "{told}");
        assert!(!told.contains("-18258"), "{told}");
    }

    #[test]
    fn a_device_is_named_with_what_its_driver_reports() {
        let mut one = measurement(1);
        one.receipt.backend = "wgpu".to_owned();
        one.receipt.device = Some(Device {
            name: "llvmpipe".to_owned(),
            api: "vulkan".to_owned(),
            ..Device::default()
        });
        assert!(markdown(&[one.clone()], &model()).contains("| WGPU    |"));
        assert!(notes(&one).contains("\ndevice    llvmpipe, vulkan\n"), "{}", notes(&one));
        let device = one.receipt.device.as_mut().expect("it is there");
        (device.driver, device.memory_bytes) = (Some("CUDA 13.0".to_owned()), Some(80 << 30));
        let told = notes(&one);
        assert!(told.contains("\ndevice    llvmpipe, vulkan, CUDA 13.0, 80.00 GiB\n"), "{told}");
        let rows = render(&[one], &model(), Format::Json);
        for told in
            ["\"gpu_info\": \"llvmpipe\"", "\"backends\": \"WGPU\"", "\"devices\": \"auto\""]
        {
            assert!(rows.contains(told), "{told}: {rows}");
        }
    }

    #[test]
    fn the_forms_for_programs() {
        let one = [measurement(1)];
        for (name, format) in [
            ("json", Format::Json),
            ("jsonl", Format::Jsonl),
            ("csv", Format::Csv),
            ("sql", Format::Sql),
        ] {
            insta::assert_snapshot!(name, render(&one, &model(), format));
        }
    }

    #[test]
    fn no_text_of_a_receipt_controls_forges_or_floods_what_a_benchmark_prints() {
        use hostile::{HOSTILE, assert_harmless, flood, forbidden};

        use brickscope_testing::hostile;
        let honest = serde_json::to_value(&measurement(1).receipt).expect("JSON");
        for place in hostile::places(&honest) {
            for (text, is_flood) in [(flood(20_000), true), (HOSTILE.to_owned(), false)] {
                let planted = hostile::planted(&honest, &place, &text);
                let Ok(receipt) = serde_json::from_value::<Receipt>(planted) else { continue };
                let (folder, choosing) = (HOSTILE.into(), Vec::new());
                let one = [Measurement { receipt, folder, answer: None, choosing }];
                let table = markdown(&one, &model()) + &notes(&one[0]);
                assert_harmless(&format!("{place:?}"), &table);
                assert_harmless(&format!("{place:?}"), &across(&one, Path::new(HOSTILE)));
                let n_tests = one[0].receipt.tests.len();
                for (format, lines) in [(Format::Csv, n_tests + 1), (Format::Sql, 0)] {
                    let rows = render(&one, &model(), format);
                    assert_eq!(forbidden(&rows), None, "{place:?}");
                    assert!(lines == 0 || rows.lines().count() == lines, "{place:?}: {rows}");
                    assert!(!is_flood || rows.len() < 40_000, "{place:?}");
                }
            }
        }
    }

    #[test]
    fn no_cell_of_a_benchmark_is_a_formula() {
        for start in ["=", "+", "-", "@", "'"] {
            let mut one = [measurement(1)];
            one[0].receipt.model.path = format!("{start}HYPERLINK(\"http://a\")");
            one[0].folder = format!("{start}1+1").into();
            let csv = render(&one, &model(), Format::Csv);
            let tests = one[0].receipt.tests.len();
            let cell = format!(",\"'{start}HYPERLINK(\"\"http://a\"\")\",");
            assert_eq!(csv.matches(&cell).count(), tests, "{csv}");
            assert_eq!(csv.matches(&format!(",\"'{start}1+1\",")).count(), tests, "{csv}");
            assert!(!csv.contains(&format!(",\"{start}H")), "{csv}");
        }
    }

    #[test]
    fn sizes_are_written_as_llama_bench_writes_them() {
        assert_eq!(size(1_954_816), "1.86 MiB");
        assert_eq!(size(1 << 30), "1.00 GiB");
        assert_eq!(parameters(999_999_999), "1000.00 M");
        assert_eq!(parameters(1_100_048_384), "1.10 B");
    }
}
