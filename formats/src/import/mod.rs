//! Files of other programs, read as profiles, one file for each format.
//!
//! [`Profile::imported`] says what a profile was read from, and what that file lacks. Times are those that
//! the file states, to the nanosecond if it has as many digits: none is derived from another. A sum without
//! single spans becomes a total without spans; time in no brick is unattributed.

mod chrome;
mod decimal;
mod file;
mod folded;
mod forward_pass;
mod jax;
mod kineto;
mod limits;
mod lines;
mod llama_bench;
mod log_lines;
mod nccl_inspector;
mod nest;
mod onnx;
mod other;
mod pairs;
mod passes;
mod pattern;
mod prefix;
mod ranks;
mod rocprof;
#[cfg(feature = "sqlite")]
mod sqlite;
mod step;
mod totals;
mod trace;
mod values;
mod vk_perf_logger;

use std::fmt;
use std::path::{Path, PathBuf};

use brickscope_profile::name::category_of;
pub use brickscope_profile::run::Format;

pub use self::file::{packed_run, read_capture_file, read_file};
pub use self::kineto::Captured;
pub use self::limits::{add_limits, state_limits, stated};
pub use self::other::{decoded, told};
pub use self::ranks::join;
use brickscope_profile::text::{printable, printable_text};
use brickscope_profile::{
    Absent, BrickStats, ClockInfo, Imported, NameKind, Overhead, Percentiles, Phase, Profile,
    Source, Total,
};

/// The most bytes of a file that is read into memory as a whole, as all are but long Chrome traces.
pub const MAX_BYTES: u64 = 1 << 30;

/// The format that a text seems to have, by strings that occur only in it; `None` if there are none.
#[must_use]
pub fn format_of(text: &str) -> Option<Format> {
    let start = text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    if rocprof::is_it(start) {
        return Some(Format::Rocprof);
    }
    if start.starts_with(['[', '{']) {
        let found = [
            ("\"traceEvents\"", Format::Chrome),
            (nccl_inspector::KEY, Format::NcclInspector),
            ("\"samples_ns\"", Format::LlamaBench),
            ("\"ph\"", Format::Chrome),
            (forward_pass::KEY, Format::ForwardPassMetrics),
        ]
        .into_iter()
        .find_map(|(key, format)| start.contains(key).then_some(format));
        if found.is_some() {
            return found;
        }
    }
    // Who asked llama-bench's backend for its times looks for these: tests that wait after each graph tell no rate.
    if vk_perf_logger::is_it(text) {
        return Some(Format::VkPerfLogger);
    }
    if llama_bench::is_it(text) {
        return Some(Format::LlamaBench);
    }
    if is_trace_behind_log(start) {
        return Some(Format::Chrome);
    }
    if text.contains(vk_perf_logger::HEADING) {
        return Some(Format::VkPerfLogger);
    }
    // With lines of a log before them, or a prefix before each.
    if text.contains(forward_pass::KEY) {
        return Some(Format::ForwardPassMetrics);
    }
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).take(100);
    let is_stack = |line: &str| {
        let weight = line.rsplit_once([' ', '\t']).map(|(_, weight)| weight);
        weight.is_some_and(crate::export::folded::is_weight)
    };
    (!start.is_empty() && lines.all(is_stack)).then_some(Format::Folded)
}

/// Whether a text has a trace behind lines of a log.
fn is_trace_behind_log(text: &str) -> bool {
    let at = log_lines::before_trace(text.as_bytes(), true).unwrap_or_default();
    let behind = text.get(at..).unwrap_or_default();
    let is_list = behind.starts_with('[') && behind.contains("\"ph\"");
    at > 0 && (is_list || behind.contains("\"traceEvents\""))
}

/// What the weights of folded stacks count, which the file doesn't say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightUnit {
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Samples, which are not times.
    Samples,
}

