//! `brickscope load`, beside a server that says what it did.

use std::fs;
use std::process::Stdio;

use brickscope::Profile;
use brickscope_testing::command::brickscope;
use brickscope_testing::model_server::{Does, Fake};
use serde_json::Value;

#[test]
fn what_a_server_answers_is_a_run_with_the_same_figures_everywhere() {
    let fake = Fake::start(|_| Does::Answer);
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("run");
    let mut load = brickscope(&[]);
    load.args(["load", &fake.url, "--rate", "100", "--requests", "12", "--prompt", "43"]);
    load.args(["--output", "5", "--slo", "ttft=100s,token=100s", "--out"]).arg(&run);
    let shown = load.output().expect("it runs");
    let text = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    for part in [
        "answered 12\n",
        "60 of answers",
        "516 of prompts, 12 of them cached",
        "12 of 12 within ttft=100s,token=100s",
        "model fake-1",
        "Poisson",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80 || line.contains("--client")),
        "{text}"
    );
    // The two that tell how long words are, and the load.
    assert_eq!(fake.asked().len(), 14);
    let profile = Profile::load(&run.join("profile.json")).expect("it was written");
    assert_eq!(profile.check(), Ok(()));
    assert!(
        profile
            .requests
            .iter()
            .all(|of| (of.prompt_tokens, of.output_tokens) == (Some(43), Some(5)))
    );

    // The table of `requests` is that of `load`.
    let table = |text: &str| {
        let rows = text.lines().skip_while(|line| !line.contains("p50  "));
        rows.take(5).map(str::to_owned).collect::<Vec<_>>()
    };
    let requests = brickscope(&[]).arg("requests").arg(&run).output().expect("it runs");
    let requests = String::from_utf8(requests.stdout).expect("text");
    assert_eq!(table(&requests), table(&text));
    assert!(requests.contains("No passes are in this run"), "{requests}");

    let mut one = brickscope(&[]);
    one.arg("requests").arg(&run).args(["--request", "slowest"]);
    let one = String::from_utf8(one.output().expect("it runs").stdout).expect("text");
    let beside = format!("brickscope requests SERVER_RUN --client {}\n", run.display());
    assert!(one.contains(&beside) && requests.ends_with(&beside), "{one}{requests}");
    assert!(!one.contains("unattributed"), "{one}");
    // JSON has as little of what nobody saw, and says why.
    let json = brickscope(&[]).args(["requests", "--json"]).arg(&run).output().expect("it runs");
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let why = json["pieces_absent"].as_str().expect("a reason");
    let said = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said(&one).contains(why) && said(&requests).contains(why), "{why}");
    assert!(!json.to_string().contains("unattributed"), "{json}");
    let told = json["requests"].as_array().expect("requests");
    assert_eq!(told.len(), profile.requests.len());
    for (of, request) in told.iter().zip(&profile.requests) {
        let intervals = of["intervals"].as_array().expect("intervals");
        assert!(!intervals.is_empty(), "{of}");
        assert!(intervals.iter().all(|interval| interval.get("pieces").is_none()), "{of}");
        let sent_ns = request.admitted_ns.unwrap_or(request.arrived_ns);
        let late_ns = sent_ns.saturating_sub(request.arrived_ns);
        assert_eq!(of.get("late_ns").and_then(Value::as_u64).unwrap_or(0), late_ns, "{of}");
    }
    assert!(json["slow_tokens"].is_null() && json["causes_of_tokens"].is_null(), "{json}");

    let show = brickscope(&[]).arg("show").arg(&run).output().expect("it runs");
    let show = String::from_utf8(show.stdout).expect("text");
    assert!(show.starts_with("Requests as who asked a server saw them"), "{show}");
    assert!(show.contains("Next: put it beside the server's run"), "{show}");

    // Beside a server that had each request when it was sent, and sent each piece when it was here, nothing lies between.
    let server = dir.path().join("server.json");
    let mut profile = profile;
    for request in &mut profile.requests {
        request.arrived_ns = request.admitted_ns.expect("it was sent");
    }
    profile.save(&server).expect("it is written");
    let mut beside = brickscope(&[]);
    beside.arg("requests").arg(&server).arg("--json").arg("--client").arg(&run);
    let beside: Value =
        serde_json::from_slice(&beside.output().expect("it runs").stdout).expect("JSON");
    assert_eq!(beside["client"]["both"], 12);
    assert_eq!(beside["client"]["times"][1]["longest_ns"], 0);
    assert_eq!(beside["client"]["times"][3]["longest_ns"], 0);
    assert_eq!(beside["client"]["times"][3]["of"], 48);
    assert_eq!(beside["times"][0]["of"], 12);
}

#[test]
fn a_trace_is_asked_as_it_says_and_an_odd_line_is_named() {
    let fake = Fake::start(|_| Does::Answer);
    let dir = tempfile::tempdir().expect("a folder");
    let trace = dir.path().join("trace.csv");
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
        2023-11-16 18:17:03.9799600,400,40\nodd\n2023-11-16 18:17:04.0799600,600,80\n";
    // As PowerShell writes it.
    let units = "\u{feff}".encode_utf16().chain(text.encode_utf16());
    fs::write(&trace, units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).expect("a file");
    let mut load = brickscope(&[]);
    load.args(["load", &fake.url, "--lengths", "0.1", "--speed", "10", "--json", "--trace"]);
    load.arg(&trace).arg("--out").arg(dir.path().join("run"));
    let shown = load.output().expect("it runs");
    let said = String::from_utf8_lossy(&shown.stderr);
    assert!(said.contains("1 line of") && said.contains("line 3: column 1: no time"), "{said}");
    let json: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(json["figures"]["answered"], 2);
    assert_eq!(json["figures"]["answer_tokens"], 12);
    // To the tokens of a whole word: the fake's have two, after three.
    assert_eq!(json["figures"]["prompt_tokens"], 41 + 61);
    assert_eq!(json["due_per_second"], 100.0);
}

#[test]
fn what_cannot_be_asked_is_an_error_in_one_sentence() {
    let fake = Fake::start(|_| Does::Refuse(400));
    let dir = tempfile::tempdir().expect("a folder");
    for (words, said) in [
        (vec!["load", "ftp://x"], "ftp://x: it must begin with http:// or https://"),
        (vec!["load", &fake.url], "HTTP 400: no slot"),
        (vec!["load", &fake.url, "--slo", "x=1s"], "--slo: `x` is none of ttft, token and e2e"),
        (vec!["load", &fake.url, "--body", "[]"], "no JSON object"),
        (vec!["load", &fake.url, "--trace", "/dev/null"], "/dev/null"),
        (vec!["load", &fake.url, "--rate", "0"], "must be between"),
    ] {
        let mut load = brickscope(&[]);
        load.args(&words).current_dir(dir.path()).stdin(Stdio::null());
        let shown = load.output().expect("it runs");
        let text = String::from_utf8_lossy(&shown.stderr);
        assert!(!shown.status.success() && text.contains(said), "{words:?}: {text}");
        // No folder is made for nothing.
        assert_eq!(fs::read_dir(dir.path()).expect("the folder").count(), 0, "{words:?}");
    }
}
