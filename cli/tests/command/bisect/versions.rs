//! `brickscope bisect --versions` and `--run`: builds of others, which a script fetches, measured by what they print or by
//! their runs.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, text};

use super::{RUN, code, err};

/// From good to bad: v5 is the first that is slower.
const LIST: &str = "v0,v1,v2,v3,v4,v5,v6,v7,v8";

/// Says which version it is asked for, and writes its engine.
const FETCH: &str = "\
echo \"$1\" >> \"$FETCHED\"
[ \"$1\" != \"$BROKEN\" ] || { echo no such package >&2; exit 1; }
echo 1000 > built
[ \"${BRICKSCOPE_VERSION#v}\" -lt 5 ] || echo 950 > built
cp \"$ENGINE\" run.sh
";

/// A folder, in which there is no repository, and packages.
struct Packages {
    dir: TempDir,
}

impl Packages {
    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        fs::write(dir.path().join("engine.sh"), RUN).expect("written");
        Self { dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = brickscope(&["bisect"]);
        command.args(words).current_dir(self.dir.path()).env("COUNTER", self.file("counter"));
        command.env("FETCHED", self.file("fetched")).env("ENGINE", self.file("engine.sh"));
        command
    }

    fn begin(&self, broken: &str, measure: &str, more: &[&str]) -> Output {
        let words = ["--versions", LIST, "--fetch", FETCH, "--measure", measure, "--seed", "7"];
        let how = ["--pattern", "tokens per second: {}"];
        let mut command = self.command(&[&words[..], &how, more].concat());
        command.env("BROKEN", broken).output().expect("it starts")
    }

    /// The versions that were asked for, in that order.
    fn fetched(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file("fetched")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The same, each of which was fetched once only.
    fn once(&self) -> Vec<String> {
        let fetched = self.fetched();
        let mut each = fetched.clone();
        each.sort();
        each.dedup();
        assert_eq!(each.len(), fetched.len(), "{fetched:?}");
        each
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {output:?}"))
}

#[test]
fn the_version_that_made_it_slower_is_found_without_a_repository() {
    let packages = Packages::new();
    let output = packages.begin("none", "sh run.sh", &[]);
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    let out = text(&output.stdout);
    assert!(out.starts_with("Found: v5 is slower than the version before it.\n"), "{out}");
    for part in ["\n  version    v5\n", "slower by  +", "beside v4", "v0 to v8: +"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let said = err(&output);
    assert!(said.contains("9 versions from v0 (good) to v8 (bad)"), "{said}");
    assert!(said.contains("fetching v8\n"), "{said}");
    assert!(out.lines().chain(said.lines()).all(|line| line.chars().count() <= 80), "{out}{said}");
    let fetched = packages.once();
    // Another search takes what is there, and the one that is over isn't in its way.
    let output = packages.begin("none", "sh run.sh", &["--json"]);
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    assert!(err(&output).contains("the search before this one is over"), "{}", err(&output));
    let found = json(&output);
    assert_eq!(found["versions"], serde_json::json!(["v5"]), "{found}");
    assert_eq!(found["parent"], "v4", "{found}");
    assert_eq!(found["good"], "v0", "{found}");
    assert!(packages.once().len() >= fetched.len());
}

#[test]
fn a_search_among_versions_that_is_killed_goes_on_and_fetches_none_again() {
    let packages = Packages::new();
    let measure = "\
        [ \"$(cat \"$COUNTER\" 2> /dev/null)\" != 21 ] || [ -e \"$COUNTER.killed\" ] || \
        { touch \"$COUNTER.killed\"; kill -KILL $PPID; exit 1; }; sh run.sh";
    let killed = packages.begin("none", measure, &[]);
    assert_eq!(code(&killed), None, "{}", err(&killed));
    let before = packages.once();
    assert!(before.len() >= 2, "{before:?}");
    let mut again = packages.command(&["--resume", "--json"]);
    let done = again.env("BROKEN", "none").output().expect("it starts");
    assert_eq!(code(&done), Some(0), "{}", err(&done));
    assert_eq!(json(&done)["versions"], serde_json::json!(["v5"]));
    packages.once();
    // From another folder the search is where it is said to be.
    let work = packages.file("brickscope-bisect");
    let mut elsewhere = brickscope(&["bisect", "--resume", "--json", "--work"]);
    let said = elsewhere.arg(work).output().expect("it starts");
    assert_eq!((code(&said), said.stdout), (Some(0), done.stdout));
}

#[test]
fn a_version_that_can_not_be_fetched_is_named_with_what_was_said() {
    let packages = Packages::new();
    let output = packages.begin("v0", "sh run.sh", &[]);
    assert_eq!(code(&output), Some(1), "{}", err(&output));
    for part in
        ["v0 (good) can't be measured: the script that fetches it failed", "no such package"]
    {
        assert!(err(&output).contains(part), "{part}: {}", err(&output));
    }
    // A network may fail once.
    assert_eq!(packages.fetched(), ["v0", "v0"]);
    // The one in the middle is what is asked for first.
    let output = packages.begin("v4", "sh run.sh", &["--anew", "--json"]);
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    let said = err(&output);
    assert!(said.contains("v4 is left out: the script that fetches it failed"), "{said}");
    let found = json(&output);
    assert_eq!(found["versions"], serde_json::json!(["v4", "v5"]), "{found}");
    assert_eq!(found["left_out"][0]["hash"], "v4", "{found}");
}

#[test]
fn flags_that_do_not_go_together_are_said() {
    let packages = Packages::new();
    for (words, part) in [
        (&["--versions", "a,b", "--measure", "x"][..], "--fetch"),
        (&["--versions", "a", "--fetch", "x", "--measure", "x"], "needs two at least"),
        (&["--versions", "a,b,a", "--fetch", "x", "--measure", "x"], "names a twice"),
        (&["--versions", "a,b", "--fetch", "x", "--measure", "x", "--good", "a"], "--good"),
        (&["--good", "HEAD~1", "--fetch", "x", "--measure", "x"], "--fetch is for --versions"),
        (&["--resume", "--brick", "y"], "--phase and --brick can't be used with --resume"),
        (&["--versions", "a,b", "--fetch", "x", "--measure", "x", "--run", "y"], "--run"),
        (&["--versions", "a,b", "--fetch", "x", "--measure", "x", "--brick", "y"], "--run"),
        (&["--versions", "a,b", "--fetch", "x", "--run", "it's"], "--run it's: a quotation mark"),
        (
            &["--versions", "a,b", "--fetch", "x", "--run", "./llama-server"],
            "doesn't end by itself",
        ),
    ] {
        let output = packages.command(words).output().expect("it starts");
        assert!(matches!(code(&output), Some(1 | 2)), "{words:?}: {output:?}");
        assert!(err(&output).contains(part), "{part}: {}", err(&output));
    }
    assert_eq!(packages.fetched(), [""; 0]);
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod by_run {
    use brickscope_testing::patience::skipped;

    use super::*;
    use crate::run::programs;

    /// Writes an engine, of which a node takes four times as long from v4 on.
    fn fetch() -> String {
        let program = programs().join("good/loads");
        format!(
            "slow=\n[ \"${{1#v}}\" -lt 4 ] || slow='SLOW=l_out-1 TIMES=4'\n\
             echo \"#!/bin/sh\" > engine\necho \"exec env $slow {}\" >> engine\nchmod +x engine",
            program.display()
        )
    }

    #[test]
    fn the_version_and_the_brick_that_became_slower_are_found() {
        let packages = Packages::new();
        let fetch = fetch();
        let words = ["--versions", "v1,v2,v3,v4,v5,v6", "--fetch", &fetch, "--run", "./engine"];
        let how = ["--seed", "7", "--max-measurements", "400", "--wrong", "0.1%", "--json"];
        let output = packages.command(&[&words[..], &how].concat()).output();
        let output = output.expect("it starts");
        // No difference, where others take the CPUs from most passes.
        if matches!(code(&output), Some(3 | 4)) {
            return skipped(&format!("the machine is too busy to tell: {}", json(&output)));
        }
        assert_eq!(code(&output), Some(0), "{}", err(&output));
        let found = json(&output);
        assert_eq!(found["versions"], serde_json::json!(["v4"]), "{found}");
        assert_eq!(found["figure"]["phase"], "decode", "{found}");
        let moved = found["versus"]["moved"].as_array().expect("a list");
        let decode = moved.iter().find(|moved| moved["test"] == "decode").expect("it is there");
        assert_eq!(decode["parts"][0]["name"], "DownProjection", "{found}");
        // For people, without another measurement.
        let output = packages.command(&["--resume"]).output().expect("it starts");
        let said = text(&output.stdout);
        assert!(said.starts_with("Found: v4 is slower than the version before it.\n"), "{said}");
        for part in [
            "\n  by         the time of ",
            "a token of decode",
            "\nDownProjection ",
            "\nA        v3: engine\nB        v4: engine\n",
            "note     the search judged the time of ",
            "note     brickscope bisect found B to be what became slower, of 6 versions",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
        // For an issue.
        let output = packages.command(&["--resume", "--markdown"]).output().expect("it starts");
        let said = text(&output.stdout);
        for part in [
            "```text\nFound: v4 is slower than the version before it.\n",
            "```\n\n**",
            "| DownProjection |",
            "- A: `v3: engine`\n- B: `v4: engine`\n",
            "- note: brickscope bisect found B to be what became slower, of 6 versions",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn what_a_run_has_not_is_said() {
        let fetch = fetch();
        for (engine, more, part) in [
            (
                "./engine",
                &["--brick", "NoSuch"][..],
                "its decode pass has no brick NoSuch: it has ",
            ),
            ("./engine", &["--phase", "encode"], "its run has no encode pass: it has "),
            ("./other", &[], "v1 (good) can't be measured: "),
            ("true", &[], "wrote no run: "),
        ] {
            let packages = Packages::new();
            let words = ["--versions", "v1,v4", "--fetch", &fetch, "--run", engine];
            let output = packages.command(&[&words[..], more].concat()).output();
            let output = output.expect("it starts");
            assert_eq!(code(&output), Some(1), "{engine} {more:?}: {output:?}");
            assert!(err(&output).contains(part), "{part}: {}", err(&output));
        }
    }
}
