//! Where NaN or infinity began, once logits aren't numbers: in which weights, or in the output of which brick.

use std::cell::RefCell;

use brickscope::{Began, NotFinite};
use brickscope_kernels::{Matrix, QuantType};

use crate::any_session::AnySession;
use crate::error::Error;
use crate::finite::{LogitsSeen, all_finite};
use crate::forward::Outputs;
use crate::gguf::{Gguf, TensorInfo};
use crate::value::{At, Value};

/// Says of logits that weren't all numbers where that began: in the first bad tensor, or else in what a brick put out
/// when `session` ran `passes` from the first position on. `None` if they were all numbers.
///
/// Each pass is run again with the logits of `outputs`, in parts if it is longer than the session's batch, until a value
/// isn't a number: give those up to the first bad logits. The session then has other tokens in its cache than before.
///
/// # Errors
///
/// If the passes don't fit the session, or the device fails.
pub fn not_finite<'t>(
    seen: LogitsSeen,
    session: &mut dyn AnySession<'_>,
    passes: impl IntoIterator<Item = &'t [u32]>,
    outputs: Outputs,
) -> Result<Option<NotFinite>, Error> {
    if seen.not_finite == 0 {
        return Ok(None);
    }
    let began = match bad_weights(&session.model().gguf) {
        None => bad_output(session, passes, outputs)?,
        found => found,
    };
    Ok(Some(NotFinite { passes: seen.not_finite, of: seen.times, began }))
}

/// How many values are NaN or infinite, and whether the first of them is NaN.
#[derive(Debug, Clone, Copy, Default)]
struct Bad {
    n: u64,
    first_is_nan: Option<bool>,
}

impl Bad {
    fn add(&mut self, x: f32) {
        if !x.is_finite() {
            self.n += 1;
            self.first_is_nan.get_or_insert(x.is_nan());
        }
    }
}

/// The first tensor with NaN or infinity in it, in the order of the file.
fn bad_weights(gguf: &Gguf) -> Option<Began> {
    let mut bad = gguf.tensors.iter().filter_map(|info| {
        let bad = bad_values(gguf, info);
        bad.first_is_nan.map(|is_nan| (info, is_nan, bad.n))
    });
    let (info, is_nan, n) = bad.next()?;
    Some(Began::Weights {
        tensor: info.name.clone(),
        is_nan,
        bad: n,
        of: info.n_elements() as u64,
        more_tensors: bad.count() as u64,
    })
}

fn bad_values(gguf: &Gguf, info: &TensorInfo) -> Bad {
    let mut bad = Bad::default();
    // A tensor that no kernel reads is in no model that was opened.
    let Some(kind) = QuantType::from_ggml(info.kind.id()) else { return bad };
    let (rows, cols, bytes) = (info.n_rows(), info.n_cols(), gguf.bytes(info));
    let matrix = match info.is_interleaved {
        true => Matrix::interleaved(kind, rows, cols, bytes),
        false => Matrix::new(kind, rows, cols, bytes),
    };
    let Ok(matrix) = matrix else { return bad };
    let mut values = vec![0.0; cols];
    for row in 0..rows {
        matrix.dequantize_row(row, &mut values);
        if !all_finite(&values) {
            values.iter().for_each(|&x| bad.add(x));
        }
    }
    bad
}

/// The first value with NaN or infinity in it that the passes make.
fn bad_output<'t>(
    session: &mut dyn AnySession<'_>,
    passes: impl IntoIterator<Item = &'t [u32]>,
    outputs: Outputs,
) -> Result<Option<Began>, Error> {
    session.clear();
    let found = RefCell::new(None);
    let n_heads = session.model().config.n_heads;
    let look = |at: At<'_>, out: &mut [f32]| {
        let mut found = found.borrow_mut();
        if found.is_none() {
            *found = bad_of(&at, out, n_heads);
        }
    };
    let batch = session.batch();
    for tokens in passes.into_iter().flat_map(|pass| pass.chunks(batch)) {
        session.pass_tapped(tokens, outputs, &look)?;
        if found.borrow().is_some() {
            break;
        }
    }
    Ok(found.into_inner())
}

fn bad_of(at: &At<'_>, out: &[f32], n_heads: usize) -> Option<Began> {
    let mut bad = Bad::default();
    match at.value {
        // Numbers of tokens that aren't seen have no meaning.
        Value::Scores | Value::Probabilities => {
            let context = at.position + at.n_tokens;
            for (row, scores) in out.chunks_exact(context).enumerate() {
                let visible = at.position + row / n_heads + 1;
                scores.iter().take(visible).for_each(|&x| bad.add(x));
            }
        }
        _ if all_finite(out) => {}
        _ => out.iter().for_each(|&x| bad.add(x)),
    }
    let is_nan = bad.first_is_nan?;
    Some(Began::Output {
        brick: at.value.brick().name().to_owned(),
        layer: at.layer.and_then(|layer| u32::try_from(layer).ok()),
        value: at.value.name().to_owned(),
        is_nan,
        bad: bad.n,
        of: out.len() as u64,
        position: at.position as u64,
    })
}
