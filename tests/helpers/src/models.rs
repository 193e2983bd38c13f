//! The tiny models, in each of the weight formats, and with tensors added or left out.

use brickscope_engine::Model;
use brickscope_engine::gguf::{Gguf, TensorInfo, TensorType, Value, Writer};
use brickscope_kernels::QuantType;
use brickscope_kernels::quant::{dequantize_row, quantize_i2_s, quantize_row};

/// A model of each format.
pub fn all() -> Vec<(QuantType, Model)> {
    QuantType::ALL.into_iter().map(|kind| (kind, stored_as(kind))).collect()
}

/// A model in this format: a fixture, or one whose layers' matrices are converted to it.
pub fn stored_as(kind: QuantType) -> Model {
    let (name, converts) = match kind {
        QuantType::F16 => ("tiny-F16", false),
        QuantType::Q4_0 => ("tiny-Q4_0", false),
        QuantType::Q8_0 => ("tiny-Q8_0", false),
        QuantType::Q4_K => ("tiny-qwen2-Q4_K_M", false),
        QuantType::TQ2_0 => ("tiny-bitnet-TQ2_0", false),
        QuantType::F32
        | QuantType::BF16
        | QuantType::Q4_1
        | QuantType::Q5_0
        | QuantType::Q5_1
        | QuantType::Q5_K
        | QuantType::Q6_K => ("tiny-F16", true),
        QuantType::TQ1_0 | QuantType::I2_S => ("tiny-bitnet-TQ2_0", true),
    };
    let gguf = Gguf::open(&crate::model(name)).unwrap();
    Model::from_gguf(if converts { convert(&gguf, kind) } else { gguf }).unwrap()
}

/// The model of Qwen2's architecture without one of its tensors.
pub fn qwen2_without(name: &str) -> Model {
    let whole = stored_as(QuantType::Q4_K).gguf;
    let kept = |tensor: &TensorInfo| (tensor.name != name).then_some(tensor.kind);
    Model::from_gguf(rewrite(&whole, kept, &[])).unwrap()
}

/// A tensor of F32: its name, its dimensions and its values.
pub type Extra = (String, Vec<usize>, Vec<f32>);

/// A fixture with all weights as F32, and with more tensors.
pub fn with_tensors(name: &str, extra: &[Extra]) -> Gguf {
    rewrite(&fixture(name), |_| Some(TensorType::F32), extra)
}

/// A fixture with all weights as F32, and with one more key.
pub fn with_key(name: &str, key: &str, value: &str) -> Gguf {
    let mut writer = writer(&fixture(name));
    writer.set(key, value);
    rewrite_to(writer, &fixture(name), |_| Some(TensorType::F32), &[])
}

/// A fixture with another value of a key, which it need not have.
pub fn with_value(name: &str, key: &str, value: impl Into<Value>) -> Gguf {
    let gguf = fixture(name);
    let mut writer = Writer::new("rewritten");
    for (other, value) in gguf.metadata.iter().filter(|(other, _)| *other != key) {
        writer.set(other, value.clone());
    }
    writer.set(key, value);
    rewrite_to(writer, &gguf, |tensor| Some(tensor.kind), &[])
}

fn fixture(name: &str) -> Gguf {
    Gguf::open(&crate::model(name)).unwrap()
}

/// A file with the same metadata.
fn writer(gguf: &Gguf) -> Writer {
    let mut writer = Writer::new("rewritten");
    for (key, value) in gguf.metadata.iter() {
        writer.set(key, value.clone());
    }
    writer
}

/// A fixture with the bytes of one of its tensors changed.
pub fn damaged(name: &str, tensor: &str, change: impl FnOnce(&mut [u8])) -> Model {
    changed(&fixture(name), tensor, change)
}

/// A model with the bytes of one of its tensors changed.
pub fn changed(gguf: &Gguf, tensor: &str, change: impl FnOnce(&mut [u8])) -> Model {
    let mut writer = writer(gguf);
    for info in &gguf.tensors {
        writer.tensor(&info.name, &info.dims, info.kind);
    }
    let mut data = writer.begin(Vec::new()).unwrap();
    let mut change = Some(change);
    for info in &gguf.tensors {
        let mut bytes = gguf.bytes(info).to_vec();
        if info.name == tensor {
            change.take().unwrap()(&mut bytes);
        }
        data.write(&bytes).unwrap();
    }
    assert!(change.is_none(), "there is no {tensor}");
    Model::from_gguf(Gguf::from_bytes(data.finish().unwrap(), "damaged").unwrap()).unwrap()
}

fn convert(gguf: &Gguf, kind: QuantType) -> Gguf {
    let kind = TensorType::from_id(kind.ggml_id()).unwrap();
    let kind_of = |tensor: &TensorInfo| {
        let converts = tensor.name.starts_with("blk.") && tensor.dims.len() > 1;
        Some(if converts { kind } else { tensor.kind })
    };
    rewrite(gguf, kind_of, &[])
}

/// The same file with each tensor stored as `kind_of` says, or left out, and with more tensors.
fn rewrite(
    gguf: &Gguf,
    kind_of: impl Fn(&TensorInfo) -> Option<TensorType>,
    extra: &[Extra],
) -> Gguf {
    rewrite_to(writer(gguf), gguf, kind_of, extra)
}

fn rewrite_to(
    mut writer: Writer,
    gguf: &Gguf,
    kind_of: impl Fn(&TensorInfo) -> Option<TensorType>,
    extra: &[Extra],
) -> Gguf {
    let kept: Vec<_> =
        gguf.tensors.iter().filter_map(|tensor| Some((tensor, kind_of(tensor)?))).collect();
    for (tensor, kind) in &kept {
        writer.tensor(&tensor.name, &tensor.dims, *kind);
    }
    for (name, dims, _) in extra {
        writer.tensor(name, dims, TensorType::F32);
    }
    let mut data = writer.begin(Vec::new()).unwrap();
    for (tensor, kind) in kept {
        let bytes = gguf.bytes(tensor);
        if kind == tensor.kind {
            data.write(bytes).unwrap();
            continue;
        }
        let from = QuantType::from_ggml(tensor.kind.id()).unwrap();
        let mut weights = vec![0.0; tensor.n_elements()];
        dequantize_row(from, bytes, &mut weights);
        let mut converted = Vec::new();
        match QuantType::from_ggml(kind.id()).unwrap() {
            QuantType::I2_S => quantize_i2_s(&weights, &mut converted),
            kind => quantize_row(kind, &weights, &mut converted),
        }
        data.write(&converted).unwrap();
    }
    for value in extra.iter().flat_map(|(.., values)| values) {
        data.write(&value.to_le_bytes()).unwrap();
    }
    Gguf::from_bytes(data.finish().unwrap(), "rewritten").unwrap()
}
