//! Making a receipt of the measurements: the run, the machine, the settings and the circumstances.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use brickscope::{Absent, CpuLimit, MachineDetails, Profile, ReadingTime};
use brickscope_analysis::history::{ENGINE_COMMIT, MACHINE};
use brickscope_analysis::receipt::v1::{
    Binary, CacheCeiling, Ceilings, Clock, Device, Load, Machine, Model, Overhead, Receipt, Run,
    VERSION, VERSION_WITH_DEVICE,
};
use brickscope_analysis::receipt::{derived_doubts, sha256_file, sha256_file_with, sha256_hex};
use brickscope_engine::{DeviceFacts, Model as EngineModel};

use super::measure::Measured;
use super::warnings::{Circumstances, warnings};
use crate::{machine_name, progress, source};

/// The facts from before the first sample.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) model: Model,
    pub(crate) run: Run,
    /// The device, if the run was on one.
    pub(crate) device: Option<Device>,
    /// Where the weights are.
    pub(crate) weights: String,
    pub(crate) ceilings: Result<brickscope::Ceilings, Absent>,
}

/// The facts from after the last sample.
#[derive(Debug)]
pub(crate) struct After<'p> {
    /// RFC 3339.
    pub(crate) timestamp: String,
    pub(crate) tests: Vec<Measured>,
    /// The profile of the kept repetitions, for its facts about clock and overhead.
    pub(crate) profile: &'p Profile,
    pub(crate) load: Load,
    /// The number of periods in which the control group's limit stopped this process.
    pub(crate) throttled: u64,
}

/// The receipt, without its seal.
pub(crate) fn receipt(before: Before, after: After<'_>) -> Receipt {
    let Before { model, run, device, weights, ceilings } = before;
    let After { timestamp, tests: measured, profile, mut load, throttled } = after;
    let deterministic = measured.iter().all(|measured| measured.is_deterministic);
    let spans = measured.iter().map(|measured| measured.spans).sum();
    let mut dropped = BTreeMap::new();
    for (name, count) in measured.iter().flat_map(|measured| &measured.dropped) {
        *dropped.entry(name.clone()).or_default() += count;
    }
    let tests: Vec<_> = measured.into_iter().map(|measured| measured.test).collect();
    let decode = tests.iter().filter(|test| test.n_gen > 0).min_by_key(|test| test.n_depth);
    let mut kernels: Vec<String> =
        tests.iter().flat_map(|test| &test.kernels).map(|kernel| kernel.id.clone()).collect();
    kernels.sort();
    kernels.dedup();
    let (ceilings, ceilings_absent) = match ceilings {
        Ok(ceilings) => (Some(self::ceilings(ceilings)), None),
        Err(absent) => (None, Some(absent.reason)),
    };
    let machine = machine();
    load.doubts = warnings(Circumstances { throttled, is_debug: cfg!(debug_assertions) });
    let overhead = if run.profiled {
        let of_device = profile.whole_device(0).map(|device| device.overhead.basis);
        let of_device = of_device.map_or(String::new(), |basis| format!("; on the device {basis}"));
        let basis = profile.overhead.basis.clone() + &of_device;
        Overhead { span_ns: profile.overhead.span_ns, spans, basis }
    } else {
        let basis = "the profiler heard of passes only, outside of their walls".to_owned();
        Overhead { span_ns: None, spans: 0, basis }
    };
    let mut receipt = Receipt {
        schema_version: match device {
            None => VERSION.to_owned(),
            Some(_) => VERSION_WITH_DEVICE.to_owned(),
        },
        timestamp,
        compute_path: "real".to_owned(),
        backend: match device {
            None => "cpu".to_owned(),
            Some(_) => run.kernels.clone(),
        },
        deterministic,
        tokens_requested: decode.map_or(0, |test| test.n_gen),
        tokens_generated: decode.map_or(0, |test| test.output_tokens),
        tokens_per_second: decode.and_then(|test| test.aggregates.median_ts),
        kernels,
        environment: environment(&weights),
        model,
        run,
        binary: binary(),
        machine,
        device,
        ceilings,
        ceilings_absent,
        clock: Clock {
            source: profile.clock.source.clone(),
            resolution_ns: profile.clock.resolution_ns.map(|ns| ns as f64),
            reading_ns: profile.clock.read_ns,
            drift_ppm: profile.clock.drift_ppm,
        },
        tests,
        overhead,
        dropped,
        load,
        seal: None,
    };
    receipt.load.doubts.extend(derived_doubts(&receipt));
    receipt
}

/// A device, as its driver describes it.
pub(crate) fn device(facts: DeviceFacts) -> Device {
    let DeviceFacts { info, memory_bytes } = facts;
    Device {
        name: info.name,
        api: info.api,
        driver: Some(info.driver).filter(|driver| !driver.is_empty()),
        memory_bytes,
        resolution_ns: info.ticks.resolution_ns,
    }
}

