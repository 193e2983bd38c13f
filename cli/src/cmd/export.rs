//! `brickscope export`: writes a run in the format of another program.

use clap::ValueEnum;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use brickscope::{Profile, write_atomically};
use brickscope_analysis::stacks::Stacks;
use brickscope_formats::export;
use brickscope_formats::export::TraceFile;

use crate::flags::{By, MetricsNames};
use crate::runs::otlp;
use crate::text::count;
use crate::{device, output, progress, runs};

/// Write a run in the format of another program, or push it to a collector.
///
/// Without -o the file goes into the run's folder. The path is printed. A large timeline becomes several
/// files, and each path is printed. docs/export.md says which programs open a format, and what it
/// contains and lacks.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope export RUN --format perfetto\n  brickscope export RUN --format chrome --part-size 64M -o trace.json\n  brickscope export RUN --format csv --table totals -o - | column -s, -t\n  brickscope export RUN --format parquet -o spans.parquet\n  brickscope export RUN --format parquet --table requests\n  brickscope export RUN --format folded --by thread -o -\n  brickscope export RUN --format prometheus -o -\n  brickscope export RUN --otlp http://localhost:4318"
)]
pub(crate) struct ExportArgs {
    /// The run: its folder or profile.json, its tag, the beginning of its name, `@` for the newest or `@-1` for the one before.
    pub(crate) run: PathBuf,

    /// The format to write.
    #[arg(short, long, value_enum, required_unless_present = "otlp")]
    pub(crate) format: Option<ExportFormat>,

    /// Instead of writing a file, push metrics, stacks and requests to the OpenTelemetry collector at this URL, for example
    /// http://localhost:4318. docs/export.md lists what is sent.
    #[arg(long, value_name = "URL", conflicts_with_all = ["format", "output", "by", "table", "part_size", "names"])]
    pub(crate) otlp: Option<String>,

    /// The file to write; `-` for standard output.
    #[arg(short, long, alias = "out", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// With speedscope, folded and pprof: what the stacks begin with.
    #[arg(long, value_enum)]
    pub(crate) by: Option<By>,

    /// With csv and parquet: what each line or row describes. By default a span.
    #[arg(long, value_enum)]
    pub(crate) table: Option<Table>,

    /// With perfetto and chrome: the largest size of a file, such as 64M or 1G. Larger timelines are split
    /// at the beginnings of passes into files that each open on their own. By default 256M.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) part_size: Option<u64>,

    /// With prometheus: the names to use.
    #[arg(long, value_enum)]
    pub(crate) names: Option<MetricsNames>,
}

/// The tables of `brickscope export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// With csv: each brick and kernel of each phase, summed up.
    Totals,
    /// With csv: each pass.
    Passes,
    /// Each recorded span: layers, bricks and kernels.
    Spans,
    /// With parquet: each request of a server.
    Requests,
    /// With parquet: each interval of a request, up to a token or its end.
    Intervals,
}

impl Table {
    /// The formats that have it.
    fn formats(self) -> &'static [ExportFormat] {
        match self {
            Self::Totals | Self::Passes => &[ExportFormat::Csv],
            Self::Spans => &[ExportFormat::Csv, ExportFormat::Parquet],
            Self::Requests | Self::Intervals => &[ExportFormat::Parquet],
        }
    }
}

/// The formats of `brickscope export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A timeline for ui.perfetto.dev and its trace processor.
    Perfetto,
    /// A timeline as JSON, for chrome://tracing and scripts.
    Chrome,
    /// Stacks for speedscope.app.
    Speedscope,
    /// Folded stacks, one per line, for inferno, FlameGraph and scripts.
    Folded,
    /// Stacks for `go tool pprof`.
    Pprof,
    /// A table for spreadsheets and scripts.
    Csv,
    /// A table of all spans, for DuckDB, Polars, pandas and others.
    Parquet,
    /// Metrics in the text format of Prometheus. docs/export.md lists them.
    Prometheus,
    /// The same metrics as OpenTelemetry JSON, which a collector accepts at /v1/metrics.
    OtlpJson,
    /// Requests of a server as OpenTelemetry JSON, which a collector accepts at /v1/traces.
    OtlpTraces,
}

const MIN_PART_BYTES: u64 = 1 << 16;

