//! The command, and lakes in a server of S3.
//!
//! `run` builds the command and calls this. `BRICKSCOPE` names it, and `BRICKSCOPE_DUCKDB` the command of DuckDB; without
//! that, what questions answer isn't tested.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use brickscope::{BrickProfiler, MockClock, Phase, Profile};
use lake_s3::{BUCKET, Requests, Server};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A run like no other, by its time.
fn profile(nth: u64) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..30 {
        let pass = profiler.begin_pass(Phase::Decode);
        for layer in 0..2 {
            let layer = profiler.begin_layer(layer);
            let brick = profiler.start("QkvProjection");
            hand.advance(1000 + nth + 7 * position);
            profiler.stop(brick, 64);
            profiler.end_layer(layer);
        }
        hand.advance(5);
        profiler.end_pass(pass, 1, position);
    }
    let mut profile = profiler.profile();
    let (minute, second) = (nth / 60 % 60, nth % 60);
    profile.created = format!("2026-11-{:02}T10:{minute:02}:{second:02}Z", 1 + nth % 3);
    profile
}

/// Folders with a run each.
fn runs(parent: &Path, which: impl Iterator<Item = u64>) {
    for nth in which {
        let folder = parent.join(nth.to_string());
        fs::create_dir_all(&folder).expect("there is room");
        profile(nth).save(&folder.join("profile.json")).expect("there is room");
    }
}

/// A server and a lake in it, and a machine with a cache folder.
struct Fleet {
    server: Server,
    lake: String,
    folder: TempDir,
}

impl Fleet {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        Self { server: Server::start(), lake: format!("s3://{BUCKET}/team/lake"), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command, on the machine with this cache folder.
    fn on(&self, machine: &str, words: &[&str]) -> Command {
        let mut command = Command::new(std::env::var_os("BRICKSCOPE").expect("the command"));
        self.server.tell(&mut command);
        command
            .env("BRICKSCOPE_CACHE", self.path(machine))
            .env("BRICKSCOPE_LAKE", &self.lake)
            .args(words);
        command
    }

    fn collect(&self, runs: &Path) -> Command {
        let mut command =
            self.on("cache", &["collect", "--json", "--machine", "m1", "--commit", "c1"]);
        command.arg(runs);
        command
    }

    fn json(&self, words: &[&str]) -> Value {
        json(&mut self.on("cache", words))
    }

    fn compact(&self, grace: &str) -> Value {
        self.json(&["lake", "compact", "--json", "--grace", grace])
    }

    fn check(&self) -> Value {
        self.json(&["lake", "check", "--json"])
    }
}

fn json(command: &mut Command) -> Value {
    serde_json::from_slice(&succeeds(command).stdout).expect("JSON")
}

/// Whether both are the same answer. Sums have no order in SQL, so that their last digits differ between two lakes.
fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| alike(a, b)))
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let [a, b] = [a, b].map(|number| number.as_f64().expect("a float"));
            (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
        }
        _ => a == b,
    }
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    output
}

/// What a command says that fails, and how long that takes.
fn fails(command: &mut Command) -> (String, Duration) {
    let begin = Instant::now();
    let output = command.output().expect("it starts");
    assert!(!output.status.success(), "{command:?}");
    (String::from_utf8_lossy(&output.stderr).into_owned(), begin.elapsed())
}

fn has_duckdb() -> bool {
    let has = std::env::var_os("BRICKSCOPE_DUCKDB").is_some_and(|path| !path.is_empty());
    if !has {
        println!("skipped: no DuckDB");
    }
    has
}

const QUESTIONS: &[&[&str]] = &[
    &["inventory"],
    &["machines"],
    &["trend"],
    &["trend", "--since", "2026-11-02"],
    &["compare", "--by", "machine"],
    &["slowest-machines"],
    &["regressions"],
    &["bricks"],
    &["bricks", "--until", "2026-11-01"],
    &["kernels"],
    &["percentiles"],
    &["far-from-roof"],
    &["slow-passes", "--since", "2026-11-02", "--until", "2026-11-02"],
    &["disturbed"],
    &["unverified"],
    &["who-backs", "50000", "--within", "99"],
    &["query", "SELECT * FROM spans ORDER BY ALL"],
    &["query", "SELECT * FROM runs ORDER BY run_id"],
];

