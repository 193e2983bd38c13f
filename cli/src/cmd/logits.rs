//! `brickscope logits`: writes a model's logits, to compare engines.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use brickscope::write_atomically;
use brickscope_engine::forward::Outputs;
use brickscope_engine::{LogitsSeen, Session, not_finite};

use crate::flags::{ExecutorArgs, token_id};
use crate::source;

/// Write a model's logits for given tokens, in the LGT1 format, to compare engines.
///
/// LGT1 is little endian: "LGT1", u32 number of tokens, u32 size of the vocabulary, u32 0, u32 0, the
/// token ids as i32, then for each token the f32 logits after it.
///
/// The exit code is 1 if some are NaN or infinite. The file has them then, too.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  brickscope logits model.gguf --ids 1,263,29871 -o ours.logits.bin"
)]
pub(crate) struct LogitsArgs {
    /// The GGUF file.
    pub(crate) model: PathBuf,

    /// Token ids, separated by commas.
    #[arg(long, value_delimiter = ',', required = true, value_parser = token_id)]
    pub(crate) ids: Vec<u32>,

    /// The file to write.
    #[arg(short, long, alias = "out", value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Run the tokens one by one, as in decode, instead of in batches.
    #[arg(long)]
    pub(crate) steps: bool,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
}

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
        .with_context(|| format!("can't write the logits to {}", args.output.display()))?;
    let mut seen = LogitsSeen::default();
    logits.chunks_exact(model.config.n_vocab).for_each(|logits| seen.see(logits));
    let passes = args.ids.chunks(if args.steps { 1 } else { session.batch() });
    if let Some(found) = not_finite(seen, &mut session, passes, Outputs::All)? {
        bail!(
            "Not a number: the logits of {} of {} tokens; {}",
            found.passes,
            found.of,
            found.origin()
        );
    }
    Ok(())
}
