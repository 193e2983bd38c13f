//! `brickscope run` of a server: which requests its passes are for, held against what the server itself says of each pass.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod hostile;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use brickscope::{Ending, Part, PartKind, Profile, Request};
use brickscope_analysis::requests::Requests;
use brickscope_testing::command::brickscope;

use crate::run;

/// A server that runs.
struct Server {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    port: u16,
    /// What it says of its passes.
    passes: Vec<String>,
}

impl Server {
    /// Begins one, which ends after as many connections.
    fn begin(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut passes = Vec::new();
        let port = loop {
            let mut line = String::new();
            said.read_line(&mut line).expect("it says something");
            match line.trim_end_matches('\n').split_once(' ').expect("two words") {
                ("port", port) => break port.parse().expect("a port"),
                (_, of) => passes.push(of.to_owned()),
            }
        };
        Self { child, said, port, passes }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).expect("it listens")
    }

    /// Waits for its end, and returns what it said of its passes.
    fn end(mut self) -> Vec<String> {
        let rest = self.said.by_ref().lines().map(|line| line.expect("text"));
        let passes = rest.filter_map(|line| Some(line.strip_prefix("pass ")?.to_owned()));
        self.passes.extend(passes.collect::<Vec<_>>());
        let ended = self.child.wait_with_output().expect("it ends");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        self.passes
    }
}

fn post(body: &str) -> String {
    let len = body.len();
    format!("POST /v1/completions?key=secret HTTP/1.1\r\nContent-Length: {len}\r\n\r\n{body}")
}

/// Sends something in pieces, and reads up to the end of an answer.
fn ask(stream: &mut TcpStream, pieces: &[&str], end: &str) -> String {
    for piece in pieces {
        stream.write_all(piece.as_bytes()).expect("it reads");
    }
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(end.as_bytes()) {
        let n = stream.read(&mut byte).expect("it answers");
        assert_eq!(n, 1, "it ends after {}", String::from_utf8_lossy(&answer));
        answer.push(byte[0]);
    }
    String::from_utf8(answer).expect("text")
}

const STREAM_ENDS: &str = "\r\n0\r\n\r\n";

/// What clients of all kinds ask, and what they get.
fn clients(server: &Server) -> Vec<String> {
    // Streams at once, of different lengths, each of which has a connection for itself.
    let streams = (0..6).map(|n| {
        let mut stream = server.connect();
        thread::spawn(move || {
            let body = format!("cmpl-{n} {} {} 0 1", 20 + 33 * n, 3 + 2 * n);
            let all = post(&body);
            // The head and the body come in two pieces each.
            let (head, rest) = all.split_at(30);
            ask(&mut stream, &[head, rest], STREAM_ENDS)
        })
    });
    let streams: Vec<_> = streams.collect();
    let mut answers: Vec<String> =
        streams.into_iter().map(|client| client.join().expect("it is answered")).collect();

    // One after another by one connection, with questions that no model answers between them.
    let mut kept = server.connect();
    answers.push(ask(&mut kept, &["GET /health HTTP/1.1\r\n\r\n"], "ok"));
    answers.push(ask(&mut kept, &[&post("cmpl-before 70 2 0 1")], STREAM_ENDS));
    let expects =
        post("cmpl-whole-1 40 4 0 0").replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    answers.push(ask(&mut kept, &[&expects], "\"cmpl-whole-1\"}"));
    // What looks like a request is the end of a body.
    let text = "cmpl-whole-2 50 4 20 0\nPOST /v1/completions HTTP/1.1\r\n";
    let all = post(text);
    let (head, rest) = all.split_at(all.len() - 33);
    answers.push(ask(&mut kept, &[head, rest], "\"cmpl-whole-2\"}"));
    answers.push(ask(&mut kept, &[&post("nonsense")], "\"\"}}"));
    answers.push(ask(&mut kept, &[&post("cmpl-after 60 3 0 1")], STREAM_ENDS));

    // Who goes away in the middle.
    let mut gone = server.connect();
    answers.push(ask(&mut gone, &[&post("cmpl-gone 25 9 0 1")], "\"4\""));
    answers
}

const CONNECTIONS: &str = "8";

