//! The list of commands. The arguments of each stand beside it, in `cmd/`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::{Parser, Subcommand};

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
        if let [_, command, rest @ ..] = &mut words[..]
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
        Self::try_parse_from(words)
    }
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
