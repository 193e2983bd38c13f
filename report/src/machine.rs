//! The model, the machine, the clock and overhead, the receipt and the devices of a run.

use brickscope_analysis::receipt::Receipt;
use brickscope_analysis::requests::counts_by_passes;
use brickscope_profile::{CeilingReading, Ceilings, Profile, ReadingTime};
use serde_json::json;

use super::figure::{From, absent, at, count, div, percent, scaled, signed, time};
use super::html::{Table, note, reason, said, told};

/// A table of facts: names and values.
struct Facts {
    rows: String,
    title: String,
}

impl Facts {
    fn new(title: &str) -> Self {
        Self { rows: String::new(), title: title.to_owned() }
    }

    fn row(&mut self, name: &str, html: &str) {
        self.rows.push_str(&format!("<tr><th scope=\"row\">{name}</th><td>{html}</td></tr>\n"));
    }

    fn told(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.row(name, &said(value));
        }
    }

    fn end(self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table class=\"facts\"><caption>{title}\
             </caption><tbody>\n{}</tbody></table></div>\n",
            self.rows,
            title = self.title
        )
    }
}

pub(super) fn section(profile: &Profile) -> String {
    let mut html = String::new();
    html.push_str(&run(profile));
    if let Some(imported) = &profile.imported {
        let mut facts = Facts::new("How it was measured, according to the imported file");
        for (name, value) in
            imported.conditions.iter().filter(|(_, value)| !value.is_empty()).take(60)
        {
            facts.row(&said(name), &said(value));
        }
        html.push_str(&facts.end());
    }
    html.push_str(&model(profile));
    html.push_str(&machine(profile));
    html.push_str(&how_known(profile));
    html
}

fn run(profile: &Profile) -> String {
    let mut facts = Facts::new("Run");
    if let Some(run) = &profile.run {
        if !run.command.is_empty() {
            facts.row("command", &format!("<code>{}</code>", told(&run.command.join(" "))));
        }
        facts.told("backend", Some(&run.backend));
        if run.threads > 0 {
            facts.row("threads", &count(run.threads, at("/run/threads")));
        }
        let (prompt, generated) = match counts_by_passes(profile) {
            true => ("tokens in prefill passes", "tokens in decode passes"),
            false => ("tokens of the prompt", "tokens generated"),
        };
        for (name, tokens, field) in [
            (prompt, run.prompt_tokens, "prompt_tokens"),
            (generated, run.generated_tokens, "generated_tokens"),
        ] {
            if (run.prompt_tokens, run.generated_tokens) != (0, 0) {
                facts.row(name, &count(tokens, at(format!("/run/{field}"))));
            }
        }
    }
    facts.told("collected", Some(&profile.created));
    facts.told("brickscope version", Some(&profile.brickscope_version));
    facts.end()
}

fn model(profile: &Profile) -> String {
    let mut facts = Facts::new("Model");
    let Some(model) = &profile.model else { return reason("The model is not recorded.") };
    facts.told("name", model.name.as_deref());
    facts.told("file", Some(&model.path));
    facts.told("architecture", Some(&model.architecture));
    facts.told("quantisation", Some(&model.quantization));
    // 0 means unknown.
    let is_told = |number: u64| number > 0;
    if is_told(model.parameters) {
        facts.row("weights", &scaled(model.parameters, 1e6, " million", at("/model/parameters")));
    }
    if is_told(model.file_bytes) {
        let size = scaled(model.file_bytes, 1e6, " MB", at("/model/file_bytes"));
        facts.row("size of the file", &size);
    }
    if is_told(model.layers.into()) {
        facts.row("layers", &count(model.layers, at("/model/layers")));
    }
    if is_told(model.embedding_length.into()) {
        facts.row("embedding", &count(model.embedding_length, at("/model/embedding_length")));
    }
    if model.synthetic {
        facts.row("weights are", "random: the timings are real, the text is noise");
    }
    facts.end()
}

