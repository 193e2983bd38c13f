//! Runs the command that measures, and reads its result: one number.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail, ensure};
use brickscope::ImportedTest;
use brickscope::load::{self, Limit};
use brickscope_analysis::rate;
use brickscope_analysis::receipt::Receipt;
use brickscope_formats::import::{self, Format, Options};
use serde_json::Value;

use super::git::unset;
use super::reading::{Measured, Reading};
use crate::text::{printable, printable_text};
use crate::{family, interrupt};

/// The most of its output that is read.
const LIMIT: Limit = Limit { bytes: 1 << 26, instead: "let the command print less" };

/// How the result is to be read.
#[derive(Debug, Clone, Default)]
pub(crate) struct How {
    /// What stands before and after the number, with `{}` in its place.
    pub(crate) pattern: Option<String>,
    /// Which test, of several.
    pub(crate) test: Option<String>,
    pub(crate) less_is_better: bool,
}

/// A command of the user's, in the folder of a commit or a version.
pub(crate) fn shell(line: &str, folder: &Path, hash: &str) -> Command {
    let mut command = Command::new("sh");
    unset(&mut command);
    family::untie(&mut command);
    // Each worktree keeps its own build.
    for shared in ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"] {
        command.env_remove(shared);
    }
    command.arg("-c").arg(line).current_dir(folder).env("BRICKSCOPE_REVISION", hash);
    command.stdin(Stdio::null());
    command
}

/// Measures once. Its output goes to files in `work`, so that nothing of ours runs beside it.
pub(crate) fn measure(
    line: &str,
    folder: &Path,
    hash: &str,
    work: &Path,
    how: &How,
) -> Result<Measured> {
    let [out, err] = ["measure.out", "measure.err"].map(|name| work.join(name));
    let create = |path: &Path| File::create(path).with_context(|| path.display().to_string());
    let mut command = shell(line, folder, hash);
    command.stdout(create(&out)?).stderr(create(&err)?);
    let began = SystemTime::now();
    let status = command.status().context("can't start sh")?;
    // A signal of the terminal reaches the command as well, which may end early and without an error.
    if interrupt::is_asked() {
        return Ok(Measured::Interrupted);
    }
    if !status.success() {
        let said = format!("{}\n{}", said_in(&out), said_in(&err));
        return Ok(Measured::Failed(format!(
            "the command that measures failed ({status}):\n{}",
            said.trim()
        )));
    }
    let text = |path: &Path| -> Result<String> {
        let bytes = load::bytes(path, LIMIT).with_context(|| path.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (out, err) = (text(&out)?, text(&err)?);
    Ok(match read(&out, &err, folder, began, how) {
        Ok(reading) => Measured::Value(reading),
        Err(error) => Measured::Failed(format!("{error:#}\n{}", shown(&out, &err))),
    })
}

/// The end of a file, for people.
pub(crate) fn said_in(path: &Path) -> String {
    let bytes = load::bytes(path, LIMIT).unwrap_or_default();
    last_lines(&String::from_utf8_lossy(&bytes))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let cut = |line: &&str| printable(line).chars().take(200).collect::<String>();
    lines[lines.len().saturating_sub(10)..].iter().map(cut).collect::<Vec<_>>().join("\n")
}

fn shown(out: &str, err: &str) -> String {
    let part = |name: &str, text: &str| match last_lines(text) {
        none if none.is_empty() => format!("(nothing on {name})"),
        lines => format!("the end of its {name}:\n{lines}"),
    };
    format!("{}\n{}", part("standard output", out), part("standard error", err))
}

/// Reads the result out of what the command printed.
fn read(out: &str, err: &str, folder: &Path, began: SystemTime, how: &How) -> Result<Reading> {
    let plain = |value: f64| {
        ensure!(
            value.is_finite() && value > 0.0,
            "its result is {value}, and it has to be a number above 0"
        );
        Ok(Reading { value, receipt: None, run: None })
    };
    if let Some(pattern) = &how.pattern {
        let found = by_pattern(out, pattern)?.or(by_pattern(err, pattern)?);
        return plain(found.with_context(|| {
            format!(
                "its output has no number where --pattern says, \"{}\"",
                printable_text(pattern)
            )
        })?);
    }
    if let Ok(value) = out.trim().parse() {
        return plain(value);
    }
    let is_rate = || {
        ensure!(
            !how.less_is_better,
            "its result is in tokens per second, of which more is better: leave --less-is-better out"
        );
        Ok(())
    };
    let rows = rows(out);
    let of_rows = || {
        is_rate()?;
        let tests = rows.iter().map(|(name, value)| (name.as_str(), Some(*value)));
        plain(one(tests.collect(), how.test.as_deref())?)
    };
    // `brickscope benchmark` prints a table, and names the receipt that has more digits.
    if !rows.is_empty() && out.contains("\"avg_ts\"") {
        return of_rows();
    }
    for word in words(out).chain(words(err)) {
        let path = folder.join(word);
        let path = if path.is_dir() { path.join("receipt.json") } else { path };
        let is_receipt = path.to_string_lossy().ends_with("receipt.json") && path.is_file();
        if is_receipt {
            is_rate()?;
            let value = of_receipt(&path, began, how)?;
            return Ok(Reading { receipt: Some(path), ..plain(value)? });
        }
    }
    if !rows.is_empty() {
        return of_rows();
    }
    bail!(
        "its output is neither a number, nor that of llama-bench, nor does it name a receipt: \
         --pattern says where the number is, such as --pattern 'eval time = {{}} ms'"
    )
}

/// Words that may be paths: whole lines, what follows a colon, and words; the last ones first.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.lines().rev().take(200).flat_map(|line| {
        let after = line.split_once(": ").map(|(_, rest)| rest.trim());
        std::iter::once(line.trim())
            .chain(after)
            .chain(
                line.split_whitespace().map(|word| word.trim_matches(['"', '\'', '`', ',', '.'])),
            )
            .filter(|word| !word.is_empty() && word.len() < 4096)
    })
}

