//! What a program is, as far as it decides whether a library can be loaded into it, and why nothing was recorded of one.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::{env, fs};

use brickscope::text::screened;

/// What a program is, as far as it matters to who records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// It runs with the rights of the file's owner or group.
    OfAnother,
    /// It has no dynamic linker, so no library can be loaded into it.
    Static,
    /// Its dynamic linker is musl's.
    Musl,
    /// It is for other processors than this program, or for 32 bits.
    Foreign,
    /// It has functions of ggml of its own.
    HasGgml,
    /// Any other program.
    Other,
    /// It can't be read, or is no program.
    Unknown,
}

impl Program {
    /// Of the file that `program` runs: of a script, its interpreter.
    pub fn of(program: &OsStr) -> Self {
        found(program).map_or(Self::Unknown, |path| Self::of_file(&path, 0))
    }

    fn of_file(path: &Path, depth: usize) -> Self {
        /// More of a program isn't looked through.
        const MOST: u64 = 1 << 28;
        /// As many interpreters as Linux allows.
        const MOST_SCRIPTS: usize = 4;
        let mut bytes = Vec::new();
        let file = fs::File::open(path);
        let Ok(file) = file else { return Self::Unknown };
        let mode = file.metadata().map_or(0, |of| of.permissions().mode());
        if file.take(MOST).read_to_end(&mut bytes).is_err() {
            return Self::Unknown;
        }
        if let Some(script) = bytes.strip_prefix(b"#!") {
            let line = script.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let line = String::from_utf8_lossy(line);
            let mut words = line.split_whitespace();
            let interpreter = match words.next() {
                // As `#!/usr/bin/env python3`.
                Some(env) if env.ends_with("/env") => words.find(|word| !word.starts_with('-')),
                other => other,
            };
            let interpreter = interpreter.and_then(|word| found(OsStr::new(word)));
            return match interpreter {
                Some(path) if depth < MOST_SCRIPTS => Self::of_file(&path, depth + 1),
                _ => Self::Unknown,
            };
        }
        let Some(elf) = Elf::of(&bytes) else { return Self::Unknown };
        if mode & 0o6000 != 0 {
            return Self::OfAnother;
        }
        if !elf.is_ours {
            return Self::Foreign;
        }
        let Some(linker) = elf.linker else { return Self::Static };
        if linker.contains("musl") {
            return Self::Musl;
        }
        // A text of ggml's own code, which a program that only calls it doesn't have.
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        if has(b"ggml_compute_forward_mul_mat") || has(b"ggml-cpu.c") {
            return Self::HasGgml;
        }
        Self::Other
    }

    /// Whether such a program runs as ever with the library in its environment. Musl's linker ends a program that it can't
    /// load a library for.
    pub fn bears_library(self) -> bool {
        !matches!(self, Self::Musl | Self::Foreign)
    }
}

/// What the header of a program says.
struct Elf {
    /// Whether it is for this processor, and for 64 bits.
    is_ours: bool,
    /// The path of its dynamic linker; none if it is static.
    linker: Option<String>,
}

impl Elf {
    /// The numbers of processors, of `<elf.h>`.
    const OURS: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

    fn of(bytes: &[u8]) -> Option<Self> {
        let u16_at = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if !bytes.starts_with(b"\x7fELF") {
            return None;
        }
        // 64 bits, little-endian.
        if bytes.get(4..6)? != [2, 1] || u16_at(18)? != Self::OURS {
            return Some(Self { is_ours: false, linker: None });
        }
        let (at, size, n) = (usize::try_from(u64_at(32)?).ok()?, u16_at(54)?, u16_at(56)?);
        let mut linker = None;
        for nth in 0..usize::from(n) {
            let header = at.checked_add(nth * usize::from(size))?;
            // PT_INTERP.
            if bytes.get(header..)?.first_chunk() == Some(&[3, 0, 0, 0]) {
                let from = usize::try_from(u64_at(header.checked_add(8)?)?).ok()?;
                let text = bytes.get(from..)?.split(|&byte| byte == 0).next()?;
                linker = Some(String::from_utf8_lossy(text).into_owned());
            }
        }
        Some(Self { is_ours: true, linker })
    }
}

/// The file that a shell would run.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Into which programs the library was loaded, and what it said there.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The programs.
    pub programs: Vec<PathBuf>,
    /// What could not be done, as sentences without a full stop.
    pub said: Vec<String>,
}

impl Loaded {
    /// Adds what the library wrote in a process: the program, and a line for each thing that it could not do.
    pub fn add(&mut self, text: &str) {
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("program", path)) => self.programs.push(PathBuf::from(path)),
                Some(("said", why)) if !self.said.iter().any(|of| of == why) => {
                    self.said.push(why.to_owned());
                }
                _ => {}
            }
        }
    }
}

