//! NVIDIA devices: the driver's files, its library, and the devices that the library finds.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::fs;

use libloading::Library;

use super::Finding;

const NAME: &str = "cuda";
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// The devices of the CUDA driver.
pub(super) fn devices() -> Finding {
    let nodes = device_nodes();
    let listed = listed();
    judge(&nodes, &listed, load())
}

/// The result of calling the driver's library.
enum Driver {
    /// The library can't be loaded.
    NoLibrary,
    /// `cuInit`, or a call after it, returned this error.
    Failed(c_int),
    /// The devices.
    Devices(Vec<String>),
}

fn judge(nodes: &[String], listed: &[String], driver: Driver) -> Finding {
    match driver {
        Driver::Devices(names) if !names.is_empty() => Finding::good(NAME, names.join(", ")),
        Driver::Devices(_) => Finding::bad(
            NAME,
            "the driver finds no device",
            "unset CUDA_VISIBLE_DEVICES, or set it to an existing device",
        ),
        Driver::Failed(code) => Finding::bad(
            NAME,
            format!("{LIBRARY} is installed, but fails with error {code}{}", named(listed)),
            // The library in a container's image may be older or newer than the host's module.
            "make `nvidia-smi` work first: usually the library and the kernel module differ in version",
        ),
        Driver::NoLibrary if nodes.is_empty() && listed.is_empty() => Finding::bad(
            NAME,
            format!("no NVIDIA device, and no {LIBRARY}"),
            "run on a machine with an NVIDIA GPU and its driver",
        ),
        Driver::NoLibrary => Finding::bad(
            NAME,
            format!("an NVIDIA device{}, but no {LIBRARY}", named(listed)),
            "install the driver's libraries; for a container, `docker run --gpus all`",
        ),
    }
}

fn named(listed: &[String]) -> String {
    if listed.is_empty() { String::new() } else { format!(" ({})", listed.join(", ")) }
}

/// `/dev/nvidia0` and so on, without the nodes that aren't GPUs (`nvidiactl`, `nvidia-uvm`).
fn device_nodes() -> Vec<String> {
    let names = fs::read_dir("/dev").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| is_device_node(name)).collect()
}

fn is_device_node(name: &str) -> bool {
    name.strip_prefix("nvidia")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The devices that the kernel module names.
fn listed() -> Vec<String> {
    let gpus = fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
    let texts = gpus.filter_map(|gpu| fs::read_to_string(gpu.path().join("information")).ok());
    texts.filter_map(|text| model(&text).map(str::to_owned)).collect()
}

/// The line `Model:` in a GPU's file `information`.
fn model(information: &str) -> Option<&str> {
    let model = information.lines().find_map(|line| line.strip_prefix("Model:"))?.trim();
    (!model.is_empty()).then_some(model)
}

fn load() -> Driver {
    // SAFETY: loading runs the library's initialisers; this one is the system's own driver.
    let Ok(library) = (unsafe { Library::new(LIBRARY) }) else { return Driver::NoLibrary };
    // SAFETY: the library is CUDA's by its name.
    match unsafe { ask(&library) } {
        Some(Ok(names)) => Driver::Devices(names),
        Some(Err(code)) => Driver::Failed(code),
        // A library with this name but without the functions doesn't count.
        None => Driver::NoLibrary,
    }
}

/// The names of all devices, or the error of the first call that failed; `None` without functions.
///
/// # Safety
///
/// The library must be CUDA's driver, whose functions have the types below.
unsafe fn ask(library: &Library) -> Option<Result<Vec<String>, c_int>> {
    type Init = unsafe extern "C" fn(u32) -> c_int;
    type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
    type Name = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
    // SAFETY: these are the types of the three functions in cuda.h, where `CUdevice` is an int.
    let (init, count, name) = unsafe {
        (
            library.get::<Init>(b"cuInit\0").ok()?,
            library.get::<Count>(b"cuDeviceGetCount\0").ok()?,
            library.get::<Name>(b"cuDeviceGetName\0").ok()?,
        )
    };
    // SAFETY: the flags must be 0.
    let code = unsafe { init(0) };
    if code != 0 {
        return Some(Err(code));
    }
    let mut devices = 0;
    // SAFETY: the pointer is to an int that outlives the call.
    let code = unsafe { count(&raw mut devices) };
    if code != 0 {
        return Some(Err(code));
    }
    let mut names = Vec::new();
    // The handle of a device is its ordinal.
    for device in 0..devices {
        let mut text = [0_u8; 256];
        // SAFETY: the buffer has the length that is passed, less one so that a zero stays.
        let code = unsafe { name(text.as_mut_ptr().cast(), 255, device) };
        if code != 0 {
            return Some(Err(code));
        }
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        names.push(text.to_string_lossy().into_owned());
    }
    Some(Ok(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_gpus_and_the_model_as_the_module_writes_it() {
        assert!(is_device_node("nvidia0") && is_device_node("nvidia12"));
        for other in ["nvidia", "nvidiactl", "nvidia-uvm", "nvidia0p1", "null"] {
            assert!(!is_device_node(other), "{other}");
        }
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 123\nGPU UUID: \t GPU-0\n";
        assert_eq!(model(text), Some("NVIDIA H200"));
        assert_eq!(model("Model:\n"), None);
        assert_eq!(model("garbage"), None);
    }

    #[test]
    fn each_way_to_have_no_device_has_its_own_fix() {
        let gpu = ["NVIDIA H200".to_owned()];
        let node = ["nvidia0".to_owned()];
        let fix = |finding: Finding| {
            assert!(!finding.ok, "{finding:?}");
            finding.fix.expect("a fix")
        };
        assert!(
            fix(judge(&[], &[], Driver::NoLibrary)).contains("on a machine with an NVIDIA GPU")
        );
        assert!(fix(judge(&node, &[], Driver::NoLibrary)).contains("docker run --gpus all"));
        assert!(fix(judge(&node, &gpu, Driver::Failed(803))).contains("nvidia-smi"));
        let hidden = judge(&node, &gpu, Driver::Devices(Vec::new()));
        assert!(fix(hidden).contains("CUDA_VISIBLE_DEVICES"));
        assert!(judge(&node, &gpu, Driver::Devices(gpu.to_vec())).ok);
    }
}
