//! A program that generates text by llama.cpp, and where the time of its passes goes:
//!
//! ```console
//! $ cargo run --release --manifest-path benches/llama-cpp/Cargo.toml --example bricks -- MODEL.gguf [THREADS [TOKENS]]
//! $ brickscope show run
//! ```

#![allow(unsafe_code, reason = "it calls C")]

use std::ffi::CString;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use brickscope::{BrickProfiler, Phase};
use brickscope_llama::Recorder;
use llama_cpp_sys_2 as sys;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let model = CString::new(args.next().context("which model?")?)?;
    let threads: i32 = args.next().map_or(Ok(1), |threads| threads.parse())?;
    let tokens: u64 = args.next().map_or(Ok(32), |tokens| tokens.parse())?;

    let profiler = BrickProfiler::enabled();
    let bindings = brickscope_llama::bindings!(llama_cpp_sys_2);
    let recorder = Recorder::new(&profiler, bindings).with_threads(threads.unsigned_abs());

    // SAFETY: the parameters are llama.cpp's own, with callbacks of their types; what the calls return is checked.
    let (model, context) = unsafe {
        let mut params = sys::llama_model_default_params();
        params.n_gpu_layers = 0;
        let model = sys::llama_model_load_from_file(model.as_ptr(), params);
        ensure!(!model.is_null(), "llama.cpp can't load the model");
        let mut params = sys::llama_context_default_params();
        params.n_threads = threads;
        params.n_threads_batch = threads;
        params.cb_eval = Some(brickscope_llama::on_node);
        params.abort_callback = Some(brickscope_llama::after_node);
        let context = sys::llama_init_from_model(model, params);
        ensure!(!context.is_null(), "llama.cpp can't make a context");
        (model, context)
    };

    // Twice, since the first pass of each shape warms up and is left out.
    for _ in 0..2 {
        // SAFETY: the context is there.
        unsafe { sys::llama_memory_clear(sys::llama_get_memory(context), true) };
        let mut prompt: Vec<sys::llama_token> = (1..=64).collect();
        let mut position = 0;
        let mut phase = Phase::Prefill;
        while position < 64 + tokens {
            // SAFETY: the batch reads `prompt`, which outlives the pass.
            let status = recorder.pass(phase, prompt.len() as u64, position, || unsafe {
                let batch = sys::llama_batch_get_one(prompt.as_mut_ptr(), prompt.len() as i32);
                sys::llama_decode(context, batch)
            });
            ensure!(status == 0, "llama_decode returned {status}");
            position += prompt.len() as u64;
            phase = Phase::Decode;
            // SAFETY: the last token's logits are there, one for each token of the vocabulary.
            prompt = vec![unsafe { most_likely(model, context) }];
        }
    }

    let recorded = recorder.finish();
    for note in &recorded.notes {
        eprintln!("note: {note}");
    }
    recorded.profile.save_run(Path::new("run"))?;
    // SAFETY: nothing uses them any more.
    unsafe {
        sys::llama_free(context);
        sys::llama_model_free(model);
    }
    Ok(())
}

/// # Safety
///
/// A pass of the context has succeeded, with the logits of its last token.
unsafe fn most_likely(
    model: *const sys::llama_model,
    context: *mut sys::llama_context,
) -> sys::llama_token {
    // SAFETY: the caller says so.
    let logits = unsafe {
        let n = sys::llama_vocab_n_tokens(sys::llama_model_get_vocab(model));
        std::slice::from_raw_parts(sys::llama_get_logits_ith(context, -1), n as usize)
    };
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(token, _)| token as sys::llama_token)
}
