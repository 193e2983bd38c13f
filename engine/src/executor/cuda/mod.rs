//! NVIDIA's devices.

pub(crate) mod kernels;
