//! `--metrics`: the addresses that it accepts and refuses.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q4_K_M.gguf")
}

#[test]
fn profile_and_benchmark_say_where_they_serve() {
    for (command, args) in [
        ("profile", &["--tokens", "2"][..]),
        ("benchmark", &["--tokens", "2", "--prompt-tokens", "4", "--repetitions", "1"]),
    ] {
        let dir = TempDir::new().expect("a temporary folder");
        let mut command = brickscope(&[command]);
        command.arg(model()).args(args).arg("--out").arg(dir.path());
        let output = run(command.args(["--metrics", "localhost:0", "--metrics-names", "both"]));
        let said = text(&output.stderr);
        let line = said.lines().find_map(|line| line.strip_prefix("metrics: http://127.0.0.1:"));
        let port = line.and_then(|line| line.strip_suffix("/metrics")).expect(said);
        assert!(port.parse::<u16>().is_ok_and(|port| port > 0), "{said}");
    }
}

#[test]
fn an_address_for_others_takes_a_second_flag() {
    let profile = |args: &[&str]| {
        let dir = TempDir::new().expect("a temporary folder");
        let mut command = brickscope(&["profile"]);
        command.arg(model()).args(["--tokens", "1", "--out"]).arg(dir.path()).args(args);
        let output = command.output().expect("it starts");
        (output.status.success(), text(&output.stderr).to_owned())
    };
    let (ran, said) = profile(&["--metrics", "0.0.0.0:0"]);
    assert!(!ran && said.contains("without --metrics-public"), "{said}");
    let (ran, said) = profile(&["--metrics", "0.0.0.0:0", "--metrics-public"]);
    assert!(ran && said.contains("warning: anyone who can reach 0.0.0.0:"), "{said}");
    for args in [&["--metrics", "9187"][..], &["--metrics", "example.org:1"], &["--metrics-public"]]
    {
        let (ran, said) = profile(args);
        assert!(!ran && said.contains("--metrics"), "{said}");
    }
}
