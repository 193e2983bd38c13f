//! AVX2 and NEON run loops over eight lanes from the same source and round in the same way, so results have the same
//! bits on both. These tests show any change of them.

use super::*;

/// FNV-1a over the bits of `values`.
fn hash(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn hashes(kernels: Kernels) -> Vec<(String, u64)> {
    let mut hashes = Vec::new();
    let mut note = |what: &str, values: &[f32]| hashes.push((what.to_owned(), hash(values)));
    // Lengths that aren't multiples of eight.
    let (x, y) = (noise(1, 203), noise(2, 203));
    let run = |call: &dyn Fn(&mut [f32])| {
        let mut out = x.clone();
        call(&mut out);
        out
    };
    note("rms_norm", &run(&|out| kernels.rms_norm_in_place(out, &y, 1e-5)));
    note("softmax", &run(&|out| kernels.softmax(out)));
    note("silu_mul", &run(&|out| kernels.silu_mul(out, &y)));
    note("relu_squared_mul", &run(&|out| kernels.relu_squared_mul(out, &y)));
    note("add", &run(&|out| kernels.add(out, &y)));
    let (cos, sin) = (&y[..77], &y[100..177]);
    note("rope, norm", &run(&|out| kernels.rope(out, cos, sin, RopePairs::Norm)));
    note("rope, neox", &run(&|out| kernels.rope(out, cos, sin, RopePairs::Neox)));
    let cache = noise(3, 203 * 11);
    note("weighted_sum", &run(&|out| kernels.weighted_sum(out, &y[..11], &cache, 203)));
    let mut scores = [0.0; 11];
    kernels.scores(&mut scores, &x, &cache, 203, 0.125);
    note("scores", &scores);
    for kind in QuantType::ALL {
        let (rows, cols, n) = (7, if kind.block_len() == 1 { 1027 } else { 1280 }, 5);
        let bytes = encode(kind, &noise(4, rows * cols));
        let w = Matrix::new(kind, rows, cols, &bytes).unwrap();
        let x = noise(5, n * cols);
        let mut out = vec![0.0; rows];
        kernels.gemv(&mut out, w, &x[..cols]);
        note(&format!("gemv, {kind}"), &out);
        let mut out = vec![0.0; n * rows];
        kernels.gemm(&mut out, w, &x, n);
        note(&format!("gemm, {kind}"), &out);
    }
    hashes
}

#[test]
fn come_out_on_every_architecture() {
    let kernels = [Backend::Avx2, Backend::Neon].map(Kernels::new);
    let Some(kernels) = kernels.into_iter().flatten().next() else {
        return eprintln!("skipped: neither AVX2 nor NEON");
    };
    let found = hashes(kernels);
    for (what, hash) in &found {
        println!("(\"{what}\", {hash:#018x}),");
    }
    assert_eq!(found.len(), EXPECTED.len());
    for ((what, hash), (expected_what, expected)) in found.iter().zip(EXPECTED) {
        assert_eq!(what, expected_what);
        assert_eq!(hash, expected, "{what} on {}", kernels.backend());
    }
}

/// Hashes as computed with AVX2. If a kernel changes them on purpose, replace them by what the test prints.
const EXPECTED: &[(&str, u64)] = &[
    ("rms_norm", 0x2a7c3fea05bda7e2),
    ("softmax", 0xa930074c6d4b7c65),
    ("silu_mul", 0x54734dee346b57b7),
    ("relu_squared_mul", 0x90d2910b8e6777cc),
    ("add", 0xf0791d0bb42119f6),
    ("rope, norm", 0xd06d8cac6a3775bb),
    ("rope, neox", 0xbc02ff014672a45b),
    ("weighted_sum", 0xd2afb39a76d1bec1),
    ("scores", 0x9f2d8ef6aae5ea9a),
    ("gemv, f32", 0xe9efe20b922f015e),
    ("gemm, f32", 0x0409c57afe935d66),
    ("gemv, f16", 0xe5b7ae06d0f31617),
    ("gemm, f16", 0x000ac37e875960f8),
    ("gemv, bf16", 0x3c361f23326c32a0),
    ("gemm, bf16", 0x4f9dc00d5006aaed),
    ("gemv, q4_0", 0x672687db7925ca8f),
    ("gemm, q4_0", 0x129379d72c2b031f),
    ("gemv, q4_1", 0x1100f1e673cbd372),
    ("gemm, q4_1", 0x494e784cd55ab565),
    ("gemv, q5_0", 0xd7490d17cc3e513e),
    ("gemm, q5_0", 0x6280cc2ee169a5b2),
    ("gemv, q5_1", 0xeb60b0440b5d02b9),
    ("gemm, q5_1", 0x351091683d91cd4b),
    ("gemv, q8_0", 0xb0500affe5ba3630),
    ("gemm, q8_0", 0x1687358cd6a111f6),
    ("gemv, q4_k", 0x3662539050f9ef69),
    ("gemm, q4_k", 0xfd9e9a1bc4109d99),
    ("gemv, q5_k", 0x2be266f7d5703f5b),
    ("gemm, q5_k", 0x5c8e05bf1636d439),
    ("gemv, q6_k", 0x2fc0aa2ddec29301),
    ("gemm, q6_k", 0x8145a918a078b922),
    ("gemv, tq1_0", 0xe753b13eacb22a55),
    ("gemm, tq1_0", 0xd8c0fbb349ffc02a),
    ("gemv, tq2_0", 0x52263146940b97b9),
    ("gemm, tq2_0", 0xd8c0fbb349ffc02a),
    ("gemv, i2_s", 0x5c5402d465bd2f18),
    ("gemm, i2_s", 0x58070c29679c8f92),
];
