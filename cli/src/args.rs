//! The list of commands. The arguments of each stand beside it, in `cmd/`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use brickscope_runs::{home, settings};
use clap::{Arg, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cmd::benchmark::BenchmarkArgs;
use crate::cmd::bisect::BisectArgs;
use crate::cmd::collect::CollectArgs;
use crate::cmd::compare::CompareArgs;
use crate::cmd::completions::CompletionsArgs;
use crate::cmd::diverge::DivergeArgs;
use crate::cmd::doctor::DoctorArgs;
use crate::cmd::explain::ExplainArgs;
use crate::cmd::export::ExportArgs;
use crate::cmd::findings::FindingsArgs;
use crate::cmd::flamegraph::FlamegraphArgs;
use crate::cmd::gate::GateArgs;
use crate::cmd::gc::GcArgs;
use crate::cmd::history::HistoryArgs;
use crate::cmd::import::ImportArgs;
use crate::cmd::lake::LakeArgs;
use crate::cmd::load::LoadArgs;
use crate::cmd::logits::LogitsArgs;
use crate::cmd::ls::LsArgs;
use crate::cmd::machine::MachineArgs;
use crate::cmd::man::ManArgs;
use crate::cmd::receipt::ReceiptArgs;
use crate::cmd::report::ReportArgs;
use crate::cmd::requests::RequestsArgs;
use crate::cmd::rm::RmArgs;
use crate::cmd::run::RunArgs;
use crate::cmd::selftest::SelftestArgs;
use crate::cmd::show::ShowArgs;
use crate::cmd::synth::SynthArgs;
use crate::cmd::tag::TagArgs;
use crate::cmd::tokenize::TokenizeArgs;
use crate::cmd::top::TopArgs;
use crate::cmd::trial::TryArgs;
use crate::cmd::verify_receipt::VerifyReceiptArgs;
use crate::cmd::versus::VersusArgs;
use crate::flags::profile::ProfileArgs;
use crate::text::{WIDTH, printable, wrap};

/// See where an LLM's time goes: brick by brick, measured.
#[derive(Debug, Parser)]
#[command(
    name = "brickscope",
    version,
    about,
    max_term_width = 80,
    after_help = "Examples:\n  brickscope profile model.gguf --prompt \"Once upon a time\" --tokens 64\n\nDid a change make it slower?\n  brickscope benchmark model.gguf --processes 10 --out runs/main\n  brickscope verify-receipt runs/main/1\n  brickscope benchmark model.gguf --processes 10 --out runs/pr\n  brickscope compare runs/main runs/pr\n  brickscope gate --baseline baseline --update runs/main\n  brickscope gate --baseline baseline runs/pr --format md\n  brickscope history runs"
)]
pub(crate) struct Args {
    /// When to colour what is printed. `auto` does on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub(crate) color: ColorChoice,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Reads a command line.
    pub(crate) fn read<T: Into<OsString>>(
        words: impl IntoIterator<Item = T>,
    ) -> clap::error::Result<Self> {
        let mut words: Vec<OsString> = words.into_iter().map(T::into).collect();
        // Without a command after `--`, `run` is another name of `profile`: that of its predecessor.
        let at = at_command(&words);
        if let Some(why) = words.get(at..).and_then(instead) {
            return Err(clap::Error::raw(clap::error::ErrorKind::InvalidSubcommand, why));
        }
        if let Some([command, rest @ ..]) = words.get_mut(at..)
            && command == "run"
            && !rest.is_empty()
            && !rest
                .iter()
                .any(|word| ["--", "--help", "-h", "--recover"].iter().any(|of| word == of))
        {
            if let Some(program) = rest.first().filter(|word| is_program(word)) {
                let program = program.to_string_lossy();
                return Err(clap::Error::raw(
                    clap::error::ErrorKind::MissingRequiredArgument,
                    format!("a program comes after `--`: brickscope run -- {program} …\n"),
                ));
            }
            *command = "profile".into();
        }
        let command = grouped(with_defaults(Self::command())).color(colour(&words));
        Self::from_arg_matches(&command.try_get_matches_from(words)?)
    }
}

