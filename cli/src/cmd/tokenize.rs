//! `brickscope tokenize`: prints the token ids of a text.

use std::path::PathBuf;

use anyhow::{Context, Result};
use brickscope_engine::gguf::Gguf;
use brickscope_engine::read_tokenizer;
use brickscope_engine::tokenizer::Special;

use crate::output;

/// Print the token ids of a text on one line.
///
/// Only the vocabulary of the file is read: it may have no tensors, and be of an architecture that can't be run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  brickscope tokenize model.gguf \"Hello, world!\"")]
pub(crate) struct TokenizeArgs {
    /// The GGUF file.
    pub(crate) model: PathBuf,

    /// The text to tokenize.
    pub(crate) text: String,

    /// Leave out the tokens that mark the beginning and end of a text.
    #[arg(long)]
    pub(crate) no_special: bool,

    /// Parse control tokens in the text, such as `</s>`.
    #[arg(long)]
    pub(crate) parse_special: bool,

    /// Print the ids as a JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &TokenizeArgs) -> Result<()> {
    let tokenizer = read_tokenizer(&Gguf::open(&args.model)?)?;
    let special = Special { add: !args.no_special, parse: args.parse_special };
    let ids = tokenizer.encode(&args.text, special);
    let ids = ids.with_context(|| args.model.display().to_string())?;
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    let line = if args.json { format!("[{}]", ids.join(",")) } else { ids.join(" ") };
    output::print(line + "\n")
}