#[test]
fn questions_have_the_answers_of_a_folder() {
    if !has_duckdb() {
        return;
    }
    let fleet = Fleet::new();
    fleet.server.page(7);
    let folder = fleet.path("lake");
    let both = |words: &[&str], path: &Path, about: &[&str]| {
        for lake in [Path::new(&fleet.lake), &folder] {
            succeeds(fleet.on("cache", words).arg(path).args(about).arg("--lake").arg(lake));
        }
    };
    let compare = |machine: &str| {
        for question in QUESTIONS {
            let ask = |lake: &Path| {
                let words = [&["lake"], *question, &["--output", "json", "--lake"]].concat();
                json(fleet.on(machine, &words).arg(lake))
            };
            let (of_folder, of_bucket) = (ask(&folder), ask(Path::new(&fleet.lake)));
            assert!(
                alike(&of_folder, &of_bucket),
                "{question:?}: {of_folder:#} of the folder, {of_bucket:#} of the bucket"
            );
        }
    };
    for machine in 0..3 {
        let path = fleet.path(&format!("runs{machine}"));
        runs(&path, 10 * machine..10 * machine + 10);
        let (name, commit) = (format!("m{machine}"), format!("c{machine}"));
        let about = ["--machine", &name, "--commit", &commit];
        both(&["collect"], &path, &about);
        compare("cache");
    }
    // A copy of some days has all that a question of these days needs: commits are measured on several days.
    for (nth, commit) in [(30, "c1"), (31, "c2"), (32, "c1"), (35, "c2")] {
        let path = fleet.path(&format!("commits/{nth}"));
        runs(&path, nth..nth + 1);
        both(&["collect"], &path, &["--machine", "m3", "--commit", commit]);
    }
    for question in
        QUESTIONS.iter().filter(|question| question[0] != "query" && question.len() == 1)
    {
        let days = ["--since", "2026-11-02", "--until", "2026-11-03", "--output", "json", "--lake"];
        let words = [&["lake"], *question, &days].concat();
        let ask = |lake: &Path| json(fleet.on(question[0], &words).arg(lake));
        let (of_folder, of_bucket) = (ask(&folder), ask(Path::new(&fleet.lake)));
        assert!(
            alike(&of_folder, &of_bucket),
            "{question:?}: {of_folder:#} of the folder, {of_bucket:#} of the bucket"
        );
    }
    // Merged, before and after what was merged is deleted, where a copy is there and where none is.
    for grace in ["60", "0"] {
        for lake in [Path::new(&fleet.lake), &folder] {
            succeeds(fleet.on("cache", &["lake", "compact", "--grace", grace, "--lake"]).arg(lake));
        }
        compare("cache");
        compare(&format!("cache-{grace}"));
    }
    let mut judged = [Path::new(&fleet.lake), &folder].map(|lake| {
        let run = fleet.path("new");
        runs(&run, 40..41);
        let mut gate = fleet.on("cache", &["gate", "--baseline"]);
        let judged = gate.arg(lake).arg(&run).env("BRICKSCOPE_MACHINE", "m1").output();
        let judged = judged.expect("it starts");
        (judged.status.code(), judged.stdout, judged.stderr)
    });
    println!("{}", String::from_utf8_lossy(&judged[0].2));
    judged.iter_mut().for_each(|(_, _, stderr)| stderr.clear());
    assert!(!judged[0].1.is_empty());
    assert_eq!(judged[0], judged[1]);
    // A run that is deleted in the bucket is no longer in the answers.
    for name in fleet.server.names() {
        if name.contains("date=2026-11-02/") {
            fleet.server.set(&name, None, SystemTime::now());
        }
    }
    for table in ["runs", "spans", "passes", "bricks", "durations", "speeds"] {
        fs::remove_dir_all(folder.join(table).join("date=2026-11-02")).expect("it is there");
    }
    compare("cache");
}

