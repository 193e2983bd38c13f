//! Refuses `perf_event_open` to this process.

use std::path::Path;

/// From now on, the call fails in this process, as in a container.
#[allow(unsafe_code)]
pub(crate) fn refuse_perf_event_open() {
    let load_number = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let jump_if_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give_back = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, jt, k| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let mut steps = [
        step(load_number, 0, 0),
        libc::sock_filter { jf: 1, ..step(jump_if_equal, 0, libc::SYS_perf_event_open as u32) },
        step(give_back, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(give_back, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter =
        libc::sock_fprog { len: steps.len() as libc::c_ushort, filter: steps.as_mut_ptr() };
    // SAFETY: the filter is alive, and the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter), 0);
    }
    assert!(Path::new("/proc/self").exists(), "other calls are allowed");
}
