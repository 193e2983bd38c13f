//! The same model with weights of another format.

use std::path::Path;

use brickscope_kernels::quant::quantize_row;
use brickscope_kernels::{Matrix, QuantType};

use crate::error::Error;
use crate::gguf::{Writer, write_atomically};
use crate::model::Model;
use crate::synth::SynthQuant;

/// Writes `model` to the file `path`, with matrices of another format.
///
/// The types of the matrices are those of [`SynthQuant`]: of llama.cpp's mixtures, without importance matrices. Vectors,
/// and matrices whose rows are no whole blocks of the new type, stay as they are. `progress` repeatedly gets the bytes
/// written so far and the length of the file, which appears only when it is complete.
///
/// The result is meant for timing: its text may be worse than that of a file which was made from the original weights.
///
/// # Errors
///
/// If the file can't be written.
///
/// # Panics
///
/// If the rows of `model` are interleaved, as after [`Model::interleave`].
pub fn requantize(
    model: &Model,
    to: SynthQuant,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let (gguf, n_layers) = (&model.gguf, model.config.n_layers);
    assert!(model.interleaved().is_none(), "the model's rows are interleaved");
    let mut plan = Writer::new(path);
    for (key, value) in gguf.metadata.iter() {
        if key != "general.file_type" {
            plan.set(key, value.clone());
        }
    }
    plan.set("general.file_type", to.file_type());
    let is_tied = gguf.tensor("output.weight").is_none();
    for tensor in &gguf.tensors {
        let wanted = to.type_of(&tensor.name, is_tied, n_layers);
        let is_whole = tensor.n_cols().is_multiple_of(wanted.block_len());
        let kind = if tensor.dims.len() == 2 && is_whole { wanted } else { tensor.kind };
        plan.tensor(&tensor.name, &tensor.dims, kind);
    }
    write_atomically(path, |out| {
        let mut data = plan.begin(out)?;
        for tensor in &gguf.tensors {
            let Some(wanted) = data.awaits().map(|tensor| tensor.kind) else { break };
            if wanted == tensor.kind {
                data.write(gguf.bytes(tensor))?;
                continue;
            }
            let [from, to] = [tensor.kind, wanted].map(|kind| {
                QuantType::from_ggml(kind.id()).expect("the kernels know the types of a model")
            });
            let (rows, cols) = (tensor.n_rows(), tensor.n_cols());
            let matrix = Matrix::new(from, rows, cols, gguf.bytes(tensor))
                .expect("the matrices of a model are whole");
            let (mut values, mut bytes) = (vec![0.0; cols], Vec::new());
            for row in 0..rows {
                matrix.dequantize_row(row, &mut values);
                bytes.clear();
                quantize_row(to, &values, &mut bytes);
                data.write(&bytes)?;
                let (done, total) = data.progress();
                progress(done, total);
            }
        }
        data.finish().map(drop)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::{self, Shape};

    #[test]
    fn a_model_in_another_format_is_a_model_with_nearly_the_same_weights() {
        let dir = tempfile::tempdir().expect("a folder");
        let [from, to, expected] = ["a", "b", "c"].map(|name| dir.path().join(name));
        synth::write(Shape::Tiny, SynthQuant::Q8_0, 7, &from, &mut |_, _| ()).expect("written");
        synth::write(Shape::Tiny, SynthQuant::Q4_K_M, 7, &expected, &mut |_, _| ())
            .expect("written");
        let model = Model::open(&from).expect("a model");
        let mut seen = (0, 0);
        requantize(&model, SynthQuant::Q4_K_M, &to, &mut |done, total| seen = (done, total))
            .expect("written");
        let (made, expected) = (Model::open(&to).expect("a model"), Model::open(&expected));
        let expected = expected.expect("a model");
        assert_eq!(seen.0, seen.1);
        // The types that the same mixture has where it is made from the weights themselves.
        let types = |model: &Model| -> Vec<_> {
            model.gguf.tensors.iter().map(|of| (of.name.clone(), of.kind)).collect()
        };
        assert_eq!(types(&made), types(&expected));
        assert_eq!(
            made.gguf.metadata.str("general.name").ok(),
            model.gguf.metadata.str("general.name").ok()
        );
        let values = |model: &Model| {
            let tensor = model.gguf.tensor("blk.0.ffn_up.weight").expect("a tensor");
            let kind = QuantType::from_ggml(tensor.kind.id()).expect("known");
            let bytes = model.gguf.bytes(tensor);
            let matrix = Matrix::new(kind, tensor.n_rows(), tensor.n_cols(), bytes).expect("whole");
            let mut row = vec![0.0; tensor.n_cols()];
            matrix.dequantize_row(3, &mut row);
            row
        };
        let (before, after) = (values(&model), values(&made));
        let norm = |x: &[f32]| x.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
        let apart: Vec<f32> = before.iter().zip(&after).map(|(a, b)| a - b).collect();
        let error = norm(&apart) / norm(&before);
        assert!((0.001..0.1).contains(&error), "{error}");
    }
}