#[test]
fn a_run_is_in_the_lake_once_and_few_requests_are_made() {
    let fleet = Fleet::new();
    let of = fleet.path("runs");
    runs(&of, 0..6);
    let made = json(&mut fleet.collect(&of.join("0")));
    assert_eq!((&made["added"], &made["known"]), (&1.into(), &0.into()));
    println!("the first run: {:?}", fleet.server.requests());
    let begin = Instant::now();
    let one = json(&mut fleet.collect(&of.join("1")));
    println!("another run, in {:?}:", begin.elapsed());
    assert_eq!(one["added"], 1);
    let requests = fleet.server.requests();
    println!("    {requests:?}");
    assert_eq!(requests, Requests { get: 1, list: 1, put: 6, ..Requests::default() });
    let again = json(&mut fleet.collect(&of));
    assert_eq!((&again["added"], &again["known"]), (&4.into(), &2.into()));
    fleet.server.requests();
    let again = json(&mut fleet.collect(&of));
    assert_eq!((&again["added"], &again["known"]), (&0.into(), &6.into()));
    // Three days.
    assert_eq!(fleet.server.requests(), Requests { get: 1, list: 3, ..Requests::default() });
    if has_duckdb() {
        fleet.json(&["lake", "inventory", "--json"]);
        println!("the first question, of 6 runs: {:?}", fleet.server.requests());
        let begin = Instant::now();
        fleet.json(&["lake", "inventory", "--json"]);
        println!("a question with nothing new, in {:?}:", begin.elapsed());
        let requests = fleet.server.requests();
        println!("    {requests:?}");
        assert_eq!(requests, Requests { get: 1, list: 2, ..Requests::default() });
        runs(&of, 6..7);
        json(&mut fleet.collect(&of.join("6")));
        fleet.server.requests();
        fleet.json(&["lake", "inventory", "--json"]);
        println!("a question after one new run: {:?}", fleet.server.requests());
        let sql = succeeds(&mut fleet.on("cache", &["lake", "inventory", "--sql"])).stdout;
        let sql = String::from_utf8(sql).expect("UTF-8");
        assert!(sql.contains("read_parquet('s3://runs/team/lake/runs/*/*/*.parquet'"), "{sql}");
    } else {
        runs(&of, 6..7);
        json(&mut fleet.collect(&of.join("6")));
    }

    let merged = fleet.compact("60");
    assert_eq!((&merged["runs"], &merged["merged_parts"]), (&7.into(), &3.into()), "{merged}");
    assert!(merged["kept_files"].as_u64() > Some(7) && merged["deleted_files"] == 0, "{merged}");
    assert_eq!(fleet.check(), json!({ "whole": 7, "faults": [] }));
    let swept = fleet.compact("0");
    assert_eq!((&swept["merged_parts"], &swept["kept_files"]), (&0.into(), &0.into()));
    assert_eq!(fleet.check()["whole"], 7);
    assert_eq!(json(&mut fleet.collect(&of))["known"], 7);
    let single = fleet.server.names().into_iter().filter(|name| {
        !name.contains("/machine=merged/")
            && !name.contains("columns")
            && !name.ends_with("lake.json")
    });
    assert_eq!(single.collect::<Vec<_>>(), [""; 0]);
}

/// `tests/lake-s3/run figures --ignored` prints what docs/evidence/fleet.md says.
#[test]
#[ignore = "it measures"]
fn figures_of_a_thousand_runs() {
    assert!(has_duckdb());
    let fleet = Fleet::new();
    let of = fleet.path("runs");
    runs(&of, 0..1000);
    let timed = |what: &str, command: &mut Command| {
        let begin = Instant::now();
        succeeds(command);
        println!("{what}: {:.2} s, {:?}", begin.elapsed().as_secs_f64(), fleet.server.requests());
    };
    let ask = |machine| fleet.on(machine, &["lake", "inventory", "--json"]);
    timed("collecting 1000 runs", &mut fleet.collect(&of));
    timed("collecting them again", &mut fleet.collect(&of));
    runs(&of, 1000..1001);
    timed("one more", &mut fleet.collect(&of.join("1000")));
    timed("the first question", &mut ask("one"));
    timed("a question with nothing new", &mut ask("one"));
    timed("of one day, the first question", ask("two").args(["--since", "2026-11-03"]));
    timed("merging", &mut fleet.on("merger", &["lake", "compact", "--grace", "60"]));
    timed("the first question, merged", &mut ask("three"));
    timed(
        "deleting what was merged",
        &mut fleet.on("merger", &["lake", "compact", "--grace", "0"]),
    );
    timed("a question of a copy from before", &mut ask("one"));
    timed("a question with nothing new", &mut ask("one"));
    timed("a check with nothing new", &mut fleet.on("one", &["lake", "check"]));
}

