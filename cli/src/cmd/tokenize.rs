//! `brickscope tokenize`: prints the token ids of a text.

use std::path::PathBuf;

use anyhow::Result;
use brickscope_engine::Model;
use brickscope_engine::tokenizer::Special;

use crate::output;

/// Print the token ids of a text on one line.
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
    let model = Model::open(&args.model)?;
    let special = Special { add: !args.no_special, parse: args.parse_special };
    let ids = model.encode(&args.text, special)?;
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    let line = if args.json { format!("[{}]", ids.join(",")) } else { ids.join(" ") };
    output::print(line + "\n")?;
    Ok(())
}
