//! Routines: a kernel with the shape that it runs on, numbered and named once for a model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use brickscope::HostLaunch;
use brickscope_kernels::QuantType;

use crate::config::{Activation, Config};
use crate::cpu::Cpu;
use crate::cpu::{Deal, together};
use crate::weights::{Layer, Weights};

/// A kernel with the shape that it runs on: an index into [`Routines::list`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Routine(u16);

impl Routine {
    /// The routine at this index.
    fn numbered(index: usize) -> Self {
        Self(u16::try_from(index).expect("a model has few kinds of routines"))
    }

    /// The index in the list.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// A routine for one token and one for several, which may be another kernel.
pub(crate) type OneOrMany = [Routine; 2];

/// A routine for each way of dealing rows out ([`Deal`]).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByDeal {
    alone: Routine,
    together: Routine,
    interleaved: Routine,
}

impl ByDeal {
    /// The routine for rows dealt out like this.
    pub(crate) fn pick(self, deal: Deal) -> Routine {
        match deal {
            Deal::Alone => self.alone,
            Deal::Together { .. } => self.together,
            Deal::Interleaved => self.interleaved,
        }
    }
}

/// A routine for each width of a projection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByWidth {
    pub(crate) q: Routine,
    pub(crate) kv: Routine,
    pub(crate) dim: Routine,
    pub(crate) ffn: Routine,
    pub(crate) vocab: Routine,
}

/// All routines that a model uses on an executor.
#[derive(Debug)]
pub struct Routines {
    list: Vec<(String, HostLaunch)>,
    /// By the index of the matrix.
    matmul: Vec<OneOrMany>,
    pub(crate) embed: Routine,
    pub(crate) rms_norm: Routine,
    pub(crate) head_norm: Routine,
    pub(crate) attn_sub_norm: Routine,
    pub(crate) ffn_sub_norm: Routine,
    pub(crate) rope: Routine,
    pub(crate) scores: ByDeal,
    pub(crate) softmax: ByDeal,
    pub(crate) weighted_sum: ByDeal,
    pub(crate) activation: Routine,
    pub(crate) add: Routine,
    pub(crate) add_bias: ByWidth,
    pub(crate) scale: ByWidth,
}

impl Routines {
    pub(crate) fn new(cpu: &Cpu, weights: &Weights, config: &Config) -> Self {
        let mut made = RoutineList::default();
        let kernels = cpu.kernels;
        let all = cpu.threads();
        let embedding = weights.embedding.kind;
        let mut matmul = Vec::new();
        for tensor in weights.matrices() {
            let shape = format!("{}×{} {}", tensor.rows, tensor.cols, tensor.kind.name());
            let pair = [1, 2].map(|n| {
                let threads = brickscope_kernels::threads_for_rows(tensor.rows, n, all);
                made.routine(kernels.matmul_name(tensor.kind, n), &shape, threads)
            });
            // The tied head comes twice, under one number.
            if tensor.index >= matmul.len() {
                matmul.resize(tensor.index + 1, pair);
            }
            matmul[tensor.index] = pair;
        }
        let heads = format!("{} heads of {}", config.n_heads, config.head_dim);
        let mut by_deal = |name| {
            let threads = [1, together(config.n_heads, all), all];
            let [alone, together, interleaved] =
                threads.map(|threads| made.routine(name, &heads, threads));
            ByDeal { alone, together, interleaved }
        };
        let scores = by_deal(kernels.scores_name());
        let softmax = by_deal(kernels.softmax_name());
        let weighted_sum = by_deal(kernels.weighted_sum_name());
        let mut alone = |name: &str, width: usize| made.routine(name, &width.to_string(), 1);
        let (dim, head_dim) = (config.dim, config.head_dim);
        let norm = kernels.rms_norm_name();
        let activation = match config.activation {
            Activation::Silu => kernels.silu_mul_name(),
            Activation::ReluSquared => kernels.relu_squared_mul_name(),
        };
        let add = alone(kernels.add_name(), dim);
        // Few models have these, so that few profiles list them.
        let mut by_width = |name, is_used: bool| {
            let mut of = |width| if is_used { alone(name, width) } else { add };
            let (q, kv) = (of(config.q_dim()), of(config.kv_dim()));
            ByWidth { q, kv, dim: of(dim), ffn: of(config.ffn_dim), vocab: of(config.n_vocab) }
        };
        let any = |has: fn(&Layer) -> bool| weights.layers.iter().any(has);
        let has_biases = weights.head_bias.is_some() || any(|layer| layer.biases().contains(&true));
        let has_scales = any(|layer| layer.matrices().iter().any(|w| w.scale.is_some()));
        let add_bias = by_width(kernels.add_bias_name(), has_biases);
        let scale = by_width(kernels.scale_name(), has_scales);
        Self {
            matmul,
            embed: alone(embed_name(embedding), dim),
            rms_norm: alone(norm, dim),
            head_norm: alone(norm, head_dim),
            attn_sub_norm: alone(norm, config.q_dim()),
            ffn_sub_norm: alone(norm, config.ffn_dim),
            rope: alone(kernels.rope_name(), head_dim),
            scores,
            softmax,
            weighted_sum,
            activation: alone(activation, config.ffn_dim),
            add,
            add_bias,
            scale,
            list: made.list,
        }
    }

