//! Loops that saturate the machine: they only move memory, or only multiply and add.
//!
//! They measure ceilings. The caller times them, and knows how many bytes were moved (those of the slices:
//! [`read_streams`](crate::Kernels::read_streams) and its siblings) and how many operations were done
//! ([`multiply_add`](crate::Kernels::multiply_add), [`int8_tile`](crate::Kernels::int8_tile)).

mod evict;
mod int8;
mod multiply_add;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod step;
mod stream;

pub use int8::{INT8_DEPTH, Int8};
pub use stream::Place;
