//! The orders in which candle-transformers 0.11 makes the spans of its models, read off its constructors.
//!
//! An outer span has the time that no span in it has. What that is, is said where it has a name of its own.

use std::borrow::Cow;

use brickscope::{BrickCategory, BrickId};

use crate::map::Map;
use crate::order::{Order, Step};
use crate::role::{Role, What};

const fn step(name: &'static str, role: Role) -> Step {
    Step { name, role, weight: None, last_token: false }
}

const fn brick(name: &'static str, brick: BrickId) -> Step {
    step(name, Role::brick(brick))
}

const fn named(name: &'static str, brick: &'static str, category: BrickCategory) -> Step {
    step(name, Role::of(What::Named(Cow::Borrowed(brick), category)))
}

/// A product with a matrix, which GGUF files name so.
const fn product(name: &'static str, role: Role, weight: &'static str) -> Step {
    Step { name, role, weight: Some(weight), last_token: false }
}

/// candle narrows its input to the last token before it calls the head.
const fn head(name: &'static str) -> Step {
    let role = Role::brick(BrickId::LmHead);
    Step { name, role, weight: Some("output"), last_token: true }
}

const fn linear(brick: BrickId, weight: &'static str) -> Step {
    product("linear", Role::brick(brick), weight)
}

const fn qmatmul(brick: BrickId, weight: &'static str) -> Step {
    product("qmatmul", Role::brick(brick), weight)
}

const RMS_NORM: Step = brick("rms-norm", BrickId::RmsNorm);

/// RoPE where it has no span, the cache, scores, softmax, and the values: all of attention but products with weights.
const ATTENTION: Step = named("attn", "Attention", BrickCategory::Attention);

const ROPE: Step = brick("attn-rot", BrickId::RopeEmbedding);

/// SiLU, its product with the up projection, and the residual addition: `attn-mlp` is entered around all three.
const FEED_FORWARD: Step = named("attn-mlp", "FeedForward", BrickCategory::Ffn);

/// The embedding, and the residual addition after attention.
const MODEL: Step = step("model", Role::around());

const OUTPUT: Step = step("output", Role::around());

/// The gate and up projections as one matrix, which GGUF files call `ffn_up`.
const fn gate_up(name: &'static str) -> Step {
    let gate_up = What::Named(Cow::Borrowed("GateUpProjection"), BrickCategory::Ffn);
    product(name, Role::of(gate_up), "ffn_up")
}

static LLAMA: Order = Order {
    model: "llama",
    before: &[head("linear"), RMS_NORM],
    layer: &[
        step("block", Role::of(What::Layer(None))),
        ATTENTION,
        ROPE,
        linear(BrickId::QkvProjection, "attn_q"),
        linear(BrickId::QkvProjection, "attn_k"),
        linear(BrickId::QkvProjection, "attn_v"),
        linear(BrickId::OutputProjection, "attn_output"),
        // Around SiLU and its product with the up projection, and no more.
        brick("mlp", BrickId::Activation),
        linear(BrickId::GateProjection, "ffn_gate"),
        linear(BrickId::UpProjection, "ffn_up"),
        linear(BrickId::DownProjection, "ffn_down"),
        RMS_NORM,
        RMS_NORM,
    ],
    after: &[],
};

static QWEN2: Order = Order {
    model: "qwen2",
    before: &[],
    layer: &[
        linear(BrickId::QkvProjection, "attn_q"),
        linear(BrickId::QkvProjection, "attn_k"),
        linear(BrickId::QkvProjection, "attn_v"),
        linear(BrickId::OutputProjection, "attn_output"),
        linear(BrickId::GateProjection, "ffn_gate"),
        linear(BrickId::UpProjection, "ffn_up"),
        linear(BrickId::DownProjection, "ffn_down"),
        RMS_NORM,
        RMS_NORM,
    ],
    after: &[RMS_NORM, head("linear")],
};

static QWEN3: Order = Order {
    model: "qwen3",
    before: &[],
    layer: &[
        linear(BrickId::QkvProjection, "attn_q"),
        linear(BrickId::QkvProjection, "attn_k"),
        linear(BrickId::QkvProjection, "attn_v"),
        linear(BrickId::OutputProjection, "attn_output"),
        // Of the heads of Q, and of K.
        RMS_NORM,
        RMS_NORM,
        linear(BrickId::GateProjection, "ffn_gate"),
        linear(BrickId::UpProjection, "ffn_up"),
        linear(BrickId::DownProjection, "ffn_down"),
        RMS_NORM,
        RMS_NORM,
    ],
    after: &[RMS_NORM, head("linear")],
};

static PHI3: Order = Order {
    model: "phi3",
    before: &[],
    layer: &[
        linear(BrickId::QkvProjection, "attn_qkv"),
        linear(BrickId::OutputProjection, "attn_output"),
        gate_up("linear"),
        linear(BrickId::DownProjection, "ffn_down"),
        RMS_NORM,
        RMS_NORM,
    ],
    after: &[RMS_NORM, head("linear")],
};

