//! Test of the sentences that commands print: each flag that one names is one that its command has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use crate::args::Args;

/// The flags of a command and of its own commands, hidden ones too.
fn flags_of(command: &Command) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    for arg in command.get_arguments() {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        flags.extend(arg.get_long().into_iter().chain(aliases).map(str::to_owned));
    }
    for flag in ["help", "version"] {
        flags.insert(flag.to_owned());
    }
    flags.extend(command.get_subcommands().flat_map(flags_of));
    flags
}

/// The files of a command.
fn sources(path: PathBuf) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path];
    }
    let entries = fs::read_dir(&path).expect("a folder");
    entries.flat_map(|entry| sources(entry.expect("an entry").path())).collect()
}

/// The flags in a line's sentences. A text that is a flag alone is a word for a program, and `cargo` has its own.
fn named_in(line: &str) -> Vec<&str> {
    let is_other = line.trim_start().starts_with("//")
        || line.contains("after_help")
        || line.contains("cargo install");
    if is_other {
        return Vec::new();
    }
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut named = Vec::new();
    for (at, _) in line.match_indices("--") {
        let (before, rest) = (line[..at].chars().next_back(), &line[at + 2..]);
        let name = &rest[..rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len())];
        let after = rest[name.len()..].chars().next();
        let is_word = before == Some('"') && after == Some('"');
        let begins = name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-');
        if begins && !is_word && !before.is_some_and(is_of_name) {
            named.push(name);
        }
    }
    named
}

#[test]
fn a_sentence_names_flags_that_its_command_has() {
    let whole = Args::command();
    let all: BTreeSet<String> = flags_of(&whole);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cmd");
    let mut looked_at = 0;
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        let name = if stem == "trial" { "try".to_owned() } else { stem.replace('_', "-") };
        let Some(command) = whole.find_subcommand(&name) else { continue };
        let own = flags_of(command);
        for file in sources(path) {
            let source = fs::read_to_string(&file).expect("UTF-8");
            let sentences = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            for line in sentences.lines() {
                // What it says of another command it may take from there.
                let names = |of: &Command| line.contains(&format!("`{} ", of.get_name()));
                let is_of_another =
                    line.contains("brickscope ") || whole.get_subcommands().any(names);
                let has = if is_of_another { &all } else { &own };
                for flag in named_in(line) {
                    let is_of_all = flag == "color";
                    assert!(is_of_all || has.contains(flag), "{name} has no --{flag}: {line}");
                    looked_at += 1;
                }
            }
        }
    }
    assert!(looked_at > 50, "{looked_at}");
}

#[test]
fn words_for_programs_are_no_sentences() {
    assert_eq!(named_in(r#"bail!("--via: {run} has no samples; use --run")"#), ["via", "run"]);
    assert!(named_in(r#"words.push("--set".to_owned());"#).is_empty());
    assert!(named_in("// With --out it goes there").is_empty());
    assert!(named_in(r#""--threads-{flag}: it runs on a device""#).is_empty());
}