/// A number of bytes. A letter multiplies it by a power of 1024.
fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match bytes {
        Some(bytes) if bytes >= MIN_PART_BYTES => Ok(bytes),
        Some(_) => {
            Err("must be at least 64K: each file also has the names and the run's details"
                .to_owned())
        }
        None => {
            Err(format!("`{text}` is not a size: use a number of bytes, or one with K, M or G"))
        }
    }
}

/// The size at which timelines are split. Viewers in a browser have about 2 GB, and a trace takes
/// several times its size there.
const PART_BYTES: u64 = 256 << 20;

pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    check(args)?;
    let run = runs::named(&args.run)?;
    let reading = progress::note("reading the run");
    if let Some(out) = &args.output {
        runs::spare(out, &[&run])?;
    }
    let profile = runs::load(&run);
    reading.finish_and_clear();
    let profile = profile?;
    if let Err(why) = profile.check() {
        tell!("note: this profile is inconsistent: {why}");
    }
    let of = profile.imported.as_ref().filter(|of| !of.samples.is_empty());
    if of.is_some() && profile.totals.is_empty() {
        tell!(
            "note: this run counts samples by function and has no times, so this export is empty. \
            `brickscope show` and `report` show the samples"
        );
    }
    let Some(format) = args.format else {
        let url = args.otlp.as_deref().context("--format or --otlp is needed")?;
        let target = otlp::Target::of_run(url)?;
        return target.push(profile).with_context(|| format!("the run was not pushed to {url}"));
    };
    let to = Target::of(args, &run, format);
    let part_bytes = args.part_size.unwrap_or(match to {
        Target::Stdout => u64::MAX,
        Target::File(_) => PART_BYTES,
    });
    let title = title(&profile);
    match format {
        ExportFormat::Perfetto => {
            let mut trace = export::perfetto::Trace::new(&profile, part_bytes);
            to.write_parts(&profile, |out, progress| {
                Ok((trace.write_part(out, progress)?, trace.is_done()))
            })
        }
        ExportFormat::Chrome => {
            let mut trace = export::chrome::Trace::new(&profile, part_bytes);
            to.write_parts(&profile, |out, progress| {
                Ok((trace.write_part(out, progress)?, trace.is_done()))
            })
        }
        ExportFormat::Speedscope => {
            let stacks = stacks(profile, args)?;
            to.write(|out| export::speedscope::write(&stacks, &title, out))
        }
        ExportFormat::Folded => {
            let stacks = stacks(profile, args)?;
            to.write(|out| export::folded::write(&stacks, out))
        }
        ExportFormat::Pprof => {
            let stacks = stacks(profile, args)?;
            to.write(|out| export::pprof::write(&stacks, out))
        }
        ExportFormat::Csv => to.write(|out| match args.table.unwrap_or(Table::Spans) {
            Table::Totals => export::csv::totals(&profile, out),
            Table::Passes => export::csv::passes(&profile, out),
            // The others were refused.
            Table::Spans | Table::Requests | Table::Intervals => {
                with_bar(&profile, |progress| export::csv::spans(&profile, out, progress))
            }
        }),
        #[cfg(feature = "parquet")]
        ExportFormat::Parquet => {
            use brickscope_lake::{requests, spans};
            let is_of_requests = matches!(args.table, Some(Table::Requests | Table::Intervals));
            if is_of_requests && profile.requests.is_empty() {
                tell!("note: this run has no requests of a server, so this table is empty");
            }
            to.write(|out| match args.table {
                Some(Table::Requests) => requests::write(&profile, out, &mut |_| {}),
                Some(Table::Intervals) => requests::write_intervals(&profile, out, &mut |_| {}),
                _ => with_bar(&profile, |progress| spans::write(&profile, out, progress)),
            })
        }
        #[cfg(not(feature = "parquet"))]
        ExportFormat::Parquet => anyhow::bail!(
            "--format parquet: this brickscope was built without it; `cargo install --path cli --profile dist --features full` has it"
        ),
        ExportFormat::Prometheus => to.write(|out| {
            let names = args.names.unwrap_or(MetricsNames::Brickscope).into();
            let options = export::prometheus::Options { names, ..Default::default() };
            export::prometheus::write_with(&profile, options, out)
        }),
        ExportFormat::OtlpJson => to.write(|out| export::otlp::write(&profile, out)),
        ExportFormat::OtlpTraces => traces(&profile, &to),
    }
}

