//! Models, as the kernels that a decode step of them launches. The names are those that traces of vLLM and
//! SGLang have on an H100 and, for gpt-oss and Qwen3, on an MI300; the times are round ones of their size.

use super::Random;

const NORM: &str = "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*, c10::BFloat16 const*, long, long, \
    long, c10::BFloat16 const*, float, int, int)";
const ADD_NORM: &str = "std::enable_if<((8)>(0))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type \
    vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long, c10::BFloat16*, c10::BFloat16 const*, float, \
    int, int)";
const ROTARY: &str = "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*, c10::BFloat16*, \
    c10::BFloat16 const*, int, long, long, long, int, int, bool)";
const CACHE: &str = "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, \
    (vllm::Fp8KVCacheDataType)0>(__nv_bfloat16 const*, __nv_bfloat16 const*, __nv_bfloat16*, __nv_bfloat16*, long const*, \
    long, long, long, long, long, int, int, int, float const*, float const*)";
const FLASH: &str = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, \
    cutlass::bfloat16_t>, false, false, false, false, true, true, false, false>(flash::Flash_fwd_params)";
const FLASH_LOCAL: &str = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, \
    cutlass::bfloat16_t>, false, true, false, false, true, true, false, false>(flash::Flash_fwd_params)";
const COMBINE: &str = "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, \
    cutlass::bfloat16_t>, 4, 5, true>(flash::Flash_fwd_params)";
const SILU: &str = "void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>\
    (c10::BFloat16 const&)), true>(c10::BFloat16*, c10::BFloat16 const*, int)";
const GELU: &str = "void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::gelu_tanh_kernel<c10::BFloat16>\
    (c10::BFloat16 const&)), true>(c10::BFloat16*, c10::BFloat16 const*, int)";
const GATING: &str = "void vllm::moe::topkGating<4, 128, 4, 16, 32, int, __nv_bfloat16>(__nv_bfloat16 const*, bool const*, \
    float*, int, int*, int*, int, int, int, bool)";
const ALIGN: &str = "void vllm::moe::moe_align_block_size_kernel<int>(int const*, int*, int*, int*, int, int, int, int, \
    unsigned long, int*, int)";
const MOE_SUM: &str =
    "void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16 const*, int)";
const ALL_REDUCE: &str =
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
const GATHER: &str = "void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>(char*, char*, long*, int, \
    long, long, long, long, bool)";
const ARGMAX: &str = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, \
    unsigned int, long, 4, 4> >(at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, long, 4, 4>)";
const CK_NORM: &str = "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_24\
    Rmsnorm2dFwdPipelineProblemIDF16bDF16bfDF16bDF16bDF16bffEEEEEEEvT1_";

/// A kernel or a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// As a trace has it.
    pub name: String,
    /// How long it takes, before any jitter; of an all-reduce, how long the transfer itself takes.
    pub ns: u64,
    /// What it computes.
    pub brick: &'static str,
    /// Whether it runs on the second stream, beside what follows of its layer.
    pub is_aside: bool,
}

impl Kernel {
    /// On the first stream.
    #[must_use]
    pub fn new(name: &str, ns: u64, brick: &'static str) -> Self {
        Self { name: name.to_owned(), ns, brick, is_aside: false }
    }

    /// The same on the second stream.
    #[must_use]
    pub fn aside(self) -> Self {
        Self { is_aside: true, ..self }
    }

    /// Whether it is a product of matrices, for which an autotuner chooses among tiles.
    #[must_use]
    pub fn is_product(&self) -> bool {
        self.name.starts_with("nvjet_tst_") || self.name.starts_with("Cijk_")
    }

    /// Whether all ranks of a group do it together.
    #[must_use]
    pub fn is_collective(&self) -> bool {
        self.brick == "AllReduce"
    }

    /// The same product with another tile, such as `128x64`.
    #[must_use]
    pub fn tiled(&self, tile: &str) -> Self {
        let name = if let Some(rest) = self.name.strip_prefix("nvjet_tst_") {
            rest.split_once('_').map(|(_, rest)| format!("nvjet_tst_{tile}_{rest}"))
        } else {
            self.name.split_once("_MT").and_then(|(front, rest)| {
                let (_, rest) = rest.split_once('_')?;
                Some(format!("{front}_MT{tile}x64_{rest}"))
            })
        };
        Self { name: name.unwrap_or_else(|| self.name.clone()), ..self.clone() }
    }
}

