//! Recordings for which there is no room.

use std::process::{Command, Stdio};

use brickscope::{Phase, Profile};
use brickscope_testing::command;

use super::{Ran, as_it_is, command_of, programs, total};

/// Whether this is the folder where all programs of a user have their sockets, unless the session has one for them.
pub(super) fn is_of_sockets(name: &str) -> bool {
    name.strip_prefix("brickscope-").is_some_and(|user| user.parse::<u32>().is_ok())
}

#[test]
fn what_has_no_room_is_kept_by_its_tail_and_summed_whole() {
    let of = |options: &[&str], decodes: &str| {
        let (mut command, run, dir) =
            command_of(options, "good/loads", &[], &[("DECODES", decodes)]);
        let output = command.output().expect("it starts");
        let left = std::fs::read_dir(run.parent().expect("a folder")).expect("it is there");
        let names = left.map(|entry| entry.expect("it is").file_name());
        let left = names.filter(|name| !is_of_sockets(&name.to_string_lossy())).count();
        let ran = Ran { output, run, _dir: dir };
        assert_eq!(left, 1, "nothing but the run is left: {}", ran.stderr());
        assert_eq!(ran.output.status.code(), Some(0), "{}", ran.stderr());
        ran
    };
    // What fits is as it is without.
    let whole = of(&["--keep", "tail"], "20");
    let profile = whole.profile();
    assert_eq!((profile.passes.len(), profile.kept.is_none()), (22, true), "{}", whole.said());
    profile.check().expect("it adds up");
    let ran = of(&["--keep", "tail", "--keep-mib", "1"], "2000");
    let profile = ran.profile();
    profile.check().expect("it adds up");
    let kept = profile.kept.as_ref().unwrap_or_else(|| panic!("it says so: {}", ran.said()));
    let decode = profile.phase(Phase::Decode).expect("it decoded");
    // As without it, those are left out in which graphs were described: the first prompt and the first token.
    assert_eq!((kept.passes, decode.passes, decode.tokens), (2000, 1999, 1999));
    assert_eq!(profile.dropped.warm_up_passes, 2, "{}", ran.said());
    assert_eq!(profile.passes.len() as u64 + profile.dropped.passes, 2000);
    assert_eq!(profile.passes.len() as u64, kept.kept());
    assert!((100..2000).contains(&kept.kept()), "{}", kept.kept());
    let sampled: f64 = kept.weights().values().sum();
    assert!((sampled + kept.slowest as f64 - 2000.0).abs() < 1e-6, "{sampled}");
    // Sums are of all passes, and the slowest is there.
    let walls = kept.walls.iter().find(|of| of.phase == Phase::Decode).expect("it decoded");
    assert_eq!((walls.walls.count, walls.walls.total_ns), (1999, decode.wall_ns));
    let is_decode = |pass: &&brickscope::Pass| pass.phase == Phase::Decode;
    let slowest = profile.passes.iter().filter(is_decode).map(|pass| pass.wall_ns).max();
    assert_eq!(slowest, Some(walls.walls.max_ns));
    let product = |profile: &Profile| {
        let passes = profile.phase(Phase::Decode).expect("it decoded").passes;
        total(profile, Phase::Decode, "DownProjection").stats.count as f64 / passes as f64
    };
    assert_eq!(product(&profile), product(&as_it_is().profile()));
    assert!(ran.said().contains("passes, a sample of") && ran.said().contains("sums: all"));
}

/// As on a full disk: in the first case for all of it, in the second after a while.
#[test]
fn a_program_whose_recording_has_no_room_ends_as_it_would_alone() {
    for kib in [2048, 4096] {
        let dir = tempfile::tempdir().expect("a folder");
        let run = dir.path().join("run");
        let mut command = Command::new(command::program());
        command.args(["run", "--keep", "tail", "--keep-mib", "1", "--out"]).arg(&run);
        command.args(["--", "bash", "-c", &format!("ulimit -f {kib}; exec \"$0\"")]);
        command.arg(programs().join("good/loads")).env("DECODES", "6000").env("QUICK", "");
        command.env("TMPDIR", dir.path()).env("BRICKSCOPE_CACHE", command::cache());
        let output = command.stdin(Stdio::null()).output().expect("it starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{kib}: {told}");
        assert_eq!(run.exists(), kib == 4096, "{told}");
        assert!(kib == 4096 || told.contains("nothing was recorded"), "{told}");
    }
}
