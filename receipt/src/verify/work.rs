//! Checks that the tests of a receipt are work of one model: the same formats, as many products as it has layers, more of it
//! at a greater depth, and each kernel in its brick.

use std::collections::BTreeSet;

use super::kernels::{formats, operation};
use super::{Code, Findings, measured, said};
use crate::v1::{Receipt, Test};

/// Kernels that run in a brick of one of these names.
const IN_BRICKS: [(&str, &[&str]); 8] = [
    ("embed", &["Embedding"]),
    ("rms_norm", &["RmsNorm"]),
    ("layer_norm", &["LayerNorm"]),
    ("rope", &["RopeEmbedding"]),
    ("scores", &["AttentionScore", "FlashAttention"]),
    ("softmax", &["AttentionSoftmax", "FlashAttention", "Router"]),
    ("weighted_sum", &["AttentionOutput", "FlashAttention"]),
    ("silu_mul", &["Activation"]),
];

/// Checks the tests against each other.
pub(super) fn check(receipt: &Receipt, found: &mut Findings) {
    hashes(receipt, found);
    if receipt.device.is_some() {
        return;
    }
    quants(receipt, found);
    for test in &receipt.tests {
        products(receipt, test, found);
        bricks(receipt, test, found);
    }
    depths(receipt, found);
}

fn is_product(id: &str) -> bool {
    matches!(operation(id).as_str(), "gemv" | "gemm")
}

/// Each test multiplies by the weights of one file.
fn quants(receipt: &Receipt, found: &mut Findings) {
    let of = |test: &Test| -> BTreeSet<&'static str> {
        let products = test.kernels.iter().filter(|kernel| is_product(&kernel.id));
        products.flat_map(|kernel| formats(&kernel.id)).collect()
    };
    let mut tests = receipt.tests.iter().filter(|test| !of(test).is_empty());
    let Some(first) = tests.next() else { return };
    if let Some(other) = tests.find(|test| of(test).is_disjoint(&of(first))) {
        found.refuse_about(
            Code::KernelsMismatch,
            "quants",
            format!(
                "test {} multiplies by weights of {}, and test {} by those of {}: they are of two models",
                said(&first.name),
                of(first).into_iter().collect::<Vec<_>>().join(", "),
                said(&other.name),
                of(other).into_iter().collect::<Vec<_>>().join(", ")
            ),
        );
    }
}

/// Each layer of each pass multiplies by a matrix at least.
fn products(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let passes: u128 = measured(test).map(|sample| sample.pass_ns.len() as u128).sum();
    let least = u128::from(receipt.model.layers) * passes;
    let products = test.kernels.iter().filter(|kernel| is_product(&kernel.id));
    let launches: u128 = products.clone().map(|kernel| u128::from(kernel.launches)).sum();
    if products.count() > 0 && launches < least {
        found.refuse_about(
            Code::Contradiction,
            "layers",
            format!(
                "test {} has {launches} products in {passes} passes, but {} layers have one each at least",
                said(&test.name),
                receipt.model.layers
            ),
        );
    }
}

fn bricks(receipt: &Receipt, test: &Test, found: &mut Findings) {
    if !receipt.run.profiled || test.bricks.is_empty() {
        return;
    }
    for kernel in &test.kernels {
        let lower = kernel.id.to_lowercase();
        let Some((_, bricks)) = IN_BRICKS.iter().find(|(name, _)| {
            lower.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        }) else {
            continue;
        };
        if !test.bricks.iter().any(|brick| bricks.contains(&brick.name.as_str())) {
            found.refuse_about(
                Code::KernelsMismatch,
                "bricks",
                format!(
                    "test {} launched {}, but has no brick {}, in which it runs",
                    said(&test.name),
                    said(&kernel.id),
                    bricks[0]
                ),
            );
        }
    }
}

/// Attention to more tokens is more work.
fn depths(receipt: &Receipt, found: &mut Findings) {
    for deep in &receipt.tests {
        let is_same = |test: &&Test| {
            (test.n_prompt, test.n_gen) == (deep.n_prompt, deep.n_gen)
                && test.n_depth < deep.n_depth
        };
        for shallow in receipt.tests.iter().filter(is_same) {
            for kernel in &deep.kernels {
                let other = shallow.kernels.iter().find(|other| other.id == kernel.id);
                if let Some(other) = other.filter(|other| other.launches != kernel.launches) {
                    found.refuse_about(
                        Code::KernelsMismatch,
                        "depths",
                        format!(
                            "test {} launched {} {} times, and test {}, which has as many passes, {} times",
                            said(&deep.name),
                            said(&kernel.id),
                            kernel.launches,
                            said(&shallow.name),
                            other.launches
                        ),
                    );
                }
            }
            for (what, less, more) in
                [("FLOPs", deep.flops, shallow.flops), ("bytes", deep.bytes, shallow.bytes)]
            {
                if let (Some(less), Some(more)) = (less, more)
                    && less < more
                {
                    found.refuse_about(
                        Code::Contradiction,
                        "depths",
                        format!(
                            "test {} has {less} {what}, fewer than the {more} of test {}, which attends to fewer tokens",
                            said(&deep.name),
                            said(&shallow.name)
                        ),
                    );
                }
            }
        }
    }
}

/// Neither the model nor the program is a list of tokens, and lists of different lengths are different.
fn hashes(receipt: &Receipt, found: &mut Findings) {
    let model = [("the model's file", &receipt.model.sha256)];
    let program = receipt.binary.sha256.iter().map(|hash| ("the program", hash));
    let files: Vec<_> = model.into_iter().chain(program).collect();
    let mut refuse = |what: &str, test: &Test, other: &str| {
        let sentence =
            format!("the {what} of test {} and {other} have the same SHA-256", said(&test.name));
        found.refuse_about(Code::Contradiction, "hashes", sentence);
    };
    for test in &receipt.tests {
        for (what, hash) in [("input", &test.input_sha256), ("output", &test.output_sha256)] {
            if let Some((file, _)) = files.iter().find(|(_, of_file)| *of_file == hash) {
                refuse(what, test, file);
            }
        }
        // Decoding begins with a token.
        let depth = test.n_depth.max(test.n_gen.min(1));
        let [input, output] = [depth.saturating_add(test.n_prompt), test.output_tokens];
        if test.input_sha256 == test.output_sha256 && input != output {
            refuse("input", test, &format!("its output, of {input} and {output} tokens,"));
        }
    }
}
