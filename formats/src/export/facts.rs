//! What a timeline says about its run besides the slices: what ran, what was lost, and what is absent and
//! why.

use brickscope_profile::{Absent, DeviceStream, Launch, NameKind, Profile};

use super::timeline::{SpanKind, kind_of};

/// A fact's value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fact {
    Text(String),
    Count(u64),
    Number(f64),
}

/// All facts about a run, by name. `part` is counted from 1; `left_out` is the number of spans for which
/// the layout had no track.
pub(super) fn facts(profile: &Profile, part: u64, left_out: u64) -> Vec<(String, Fact)> {
    let mut facts = Facts(Vec::new());
    facts.text("brickscope", Some(&profile.brickscope_version));
    facts.count("schema_version", Some(profile.schema_version.into()));
    facts.text("created", Some(&profile.created));
    facts.count("part", Some(part));
    for (nth, line) in (1..).zip(profile.dropped.lines()) {
        facts.text(&format!("dropped.{nth}"), Some(&line));
    }
    if left_out > 0 {
        let line = format!("spans without a track, since they overlap too many others: {left_out}");
        facts.text("left out", Some(&line));
    }
    facts.text("clock.source", Some(&profile.clock.source));
    facts.count("clock.resolution_ns", profile.clock.resolution_ns);
    facts.text("clock.instead", profile.clock.instead.as_ref());
    facts.text("clock.absent", profile.clock.absent.as_ref());
    if profile.clock.anchors.is_empty() {
        let reason = "the profile has no readings of both clocks".to_owned();
        facts.text("absent.CLOCK_MONOTONIC", Some(&reason));
    }
    for (nth, anchor) in (1..).zip(&profile.clock.anchors) {
        facts.count(&format!("clock.anchor.{nth}.at_ns"), Some(anchor.at_ns));
        facts.count(&format!("clock.anchor.{nth}.monotonic_ns"), Some(anchor.monotonic_ns));
        facts.count(&format!("clock.anchor.{nth}.monotonic_raw_ns"), Some(anchor.monotonic_raw_ns));
        facts.count(&format!("clock.anchor.{nth}.unix_ns"), anchor.unix_ns);
        facts.count(&format!("clock.anchor.{nth}.width_ns"), Some(anchor.width_ns));
    }
    facts.run(profile);
    for (name, absent) in [
        ("absent.ceilings", &profile.ceilings_absent),
        ("absent.counters", &profile.counters_absent),
        ("absent.other_load", &profile.other_load_absent),
    ] {
        facts.text(name, absent.as_ref().map(|Absent { reason }| reason));
    }
    facts.devices(profile);
    facts.counters(profile);
    facts.0
}

/// About how many bytes the facts take in a file.
pub(super) fn bytes(facts: &[(String, Fact)]) -> u64 {
    let of_value = |fact: &Fact| match fact {
        Fact::Text(text) => text.len(),
        Fact::Count(_) | Fact::Number(_) => 24,
    };
    facts.iter().map(|(name, fact)| (name.len() + of_value(fact) + 24) as u64).sum()
}

struct Facts(Vec<(String, Fact)>);

impl Facts {
    fn text(&mut self, name: &str, text: Option<&String>) {
        self.0.extend(text.map(|text| (name.to_owned(), Fact::Text(text.clone()))));
    }

    fn count(&mut self, name: &str, count: Option<u64>) {
        self.0.extend(count.map(|count| (name.to_owned(), Fact::Count(count))));
    }

    fn number(&mut self, name: &str, number: Option<f64>) {
        let known = number.filter(|number| number.is_finite());
        self.0.extend(known.map(|number| (name.to_owned(), Fact::Number(number))));
    }

