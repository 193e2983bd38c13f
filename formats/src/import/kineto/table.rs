//! The table that tells which brick an event is: `bricks.toml`, after the lines of a file of the user's own.
//!
//! It is a part of TOML: sections, and lines `"pattern" = "text"` whose order counts.

use std::collections::HashMap;
use std::sync::LazyLock;

use brickscope_profile::{BrickCategory, BrickId};

use crate::import::pattern::matches;

/// The table of this package.
const BUILT_IN: &str = include_str!("bricks.toml");

/// The most lines with a rule, of a file of the user's own.
const MOST_RULES: usize = 1 << 14;

/// [`BUILT_IN`], read once: each rank's file asks for it.
static OURS: LazyLock<Result<Table, (usize, String)>> = LazyLock::new(|| {
    let mut table = Table::default();
    match table.add(BUILT_IN) {
        Ok(_) => Ok(table),
        Err((line, why)) => Err((line, format!("bricks.toml: {why}"))),
    }
});

/// A rule: what matches it, and the brick.
#[derive(Debug, Clone)]
struct Rule {
    pattern: String,
    /// Of modules: the which-th call of this class inside of its module, of how many.
    nth: Option<(u32, u32)>,
    /// Empty: no brick of its own.
    brick: String,
}

/// The rules.
#[derive(Debug, Clone, Default)]
pub(in crate::import) struct Table {
    ranges: Vec<Rule>,
    modules: Vec<Rule>,
    ops: Vec<Rule>,
    kernels: Vec<Rule>,
    /// How many of them are the user's.
    own_kernels: usize,
    categories: HashMap<String, BrickCategory>,
}

/// What a name is in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found<'t> {
    /// A brick.
    Brick(&'t str),
    /// It is in the table, so as to be no brick.
    Nothing,
}

impl Table {
    /// The table of this package, after the rules of the user's `file`.
    ///
    /// # Errors
    ///
    /// The line of `file` that is wrong, and what is wrong with it.
    pub(super) fn new(file: Option<&str>) -> Result<Self, (usize, String)> {
        let mut table = Self::default();
        let is_alone = match file {
            Some(file) => table.add(file)?,
            None => false,
        };
        table.own_kernels = table.kernels.len();
        if !is_alone {
            table.append(OURS.clone()?);
        }
        Ok(table)
    }

    /// Adds the rules of another table behind its own.
    fn append(&mut self, other: Self) {
        self.ranges.extend(other.ranges);
        self.modules.extend(other.modules);
        self.ops.extend(other.ops);
        self.kernels.extend(other.kernels);
        // The user's lines come first.
        for (brick, category) in other.categories {
            self.categories.entry(brick).or_insert(category);
        }
    }