fn machine(profile: &Profile) -> String {
    let mut html = String::new();
    match &profile.machine {
        None => html.push_str(&reason("The machine is not recorded.")),
        Some(machine) => {
            let mut facts = Facts::new("Machine");
            facts.told("processor", machine.cpu.as_deref());
            facts.row("system", &format!("{} {}", said(&machine.os), said(&machine.arch)));
            if let Some(cpus) = machine.logical_cpus {
                facts.row("logical CPUs", &count(cpus, at("/machine/logical_cpus")));
            }
            if let Some(bytes) = machine.memory_bytes {
                facts.row("memory", &scaled(bytes, 1e9, " GB", at("/machine/memory_bytes")));
            }
            html.push_str(&facts.end());
        }
    }
    match (&profile.ceilings, &profile.ceilings_absent) {
        (Some(ceilings), _) => {
            let mut facts = Facts::new("Ceilings");
            facts_of(ceilings, &mut facts, |field| at(format!("/ceilings/{field}")));
            html.push_str(&facts.end());
        }
        (None, Some(absent)) => html.push_str(&reason(&format!("No ceilings: {}", absent.reason))),
        (None, None) => {
            html.push_str(&reason("No ceilings: the machine's limits were not measured."))
        }
    }
    html
}

/// What a machine or a device was measured to do at best.
fn facts_of(ceilings: &Ceilings, facts: &mut Facts, place: impl Fn(&str) -> From) {
    let read = place("read_bytes_per_second");
    facts.row("reads from memory", &scaled(ceilings.read_bytes_per_second, 1e9, " GB/s", read));
    for (name, nth) in memory_readings(&ceilings.readings) {
        let place = place(&format!("readings/{nth}/read_bytes_per_second"));
        let rate = ceilings.readings[nth].read_bytes_per_second;
        facts.row(name, &scaled(rate, 1e9, " GB/s", place));
    }
    let peak = place(ceilings.peak_field());
    facts.row("arithmetic", &scaled(ceilings.peak_per_second(), 1e9, " GFLOP/s", peak));
    for (nth, cache) in ceilings.caches.iter().enumerate().take(8) {
        let read = place(&format!("caches/{nth}/read_bytes_per_second"));
        let rate = scaled(cache.read_bytes_per_second, 1e9, " GB/s", read);
        let size = scaled(cache.bytes, 1024.0, " KiB", place(&format!("caches/{nth}/bytes")));
        facts.row(&said(&cache.level), &format!("{rate} from {size}"));
    }
    facts.told("basis", Some(&ceilings.basis));
}

/// The measurements of memory that are shown, by their position: those around the run, and the ends of the earlier ones.
fn memory_readings(readings: &[CeilingReading]) -> Vec<(&'static str, usize)> {
    let at = |when: ReadingTime| {
        readings.iter().enumerate().filter(move |(_, reading)| reading.when == when)
    };
    let by_rate = |a: &(usize, &CeilingReading), b: &(usize, &CeilingReading)| {
        a.1.read_bytes_per_second.total_cmp(&b.1.read_bytes_per_second)
    };
    let rows = [
        ("memory right before the run", at(ReadingTime::Before).next()),
        ("memory right after it", at(ReadingTime::After).next()),
        ("memory earlier, the lowest", at(ReadingTime::Kept).min_by(by_rate)),
        ("memory earlier, the highest", at(ReadingTime::Kept).max_by(by_rate)),
    ];
    rows.into_iter().filter_map(|(name, row)| row.map(|(nth, _)| (name, nth))).collect()
}

