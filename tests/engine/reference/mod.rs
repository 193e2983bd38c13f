//! A forward pass in f64, one token and one row at a time, that shares no code with the engine's: it looks tensors up by
//! their names, and has its own reading of the metadata. Only the blocks of quantised formats are decoded by the
//! kernels, which have tests of their own; those of I2_S are decoded here.

#![allow(dead_code, reason = "not every test uses all of it")]

use brickscope_engine::gguf::{Gguf, TensorInfo};
use brickscope_kernels::QuantType;
use brickscope_kernels::quant::{dequantize_row, quantize_row};

/// Which numbers are rounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rounding {
    /// None.
    None,
    /// Those of bitnet.cpp in a batch: activations that are multiplied with I2_S, to 8 bits, in 127ths of a token's
    /// largest; keys and values in the cache, to F16.
    BitnetCpp,
}

/// The logits after each token, one row of the vocabulary each.
pub(crate) fn logits(gguf: &Gguf, tokens: &[u32], rounding: Rounding) -> Vec<f64> {
    Pass::new(gguf, rounding).run(tokens)
}

/// The same with SiLU in the gate, whatever the file says.
pub(crate) fn logits_with_silu(gguf: &Gguf, tokens: &[u32], rounding: Rounding) -> Vec<f64> {
    Pass { is_silu: true, ..Pass::new(gguf, rounding) }.run(tokens)
}

struct Pass<'g> {
    gguf: &'g Gguf,
    architecture: String,
    rounding: Rounding,
    is_silu: bool,
}

impl<'g> Pass<'g> {
    fn new(gguf: &'g Gguf, rounding: Rounding) -> Self {
        let architecture = gguf.metadata.str("general.architecture").unwrap().to_owned();
        Self { gguf, architecture, rounding, is_silu: false }
    }

    fn number(&self, key: &str) -> Option<f64> {
        let key = format!("{}.{key}", self.architecture);
        match self.gguf.metadata.opt_u32(&key) {
            Ok(number) => number.map(f64::from),
            Err(_) => self.gguf.metadata.opt_f32(&key).unwrap().map(f64::from),
        }
    }

    fn vector(&self, name: &str) -> Option<Vec<f64>> {
        let tensor = self.gguf.tensor(name)?;
        Some(decoded(self.gguf, tensor))
    }