impl ExportFormat {
    /// The default file, in the run's folder.
    fn file(self) -> &'static str {
        match self {
            Self::Perfetto => "trace.pftrace",
            Self::Chrome => "trace.json",
            Self::Speedscope => "speedscope.json",
            Self::Folded => "stacks.folded",
            Self::Pprof => "profile.pb.gz",
            Self::Csv => "spans.csv",
            Self::Parquet => "spans.parquet",
            Self::Prometheus => "metrics.prom",
            Self::OtlpJson => "metrics.otlp.json",
            Self::OtlpTraces => "traces.otlp.json",
        }
    }

    /// Whether the format holds stacks.
    fn is_of_stacks(self) -> bool {
        matches!(self, Self::Speedscope | Self::Folded | Self::Pprof)
    }
}

/// Refuses flags that would have no effect.
fn check(args: &ExportArgs) -> Result<()> {
    if args.by.is_some() && !args.format.is_some_and(ExportFormat::is_of_stacks) {
        bail!("--by goes with the formats of stacks: speedscope, folded and pprof");
    }
    if let (Some(table), Some(format)) = (args.table, args.format)
        && !table.formats().contains(&format)
    {
        let formats: Vec<String> = table.formats().iter().map(word).collect();
        bail!("--table {} goes with the format {}", word(&table), formats.join(" and "));
    }
    let is_timeline = matches!(args.format, Some(ExportFormat::Perfetto | ExportFormat::Chrome));
    if args.part_size.is_some() && !is_timeline {
        bail!("--part-size goes with the formats of timelines: perfetto and chrome");
    }
    if args.part_size.is_some() && args.output.as_deref().is_some_and(output::is_stdout) {
        bail!("--part-size: standard output can't be split");
    }
    if args.names.is_some() && args.format != Some(ExportFormat::Prometheus) {
        bail!("--names goes with the format prometheus");
    }
    Ok(())
}

/// Writes the requests of a server as traces.
fn traces(profile: &Profile, to: &Target) -> Result<()> {
    ensure!(
        !profile.requests.is_empty(),
        "this run has no requests of a server, which traces are of"
    );
    let spans = export::otlp::Spans::of(profile).context(export::otlp::NO_TIME)?;
    let left_out = spans.left_out();
    if left_out > 0 {
        tell!("note: {} had not ended, and so have no spans", count(left_out, "request"));
    }
    to.write(|out| spans.write(out))
}

/// How a value is written on the command line.
fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The destination of an export.
enum Target {
    Stdout,
    File(PathBuf),
}

impl Target {
    fn of(args: &ExportArgs, run: &Path, format: ExportFormat) -> Self {
        match &args.output {
            Some(path) if output::is_stdout(path) => Self::Stdout,
            Some(path) => Self::File(path.clone()),
            None => {
                let file = match args.table {
                    Some(Table::Totals) => "totals.csv",
                    Some(Table::Passes) => "passes.csv",
                    Some(Table::Requests) => "requests.parquet",
                    Some(Table::Intervals) => "intervals.parquet",
                    Some(Table::Spans) | None => format.file(),
                };
                Self::File(runs::folder_of(run).join(file))
            }
        }
    }

