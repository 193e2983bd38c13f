//! `brickscope import`: a file of another program, as a run.

use std::fs::File;
use std::io::{Read, Write, stdout};
use std::path::Path;

use anyhow::{Context, Result, bail};
use brickscope::Profile;
use brickscope_analysis::import::{self, Format, MAX_BYTES, Options};
use flate2::read::MultiGzDecoder;

use crate::args::{ImportArgs, ImportFormat, WeightUnit};
use crate::progress;
use crate::run_dir::RunDir;

pub(crate) fn run(args: &ImportArgs) -> Result<()> {
    let note = progress::note("reading");
    let text = text(&args.file)?;
    let format = match args.format {
        ImportFormat::Auto => brickscope_analysis::import::format_of(&text).with_context(|| {
            format!(
                "{} is none of the formats that can be told by their look ({}): say it with --format",
                args.file.display(),
                Format::ALL.map(Format::name).join(", ")
            )
        })?,
        ImportFormat::LlamaBench => Format::LlamaBench,
        ImportFormat::Chrome => Format::Chrome,
        ImportFormat::VkPerfLogger => Format::VkPerfLogger,
        ImportFormat::Folded => Format::Folded,
    };
    if format == Format::Folded && args.unit.is_none() {
        bail!(
            "{}: folded stacks don't say what their weights count: say it with --unit ns, us, ms or samples",
            args.file.display()
        );
    }
    let options = Options {
        unit: args.unit.map(WeightUnit::into),
        rows: args.rows.clone(),
        prefill: args.prefill.clone(),
        decode: args.decode.clone(),
    };
    note.set_message(format!("reading {}", format.name()));
    let profile = import::read(&text, &args.file, format, &options)?;
    drop(text);
    let dir = RunDir::create(args.out.as_deref(), &Profile::empty(Default::default()).created)?;
    note.set_message("writing the run");
    dir.save(&profile)?;
    note.finish_and_clear();
    let mut out = stdout().lock();
    let path = dir.path().display();
    if args.json {
        let imported = serde_json::json!({ "run": path.to_string(), "imported": profile.imported });
        return Ok(writeln!(out, "{imported}")?);
    }
    for (why, number) in profile.imported.iter().flat_map(|imported| &imported.left_out) {
        eprintln!("note: left out: {why}: {number}");
    }
    Ok(writeln!(out, "{path}")?)
}

/// The whole file as text, unpacked if it is gzip's.
fn text(path: &Path) -> Result<String> {
    let cannot = || path.display().to_string();
    let file = File::open(path).with_context(cannot)?;
    let mut bytes = Vec::new();
    let at_most = MAX_BYTES + 1;
    file.take(at_most).read_to_end(&mut bytes).with_context(cannot)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let packed = std::mem::take(&mut bytes);
        let unpacked = MultiGzDecoder::new(&packed[..]).take(at_most).read_to_end(&mut bytes);
        unpacked.with_context(|| format!("{}, which is gzip's", path.display()))?;
    }
    if bytes.len() as u64 > MAX_BYTES {
        bail!("{} has more than {MAX_BYTES} bytes, which is all that is read", path.display());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow::anyhow!("{}, byte {at}: is no text in UTF-8", path.display())
    })
}