/// Why nothing was recorded, and what to do.
pub fn nothing(
    line: &[OsString],
    status: Option<ExitStatus>,
    loaded: &Loaded,
    is_followed: bool,
) -> String {
    let first = line.first().map(OsString::as_os_str).unwrap_or_default();
    let program = screened(first.to_string_lossy().into_owned());
    let kind = Program::of(first);
    let (why, what) = reason(kind, found(first).as_deref(), loaded);
    let failed = status.filter(|status| !status.success());
    let what =
        if what == OTHERS { unknown(failed.is_some_and(has_failed), has_gpu()) } else { what };
    let ended = failed.map(|status| format!(" It ended with {status}.")).unwrap_or_default();
    // A library that was loaded says nothing of what the program started.
    let follow = if is_followed || loaded.programs.is_empty() {
        ""
    } else {
        " If another program that it starts computes: brickscope run --follow -- …"
    };
    format!("nothing was recorded of {program}: {why}.{ended} {what}{follow}")
}

const OTHERS: &str = "Did it load a model? Other engines: brickscope flamegraph -- …";

fn reason(kind: Program, path: Option<&Path>, loaded: &Loaded) -> (String, &'static str) {
    const SAMPLE: &str = "Sample it: brickscope flamegraph -- …";
    const BUILD: &str = "Build llama.cpp with -DBUILD_SHARED_LIBS=ON, or sample the program: brickscope flamegraph -- …";
    let fixed = |why: &str, what| (why.to_owned(), what);
    match kind {
        Program::Static => {
            return fixed("it is linked statically, so no library can be loaded into it", BUILD);
        }
        Program::Musl => {
            return fixed(
                "it is linked with musl, whose linker can't load a library that is made for glibc; it ran as it is",
                SAMPLE,
            );
        }
        Program::Foreign => {
            return fixed(
                "it is a program for another processor, or of 32 bits; it ran as it is",
                SAMPLE,
            );
        }
        _ => {}
    }
    if loaded.programs.is_empty() {
        return if kind == Program::OfAnother {
            fixed(
                "it runs with the rights of its file's owner (setuid), so the linker loads no library into it",
                "Run a copy of the file, which has no such rights.",
            )
        } else {
            fixed(
                "the library that records was not loaded into it: something cleared its environment, or its linker refused",
                "Put `brickscope run --` right before the program, after `env`, `sudo` and the like.",
            )
        };
    }
    let same = |a: &Path, b: &Path| {
        fs::canonicalize(a).ok().is_some_and(|a| Some(a) == fs::canonicalize(b).ok())
    };
    // A wrapper that becomes a program which doesn't bear the library, or runs it as another user.
    let is_wrapper = path.and_then(Path::file_name).is_some_and(|name| {
        ["env", "sudo", "su", "doas", "setpriv", "unshare", "chroot"].iter().any(|of| name == *of)
    });
    let all_are_it = path.is_some_and(|path| loaded.programs.iter().all(|of| same(of, path)));
    if is_wrapper && all_are_it {
        let name = path.and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        return (
            format!("the library that records was loaded into {name}, and not into what that ran"),
            "Put `brickscope run --` after it, right before the program.",
        );
    }
    if kind == Program::HasGgml {
        return fixed(
            "llama.cpp is part of the program, and not a shared library that calls could be seen in",
            BUILD,
        );
    }
    let why = match loaded.said.as_slice() {
        [] => "it computed no graph of a shared ggml on the CPU".to_owned(),
        said => screened(said.join("; ")),
    };
    (why, OTHERS)
}

/// SIGILL, SIGABRT, SIGBUS, SIGFPE and SIGSEGV: `GGML_ASSERT` aborts.
const CRASHES: [i32; 5] = [4, 6, 7, 8, 11];

/// Whether a program failed by itself. Any other signal may be somebody who ended it.
fn has_failed(status: ExitStatus) -> bool {
    // A shell adds 128 to the signal that ended what it ran.
    let by_shell = || status.code()?.checked_sub(128).filter(|signal| (1..=64).contains(signal));
    let signal = status.signal().or_else(by_shell);
    signal.map_or(!status.success(), |signal| CRASHES.contains(&signal))
}

/// What to do where nobody knows why no graph was computed.
fn unknown(has_failed: bool, has_gpu: bool) -> &'static str {
    match (has_failed, has_gpu) {
        (true, _) => "It failed: what it said of that comes first.",
        (false, true) => {
            "Did it load a model? On a GPU, try -ngl 0. Other engines: brickscope flamegraph -- …"
        }
        (false, false) => OTHERS,
    }
}

