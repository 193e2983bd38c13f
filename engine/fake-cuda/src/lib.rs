//! A driver for CUDA without a device: what `engine/tests/cuda.rs` puts in the place of `libcuda.so.1`,
//! so that the executor's own code runs where there is no GPU.
//!
//! It knows which sequences of calls are legal, as cuda.h has them, and ends the process with a sentence
//! at the first that isn't: a wait during a capture, a time of an event that nobody recorded, an external
//! record outside of a capture, an address that was freed. A real driver would return an error there, or
//! wrong numbers.
//!
//! Device memory is the host's. Kernels do nothing, or, if `FAKE_CUDA_KERNELS` names a library that the
//! CUDA sources were compiled into for the CPU, what they do. Time is made up, the host's as well: a call
//! takes 1 µs of it. Each kernel takes a while that its grid says (`driver::kernel_ns`), one after the
//! other on a stream, and none before it was launched; whoever waits for it is that much later.
//!
//! | variable | meaning |
//! |---|---|
//! | `FAKE_CUDA_KERNELS` | a library with `launch_<kernel>` functions |
//! | `FAKE_CUDA_LOG` | a file that gets a line with the name of each call |
//! | `FAKE_CUDA_DEVICES` | how many devices there are: 1 unless said otherwise |
//! | `FAKE_CUDA_LOSE_AT` | the launch, counted from 1, at which the device is lost |
//! | `FAKE_CUDA_EVENT_NS` | what the record of an event takes on the device: 0 unless said otherwise |
//! | `FAKE_CUDA_STRAY_NODE` | set: each captured graph has its last node once more, which nobody issued |
//! | `FAKE_CUDA_MEMORY` | bytes of device memory: 8 GiB unless said otherwise |
//! | `FAKE_CUDA_SLOWNESS` | how often as long each kernel takes: 1 unless said otherwise |
//!
//! The same file under the name of `libcupti.so` is CUPTI, which sees what the driver runs. It allows no
//! illegal call either: kinds that hide kernels, a flush from within a callback, a buffer that isn't being
//! handed over. Its buffers come in the wrong order and from another thread, and each begins with a record of
//! a kind that there isn't.
//!
//! | variable | meaning |
//! |---|---|
//! | `FAKE_CUPTI_VERSION` | what it says that it is, and how long its records are: 28 unless said otherwise |
//! | `FAKE_CUPTI_PER_BUFFER` | records of kernels in a buffer: 64 unless said otherwise |
//! | `FAKE_CUPTI_DROP` | the record, counted from 1, that is dropped, and counted as that |
//! | `FAKE_CUPTI_UNTIMED` | the record, counted from 1, that has zeros for times |
//! | `FAKE_CUPTI_STRETCH` | a kernel and a number: its records are longer than it ran, by so many percent |
//! | `FAKE_CUPTI_REFUSE` | the code that enabling returns |

mod capture;
mod clock;
mod cupti;
mod cupti_ffi;
mod driver;
mod ffi;
mod launch;
#[path = "../../src/executor/cuda/ptx.rs"]
mod ptx;
