//! `brickscope man` and `brickscope completions`: made from the same list of commands as the help.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use brickscope_testing::command::{brickscope, run, text};
use tempfile::TempDir;

/// The commands that the help lists.
fn commands() -> Vec<String> {
    let help = run(&mut brickscope(&["--help"]));
    let list = text(&help.stdout).split("Commands:\n").nth(1).expect("a list").split("\n\n").next();
    let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let lines = list.expect("a list").lines().filter(is_command);
    let names: Vec<String> = lines
        .map(|line| line.split_whitespace().next().expect("a name").to_owned())
        .filter(|name| name != "help")
        .collect();
    assert!(names.iter().any(|name| name == "profile") && names.len() > 15, "{names:?}");
    names
}

#[test]
fn every_command_has_a_manual_page_with_its_example() {
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("share/man1");
    run(brickscope(&["man", "--out"]).arg(&out));
    let pages: BTreeSet<String> = fs::read_dir(&out)
        .expect("the folder was made")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    for name in commands() {
        assert!(pages.contains(&format!("brickscope-{name}.1")), "{name}: {pages:?}");
    }
    assert!(pages.contains("brickscope.1") && pages.contains("brickscope-receipt-sign.1"));
    for page in pages {
        let roff = fs::read_to_string(out.join(&page)).expect("readable");
        assert!(roff.contains("Example"), "{page} has no example");
    }
    // Without a folder, the first of them is printed.
    let printed = run(&mut brickscope(&["man"]));
    assert_eq!(text(&printed.stdout), fs::read_to_string(out.join("brickscope.1")).expect("UTF-8"));
}

#[test]
fn man_reads_the_page_without_a_warning() {
    let page = run(&mut brickscope(&["man"])).stdout;
    let groff = Command::new("groff")
        .args(["-man", "-ww", "-Tutf8", "-z"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut groff) = groff else {
        eprintln!("skipped: no groff");
        return;
    };
    std::io::Write::write_all(&mut groff.stdin.take().expect("piped"), &page).expect("it reads");
    let output = groff.wait_with_output().expect("it ends");
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn each_shell_has_completions_for_all_commands() {
    let commands = commands();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&mut brickscope(&["completions", shell])).stdout;
        for name in &commands {
            assert!(text(&script).contains(name.as_str()), "{shell}: no {name}");
        }
        assert!(text(&script).contains("prompt"), "{shell}: no flags");
    }
    let other = brickscope(&["completions", "csh"]).output().expect("it starts");
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("possible values: bash"), "{}", text(&other.stderr));
}

#[test]
fn bash_completes_a_command_that_was_begun() {
    let script = run(&mut brickscope(&["completions", "bash"])).stdout;
    let ask = "\nCOMP_WORDS=(brickscope prof); COMP_CWORD=1; _brickscope brickscope prof brickscope\n\
        echo \"${COMPREPLY[@]}\"\n";
    let bash = Command::new("bash").arg("-c").arg(text(&script).to_owned() + ask).output();
    let Ok(output) = bash else {
        eprintln!("skipped: no bash");
        return;
    };
    assert_eq!(text(&output.stdout), "profile\n", "{}", text(&output.stderr));
}
