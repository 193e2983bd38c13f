//! Checks the ids of kernels: that there are some, and that they fit the backend and the model.
//!
//! An id says what the kernel runs on, as a part between `_`, `-`, `.`, `:` or `/`. Ours are
//! `OPERATION[_FORMAT]_ON`: `gemv_q4_k_avx2`, `rms_norm_scalar`.

use std::collections::BTreeSet;

use super::{Code, Findings, Options, measured, said};
use crate::v1::{Receipt, Test};

/// The most ids; no program has more.
const MOST_IDS: usize = 10_000;
/// The most characters of an id.
const MOST_CHARS: usize = 128;

/// Checks the kernels of the receipt and of its tests.
pub(super) fn check(receipt: &Receipt, options: &Options, found: &mut Findings) {
    ids(receipt, found);
    for test in &receipt.tests {
        launches(receipt, test, found);
    }
    let of_tests: BTreeSet<&str> = receipt
        .tests
        .iter()
        .flat_map(|test| test.kernels.iter().map(|kernel| kernel.id.as_str()))
        .collect();
    let stated: Vec<&str> = receipt.kernels.iter().map(String::as_str).collect();
    if !stated.iter().eq(of_tests.iter()) {
        let listed: BTreeSet<&str> = stated.iter().copied().collect();
        let missing = of_tests.iter().find(|id| !listed.contains(*id)).map(|id| ("lacks", *id));
        let extra = stated.iter().find(|id| !of_tests.contains(*id));
        let extra = extra.map(|id| ("has, though no test ran it,", *id));
        found.refuse(
            Code::KernelsMismatch,
            match missing.or(extra) {
                Some((how, id)) => format!("the list of kernels {how} {}", said(id)),
                None => "the list of kernels isn't sorted, or has one twice".to_owned(),
            },
        );
    }
    gpu(receipt, options, found);
    quantized(receipt, found);
}

fn ids(receipt: &Receipt, found: &mut Findings) {
    if receipt.kernels.is_empty() {
        let why =
            if receipt.run.profiled { "" } else { ": the profiler, which records them, was off" };
        found.refuse(
            Code::KernelIds,
            format!("the list of kernels is empty, so nothing shows what ran{why}"),
        );
    }
    if receipt.kernels.len() > MOST_IDS {
        found.refuse(
            Code::KernelIds,
            format!(
                "{} kernels are listed, but a receipt has at most {MOST_IDS}",
                receipt.kernels.len()
            ),
        );
    }
    let of_tests =
        receipt.tests.iter().flat_map(|test| test.kernels.iter().map(|kernel| &kernel.id));
    for id in receipt.kernels.iter().chain(of_tests) {
        let chars = id.chars().count();
        if id.trim().is_empty() {
            found.refuse(Code::KernelIds, "the id of a kernel is empty");
        } else if chars > MOST_CHARS {
            found.refuse(
                Code::KernelIds,
                format!(
                    "the id {} has {chars} characters, but at most {MOST_CHARS} are allowed",
                    said(id)
                ),
            );
        }
        if id.to_lowercase().contains("mock") {
            found.refuse(
                Code::MockKernel,
                format!("the kernel {} is a mock by its id, and mocks don't compute", said(id)),
            );
        }
    }
}

/// Every repetition launches the same kernels, whose work adds up to the test's.
fn launches(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let name = said(&test.name);
    if test.kernels.is_empty() && !receipt.kernels.is_empty() {
        found.refuse(Code::KernelIds, format!("test {name} ran no kernel, so it computed nothing"));
    }
    let repetitions = measured(test).count() as u64;
    for kernel in &test.kernels {
        if kernel.launches == 0 || kernel.launches.checked_rem(repetitions).is_some_and(|n| n > 0) {
            found.refuse(
                Code::KernelsMismatch,
                format!(
                    "{} was launched {} times in the {repetitions} repetitions of test {name}, which \
                     launch it equally often",
                    said(&kernel.id),
                    kernel.launches
                ),
            );
        }
    }
    if test.kernels.is_empty() {
        return found.not_checked(format_args!("the work of test {name}"), "it has no kernels");
    }
    for (what, stated, of_kernels) in [
        ("FLOPs", test.flops, total(test, |kernel| kernel.flops)),
        ("bytes", test.bytes, total(test, |kernel| kernel.bytes)),
    ] {
        if of_kernels.is_none() {
            let reason = "one of its kernels didn't state them";
            found.not_checked(format_args!("the {what} of test {name}"), reason);
        }
        let of_test = stated.map(|stated| u128::from(stated) * u128::from(repetitions));
        if of_test != of_kernels {
            let said = |work: Option<u128>| work.map_or("null".to_owned(), |work| work.to_string());
            found.refuse(
                Code::KernelsMismatch,
                format!(
                    "a repetition of test {name} has {} {what}, but its kernels state {} for \
                     {repetitions}",
                    said(stated.map(u128::from)),
                    said(of_kernels)
                ),
            );
        }
    }
    understated(receipt, test, found);
}

