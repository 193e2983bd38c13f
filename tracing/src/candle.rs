//! The orders in which candle-transformers 0.11 makes the spans of its models, read off its constructors.
//!
//! A span with others in it is recorded in pieces, which lie between those. What each piece computes can be read off the
//! `forward` of the model, so it is a brick of its own where it computes something.

use std::borrow::Cow;

use brickscope::{BrickCategory, BrickId};

use crate::map::Map;
use crate::order::{Order, Step};
use crate::role::{InLayer, Role, What};

const fn step(name: &'static str, role: Role) -> Step {
    Step { name, role, weight: None, last_token: false }
}

const fn brick(name: &'static str, brick: BrickId) -> Step {
    step(name, Role::brick(brick))
}

const fn named(brick: &'static str, category: BrickCategory) -> What {
    What::Named(Cow::Borrowed(brick), category)
}

/// A span with others in it, whose pieces are different bricks.
const fn pieces(name: &'static str, pieces: &'static [What]) -> Step {
    let (what, layer) = (What::Around, InLayer::Open);
    step(name, Role { what, layer, weight: None, last_token: false, pieces })
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

/// The KV cache, scores, mask, softmax and values, and RoPE where that has no span: what lies before the output projection.
const ATTENTION: What = named("Attention", BrickCategory::Attention);

/// The rest of the span `attn`: what lies between its products, which is views and copies.
const ATTN: What = named("attn", BrickCategory::Attention);

/// Q, K, V and two more spans lie before attention, the output projection after it.
const AFTER_FIVE: &[What] = &[ATTN, ATTN, ATTN, ATTN, ATTN, ATTENTION, ATTN];

/// QKV and RoPE of Q and of K lie before attention.
const AFTER_THREE: &[What] = &[ATTN, ATTN, ATTN, ATTENTION, ATTN];

const ROPE: Step = brick("attn-rot", BrickId::RopeEmbedding);

/// SiLU, and its product with the up projection where nothing lies between the two.
const ACTIVATION: What = What::Brick(BrickId::Activation);

/// The product of SiLU with the up projection.
const GATED: What = named("GatedProduct", BrickCategory::Ffn);

/// The addition at the end of `attn-mlp`.
const RESIDUAL: What = named("Residual", BrickCategory::Other);

const ATTN_MLP: What = named("attn-mlp", BrickCategory::Ffn);

const MLP: What = named("mlp", BrickCategory::Ffn);

/// The norm, the gate and up projections, and the down projection lie in it.
const AFTER_PRODUCTS: &[What] = &[ATTN_MLP, ATTN_MLP, ATTN_MLP, ACTIVATION, RESIDUAL];

/// The same with another norm after them.
const AFTER_NORM: &[What] = &[ATTN_MLP, ATTN_MLP, ATTN_MLP, ACTIVATION, ATTN_MLP, RESIDUAL];

/// In it lie the gate projection, after which SiLU is computed, the up projection, and the down projection.
const GATE_FIRST: &[What] = &[MLP, ACTIVATION, GATED, MLP];

/// The embedding, and the residual addition after attention.
const MODEL: Step = step("model", Role::around());

const OUTPUT: Step = step("output", Role::around());

/// The gate and up projections as one matrix, which GGUF files call `ffn_up`.
const fn gate_up(name: &'static str) -> Step {
    product(name, Role::of(named("GateUpProjection", BrickCategory::Ffn)), "ffn_up")
}

static LLAMA: Order = Order {
    model: "llama",
    before: &[head("linear"), RMS_NORM],
    layer: &[
        step("block", Role::of(What::Layer(None))),
        pieces("attn", AFTER_FIVE),
        ROPE,
        linear(BrickId::QkvProjection, "attn_q"),
        linear(BrickId::QkvProjection, "attn_k"),
        linear(BrickId::QkvProjection, "attn_v"),
        linear(BrickId::OutputProjection, "attn_output"),
        pieces("mlp", GATE_FIRST),
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
        pieces("attn", AFTER_FIVE),
        ROPE,
        pieces("attn-mlp", AFTER_PRODUCTS),
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
        pieces("attn", AFTER_FIVE),
        qmatmul(BrickId::GateProjection, "ffn_gate"),
        qmatmul(BrickId::UpProjection, "ffn_up"),
        qmatmul(BrickId::DownProjection, "ffn_down"),
        pieces("mlp", GATE_FIRST),
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
        pieces("attn", AFTER_FIVE),
        pieces("attn-mlp", AFTER_NORM),
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
        pieces("attn", AFTER_THREE),
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
