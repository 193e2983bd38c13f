//! `brickscope export`: a run in the form that another program reads.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use brickscope::{Profile, write_atomically};
use brickscope_analysis::export;
use brickscope_analysis::export::Part;
use brickscope_analysis::stacks::{self, Stacks};

use crate::args::{By, ExportArgs, ExportFormat, MetricsNames, Table};
use crate::{device, progress, run_dir};

/// The size at which timelines are cut. Viewers in a browser have some 2 GB, of which a trace takes
/// several times its size.
const PART_BYTES: u64 = 256 << 20;

pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    check(args)?;
    let reading = progress::note("reading the run");
    if let Some(out) = &args.output {
        run_dir::spare(out, &[&args.run])?;
    }
    let profile = run_dir::load(&args.run);
    reading.finish_and_clear();
    let profile = profile?;
    if let Err(why) = profile.check() {
        eprintln!("note: this profile does not add up: {why}");
    }
    let of = profile.imported.as_ref().filter(|of| !of.samples.is_empty());
    if of.is_some() && profile.totals.is_empty() {
        eprintln!(
            "note: this run has numbers of samples by function and no times, and exports have times: there is \
             nothing in this one. `brickscope show` and `report` have the samples"
        );
    }
    let to = Target::of(args);
    let part_bytes = args.part_size.unwrap_or(match to {
        Target::Stdout => u64::MAX,
        Target::File(_) => PART_BYTES,
    });
    let title = title(&profile);
    match args.format {
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
            let stacks = stacks(profile, args);
            to.write(|out| export::speedscope::write(&stacks, &title, out))
        }
        ExportFormat::Folded => {
            let stacks = stacks(profile, args);
            to.write(|out| export::folded::write(&stacks, out))
        }
        ExportFormat::Pprof => {
            let stacks = stacks(profile, args);
            to.write(|out| export::pprof::write(&stacks, out))
        }
        ExportFormat::Csv => to.write(|out| match args.table.unwrap_or(Table::Spans) {
            Table::Totals => export::csv::totals(&profile, out),
            Table::Passes => export::csv::passes(&profile, out),
            Table::Spans => {
                with_bar(&profile, |progress| export::csv::spans(&profile, out, progress))
            }
        }),
        #[cfg(feature = "parquet")]
        ExportFormat::Parquet => to.write(|out| {
            with_bar(&profile, |progress| crate::parquet::write(&profile, out, progress))
        }),
        ExportFormat::Prometheus => to.write(|out| {
            let names = args.names.unwrap_or(MetricsNames::Brickscope).into();
            let options = export::prometheus::Options { names, ..Default::default() };
            export::prometheus::write_with(&profile, options, out)
        }),
        ExportFormat::OtlpJson => to.write(|out| export::otlp::write(&profile, out)),
    }
}

impl ExportFormat {
    /// The file in the run's folder.
    fn file(self) -> &'static str {
        match self {
            Self::Perfetto => "trace.pftrace",
            Self::Chrome => "trace.json",
            Self::Speedscope => "speedscope.json",
            Self::Folded => "stacks.folded",
            Self::Pprof => "profile.pb.gz",
            Self::Csv => "spans.csv",
            #[cfg(feature = "parquet")]
            Self::Parquet => "spans.parquet",
            Self::Prometheus => "metrics.prom",
            Self::OtlpJson => "metrics.otlp.json",
        }
    }

    /// Whether it is made of stacks, and not of what they are added up from.
    fn is_of_stacks(self) -> bool {
        matches!(self, Self::Speedscope | Self::Folded | Self::Pprof)
    }
}

/// Flags that would do nothing are mistakes.
fn check(args: &ExportArgs) -> Result<()> {
    if args.by.is_some() && !args.format.is_of_stacks() {
        bail!("--by is of stacks: of the formats speedscope, folded and pprof");
    }
    if args.table.is_some() && args.format != ExportFormat::Csv {
        bail!("--table is of the format csv");
    }
    let is_timeline = matches!(args.format, ExportFormat::Perfetto | ExportFormat::Chrome);
    if args.part_size.is_some() && !is_timeline {
        bail!("--part-size is of timelines: of the formats perfetto and chrome");
    }
    if args.part_size.is_some() && args.output.as_deref().is_some_and(is_stdout) {
        bail!("--part-size: standard output has one part");
    }
    if args.names.is_some() && args.format != ExportFormat::Prometheus {
        bail!("--names is of the format prometheus");
    }
    Ok(())
}