#[test]
fn what_killed_writers_left_is_deleted_after_an_hour() {
    let fleet = Fleet::new();
    let of = fleet.path("runs");
    runs(&of, 0..2);
    json(&mut fleet.collect(&of));
    let run = |name: &&String| name.contains("/runs/") && name.contains("machine=m1");
    let names = fleet.server.names();
    let lost = names.iter().find(run).expect("a run");
    fleet.server.set(lost, None, SystemTime::now());
    assert_eq!(fleet.check(), json!({ "whole": 1, "faults": [] }));
    assert_eq!(fleet.compact("0")["orphans"], 0);
    let old = SystemTime::now() - Duration::from_secs(3700);
    let name = "team/lake/bricks/date=2026-11-07/machine=m1/0123456789abcdef.parquet";
    fleet.server.set(name, Some(b"half"), old);
    assert_eq!(fleet.compact("0")["orphans"], 1);
    assert!(!fleet.server.names().iter().any(|found| found == name));

    // A file that is lost is named.
    let brick = |name: &&String| name.contains("/bricks/") && name.contains("machine=m1");
    let bricks: Vec<String> = fleet.server.names().iter().filter(brick).cloned().collect();
    for name in bricks {
        fleet.server.set(&name, None, SystemTime::now());
    }
    let (said, _) = fails(&mut fleet.on("other", &["lake", "check"]));
    assert!(said.contains("the lake is damaged"), "{said}");
}

/// All that can be merged is merged and deleted between the list that a reader gets and what it fetches.
#[test]
fn a_reader_asks_again_if_parts_are_deleted_meanwhile() {
    let fleet = Fleet::new();
    let of = fleet.path("runs");
    runs(&of, 0..9);
    json(&mut fleet.collect(&of));
    for words in [
        &["lake", "check", "--json"][..],
        &["lake", "query", "--json", "SELECT count(*) AS n FROM runs"],
    ] {
        if words[1] == "query" && !has_duckdb() {
            continue;
        }
        let mut compact = fleet.on("elsewhere", &["lake", "compact", "--grace", "0"]);
        fleet.server.after_listing(move || drop(succeeds(&mut compact)));
        let found = json(&mut fleet.on("reader", words));
        match words[1] {
            "check" => assert_eq!(found, json!({ "whole": 9, "faults": [] })),
            _ => assert_eq!(found[0]["n"], 11),
        }
        // Merged once more, with new parts.
        runs(&of, 9..11);
        json(&mut fleet.collect(&of));
    }
}

/// The list has passed the merged files when a run is merged that would come later in it.
#[test]
fn a_run_that_is_merged_while_a_list_is_made_is_found() {
    if !has_duckdb() {
        return;
    }
    let fleet = Fleet::new();
    let of = fleet.path("runs");
    runs(&of, [0, 3].into_iter());
    let collect = |run: &str, machine: &str| {
        let mut command = fleet.on("cache", &["collect", "--json", "--machine", machine]);
        assert_eq!(json(command.arg(of.join(run)))["added"], 1);
    };
    let count = || {
        let query = ["lake", "query", "--json", "SELECT count(*) AS n FROM runs"];
        json(&mut fleet.on("reader", &query))[0]["n"].clone()
    };
    // Of one day, of machines that come after `merged` by name. The reader has the first one in its copy.
    collect("0", "n0");
    assert_eq!(count(), 1);
    collect("3", "zeta");
    // The columns and the first run are a page.
    fleet.server.page(2);
    let mut compact = fleet.on("elsewhere", &["lake", "compact", "--grace", "0"]);
    fleet.server.after_listing(move || drop(succeeds(&mut compact)));
    assert_eq!(count(), 2);
    assert!(!fleet.server.names().iter().any(|name| name.contains("machine=zeta")));
}

#[test]
fn a_bucket_itself_can_be_a_lake() {
    let fleet = Fleet { lake: format!("s3://{BUCKET}"), ..Fleet::new() };
    let of = fleet.path("runs");
    runs(&of, 0..2);
    assert_eq!(json(&mut fleet.collect(&of))["added"], 2);
    assert_eq!(fleet.check(), json!({ "whole": 2, "faults": [] }));
    assert!(fleet.server.names().iter().any(|name| name == "lake.json"));
}

