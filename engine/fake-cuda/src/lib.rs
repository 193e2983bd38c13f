//! A CUDA driver without a device. `tests/engine/cuda.rs` uses it in place of `libcuda.so.1`, so that the
//! executor's own code runs without a GPU.
//!
//! It knows which sequences of calls cuda.h allows, and ends the process with a message at the first illegal one:
//! a wait during a capture, the time of an event that wasn't recorded, an external record outside a
//! capture, an address that was freed. A real driver would return an error there, or
//! wrong numbers.
//!
//! Device memory is host memory. Kernels do nothing, unless `FAKE_CUDA_KERNELS` names a library with the
//! CUDA sources compiled for the CPU, and then those of `peak.cu` do nothing. Time is simulated, the host's as well: a call
//! takes 1 µs. How long a kernel takes depends on its grid (`driver::kernel_ns`). Kernels of a stream run one after the
//! other, none before its launch, and waiting for one advances the time to its end. Kernels note this time, too.
//!
//! | variable | meaning |
//! |---|---|
//! | `FAKE_CUDA_KERNELS` | a library with `launch_<kernel>` functions |
//! | `FAKE_CUDA_LOG` | a file that gets a line with the name of each call |
//! | `FAKE_CUDA_DEVICES` | the number of devices, 1 by default |
//! | `FAKE_CUDA_LOSE_AT` | the launch, counted from 1, at which the device is lost |
//! | `FAKE_CUDA_EVENT_NS` | the duration of recording an event on the device, 0 by default |
//! | `FAKE_CUDA_STRAY_NODE` | if set, each captured graph has its last node twice, though it was issued once |
//! | `FAKE_CUDA_MEMORY` | bytes of device memory, 512 MiB by default: it is memory of the host, and touched |
//! | `FAKE_CUDA_SLOWNESS` | a factor on the duration of kernels but those that only stamp, 1 by default |
//! | `FAKE_CUDA_TAKES_TIME` | if set, calls and waits take as long as the simulated time says, so that nothing takes longer on the device than on the host |
//!
//! The same file named `libcupti.so` is CUPTI, which sees what the driver runs. It allows no
//! illegal call either: kinds that hide kernels, a flush from within a callback, reading a buffer that isn't being
//! delivered. It delivers buffers out of order and from another thread, and each begins with a record of
//! an unknown kind.
//!
//! | variable | meaning |
//! |---|---|
//! | `FAKE_CUPTI_VERSION` | the version that it reports, which also decides the length of its records: 28 by default |
//! | `FAKE_CUPTI_PER_BUFFER` | kernel records per buffer, 64 by default |
//! | `FAKE_CUPTI_DROP` | the record, counted from 1, that is dropped and counted as dropped |
//! | `FAKE_CUPTI_UNTIMED` | the record, counted from 1, that has zeros for times |
//! | `FAKE_CUPTI_STRETCH` | a kernel and a number: its records are that many percent longer than it ran, since they begin earlier |
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
