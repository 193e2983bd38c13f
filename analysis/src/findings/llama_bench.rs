//! What the totals of llama-bench tell: how far its tests are from the limits of the machine.
//!
//! A token of a generation test reads the weights once, and a token of a prompt test multiplies by each weight once; the
//! embedding is only looked up, and of experts some are used. The KV cache and attention are left out, which are little
//! beside the weights as long as there are few tokens: with more, nothing is told.

use brickscope_profile::run::Format;
use brickscope_profile::text::printable;
use brickscope_profile::{Ceilings, Model, Phase};

use super::facts::{Facts, PhaseFacts};
use super::memory_roof::{in_tokens, rates, smaller};
use super::weights::{LEAST_SAVED, Read, SMALL_BITS};
use super::{Finding, FindingKind, Findings, Gain};
use crate::roofline::{AT, MOST, NEAR};
use crate::words::{digits, fraction, size, time, whole_percent};

const FAR: &str = "far-from-the-roof";
/// With more tokens in the cache, what it has is no longer little beside the weights: at 2048 tokens of a model of 8
/// billion weights in q4_0 it is a twentieth of them (256 MB beside 4.7 GB).
const MOST_TOKENS: f64 = 2_048.0;

/// How a list becomes a run.
const ROWS: &str = "1,2` makes a run of a prompt and a generation test of it";

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    if !facts.is_from(Format::LlamaBench) {
        return;
    }
    if facts.phases.is_empty() {
        let tests = facts.profile.imported.as_ref().map_or(0, |imported| imported.tests.len());
        let of_it = if tests == 1 { "1` makes a run of it" } else { ROWS };
        return findings.unknown(
            FAR,
            format!(
                "how far these tests are from the machine's limits is not known: they are a list of {tests} without passes; \
                 `brickscope import --rows {of_it}, and --ceilings-here measures the limits"
            ),
        );
    }
    let whole = "since llama-bench times a repetition as a whole: `brickscope run -- llama-bench` records more";
    for (rule, what) in [
        ("slow-layer", "which bricks and layers are slow"),
        ("gaps-between-passes", "how much time lies between tokens"),
        ("threads-wait", "how long threads wait for each other, or for a CPU,"),
    ] {
        findings.unknown(rule, format!("{what} is not known, {whole}"));
    }
    match Known::of(facts) {
        Ok(known) => {
            for of in &facts.phases {
                match of.phase {
                    Phase::Decode => known.generation(facts, of, findings),
                    // llama-bench has no other test.
                    Phase::Prefill | Phase::Encode | Phase::Training => {
                        known.prompt(facts, of, findings)
                    }
                }
            }
        }
        Err(why) => {
            findings.unknown(FAR, format!("how fast these tests could be is not known: {why}"))
        }
    }
}

/// What the least time of a test follows from.
struct Known<'p> {
    model: &'p Model,
    ceilings: &'p Ceilings,
    /// Bytes that a token reads, at most.
    bytes: f64,
    read: Option<Read<'p>>,
    /// Memory around the run, the lowest and the highest.
    memory: [f64; 2],
}

impl<'p> Known<'p> {
    fn of(facts: &Facts<'p>) -> Result<Self, String> {
        let run = facts.profile.run.as_ref();
        let backend = run.map_or("", |run| run.backend.as_str());
        if !is_of_the_cpu(backend) {
            return Err(format!(
                "they ran on {}, whose limits were not measured",
                printable(backend)
            ));
        }
        let Some(ceilings) = &facts.profile.ceilings else {
            return Err(
                "the file has no limits of the machine; `brickscope import --ceilings-here` measures them on the machine of the run"
                    .to_owned(),
            );
        };
        let Some(model) = facts.profile.model.as_ref().filter(|model| model.file_bytes > 0) else {
            return Err("the file doesn't state the size of the model".to_owned());
        };
        if has_experts(model) {
            return Err("a token uses only some of the model's experts".to_owned());
        }
        let read = Read::of(model);
        let bytes = read.as_ref().map_or(model.file_bytes as f64, |read| read.bytes);
        if let Some(cache) = ceilings.caches.iter().find(|cache| cache.bytes as f64 >= bytes) {
            return Err(format!("{} may hold the whole model", printable(&cache.level)));
        }
        let memory = ceilings.memory_spread();
        if memory.into_iter().any(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err("the bandwidth of memory was not measured".to_owned());
        }
        Ok(Self { model, ceilings, bytes, read, memory })
    }

