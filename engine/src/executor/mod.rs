//! What runs the operations of a forward pass: the CPU, and devices.

mod cpu;
pub mod cuda;
pub mod gpu;
mod routines;
mod shares;
pub(crate) mod work;

pub use cpu::Cpu;
pub(crate) use routines::pick;
pub use routines::{Routine, Routines};
pub(crate) use shares::Shares;
