//! Command lines that are measured under `brickscope run`, as `versus` and `bisect` take them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use brickscope::{Profile, secrets};
use brickscope_analysis::compare::{Process, of_most_tokens};
use brickscope_analysis::place;

use super::again::Line;
use crate::text::printable;

/// The words of a command line as a shell has them, without expansions; and the command by which brickscope runs them.
pub(crate) fn line(command: &str) -> Result<Line> {
    let words = shlex::split(command).context("a quotation mark has no other")?;
    let is_variable = |word: &&String| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    let n = words.iter().take_while(is_variable).count();
    let (variables, words) = words.split_at(n);
    let variables = variables.iter().filter_map(|word| word.split_once('='));
    let env = variables.map(|(name, value)| (name.into(), value.into())).collect();
    let [program, rest @ ..] = words else {
        anyhow::bail!("it names no program");
    };
    ensure!(
        !program.ends_with(".gguf"),
        "{0} is a model: name a command, such as 'llama-bench -m {0}' or 'profile {0}'",
        printable(program)
    );
    let own = std::env::current_exe().context("can't find this program's file")?;
    let is_brickscope = Path::new(program).file_name().is_some_and(|name| name == "brickscope");
    let (program, words) = match (program.as_str(), rest.first().map(String::as_str)) {
        ("profile", _) => (own, words.to_vec()),
        (_, Some("profile")) if is_brickscope => {
            // The one that runs now, unless a path names another.
            let other = Path::new(program).components().count() > 1;
            (if other { PathBuf::from(program) } else { own }, rest.to_vec())
        }
        // An engine of one's own, which writes its run itself.
        (_, Some("benchmark")) if !is_brickscope && Path::new(program).components().count() > 1 => {
            (PathBuf::from(program), rest.to_vec())
        }
        (_, other) if is_brickscope => {
            let other = other.unwrap_or("nothing");
            anyhow::bail!(
                "of brickscope's own commands only `profile` can be compared, not `{other}`"
            );
        }
        _ => {
            ensure!(
                !Path::new(program)
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().contains("server")),
                "a server doesn't end by itself: `brickscope load` and `brickscope requests` tell how fast it is"
            );
            let own_words = ["run", "--quiet", "--"].map(str::to_owned);
            (own, own_words.into_iter().chain(words.iter().cloned()).collect())
        }
    };
    let words = words.into_iter().map(OsString::from).collect();
    Ok(Line { program, words, env, folder: None })
}

/// Two commands as they are told to others: without secrets, and of the folders of files only those that tell the two apart.
pub(crate) fn apart(commands: [&str; 2]) -> [String; 2] {
    // Deeper than that nobody's builds lie.
    let told = |names: usize| commands.map(|command| told(command, Some(names)));
    (1..6).map(told).find(|[a, b]| a != b).unwrap_or_else(|| told(1))
}

/// A command as it is told: without secrets, and of paths only so many of their last names.
pub(crate) fn told(command: &str, names: Option<usize>) -> String {
    let words = shlex::split(command).unwrap_or_default();
    let words = secrets::without(words).into_iter().map(|word| {
        let Some(names) = names.filter(|_| !word.contains("://")) else { return word };
        // `--model=/a/b` is a word, too.
        let (flag, path) = match word.split_once('=') {
            Some((flag, path)) => (format!("{flag}="), path.to_owned()),
            None => (String::new(), word),
        };
        let all: Vec<&str> = path.split('/').collect();
        flag + &all[all.len().saturating_sub(names)..].join("/")
    });
    let words: Vec<String> = words.collect();
    // A variable and its value need no quotation marks, which shlex would set.
    let is_plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "/._-+@%:,=".contains(c))
    };
    let words = words.iter().map(|word| match is_plain(word) {
        true => word.into(),
        false => shlex::try_quote(word).unwrap_or_else(|_| word.into()),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A run as `versus` compares it: its passes with the number of tokens that most have.
pub(crate) fn process(name: &str, mut profile: Profile) -> Result<Process> {
    // Of a run on a device, the host has only launched and waited.
    if let Some(on_device) =
        place::that_ran(&profile).and_then(|device| profile.whole_device(device))
    {
        profile = on_device;
    }
    let left = of_most_tokens(&mut profile);
    let mut process = Process::from_profile(name, &profile)
        .with_context(|| format!("{name} can't be compared"))?;
    if left > 0 {
        let (are, have) = if left == 1 {
            ("is", "it has another number")
        } else {
            ("are", "they have other numbers")
        };
        process
            .doubts
            .push(format!("{left} of its passes {are} left out: {have} of tokens than most"));
    }
    Ok(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &str) -> String {
        let line = line(command).expect("a command");
        let words: Vec<_> = line.words.iter().map(|word| word.to_string_lossy()).collect();
        words.join("|")
    }

    #[test]
    fn a_command_runs_under_run_unless_it_is_one_of_brickscope() {
        assert_eq!(words("llama-bench -p 'a b'"), "run|--quiet|--|llama-bench|-p|a b");
        assert_eq!(words("profile m.gguf"), "profile|m.gguf");
        assert_eq!(words("brickscope profile m.gguf"), "profile|m.gguf");
        let other = line("old/brickscope profile m.gguf").expect("a command");
        assert_eq!(other.program, Path::new("old/brickscope"));
        // An engine of one's own saves its run where it is told to.
        let own = line("./engine benchmark --tokens 9").expect("a command");
        assert_eq!(own.program, Path::new("./engine"));
        assert_eq!(words("./engine benchmark --tokens 9"), "benchmark|--tokens|9");
        assert_eq!(words("python3 benchmark"), "run|--quiet|--|python3|benchmark");
        let with = line("GGML_X=1 B= ./llama-bench X=2").expect("a command");
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        assert_eq!(with.env, [variable("GGML_X", "1"), variable("B", "")]);
        assert_eq!(with.words.last().map(OsString::as_os_str), Some("X=2".as_ref()));
    }

    #[test]
    fn what_can_not_be_compared_is_refused() {
        let refused = |command: &str| line(command).expect_err("refused").to_string();
        assert!(refused("it's").contains("quotation mark"));
        assert!(refused("A=1").contains("names no program"));
        assert!(refused("m.gguf").contains("'llama-bench -m m.gguf'"));
        assert!(refused("brickscope show RUN").contains("not `show`"));
        assert!(refused("llama-server -m m.gguf").contains("doesn't end by itself"));
    }

    #[test]
    fn others_see_no_folders_and_no_secrets() {
        let line = "/home/me/new/llama-bench -m '/data/a b.gguf' --path=/x/y.bin --api-key abc";
        let shown = told(line, Some(1));
        assert!(shown.starts_with("llama-bench -m 'a b.gguf' --path=y.bin"), "{shown}");
        assert!(!shown.contains("abc"), "{shown}");
        let [a, b] = apart(["/x/old/bench -m /a/m", "/x/new/bench -m /b/m"]);
        assert_eq!([a, b], ["old/bench -m a/m", "new/bench -m b/m"]);
        assert_eq!(apart(["/x/bench"; 2]), ["bench", "bench"]);
        assert!(told(line, None).contains("/home/me/new/llama-bench"));
    }
}
