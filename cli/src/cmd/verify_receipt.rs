//! `brickscope verify-receipt`: checks whether a benchmark's receipt is plausible.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use brickscope_analysis::receipt::v1::Device;
use brickscope_analysis::receipt::{
    Options, Receipt, Verdict, read, rerun_agrees, sha256_file_with, verify,
};
use serde_json::json;

use crate::benchmark::receipt::WEIGHTS;
use crate::benchmark::table;
use crate::ceilings_cache::memory_readings;
use crate::flags::share;
use crate::output;
use crate::runs::{named, newest_receipt, receipt_file, receipt_files};
use crate::source::MAPPED;
use crate::text::{hanging, printable, printable_text};
use crate::{family, private, progress};

/// Check whether a receipt is plausible, and if not, say why.
///
/// A receipt of a run on a device names it, as its driver does.
///
/// The checks cover the fields, the hash and signatures, the figures recomputed from the raw times, the
/// tokens, the clock, the kernels and the limits of the machine. docs/receipts.md lists every check and
/// what none of them can prove. The output lists what couldn't be checked.
///
/// The exit code is 0 if the receipt is accepted, 1 if it is refused, 2 if it can't be checked, because
/// there is no such file, the rerun failed, or it has neither raw times nor a hash, as those of BitNet.rs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope verify-receipt brickscope-runs/20261121-104812\n  brickscope verify-receipt receipt.json --model model.gguf --json | jq '.refusals[].code'\n  brickscope verify-receipt receipt.json --rerun=model.gguf --tolerance 5%"
)]
pub(crate) struct VerifyReceiptArgs {
    /// The receipt, or the folder of its run, or of a set: then each of its processes is checked. By default the newest receipt in `brickscope-runs`.
    #[arg(value_name = "FILE")]
    pub(crate) receipt: Option<PathBuf>,

    /// A second file, such as a model after `--rerun` without `=`: refused with a sentence that says so.
    #[arg(hide = true)]
    pub(crate) second: Option<PathBuf>,

    /// Refuse a receipt without GPU kernels, whatever backend it names.
    #[arg(long)]
    pub(crate) require_gpu_kernels: bool,

    /// The model of the receipt: its hash and size must match.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,

    /// Run the benchmark again with this model, by default that of --model, and refuse the receipt if the
    /// tokens differ, or if a median rate is off by more than --tolerance and neither run explains it. A
    /// model follows after `=`, since another word is the receipt.
    #[arg(long, value_name = "MODEL", num_args = 0..=1, require_equals = true)]
    pub(crate) rerun: Option<Option<PathBuf>>,

    /// How much a rate of the rerun may differ.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = share, allow_hyphen_values = true)]
    pub(crate) tolerance: f64,

    /// Refuse a receipt that isn't signed by this public key (64 hexadecimal digits).
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    pub(crate) signed_by: Option<String>,

    /// Print the verdict, the refusals with code and message, and what wasn't checked as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn public_key(text: &str) -> Result<String, String> {
    match text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => {
            Err("must be 64 hexadecimal digits, as `brickscope receipt keygen` prints".to_owned())
        }
    }
}

/// Verifies a receipt, prints the result, and returns the exit code.
pub(crate) fn run(args: &VerifyReceiptArgs) -> Result<ExitCode> {
    if let Some(second) = &args.second {
        bail!(
            "one receipt at a time, and {} is a second file; a model to run again is given as --rerun=MODEL",
            second.display()
        );
    }
    // The model to run again, if any.
    let again = match &args.rerun {
        None => None,
        Some(Some(model)) => Some(model),
        Some(None) => match &args.model {
            Some(model) => Some(model),
            None => bail!("--rerun needs a model to run: --rerun=MODEL, or --model MODEL with it"),
        },
    };
    let paths = match &args.receipt {
        Some(receipt) => receipt_files(&named(receipt)?),
        None => vec![newest_receipt()?],
    };
    if let ([first, _, ..], Some(_)) = (&paths[..], again) {
        bail!("--rerun: it is a set of {}: name one, such as {}", paths.len(), first.display());
    }
    let options = Options {
        require_gpu_kernels: args.require_gpu_kernels,
        model: args.model.as_ref().or(again).map(|model| hash(model)).transpose()?,
        signed_by: args.signed_by.clone(),
        now: None,
    };
    let receipts = paths.len();
    let (mut all, mut unread) = (Vec::new(), Vec::new());
    for path in paths {
        match Checked::of(path, &options, again, args.tolerance) {
            Ok(checked) => all.push(checked),
            Err(error) if receipts == 1 => return Err(error),
            // What was found in the others of the set is told all the same.
            Err(error) => unread.push(printable_text(&format!("{error:#}"))),
        }
    }
    output::print(match (args.json, &all[..]) {
        (true, [one]) if receipts == 1 => format!("{:#}\n", one.as_json()),
        (true, set) => format!("{:#}\n", set_as_json(set, &unread)),
        (false, [one]) if receipts == 1 => one.as_text(),
        (false, set) => set_as_text(set, receipts),
    })?;
    unread.iter().for_each(|why| tell!("brickscope: {why}"));
    let is_refused = |of: &Checked| !of.verdict.refusals.is_empty();
    Ok(match unread.is_empty() && all.iter().all(Checked::is_accepted) {
        true => ExitCode::SUCCESS,
        false if all.iter().any(is_refused) => ExitCode::from(1),
        false => ExitCode::from(2),
    })
}