/// A model's decode step. A graph launches what is in the prologue, the layers and the epilogue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Net {
    /// Launched one by one before the graph, in the step's range.
    pub before: Vec<Kernel>,
    /// The first of the graph, in no layer.
    pub prologue: Vec<Kernel>,
    /// Layer by layer.
    pub layers: Vec<Vec<Kernel>>,
    /// The last of the graph, in no layer.
    pub epilogue: Vec<Kernel>,
    /// Launched one by one after the graph, in the step's range.
    pub after: Vec<Kernel>,
    /// Launched one by one behind the step's range.
    pub behind: Vec<Kernel>,
}

type Part = (&'static str, u64, &'static str);

fn kernels(parts: &[Part]) -> Vec<Kernel> {
    parts.iter().map(|&(name, ns, brick)| Kernel::new(name, ns, brick)).collect()
}

/// A product of AMD's library.
fn product(tile: &str, ns: u64, brick: &'static str) -> Kernel {
    let name = format!("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT{tile}_MI16x16x1_SN_LDSB1");
    Kernel::new(&name, ns, brick)
}

/// The norm that begins a layer, and attention with FlashAttention's split kernels.
#[must_use]
pub fn attention() -> Vec<Kernel> {
    attention_by(&[(FLASH, 21_000, "FlashAttention"), (COMBINE, 4_000, "FlashAttention")])
}

/// The same with vLLM's Triton kernels: of two kernels over all that there is, of one over a window.
#[must_use]
pub fn triton_attention(is_sliding: bool) -> Vec<Kernel> {
    attention_by(match is_sliding {
        true => &[("kernel_unified_attention_2d", 14_000, "FlashAttention")],
        false => &[
            ("kernel_unified_attention_3d", 41_000, "FlashAttention"),
            ("reduce_segments", 5_900, "FlashAttention"),
        ],
    })
}

fn attention_by(middle: &[Part]) -> Vec<Kernel> {
    let mut all = kernels(&[
        (ADD_NORM, 4_200, "RmsNorm"),
        ("nvjet_tst_64x64_64x13_2x1_v_bz_TNT", 18_000, "QkvProjection"),
        (ROTARY, 3_400, "RopeEmbedding"),
        (CACHE, 3_100, "KvCache"),
    ]);
    all.extend(kernels(middle));
    all.push(Kernel::new("nvjet_tst_64x64_64x16_4x1_v_bz_splitK_TNT", 12_000, "OutputProjection"));
    all
}

/// A norm, and a dense MLP.
#[must_use]
pub fn mlp() -> Vec<Kernel> {
    kernels(&[
        (ADD_NORM, 4_300, "RmsNorm"),
        ("nvjet_tst_192x64_64x6_2x1_v_bz_coopA_TNT", 61_000, "GateUpProjection"),
        (SILU, 3_600, "Activation"),
        ("nvjet_tst_64x64_64x16_4x1_v_bz_TNT", 33_000, "DownProjection"),
    ])
}

/// A norm, and an MLP of experts.
#[must_use]
pub fn experts() -> Vec<Kernel> {
    kernels(&[
        (ADD_NORM, 4_300, "RmsNorm"),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT", 7_200, "Router"),
        (GATING, 4_800, "Router"),
        (ALIGN, 6_100, "Dispatch"),
        ("fused_moe_kernel", 88_000, "Experts"),
        (SILU, 5_200, "Activation"),
        ("fused_moe_kernel", 52_000, "Experts"),
        (MOE_SUM, 4_400, "Combine"),
    ])
}

/// A shared expert on the second stream.
#[must_use]
pub fn shared_expert() -> Vec<Kernel> {
    let all = kernels(&[
        ("nvjet_tst_128x8_64x12_2x1_v_bz_TNT", 14_000, "Experts"),
        ("triton_poi_fused_mul_silu_2", 2_300, "Activation"),
        ("nvjet_tst_128x8_64x12_2x1_v_bz_TNN", 9_000, "Experts"),
    ]);
    all.into_iter().map(Kernel::aside).collect()
}

/// The norm without an addition, which the queries and keys of some models have, and what Gemma's parts end with.
#[must_use]
pub fn plain_norm() -> Kernel {
    Kernel::new(NORM, 3_300, "RmsNorm")
}

/// A sum over the ranks.
#[must_use]
pub fn all_reduce() -> Kernel {
    Kernel::new(ALL_REDUCE, 14_000, "AllReduce")
}

