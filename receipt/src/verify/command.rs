//! Checks that a receipt says what its command line asked for.

use std::collections::{BTreeSet, HashSet};

use brickscope_profile::text::file_name;

use super::{Code, Findings, said};
use crate::v1::Receipt;

/// The flags of `brickscope benchmark` that a value follows: their names, the first of which stands for all.
const WITH_VALUE: &[&[&str]] = &[
    &["--prompt-tokens", "-p"],
    &["--tokens", "-n", "--max-tokens"],
    &["--depth", "-d"],
    &["--repetitions", "-r"],
    &["--seed"],
    &["--processes"],
    &["--process"],
    &["--set"],
    &["--threads"],
    &["--backend"],
    &["--model"],
    &["--out"],
    &["--format", "-f", "--output", "-o"],
    &["--color"],
    &["--metrics"],
    &["--metrics-names"],
    &["--lake"],
    &["--otlp"],
    &["--otlp-every"],
];

/// Those without.
const ALONE: &[&str] =
    &["--no-profiler", "--overwrite", "--resume", "--json", "--live", "--metrics-public", "--mmap"];

/// What a command line without the flag asks for.
const DEFAULTS: &[(&str, &str)] = &[
    ("--prompt-tokens", "512"),
    ("--tokens", "128"),
    ("--depth", "0"),
    ("--repetitions", "5"),
    ("--seed", "42"),
    ("--processes", "1"),
];

/// Compares the command line with the rest of the receipt.
pub(super) fn check(receipt: &Receipt, found: &mut Findings) {
    let words = &receipt.run.command;
    // Nothing else writes receipts, and `benchmark` ran by no other words than those that it reads.
    let asked = match of_benchmark(words) {
        Some(words) => Asked::of(words, &receipt.model.path),
        None => Err("isn't one of `brickscope benchmark`, which writes receipts".to_owned()),
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(reason) => {
            let sentence = format!("the command line {reason}");
            return found.refuse_about(Code::CommandMismatch, "words", sentence);
        }
    };
    for reason in &asked.unknown {
        found.not_checked("a part of the command line", reason);
    }
    for (flag, is) in stated(receipt) {
        let value = asked.value(flag).or_else(|| default(flag).map(str::to_owned));
        let Some(value) = value.filter(|value| !means(flag, value, &is)) else { continue };
        let how = if asked.value(flag).is_some() { "says" } else { "means, by default," };
        found.refuse_about(
            Code::CommandMismatch,
            flag,
            format!(
                "the command line {how} {flag} {}, but the receipt is of {}",
                said(&value),
                said(&is)
            ),
        );
    }
    if asked.has("--no-profiler") == receipt.run.profiled {
        let (flag, is) = if receipt.run.profiled { ("has", "on") } else { ("hasn't", "off") };
        let sentence = format!(
            "the command line {flag} --no-profiler, but run.profiled says that the profiler was {is}"
        );
        found.refuse_about(Code::CommandMismatch, "alone", sentence);
    }
    let weights = receipt.environment.get("WEIGHTS");
    if let Some(weights) =
        weights.filter(|weights| asked.has("--mmap") && *weights != "mapped file")
    {
        let sentence = format!(
            "the command line says --mmap, but the environment says that the weights were in {}",
            said(weights)
        );
        found.refuse_about(Code::CommandMismatch, "alone", sentence);
    }
}

fn default(flag: &str) -> Option<&'static str> {
    DEFAULTS.iter().find(|(name, _)| *name == flag).map(|(_, value)| *value)
}

/// What the receipt says, for each flag that asks for it.
fn stated(receipt: &Receipt) -> Vec<(&'static str, String)> {
    let run = &receipt.run;
    let list = |numbers: BTreeSet<u64>| {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        numbers.join(",")
    };
    let mut all = vec![
        ("--repetitions", run.repetitions.to_string()),
        ("--seed", run.seed.to_string()),
        ("--processes", run.processes.to_string()),
        ("--process", run.process.to_string()),
        ("--threads", run.threads.to_string()),
        ("--backend", run.kernels.clone()),
        ("--set", run.set.clone().unwrap_or_default()),
        ("--model", receipt.model.path.clone()),
    ];
    // A test is of a prompt or of decoding; without one of a kind, the command line asked for 0 tokens of it.
    let tokens = |of: fn(&crate::v1::Test) -> u64| {
        let counts: BTreeSet<u64> = receipt.tests.iter().map(of).filter(|&n| n > 0).collect();
        if counts.is_empty() { "0".to_owned() } else { list(counts) }
    };
    all.push(("--prompt-tokens", tokens(|test| test.n_prompt)));
    all.push(("--tokens", tokens(|test| test.n_gen)));
    all.push(("--depth", list(receipt.tests.iter().map(|test| test.n_depth).collect())));
    all
}

/// Whether a flag's value asks for what the receipt is of.
fn means(flag: &str, value: &str, is: &str) -> bool {
    let numbers = |text: &str| -> Option<BTreeSet<u64>> {
        text.split(',').map(|number| number.trim().parse().ok()).collect()
    };
    match flag {
        // The same file may have other ways to it.
        "--model" => file_name(value) == file_name(is),
        "--backend" | "--set" => value == is,
        _ => numbers(value).is_some_and(|asked| Some(asked) == numbers(is)),
    }
}