#[test]
fn an_overloaded_server_is_asked_again() {
    let fleet = Fleet::new();
    let of = fleet.path("runs");
    runs(&of, 0..4);
    fleet.server.overload(4);
    assert_eq!(json(&mut fleet.collect(&of))["added"], 4);
    assert_eq!(fleet.compact("0")["merged_parts"], 1);
    assert_eq!(fleet.check(), json!({ "whole": 4, "faults": [] }));
}

#[test]
fn errors_name_the_cause_and_come_soon() {
    let fleet = Fleet::new();
    let of = fleet.path("runs");
    runs(&of, 0..1);
    let says = |command: &mut Command, expected: &str| {
        let (said, took) = fails(command);
        println!("{took:?} {said}");
        assert!(said.contains(expected), "{said}");
        assert!(took < Duration::from_secs(20), "{took:?}");
    };
    for words in [&["collect", "--machine", "m1", "--lake"][..], &["lake", "check", "--lake"]] {
        let command = |lake: &str| {
            let mut command = fleet.on("cache", words);
            command.arg(lake);
            if words[0] == "collect" {
                command.arg(&of);
            }
            command
        };
        says(&mut command("s3://nobody/lake"), "there is no bucket nobody");
        says(
            command(&fleet.lake).env("AWS_SECRET_ACCESS_KEY", "wrong"),
            "the server refuses these credentials (AWS_ACCESS_KEY_ID",
        );
        says(command(&fleet.lake).env_remove("AWS_ALLOW_HTTP"), "AWS_ALLOW_HTTP");
        says(command(&fleet.lake).env_remove("AWS_SECRET_ACCESS_KEY"), "Missing SecretAccessKey");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let nobody = format!("http://{}", port.expect("a port"));
        says(
            command(&fleet.lake)
                .env_remove("AWS_ACCESS_KEY_ID")
                .env_remove("AWS_SECRET_ACCESS_KEY")
                .env("AWS_METADATA_ENDPOINT", &nobody),
            "AWS_ACCESS_KEY_ID is not set",
        );
        says(command(&fleet.lake).env("AWS_ENDPOINT_URL", &nobody), &nobody);
        // A server that accepts and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", silent.local_addr().expect("its address"));
        says(command(&fleet.lake).env("AWS_ENDPOINT_URL", &url), &url);
        says(
            &mut command("gs://bucket/lake"),
            "gs://bucket/lake: a lake is a folder or s3://BUCKET/PREFIX",
        );
        says(&mut command("s3:///lake"), "names no bucket");
        says(&mut command("s3://runs/a//b"), "a//b");
    }
    says(&mut fleet.on("cache", &["lake", "check"]), "is not a lake: it has no lake.json");
    fleet.server.set("team/lake/other.txt", Some(b"something"), SystemTime::now());
    says(&mut fleet.collect(&of), "is neither empty nor a lake");
    fleet.server.set(
        "team/lake/lake.json",
        Some(b"{\"lake_version\": 99, \"brickscope_version\": \"9\"}"),
        SystemTime::now(),
    );
    says(&mut fleet.on("cache", &["lake", "check"]), "lake_version 99 is newer");
}

#[test]
fn a_list_without_an_end_is_an_error() {
    let fleet = Fleet::new();
    let of = fleet.path("runs");
    runs(&of, 0..2);
    succeeds(&mut fleet.collect(&of));
    fleet.server.repeat(true);
    let _ = fleet.server.requests();
    let (said, _) = fails(&mut fleet.on("cache", &["lake", "check"]));
    assert!(said.contains("its list goes on where it has been before"), "{said}");
    assert!(fleet.server.requests().list < 20);
    fleet.server.repeat(false);
    succeeds(&mut fleet.on("cache", &["lake", "check"]));
}

