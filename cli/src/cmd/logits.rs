//! `brickscope logits`: what a model computes, for other engines to compare with.

use std::io::Write;

use anyhow::{Context, Result};
use brickscope::write_atomically;
use brickscope_engine::Session;

use crate::args::LogitsArgs;
use crate::source;

pub(crate) fn run(args: &LogitsArgs) -> Result<()> {
    let model = source::model(Some(&args.model))?;
    let cpu = source::cpu(&args.executor)?;
    let mut session = Session::new(&model, cpu, args.ids.len())?;
    let logits = if args.steps {
        let mut all = Vec::new();
        for &id in &args.ids {
            all.extend_from_slice(session.forward(&[id])?);
        }
        all
    } else {
        session.all_logits(&args.ids)?
    };
    let mut bytes = b"LGT1".to_vec();
    let header = [args.ids.len() as u32, model.config.n_vocab as u32, 0, 0];
    for word in header.iter().chain(&args.ids) {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend(logits.iter().flat_map(|logit| logit.to_le_bytes()));
    write_atomically(&args.output, |error| error, |out| out.write_all(&bytes))
        .with_context(|| format!("the logits can't be written to {}", args.output.display()))
}