static QUANTIZED_LLAMA: Order = Order {
    model: "quantized_llama",
    before: &[RMS_NORM],
    layer: &[
        qmatmul(BrickId::GateProjection, "ffn_gate"),
        qmatmul(BrickId::DownProjection, "ffn_down"),
        qmatmul(BrickId::UpProjection, "ffn_up"),
        ATTENTION,
        ROPE,
        FEED_FORWARD,
        qmatmul(BrickId::QkvProjection, "attn_q"),
        qmatmul(BrickId::QkvProjection, "attn_k"),
        qmatmul(BrickId::QkvProjection, "attn_v"),
        qmatmul(BrickId::OutputProjection, "attn_output"),
        RMS_NORM,
        RMS_NORM,
    ],
    after: &[MODEL, OUTPUT, head("qmatmul")],
};

static QUANTIZED_QWEN3: Order = Order {
    model: "quantized_qwen3",
    before: &[],
    layer: &[
        RMS_NORM,
        RMS_NORM,
        qmatmul(BrickId::QkvProjection, "attn_q"),
        qmatmul(BrickId::QkvProjection, "attn_k"),
        qmatmul(BrickId::QkvProjection, "attn_v"),
        qmatmul(BrickId::OutputProjection, "attn_output"),
        // Of the heads of Q, and of K.
        RMS_NORM,
        RMS_NORM,
        ATTENTION,
        qmatmul(BrickId::GateProjection, "ffn_gate"),
        qmatmul(BrickId::UpProjection, "ffn_up"),
        qmatmul(BrickId::DownProjection, "ffn_down"),
        // Around SiLU and its product with the up projection, and no more.
        brick("mlp", BrickId::Activation),
    ],
    after: &[RMS_NORM, head("qmatmul"), MODEL, OUTPUT],
};

static QUANTIZED_GEMMA3: Order = Order {
    model: "quantized_gemma3",
    before: &[RMS_NORM],
    layer: &[
        // Of the heads of Q and of K; before and after attention; before and after the feed-forward network.
        RMS_NORM,
        RMS_NORM,
        RMS_NORM,
        RMS_NORM,
        RMS_NORM,
        RMS_NORM,
        qmatmul(BrickId::GateProjection, "ffn_gate"),
        qmatmul(BrickId::UpProjection, "ffn_up"),
        qmatmul(BrickId::DownProjection, "ffn_down"),
        ATTENTION,
        FEED_FORWARD,
        qmatmul(BrickId::QkvProjection, "attn_q"),
        qmatmul(BrickId::QkvProjection, "attn_k"),
        qmatmul(BrickId::QkvProjection, "attn_v"),
        qmatmul(BrickId::OutputProjection, "attn_output"),
    ],
    after: &[MODEL, OUTPUT, head("qmatmul")],
};

static QUANTIZED_PHI3: Order = Order {
    model: "quantized_phi3",
    before: &[head("qmatmul")],
    layer: &[
        gate_up("qmatmul"),
        qmatmul(BrickId::DownProjection, "ffn_down"),
        ATTENTION,
        ROPE,
        qmatmul(BrickId::QkvProjection, "attn_qkv"),
        qmatmul(BrickId::OutputProjection, "attn_output"),
    ],
    after: &[MODEL, OUTPUT],
};

/// # Models of candle-transformers
///
/// Each knows the order in which `candle_transformers::models` 0.11 makes the spans of that model, so the layer must be
/// installed before the model is loaded. Models may be loaded one after the other on a thread, and on several threads at
/// once. The last norm and the head belong to no layer. What a map doesn't find in its order is [unknown](Role::unknown).
impl Map {
    /// `llama`.
    #[must_use]
    pub fn candle_llama() -> Self {
        Self::of_order(&LLAMA)
    }

    /// `qwen2`, with a head (`ModelForCausalLM`).
    #[must_use]
    pub fn candle_qwen2() -> Self {
        Self::of_order(&QWEN2)
    }

    /// `qwen3`, with a head (`ModelForCausalLM`).
    #[must_use]
    pub fn candle_qwen3() -> Self {
        Self::of_order(&QWEN3)
    }

    /// `phi3`.
    #[must_use]
    pub fn candle_phi3() -> Self {
        Self::of_order(&PHI3)
    }

    /// `quantized_llama`, without experts.
    #[must_use]
    pub fn candle_quantized_llama() -> Self {
        Self::of_order(&QUANTIZED_LLAMA)
    }

    /// `quantized_qwen3`.
    #[must_use]
    pub fn candle_quantized_qwen3() -> Self {
        Self::of_order(&QUANTIZED_QWEN3)
    }

    /// `quantized_gemma3`.
    #[must_use]
    pub fn candle_quantized_gemma3() -> Self {
        Self::of_order(&QUANTIZED_GEMMA3)
    }

    /// `quantized_phi3`, whose norms have no spans.
    #[must_use]
    pub fn candle_quantized_phi3() -> Self {
        Self::of_order(&QUANTIZED_PHI3)
    }
}
