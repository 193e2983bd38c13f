//! `brickscope tokenize`: the ids of a text.

use std::io::{Write, stdout};
use std::path::PathBuf;

use anyhow::Result;
use brickscope_engine::Model;
use brickscope_engine::tokenizer::Special;

/// Print the token ids of a text, one line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  brickscope tokenize model.gguf \"Hello, world!\"")]
pub(crate) struct TokenizeArgs {
    /// The GGUF file.
    pub(crate) model: PathBuf,

    /// The text.
    pub(crate) text: String,

    /// Leave out the tokens that begin or end a text.
    #[arg(long)]
    pub(crate) no_special: bool,

    /// Read control tokens such as `</s>` in the text as those tokens.
    #[arg(long)]
    pub(crate) parse_special: bool,

    /// Print a JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &TokenizeArgs) -> Result<()> {
    let model = Model::open(&args.model)?;
    let special = Special { add: !args.no_special, parse: args.parse_special };
    let ids = model.encode(&args.text, special)?;
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    let line = if args.json { format!("[{}]", ids.join(",")) } else { ids.join(" ") };
    writeln!(stdout().lock(), "{line}")?;
    Ok(())
}