/// The profile of a run of clients, what the server said of its passes, and the answers.
fn served(
    server: &str,
) -> (Profile, Vec<String>, Vec<String>, std::path::PathBuf, tempfile::TempDir) {
    let (command, run, dir) = run::command(server, &[CONNECTIONS], &[]);
    let server = Server::begin(command);
    let answers = clients(&server);
    let passes = server.end();
    let profile = Profile::load(&run.join("profile.json")).expect("it was recorded");
    (profile, passes, answers, run, dir)
}

fn named<'p>(profile: &'p Profile, id: &str) -> (u32, &'p Request) {
    let found = profile.requests.iter().zip(0..).find(|(of, _)| of.id == id);
    let (of, nth) = found.unwrap_or_else(|| panic!("no {id}: {:?}", profile.requests));
    (nth, of)
}

#[test]
fn each_pass_of_a_server_has_the_requests_that_it_was_for() {
    is_as_it_says("serves/server");
}

/// Batches of newer versions, and a program that was compiled with `_FORTIFY_SOURCE`.
#[test]
fn each_pass_of_a_server_with_other_batches_has_the_requests_that_it_was_for() {
    is_as_it_says("serves/server-ext");
}

fn is_as_it_says(server: &str) {
    let (profile, said, answers, run, _dir) = served(server);
    assert_eq!(profile.check(), Ok(()));

    // Answers are those that the server gives alone.
    let mut alone = Command::new(run::programs().join(server));
    alone.arg(CONNECTIONS);
    let server = Server::begin(alone);
    assert_eq!(clients(&server), answers);
    server.end();

    // Pass by pass, what it says.
    let mut passes: Vec<_> = profile.passes.iter().collect();
    passes.sort_by_key(|pass| pass.start_ns);
    let mut parts: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
    for of in &profile.parts {
        parts.entry(of.pass).or_default().push(of.part);
    }
    let seen = passes.iter().map(|pass| {
        let parts = parts.get(&pass.serial).map_or(&[][..], Vec::as_slice);
        let part = |part: &Part| {
            let id = profile.requests.get(part.request as usize).map_or("?", |of| &of.id);
            let kind = if part.kind == PartKind::Prompt { 'p' } else { 'd' };
            format!("{id}:{kind}{}@{}", part.tokens, part.position)
        };
        parts.iter().map(part).collect::<Vec<_>>().join(" ")
    });
    assert_eq!(seen.collect::<Vec<_>>(), said);

    // Each token of a stream left after the pass that computed it, and before those of the next two passes had to.
    let ends = |id: &str| -> Vec<u64> {
        let (nth, _) = named(&profile, id);
        let own = profile.parts.iter().filter(|of| of.part.request == nth);
        let mut own: Vec<_> = own.collect();
        own.sort_by_key(|of| of.part.position);
        let end = |serial: u32| {
            let pass = profile.passes.iter().find(|pass| pass.serial == serial);
            pass.map(|pass| pass.start_ns + pass.wall_ns).expect("it is there")
        };
        let prompts = own.iter().filter(|of| of.part.kind == PartKind::Prompt).count();
        own[prompts - 1..].iter().map(|of| end(of.pass)).collect()
    };
    for n in 0..6 {
        let id = format!("cmpl-{n}");
        let (_, of) = named(&profile, &id);
        assert_eq!((of.tokens_ns.len(), of.ending), (3 + 2 * n, Some(Ending::Length)), "{id}");
        let computed = ends(&id);
        assert_eq!(computed.len(), of.tokens_ns.len(), "{id}");
        assert!(computed.iter().zip(&of.tokens_ns).all(|(computed, left)| computed <= left));
    }
    for (id, tokens, ending) in [
        ("cmpl-before", 2, Ending::Length),
        ("cmpl-whole-1", 0, Ending::Length),
        ("cmpl-whole-2", 0, Ending::Length),
        ("cmpl-after", 3, Ending::Length),
        ("/v1/completions 10", 0, Ending::Error),
    ] {
        let (_, of) = named(&profile, id);
        assert_eq!((of.tokens_ns.len(), of.ending), (tokens, Some(ending)), "{id}");
    }
    let (_, gone) = named(&profile, "cmpl-gone");
    assert_eq!(gone.ending, Some(Ending::Cancelled));
    assert_eq!(gone.tokens_ns.len(), 5);
    assert_eq!(profile.requests.len(), 12);
    // Neither of the address, of a question or of an answer.
    let whole = std::fs::read_to_string(run.join("profile.json")).expect("text");
    assert!(whole.contains("/v1/completions"));
    for text in ["secret", "HTTP/1.1", "finish_reason"] {
        assert!(!whole.contains(text), "{text}");
    }

    // What a request found in the cache is stated once.
    let (nth, _) = named(&profile, "cmpl-whole-2");
    let own = profile.parts.iter().filter(|of| of.part.request == nth);
    let cached: Vec<u64> = own.map(|of| of.part.cached).collect();
    assert_eq!((cached[0], cached[1..].iter().sum::<u64>()), (20, 0));

    for of in Requests::of(&profile).all_intervals() {
        assert_eq!(of.pieces.iter().sum::<u64>(), of.ns());
    }

    let mut command = brickscope(&["requests"]);
    let output = command.arg(&run).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("requests  12, ended: cancelled 1, error 1, length 10\n"), "{text}");
}

