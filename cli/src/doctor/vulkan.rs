//! Vulkan devices, on which wgpu runs.
#![allow(unsafe_code)]

use ash::{Entry, vk};

use super::Finding;

const NAME: &str = "wgpu";

/// A device, and whether it is implemented in software.
struct Device {
    name: String,
    software: bool,
}

/// The devices of Vulkan.
pub(super) fn devices() -> Finding {
    // SAFETY: loading runs the initialisers of the system's own Vulkan loader.
    match unsafe { Entry::load() } {
        Err(_) => Finding::bad(
            NAME,
            "no Vulkan loader (libvulkan.so.1)",
            "sudo apt-get install libvulkan1 mesa-vulkan-drivers",
        ),
        Ok(entry) => judge(list(&entry)),
    }
}

fn judge(devices: Result<Vec<Device>, vk::Result>) -> Finding {
    let devices = match devices {
        Ok(devices) => devices,
        // The loader's error if it finds no usable driver.
        Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER) => Vec::new(),
        Err(error) => {
            return Finding::bad(
                NAME,
                format!("Vulkan is installed, but fails: {error}"),
                "make `vulkaninfo --summary` work first",
            );
        }
    };
    let name = |device: &Device| {
        let note = if device.software { ", in software: not a GPU" } else { "" };
        format!("{}{note}", device.name)
    };
    if devices.is_empty() {
        return Finding::bad(
            NAME,
            "the Vulkan loader finds no driver",
            "install the GPU's Vulkan driver, or Mesa's: sudo apt-get install \
             mesa-vulkan-drivers",
        );
    }
    Finding::good(NAME, devices.iter().map(name).collect::<Vec<_>>().join("; "))
}

fn list(entry: &Entry) -> Result<Vec<Device>, vk::Result> {
    // SAFETY: the structure is whole, and the instance is destroyed below, before the entry.
    let instance = unsafe { entry.create_instance(&vk::InstanceCreateInfo::default(), None) }?;
    // SAFETY: the instance lives.
    let devices = unsafe { instance.enumerate_physical_devices() }.map(|devices| {
        let describe = |device| {
            // SAFETY: the device is one of this instance's, which lives.
            let properties = unsafe { instance.get_physical_device_properties(device) };
            let name = properties.device_name_as_c_str().unwrap_or_default();
            Device {
                name: name.to_string_lossy().into_owned(),
                software: properties.device_type == vk::PhysicalDeviceType::CPU,
            }
        };
        devices.into_iter().map(describe).collect()
    });
    // SAFETY: nothing of the instance is used from here on.
    unsafe { instance.destroy_instance(None) };
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_is_marked_and_no_driver_is_no_failure_of_vulkan() {
        let device = |name: &str, software| Device { name: name.to_owned(), software };
        let found = judge(Ok(vec![device("NVIDIA H200", false), device("llvmpipe", true)]));
        assert!(found.ok);
        assert_eq!(found.found, "NVIDIA H200; llvmpipe, in software: not a GPU");
        for none in [Ok(Vec::new()), Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER)] {
            let none = judge(none);
            assert!(!none.ok && none.fix.is_some_and(|fix| fix.contains("mesa-vulkan-drivers")));
        }
        let failed = judge(Err(vk::Result::ERROR_OUT_OF_HOST_MEMORY));
        assert!(failed.fix.is_some_and(|fix| fix.contains("vulkaninfo")));
    }
}