impl Net {
    /// A model of such layers. The first norm of all has nothing to add.
    #[must_use]
    pub fn of(layers: u16, body: impl Fn(u16) -> Vec<Kernel>) -> Self {
        let mut layers: Vec<Vec<Kernel>> = (0..layers).map(body).collect();
        if let Some(first) = layers.first_mut().and_then(|layer| layer.first_mut())
            && first.name == ADD_NORM
        {
            NORM.clone_into(&mut first.name);
        }
        Self {
            before: kernels(&[
                ("Memcpy HtoD (Pinned -> Device)", 1_300, "Copy"),
                ("Memcpy HtoD (Pinned -> Device)", 1_200, "Copy"),
                ("Memcpy DtoD (Device -> Device)", 1_500, "Copy"),
            ]),
            prologue: kernels(&[("triton_poi_fused_embedding_0", 3_100, "Embedding")]),
            layers,
            epilogue: kernels(&[(ADD_NORM, 4_300, "RmsNorm")]),
            after: kernels(&[
                (GATHER, 2_900, "Copy"),
                ("nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNT", 310_000, "LmHead"),
            ]),
            behind: kernels(&[
                (ARGMAX, 21_000, "Sampling"),
                ("Memcpy DtoH (Device -> Pageable)", 1_500, "Copy"),
            ]),
        }
    }

    /// As Llama.
    #[must_use]
    pub fn dense(layers: u16) -> Self {
        Self::of(layers, |_| [attention(), mlp()].concat())
    }

    /// As Llama on several ranks, which add up what attention and the MLP come to.
    #[must_use]
    pub fn parallel(layers: u16) -> Self {
        Self::of(layers, |_| [attention(), vec![all_reduce()], mlp(), vec![all_reduce()]].concat())
    }

    /// As Mixtral.
    #[must_use]
    pub fn of_experts(layers: u16) -> Self {
        Self::of(layers, |_| [attention(), experts()].concat())
    }

    /// As a model with a shared expert, which is computed on the second stream.
    #[must_use]
    pub fn of_shared_experts(layers: u16) -> Self {
        Self::of(layers, |_| {
            let (front, back) = (attention(), experts());
            let (norm, rest) = back.split_at(1);
            [&front[..], norm, &shared_expert()[..], rest].concat()
        })
    }

    /// As gpt-oss with vLLM on ROCm: attention alternates between a window and all, and layer 0 lacks a
    /// conversion.
    #[must_use]
    pub fn gpt_oss(layers: u16) -> Self {
        let mut net = Self::of(layers, |layer| {
            let mut all = vec![
                Kernel::new(CK_NORM, 6_500, "RmsNorm"),
                product("32x32x256", 15_900, "QkvProjection"),
            ];
            if layer > 0 {
                all.push(Kernel::new("triton_poi_fused__to_copy_1", 12_600, "Elementwise"));
            }
            all.push(Kernel::new(ROTARY, 6_200, "RopeEmbedding"));
            all.push(Kernel::new(CACHE, 5_400, "KvCache"));
            let attention = triton_attention(layer % 2 == 0);
            all.extend(attention.into_iter().filter(|kernel| kernel.brick == "FlashAttention"));
            all.push(product("32x32x256", 15_700, "OutputProjection"));
            all.push(Kernel::new(CK_NORM, 7_400, "RmsNorm"));
            all.push(product("16x16x256", 8_300, "Router"));
            all.extend(kernels(&[
                ("triton_poi_fused_constant_pad_nd_moe_forward_0", 5_500, "Elementwise"),
                ("_topk_forward", 5_300, "Router"),
                ("_sum_bitmatrix_rows", 4_900, "Router"),
                ("_combined_routing_memset", 4_600, "Router"),
                ("_combined_routing_compute", 5_800, "Router"),
                ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", 141_000, "Experts"),
                ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", 164_000, "Experts"),
                ("_finalize_matmul_scatter_bf16", 5_400, "Combine"),
            ]));
            all
        });
        net.prologue = kernels(&[("triton_poi_fused_0", 10_600, "Embedding")]);
        net.epilogue = kernels(&[(CK_NORM, 5_800, "RmsNorm")]);
        net
    }

    /// As Qwen3 with SGLang on ROCm: queries and keys have norms of their own, inside of each layer.
    #[must_use]
    pub fn qwen3(layers: u16) -> Self {
        let norm = |of: &str, ns| {
            let name = format!(
                "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16b{of}ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib"
            );
            Kernel::new(&name, ns, "RmsNorm")
        };
        let copy = Kernel::new(
            "void at::native::elementwise_kernel_manual_unroll<128, 8, at::native::gpu_kernel_impl_nocast<\
             at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)> >",
            5_500,
            "Copy",
        );
        let add_norm = || norm("Li256ELi16ELb1", 5_600);
        let own_norm = || norm("Li64ELi8ELb0", 5_400);
        let mut net = Self::of(layers, |layer| {
            let first = if layer == 0 { norm("Li256ELi16ELb0", 5_700) } else { add_norm() };
            let mut all = vec![first, product("64x32x256", 23_800, "QkvProjection")];
            all.extend([copy.clone(), own_norm(), copy.clone(), own_norm()]);
            all.extend(kernels(&[
                (ROTARY, 6_900, "RopeEmbedding"),
                (
                    "void (anonymous namespace)::store_kvcache<2048l, 4, false, long>",
                    5_700,
                    "KvCache",
                ),
                (
                    "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16>",
                    58_000,
                    "FlashAttention",
                ),
                (
                    "void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, 128>",
                    5_800,
                    "FlashAttention",
                ),
            ]));
            all.push(product("16x32x512", 19_500, "OutputProjection"));
            all.extend([add_norm(), product("256x32x64", 72_000, "GateUpProjection")]);
            all.push(Kernel::new(
                "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3",
                12_100,
                "Activation",
            ));
            all.push(product("32x32x256", 41_300, "DownProjection"));
            all
        });
        net.prologue = kernels(&[(GATHER, 13_500, "Embedding")]);
        net.epilogue = vec![
            add_norm(),
            product("256x48x64", 397_000, "LmHead"),
            Kernel::new(
                "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16tofloat32_copy_kernel_cuda>",
                8_400,
                "Copy",
            ),
        ];
        net.after = Vec::new();
        net
    }