    fn generation(&self, facts: &Facts<'_>, of: &PhaseFacts<'_>, findings: &mut Findings) {
        let [slow, fast] = self.memory;
        let tokens = of.total.tokens as f64 / of.total.passes as f64;
        if tokens <= 0.0 {
            return;
        }
        // Keys and values of so few tokens are little beside the weights; of how many bytes they are, the file doesn't say.
        if last_position(facts) + tokens > MOST_TOKENS {
            findings.unknown(
                FAR,
                "how fast generation could be is not known: how much of the KV cache a token reads is not in the file",
            );
            return;
        }
        let now_ns = of.mean_ns / tokens;
        let least_ns = self.bytes / fast * 1e9;
        let (reached, at_least) = (least_ns / now_ns, self.bytes / slow * 1e9 / now_ns);
        if reached > MOST {
            findings.unknown(
                FAR,
                "how fast generation could be is not known: if each token read all weights, that would be more than \
                 memory gives; a part of them isn't read, or the limits are of another machine",
            );
            return;
        }
        let is_at = reached >= AT || at_least >= AT;
        let part = whole_percent(reached);
        let finding = if is_at || reached >= NEAR {
            Finding::new("memory-roof", FindingKind::Limit, Some(Phase::Decode))
        } else {
            Finding::new(FAR, FindingKind::Slow, Some(Phase::Decode))
        };
        let mut finding = finding
            .because(
                format!("a token takes {}: {} tokens/s", time(now_ns), digits(1e9 / now_ns)),
                "/phases, decode",
            )
            .because(
                self.reads(),
                if self.read.is_some() { "/model/weights" } else { "/model/file_bytes" },
            )
            .because(
                format!(
                    "memory gives {}; generation reaches {}{part}",
                    rates(slow, fast),
                    self.at_most()
                ),
                "/ceilings, readings",
            );
        if finding.kind == FindingKind::Slow {
            finding.what =
                format!("generation reaches {}{part} of what memory gives", self.at_most());
            finding.advice = format!(
                "try other `{}`, and look where the time goes: `brickscope run -- llama-bench …`",
                facts.flags.threads
            );
            finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
            "no number of threads and no kernel is faster".clone_into(&mut finding.refuted_if);
            let gain = Gain::between(now_ns, least_ns, [0.0, now_ns - least_ns]);
            findings.found.push(finding.gains(gain));
            return;
        }
        finding.what =
            format!("each token reads {} about as fast as memory gives them", size(self.bytes));
        finding.advice = format!(
            "read fewer bytes a token: smaller weights, several sequences at once, or speculative decoding; faster \
             kernels alone can save {} of the time at most",
            fraction(1.0 - reached)
        );
        "with smaller weights a token takes as long".clone_into(&mut finding.refuted_if);
        let fewer = match &self.read {
            Some(read) => read.fewer(),
            None if self.model.parameters > 0 => {
                self.bytes - self.model.parameters as f64 * SMALL_BITS / 8.0
            }
            None => {
                findings.found.push(finding.cannot_predict("the number of weights is not known"));
                return;
            }
        };
        if fewer < LEAST_SAVED * self.bytes {
            findings.found.push(finding.cannot_predict("the weights are small already"));
            return;
        }
        let gain = smaller(now_ns, least_ns, fewer / self.bytes, fewer, self.memory);
        if let Some(gain) = gain {
            finding = finding
                .because(
                    format!(
                        "q4_k has {SMALL_BITS} bits a weight, and a token would read {} less",
                        size(fewer)
                    ),
                    "/model, parameters",
                )
                .because(in_tokens(&gain, 1.0), "the prediction");
        }
        findings.found.push(finding.gains(gain));
    }

