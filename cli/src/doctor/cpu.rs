//! The processor's capabilities, and the system's limits on them.

use std::collections::BTreeSet;
use std::fs;

use brickscope::{Backend, CpuLimit};
use brickscope_kernels::Kernels;

use super::Finding;

/// The SIMD levels of this processor, and the one that the kernels use.
pub(super) fn simd() -> Finding {
    const NAME: &str = "simd";
    let levels = levels();
    let has = if levels.is_empty() { "none known".to_owned() } else { levels.join(" ") };
    let used = Kernels::best().backend();
    let caveat = used.caveat().map_or(String::new(), |caveat| format!("; {caveat}"));
    let found = format!("{has}; the kernels use {used}{caveat}");
    if used == Backend::Scalar {
        Finding::bad(NAME, found, "run on a CPU with AVX2, FMA and F16C, or on 64-bit ARM")
    } else {
        Finding::good(NAME, found)
    }
}

#[cfg(target_arch = "x86_64")]
fn levels() -> Vec<&'static str> {
    let levels = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
    ];
    levels.into_iter().filter_map(|(name, has)| has.then_some(name)).collect()
}

#[cfg(target_arch = "aarch64")]
fn levels() -> Vec<&'static str> {
    let levels = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("dotprod", std::arch::is_aarch64_feature_detected!("dotprod")),
        ("i8mm", std::arch::is_aarch64_feature_detected!("i8mm")),
        ("sve", std::arch::is_aarch64_feature_detected!("sve")),
    ];
    levels.into_iter().filter_map(|(name, has)| has.then_some(name)).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn levels() -> Vec<&'static str> {
    Vec::new()
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Whether large buffers can use pages of 2 MiB.
pub(super) fn huge_pages() -> Finding {
    let reserved = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    judge_pages(fs::read_to_string(THP).ok().as_deref(), reserved.ok().as_deref())
}

fn judge_pages(enabled: Option<&str>, reserved: Option<&str>) -> Finding {
    const NAME: &str = "huge pages";
    let chosen = enabled.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0));
    let reserved = match reserved.and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(pages) => format!("{pages} of 2 MiB reserved"),
        None => "reserved pages unknown".to_owned(),
    };
    match chosen {
        Some("always") => Finding::good(NAME, format!("transparent: always; {reserved}")),
        Some("madvise") => {
            Finding::good(NAME, format!("transparent: on request (madvise); {reserved}"))
        }
        Some(other) => Finding::bad(
            NAME,
            format!("transparent: {other}; {reserved}"),
            format!("echo madvise | sudo tee {THP}"),
        ),
        None => Finding::bad(
            NAME,
            format!("transparent: not supported; {reserved}"),
            "use a Linux kernel built with CONFIG_TRANSPARENT_HUGEPAGE",
        ),
    }
}

/// Whether a control group limits CPU time.
pub(super) fn limit() -> Finding {
    judge_limit(CpuLimit::read().as_ref())
}

fn judge_limit(limit: Option<&CpuLimit>) -> Finding {
    const NAME: &str = "cpu limit";
    let Some(limit) = limit else {
        return Finding::good(NAME, "none: no control groups");
    };
    let cpuset =
        limit.cpuset.as_ref().map_or(String::new(), |cpus| format!("; may use CPUs {cpus}"));
    match limit.cpus {
        None => Finding::good(NAME, format!("none{cpuset}")),
        Some(cpus) => {
            let throttled = match limit.throttled_periods {
                Some(periods) => format!("throttled in {periods} periods so far"),
                None => "throttling unknown".to_owned(),
            };
            Finding::bad(
                NAME,
                format!("{cpus} CPUs of CPU time, {throttled}{cpuset}"),
                "start the container without a CPU quota, and assign CPUs with \
                `--cpuset-cpus` instead",
            )
        }
    }
}

/// Whether the system keeps the cores at one frequency.
pub(super) fn governor() -> Finding {
    let mut governors = BTreeSet::new();
    for cpu in fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten() {
        let governor = cpu.path().join("cpufreq/scaling_governor");
        if let Ok(governor) = fs::read_to_string(governor) {
            governors.insert(governor.trim().to_owned());
        }
    }
    judge_governors(&governors)
}

fn judge_governors(governors: &BTreeSet<String>) -> Finding {
    const NAME: &str = "frequency";
    if governors.is_empty() {
        return Finding::bad(
            NAME,
            "not controllable here, as in most virtual machines",
            "ask the host's administrator; compare only runs that were measured in turns",
        );
    }
    let found = governors.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    if governors.iter().all(|governor| governor == "performance") {
        Finding::good(NAME, format!("governor {found}"))
    } else {
        Finding::bad(
            NAME,
            format!("governor {found}"),
            "sudo cpupower frequency-set -g performance",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_good_if_one_can_have_them() {
        let check = |enabled, ok, says: &str| {
            let finding = judge_pages(enabled, Some("12\n"));
            assert_eq!((finding.ok, finding.fix.is_none()), (ok, ok), "{finding:?}");
            assert!(finding.found.contains(says), "{finding:?}");
        };
        check(Some("always [madvise] never\n"), true, "madvise");
        check(Some("[always] madvise never\n"), true, "12 of 2 MiB");
        check(Some("always madvise [never]\n"), false, "never");
        check(Some("garbage"), false, "not supported");
        check(None, false, "not supported");
    }

    #[test]
    fn a_quota_is_a_cross_and_a_cpuset_is_none() {
        let limit = CpuLimit {
            cpus: Some(1.5),
            throttled_periods: Some(7),
            cpuset: Some("0-3".to_owned()),
        };
        let finding = judge_limit(Some(&limit));
        assert!(!finding.ok && finding.fix.is_some());
        assert_eq!(
            finding.found,
            "1.5 CPUs of CPU time, throttled in 7 periods so far; may use CPUs 0-3"
        );
        let free = judge_limit(Some(&CpuLimit { cpus: None, ..limit }));
        assert!(free.ok && free.found == "none; may use CPUs 0-3");
    }

    #[test]
    fn every_core_has_to_be_at_performance() {
        let judge = |governors: &[&str]| {
            judge_governors(&governors.iter().map(|&governor| governor.to_owned()).collect())
        };
        assert!(judge(&["performance"]).ok);
        assert!(judge(&["performance", "powersave"]).fix.is_some());
        assert!(judge(&[]).found.contains("not controllable"));
    }
}