/// A decode pass multiplies by every weight except those of an embedding that is separate from the head.
/// Such an embedding is as large as the head: at most half of the weights.
pub(super) fn least_flops(receipt: &Receipt, test: &Test) -> u128 {
    u128::from(receipt.model.parameters) * u128::from(test.n_gen)
}

/// A decode pass reads every weight but those of a separate embedding, which is at most half of them. In the file it may
/// take more, as floats beside weights of two bits. A vocabulary takes a part of it, too.
fn least_bytes(receipt: &Receipt, test: &Test) -> u128 {
    const METADATA: u64 = 64 << 20;
    u128::from(receipt.model.bytes.saturating_sub(METADATA)) / 10 * u128::from(test.n_gen)
}

fn understated(receipt: &Receipt, test: &Test, found: &mut Findings) {
    if let Some(stated) =
        test.bytes.map(u128::from).filter(|&stated| stated < least_bytes(receipt, test))
    {
        found.refuse(
            Code::KernelsMismatch,
            format!(
                "the kernels of test {} state {stated} bytes, but decoding with a file of {} reads at least {}",
                said(&test.name),
                receipt.model.bytes,
                least_bytes(receipt, test)
            ),
        );
    }
    let Some(stated) = total(test, |kernel| kernel.flops) else { return };
    let repetitions = measured(test).count() as u128;
    let least = least_flops(receipt, test).saturating_mul(repetitions);
    if stated < least {
        found.refuse(
            Code::KernelsMismatch,
            format!(
                "the kernels of test {} state {stated} FLOPs, but decoding with {} weights takes at \
                 least {least}",
                said(&test.name),
                receipt.model.parameters
            ),
        );
    }
}

fn total(test: &Test, of: impl Fn(&crate::v1::Kernel) -> Option<u64>) -> Option<u128> {
    test.kernels.iter().map(|kernel| of(kernel).map(u128::from)).sum()
}

/// The parts of an id, in lower case.
fn parts(id: &str) -> impl Iterator<Item = String> {
    let lower = id.to_lowercase();
    let parts: Vec<String> =
        lower.split(['_', '-', '.', ':', '/', ' ']).map(str::to_owned).collect();
    parts.into_iter()
}

/// What a kernel does, by the first part of its id: `gemv`, `softmax`.
pub(super) fn operation(id: &str) -> String {
    parts(id).next().unwrap_or_default()
}

/// Formats of weights, as ids and quantisations name them.
const FORMATS: [&str; 18] = [
    "f64", "f32", "f16", "bf16", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0",
    "q3_k", "q2_k", "tq2_0", "tq1_0", "i2_s", "mxfp4",
];

/// The formats that an id, or a quantisation such as `q4_k_m`, names.
pub(super) fn formats(id: &str) -> impl Iterator<Item = &'static str> {
    let parts = format!("_{}_", parts(id).collect::<Vec<_>>().join("_"));
    FORMATS.into_iter().filter(move |format| parts.contains(&format!("_{format}_")))
}

/// The instruction set of a CPU that an id names.
pub(super) fn cpu_instructions(id: &str) -> Option<String> {
    const SETS: [&str; 7] = ["scalar", "sse", "avx", "amx", "neon", "sve", "rvv"];
    parts(id).find(|part| SETS.iter().any(|set| part.starts_with(set)))
}

