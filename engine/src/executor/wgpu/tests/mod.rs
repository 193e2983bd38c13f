//! On any device that is there; a software one will do. Without one each test says so and passes, unless
//! `BRICKSCOPE_NEEDS_WGPU` is set.

mod kernels;
mod passes;

use super::*;

/// `None`, where a test may be skipped for want of a device.
fn skipped<T>(why: GpuError) -> Option<T> {
    let is_needed = std::env::var_os("BRICKSCOPE_NEEDS_WGPU").is_some();
    assert!(matches!(why, GpuError::NoDevice { .. }) && !is_needed, "{why}");
    eprintln!("skipped: {why}");
    None
}