fn how_known(profile: &Profile) -> String {
    let mut facts = Facts::new("Clock and overhead");
    let clock = &profile.clock;
    let place = |field: &str| at(format!("/clock/{field}"));
    facts.told("clock", Some(&clock.source));
    if let Some(hertz) = clock.hertz {
        let mut rate = scaled(hertz, 1e9, " GHz", place("hertz"));
        if let Some(error) = clock.hertz_error_ppm {
            rate.push_str(&format!(" ± {}", scaled(error, 1.0, " ppm", place("hertz_error_ppm"))));
        }
        facts.row("clock rate", &rate);
    }
    if let Some(step) = clock.resolution_ns {
        facts.row("clock step", &time(step, place("resolution_ns")));
    }
    if let Some(read) = clock.read_ns {
        facts.row("cost of a reading", &time(read, place("read_ns")));
    }
    if let Some(ppm) = clock.drift_ppm {
        facts.row("drift from the system clock", &signed(ppm, 1.0, 2, " ppm", place("drift_ppm")));
    }
    let overhead = |field: &str| at(format!("/overhead/{field}"));
    if let Some(span_ns) = profile.overhead.span_ns {
        facts.row("cost of a span", &time(span_ns, overhead("span_ns")));
    }
    let preparations = profile.overhead.preparations.iter().enumerate();
    if let Some((nth, longest)) = preparations.max_by_key(|(_, of)| of.duration_ns) {
        let place = overhead(&format!("preparations/{nth}/duration_ns"));
        facts.row("longest making of a thread’s log", &time(longest.duration_ns, place));
    }
    // The spans of another program aren't recorded by this one.
    if profile.imported.is_none() {
        facts.row("spans recorded", &count(profile.overhead.spans, overhead("spans")));
    }
    if let Some(measured) = &profile.overhead.measured {
        let of =
            |value, field| signed(value, 0.01, 2, " %", overhead(&format!("measured/{field}")));
        let cost = format!(
            "{} ({} to {})",
            of(measured.estimate, "estimate"),
            of(measured.low, "low"),
            of(measured.high, "high")
        );
        facts.row("recording slows down decode by", &cost);
    }
    facts.told("basis of the cost", Some(&profile.overhead.basis));
    match (&profile.other_load, &profile.other_load_absent) {
        (Some(load), _) => {
            let of = |field: &str| -> From {
                div(at(format!("/other_load/{field}")), json!(["max", 1, "/other_load/machine_ns"]))
            };
            let mut used = percent(load.others_share(), of("others_ns"));
            used.push_str(" of this machine’s CPU time while profiling was on");
            if let Some(steal) = load.steal_share() {
                used.push_str(&format!("; the hypervisor took {}", percent(steal, of("steal_ns"))));
            }
            facts.row("other processes used", &used);
        }
        (None, Some(why)) => facts.row("other processes used", &told(&why.reason)),
        (None, None) => facts.row("other processes used", &absent("not measured")),
    }
    if let Some(why) = &profile.counters_absent {
        facts.row("hardware counters", &told(&why.reason));
    }
    facts.end()
}

/// The receipt of the run; empty without one.
pub(super) fn receipt(receipt: Option<&Receipt>) -> String {
    let Some(receipt) = receipt else { return String::new() };
    let from = |pointer: &str| -> From { json!(["receipt", pointer]) };
    let mut facts = Facts::new("Receipt");
    facts.told("written", Some(&receipt.timestamp));
    if let Some(device) = &receipt.device {
        facts.told("device", Some(&device.name));
    }
    match &receipt.seal {
        Some(seal) => {
            let holds = receipt.canonical_sha256().is_ok_and(|hash| hash == seal.sha256);
            let holds =
                if holds { "its seal is intact" } else { "it was changed after it was sealed" };
            facts.row("seal", holds);
            facts.row("SHA-256", &format!("<code>{}</code>", said(&seal.sha256)));
            for signature in seal.signatures.iter().take(8) {
                facts.row("signed by", &format!("<code>{}</code>", said(&signature.public_key)));
            }
        }
        None => facts.row("seal", "none"),
    }
    facts.told(
        "SHA-256 of the model",
        Some(&receipt.model.sha256).filter(|hash| !hash.is_empty()).map(String::as_str),
    );
    for warning in receipt.load.doubts.iter().take(20) {
        facts.row("warning", &told(warning));
    }
    let mut html = facts.end();
    let columns = ["Test", "#Samples", "#Tokens/s", "#from", "#to", "#Deviation"];
    let mut table = Table::new(
        "Tests of the receipt: mean rate of this process, with its confidence interval",
        &columns,
    );
    for (nth, test) in receipt.tests.iter().enumerate().take(40) {
        let of = &test.aggregates;
        let rate = |value: Option<f64>, field: &str| {
            let from = from(&format!("/tests/{nth}/aggregates/{field}"));
            value.map_or_else(|| absent("-"), |value| scaled(value, 1.0, "", from))
        };
        // No rate is below 0: then the repetitions vary too much for Student's t.
        let holds = of.low_ts.is_some_and(|low| low > 0.0);
        let end = |value: Option<f64>| value.filter(|_| holds);
        table.row(&[
            &said(&test.name),
            &count(of.samples, from(&format!("/tests/{nth}/aggregates/samples"))),
            &rate(of.avg_ts, "avg_ts"),
            &rate(end(of.low_ts), "low_ts"),
            &rate(end(of.high_ts), "high_ts"),
            &rate(of.stddev_ts, "stddev_ts"),
        ]);
    }
    html.push_str(&table.end());
    html.push_str(&note("<code>brickscope verify-receipt RUN</code> checks it."));
    html
}