/// Where an export goes.
enum Target {
    Stdout,
    File(PathBuf),
}

impl Target {
    fn of(args: &ExportArgs) -> Self {
        match &args.output {
            Some(path) if is_stdout(path) => Self::Stdout,
            Some(path) => Self::File(path.clone()),
            None => {
                let file = match args.table {
                    Some(Table::Totals) => "totals.csv",
                    Some(Table::Passes) => "passes.csv",
                    Some(Table::Spans) | None => args.format.file(),
                };
                Self::File(run_dir::folder_of(&args.run).join(file))
            }
        }
    }

    /// Writes a file, whole or not at all, and prints its path.
    fn write(&self, write: impl FnOnce(&mut Out<'_>) -> io::Result<()>) -> Result<()> {
        match self {
            Self::Stdout => to_stdout(write),
            Self::File(path) => {
                to_file(path, write)?;
                print(path)
            }
        }
    }

    /// Writes a timeline, part by part, and prints the path of each. `write` says whether a part was the
    /// last.
    fn write_parts(
        &self,
        profile: &Profile,
        mut write: impl FnMut(&mut Out<'_>, &mut dyn FnMut(u64)) -> io::Result<(Part, bool)>,
    ) -> Result<()> {
        let mut left_out = 0;
        let paths = with_bar(profile, |progress| {
            let mut part = |out: &mut Out<'_>| {
                let (part, is_last) = write(out, progress)?;
                left_out += part.left_out;
                Ok(is_last)
            };
            let path = match self {
                Self::Stdout => return to_stdout(|out| part(out).map(drop)).map(|()| Vec::new()),
                Self::File(path) => path,
            };
            // Parts get names of their own, and the first may have to be renamed.
            ensure!(
                fs::metadata(path).map_or(true, |found| found.is_file()),
                "{} is no file, and a timeline may take several: `-o -` writes to standard output",
                path.display()
            );
            let mut paths = vec![path.clone()];
            let mut is_last = to_file(path, &mut part)?;
            if !is_last {
                // The first of several has a number, too.
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
                let s = if removed == 1 { "" } else { "s" };
                eprintln!("note: removed {removed} part{s} of an earlier export of this name");
            }
        }
        if left_out > 0 {
            eprintln!("note: {left_out} spans overlap so many others that they have no track");
        }
        paths.iter().try_for_each(|path| print(path))
    }
}

/// What exports write to.
type Out<'a> = dyn Write + Send + 'a;

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn to_stdout(write: impl FnOnce(&mut Out<'_>) -> io::Result<()>) -> Result<()> {
    let mut out = io::BufWriter::new(stdout());
    write(&mut out)?;
    Ok(out.flush()?)
}

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

/// Removes the parts of an earlier export to `path` that this one, of so many, didn't write anew: read beside
/// the others they would be taken for parts of it. A first part of several has replaced the one without a number.
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

/// Which part of `path` a file of this name is, as [`numbered`] calls them.
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
    Ok(writeln!(stdout().lock(), "{}", path.display())?)
}

/// Shows how many of the spans were written while `write` runs.
fn with_bar<T>(profile: &Profile, write: impl FnOnce(&mut dyn FnMut(u64)) -> T) -> T {
    let bar = progress::steps("exporting", export::rows::count(profile));
    let result = write(&mut |spans| bar.set_position(spans));
    bar.finish_and_clear();
    result
}

/// The stacks of the spans, of the device if that ran the bricks.
fn stacks(profile: Profile, args: &ExportArgs) -> Stacks {
    let by = match args.by.unwrap_or(By::Layer) {
        By::Layer => stacks::By::Layer,
        By::Brick => stacks::By::Brick,
        By::Thread => stacks::By::Thread,
    };
    let profile = device::where_it_ran(profile, "stacks");
    Stacks::of_spans(&profile, by, 0)
}

/// What a viewer shows above a run.
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