    /// Each routine's name and how it is launched, by [`Routine::index`].
    #[must_use]
    pub fn list(&self) -> &[(String, HostLaunch)] {
        &self.list
    }

    /// Their names and shapes.
    pub(crate) fn names(&self) -> RoutineNames {
        let list = self.list.iter().map(|(name, launch)| (name.clone(), launch.shape.clone()));
        RoutineNames(Arc::new(Mutex::new(list.collect())))
    }

    /// The routine that multiplies the matrix at `index` with `n` tokens.
    ///
    /// For an index without a matrix it returns any routine. A check that panics would remain in a
    /// pass without a probe, which has no use for the routine.
    pub(crate) fn matmul(&self, index: usize, n: usize) -> Routine {
        debug_assert!(index < self.matmul.len());
        self.matmul.get(index).map_or(self.add, |pair| pair[usize::from(n > 1)])
    }
}

/// The names and shapes of a session's routines. A device adds each when it first runs.
#[derive(Debug, Clone, Default)]
pub struct RoutineNames(Arc<Mutex<Vec<(String, String)>>>);

impl RoutineNames {
    /// A routine's name and shape.
    pub(crate) fn get(&self, routine: Routine) -> Option<(String, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(routine.index()).cloned()
    }

    /// The routine of this name and shape, which is added if it is new.
    pub(crate) fn find_or_add(&self, name: &str, shape: &str) -> Routine {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = list.iter().position(|(a, b)| (a.as_str(), b.as_str()) == (name, shape));
        Routine::numbered(known.unwrap_or_else(|| {
            list.push((name.to_owned(), shape.to_owned()));
            list.len() - 1
        }))
    }
}

/// Rows of the embedding are dequantised one by one, by the scalar code on every backend.
fn embed_name(kind: QuantType) -> &'static str {
    match kind {
        QuantType::F32 => "embed_f32_scalar",
        QuantType::F16 => "embed_f16_scalar",
        QuantType::BF16 => "embed_bf16_scalar",
        QuantType::Q4_0 => "embed_q4_0_scalar",
        QuantType::Q4_1 => "embed_q4_1_scalar",
        QuantType::Q5_0 => "embed_q5_0_scalar",
        QuantType::Q5_1 => "embed_q5_1_scalar",
        QuantType::Q8_0 => "embed_q8_0_scalar",
        QuantType::Q4_K => "embed_q4_k_scalar",
        QuantType::Q5_K => "embed_q5_k_scalar",
        QuantType::Q6_K => "embed_q6_k_scalar",
        QuantType::TQ1_0 => "embed_tq1_0_scalar",
        QuantType::TQ2_0 => "embed_tq2_0_scalar",
        QuantType::I2_S => "embed_i2_s_scalar",
    }
}

#[derive(Default)]
struct RoutineList {
    list: Vec<(String, HostLaunch)>,
    made: HashMap<(String, HostLaunch), Routine>,
}

impl RoutineList {
    fn routine(&mut self, name: &str, shape: &str, threads: usize) -> Routine {
        let launch = HostLaunch { shape: shape.to_owned(), threads: threads as u32 };
        let entry = (name.to_owned(), launch);
        *self.made.entry(entry).or_insert_with_key(|entry| {
            self.list.push(entry.clone());
            Routine(u16::try_from(self.list.len() - 1).expect("a model has few kinds of routines"))
        })
    }
}