    /// Writes a file atomically, and prints its path.
    fn write(&self, write: impl FnOnce(&mut Out<'_>) -> io::Result<()>) -> Result<()> {
        match self {
            Self::Stdout => output::stream(write),
            Self::File(path) => {
                to_file(path, write)?;
                print(path)
            }
        }
    }

    /// Writes a timeline part by part, and prints the path of each. `write` returns whether a part was the
    /// last one.
    fn write_parts(
        &self,
        profile: &Profile,
        mut write: impl FnMut(&mut Out<'_>, &mut dyn FnMut(u64)) -> io::Result<(TraceFile, bool)>,
    ) -> Result<()> {
        let mut left_out = 0;
        let paths = with_bar(profile, |progress| {
            let mut part = |out: &mut Out<'_>| {
                let (part, is_last) = write(out, progress)?;
                left_out += part.left_out;
                Ok(is_last)
            };
            let path = match self {
                Self::Stdout => {
                    output::stream(|out| part(out).map(drop))?;
                    return Ok(Vec::new());
                }
                Self::File(path) => path,
            };
            // Each part has its own name, and the first may have to be renamed.
            ensure!(
                fs::metadata(path).map_or(true, |found| found.is_file()),
                "{} is not a file, and a timeline may need several: `-o -` writes to standard output",
                path.display()
            );
            let mut paths = vec![path.clone()];
            let mut is_last = to_file(path, &mut part)?;
            if !is_last {
                // The first of several parts has a number, too.
                paths[0] = numbered(path, 1);
                fs::rename(path, &paths[0]).with_context(|| path.display().to_string())?;
            }
            while !is_last {
                let path = numbered(path, paths.len() + 1);
                is_last = to_file(&path, &mut part)?;
                paths.push(path);
            }
            anyhow::Ok(paths)
        })?;
        if let (Self::File(path), written @ 1..) = (self, paths.len()) {
            let removed = remove_stale(path, written)?;
            if removed > 0 {
                tell!(
                    "note: removed {} of an earlier export with this name",
                    count(removed as u64, "part")
                );
            }
        }
        if left_out > 0 {
            tell!(
                "note: {left_out} spans are left out: they overlap too many others to get a track"
            );
        }
        paths.iter().try_for_each(|path| print(path))
    }
}

/// The file or stream that exports write to.
type Out<'a> = dyn Write + Send + 'a;

fn to_file<T>(path: &Path, write: impl FnOnce(&mut Out<'_>) -> io::Result<T>) -> Result<T> {
    write_atomically(path, |error| error, |out| write(out))
        .with_context(|| path.display().to_string())
}

/// `trace.2.pftrace` for the second part of `trace.pftrace`.
fn numbered(path: &Path, part: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default();
    let mut name = stem.to_owned();
    name.push(format!(".{part}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Removes the parts of an earlier export to `path` that this one didn't overwrite, since readers would
/// take them for parts of this one. If there are several parts, the first replaces the file without a
/// number.
fn remove_stale(path: &Path, written: usize) -> Result<usize> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut removed = 0;
    let cannot = || folder.display().to_string();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let part = part_of(path, &entry.file_name());
        if is_file && part.is_some_and(|part| written == 1 || part > written) {
            let stale = entry.path();
            fs::remove_file(&stale).with_context(|| stale.display().to_string())?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The number of the part of `path` that a file with this name is, as in [`numbered`].
fn part_of(path: &Path, name: &OsStr) -> Option<usize> {
    let stem = path.file_stem()?.to_str()?;
    let rest = name.to_str()?.strip_prefix(stem)?.strip_prefix('.')?;
    let part = match path.extension() {
        Some(extension) => rest.strip_suffix(extension.to_str()?)?.strip_suffix('.')?,
        None => rest,
    };
    let part = part.parse().ok().filter(|&part| part > 0)?;
    (numbered(path, part).file_name() == Some(name)).then_some(part)
}

fn print(path: &Path) -> Result<()> {
    output::print(output::shown(path) + "\n")
}

/// Shows the number of written spans while `write` runs.
fn with_bar<T>(profile: &Profile, write: impl FnOnce(&mut dyn FnMut(u64)) -> T) -> T {
    let bar = progress::steps("exporting", export::rows::count(profile));
    let result = write(&mut |spans| bar.set_position(spans));
    bar.finish_and_clear();
    result
}

/// The stacks of the spans, on the device if it ran the bricks.
fn stacks(profile: Profile, args: &ExportArgs) -> Result<Stacks> {
    let by = args.by.unwrap_or(By::Layer).into();
    let (profile, device) = device::of_stacks(profile, "stacks");
    let stacks = device::stacks(&profile, device, by, 0)?;
    ensure!(!stacks.is_empty(), "there is no stack: this run has no times of bricks");
    Ok(stacks)
}

/// The title that a viewer shows above a run.
fn title(profile: &Profile) -> String {
    let model = profile.model.as_ref().map(|model| match &model.name {
        Some(name) => name.clone(),
        None => model.path.clone(),
    });
    match model {
        Some(model) => format!("{model}, {}", profile.created),
        None => profile.created.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_a_run_is_removed_with_it() {
        for format in ExportFormat::value_variants() {
            assert!(brickscope_runs::is_ours(format.file().as_ref()), "{format:?}");
        }
        for format in [ExportFormat::Perfetto, ExportFormat::Chrome] {
            let part = numbered(Path::new(format.file()), 12);
            assert!(brickscope_runs::is_ours(part.as_os_str()), "{}", part.display());
        }
        for file in ["totals.csv", "passes.csv", "requests.parquet", "intervals.parquet"] {
            assert!(brickscope_runs::is_ours(file.as_ref()), "{file}");
        }
    }
}
