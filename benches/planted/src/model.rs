//! Model files with something planted in them.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};
use brickscope_engine::Model;
use brickscope_engine::gguf::{TensorType, Value, Writer};
use brickscope_kernels::quant::quantize_row;
use brickscope_kernels::{Matrix, QuantType};

/// Writes the model again, with other entries of its metadata, and with one tensor in another type. Layers beyond
/// `llama.block_count` are left out.
pub(crate) fn rewrite(
    from: &Path,
    to: &Path,
    entries: &[(&str, u32)],
    retyped: Option<(&str, TensorType)>,
) -> Result<()> {
    let model = Model::open(from)?;
    let gguf = &model.gguf;
    let mut writer = Writer::new(to);
    for (key, value) in gguf.metadata.iter() {
        let other = entries.iter().find(|(changed, _)| *changed == key);
        writer.set(key, other.map_or_else(|| value.clone(), |(_, value)| Value::U32(*value)));
    }
    let layers = entries.iter().find(|(key, _)| *key == "llama.block_count");
    let is_kept = |name: &str| {
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok());
        layer.is_none_or(|layer: u32| layers.is_none_or(|(_, layers)| layer < *layers))
    };
    let tensors: Vec<_> = gguf.tensors.iter().filter(|tensor| is_kept(&tensor.name)).collect();
    let other = |name: &str| retyped.filter(|(of, _)| *of == name).map(|(_, kind)| kind);
    for tensor in &tensors {
        writer.tensor(&tensor.name, &tensor.dims, other(&tensor.name).unwrap_or(tensor.kind));
    }
    let mut data = writer.begin(BufWriter::new(File::create(to)?))?;
    for tensor in tensors {
        let Some(other) = other(&tensor.name) else {
            data.write(gguf.bytes(tensor))?;
            continue;
        };
        let known =
            |of: TensorType| QuantType::from_ggml(of.id()).context("a type that kernels know");
        let (kind, other) = (known(tensor.kind)?, known(other)?);
        let matrix = Matrix::new(kind, tensor.n_rows(), tensor.n_cols(), gguf.bytes(tensor))?;
        let mut values = vec![0.0; tensor.n_cols()];
        for row in 0..tensor.n_rows() {
            matrix.dequantize_row(row, &mut values);
            let mut bytes = Vec::new();
            quantize_row(other, &values, &mut bytes);
            data.write(&bytes)?;
        }
    }
    data.finish()?.into_inner().context("the file")?.sync_all()?;
    Ok(())
}
