//! Tests on any device, such as a software one. Without one, each test says so and passes, unless
//! `BRICKSCOPE_NEEDS_WGPU` is set.

mod ceilings;
mod kernels;
mod passes;

use super::*;

/// `None` if a test may be skipped because there is no device.
fn skipped<T>(why: GpuError) -> Option<T> {
    let is_needed = std::env::var_os("BRICKSCOPE_NEEDS_WGPU").is_some();
    assert!(matches!(why, GpuError::NoDevice { .. }) && !is_needed, "{why}");
    eprintln!("skipped: {why}");
    None
}