/// Whether an id names a GPU: `cuda`, `ptx`, `wmma`, `gpu`, `wgpu`, `cublas` or `cudnn` as the beginning of a part, or
/// an architecture such as `sm90` or `sm_90`, and no instruction set of a CPU.
pub(super) fn is_gpu(id: &str) -> bool {
    const MARKS: [&str; 9] =
        ["cuda", "ptx", "wmma", "gpu", "wgpu", "cublas", "cudnn", "cutlass", "nvrtc"];
    let is_sm = |part: &str| {
        part.strip_prefix("sm").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    cpu_instructions(id).is_none()
        && parts(id).any(|part| MARKS.iter().any(|mark| part.starts_with(mark)) || is_sm(&part))
}

fn gpu(receipt: &Receipt, options: &Options, found: &mut Findings) {
    let claims = matches!(receipt.backend.as_str(), "cuda" | "wgpu");
    let first =
        || receipt.kernels.first().map_or(String::new(), |id| format!(", such as {}", said(id)));
    // Where none is listed, that is the fault.
    let claims = claims && !receipt.kernels.is_empty();
    if claims || options.require_gpu_kernels {
        for test in &receipt.tests {
            if !test.kernels.iter().any(|kernel| is_gpu(&kernel.id)) {
                let why = match claims {
                    true => format!("the backend is {}", said(&receipt.backend)),
                    false => "GPU kernels are required".to_owned(),
                };
                found.refuse(
                    Code::NoGpuKernels,
                    format!(
                        "{why}, but no kernel of test {} names a GPU{}",
                        said(&test.name),
                        first()
                    ),
                );
            }
        }
    }
    if let Some(id) = receipt.kernels.iter().find(|id| receipt.backend == "cpu" && is_gpu(id)) {
        found.refuse(
            Code::KernelsMismatch,
            format!("the backend is `cpu`, but the kernel {} is a GPU's by its id", said(id)),
        );
    }
}

/// Whether an id names a quantised format: `q4_k`, `iq2_xs`, `tq1_0`, `i2_s`, `tl1`, `int8`, `mxfp4`.
pub(super) fn is_quantized(id: &str) -> bool {
    const PREFIXES: [&str; 9] = ["q", "iq", "tq", "i2", "tl", "int4", "int8", "mxfp", "nvfp"];
    // An embedding only looks rows up.
    !id.to_lowercase().starts_with("embed")
        && parts(id).any(|part| {
            PREFIXES.iter().any(|prefix| {
                part.strip_prefix(prefix).is_some_and(|rest| match *prefix {
                    "int4" | "int8" => true,
                    "i2" => rest.is_empty() || rest == "s",
                    _ => rest.starts_with(|c: char| c.is_ascii_digit()),
                })
            })
        })
}

fn quantized(receipt: &Receipt, found: &mut Findings) {
    const FLOATS: [&str; 7] = ["f64", "f32", "f16", "bf16", "fp32", "fp16", "float"];
    let quantization = receipt.model.quantization.to_lowercase();
    if quantization.trim().is_empty() {
        return found
            .refuse(Code::Field, "the model's quantization is empty, and every model has one");
    }
    // `all f32` and `mostly f16` are floats, too.
    let is_float = parts(&quantization).any(|part| FLOATS.contains(&part.as_str()));
    // Where none is listed, that is the fault.
    let is_listed = !receipt.kernels.is_empty();
    if receipt.backend == "cpu"
        && is_listed
        && !is_float
        && !receipt.kernels.iter().any(|id| is_quantized(id))
    {
        found.refuse(
            Code::NoQuantizedKernels,
            format!(
                "the model is quantised ({}), but no kernel that multiplies by its blocks ran",
                said(&receipt.model.quantization)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_what_it_runs_on() {
        for id in [
            "gemv_q4_k_cuda",
            "rope_wgpu",
            "rms_norm_sm90",
            "gemm.sm_90",
            "wmma_matmul",
            "i2s_gpu_pack",
        ] {
            assert!(is_gpu(id), "{id}");
        }
        for id in
            ["gemv_q4_k_avx2", "rms_norm_scalar", "softmax_neon", "cuda_avx2", "gemm", "small"]
        {
            assert!(!is_gpu(id), "{id}");
        }
        assert_eq!(cpu_instructions("gemv_q8_0_avx512").as_deref(), Some("avx512"));
        assert_eq!(cpu_instructions("gemv_q8_0_cuda"), None);
    }

    #[test]
    fn an_id_says_what_it_does_and_with_which_format() {
        for (id, does, of) in [
            ("gemv_q4_k_avx2", "gemv", &["q4_k"][..]),
            ("gemm_bf16_avx512", "gemm", &["bf16"]),
            ("Q4_K_M", "q4", &["q4_k"]),
            ("mostly f16", "mostly", &["f16"]),
            ("softmax_avx2", "softmax", &[]),
        ] {
            assert_eq!((&*operation(id), &*formats(id).collect::<Vec<_>>()), (does, of), "{id}");
        }
    }

    #[test]
    fn an_id_says_what_it_multiplies() {
        for id in
            ["gemv_q8_0_avx2", "gemm_q4_k_scalar", "gemv_tq2_0_avx2", "gemv_i2_s_avx2", "i2s_gemv"]
        {
            assert!(is_quantized(id), "{id}");
        }
        for id in ["gemv_f16_avx2", "embed_q8_0_scalar", "rms_norm_avx2", "softmax", "qkv", "tl"] {
            assert!(!is_quantized(id), "{id}");
        }
    }
}