/// A receipt, and what was found in it.
struct Checked {
    path: PathBuf,
    verdict: Verdict,
    device: Option<Device>,
    rerun: Option<Rerun>,
}

impl Checked {
    /// Checks a receipt, and runs its model `again` if that is asked for.
    fn of(
        path: PathBuf,
        options: &Options,
        again: Option<&PathBuf>,
        tolerance: f64,
    ) -> Result<Self> {
        let bytes = read(&path)?;
        let mut verdict = verify(&bytes, options);
        // What can't be read has no device, and a refusal.
        let device = Receipt::from_bytes(&bytes, &path).ok().and_then(|receipt| receipt.device);
        let mut rerun = None;
        match again {
            Some(_) if verdict.not_verifiable.is_some() => {
                verdict.not_checked.push("a rerun: it doesn't say what was run".to_owned());
            }
            // A refused receipt isn't worth a rerun.
            Some(model) if verdict.is_accepted() => {
                let receipt = Receipt::load(&path)?;
                let again = self::rerun(&receipt, model)?;
                // What memory gave on earlier days, too: this machine may be in another state today.
                let memory: Vec<f64> =
                    memory_readings().iter().map(|reading| reading.read_bytes_per_second).collect();
                let said = rerun_agrees(&receipt, &again, tolerance, &memory);
                verdict.refusals.extend(said.refusals);
                verdict.doubts.extend(said.doubts);
                rerun = Some((receipt, again));
            }
            Some(_) => {
                verdict.not_checked.push("a rerun: the receipt is refused without one".into());
            }
            None => {
                verdict.not_checked.push("that it can be repeated: no --rerun=MODEL".to_owned());
            }
        }
        Ok(Self { path, verdict, device, rerun })
    }

    fn is_accepted(&self) -> bool {
        self.verdict.is_accepted()
    }

    fn as_text(&self) -> String {
        as_text(&self.path, &self.verdict, self.device.as_ref(), self.rerun.as_ref())
    }

    fn as_json(&self) -> serde_json::Value {
        as_json(&self.path, &self.verdict, self.device.as_ref(), self.rerun.as_ref())
    }
}

/// The receipts of a set that could be read, one below the other, and how many of all are accepted.
fn set_as_text(set: &[Checked], receipts: usize) -> String {
    let texts: Vec<String> = set.iter().map(Checked::as_text).collect();
    let accepted = set.iter().filter(|of| of.is_accepted()).count();
    format!("{}\n{accepted} of {receipts} receipts of the set accepted\n", texts.join("\n"))
}

/// A list of those of a set, and why others of it couldn't be read.
fn set_as_json(set: &[Checked], unread: &[String]) -> serde_json::Value {
    json!({
        "accepted": unread.is_empty() && set.iter().all(Checked::is_accepted),
        "receipts": set.iter().map(Checked::as_json).collect::<Vec<_>>(),
        "not_read": unread,
    })
}

fn hash(path: &Path) -> Result<(String, u64)> {
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    let bar = progress::bytes("hashing", bytes);
    let hashed = sha256_file_with(path, &mut |read| bar.set_position(read));
    bar.finish_and_clear();
    hashed.with_context(|| path.display().to_string())
}

/// Runs the benchmark of a receipt again, in a separate process.
fn rerun(receipt: &Receipt, model: &Path) -> Result<Receipt> {
    // Removed once the rerun has been read.
    let folder = private::temporary()?;
    let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
    command.args(arguments(receipt, model, folder.path())?);
    let _tied = family::tie(&mut command)?;
    // Show the progress bars of the benchmark, but not its report.
    let status = command.stdout(Stdio::null()).status();
    let status = status.context("can't start the benchmark")?;
    if !status.success() {
        bail!("the rerun failed ({status}), so it neither confirms nor contradicts the receipt");
    }
    Ok(Receipt::load(&receipt_file(folder.path()))?)
}