    fn run(&mut self, profile: &Profile) {
        if let Some(run) = &profile.run {
            self.text("run.command", Some(&run.command.join(" ")));
            self.text("run.backend", Some(&run.backend));
            self.count("run.threads", (run.threads > 0).then_some(run.threads.into()));
            self.count("run.prompt_tokens", Some(run.prompt_tokens));
            self.count("run.generated_tokens", Some(run.generated_tokens));
        }
        if let Some(model) = &profile.model {
            self.text("model.path", Some(&model.path));
            self.text("model.name", model.name.as_ref());
            self.text("model.architecture", Some(&model.architecture));
            self.text("model.quantization", Some(&model.quantization));
            if model.synthetic {
                self.text("model.weights", Some(&"random: the text is noise".to_owned()));
            }
        }
        if let Some(machine) = &profile.machine {
            self.text("machine.os", Some(&machine.os));
            self.text("machine.arch", Some(&machine.arch));
            self.text("machine.cpu", machine.cpu.as_ref());
            self.count("machine.logical_cpus", machine.logical_cpus.map(Into::into));
        }
        self.text("not_finite", profile.not_finite.as_ref().map(ToString::to_string).as_ref());
        if let Some(imported) = &profile.imported {
            self.text("imported.format", Some(&imported.format));
            self.text("imported.file", Some(&imported.file));
            self.text("imported.program", imported.program.as_ref());
            for (nth, Absent { reason }) in (1..).zip(&imported.lacks) {
                self.text(&format!("imported.lacks.{nth}"), Some(reason));
            }
        }
        self.number("overhead.span_ns", profile.overhead.span_ns);
        self.text("overhead.basis", Some(&profile.overhead.basis));
        self.count("kv_cache.tokens", profile.observed.kv_cache_tokens);
    }

    fn devices(&mut self, profile: &Profile) {
        for (nth, device) in profile.devices.iter().enumerate() {
            let name = |what: &str| format!("device.{nth}.{what}");
            self.text(&name("name"), Some(&device.name));
            self.text(&name("api"), Some(&device.api));
            self.text(&name("driver"), Some(&device.driver));
            self.number(&name("ns_per_tick"), Some(device.ticks.ns_per_tick));
            self.count(&name("clock_error_ns"), device.clock_error_ns());
            for (look, alignment) in [("first", device.alignment), ("last", device.last_alignment)]
            {
                let Some(alignment) = alignment else { continue };
                self.count(&name(&format!("alignment.{look}.host_ns")), Some(alignment.host_ns));
                let ticks = Some(alignment.device_ticks);
                self.count(&name(&format!("alignment.{look}.device_ticks")), ticks);
                self.count(&name(&format!("alignment.{look}.error_ns")), Some(alignment.error_ns));
            }
            let untimed = device.untimed_passes();
            self.count(&name("untimed_passes"), (untimed > 0).then_some(untimed));
            self.text(&name("lost"), device.lost.as_ref());
            self.text(&name("failure"), device.failure.as_ref());
            for (stream_nth, stream) in device.streams.iter().enumerate() {
                let of_stream = |what: &str| name(&format!("stream.{stream_nth}.{what}"));
                self.launches(profile, stream, &of_stream);
                for (nth, line) in (1..).zip(stream.dropped.lines()) {
                    self.text(&name(&format!("stream.{stream_nth}.dropped.{nth}")), Some(&line));
                }
            }
        }
    }

    /// What is known of a stream's launches, or why there are none.
    fn launches(
        &mut self,
        profile: &Profile,
        stream: &DeviceStream,
        name: &dyn Fn(&str) -> String,
    ) {
        let mut spans = stream.spans.iter();
        if stream.launches.is_empty() {
            let reason = match spans.any(|span| kind_of(profile, span) != SpanKind::Layer) {
                true => "the profile has no launch times: earlier versions did not record them",
                false if !stream.passes.is_empty() => {
                    "no brick or kernel that was kept has a time of its own"
                }
                false => return,
            };
            self.text(&name("absent.launches"), Some(&reason.to_owned()));
            return;
        }
        let before = |launch: &&Launch| {
            let span = stream.spans.get(launch.span as usize);
            span.is_some_and(|span| launch.delay_ns(span) < 0)
        };
        let n = stream.launches.iter().filter(before).count() as u64;
        self.count(&name("spans that seem to begin before their launch"), (n > 0).then_some(n));
    }

    /// Hardware counters: sums only, since they are not known over time.
    fn counters(&mut self, profile: &Profile) {
        let counted = profile.totals.iter().filter(|total| total.kind == NameKind::Brick);
        for total in counted {
            let Some(counters) = &total.counters else { continue };
            let phase = total.phase.map_or("outside of passes", |phase| phase.name());
            let name = |what: &str| format!("counters.{phase}.{}.{what}", total.stats.name);
            self.count(&name("spans"), Some(counters.spans));
            self.count(&name("cycles"), counters.sums.cycles);
            self.count(&name("instructions"), counters.sums.instructions);
            self.count(&name("llc_misses"), counters.sums.llc_misses);
            self.count(&name("branch_misses"), counters.sums.branch_misses);
        }
    }
}