    /// `W·x`, times the scale of the matrix, plus its bias.
    fn project(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let tensor = self.gguf.tensor(&format!("{name}.weight")).unwrap();
        let w = decoded(self.gguf, tensor);
        assert_eq!(tensor.dims[0], x.len(), "{name}");
        let is_rounded = self.rounding == Rounding::BitnetCpp && tensor.kind.id() == 36;
        let rounded = if is_rounded { round_to_8_bits(x) } else { x.to_vec() };
        let mut y: Vec<f64> = w
            .chunks_exact(x.len())
            .map(|row| row.iter().zip(&rounded).map(|(w, x)| w * x).sum())
            .collect();
        if let Some(scale) = self.vector(&format!("{name}.scale")) {
            y.iter_mut().for_each(|y| *y *= scale[0]);
        }
        if let Some(bias) = self.vector(&format!("{name}.bias")) {
            y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
        y
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.vector(name).unwrap();
        let eps = self.number("attention.layer_norm_rms_epsilon").unwrap();
        x.chunks_exact(weight.len())
            .flat_map(|x| {
                let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
                let factor = 1.0 / (mean + eps).sqrt();
                x.iter().zip(&weight).map(move |(x, w)| x * factor * w).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Rotates each head of `x`.
    fn rope(&self, x: &mut [f64], position: usize, head: usize) {
        let n_rot = self.number("rope.dimension_count").map_or(head, |n| n as usize);
        let base = self.number("rope.freq_base").unwrap_or(10_000.0);
        let factors = self.vector("rope_freqs.weight");
        for x in x.chunks_exact_mut(head) {
            for i in 0..n_rot / 2 {
                let (a, b) = match &self.architecture[..] {
                    "llama" => (2 * i, 2 * i + 1),
                    _ => (i, i + n_rot / 2),
                };
                let frequency = base.powf(-2.0 * i as f64 / n_rot as f64);
                let factor = factors.as_ref().map_or(1.0, |factors| factors[i]);
                let (sin, cos) = (position as f64 * frequency / factor).sin_cos();
                (x[a], x[b]) = (x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos);
            }
        }
    }

    /// Keys or values as they are in the cache.
    fn cached(&self, x: Vec<f64>) -> Vec<f64> {
        match self.rounding {
            Rounding::None => x,
            Rounding::BitnetCpp => {
                let x: Vec<f32> = x.into_iter().map(|x| x as f32).collect();
                let (mut bytes, mut rounded) = (Vec::new(), vec![0.0; x.len()]);
                quantize_row(QuantType::F16, &x, &mut bytes);
                dequantize_row(QuantType::F16, &bytes, &mut rounded);
                rounded.into_iter().map(f64::from).collect()
            }
        }
    }

    /// The function of the gate.
    fn gate(&self, x: f64) -> f64 {
        let silu = x / (1.0 + (-x).exp());
        if self.is_silu {
            return silu;
        }
        let key = format!("{}.hidden_activation", self.architecture);
        match (&self.architecture[..], self.gguf.metadata.opt_str(&key).unwrap()) {
            ("bitnet-b1.58", _) | ("bitnet", Some("relu2")) => x.max(0.0) * x.max(0.0),
            _ => silu,
        }
    }

    fn run(&self, tokens: &[u32]) -> Vec<f64> {
        let dim = self.number("embedding_length").unwrap() as usize;
        let n_heads = self.number("attention.head_count").unwrap() as usize;
        let n_kv = self.number("attention.head_count_kv").map_or(n_heads, |n| n as usize);
        let head = self.number("attention.key_length").map_or(dim / n_heads, |n| n as usize);
        let n_layers = self.number("block_count").unwrap() as usize;
        let embedding = self.vector("token_embd.weight").unwrap();
        let mut stream: Vec<Vec<f64>> =
            tokens.iter().map(|&id| embedding[id as usize * dim..][..dim].to_vec()).collect();
        for layer in 0..n_layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            let (mut keys, mut values): (Vec<Vec<f64>>, Vec<Vec<f64>>) = Default::default();
            for (position, x) in stream.iter_mut().enumerate() {
                let h = self.norm(&name("attn_norm.weight"), x);
                let mut q = self.project(&name("attn_q"), &h);
                let mut k = self.project(&name("attn_k"), &h);
                values.push(self.cached(self.project(&name("attn_v"), &h)));
                if self.architecture == "qwen3" {
                    q = self.norm(&name("attn_q_norm.weight"), &q);
                    k = self.norm(&name("attn_k_norm.weight"), &k);
                }
                self.rope(&mut q, position, head);
                self.rope(&mut k, position, head);
                keys.push(self.cached(k));
                let mut attention: Vec<f64> = (0..n_heads)
                    .flat_map(|i| {
                        let of_kv = i / (n_heads / n_kv) * head;
                        let q = &q[i * head..][..head];
                        attend(q, &keys, &values, of_kv..of_kv + head)
                    })
                    .collect();
                if self.architecture.starts_with("bitnet") {
                    attention = self.norm(&name("attn_sub_norm.weight"), &attention);
                }
                add(x, &self.project(&name("attn_output"), &attention));

                let h = self.norm(&name("ffn_norm.weight"), x);
                let gate = self.project(&name("ffn_gate"), &h);
                let up = self.project(&name("ffn_up"), &h);
                let mut a: Vec<f64> =
                    gate.iter().zip(up).map(|(&gate, up)| self.gate(gate) * up).collect();
                if self.architecture.starts_with("bitnet") {
                    a = self.norm(&name("ffn_sub_norm.weight"), &a);
                }
                add(x, &self.project(&name("ffn_down"), &a));
            }
        }
        let has_head = self.gguf.tensor("output.weight").is_some();
        stream
            .iter()
            .flat_map(|x| {
                let h = self.norm("output_norm.weight", x);
                if has_head {
                    return self.project("output", &h);
                }
                embedding
                    .chunks_exact(dim)
                    .map(|row| row.iter().zip(&h).map(|(w, x)| w * x).sum())
                    .collect()
            })
            .collect()
    }
}

fn attend(
    q: &[f64],
    keys: &[Vec<f64>],
    values: &[Vec<f64>],
    of_kv: std::ops::Range<usize>,
) -> Vec<f64> {
    let scores: Vec<f64> = keys
        .iter()
        .map(|k| k[of_kv.clone()].iter().zip(q).map(|(k, q)| k * q).sum::<f64>())
        .map(|score| score / (q.len() as f64).sqrt())
        .collect();
    let most = scores.iter().copied().fold(f64::MIN, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut out = vec![0.0; q.len()];
    for (weight, v) in weights.iter().zip(values) {
        out.iter_mut().zip(&v[of_kv.clone()]).for_each(|(out, v)| *out += weight / sum * v);
    }
    out
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn decoded(gguf: &Gguf, tensor: &TensorInfo) -> Vec<f64> {
    let bytes = gguf.bytes(tensor);
    if tensor.kind.id() == 36 {
        return i2_s(bytes, tensor.n_elements());
    }
    let mut values = vec![0.0; tensor.n_elements()];
    dequantize_row(QuantType::from_ggml(tensor.kind.id()).unwrap(), bytes, &mut values);
    values.into_iter().map(f64::from).collect()
}

/// bitnet.cpp's layout on x86 (`quantize_i2_s` in its `src/ggml-bitnet-mad.cpp`): weight `i` of 128 is in byte `i % 32`,
/// the first 32 in the highest two bits; one scale for the tensor follows all codes.
fn i2_s(bytes: &[u8], n: usize) -> Vec<f64> {
    let scale = f32::from_le_bytes(bytes[n / 4..][..4].try_into().unwrap());
    (0..n)
        .map(|i| {
            let code = bytes[i / 128 * 32 + i % 32] >> (6 - 2 * (i % 128 / 32)) & 3;
            f64::from(scale) * (f64::from(code) - 1.0)
        })
        .collect()
}

/// bitnet.cpp's `quantize_row_i8_s`, and back.
fn round_to_8_bits(x: &[f64]) -> Vec<f64> {
    let most = x.iter().fold(1e-5_f64, |most, x| most.max(x.abs()));
    let scale = (127.0 / most) as f32;
    let code = |x: &f64| (*x as f32 * scale).round_ties_even().clamp(-128.0, 127.0);
    x.iter().map(|x| f64::from(code(x)) / f64::from(scale)).collect()
}