/// What there is no room for is in the sums, and of what is kept each pass is known.
#[test]
fn requests_that_have_no_room_are_summed_and_the_slowest_are_kept_with_their_passes() {
    const CLIENTS: u64 = 8;
    const EACH: u64 = 4;
    const TOKENS: u64 = 400;
    let options = ["--keep", "tail", "--keep-mib", "2"];
    let connections = CLIENTS.to_string();
    let (command, run, _dir) = run::command_of(&options, "serves/server", &[&connections], &[]);
    let server = Server::begin(command);
    let clients: Vec<_> = (0..CLIENTS).map(|client| (client, server.connect())).collect();
    let clients = clients.into_iter().map(|(client, mut stream)| {
        thread::spawn(move || {
            for nth in 0..EACH {
                let prompt = 20 + 31 * client + 7 * nth;
                let body = post(&format!("cmpl-{client}-{nth} {prompt} {TOKENS} 0 1"));
                stream.write_all(body.as_bytes()).expect("it reads");
                let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
                while !answer.ends_with(STREAM_ENDS.as_bytes()) {
                    let n = stream.read(&mut piece).expect("it answers");
                    assert!(n > 0, "it ends");
                    answer.extend(&piece[..n]);
                }
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    let said = server.end();
    clients.into_iter().for_each(|client| client.join().expect("it is answered"));
    let profile = Profile::load(&run.join("profile.json")).expect("it was recorded");
    assert_eq!(profile.check(), Ok(()));

    let kept = profile.kept.as_ref().and_then(|of| of.requests.as_ref()).expect("not all fit");
    let all = CLIENTS * EACH;
    assert_eq!((kept.requests, &kept.endings[..]), (all, &[(Ending::Length, all)][..]));
    assert_eq!((kept.first_token.count, kept.whole.count), (all, all));
    assert_eq!(kept.between_tokens.count, all * (TOKENS - 1));
    assert!(kept.kept() >= 1 && kept.kept() < all, "{}", kept.kept());
    assert!(!kept.covered.is_empty());
    let requests = Requests::of(&profile);
    for of in requests.all_intervals() {
        assert_eq!(of.pieces.iter().sum::<u64>(), of.ns());
    }
    // As many tokens as it got, and passes that the server knows.
    let first = kept.sample.first().copied().unwrap_or(0);
    assert_eq!(profile.requests[first as usize].tokens_ns.len() as u64, TOKENS);
    let mut parts: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
    for of in &profile.parts {
        parts.entry(of.pass).or_default().push(of.part);
    }
    let mut known = 0;
    for parts in parts.values() {
        let part = |part: &Part| {
            let id = &profile.requests.get(part.request as usize)?.id;
            let kind = if part.kind == PartKind::Prompt { 'p' } else { 'd' };
            Some(format!("{id}:{kind}{}@{}", part.tokens, part.position))
        };
        let Some(line) = parts.iter().map(part).collect::<Option<Vec<_>>>() else { continue };
        assert!(said.contains(&line.join(" ")), "{line:?}");
        known += 1;
    }
    assert!(known > 100, "{known}");

    let output = brickscope(&["requests"]).arg(&run).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("requests  {all}, ended: length {all}\ntimes and counts are of all {all}; ");
    assert!(text.starts_with(&all), "{text}");
    assert_eq!(text.matches("what follows").count(), 1, "{text}");
}

/// Also those after which no pass came yet, of which it isn't settled whose turn they had.
#[test]
fn what_is_kept_so_far_of_a_server_counts_each_request_once() {
    const CLIENTS: u64 = 8;
    const EACH: u64 = 2;
    const TOKENS: u64 = 500;
    let options = ["--keep", "tail", "--keep-mib", "1", "--when", "ttft>0us"];
    let connections = CLIENTS.to_string();
    let (command, run, dir) = run::command_of(&options, "serves/server", &[&connections], &[]);
    let server = Server::begin(command);
    let id = server.child.id().to_string();
    let streams: Vec<TcpStream> = (0..CLIENTS).map(|_| server.connect()).collect();
    // What it says of its passes is read meanwhile.
    let server = thread::spawn(move || server.end());
    let clients = streams.into_iter().zip(0_u64..).map(|(mut stream, client)| {
        thread::spawn(move || {
            for nth in 0..EACH {
                let body = post(&format!("cmpl-{client}-{nth} {} {TOKENS} 0 1", 20 + 31 * client));
                ask(&mut stream, &[&body], STREAM_ENDS);
            }
            stream
        })
    });
    let clients: Vec<_> = clients.collect();
    let streams: Vec<TcpStream> =
        clients.into_iter().map(|client| client.join().expect("it is answered")).collect();
    let mut asking = brickscope(&["requests", "--attach", &id]);
    let asked = asking.env("TMPDIR", dir.path()).output().expect("it starts");
    let so_far = run.with_file_name("run-so-far-1").join("profile.json");
    assert!(so_far.exists(), "{}", String::from_utf8_lossy(&asked.stderr));
    let n = CLIENTS * EACH;
    let text = String::from_utf8_lossy(&asked.stdout);
    assert!(text.starts_with(&format!("requests  {n}, ended: length {n}\n")), "{text}");
    drop(streams);
    server.join().expect("it ends");

    for file in [so_far, run.join("profile.json")] {
        let profile = Profile::load(&file).expect("it was recorded");
        assert_eq!(profile.check(), Ok(()), "{}", file.display());
        let kept = profile.kept.as_ref().and_then(|of| of.requests.as_ref()).expect("not all fit");
        let all = CLIENTS * EACH;
        assert_eq!((kept.requests, &kept.endings[..]), (all, &[(Ending::Length, all)][..]));
        assert_eq!(kept.between_tokens.count, all * (TOKENS - 1));
        let fired = profile.fired.expect("there was a condition");
        let asked = fired.asked.expect("it is one on first tokens");
        assert_eq!((fired.fired, asked.first_tokens, asked.requests), (all, all, all));
    }
}

/// Each streamed answer has a first token, and took longer than nothing for it.
#[test]
fn each_first_token_that_came_late_is_counted_and_its_passes_are_there() {
    let options = ["--keep", "tail", "--when", "ttft>0us"];
    let (command, run, _dir) = run::command_of(&options, "serves/server", &[CONNECTIONS], &[]);
    let server = Server::begin(command);
    clients(&server);
    server.end();
    let profile = Profile::load(&run.join("profile.json")).expect("it was recorded");
    assert_eq!(profile.check(), Ok(()));
    let streamed = profile.requests.iter().filter(|of| !of.tokens_ns.is_empty()).count() as u64;
    let fired = profile.fired.expect("there was a condition");
    assert_eq!((fired.fired, fired.whole, streamed), (9, 9, 9), "{fired:?}");
    let asked = fired.asked.expect("it is one on first tokens");
    assert_eq!((asked.requests, asked.first_tokens), (12, 9));
    assert_eq!(fired.line(), "9 first tokens took over 0 s; 9 are kept whole");
}

/// As Ollama does, which passes what it is asked on to children.
#[test]
fn each_server_that_a_parent_starts_and_passes_requests_on_to_is_a_run() {
    let server = run::programs().join("serves/server");
    let words = [server.to_str().expect("a path"), "2", "2"];
    let asked = [(40, 9), (30, 3), (50, 9), (20, 3)];
    let answers = |server: &Server| -> Vec<String> {
        let all = asked.iter().enumerate().map(|(n, (prompt, tokens))| {
            let body = post(&format!("cmpl-{n} {prompt} {tokens} 0 1"));
            ask(&mut server.connect(), &[&body], STREAM_ENDS)
        });
        all.collect()
    };
    let (command, run, _dir) = run::command_of(&["--follow"], "serves/parent", &words, &[]);
    let parent = Server::begin(command);
    let recorded = answers(&parent);
    parent.end();
    let mut alone = Command::new(run::programs().join("serves/parent"));
    alone.args(words);
    let parent = Server::begin(alone);
    assert_eq!(answers(&parent), recorded, "answers are those that it gives alone");
    parent.end();

    // The one that computed most, and the other one. What came to the parent is a request of neither.
    let of = |folder: &str| Profile::load(&run.join(folder)).expect("it was recorded");
    let (first, second) = (of("profile.json"), of("context-2/profile.json"));
    for (profile, ids) in [(&first, ["cmpl-0", "cmpl-2"]), (&second, ["cmpl-1", "cmpl-3"])] {
        assert_eq!(profile.check(), Ok(()));
        assert_eq!(profile.requests.len(), 2, "{:?}", profile.requests);
        for id in ids {
            let (nth, of) = named(profile, id);
            let tokens = if profile.requests[0].id == "cmpl-0" { 9 } else { 3 };
            assert_eq!((of.tokens_ns.len(), of.ending), (tokens, Some(Ending::Length)), "{id}");
            let own = profile.parts.iter().filter(|part| part.part.request == nth);
            assert!(own.count() > 0, "{id} is tied to its passes");
        }
    }
    assert_ne!(first.process, second.process);
    let told = first.run.map(|run| run.beside).unwrap_or_default();
    let [beside] = &told[..] else { panic!("{told:?}") };
    let process = second.process.expect("it is known");
    assert!(beside.name.ends_with(&format!(" in process {process}")), "{}", beside.name);
    assert_eq!(beside.folder, "context-2");
}

#[test]
fn who_breaks_off_or_sends_nonsense_harms_nobody() {
    let (command, run, _dir) = run::command("serves/server", &["8"], &[]);
    let server = Server::begin(command);
    let hostile: [&[u8]; 5] = [
        b"",
        b"\x16\x03\x01\x02\x00",
        b"POST",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 10\r\n\r\nab",
    ];
    for bytes in hostile {
        server.connect().write_all(bytes).expect("it reads");
    }
    // A head that never ends.
    let mut endless = server.connect();
    let line = format!("X: {}\r\n", "y".repeat(60));
    let until = Instant::now() + Duration::from_secs(10);
    let _ = endless.write_all(b"POST /v1/completions HTTP/1.1\r\n");
    while Instant::now() < until && endless.write_all(line.as_bytes()).is_ok() {}
    drop(endless);
    // Two at once: whose answers are whose can't be told.
    let mut both = server.connect();
    let first =
        ask(&mut both, &[&(post("cmpl-1 30 3 0 1") + &post("cmpl-2 60 3 0 1"))], STREAM_ENDS);
    assert!(first.contains("cmpl-1"), "{first}");
    let second = ask(&mut both, &[], STREAM_ENDS);
    assert!(second.contains("cmpl-2") && !second.contains("cmpl-1"), "{second}");
    drop(both);
    let answer = ask(&mut server.connect(), &[&post("cmpl-last 40 5 0 1")], STREAM_ENDS);
    assert_eq!(answer.matches("\"finish_reason\":null").count(), 5);
    server.end();
    let profile = Profile::load(&run.join("profile.json")).expect("it was recorded");
    assert_eq!(profile.check(), Ok(()));
    for (id, tokens) in [("cmpl-1", 3), ("cmpl-last", 5)] {
        let (_, of) = named(&profile, id);
        assert_eq!((of.tokens_ns.len(), of.ending), (tokens, Some(Ending::Length)), "{id}");
    }
    assert!(!profile.requests.iter().any(|of| of.id == "cmpl-2"));
}