/// The model, with the hash of its file.
pub(crate) fn model(model: &EngineModel) -> Result<Model> {
    let brickscope::Model {
        path,
        name,
        architecture,
        quantization,
        parameters,
        layers,
        synthetic,
        ..
    } = source::describe(model);
    let bar = progress::bytes("hashing", model.gguf.file_len() as u64);
    let hashed = sha256_file_with(Path::new(&path), &mut |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    let (sha256, bytes) = hashed.with_context(|| path.clone())?;
    Ok(Model {
        path,
        sha256,
        bytes,
        name,
        architecture,
        quantization,
        parameters,
        layers,
        synthetic,
    })
}

fn ceilings(ceilings: brickscope::Ceilings) -> Ceilings {
    // The basis says which numbers the peak is for.
    let flops_per_second = ceilings.peak_per_second();
    let brickscope::Ceilings {
        read_bytes_per_second,
        flops_per_second: _,
        int8_ops_per_second: _,
        numbers: _,
        basis,
        measured,
        caches,
        readings,
        machine_read_bytes_per_second: _,
        spreads: _,
        paces: _,
        of_known_work: _,
    } = ceilings;
    // What memory gave on earlier days says nothing of this run.
    let around = readings.iter().filter(|reading| reading.when != ReadingTime::Kept);
    let memory_spread = around.map(|reading| reading.read_bytes_per_second).fold(
        None,
        |spread: Option<[f64; 2]>, rate| {
            let [lowest, highest] = spread.unwrap_or([rate; 2]);
            Some([lowest.min(rate), highest.max(rate)])
        },
    );
    let cache = |cache: brickscope::CacheCeiling| CacheCeiling {
        level: cache.level,
        bytes: cache.bytes,
        read_bytes_per_second: cache.read_bytes_per_second,
    };
    let caches = caches.into_iter().map(cache).collect();
    Ceilings { read_bytes_per_second, flops_per_second, caches, basis, measured, memory_spread }
}

/// The key in a receipt's environment for where the weights were during the run.
pub(crate) const WEIGHTS: &str = "WEIGHTS";

/// Where they are in a run on a device.
pub(crate) const DEVICE_MEMORY: &str = "device memory";

/// The program's build, where the weights are, and what the user named of the engine's commit and the machine.
fn environment(weights: &str) -> BTreeMap<String, String> {
    let os = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
    let known = [
        ("BRICKSCOPE_VERSION", env!("CARGO_PKG_VERSION")),
        ("OS", &os),
        (WEIGHTS, weights),
        ("RUST_VERSION", env!("BRICKSCOPE_BUILD_RUST_VERSION")),
        ("RUSTFLAGS", env!("BRICKSCOPE_BUILD_RUSTFLAGS")),
        ("TARGET", env!("BRICKSCOPE_BUILD_TARGET")),
        ("TARGET_FEATURES", env!("BRICKSCOPE_BUILD_TARGET_FEATURES")),
        ("PROFILE", env!("BRICKSCOPE_BUILD_PROFILE")),
    ];
    let commit = option_env!("BRICKSCOPE_BUILD_COMMIT").map(|commit| ("COMMIT", commit));
    let machine = machine_name::given().ok().flatten();
    let machine = machine.as_deref().map(|machine| (MACHINE, machine));
    let engine = machine_name::commit().ok().flatten();
    let engine = engine.as_deref().map(|commit| (ENGINE_COMMIT, commit));
    let known = known.into_iter().chain(commit).chain(engine).chain(machine);
    known.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(crate) fn binary() -> Binary {
    let sha256 = std::env::current_exe().and_then(|path| sha256_file(&path));
    Binary {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sha256: sha256.ok().map(|(sha256, _)| sha256),
    }
}

fn machine() -> Machine {
    let brickscope::Machine { os, arch, cpu, logical_cpus, memory_bytes } =
        brickscope::machine::detect();
    let details = MachineDetails::read();
    let limit = CpuLimit::read().unwrap_or_default();
    Machine {
        os,
        arch,
        cpu,
        cpu_id: details.cpu_id,
        microcode: details.microcode,
        logical_cpus,
        threads_per_core: details.threads_per_core,
        numa_nodes: details.numa_nodes,
        governor: details.governor,
        turbo: details.turbo,
        memory_bytes,
        kernel: details.kernel,
        libc: details.libc,
        hypervisor: details.hypervisor,
        cgroup_cpus: limit.cpus,
        cgroup_cpuset: limit.cpuset,
        cgroup_memory_bytes: details.memory_limit,
        huge_pages: details.huge_pages,
        swap_used_bytes: details.swap_used,
        // The id itself is sensitive: systems derive other ids from it.
        boot: details.boot_id.map(|id| sha256_hex(id.as_bytes())[..16].to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_memory_is_what_it_gave_around_this_run() {
        let spread = |read: &[(ReadingTime, f64)]| {
            let reading = |&(when, read_bytes_per_second)| brickscope::CeilingReading {
                when,
                measured: String::new(),
                read_bytes_per_second,
                disturbed: false,
            };
            let readings = read.iter().map(reading).collect();
            let measured = brickscope::Ceilings {
                read_bytes_per_second: 60e9,
                readings,
                ..brickscope::Ceilings::default()
            };
            ceilings(measured).memory_spread
        };
        use ReadingTime::{After, Before, Kept};
        let of_run = [(Kept, 20e9), (Before, 38e9), (After, 33e9), (Kept, 60e9)];
        assert_eq!(spread(&of_run), Some([33e9, 38e9]));
        assert_eq!(spread(&[(Kept, 60e9), (Before, 35e9)]), Some([35e9, 35e9]));
        assert_eq!(spread(&[(Kept, 20e9), (Kept, 60e9)]), None);
        assert_eq!(spread(&[]), None);
    }
}