/// What the file itself doesn't say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// For folded stacks: what their weights count.
    pub unit: Option<WeightUnit>,
    /// For llama-bench: the rows to take, counted from 1; if empty, all.
    pub rows: Vec<usize>,
    /// For traces of profilers: a pattern of events that are a prefill pass each: a name, in which `*` stands for
    /// any text, and after it perhaps `[args.KEY=VALUE]`, and `[N]`, `[N..]` or `[N..M]` for those with these numbers, from 1.
    pub prefill: Option<String>,
    /// For traces of profilers: a pattern of events that are a decode pass each. It decides where both patterns match.
    pub decode: Option<String>,
    /// For traces with kernels: a table that tells which bricks events are, before the table of this package.
    pub map: Option<Map>,
    /// For traces of PyTorch's profiler: what [`read_capture`] read of the captures of the graphs in it.
    pub captures: Vec<Captured>,
}

/// A table of bricks of the user's own: TOML with the sections `range`, `module`, `op`, `kernel` and `category`, and a
/// line `"pattern" = "brick"` for each kind of event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Map {
    /// The file, for messages.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// Reads the text of another program's file. `path` is for messages and for [`Imported::file`]. [`read_file`]
/// reads the file itself.
///
/// # Errors
///
/// With the file, the place in it and the fault: if the text isn't in this format or has no measurement;
/// if [`Options`] lack what the format needs, or have what it doesn't know.
pub fn read(
    text: &str,
    path: &Path,
    format: Format,
    options: &Options,
) -> Result<Profile, ImportError> {
    let at = At { path };
    options.check(format, &at)?;
    let text = text.trim_start_matches('\u{feff}');
    let profile = match format {
        Format::LlamaBench => llama_bench::read(text, &at, &options.rows),
        Format::Chrome => chrome::read(text.as_bytes(), &at, options),
        Format::Nsight => Err(at.whole(
            "is no database: `nsys export --type sqlite FILE.nsys-rep` makes one of a report",
        )),
        Format::Rocprof => rocprof::read(text, &at, options),
        Format::NcclInspector => nccl_inspector::read(text, &at),
        Format::ForwardPassMetrics => forward_pass::read(text, &at),
        Format::VkPerfLogger => vk_perf_logger::read(text, &at),
        Format::Folded => folded::read(text, &at, options.unit),
    }?;
    debug_assert_eq!(profile.check(), Ok(()));
    Ok(profile)
}

/// Reads the trace of a graph's capture, in which each kernel of the graph has a call of its own, for
/// [`Options::captures`]. `path` is for messages. Of `options`, only the table of bricks counts.
///
/// # Errors
///
/// If the text is no trace of PyTorch's profiler, or has no capture.
pub fn read_capture(text: &str, path: &Path, options: &Options) -> Result<Captured, ImportError> {
    chrome::capture(text.trim_start_matches('\u{feff}').as_bytes(), &At { path }, options)
}

/// What the first bytes of an SQLite database are.
const DATABASE: &[u8] = b"SQLite format 3\0";

/// Whether a file is a database, by its first 16 bytes: [`read_database`] reads it.
#[must_use]
pub fn is_database(start: &[u8]) -> bool {
    start.starts_with(DATABASE)
}

/// Reads a database of another program: the SQLite export of Nsight Systems, or rocprofv3's rocpd. It is never
/// written to, and read where it is, however large.
///
/// # Errors
///
/// As [`read`]; and if this package was built without the feature `sqlite`.
pub fn read_database(path: &Path, options: &Options) -> Result<Profile, ImportError> {
    let at = At { path };
    let profile = of_database(&at, options)?;
    debug_assert_eq!(profile.check(), Ok(()));
    Ok(profile)
}

#[cfg(feature = "sqlite")]
fn of_database(at: &At<'_>, options: &Options) -> Result<Profile, ImportError> {
    sqlite::read(at.path, at, options)
}

#[cfg(not(feature = "sqlite"))]
fn of_database(at: &At<'_>, _: &Options) -> Result<Profile, ImportError> {
    Err(at.whole(other::NO_SQLITE))
}

/// The formats of profilers, which have kernels.
const PROFILERS: &[Format] = &[Format::Chrome, Format::Nsight, Format::Rocprof];