/// The number in the last place where the text is as the pattern says. Any white space stands for any other.
fn by_pattern(text: &str, pattern: &str) -> Result<Option<f64>> {
    check_pattern(pattern)?;
    let (before, after) = pattern.split_once("{}").context("the pattern has {}")?;
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (before, after) = (flat(before), flat(after));
    for line in text.lines().rev() {
        let line = flat(line);
        let starts: Vec<usize> = if before.is_empty() {
            let is_start = |at: &usize| *at == 0 || line.as_bytes()[at - 1] == b' ';
            line.char_indices().map(|(at, _)| at).filter(is_start).collect()
        } else {
            line.match_indices(&before).map(|(at, found)| at + found.len()).collect()
        };
        for start in starts.into_iter().rev() {
            let rest = line[start..].trim_start();
            let is_of_number = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
            let end = rest.find(|c| !is_of_number(c)).unwrap_or(rest.len());
            // `12e` of `12eggs`.
            let number = rest[..end].trim_end_matches(|c: char| !c.is_ascii_digit());
            let follows = rest[number.len()..].trim_start().starts_with(&after);
            if let Some(number) = number.parse().ok().filter(|_| follows) {
                return Ok(Some(number));
            }
        }
    }
    Ok(None)
}

/// Whether a pattern has one place for the number.
pub(crate) fn check_pattern(pattern: &str) -> Result<()> {
    ensure!(
        pattern.matches("{}").count() == 1 && pattern.trim() != "{}",
        "--pattern \"{}\": it needs one {{}} where the number stands, and text beside it",
        printable_text(pattern)
    );
    Ok(())
}

/// The tests of llama-bench's output, in any of its forms, and the tokens per second of each.
fn rows(text: &str) -> Vec<(String, f64)> {
    let is_it = import::format_of(text) == Some(Format::LlamaBench);
    let read = || import::read(text, Path::new("output"), Format::LlamaBench, &Options::default());
    let imported = is_it.then(read).and_then(Result::ok).and_then(|profile| profile.imported);
    let tests = imported.map(|imported| imported.tests).unwrap_or_default();
    let row = |test: ImportedTest| rate::mean(&test).map(|rate| (test.name, rate));
    let mut rows: Vec<(String, f64)> = tests.into_iter().filter_map(row).collect();
    if rows.is_empty() && text.contains("\"avg_ts\"") {
        // What a script left of a row.
        let values: Vec<Value> = match serde_json::from_str(text) {
            Ok(Value::Array(rows)) => rows,
            Ok(row) => vec![row],
            Err(_) => text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
        };
        let rates = values.iter().filter_map(|row| row.get("avg_ts")?.as_f64());
        rows.extend(rates.map(|rate| ("avg_ts".to_owned(), rate)));
    }
    rows
}

/// The figure of the one test, or of the one that is named.
fn one(tests: Vec<(&str, Option<f64>)>, wanted: Option<&str>) -> Result<f64> {
    let names = || tests.iter().map(|(name, _)| printable(name)).collect::<Vec<_>>().join(", ");
    let chosen = match wanted {
        Some(wanted) => {
            let mut found = tests.iter().filter(|(name, _)| *name == wanted);
            let first = found.next().ok_or_else(|| {
                anyhow!("it has no test \"{}\": its tests are {}", printable(wanted), names())
            })?;
            ensure!(
                found.next().is_none(),
                "it has several rows of the test {}: measure one setting only",
                printable(wanted)
            );
            first
        }
        None => {
            ensure!(tests.len() == 1, "it has several tests, {}: choose one with --test", names());
            &tests[0]
        }
    };
    chosen.1.with_context(|| format!("its test {} has no rate", printable(chosen.0)))
}

