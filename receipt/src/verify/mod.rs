//! Verifies a receipt: what can't be the result of a benchmark is refused, each time with a sentence that says
//! what and why. `docs/receipts.md` has the list.
//!
//! Every number may come from somebody who wants it believed. So arithmetic is wide or saturates, and two
//! tables are only compared item by item once their lengths agree.

mod claims;
mod command;
mod derived;
mod device;
mod figures;
mod host;
mod kernels;
mod likeness;
mod machine;
mod pairs;
mod ranges;
mod rerun;
mod roof;
mod shape;
mod table;
mod timeline;
mod work;

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use brickscope_profile::text::printable_in;
use serde::Serialize;

pub use self::claims::Claims;
pub use self::rerun::{Rerun, rerun_agrees};
pub use self::table::{BorneOut, CanBe, FIELDS, Field};
use super::file::{MAX_BYTES, NO_TIMES, ReceiptError};
use super::v1::{Receipt, Sample, Test, VERSION, VERSION_WITH_DEVICE};

/// Requirements beyond the receipt itself.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Refuse a receipt without GPU kernels, whatever its backend.
    pub require_gpu_kernels: bool,
    /// The SHA-256 (in hexadecimal) and the size in bytes of the model's file on this machine.
    pub model: Option<(String, u64)>,
    /// The public key, in hexadecimal, that must have signed.
    pub signed_by: Option<String>,
    /// This moment in seconds since 1970, after which nothing can have been measured; `None` asks the system's clock.
    pub now: Option<u64>,
}

/// The result of verifying a receipt.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Why the receipt is refused, one for each [`Code`] and, where it names fields, for each of these; empty if it is
    /// accepted.
    pub refusals: Vec<Refusal>,
    /// What couldn't be checked, and why: `what: reason`.
    pub not_checked: Vec<String>,
    /// What makes the figures doubtful without making them false, as the receipt itself states.
    pub doubts: Vec<String>,
    /// The public keys, in hexadecimal, of valid signatures.
    pub signed_by: Vec<String>,
    /// What a receipt states that has neither raw times nor a hash, as those of BitNet.rs: it isn't accepted, even if
    /// there is no reason to refuse it.
    pub not_verifiable: Option<Claims>,
}

impl Verdict {
    /// Whether the receipt could be verified, and there is no reason to refuse it.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.refusals.is_empty() && self.not_verifiable.is_none()
    }

    /// Why the receipt isn't verified, in a few words: the codes of its refusals. `None` if it is accepted.
    #[must_use]
    pub fn not_verified(&self) -> Option<String> {
        let mut codes: Vec<&str> =
            self.refusals.iter().map(|refusal| refusal.code.name()).collect();
        codes.dedup();
        if codes.is_empty() && self.not_verifiable.is_some() {
            codes.push("not verifiable");
        }
        (!codes.is_empty()).then(|| codes.join(", "))
    }
}

/// A reason to refuse a receipt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refusal {
    /// What kind of reason, for scripts.
    pub code: Code,
    /// What is wrong, and why it can't be right: one sentence.
    pub sentence: String,
    /// The number of further places with the same kind of fault.
    pub more: u64,
    /// What is wrong, where a code stands for many things.
    #[serde(skip)]
    about: String,
}

