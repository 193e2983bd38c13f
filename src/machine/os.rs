//! Calls of the operating system for which the standard library has no safe form, and one query of the
//! processor.
//!
//! Miri can't make them, so under Miri they return nothing, as on systems that this crate doesn't know.
#![allow(unsafe_code)]

/// The system's counts for this process, with all its threads, including those that have ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// How often a thread was taken off its core although it had more to do.
    pub(super) involuntary_switches: u64,
    /// How often a page of memory had to be mapped first, but not read.
    pub(super) page_faults: u64,
    /// How often it had to be read from a disk.
    pub(super) disk_faults: u64,
    /// CPU time, user and system.
    pub(super) cpu_ns: u64,
}

/// Calls `getrusage`. `None` if this crate doesn't know how.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn usage() -> Option<Usage> {
    // SAFETY: a `rusage` is integers only, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a `rusage` that outlives the call and that nobody else sees.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0;
    if failed {
        return None;
    }
    let nanos = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).ok()?.checked_mul(1_000_000_000)?;
        seconds.checked_add(u64::try_from(time.tv_usec).ok()?.checked_mul(1000)?)
    };
    Some(Usage {
        involuntary_switches: u64::try_from(usage.ru_nivcsw).ok()?,
        page_faults: u64::try_from(usage.ru_minflt).ok()?,
        disk_faults: u64::try_from(usage.ru_majflt).ok()?,
        cpu_ns: nanos(usage.ru_utime)?.checked_add(nanos(usage.ru_stime)?)?,
    })
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(super) fn usage() -> Option<Usage> {
    None
}

/// The number of the calling thread for the system and its tools.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn thread_id() -> Option<u32> {
    // SAFETY: takes nothing and returns a number.
    u32::try_from(unsafe { libc::gettid() }).ok()
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(crate) fn thread_id() -> Option<u32> {
    None
}

/// The length of the ticks of `/proc/stat`, in nanoseconds: 10 ms nearly everywhere.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn tick_ns() -> Option<u64> {
    // SAFETY: takes a number and returns one.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000_u64.checked_div(u64::try_from(per_second).ok()?)
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(super) fn tick_ns() -> Option<u64> {
    None
}

/// The C library and its version. `None` if this crate doesn't know how to ask.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
pub(super) fn libc_version() -> Option<String> {
    // SAFETY: returns a pointer to a constant text that ends in a zero.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    Some(format!("glibc {}", version.to_string_lossy()))
}

#[cfg(any(not(all(target_os = "linux", target_env = "gnu")), miri))]
pub(super) fn libc_version() -> Option<String> {
    cfg!(target_env = "musl").then(|| "musl".to_owned())
}

/// The name that a hypervisor gives itself in CPUID, such as `KVMKVMKVM`; `None` if there is none, or it
/// gives no name.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) fn hypervisor() -> Option<String> {
    const FEATURES: u32 = 1;
    const PRESENT: u32 = 1 << 31;
    // Reserved for hypervisors by Intel and AMD.
    const NAME: u32 = 0x4000_0000;
    #[allow(
        unused_unsafe,
        reason = "it is safe in later compilers than the oldest that builds this"
    )]
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    let cpuid = |leaf| unsafe { std::arch::x86_64::__cpuid(leaf) };
    if cpuid(FEATURES).ecx & PRESENT == 0 {
        return None;
    }
    let name = cpuid(NAME);
    let bytes = [name.ebx, name.ecx, name.edx].map(u32::to_le_bytes).concat();
    let text: String = bytes.into_iter().filter(u8::is_ascii_graphic).map(char::from).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
pub(super) fn hypervisor() -> Option<String> {
    None
}

/// Asks for huge pages behind `memory`, for systems that give them on request: with small pages, address
/// translation would be measured too. Best effort; the kernel may ignore it.
#[cfg(all(target_os = "linux", not(miri), feature = "kernels"))]
pub(super) fn advise_huge_pages<T>(memory: &mut [std::mem::MaybeUninit<T>]) {
    const PAGE: usize = 4096;
    let start = memory.as_mut_ptr().cast::<u8>();
    let head = start.align_offset(PAGE);
    let whole = size_of_val(memory).saturating_sub(head) / PAGE * PAGE;
    if whole > 0 {
        // SAFETY: whole pages of `memory`, which is exclusively borrowed. The advice changes how they
        // are mapped, never what is in them.
        unsafe { libc::madvise(start.add(head).cast(), whole, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(all(any(not(target_os = "linux"), miri), feature = "kernels"))]
pub(super) fn advise_huge_pages<T>(_: &mut [std::mem::MaybeUninit<T>]) {}

/// The CPUs that a thread may run on.
#[cfg(all(target_os = "linux", not(miri), feature = "kernels"))]
#[derive(Clone, Copy)]
pub(super) struct Affinity(libc::cpu_set_t);

#[cfg(all(target_os = "linux", not(miri), feature = "kernels"))]
impl Affinity {
    /// The affinity of the calling thread.
    pub(super) fn of_this_thread() -> Option<Self> {
        // SAFETY: a `cpu_set_t` is integers only, for which zeros are valid.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a whole `cpu_set_t` that nobody else sees; 0 is this thread.
        let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0;
        (!failed).then_some(Self(set))
    }

    /// Each of these CPUs by itself.
    pub(super) fn each(&self) -> Vec<Self> {
        let all = 0..libc::CPU_SETSIZE as usize;
        // SAFETY: the number is below the size of the set.
        let ours = all.filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &self.0) });
        ours.map(|cpu| {
            // SAFETY: zeros are valid, and the number is below the size of the set.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut set);
                Self(set)
            }
        })
        .collect()
    }

    /// Sets the affinity of the calling thread. If the system refuses, it stays as it was.
    pub(super) fn apply(&self) {
        // SAFETY: the pointer is to a whole `cpu_set_t`; 0 is this thread.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) };
    }
}

#[cfg(all(any(not(target_os = "linux"), miri), feature = "kernels"))]
#[derive(Clone, Copy)]
pub(super) struct Affinity;

#[cfg(all(any(not(target_os = "linux"), miri), feature = "kernels"))]
impl Affinity {
    pub(super) fn of_this_thread() -> Option<Self> {
        None
    }

    pub(super) fn each(&self) -> Vec<Self> {
        Vec::new()
    }

    pub(super) fn apply(&self) {}
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_cpu_time_and_uses_more() {
        let before = usage().expect("getrusage").cpu_ns;
        let (mut sum, begun) = (0_u64, std::time::Instant::now());
        while usage().expect("getrusage").cpu_ns <= before {
            sum = std::hint::black_box(sum.wrapping_add(1));
            assert!(begun.elapsed().as_secs() < 600, "its CPU time doesn't grow");
        }
        assert!(tick_ns().is_some_and(|ns| (100_000..=100_000_000).contains(&ns)));
    }

    #[test]
    #[cfg(feature = "kernels")]
    fn a_thread_is_put_on_one_cpu_and_let_go_again() {
        std::thread::spawn(|| {
            let before = Affinity::of_this_thread().expect("an affinity");
            let each = before.each();
            each[0].apply();
            assert_eq!(Affinity::of_this_thread().expect("an affinity").each().len(), 1);
            before.apply();
            assert_eq!(Affinity::of_this_thread().expect("an affinity").each().len(), each.len());
        })
        .join()
        .expect("no panic");
    }
}