fn of_receipt(path: &Path, began: SystemTime, how: &How) -> Result<f64> {
    let cannot = || path.display().to_string();
    let written = fs::metadata(path).and_then(|found| found.modified()).with_context(cannot)?;
    // File systems keep time less exactly.
    let is_new = written + Duration::from_secs(2) >= began;
    ensure!(is_new, "{} is older than this measurement: write it anew each time", cannot());
    let bytes = brickscope_analysis::receipt::read(path)?;
    let receipt = Receipt::from_bytes(&bytes, path)?;
    if let (None, Some(rate)) = (&how.test, receipt.tokens_per_second) {
        return Ok(rate);
    }
    let rate = |test: &brickscope_analysis::receipt::v1::Test| test.aggregates.median_ts;
    let tests = receipt.tests.iter().map(|test| (test.name.as_str(), rate(test)));
    one(tests.collect(), how.test.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(out: &str, how: &How) -> Result<f64> {
        let folder = Path::new("/nonexistent");
        Ok(read(out, "eval time = 12.5 ms", folder, SystemTime::now(), how)?.value)
    }

    fn fails(out: &str, how: &How) -> String {
        format!("{:#}", check(out, how).expect_err("no number"))
    }

    #[test]
    fn a_bare_number_is_the_result() {
        assert_eq!(check(" 31.25\n", &How::default()).expect("a number"), 31.25);
        for bad in ["NaN", "inf", "-1", "0"] {
            assert!(fails(bad, &How::default()).contains("has to be a number above 0"), "{bad}");
        }
        assert!(fails("fast\n", &How::default()).contains("neither a number"));
    }

    #[test]
    fn a_pattern_says_where_the_number_is() {
        let with = |pattern: &str| How { pattern: Some(pattern.to_owned()), ..How::default() };
        let out =
            "llama_print:   prompt eval time =   100.5 ms\n x eval time =  1.25e1 ms / 3\n9 tok/s";
        assert_eq!(check(out, &with("eval time = {} ms")).expect("found"), 12.5);
        assert_eq!(check(out, &with("prompt eval time = {} ms")).expect("found"), 100.5);
        assert_eq!(check(out, &with("{} tok/s")).expect("found"), 9.0);
        let twice = "warm-up: 1 tok/s, then 2 tok/s\n";
        assert_eq!(check(twice, &with("{} tok/s")).expect("found"), 2.0);
        // On standard error, too.
        assert_eq!(check("", &with("time = {}ms")).expect("found"), 12.5);
        assert!(fails(out, &with("load time = {} ms")).contains("no number where --pattern says"));
        for bad in ["{}", "none", "{} {}"] {
            assert!(fails(out, &with(bad)).contains("needs one {}"), "{bad}");
        }
        assert!(fails("é 12eé {} é", &with("é {} x")).contains("no number"));
    }

    #[test]
    fn a_test_of_llama_bench_is_the_result() {
        let rows = "[{\"n_prompt\":512,\"n_gen\":0,\"avg_ts\":900.5},\n{\"n_gen\":128,\"n_depth\":64,\"avg_ts\":30.5}]";
        let with = |test: &str| How { test: Some(test.to_owned()), ..How::default() };
        assert_eq!(check(rows, &with("pp512")).expect("a test"), 900.5);
        assert_eq!(check(rows, &with("tg128 @ d64")).expect("a test"), 30.5);
        assert!(fails(rows, &with("tg1")).contains("its tests are pp512, tg128 @ d64"));
        assert!(fails(rows, &How::default()).contains("choose one with --test"));
        let lines = "{\"n_gen\":16,\"avg_ts\":7.5}\n";
        assert_eq!(check(lines, &How::default()).expect("one test"), 7.5);
        let twice = lines.repeat(2);
        assert!(fails(&twice, &with("tg16")).contains("several rows of the test tg16"));
        let less = How { less_is_better: true, ..How::default() };
        assert!(fails(lines, &less).contains("leave --less-is-better out"));
    }

    #[test]
    fn a_receipt_that_is_named_is_the_result() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run/receipt.json");
        fs::create_dir(folder.path().join("run")).expect("made");
        let example = "../tests/data/5dedb0f/set/1/receipt.json";
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join(example);
        let began = SystemTime::now();
        fs::copy(&example, &path).expect("copied");
        let read = |began| read("written to run\n", "", folder.path(), began, &How::default());
        let reading = read(began).expect("a receipt");
        assert_eq!(reading.receipt.as_deref(), Some(path.as_path()));
        let rate = Receipt::from_bytes(&fs::read(&path).expect("read"), &path).expect("a receipt");
        assert_eq!(Some(reading.value), rate.tokens_per_second);
        // As `brickscope benchmark` prints it: the receipt has more digits than the table above its name.
        let table = "| model | test | t/s |\n| --- | --- | --- |\n| a | tg16 | 1.00 ± 0.10 |\n";
        let both = format!("{table}\nrun in run\n");
        let beside = super::read(&both, "", folder.path(), began, &How::default());
        assert_eq!(beside.expect("a receipt").value, reading.value);
        let alone = super::read(table, "", folder.path(), began, &How::default());
        assert_eq!(alone.expect("a table").value, 1.0);
        // What a script left of a row.
        let left = super::read("{\"avg_ts\": 31.5}\n", "", folder.path(), began, &How::default());
        assert_eq!(left.expect("a rate").value, 31.5);
        let later = began + Duration::from_secs(60);
        let error = format!("{:#}", read(later).expect_err("it is old"));
        assert!(error.contains("older than this measurement"), "{error}");
    }
}