/// Whether the machine has a device that llama.cpp may compute on: NVIDIA's, AMD's, or any that renders.
fn has_gpu() -> bool {
    let devices = ["/dev/nvidiactl", "/dev/kfd", "/dev/dri/renderD128"];
    devices.iter().any(|device| Path::new(device).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_what_its_interpreter_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).expect("a file");
            path
        };
        let shell = Program::of(OsStr::new("sh"));
        assert!(matches!(shell, Program::Other | Program::Musl | Program::Static), "{shell:?}");
        for line in
            ["#!/bin/sh\n", "#! /bin/sh -e\n", "#!/usr/bin/env sh\n", "#!/usr/bin/env -S sh"]
        {
            assert_eq!(Program::of_file(&write("script", line.as_bytes()), 0), shell, "{line}");
        }
        let itself = dir.path().join("loop");
        write("loop", format!("#!{}\n", itself.display()).as_bytes());
        assert_eq!(Program::of_file(&itself, 0), Program::Unknown);
        assert_eq!(Program::of_file(&write("text", b"no program"), 0), Program::Unknown);
        assert_eq!(Program::of_file(&dir.path().join("none"), 0), Program::Unknown);
    }

    /// The header of a program of 64 bits, with a dynamic linker if one is given.
    fn elf(machine: u16, linker: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        (bytes[54], bytes[56]) = (56, 1);
        if let Some(linker) = linker {
            (bytes[64], bytes[72]) = (3, 120);
            bytes.extend(linker.bytes().chain([0]));
        }
        bytes
    }

    #[test]
    fn a_program_is_known_by_its_header() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("program");
        let kind = |bytes: &[u8], mode| {
            fs::write(&path, bytes).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
            Program::of_file(&path, 0)
        };
        let glibc = elf(Elf::OURS, Some("/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(kind(&glibc, 0o755), Program::Other);
        assert_eq!(kind(&glibc, 0o4755), Program::OfAnother);
        assert_eq!(kind(&elf(Elf::OURS, Some("/lib/ld-musl-x86_64.so.1")), 0o755), Program::Musl);
        assert_eq!(kind(&elf(Elf::OURS, None), 0o755), Program::Static);
        assert_eq!(kind(&elf(3, None), 0o755), Program::Foreign);
        assert_eq!(kind(&[&glibc[..], b"ggml-cpu.c"].concat(), 0o755), Program::HasGgml);
        // Cut off anywhere, it is no panic.
        for end in 0..glibc.len() {
            let _ = kind(&glibc[..end], 0o755);
        }
        assert!(!Program::Musl.bears_library() && Program::Other.bears_library());
    }

    #[test]
    fn each_reason_has_a_sentence_of_its_own() {
        let loaded = |text: &str| {
            let mut loaded = Loaded::default();
            loaded.add(text);
            loaded
        };
        let env = Path::new("/usr/bin/env");
        for (kind, path, loaded, said) in [
            (Program::Static, None, loaded(""), "linked statically"),
            (Program::Musl, None, loaded(""), "linked with musl"),
            (Program::Foreign, None, loaded(""), "another processor"),
            (Program::OfAnother, None, loaded(""), "setuid"),
            (Program::Other, None, loaded(""), "was not loaded into it"),
            (
                Program::Other,
                Some(env),
                loaded("program /usr/bin/env\n"),
                "and not into what that ran",
            ),
            (
                Program::Other,
                None,
                loaded("program /usr/bin/true\n"),
                "computed no graph of a shared ggml",
            ),
            (
                Program::HasGgml,
                None,
                loaded("program /usr/bin/true\n"),
                "llama.cpp is part of the program",
            ),
            (
                Program::Other,
                None,
                loaded("program /a\nsaid /tmp/1.nodes: no room\nsaid other\n"),
                "no room; other",
            ),
        ] {
            let (why, what) = reason(kind, path, &loaded);
            assert!(why.contains(said) && !what.is_empty(), "{kind:?}: {why}");
        }
    }

    #[test]
    fn a_gpu_is_only_spoken_of_where_there_is_one_and_the_program_did_not_fail() {
        let speaks = |has_failed, has_gpu| unknown(has_failed, has_gpu).contains("-ngl 0");
        assert!(speaks(false, true));
        assert!(!speaks(false, false) && !speaks(true, true) && !speaks(true, false));
        let line = [OsString::from("/nowhere/a-script")];
        let loaded = Loaded { programs: vec!["/nowhere/python".into()], said: Vec::new() };
        let status = ExitStatus::from_raw(1 << 8);
        let told = nothing(&line, Some(status), &loaded, true);
        assert!(told.ends_with("It failed: what it said of that comes first."), "{told}");
        // As it exits, or as a signal ends it: a crash is no end that somebody asked for.
        for (raw, expected) in [
            (0, false),
            (1 << 8, true),
            (255 << 8, true),
            (6, true),
            (134 << 8, true),
            (2, false),
            (130 << 8, false),
        ] {
            assert_eq!(has_failed(ExitStatus::from_raw(raw)), expected, "{raw}");
        }
    }
}
