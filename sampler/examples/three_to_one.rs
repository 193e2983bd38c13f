//! Work with a known distribution: three quarters of all steps are in `heavy`, one quarter in `light`. With the argument
//! `deep`, all are below 2000 frames of `deeper`.
//!
//! `cargo run --release --example three_to_one`

use std::env;
use std::hint::black_box;

/// The number of steps in all rounds together.
const STEPS: u64 = 400_000_000;

fn main() {
    if env::args().nth(1).as_deref() == Some("deep") {
        black_box(deeper(2000));
        return;
    }
    let mut done = 0;
    let mut seed = 1;
    while done < STEPS {
        // Rounds of different lengths, so that no sampler runs in step with them.
        seed = step(seed, 0x2545_f491_4f6c_dd1d);
        let quarter = 2_000 + (seed >> 52);
        black_box(heavy(3 * quarter));
        black_box(light(quarter));
        done += 4 * quarter;
    }
}

#[inline(never)]
fn heavy(steps: u64) -> u64 {
    (0..steps).fold(1, |x, _| step(x, 0x5851_f42d_4c95_7f2d))
}

#[inline(never)]
fn light(steps: u64) -> u64 {
    (0..steps).fold(1, |x, _| step(x, 0x1405_7b7e_f767_814f))
}

/// Each step depends on the previous one, so it takes the same time wherever it is.
#[inline(always)]
fn step(x: u64, factor: u64) -> u64 {
    black_box(x.wrapping_mul(factor) | 1)
}

#[inline(never)]
fn deeper(left: u64) -> u64 {
    // The addition after the call keeps its frame on the stack.
    if left == 0 { heavy(STEPS / 2) } else { black_box(deeper(left - 1)) + 1 }
}
