//! Decodes tokens on one thread without a profiler: `decode_tokens MODEL.gguf TOKENS BACKEND`.
//!
//! `cargo bench --bench no_probe` counts the instructions of this.

use std::error::Error;
use std::num::NonZeroUsize;
use std::{env, iter};

use brickscope_engine::executor::Cpu;
use brickscope_engine::{Model, Session};
use brickscope_kernels::{Backend, Kernels};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [model, n_tokens, backend] = &args[..] else {
        return Err("usage: decode_tokens MODEL.gguf TOKENS scalar|avx2".into());
    };
    let backend = match &**backend {
        "scalar" => Backend::Scalar,
        "avx2" => Backend::Avx2,
        other => return Err(format!("`{other}` is neither scalar nor avx2").into()),
    };
    let model = Model::open(model.as_ref())?;
    let cpu = Cpu::new(Kernels::new(backend)?, NonZeroUsize::MIN)?;
    let n_tokens: usize = n_tokens.parse()?;
    let mut session = Session::new(&model, cpu, n_tokens)?;
    println!("the last token's id is {}", decode(&mut session, n_tokens)?);
    Ok(())
}

/// Decodes greedily. Never inlined, so that a tool can find where it begins and ends.
#[inline(never)]
fn decode(session: &mut Session<'_>, n_tokens: usize) -> Result<u32, brickscope_engine::Error> {
    iter::repeat_n((), n_tokens).try_fold(1, |token, ()| {
        let logits = session.forward(&[token])?;
        let best = (0..).zip(logits).max_by(|a, b| a.1.total_cmp(b.1));
        Ok(best.map_or(0, |(id, _)| id))
    })
}