/// The words after the command's name. The one flag of all commands may stand before it.
fn of_benchmark(words: &[String]) -> Option<&[String]> {
    let words = match words.get(1..)? {
        [flag, _, rest @ ..] if flag == "--color" => rest,
        [flag, rest @ ..] if flag.starts_with("--color=") => rest,
        words => words,
    };
    words.split_first().filter(|(command, _)| *command == "benchmark").map(|(_, rest)| rest)
}

/// The flags of a command line.
#[derive(Debug, Default, PartialEq)]
struct Asked<'w> {
    values: Vec<(&'static str, &'w str)>,
    alone: Vec<&'static str>,
    /// What this version doesn't know.
    unknown: Vec<String>,
}

impl<'w> Asked<'w> {
    /// `model` is the receipt's: a word after a flag that this version doesn't know may be its value, or the model.
    fn of(words: &'w [String], model: &str) -> Result<Self, String> {
        let mut asked = Self::default();
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            if word == "--" {
                asked.values.extend(words.next().map(|model| ("--model", model)));
                break;
            }
            // `-` alone is a file, as every word without one is.
            if !word.starts_with('-') || word == "-" {
                asked.values.push(("--model", word));
                continue;
            }
            if let Some(flag) = ALONE.iter().find(|flag| **flag == word) {
                asked.alone.push(flag);
                continue;
            }
            let (flag, attached) = split(word);
            let Some(known) = WITH_VALUE.iter().find(|names| names.contains(&flag)) else {
                asked.unknown.push(format!("this version doesn't know {}", said(flag)));
                let is_value =
                    |next: &&str| !next.starts_with('-') && file_name(next) != file_name(model);
                if attached.is_none() {
                    words.next_if(is_value);
                }
                continue;
            };
            let value = attached.or_else(|| words.next());
            let value =
                value.ok_or_else(|| format!("ends with {}, which a value follows", said(flag)))?;
            asked.values.push((known[0], value));
        }
        asked.once()?;
        Ok(asked)
    }

    /// Only a list may be given in parts.
    fn once(&self) -> Result<(), String> {
        let flags = self.values.iter().map(|(flag, _)| flag).filter(|flag| **flag != "--depth");
        let mut known = HashSet::new();
        match flags.chain(&self.alone).find(|flag| !known.insert(**flag)) {
            Some(flag) => Err(format!("has {} twice", said(flag))),
            None => Ok(()),
        }
    }

    /// The value of a flag. A list that is given in parts is one list.
    fn value(&self, flag: &str) -> Option<String> {
        let values = self.values.iter().filter(|(name, _)| *name == flag);
        let values: Vec<&str> = values.map(|(_, value)| *value).collect();
        match flag {
            "--depth" if !values.is_empty() => Some(values.join(",")),
            _ => values.last().map(|&value| value.to_owned()),
        }
    }

    fn has(&self, flag: &str) -> bool {
        self.alone.contains(&flag)
    }
}

/// A word's flag and its value, as in `--flag=value`, `-r=5` and `-r5`.
fn split(word: &str) -> (&str, Option<&str>) {
    if word.starts_with("--") {
        return word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
    }
    match word.char_indices().nth(2) {
        Some((at, _)) => {
            let (flag, value) = word.split_at(at);
            (flag, Some(value.strip_prefix('=').unwrap_or(value)))
        }
        None => (word, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_clap_reads_them() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            Asked::of(&words, "m.gguf").map(|asked| {
                let values = asked.values.iter().map(|(flag, value)| format!("{flag} {value}"));
                values.chain(asked.alone.iter().map(|flag| (*flag).to_owned())).collect::<Vec<_>>()
            })
        };
        let all =
            of("m.gguf -r5 -p=64 -n 16 --depth=0,512 --threads 2 --mmap").expect("known flags");
        assert_eq!(
            all,
            [
                "--model m.gguf",
                "--repetitions 5",
                "--prompt-tokens 64",
                "--tokens 16",
                "--depth 0,512",
                "--threads 2",
                "--mmap"
            ]
        );
        assert_eq!(
            of("--out x --no-profiler -- --odd"),
            Ok(vec!["--out x".into(), "--model --odd".into(), "--no-profiler".into()])
        );
        let twice = ["-d0", "--depth", "8"].map(str::to_owned);
        let asked = Asked::of(&twice, "m.gguf").expect("known flags");
        assert_eq!(asked.value("--depth").as_deref(), Some("0,8"));
        // What this version doesn't know hides nothing.
        assert_eq!(
            of("--later 5 -r5 --now m.gguf"),
            Ok(vec!["--repetitions 5".into(), "--model m.gguf".into()])
        );
        let words = ["--later=x", "-r5"].map(str::to_owned);
        let asked = Asked::of(&words, "m.gguf").expect("known and unknown flags");
        assert_eq!(asked.unknown, ["this version doesn't know `--later`"]);
        assert!(of("--seed").is_err());
        assert!(of("a.gguf -r5 --repetitions=5").is_err() && of("a.gguf b.gguf").is_err());
        assert!(of("--mmap --mmap").is_err());
        // The format's old names are the same flag.
        assert_eq!(of("-o json"), Ok(vec!["--format json".into()]));
        assert!(of("-o json --format csv").is_err());
    }

    #[test]
    fn colours_may_be_chosen_before_the_command() {
        let rest = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            of_benchmark(&words).map(<[String]>::to_vec)
        };
        for line in ["b benchmark -r", "b --color never benchmark -r", "b --color=a benchmark -r"] {
            assert_eq!(rest(line), Some(vec!["-r".to_owned()]), "{line}");
        }
        assert_eq!(rest("b profile"), None);
        assert_eq!(rest("b --color benchmark"), None);
    }
}