    /// Adds the rules of a file. Returns whether it is to be used without ours.
    fn add(&mut self, file: &str) -> Result<bool, (usize, String)> {
        let (mut section, mut is_alone, mut rules) = ("", false, 0_usize);
        for (number, line) in (1_usize..).zip(file.lines()) {
            let line = line.trim();
            let fault = |what: String| (number, what);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let name = rest.split_once(']').map(|(name, rest)| (name.trim(), rest.trim()));
                section = match name {
                    Some((name @ ("range" | "module" | "op" | "kernel" | "category"), rest))
                        if rest.is_empty() || rest.starts_with('#') =>
                    {
                        name
                    }
                    _ => {
                        let one_of = "[range], [module], [op], [kernel] or [category]";
                        return Err(fault(format!("a section is {one_of}")));
                    }
                };
                continue;
            }
            let (key, rest) = word(line).map_err(fault)?;
            let Some(rest) = rest.trim_start().strip_prefix('=') else {
                return Err(fault("after the pattern comes `= \"a brick\"`".to_owned()));
            };
            let rest = rest.trim_start();
            if section.is_empty() && key == "built_in" {
                is_alone = match rest {
                    "true" => false,
                    "false" => true,
                    _ => return Err(fault("`built_in` is true or false".to_owned())),
                };
                continue;
            }
            if !rest.starts_with(['"', '\'']) {
                return Err(fault("the brick is a text in quotes".to_owned()));
            }
            let (value, rest) = word(rest).map_err(fault)?;
            if !rest.trim().is_empty() && !rest.trim_start().starts_with('#') {
                return Err(fault("there is more after the brick".to_owned()));
            }
            rules += 1;
            if rules > MOST_RULES {
                return Err(fault(format!("there are more than {MOST_RULES} rules")));
            }
            let rule = Rule { pattern: key, nth: None, brick: value };
            match section {
                "range" => self.ranges.push(rule),
                "module" => self.modules.push(numbered(rule).map_err(fault)?),
                "op" => self.ops.push(rule),
                "kernel" => self.kernels.push(rule),
                "category" => {
                    let category = BrickCategory::ALL
                        .into_iter()
                        .find(|category| category.name() == rule.brick)
                        .ok_or_else(|| {
                            let all = BrickCategory::ALL.map(BrickCategory::name).join(", ");
                            fault(format!("a category is one of {all}"))
                        })?;
                    // The user's lines come first.
                    self.categories.entry(rule.pattern).or_insert(category);
                }
                _ => {
                    let why = "a rule stands in a section: [range], [module], [op] or [kernel]";
                    return Err(fault(why.to_owned()));
                }
            }
        }
        Ok(is_alone)
    }

    /// The brick of a range by its name, such as `model.layers.3.self_attn.q_proj`. Scopes of a path, as in
    /// `model/layers_3/q_proj`, are as those of a name with dots. An operation behind [`OPERATION`] is a brick in any case.
    pub(super) fn range<'t>(&'t self, name: &'t str) -> Option<Found<'t>> {
        let dotted = name.contains('/').then(|| name.replace('/', "."));
        let names = || [Some(name), dotted.as_deref()].into_iter().flatten();
        first(&self.ranges, |rule| names().flat_map(ends).any(|end| matches(&rule.pattern, end)))
            // Who names a range as a brick of the catalogue means that one, whatever its kernels are called.
            .or_else(|| BrickId::from_str(name).map(|brick| Found::Brick(brick.name())))
            .or_else(|| {
                let (_, operation) = name.rsplit_once(OPERATION)?;
                (!operation.is_empty()).then_some(Found::Brick(operation))
            })
    }

    /// Whether a range of this name is a brick.
    pub(in crate::import) fn has_range(&self, name: &str) -> bool {
        matches!(self.range(name), Some(Found::Brick(_)))
    }

    /// The brick of a module by its class and those of the modules around it, the innermost first; `nth` as in rules.
    pub(super) fn module(&self, classes: &[&str], nth: (u32, u32)) -> Option<Found<'_>> {
        first(&self.modules, |rule| {
            rule.nth.is_none_or(|of| of == nth)
                && rule.pattern.rsplit('/').count() <= classes.len()
                && rule.pattern.rsplit('/').zip(classes).all(|(p, class)| matches(p, class))
        })
    }

    /// The brick of an operation.
    pub(super) fn op(&self, name: &str) -> Option<Found<'_>> {
        first(&self.ops, |rule| matches(&rule.pattern, name))
    }

    /// The brick of a kernel, or of a copy on a device. What a kernel is given doesn't tell what it does, so our own rules
    /// don't see the types of its arguments.
    pub(super) fn kernel(&self, name: &str) -> Option<Found<'_>> {
        let (own, ours) = self.kernels.split_at(self.own_kernels);
        first(own, |rule| matches(&rule.pattern, name)).or_else(|| {
            let name = without_arguments(name);
            first(ours, |rule| matches(&rule.pattern, name))
        })
    }

    /// The bricks that rules name.
    pub(super) fn bricks(&self) -> impl Iterator<Item = &str> {
        let all = [&self.ranges, &self.modules, &self.ops, &self.kernels];
        all.into_iter().flatten().map(|rule| rule.brick.as_str())
    }

    /// The category of a brick.
    pub(super) fn category(&self, brick: &str) -> BrickCategory {
        match BrickId::from_str(brick) {
            Some(known) => known.category(),
            None => self.categories.get(brick).copied().unwrap_or_default(),
        }
    }
}

