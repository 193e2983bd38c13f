//! `brickscope man` and `brickscope completions`: made from the same list of commands as the help.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use brickscope_testing::command::{brickscope, run, text};
use tempfile::TempDir;

/// The commands that the help lists.
fn commands() -> Vec<String> {
    let help = run(&mut brickscope(&["--help"]));
    let list = text(&help.stdout).split("\nOptions:\n").next();
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

#[test]
fn the_help_has_commands_in_groups_and_fits_80_columns() {
    let help = run(&mut brickscope(&["--help"]));
    let help = text(&help.stdout);
    let at_the_margin = help.lines().filter(|line| !line.starts_with(' '));
    let titles: Vec<&str> = at_the_margin.filter_map(|line| line.strip_suffix(':')).collect();
    let groups =
        ["Measure", "Look", "Compare", "Fleet", "Model", "This program", "Options", "Examples"];
    assert_eq!(titles, groups, "{help}");
    assert!(
        help.contains("\n  profile         Run a model and report where its time went\n"),
        "{help}"
    );
    assert_eq!(help.lines().find(|line| line.chars().count() > 80), None);
}

#[test]
fn the_short_help_of_profile_is_a_page_and_the_long_one_has_all_flags() {
    let help = |flag| run(&mut brickscope(&["profile", flag])).stdout;
    let (short, long) = (help("-h"), help("--help"));
    let flags = |help: &[u8]| {
        // A value of a flag comes after `- `.
        let is_flag = |line: &&str| line.starts_with('-') && !line.starts_with("- ");
        text(help).lines().map(str::trim_start).filter(is_flag).count()
    };
    assert!((10..=20).contains(&flags(&short)), "{}", text(&short));
    assert!(flags(&long) > 30, "{}", text(&long));
    for heading in ["Sampling", "What is recorded", "Instead of a run", "Watching a run"] {
        assert!(text(&long).contains(&format!("\n{heading}:\n")), "{heading}: {}", text(&long));
    }
}

#[test]
fn colour_is_as_asked_whatever_the_environment_says() {
    let said = |words: &[&str]| {
        let mut command = brickscope(words);
        let output = run(command.env("NO_COLOR", "1").env("TERM", "xterm-256color"));
        text(&output.stdout).to_owned()
    };
    for words in [["doctor", "--color=always"], ["--color=always", "doctor"]] {
        assert!(said(&words).contains("\x1b[32m✓\x1b[0m "), "{words:?}");
    }
    assert!(!said(&["doctor", "--color", "never"]).contains('\x1b'));
    assert!(said(&["--color", "always", "--help"]).contains('\x1b'));
    assert!(!said(&["--color", "never", "--help"]).contains('\x1b'));
}

#[test]
fn completions_are_written_where_the_shell_looks_for_them() {
    let home = TempDir::new().expect("a folder");
    let install = |words: &[&str], shell: &str| {
        let mut command = brickscope(&[&["completions", "--install"], words].concat());
        for variable in ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"] {
            command.env_remove(variable);
        }
        command.env("HOME", home.path()).env("SHELL", shell).output().expect("it starts")
    };
    for (shell, file, next) in [
        ("bash", ".local/share/bash-completion/completions/brickscope", "bash-completion"),
        ("zsh", ".zfunc/_brickscope", "fpath+=(${ZDOTDIR:-~}/.zfunc)"),
        ("fish", ".config/fish/completions/brickscope.fish", "New shells"),
    ] {
        let output = install(&[], &format!("/bin/{shell}"));
        let said = text(&output.stdout);
        let file = home.path().join(file);
        assert!(said.starts_with(&format!("{} is written.\n", file.display())), "{said}");
        assert!(said.contains(next), "{said}");
        let script = run(&mut brickscope(&["completions", shell])).stdout;
        assert_eq!(fs::read(&file).expect("it is there"), script);
        // And a shell that is named wins.
        assert!(install(&[shell], "/bin/csh").status.success());
    }
    let others = fs::read_dir(home.path()).expect("a folder").count();
    assert_eq!(others, 3, "no other file is written: .local, .zfunc, .config");
    let refused = install(&["elvish"], "/bin/bash");
    assert!(text(&refused.stderr).contains("`brickscope completions elvish`"));
    assert!(text(&install(&[], "/bin/csh").stderr).contains("name one"));
}
