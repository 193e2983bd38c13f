//! The tiny models, in each of the weight formats.

use std::path::Path;

use brickscope_engine::Model;
use brickscope_engine::gguf::{Gguf, TensorType, Writer};
use brickscope_kernels::QuantType;
use brickscope_kernels::quant::{dequantize_row, quantize_i2_s, quantize_row};

/// A model of each format.
pub(crate) fn all() -> Vec<(QuantType, Model)> {
    QuantType::ALL.into_iter().map(|kind| (kind, of(kind))).collect()
}

/// The model of a format: a fixture, or one with its layers' matrices stored anew.
pub(crate) fn of(kind: QuantType) -> Model {
    let (name, converts) = match kind {
        QuantType::F16 => ("tiny-F16", false),
        QuantType::Q4_0 => ("tiny-Q4_0", false),
        QuantType::Q8_0 => ("tiny-Q8_0", false),
        QuantType::Q4_K => ("tiny-qwen2-Q4_K_M", false),
        QuantType::TQ2_0 => ("tiny-bitnet-TQ2_0", false),
        QuantType::F32 | QuantType::BF16 | QuantType::Q6_K => ("tiny-F16", true),
        QuantType::TQ1_0 | QuantType::I2_S => ("tiny-bitnet-TQ2_0", true),
    };
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models");
    let gguf = Gguf::open(&fixtures.join(name).with_extension("gguf")).unwrap();
    Model::from_gguf(if converts { convert(&gguf, kind) } else { gguf }).unwrap()
}

fn convert(gguf: &Gguf, kind: QuantType) -> Gguf {
    let mut writer = Writer::new(kind.name());
    for (key, value) in gguf.metadata.iter() {
        writer.set(key, value.clone());
    }
    let converts = |name: &str, dims: &[usize]| name.starts_with("blk.") && dims.len() > 1;
    for tensor in &gguf.tensors {
        let to = TensorType::from_id(kind.ggml_id()).unwrap();
        let to = if converts(&tensor.name, &tensor.dims) { to } else { tensor.kind };
        writer.tensor(&tensor.name, &tensor.dims, to);
    }
    let mut data = writer.begin(Vec::new()).unwrap();
    for tensor in &gguf.tensors {
        let bytes = gguf.bytes(tensor);
        if !converts(&tensor.name, &tensor.dims) {
            data.write(bytes).unwrap();
            continue;
        }
        let from = QuantType::from_ggml(tensor.kind.id()).unwrap();
        let mut weights = vec![0.0; tensor.n_elements()];
        dequantize_row(from, bytes, &mut weights);
        let mut converted = Vec::new();
        match kind {
            QuantType::I2_S => quantize_i2_s(&weights, &mut converted),
            _ => quantize_row(kind, &weights, &mut converted),
        }
        data.write(&converted).unwrap();
    }
    Gguf::from_bytes(data.finish().unwrap(), kind.name()).unwrap()
}
