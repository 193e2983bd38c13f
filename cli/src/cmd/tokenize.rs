//! `brickscope tokenize`: the ids of a text.

use std::io::{Write, stdout};

use anyhow::Result;
use brickscope_engine::Model;
use brickscope_engine::tokenizer::Special;

use crate::args::TokenizeArgs;

pub(crate) fn run(args: &TokenizeArgs) -> Result<()> {
    let model = Model::open(&args.model)?;
    let special = Special { add: !args.no_special, parse: args.parse_special };
    let ids = model.encode(&args.text, special)?;
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    let line = if args.json { format!("[{}]", ids.join(",")) } else { ids.join(" ") };
    writeln!(stdout().lock(), "{line}")?;
    Ok(())
}
