//! Executors, which run the operations of a forward pass: the CPU, and devices.

pub mod cuda;
pub mod gpu;
#[cfg(feature = "wgpu")]
pub mod wgpu;

#[cfg(feature = "wgpu")]
pub use self::wgpu::Wgpu;
pub use crate::cpu::Cpu;
pub use crate::routines::{Routine, RoutineNames, Routines};
