//! What runs the operations of a forward pass: the CPU, and devices.

mod cpu;
pub mod cuda;
pub mod gpu;
mod routines;
mod shares;
#[cfg(feature = "wgpu")]
mod wgpu;
pub(crate) mod work;

#[cfg(feature = "wgpu")]
pub use self::wgpu::Wgpu;
pub use cpu::Cpu;
pub(crate) use cpu::{Deal, MULTIPLY_ADDS_OF_SOFTMAX};
pub use routines::{Routine, Routines};
pub(crate) use shares::Shares;