/// A dotted name, and its ends after each dot.
fn ends(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, rest)| rest)).take(16)
}

/// `void f<int>` of `void f<int>(char*, long)`.
pub(super) fn without_arguments(name: &str) -> &str {
    let name = name.strip_suffix(" [clone .kd]").unwrap_or(name);
    if !name.ends_with(')') {
        return name;
    }
    let mut depth = 0_usize;
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return if at > 0 { &name[..at] } else { name };
        }
    }
    name
}

fn first<'t>(rules: &'t [Rule], is_it: impl Fn(&Rule) -> bool) -> Option<Found<'t>> {
    let rule = rules.iter().find(|rule| is_it(rule))?;
    Some(if rule.brick.is_empty() { Found::Nothing } else { Found::Brick(&rule.brick) })
}

/// Takes ` #2 of 3` off the end of a pattern.
fn numbered(rule: Rule) -> Result<Rule, String> {
    let Some((pattern, nth)) = rule.pattern.split_once(" #") else { return Ok(rule) };
    let numbers = nth.split_once(" of ").and_then(|(nth, of)| {
        let (nth, of) = (nth.parse::<u32>().ok()?, of.parse::<u32>().ok()?);
        (nth >= 1 && nth <= of).then_some((nth, of))
    });
    match numbers {
        Some(nth) => Ok(Rule { pattern: pattern.to_owned(), nth: Some(nth), ..rule }),
        None => Err("after ` #` comes which call of how many: `Linear #2 of 3`".to_owned()),
    }
}

/// A bare or quoted word at the begin of a line, and what is behind it.
fn word(text: &str) -> Result<(String, &str), String> {
    let unended = || "a quote is not closed".to_owned();
    if let Some(rest) = text.strip_prefix('\'') {
        let (word, rest) = rest.split_once('\'').ok_or_else(unended)?;
        return Ok((word.to_owned(), rest));
    }
    let Some(rest) = text.strip_prefix('"') else {
        let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let end = text.find(|c| !is_bare(c)).unwrap_or(text.len());
        return match end {
            0 => Err("a pattern is a text in quotes".to_owned()),
            end => Ok((text[..end].to_owned(), &text[end..])),
        };
    };
    let (mut word, mut chars) = (String::new(), rest.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((word, &rest[at + 1..])),
            '\\' => match chars.next() {
                Some((_, c @ ('"' | '\\'))) => word.push(c),
                _ => return Err("after `\\` comes `\"` or `\\`".to_owned()),
            },
            c => word.push(c),
        }
    }
    Err(unended())
}

/// What is before an operation in the name of a range that ends with it: those of ONNX Runtime.
pub(in crate::import) const OPERATION: &str = "onnx::";

/// What lists of layers are called.
pub(in crate::import) const LISTS: [&str; 6] = ["layers", "layer", "h", "blocks", "block", "blk"];

/// Class and number of a module's call: of `nn.Module: LlamaDecoderLayer_3`, `LlamaDecoderLayer` and 3.
pub(super) fn class_of(module: &str) -> (&str, Option<u16>) {
    match module.rsplit_once('_') {
        Some((class, number)) => match number.parse() {
            Ok(number) => (class, Some(number)),
            Err(_) => (module, None),
        },
        None => (module, None),
    }
}