impl Refusal {
    fn new(code: Code, sentence: impl Into<String>) -> Self {
        // A parser's message may contain a field's name, which may be anything.
        Self { code, sentence: printable_in(&sentence.into(), 1000), more: 0, about: String::new() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)?;
        match self.more {
            0 => Ok(()),
            1 => f.write_str(" (and one more like it)"),
            more => write!(f, " (and {more} more like it)"),
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// The kinds of reasons. Their names don't change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Code {
            /// All codes, in the order in which they are checked.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name for scripts.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

codes! {
    /// More bytes than a receipt can have.
    TooLong "too-long",
    /// Not UTF-8, or not JSON.
    NotJson "not-json",
    /// The file ends too early.
    Truncated "truncated",
    /// A field is missing, unknown, duplicated, or of another type.
    Schema "schema",
    /// Another version of the schema.
    Version "version",
    /// There is no hash.
    Unsealed "unsealed",
    /// A number that JSON readers may read differently.
    Number "number",
    /// The hash doesn't match the content.
    HashMismatch "hash-mismatch",
    /// An invalid signature.
    SignatureInvalid "signature-invalid",
    /// The wanted key hasn't signed.
    NotSignedBy "not-signed-by",
    /// A field with an impossible text or number.
    Field "field",
    /// Fields that can't both be true.
    Contradiction "contradiction",
    /// A doubt that follows from the figures isn't written.
    DoubtsErased "doubts-erased",
    /// The command line asked for something else.
    CommandMismatch "command-mismatch",
    /// The model's file is a different one.
    ModelMismatch "model-mismatch",
    /// The kernels didn't run.
    NotReal "not-real",
    /// Invalid ids of kernels.
    KernelIds "kernel-ids",
    /// A kernel that only pretends.
    MockKernel "mock-kernel",
    /// The kernels of the receipt and of its tests, or of the tests and their work, differ.
    KernelsMismatch "kernels-mismatch",
    /// A GPU is claimed, but none of its kernels ran.
    NoGpuKernels "no-gpu-kernels",
    /// The model is quantised, but no kernel for that ran.
    NoQuantizedKernels "no-quantized-kernels",
    /// No raw samples.
    SamplesMissing "samples-missing",
    /// Samples are missing, or there are more than were planned.
    RepetitionsMismatch "repetitions-mismatch",
    /// Samples of the warm-up among those that count.
    WarmUpCounted "warm-up-counted",
    /// Numbers of tokens that contradict each other.
    TokenCount "token-count",
    /// Parts of a sample that don't add up.
    SumMismatch "sum-mismatch",
    /// Time that runs backwards.
    ClockBackwards "clock-backwards",
    /// A gap that has room for a sample.
    TimelineHole "timeline-hole",
    /// Durations in units other than nanoseconds.
    Units "units",
    /// A duplicated sample.
    DuplicateSample "duplicate-sample",
    /// An aggregate that doesn't follow from the samples.
    AggregateNotOfSamples "aggregate-not-of-samples",
    /// Times that repeat to the nanosecond.
    NoVariance "no-variance",
    /// Times that are shares of a total.
    DerivedTimes "derived-times",
    /// Parts from different machines.
    MachinesMixed "machines-mixed",
    /// A rate beyond what the machine can reach.
    AboveRoof "above-roof",
    /// A rerun has other tests or another model.
    RerunDiffers "rerun-differs",
    /// A rerun chose other tokens.
    RerunOutput "rerun-output",
    /// A rerun was faster or slower.
    RerunRate "rerun-rate",
}

/// The most signatures of a receipt.
const MOST_SIGNATURES: usize = 100;

/// The most doubts that are listed; further ones are counted. A test has three or four.
const MOST_DOUBTS: usize = 100;

/// The findings so far.
#[derive(Debug, Default)]
struct Findings {
    verdict: Verdict,
    /// The lines of `verdict.not_checked`.
    not_checked: HashSet<String>,
}

impl Findings {
    /// Adds a refusal: one for each code, since a file with a million faults needs no million lines.
    fn refuse(&mut self, code: Code, sentence: impl Into<String>) {
        self.refuse_about(code, "", sentence);
    }

    /// Adds a refusal: one for each code and field.
    fn refuse_about(&mut self, code: Code, about: &str, sentence: impl Into<String>) {
        let same = |refusal: &&mut Refusal| refusal.code == code && refusal.about == about;
        match self.verdict.refusals.iter_mut().find(same) {
            Some(refusal) => refusal.more = refusal.more.saturating_add(1),
            None => {
                let about = about.to_owned();
                self.verdict.refusals.push(Refusal { about, ..Refusal::new(code, sentence) });
            }
        }
    }

    fn not_checked(&mut self, what: impl fmt::Display, reason: impl fmt::Display) {
        let line = format!("{what}: {reason}");
        if self.not_checked.insert(line.clone()) {
            self.verdict.not_checked.push(line);
        }
    }

    /// Adds what the receipt itself says against its figures.
    fn doubts(&mut self, receipt: &Receipt) {
        let dropped = receipt.dropped.iter().filter(|(_, count)| **count > 0);
        let dropped = dropped.map(|(what, count)| {
            format!("lost or not recorded as intended: {} {count}", said(what))
        });
        let stated = receipt.load.doubts.iter().map(|doubt| printable_in(doubt, 400));
        let mut all = dropped.chain(stated);
        let doubts = &mut self.verdict.doubts;
        doubts.extend(all.by_ref().take(MOST_DOUBTS));
        let more = all.count();
        if more > 0 {
            doubts.push(format!("and {more} more"));
        }
    }
}

/// Verifies the bytes of a receipt's file.
///
/// An accepted receipt contradicts neither itself nor the machine that it names. That doesn't prove that it
/// was measured: a forger who makes up every raw time with care can seal that, too. A signature says who
/// vouches for it, and a rerun ([`rerun_agrees`]) whether it is so.
#[must_use]
pub fn verify(bytes: &[u8], options: &Options) -> Verdict {
    let mut found = Findings::default();
    match parse(bytes) {
        Ok(receipt) => check(&receipt, options, &mut found),
        Err(refusal) => match Claims::of(bytes) {
            Some(claims) => claims.judge(options, &mut found),
            None => found.verdict.refusals.push(refusal),
        },
    }
    found.verdict
}

fn parse(bytes: &[u8]) -> Result<Receipt, Refusal> {
    if bytes.len() as u64 > MAX_BYTES {
        let sentence = format!(
            "the file has {} bytes, but a receipt has at most {MAX_BYTES}: this is something else",
            bytes.len()
        );
        return Err(Refusal::new(Code::TooLong, sentence));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let sentence =
            format!("byte {} of the file is not UTF-8: it isn't JSON", error.valid_up_to());
        Refusal::new(Code::NotJson, sentence)
    })?;
    Receipt::from_json(text, Path::new("")).map_err(|error| match error {
        ReceiptError::Json { field, offset, source, .. } => {
            let place = if field.is_empty() { String::new() } else { format!("{field}: ") };
            let (code, end) = match source.classify() {
                serde_json::error::Category::Eof => {
                    let end =
                        ": the file ends in the middle, so it was truncated or not written completely";
                    (Code::Truncated, end)
                }
                serde_json::error::Category::Data => {
                    (Code::Schema, ": receipts have exactly the fields of their schema")
                }
                _ => (Code::NotJson, ": it isn't JSON"),
            };
            Refusal::new(code, format!("{place}{source} (byte {offset}){end}"))
        }
        ReceiptError::Missing { field, .. } => Refusal::new(
            Code::Schema,
            format!("missing field `{field}`: receipts have exactly the fields of their schema"),
        ),
        ReceiptError::NoTimes { .. } => Refusal::new(Code::Schema, NO_TIMES),
        ReceiptError::Later { field, .. } => Refusal::new(
            Code::Schema,
            format!(
                "field `{field}`: receipts of {VERSION} have exactly the fields of their schema, and this one is \
                 of {VERSION_WITH_DEVICE}"
            ),
        ),
        ReceiptError::Version { found, .. } => Refusal::new(
            Code::Version,
            format!(
                "the receipt is of version {}, but this brickscope verifies {VERSION} and {VERSION_WITH_DEVICE}",
                said(&found)
            ),
        ),
        error => Refusal::new(Code::Schema, error.to_string()),
    })
}

fn check(receipt: &Receipt, options: &Options, found: &mut Findings) {
    seal(receipt, options, found);
    ranges::check(receipt, options.now.or_else(today), found);
    shape::check(receipt, options, found);
    // A file with too many tests is not a receipt, and not worth the time.
    if receipt.tests.len() > shape::MOST_TESTS {
        return found.not_checked("anything else", "there are too many tests");
    }
    pairs::check(receipt, found);
    command::check(receipt, found);
    kernels::check(receipt, options, found);
    machine::check(receipt, found);
    host::check(receipt, found);
    work::check(receipt, found);
    device::check(receipt, found);
    let unit = derived::unit(receipt);
    for test in &receipt.tests {
        shape::test(receipt, test, found);
        pairs::test(receipt, test, found);
        timeline::test(receipt, test, found);
        roof::test(receipt, test, found);
        device::test(receipt, test, found);
        derived::duplicates(test, unit, found);
        // Nothing can be derived from tables of different lengths.
        if measured(test).all(|sample| sample.brick_ns.len() == test.bricks.len()) {
            figures::test(test, found);
            derived::test(test, unit, found);
            likeness::test(receipt, test, unit, found);
        }
    }
    timeline::across(receipt, found);
    likeness::across(receipt, unit, found);
    figures::whole(receipt, found);
    found.not_checked(
        "that the tests' hashes are those of their tokens",
        "a receipt doesn't contain tokens; --rerun runs them again",
    );
    found.doubts(receipt);
}

/// Seconds since 1970 by this machine's clock, unless it is older than this code.
fn today() -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    (now > WRITTEN).then_some(now)
}

/// November 2026.
const WRITTEN: u64 = 1_793_491_200;

fn seal(receipt: &Receipt, options: &Options, found: &mut Findings) {
    let Some(seal) = &receipt.seal else {
        found.refuse(
            Code::Unsealed,
            "the receipt has no hash over its content, so a change of it wouldn't show",
        );
        return;
    };
    let sha256 = match receipt.canonical_sha256() {
        Ok(sha256) => sha256,
        Err(error) => return found.refuse(Code::Number, error.to_string()),
    };
    if seal.sha256 != sha256 {
        found.refuse(
            Code::HashMismatch,
            format!(
                "the content has the hash {sha256}, but the receipt says {}: it was changed after it \
                 was sealed",
                said(&seal.sha256)
            ),
        );
    }
    if seal.signatures.len() > MOST_SIGNATURES {
        found.refuse(
            Code::SignatureInvalid,
            format!(
                "there are {} signatures, but a receipt has at most {MOST_SIGNATURES}",
                seal.signatures.len()
            ),
        );
    }
    for signature in seal.signatures.iter().take(MOST_SIGNATURES) {
        if signature.is_of(&sha256) {
            found.verdict.signed_by.push(signature.public_key.clone());
        } else {
            found.refuse(
                Code::SignatureInvalid,
                format!(
                    "the signature ({}) by {} is not one of this content",
                    said(&signature.algorithm),
                    said(&signature.public_key)
                ),
            );
        }
    }
    if let Some(key) = &options.signed_by
        && !found.verdict.signed_by.contains(&key.to_ascii_lowercase())
    {
        let by = match &found.verdict.signed_by[..] {
            [] => "nobody has signed it".to_owned(),
            keys => format!("it is signed by {}", keys.join(", ")),
        };
        found.refuse(Code::NotSignedBy, format!("{} hasn't signed the receipt: {by}", said(key)));
    }
}

/// The samples outside of the warm-up.
fn measured(test: &Test) -> impl Iterator<Item = &Sample> {
    test.samples.iter().filter(|sample| !sample.is_warm_up)
}

/// A sum that can't overflow: a receipt's file has less than 2^64 numbers.
fn sum(numbers: &[u64]) -> u128 {
    numbers.iter().map(|&number| u128::from(number)).sum()
}

/// From the start of a sample to its end; 0 if it ends before.
fn span(sample: &Sample) -> u64 {
    sample.end_ns.saturating_sub(sample.start_ns)
}

/// A text from the receipt in quotes, printable, and shortened.
fn said(text: &str) -> String {
    format!("`{}`", printable_in(text, 72))
}

/// Nanoseconds in a readable unit.
fn duration(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}