/// What to type instead of words that users of llama.cpp type first.
fn instead(words: &[OsString]) -> Option<String> {
    match words {
        [model, ..] if Path::new(model).extension().is_some_and(|of| of == "gguf") => {
            let model = printable(&model.to_string_lossy());
            Some(format!("`{model}` is a model: brickscope profile {model}\n"))
        }
        [top, rest @ ..] if top == "top" => {
            let at = rest.iter().position(|word| word == "--")?;
            let program = rest.get(at + 1).filter(|word| is_program(word))?;
            let program = printable(&program.to_string_lossy());
            Some(format!(
                "an unmodified program can't be watched while it runs: `brickscope run -- {program} …` records it, and then \
                 `brickscope show` prints the run, and `brickscope requests` a server's requests; under `run --keep tail`, \
                 `requests --attach` does while it goes on\n"
            ))
        }
        _ => None,
    }
}

/// Where the command stands: the one flag of all commands may stand before it.
fn at_command(words: &[OsString]) -> usize {
    match words.get(1).and_then(|word| word.to_str()) {
        Some("--color") => 3,
        Some(word) if word.starts_with("--color=") => 2,
        _ => 1,
    }
}

/// What `--color` says to the help and to errors, which are printed before all words are read.
fn colour(words: &[OsString]) -> ColorChoice {
    let mut words = words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    let mut choice = ColorChoice::Auto;
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--color") {
            Some("") => words.next(),
            Some(value) => value.strip_prefix('='),
            None => None,
        };
        choice = value.and_then(|value| value.parse().ok()).unwrap_or(choice);
    }
    choice
}

/// The defaults of the user's file, where a flag has a default: an environment variable and the flag itself win.
fn with_defaults(command: clap::Command) -> clap::Command {
    let command = command.mut_subcommand("history", |history| {
        history.mut_arg("dir", |dir| dir.default_value(home().as_os_str()))
    });
    let Some(lake) = settings::current().lake.as_deref() else { return command };
    let given = |arg: Arg| match arg.get_id() == "lake" {
        true => arg.default_value(lake.as_os_str()).required(false),
        false => arg,
    };
    command
        .mut_subcommand("collect", |collect| collect.mut_args(given))
        .mut_subcommand("lake", |lake| lake.mut_subcommands(|of| of.mut_args(given)))
}

/// The commands by what they are for.
const GROUPS: [(&str, &str); 6] = [
    ("Measure", "profile run benchmark load top flamegraph machine doctor selftest"),
    ("Look", "show findings explain requests report export import ls tag rm gc"),
    ("Compare", "compare versus gate bisect try history"),
    ("Fleet", "collect lake receipt verify-receipt"),
    ("Model", "diverge logits tokenize synth"),
    ("This program", "completions man"),
];

/// The column in which the help says what a command does.
const INDENT: usize = 18;