#[test]
fn nothing_is_asked_where_a_server_sends_one_to() {
    let fleet = Fleet::new();
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    other.set_nonblocking(true).expect("a socket");
    let to = other.local_addr().expect("its address");
    for status in ["301 Moved Permanently", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", server.local_addr().expect("its address"));
        std::thread::spawn(move || {
            for socket in server.incoming() {
                let mut socket = socket.expect("a connection");
                let mut request = [0; 4096];
                let _ = socket.read(&mut request);
                let answer = format!(
                    "HTTP/1.1 {status}\r\nLocation: http://{to}/x?y\r\nContent-Length: 0\r\n\r\n"
                );
                let _ = socket.write_all(answer.as_bytes());
            }
        });
        let mut check = fleet.on("cache", &["lake", "check"]);
        let (said, took) =
            fails(check.env("AWS_ENDPOINT_URL", &url).env("AWS_SESSION_TOKEN", "a secret"));
        assert!(
            said.contains(&format!("this is elsewhere: {to}, where nothing is asked")),
            "{said}"
        );
        assert!(!said.contains("a secret") && !said.contains("x?y"), "{said}");
        assert!(took < Duration::from_secs(60), "{took:?}");
        assert!(other.accept().is_err(), "nobody came");
    }
}

/// Writers are killed at random, while others merge, delete and read. At no time is there half a run, and what a writer
/// said that it added is there.
#[test]
fn writers_that_are_killed_leave_no_half_a_run() {
    let rounds: u32 = match std::env::var("BRICKSCOPE_ROUNDS") {
        Ok(rounds) => rounds.parse().expect("a number"),
        Err(_) => 10,
    };
    const WRITERS: u64 = 8;
    const RUNS: u64 = 6;
    let fleet = Fleet::new();
    fleet.server.page(5);
    fleet.server.overload(50);
    let of = |writer: u64| fleet.path(&writer.to_string());
    for writer in 0..WRITERS {
        runs(&of(writer), writer * RUNS..(writer + 1) * RUNS);
    }
    let mut random = 7_u64;
    let mut below = |most: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let (mut killed, mut added) = (0, BTreeSet::new());
    let (mut counted, mut most) = (0, 0);
    for round in 0..rounds {
        if round % 10 == 0 {
            // Begin anew, so that there is something to write.
            for name in fleet.server.names() {
                fleet.server.set(&name, None, SystemTime::now());
            }
            added.clear();
            most = 0;
            succeeds(&mut fleet.collect(&of(0).join("0")));
        }
        let quiet = |command: &mut Command| {
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
        };
        let mut writers: Vec<_> =
            (0..WRITERS).map(|writer| quiet(&mut fleet.collect(&of(writer)))).collect();
        let grace = if below(2) == 0 { "60" } else { "0" };
        let merging = quiet(&mut fleet.on("merger", &["lake", "compact", "--grace", grace]));
        let readers = ["one", "one", "another"].map(|machine| {
            let mut check = fleet.on(machine, &["lake", "check", "--json"]);
            check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        });
        std::thread::sleep(Duration::from_millis(below(600)));
        for writer in &mut writers {
            if below(2) == 0 && writer.try_wait().expect("its state").is_none() {
                writer.kill().expect("it can be killed");
                killed += 1;
            }
        }
        let ask = json!({ "faults": [] });
        for reader in readers {
            let output = reader.wait_with_output().expect("its end");
            let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            assert_eq!(
                found["faults"],
                ask["faults"],
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            counted += 1;
        }
        for (writer, child) in (0..).zip(writers) {
            let output = child.wait_with_output().expect("its end");
            if output.status.success() {
                added.insert(writer);
            }
        }
        let merged = merging.wait_with_output().expect("its end");
        assert!(merged.status.success(), "{}", String::from_utf8_lossy(&merged.stderr));
        let checked = fleet.check();
        assert_eq!(checked["faults"], ask["faults"]);
        let whole = checked["whole"].as_u64().expect("a number");
        assert!(whole >= most && whole >= RUNS * added.len() as u64, "{whole}, {most}, {added:?}");
        most = whole;
    }
    for writer in 0..WRITERS {
        let collected = json(&mut fleet.collect(&of(writer)));
        if added.contains(&writer) {
            assert_eq!(collected["added"], 0, "{writer}");
        }
    }
    assert_eq!(fleet.check(), json!({ "whole": WRITERS * RUNS, "faults": [] }));
    println!("{killed} writers killed, {counted} checks meanwhile");
    assert!(killed > rounds / 2);
}
