//! What runs the operations of a forward pass. So far: the CPU.

mod cpu;
// Read by the executor for CUDA.
#[allow(dead_code)]
pub(crate) mod cuda;
pub(crate) mod gpu;
mod routines;
mod shares;
pub(crate) mod work;

pub use cpu::Cpu;
pub(crate) use routines::pick;
pub use routines::{Routine, Routines};
pub(crate) use shares::Shares;