    fn prompt(&self, facts: &Facts<'_>, of: &PhaseFacts<'_>, findings: &mut Findings) {
        let tokens = of.total.tokens as f64 / of.total.passes as f64;
        let (peak, numbers) = self.peak();
        if last_position(facts) + tokens > MOST_TOKENS {
            findings.unknown(
                FAR,
                "how fast the prompt could be is not known: how much attention computes is not in the file",
            );
            return;
        }
        let flops = 2.0 * self.model.parameters as f64 * tokens;
        if !peak.is_finite() || peak <= 0.0 || flops <= 0.0 {
            findings.unknown(
                FAR,
                "how fast the prompt could be is not known: the number of weights, or the machine's peak, is not known",
            );
            return;
        }
        let now_ns = of.mean_ns;
        let by_memory = self.bytes / self.memory[1] * 1e9;
        let least_ns = (flops / peak * 1e9).max(by_memory);
        let is_of_memory = least_ns <= by_memory;
        let reached = least_ns / now_ns;
        if reached > MOST {
            findings.unknown(
                FAR,
                "how fast the prompt could be is not known: if each token used all weights, that would be more than the \
                 machine was measured to compute",
            );
            return;
        }
        let part = whole_percent(reached);
        let limit = if is_of_memory { "what memory gives" } else { "the peak" };
        let rule = match (reached >= AT, is_of_memory) {
            (true, true) => "memory-roof",
            (true, false) => "compute-roof",
            (false, _) => FAR,
        };
        let kind = if rule == FAR { FindingKind::Slow } else { FindingKind::Limit };
        let mut finding = Finding::new(rule, kind, Some(Phase::Prefill))
            .because(
                format!(
                    "{tokens:.0} tokens take {}: {} tokens/s",
                    time(now_ns),
                    digits(tokens * 1e9 / now_ns)
                ),
                "/phases, prefill",
            )
            .because(
                format!(
                    "with two operations for each token and weight, at most {} GFLOP/s",
                    digits(flops / now_ns)
                ),
                "/model/parameters",
            )
            .because(
                format!("the peak is {} GFLOP/s, of {numbers}", digits(peak / 1e9)),
                "/ceilings",
            );
        if is_of_memory {
            finding = finding.because(
                format!("so few tokens take at least the time to read {}", size(self.bytes)),
                "/ceilings, readings",
            );
        }
        finding.what = format!("the prompt reaches at most {part} of {limit}");
        if rule == FAR {
            finding.advice = format!(
                "try other `{}`, a larger `-ub`, and look where the time goes: `brickscope run -- llama-bench …`",
                facts.flags.threads
            );
            finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
            "no number of threads, no batch and no kernel is faster"
                .clone_into(&mut finding.refuted_if);
            let gain = Gain::between(now_ns, least_ns, [0.0, now_ns - least_ns]);
            findings.found.push(finding.gains(gain));
            return;
        }
        "kernels have little to gain: try less work (a smaller model), more cores, or longer prompts if memory is the limit"
            .clone_into(&mut finding.advice);
        "another kernel is faster".clone_into(&mut finding.refuted_if);
        findings.found.push(
            finding.cannot_predict("it depends on what else is computed, or on other hardware"),
        );
    }

    /// The peak of the arithmetic that the format is multiplied with, and the name of its numbers.
    fn peak(&self) -> (f64, &'static str) {
        let is_float = |format: &str| matches!(format, "f32" | "f16" | "bf16");
        let lower = self.model.architecture.to_lowercase();
        let by_type = lower.split([' ', '-']).any(is_float);
        let mut matrices = self.model.weights.iter().filter(|group| group.is_matrix).peekable();
        let is_of_floats = match matrices.peek() {
            Some(_) => matrices.all(|group| is_float(&group.format)),
            None => by_type,
        };
        match self.ceilings.int8_ops_per_second.filter(|_| !is_of_floats) {
            Some(peak) if peak > self.ceilings.flops_per_second => (peak, "bytes"),
            _ => (self.ceilings.flops_per_second, "floats"),
        }
    }

    fn reads(&self) -> String {
        match &self.read {
            Some(read) => format!("it reads {}, most of it {}", size(self.bytes), read.most()),
            None => format!(
                "it reads at most {}: an embedding that is only looked up counts, since the file doesn't tell it apart",
                size(self.bytes)
            ),
        }
    }

    fn at_most(&self) -> &'static str {
        if self.read.is_some() { "" } else { "at most " }
    }
}

/// The farthest position that a test began at, in tokens.
fn last_position(facts: &Facts<'_>) -> f64 {
    facts.profile.passes.iter().map(|pass| pass.position).max().unwrap_or(0) as f64
}

/// What llama-bench calls backends without a device.
fn is_of_the_cpu(backend: &str) -> bool {
    !backend.is_empty() && backend.split(',').all(|one| matches!(one.trim(), "CPU" | "BLAS"))
}

/// By the tensors, or by llama.cpp's name for the type of model: `qwen3moe 30B.A3B Q4_K`, `llama 8x7B Q4_K`.
fn has_experts(model: &Model) -> bool {
    let is_times = |word: &str| {
        let number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        word.split_once('x').is_some_and(|(n, size)| number(n) && number(size))
    };
    let kind = model.architecture.to_lowercase();
    model.weights.iter().any(|group| group.name.contains("_exps"))
        || kind.contains("moe")
        || kind.split(' ').any(|word| is_times(word) || word.contains(".a"))
}