/// The help with its commands in groups: clap has headings for flags alone.
fn grouped(command: clap::Command) -> clap::Command {
    let (header, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let mut groups = String::new();
    for (title, names) in GROUPS {
        groups += &format!("{header}{title}:{header:#}\n");
        for name in names.split(' ') {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let lines = wrap(&about, WIDTH - INDENT).join(&format!("\n{:INDENT$}", ""));
            groups += &format!("  {literal}{name}{literal:#}");
            groups += &format!("{:1$}{lines}\n", "", INDENT - 2 - name.len());
        }
        groups.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

/// Whether a word names a program, and not a model: a file in PATH, or one that may be executed.
fn is_program(word: &OsStr) -> bool {
    let path = Path::new(word);
    let mut magic = [0; 4];
    let is_model = File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok();
    // Whatever its name, and on file systems where all files may be executed.
    if is_model && magic == *b"GGUF" {
        return false;
    }
    if path.extension().is_some_and(|extension| extension == "gguf") {
        return false;
    }
    if path.components().count() > 1 {
        return is_executable(path);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    !path.exists()
        && std::env::split_paths(&folders).any(|folder| is_executable(&folder.join(path)))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    // `try` adds words to the command of a run: the last of several counts.
    #[command(args_override_self = true)]
    Profile(ProfileArgs),
    Run(RunArgs),
    Benchmark(BenchmarkArgs),
    #[command(alias = "diff")]
    Compare(CompareArgs),
    Versus(VersusArgs),
    Gate(GateArgs),
    Bisect(BisectArgs),
    Ls(LsArgs),
    Show(ShowArgs),
    Findings(FindingsArgs),
    Requests(RequestsArgs),
    Load(LoadArgs),
    Try(TryArgs),
    Explain(ExplainArgs),
    Top(TopArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Report(ReportArgs),
    Logits(LogitsArgs),
    Diverge(DivergeArgs),
    VerifyReceipt(VerifyReceiptArgs),
    Receipt(ReceiptArgs),
    Tokenize(TokenizeArgs),
    Synth(SynthArgs),
    Doctor(DoctorArgs),
    Machine(MachineArgs),
    Selftest(SelftestArgs),
    Tag(TagArgs),
    Rm(RmArgs),
    Gc(GcArgs),
    History(HistoryArgs),
    Collect(CollectArgs),
    Lake(LakeArgs),
    Flamegraph(FlamegraphArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_every_group_has_commands() {
        let command = Args::command();
        let mut all: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.split(' ')).collect();
        all.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(all, grouped);
        assert!(all.iter().all(|name| name.len() + 4 <= INDENT), "{all:?}");
        // The template of the help has names in braces.
        let abouts = command.get_subcommands().filter_map(clap::Command::get_about);
        assert!(abouts.map(ToString::to_string).all(|about| !about.contains('{')));
    }

    #[test]
    fn run_without_a_program_is_profile_whatever_stands_before_it() {
        for line in ["b run m.gguf", "b --color never run m.gguf", "b --color=never run m.gguf"] {
            let args = Args::read(line.split(' ')).expect(line);
            assert!(matches!(args.command, Command::Profile(_)), "{line}");
        }
        assert!(Args::read(["b", "--color"]).is_err());
    }

    #[test]
    fn what_users_of_llama_cpp_type_is_read_or_told_what_to_type() {
        let Command::Profile(args) =
            Args::read("b profile -m m.gguf -n 8 -t 1 -p Hello".split(' ')).expect("flags").command
        else {
            panic!("it is profile")
        };
        assert_eq!((args.tokens, args.prompt.as_str()), (8, "Hello"));
        assert_eq!(args.model(), Some(Path::new("m.gguf")));
        assert_eq!(args.executor.threads.map(std::num::NonZeroUsize::get), Some(1));
        let diff = Args::read(["b", "diff", "a", "b"]).expect("another name");
        assert!(matches!(diff.command, Command::Compare(_)));
        let refused = |line: &str| {
            let error = Args::read(line.split(' ')).expect_err(line);
            assert!(error.use_stderr(), "{line}");
            error.to_string()
        };
        assert!(refused("b m.gguf -n 8").contains("brickscope profile m.gguf"));
        assert!(refused("b top -- sh -m m.gguf").contains("`brickscope run -- sh …`"));
        assert!(refused("b top -- sh -m m.gguf").contains("`brickscope requests` a server's"));
    }

    #[test]
    fn colours_of_the_help_are_chosen_by_the_words_before_a_program() {
        let colour = |line: &str| colour(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(colour("brickscope --color never --help"), ColorChoice::Never);
        assert_eq!(colour("brickscope show --color=always"), ColorChoice::Always);
        assert_eq!(colour("brickscope run -- ls --color never"), ColorChoice::Auto);
        assert_eq!(colour("brickscope show --color"), ColorChoice::Auto);
        assert_eq!(colour("brickscope show --color blue"), ColorChoice::Auto);
    }
}