/// The devices: facts beyond the tables of their streams; empty if everything ran on the CPU.
pub(super) fn devices(profile: &Profile) -> String {
    if profile.devices.is_empty() {
        return String::new();
    }
    let mut html = String::new();
    for (nth, device) in profile.devices.iter().enumerate().take(8) {
        let place = |field: &str| at(format!("/devices/{nth}/{field}"));
        html.push_str(&format!("<h3>{}</h3>\n", said(&device.name)));
        let mut facts = Facts::new("Device");
        facts.told("API", Some(&device.api));
        facts.told("driver", Some(&device.driver));
        facts.row("clock tick", &time(device.ticks.ns_per_tick, place("ticks/ns_per_tick")));
        let looks = [
            ("first alignment error", "alignment", device.alignment),
            ("last alignment error", "last_alignment", device.last_alignment),
        ];
        for (name, field, look) in looks {
            if let Some(look) = look {
                facts.row(name, &time(look.error_ns, place(&format!("{field}/error_ns"))));
            }
        }
        match (&device.stamp, &device.stamp_absent) {
            (Some(stamp), _) => facts.row(
                "cost of a mark",
                &format!(
                    "the host {}, the device {}{}",
                    time(stamp.host_ns, place("stamp/host_ns")),
                    time(stamp.device_ns, place("stamp/device_ns")),
                    stamp.pass_ns.map_or(String::new(), |ns| {
                        format!(", those of a pass {} more", time(ns, place("stamp/pass_ns")))
                    })
                ),
            ),
            (None, Some(why)) => facts.row("cost of a mark", &told(&why.reason)),
            (None, None) => {}
        }
        match (&device.ceilings, &device.ceilings_absent) {
            (Some(ceilings), _) => {
                facts_of(ceilings, &mut facts, |field| place(&format!("ceilings/{field}")));
            }
            (None, Some(why)) => facts.row("ceilings", &told(&why.reason)),
            (None, None) => {}
        }
        if device.untimed_passes() > 0 {
            let fields = ["unsettled", "lost", "disordered", "abandoned", "overfull"];
            let parts = fields.map(|field| place(&format!("{field}_passes")));
            facts.row(
                "passes without times",
                &count(device.untimed_passes(), super::figure::sum(parts.to_vec())),
            );
        }
        html.push_str(&facts.end());
        let columns = ["Stream", "Phase", "Grain", "#Passes", "#Span", "#Timed", "#Gaps"];
        let mut table = Table::new("Grain of its streams", &columns);
        for (index, stream) in device.streams.iter().enumerate().take(16) {
            for (row, of) in stream.grains.iter().enumerate().take(16) {
                let at = |field: &str| place(&format!("streams/{index}/grains/{row}/{field}"));
                table.row(&[
                    &said(&stream.name),
                    of.phase.name(),
                    of.grain.name(),
                    &count(of.passes, at("passes")),
                    &time(of.wall_ns, at("wall_ns")),
                    &time(of.timed_ns, at("timed_ns")),
                    &time(of.gaps_ns, at("gaps_ns")),
                ]);
            }
        }
        if device.streams.iter().any(|stream| !stream.grains.is_empty()) {
            html.push_str(&table.end());
        }
    }
    html
}