/// The benchmark's arguments, taken from the receipt's fields, since its command line can't be trusted.
fn arguments(receipt: &Receipt, model: &Path, out: &Path) -> Result<Vec<std::ffi::OsString>> {
    let one = |what: &str, numbers: Vec<u64>| -> Result<u64> {
        let mut numbers: Vec<u64> = numbers.into_iter().filter(|&n| n > 0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        match numbers[..] {
            [] => Ok(0),
            [one] => Ok(one),
            _ => {
                bail!("the tests differ in the number of {what}, so one benchmark can't rerun them")
            }
        }
    };
    let prompt = one("prompt tokens", receipt.tests.iter().map(|test| test.n_prompt).collect())?;
    let tokens = one("tokens", receipt.tests.iter().map(|test| test.n_gen).collect())?;
    let mut depths: Vec<u64> = receipt.tests.iter().map(|test| test.n_depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let depths: Vec<String> = depths.iter().map(u64::to_string).collect();
    let run = &receipt.run;
    let flags = [
        ("--prompt-tokens", prompt.to_string()),
        ("--tokens", tokens.to_string()),
        ("--depth", depths.join(",")),
        ("--backend", run.kernels.clone()),
        ("--repetitions", run.repetitions.to_string()),
        ("--seed", run.seed.to_string()),
    ];
    let mut words = vec!["benchmark".into(), model.into()];
    // On a device there are none to choose.
    let threads = receipt.device.is_none().then(|| ("--threads", run.threads.to_string()));
    for (flag, value) in flags.into_iter().chain(threads) {
        // As a single word, so that no value is taken for a flag.
        words.push(format!("{flag}={value}").into());
    }
    // Receipts that don't say so are from before weights were copied.
    if receipt.environment.get(WEIGHTS).is_none_or(|stated| stated == MAPPED) {
        words.push("--mmap".into());
    }
    words.extend(["--out".into(), out.into()]);
    Ok(words)
}

type Rerun = (Receipt, Receipt);

fn as_text(
    path: &Path,
    verdict: &Verdict,
    device: Option<&Device>,
    rerun: Option<&Rerun>,
) -> String {
    let mut out = String::new();
    // Writing to a `String` can't fail.
    let _ = write_text(&mut out, path, verdict, device, rerun);
    out
}

fn write_text(
    out: &mut String,
    path: &Path,
    verdict: &Verdict,
    device: Option<&Device>,
    rerun: Option<&Rerun>,
) -> std::fmt::Result {
    let path = output::shown(path);
    match verdict.refusals.len() {
        0 if verdict.not_verifiable.is_some() => writeln!(out, "NOT VERIFIABLE  {path}")?,
        0 => writeln!(out, "accepted  {path}")?,
        1 => writeln!(out, "REFUSED   {path}: 1 reason")?,
        n => writeln!(out, "REFUSED   {path}: {n} reasons")?,
    }
    if let Some(device) = device {
        writeln!(out, "{}", hanging("device    ", "  ", &table::device(device)))?;
    }
    if let Some(claims) = &verdict.not_verifiable {
        writeln!(out, "{}", hanging("claims    ", "  ", &claims.to_string()))?;
    }
    for refusal in &verdict.refusals {
        writeln!(out, "\n  {}", refusal.code.name())?;
        writeln!(out, "{}", hanging("    ", "      ", &refusal.to_string()))?;
    }
    if let Some((receipt, again)) = rerun {
        writeln!(out, "\nRerun, in tokens per second:")?;
        for test in &receipt.tests {
            let rate = |receipt: &Receipt| {
                let same = receipt.tests.iter().find(|other| other.name == test.name);
                same.and_then(|test| test.aggregates.median_ts)
            };
            if let (Some(then), Some(now)) = (rate(receipt), rate(again)) {
                let off = 100.0 * (now / then - 1.0);
                writeln!(
                    out,
                    "  {:16} {then:>12.2} {now:>12.2} {off:>+8.1} %",
                    printable(&test.name)
                )?;
            }
        }
    }
    let lists = [
        ("Signed by", &verdict.signed_by),
        ("Doubts", &verdict.doubts),
        ("Not checked", &verdict.not_checked),
    ];
    for (title, lines) in lists {
        if !lines.is_empty() {
            writeln!(out, "\n{title}:")?;
            for line in lines {
                writeln!(out, "{}", hanging("  ", "    ", line))?;
            }
        }
    }
    Ok(())
}

fn as_json(
    path: &Path,
    verdict: &Verdict,
    device: Option<&Device>,
    rerun: Option<&Rerun>,
) -> serde_json::Value {
    json!({
        "receipt": path.display().to_string(),
        "device": device,
        "accepted": verdict.is_accepted(),
        "refusals": verdict.refusals,
        "not_checked": verdict.not_checked,
        "doubts": verdict.doubts,
        "signed_by": verdict.signed_by,
        "not_verifiable": verdict.not_verifiable,
        "rerun": rerun.map(|(receipt, again)| {
            receipt.tests.iter().map(|test| {
                let same = again.tests.iter().find(|other| other.name == test.name);
                json!({
                    "test": test.name,
                    "median_ts": test.aggregates.median_ts,
                    "rerun_median_ts": same.and_then(|test| test.aggregates.median_ts),
                })
            }).collect::<Vec<_>>()
        }),
    })
}