    /// As Gemma 3: of six layers one attends to all and five to a window, and each part ends with a norm, too.
    /// That norm belongs to the layer which it ends, though the norm of the next layer follows at once.
    #[must_use]
    pub fn gemma(layers: u16) -> Self {
        Self::of(layers, |layer| {
            let flash = if layer % 6 == 5 { FLASH } else { FLASH_LOCAL };
            let mut all = attention_by(&[
                (flash, 17_000, "FlashAttention"),
                (COMBINE, 4_000, "FlashAttention"),
            ]);
            // The norms of queries and keys come before their rotation.
            all.splice(2..2, [plain_norm(), plain_norm()]);
            all.push(plain_norm());
            let mut mlp = mlp();
            GELU.clone_into(&mut mlp[2].name);
            [all, mlp, vec![plain_norm()]].concat()
        })
    }

    /// As DeepSeek: latent attention, and experts but in the first layers.
    #[must_use]
    pub fn deepseek(layers: u16, dense: u16) -> Self {
        Self::of(layers, |layer| {
            let attention = kernels(&[
                (ADD_NORM, 4_700, "RmsNorm"),
                ("nvjet_tst_64x16_64x16_4x1_v_bz_splitK_TNT", 13_000, "QkvProjection"),
                (NORM, 2_700, "RmsNorm"),
                ("nvjet_tst_128x32_64x8_2x1_v_bz_TNT", 16_000, "QkvProjection"),
                (NORM, 2_600, "RmsNorm"),
                (ROTARY, 3_000, "RopeEmbedding"),
                (
                    "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>",
                    2_500,
                    "KvCache",
                ),
                ("nvjet_tst_64x32_64x12_1x2_h_bz_NNT", 6_000, "QkvProjection"),
                (
                    "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8> >(Flash_fwd_mla_params)",
                    34_000,
                    "FlashAttention",
                ),
                (
                    "void flash_fwd_splitkv_mla_combine_kernel<cutlass::bfloat16_t, float, long, 512, 64>",
                    3_500,
                    "FlashAttention",
                ),
                ("nvjet_tst_64x32_64x12_1x2_h_bz_TNT", 6_200, "OutputProjection"),
                ("nvjet_tst_128x32_64x10_2x1_v_bz_splitK_TNT", 22_000, "OutputProjection"),
            ]);
            [attention, if layer < dense { mlp() } else { experts() }].concat()
        })
    }

    /// A net whose layers repeat a pair inside of them, as those of some diffusion models.
    #[must_use]
    pub fn with_pairs(layers: u16) -> Self {
        Self::of(layers, |_| {
            let pair = [
                Kernel::new("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT", 44_000, "MatMul"),
                Kernel::new("triton_poi_fused_add_mul_1", 5_000, "Elementwise"),
            ];
            [attention(), (0..6).flat_map(|_| pair.clone()).collect()].concat()
        })
    }

    /// The same, but for one product of a layer, for which an autotuner took another tile.
    #[must_use]
    pub fn autotuned(mut self, layer: u16, nth: usize) -> Self {
        let products = self.layers.get_mut(usize::from(layer)).into_iter().flatten();
        if let Some(product) = products.filter(|kernel| kernel.is_product()).nth(nth) {
            *product = product.tiled("128x256");
        }
        self
    }

    /// The same kernels in a random order, so that there are no layers.
    #[must_use]
    pub fn shuffled(mut self, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut all = self.prologue;
        all.extend(self.layers.into_iter().flatten());
        all.append(&mut self.epilogue);
        for at in (1..all.len()).rev() {
            all.swap(at, random.below(at as u64 + 1) as usize);
        }
        Self { prologue: all, layers: Vec::new(), ..self }
    }
}