/// Whether a class of modules is that of whole transformer layers.
pub(super) fn is_layer(class: &str) -> bool {
    class.ends_with("Layer") || class.ends_with("Block")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        Table::new(Some(text)).expect("a table")
    }

    #[test]
    fn our_table_knows_a_transformer() {
        let ours = Table::new(None).expect("it is well formed");
        let brick = |found: Option<Found<'_>>| match found {
            Some(Found::Brick(brick)) => brick.to_owned(),
            Some(Found::Nothing) => "nothing".to_owned(),
            None => "unknown".to_owned(),
        };
        for (range, is) in [
            ("model.layers.3.self_attn.q_proj", "QkvProjection"),
            ("transformer.h.0.attn.c_attn", "QkvProjection"),
            ("transformer.h.0.attn.c_proj", "OutputProjection"),
            ("transformer.h.0.mlp.c_proj", "DownProjection"),
            ("model.layers.3.mlp.gate_up_proj", "GateUpProjection"),
            ("model.embed_tokens", "Embedding"),
            ("lm_head", "LmHead"),
            ("blocks.3.attn.qkv", "QkvProjection"),
            ("blk.3.attn_q", "QkvProjection"),
            ("blk.3.attn_output", "OutputProjection"),
            ("blk.3.ffn_gate", "GateProjection"),
            ("blk.3.ffn_gate_inp", "Router"),
            ("blk.3.ffn_down_exps", "Experts"),
            ("decoder.layers.3.self_attention.linear_proj", "OutputProjection"),
            ("model/layers_3/self_attn/q_proj", "QkvProjection"),
            ("transformer/h/3/attn/c_proj", "OutputProjection"),
            ("my/scope", "unknown"),
            ("model.layers.0.input_layernorm", "RmsNorm"),
            ("something of mine", "unknown"),
        ] {
            assert_eq!(brick(ours.range(range)), is, "{range}");
        }
        let modules = |classes: &[&str], nth| brick(ours.module(classes, nth));
        assert_eq!(modules(&["QKVParallelLinear", "LlamaAttention"], (1, 1)), "QkvProjection");
        assert_eq!(modules(&["RowParallelLinear", "LlamaAttention"], (1, 1)), "OutputProjection");
        assert_eq!(modules(&["RowParallelLinear", "LlamaMLP"], (1, 1)), "DownProjection");
        assert_eq!(modules(&["Linear", "LlamaAttention"], (4, 4)), "OutputProjection");
        assert_eq!(modules(&["Linear", "LlamaAttention"], (3, 4)), "QkvProjection");
        assert_eq!(modules(&["Linear", "LlamaMLP"], (2, 3)), "UpProjection");
        assert_eq!(modules(&["Linear"], (1, 1)), "unknown");
        assert_eq!(modules(&["LlamaRMSNorm", "LlamaDecoderLayer"], (1, 2)), "RmsNorm");
        for (op, is) in [
            ("aten::mm", "MatMul"),
            ("aten::scaled_dot_product_attention", "FlashAttention"),
            ("aten::embedding", "Embedding"),
            ("_C::fused_add_rms_norm", "RmsNorm"),
            ("_C::rotary_embedding", "RopeEmbedding"),
            ("_C::silu_and_mul", "Activation"),
            ("vllm::unified_attention_with_output", "FlashAttention"),
            ("sgl_kernel::rmsnorm", "RmsNorm"),
            ("nccl:all_reduce", "AllReduce"),
            ("cudaLaunchKernel", "Launch"),
            ("cudaLaunchKernelExC", "Launch"),
            ("cuLaunchKernelEx", "Launch"),
            ("cuLaunchCooperativeKernel", "Launch"),
            ("cudaLaunchCooperativeKernel", "Launch"),
            ("hipLaunchCooperativeKernel", "Launch"),
            ("hipModuleLaunchKernel", "Launch"),
            ("cuGraphLaunch", "Launch"),
            ("cudaStreamSynchronize", "WaitForDevice"),
            ("my_ops::foo", "unknown"),
        ] {
            assert_eq!(brick(ours.op(op)), is, "{op}");
        }
        for (kernel, is) in [
            ("void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>", "FlashAttention"),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", "AllReduce"),
            ("Memcpy HtoD (Pageable -> Device)", "Copy"),
            ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "MatMul"),
            ("void vllm::rms_norm_kernel<c10::BFloat16>", "RmsNorm"),
            ("my_kernel", "unknown"),
        ] {
            assert_eq!(brick(ours.kernel(kernel)), is, "{kernel}");
        }
        assert_eq!(ours.category("FlashAttention"), BrickCategory::Attention);
        assert_eq!(ours.category("RmsNorm"), BrickCategory::Norm);
    }

    #[test]
    fn kernels_of_each_family_are_told() {
        let ours = Table::new(None).expect("it is well formed");
        let of = |name: &str| match ours.kernel(name) {
            Some(Found::Brick(brick)) => brick,
            Some(Found::Nothing) => "nothing",
            None => "unknown",
        };
        for (brick, names) in [
            (
                "MatMul",
                &[
                    "void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 4, 16, 4, true>",
                    "void gptq_marlin::Marlin<half, 256>(int4 const*)",
                    "bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2",
                    "bmm_Bfloat16_E2m1E2m1_Fp32_t128x16x512_s6_et128x16_m128x16x64",
                    "deep_gemm::sm90_fp8_gemm_1d2d_impl",
                    "nvjet_tst_64x8_64x16_4x1_v_bz_TNT",
                    "void machete::prepacked",
                    "void mul_mat_vec_q<(ggml_type)12, 1>",
                    "void mul_mat_q<(ggml_type)8, 64, false>(char const*, int const*)",
                    "void gemv2T_kernel_val<int>",
                    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_relu_f2f_stages_64x6_tn",
                    "void wvSplitK_hf_sml_<__hip_bfloat16>",
                    "_ZN2ck27kernel_gemm_xdl_cshuffle_v3",
                    "_w8a8_block_fp8_matmul",
                    "void gptq_gemm",
                    "awq_gemm_kernel",
                    "triton_tem_fused_addmm_silu_3",
                    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64",
                ][..],
            ),
            (
                "FlashAttention",
                &[
                    "_attn_fwd",
                    "_fwd_kernel",
                    "_fwd_kernel_stage2",
                    "_fwd_grouped_kernel_stage1",
                    "flash_attn_ext_f16",
                    "void flash_attn_tile_ext_f16",
                    "void flash_attn_combine_results<128>",
                    "void fmha_cutlassF_bf16_aligned",
                    "cudnn_generated_fort_native_sdpa_sm90_knob_26",
                    "_ZN5aiter41fmha_fwd_hd128_bf16",
                    "void paged_attention_ll4mi_QKV_mfma16_kernel",
                    "void vllm::merge_attn_states_kernel<c10::BFloat16>",
                    "triton_tem_fused_flex_attention_0",
                    "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90>>",
                ],
            ),
            (
                "RmsNorm",
                &[
                    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_26Rmsnorm2dFwdPipelineOnePassI",
                    "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>",
                    "void flashinfer::norm::FusedAddRMSNormKernel<8u>",
                    "triton_red_fused_add_mean_mul_pow_rsqrt_0",
                    "triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_2",
                    "rms_norm_f32",
                    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16b",
                ],
            ),
            (
                "LayerNorm",
                &["void norm_f32<1024>", "void at::native::vectorized_layer_norm_kernel"],
            ),
            ("Experts", &["_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", "fused_moe_kernel"]),
            ("Experts", &["void marlin_moe_wna16::Marlin<half>", "_ZN5aiter10fmoe_bf16"]),
            (
                "Router",
                &[
                    "_combined_routing_memset",
                    "void moe::dev::routing::routingIndicesCoopKernel",
                    "vllm::moe::topkGatingSoftmax",
                    "void vllm::moe::grouped_topk_fused_kernel",
                ],
            ),
            ("Dispatch", &["moe_align_block_size_kernel", "_fwd_kernel_ep_scatter_1"]),
            ("Combine", &["_finalize_matmul_scatter_bf16", "_fwd_kernel_ep_gather"]),
            (
                "Activation",
                &[
                    "void vllm::act_and_mul_kernel<c10::BFloat16>",
                    "triton_poi_fused_mul_silu_1",
                    "void unary_gated_op_kernel<&op_silu, float>",
                ],
            ),
            (
                "AllReduce",
                &[
                    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>",
                    "void mscclpp_allreduce",
                    "allreduce_fusion_kernel_oneshot_lamport",
                    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)",
                ],
            ),
            (
                "Communication",
                &[
                    "void dpsk::ep::internode::dispatch<true>",
                    "void deep_ep::internode_ll::combine",
                    "void deep_ep::intranode::combine<__nv_bfloat16>",
                    "ncclDevKernel_AllGather_RING_LL",
                ],
            ),
            (
                "Sampling",
                &[
                    "void flashinfer::sampling::TopKTopPSamplingFromProbKernel",
                    "void flashinfer::sampling::TopPRenormProbKernel",
                    "void at::native::reduce_kernel<512, at::native::ReduceOp<float, ArgMaxOps<float>>>",
                ],
            ),
            ("Sort", &["void cub::DeviceRadixSortOnesweepKernel", "k_argsort_f32_i32"]),
            (
                "Softmax",
                &["soft_max_f32", "void (anonymous namespace)::softmax_warp_forward<float>"],
            ),
            ("RopeEmbedding", &["rope_neox", "void rope_norm<true>", "void fused_rope_kernel"]),
            (
                "Quantize",
                &[
                    "quantize_q8_1",
                    "void quantize_mmq_q8_1<(mmq_q8_1_ds_layout)0>",
                    "sgl_per_token_group_quant_8bit",
                    "void per_token_group_quant_8bit_kernel",
                    "void vllm::scaled_fp8_quant_kernel_strided",
                ],
            ),
            ("Dequantize", &["void dequantize_block_q4_K", "void vllm::awq::dequantize_weights"]),
            ("Conv", &["void causal_conv1d_fwd_kernel", "ssm_conv_f32"]),
            ("Conv", &["sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc"]),
            ("SSM", &["_chunk_scan_fwd_kernel", "void selective_scan_fwd_kernel", "ssm_scan_f32"]),
            ("Indexer", &["void lightning_indexer", "deep_gemm::sm90_fp8_paged_mqa_logits"]),
            ("KvCache", &["void vllm::concat_and_cache_mla_kernel", "void store_kvcache<2048l>"]),
            ("Elementwise", &["triton_poi_fused_constant_pad_nd_0", "k_bin_bcast"]),
            // Those that do the work of two bricks, or are only of a library with a telling name.
            (
                "nothing",
                &["void fusedQKNormRopeKernel<128>", "void fbgemm_gpu::_offsets_range<int>"],
            ),
            (
                "unknown",
                &[
                    "Marker",
                    "void my_kernel(cudaDeviceProperties, flash::Params, gemm_arguments)",
                    "void scan(DeviceProperties)",
                    "triton_red_fused_sum_0",
                    "",
                    "()",
                    "f(",
                    "f)",
                ],
            ),
        ] {
            for name in names {
                assert_eq!(of(name), brick, "{name}");
            }
        }
    }

    #[test]
    fn kernels_are_what_they_do_and_not_what_is_in_their_names() {
        let ours = Table::new(None).expect("it is well formed");
        for (kernel, is) in [
            ("void deep_gemm::transpose_fp32<512u, 64u, 56u>(float const*, float*)", "Copy"),
            ("void deep_gemm::transpose_and_pack_fp32_into_ue8m0<512u>(float*)", "Copy"),
            ("deep_gemm::sm90_fp8_gemm_1d2d_impl", "MatMul"),
            ("_topk_log_softmax_kernel", "Sampling"),
            ("_penalties_and_temperature_kernel", "Sampling"),
            ("_min_p_kernel", "Sampling"),
            ("void tensorrt_llm::kernels::topKStage1<float, 256, 8>(float const*)", "Sampling"),
            ("void vllm::gptq::reconstruct_exllama_4bit_kernel(unsigned const*)", "Dequantize"),
            ("_set_k_and_s_triton_kernel", "KvCache"),
            ("_fwd_kernel_flash_decode_stage1", "FlashAttention"),
            ("triton_flex_decoding_1", "FlashAttention"),
            ("_qkv_lora_b_kernel", "LoRA"),
            ("_sgemm_lora_a_kernel", "LoRA"),
            ("rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)", "Communication"),
            ("void rcclGenericKernel<1, false>(ncclDevKernelArgs)", "Communication"),
            ("void mmq_ids_helper<8>(int const*, int*)", "Dispatch"),
            ("void tensorrt_llm::kernels::lookup_kernel<half, int>(half*)", "Embedding"),
            ("badd_f32", "Elementwise"),
            ("where_u8_f32", "Elementwise"),
            ("fast_sum_f32", "Elementwise"),
            ("ucopy_f32", "Copy"),
            ("cast_f32_bf16", "Copy"),
            ("is_u32_f32", "Gather"),
            ("asort_asc_f32", "Sort"),
        ] {
            assert_eq!(ours.kernel(kernel), Some(Found::Brick(is)), "{kernel}");
        }
    }

    #[test]
    fn lines_of_the_user_come_first() {
        let mine = table(
            "# mine\n[op]\n\"aten::mm\" = \"MyProduct\" # here\n'aten::a\"b' = \"\"\n\n[category]\n\
             MyProduct = \"FFN\"\n",
        );
        assert_eq!(mine.op("aten::mm"), Some(Found::Brick("MyProduct")));
        assert_eq!(mine.op("aten::a\"b"), Some(Found::Nothing));
        assert_eq!(mine.op("aten::embedding"), Some(Found::Brick("Embedding")));
        assert_eq!(mine.category("MyProduct"), BrickCategory::Ffn);
        let alone = table("built_in = false\n[op]\n\"a*\" = \"A\"\n");
        assert_eq!((alone.op("ab"), alone.op("mm")), (Some(Found::Brick("A")), None));
    }

    #[test]
    fn a_faulty_line_is_named() {
        for (text, line, why) in [
            ("\n[ops]\n", 2, "a section is [range]"),
            ("\"a\" = \"b\"\n", 1, "a rule stands in a section"),
            ("[op]\n\"a\" \"b\"\n", 2, "after the pattern comes"),
            ("[op]\n\"a\" = 3\n", 2, "the brick is a text in quotes"),
            ("[op]\n\"a\" = \"b\n", 2, "a quote is not closed"),
            ("[op]\n\"a\" = \"b\" c\n", 2, "there is more"),
            ("[op]\n\"a\\n\" = \"b\"\n", 2, "after `\\`"),
            ("[op]\n= \"b\"\n", 2, "a pattern is a text in quotes"),
            ("[module]\n\"a #3 of 2\" = \"b\"\n", 2, "after ` #` comes"),
            ("[category]\na = \"Attn\"\n", 2, "a category is one of Norm, Attention, FFN, Other"),
            ("built_in = 1\n", 1, "`built_in` is true or false"),
        ] {
            let (at, said) = Table::new(Some(text)).expect_err(text);
            assert!(at == line && said.starts_with(why), "{text}: {at} {said}");
        }
    }

    #[test]
    fn classes_of_modules_state_layers() {
        assert_eq!(class_of("LlamaDecoderLayer_3"), ("LlamaDecoderLayer", Some(3)));
        assert_eq!(class_of("My_Module"), ("My_Module", None));
        assert!(is_layer("LlamaDecoderLayer") && is_layer("GPT2Block") && !is_layer("LayerNorm"));
    }
}