impl Options {
    fn check(&self, format: Format, at: &At<'_>) -> Result<(), ImportError> {
        for (what, is_given, of) in [
            ("a unit of weights", self.unit.is_some(), &[Format::Folded][..]),
            ("a choice of rows", !self.rows.is_empty(), &[Format::LlamaBench]),
            ("a name of passes", self.prefill.is_some(), PROFILERS),
            ("a name of passes", self.decode.is_some(), PROFILERS),
            ("a table of bricks", self.map.is_some(), PROFILERS),
            ("a trace of a capture", !self.captures.is_empty(), &[Format::Chrome]),
        ] {
            if is_given && !of.contains(&format) {
                let of: Vec<&str> = of.iter().map(|format| format.name()).collect();
                let (of, is) = (of.join(", "), format.name());
                return Err(at.whole(format!("{what} is for files of {of}, and this is {is}")));
            }
        }
        Ok(())
    }
}

/// Why a file can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError {
    /// The file.
    pub path: PathBuf,
    /// Where in it: a line, an event, a field.
    pub place: Option<String>,
    /// What is wrong.
    pub fault: String,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match &self.place {
            Some(place) => write!(f, ", {}: ", printable(place))?,
            // As "trace.json is empty".
            None if self.fault.starts_with("is ") => f.write_str(" ")?,
            None => f.write_str(": ")?,
        }
        // It may quote the file.
        write!(f, "{}", printable_text(&self.fault))
    }
}

impl std::error::Error for ImportError {}

/// Makes errors of one file.
struct At<'p> {
    path: &'p Path,
}

impl At<'_> {
    fn whole(&self, fault: impl Into<String>) -> ImportError {
        ImportError { path: self.path.to_owned(), place: None, fault: fault.into() }
    }

    fn place(&self, place: impl Into<String>, fault: impl Into<String>) -> ImportError {
        ImportError { place: Some(place.into()), ..self.whole(fault) }
    }

    /// A profile without times, with the reasons for what no format has.
    fn profile(&self, format: Format, program: Option<String>, clock: &str) -> Profile {
        let absent = |reason: &str| Some(Absent { reason: reason.to_owned() });
        let clock = ClockInfo { source: clock.to_owned(), ..ClockInfo::default() };
        Profile {
            overhead: Overhead {
                span_ns: None,
                spans: 0,
                basis: "absent: the file doesn't say what measuring cost".to_owned(),
                measured: None,
                preparations: Vec::new(),
            },
            ceilings_absent: absent("the file has no ceilings of the machine"),
            other_load_absent: absent("the file doesn't say what else used the machine"),
            imported: Some(Imported {
                format: format.name().to_owned(),
                file: self.path.display().to_string(),
                program,
                ..Imported::default()
            }),
            ..Profile::empty(clock)
        }
    }
}

/// What a file lacks that doesn't say when it was written.
const UNDATED: &str = "when it was measured: the time of the run is that of the import";

/// Notes what the file of a profile lacks.
fn lacks(profile: &mut Profile, reasons: &[&str]) {
    if let Some(imported) = &mut profile.imported {
        imported.lacks.extend(reasons.iter().map(|r| Absent { reason: (*r).to_owned() }));
    }
}

/// Notes how many parts of its file a profile leaves out, and why, if there are any.
fn left_out(profile: &mut Profile, why: &str, count: u64) {
    if let Some(imported) = profile.imported.as_mut().filter(|_| count > 0) {
        imported.left_out.push((why.to_owned(), count));
    }
}

/// Notes what is lost of a file that breaks off, if it does. Few traces are in the order of time, so not only what came last
/// may be missing.
fn breaks_off(profile: &mut Profile, what: &str, count: u64) {
    const DOUBT: &str = "the file breaks off: work of any pass may be missing, so sums may be too small, and waits too long";
    left_out(profile, what, count);
    if let Some(imported) = profile.imported.as_mut().filter(|_| count > 0)
        && !imported.doubts.iter().any(|known| known == DOUBT)
    {
        imported.doubts.push(DOUBT.to_owned());
    }
}

/// The sums of a brick. Its category is known by its name, or is what `category` says.
fn total(phase: Option<Phase>, source: Source, stats: BrickStats) -> Total {
    Total {
        phase,
        kind: NameKind::Brick,
        category: Some(category_of(&stats.name)),
        source,
        host: None,
        device: None,
        std_dev_ns: stats.std_dev_ns(),
        percentiles: if stats.histogram.count() == stats.count {
            stats.percentiles()
        } else {
            Percentiles::default()
        },
        stats,
        counters: None,
    }
}
