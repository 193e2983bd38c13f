//! A thousand connections at once, many of which are no good: what the others get, and what is recorded. And what a kill in the
//! middle leaves.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;

use brickscope::{Ending, Profile};
use brickscope_testing::command;
use brickscope_testing::patience::{skipped, until};

use super::{STREAM_ENDS, Server, ask, named, post};
use crate::run;

/// More than 1,024, behind which `select` has no room for a file.
const CONNECTIONS: usize = 1_100;
/// Open files for these on both sides, and for what other tests of this process have open.
const FILES: u64 = 4_096;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// Asks for an answer as a whole, or token by token.
    Whole,
    Stream,
    /// Writes, or reads, a byte at a time.
    SlowToWrite,
    SlowToRead,
    /// Asks once more when it is answered, or before.
    Twice,
    Both,
    /// Asks for what the server refuses.
    Refused,
    /// Connects, and sends nothing; or a part of a head, or of a body; or no HTTP.
    Silent,
    HalfHead,
    HalfBody,
    Nonsense,
    /// Goes away in the middle of an answer, or before it.
    Leaves,
    LeavesAtOnce,
}

impl Client {
    fn of(nth: usize) -> Self {
        match nth % 20 {
            0 => Self::Silent,
            1 => Self::HalfHead,
            2 => Self::HalfBody,
            3 => Self::Nonsense,
            4 => Self::Leaves,
            5 => Self::LeavesAtOnce,
            6 => Self::Refused,
            7 => Self::SlowToWrite,
            8 => Self::SlowToRead,
            9 => Self::Twice,
            10 => Self::Both,
            even if even % 2 == 0 => Self::Whole,
            _ => Self::Stream,
        }
    }

    fn is_stream(self) -> bool {
        !matches!(self, Self::Whole)
    }

    /// How many requests come from it whose path the server reads.
    fn asks(self, nth: usize) -> u64 {
        match self {
            Self::Silent | Self::Nonsense => 0,
            // The path is whole when what follows it has come.
            Self::HalfHead => u64::from(cut(nth) > "POST /v1/completions".len()),
            Self::Twice | Self::Both => 2,
            _ => 1,
        }
    }
}

/// A number below another one that looks random, and is the same each time.
fn random(nth: usize, below: usize) -> usize {
    nth.wrapping_mul(0x9e37_79b9).rotate_left(7).wrapping_mul(0x85eb_ca6b) % below
}

/// How much of a head comes.
fn cut(nth: usize) -> usize {
    1 + random(nth, 60)
}

fn tokens(nth: usize) -> usize {
    2 + nth % 4
}

/// The first request of a client, or its second one.
fn request(nth: usize, is_second: bool) -> String {
    let is_stream = u8::from(Client::of(nth).is_stream());
    // A length that no other one has: of a client whose request is never whole.
    let (of, name) = if is_second { (nth - 9, "-b") } else { (nth, "") };
    post(&format!("cmpl-{nth}{name} {} {} 0 {is_stream}", 10 + of, tokens(nth)))
}

/// Begins what a client does. `None` if it has left.
fn begin(nth: usize, mut stream: TcpStream) -> Option<TcpStream> {
    let whole = request(nth, false);
    let bytes = whole.as_bytes();
    let mut send = |bytes: &[u8]| stream.write_all(bytes).expect("it reads");
    match Client::of(nth) {
        Client::Silent => {}
        Client::HalfHead => send(&bytes[..cut(nth)]),
        Client::HalfBody => send(&bytes[..bytes.len() - 3]),
        Client::Nonsense => send(b"\x16\x03\x01\x02\x00\xff"),
        Client::Refused => send(post("nonsense").as_bytes()),
        Client::Both => send((whole.clone() + &request(nth, true)).as_bytes()),
        Client::SlowToWrite => {
            stream.set_nodelay(true).expect("it is one of TCP");
            for byte in bytes {
                stream.write_all(&[*byte]).expect("it reads");
            }
        }
        Client::LeavesAtOnce => {
            send(bytes);
            return None;
        }
        _ => send(bytes),
    }
    Some(stream)
}

/// Reads so many bytes at a time until there are as many answers.
fn answers(stream: &mut TcpStream, end: &str, n: usize, at_once: usize) -> Vec<u8> {
    let (mut all, mut piece): (Vec<u8>, Vec<u8>) = (Vec::new(), vec![0; at_once]);
    let end = end.as_bytes();
    let mut found = 0;
    while found < n {
        let got = match stream.read(&mut piece) {
            Err(why) if why.kind() == ErrorKind::Interrupted => continue,
            got => got.expect("it answers"),
        };
        assert!(got > 0, "it ends after {}", String::from_utf8_lossy(&all));
        // Only what came now may have made one whole.
        let from = (all.len() + 1).saturating_sub(end.len());
        all.extend(&piece[..got]);
        found += all[from..].windows(end.len()).filter(|of| *of == end).count();
    }
    all
}

/// What a client gets of what it asked for, if it asked for anything and waits for all of it.
fn gets(nth: usize, stream: &mut TcpStream) -> Option<Vec<u8>> {
    const AT_ONCE: usize = 4_096;
    Some(match Client::of(nth) {
        Client::Whole => answers(stream, &format!("\"cmpl-{nth}\"}}"), 1, AT_ONCE),
        Client::Stream | Client::SlowToWrite => answers(stream, STREAM_ENDS, 1, AT_ONCE),
        Client::SlowToRead => answers(stream, STREAM_ENDS, 1, 1),
        Client::Both => answers(stream, STREAM_ENDS, 2, AT_ONCE),
        Client::Twice => {
            let mut all = answers(stream, STREAM_ENDS, 1, AT_ONCE);
            stream.write_all(request(nth, true).as_bytes()).expect("it reads");
            all.extend(answers(stream, STREAM_ENDS, 1, AT_ONCE));
            all
        }
        Client::Refused => answers(stream, "\"\"}}", 1, AT_ONCE),
        Client::Leaves => {
            let mut some = vec![0; 1 + random(nth, 200)];
            assert!(stream.read(&mut some).expect("it answers") > 0);
            return None;
        }
        _ => return None,
    })
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).expect("it listens")
}

/// What those get who wait for all that they asked for, of a thousand who are there at once.
fn storm(port: u16) -> BTreeMap<usize, Vec<u8>> {
    const THREADS: usize = 8;
    let mut of_threads: Vec<Vec<(usize, TcpStream)>> = (0..THREADS).map(|_| Vec::new()).collect();
    for nth in 0..CONNECTIONS {
        // So that each thread has some of each kind.
        of_threads[nth / 20 % THREADS].push((nth, connect(port)));
    }
    let threads = of_threads.into_iter().map(|all| {
        thread::spawn(move || {
            let begun = all.into_iter().map(|(nth, stream)| (nth, begin(nth, stream)));
            let begun: Vec<_> = begun.collect();
            let got = begun.into_iter().filter_map(|(nth, stream)| {
                let mut stream = stream?;
                Some((nth, gets(nth, &mut stream)?))
            });
            got.collect::<Vec<_>>()
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().flat_map(|thread| thread.join().expect("all is answered")).collect()
}

/// Waits for the end of a server, and returns what `brickscope run` said, in one line.
fn end(mut server: Server) -> String {
    let mut passes = String::new();
    server.said.read_to_string(&mut passes).expect("text");
    let ended = server.child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The number that stands before or after some words; 0 if these were not said.
fn number(said: &str, words: &str) -> u64 {
    let Some((before, after)) = said.split_once(words) else { return 0 };
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    let last = before.rsplit(' ').next().unwrap_or_default();
    let found = if digits.is_empty() { last } else { digits.as_str() };
    found.parse().unwrap_or_else(|_| panic!("no number beside {words:?}: {said}"))
}

/// Whether this process may have as many files open, and those that it starts: the limit is raised if that is allowed.
fn may_have_files() -> Result<(), String> {
    let most = || -> Option<u64> {
        let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
        let limits = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let soft = limits.split_whitespace().next()?;
        if soft == "unlimited" { Some(u64::MAX) } else { soft.parse().ok() }
    };
    if most().is_some_and(|most| most >= FILES) {
        return Ok(());
    }
    let process = std::process::id().to_string();
    // A system call that std hasn't.
    let raise =
        Command::new("prlimit").args(["--pid", &process, &format!("--nofile={FILES}:")]).output();
    if most().is_some_and(|most| most >= FILES) {
        return Ok(());
    }
    let why = raise.map_or_else(
        |why| format!("prlimit: {why}"),
        |of| String::from_utf8_lossy(&of.stderr).trim().to_owned(),
    );
    Err(format!("{FILES} open files aren't allowed: {why}"))
}

#[test]
fn a_thousand_at_once_get_what_they_get_without_us_and_each_request_is_counted() {
    if let Err(why) = may_have_files() {
        skipped(&why);
        return;
    }
    let serve = |command: Command| {
        let server = Server::begin(command);
        let port = server.port;
        // What it says of its passes is read meanwhile, so that it never waits for that.
        let ended = thread::spawn(move || end(server));
        let got = storm(port);
        (got, ended.join().expect("it ends"))
    };
    let connections = CONNECTIONS.to_string();
    let (command, run, _dir) = run::command("serves/server", &[&connections], &[("QUICK", "")]);
    let (got, said) = serve(command);
    let mut alone = Command::new(run::programs().join("serves/server"));
    alone.arg(&connections).env("QUICK", "");
    let (without, _) = serve(alone);
    assert_eq!(got.len(), without.len());
    for (nth, answer) in &got {
        let [with, without] = [answer, &without[nth]].map(|of| String::from_utf8_lossy(of));
        assert_eq!(with, without, "{nth}");
    }

    let profile = Profile::load(&run.join("profile.json")).expect("it was recorded");
    assert_eq!(profile.check(), Ok(()));
    // Each that came is recorded or counted: only those who don't wait for an answer aren't recorded.
    let count = |client: Client| (0..CONNECTIONS).filter(|nth| Client::of(*nth) == client).count();
    let asked: u64 = (0..CONNECTIONS).map(|nth| Client::of(nth).asks(nth)).sum();
    let missed = profile.dropped.missed_requests;
    assert_eq!(profile.requests.len() as u64 + missed, asked, "{said}");
    assert!(missed <= count(Client::Both) as u64, "{said}");
    assert_eq!(profile.dropped.requests, 0);
    let endings = |ending: Ending| {
        let all = profile.requests.iter().filter(move |of| of.ending == Some(ending));
        all.collect::<Vec<_>>()
    };
    assert_eq!(endings(Ending::Error).len(), count(Client::Refused));
    // So is each whose passes aren't known: somebody of unknown length may have gone in the middle of a prompt.
    let whole = endings(Ending::Length);
    let no_turn = whole.iter().filter(|of| of.admitted_ns.is_none()).count() as u64;
    let not_tied = [" requests are tied to no passes", " request is tied to no passes"];
    let not_tied: u64 = not_tied.iter().map(|words| number(&said, words)).sum();
    assert_eq!(no_turn, not_tied, "{said}");
    assert!(no_turn < whole.len() as u64, "none of {} is tied", whole.len());
    for (nth, is_second) in got.keys().flat_map(|nth| [(*nth, false), (*nth, true)]) {
        let client = Client::of(nth);
        if client == Client::Refused || is_second && client != Client::Twice {
            continue;
        }
        let (_, of) = named(&profile, &format!("cmpl-{nth}{}", if is_second { "-b" } else { "" }));
        let expected = if client.is_stream() { tokens(nth) } else { 0 };
        assert_eq!((of.tokens_ns.len(), of.ending), (expected, Some(Ending::Length)), "{}", of.id);
    }
}

/// Starts a server that records, and clients of it, one of which has its answer, one never will, and one has a part of it.
fn in_the_middle() -> (Server, String, std::path::PathBuf, tempfile::TempDir, Vec<TcpStream>) {
    let (command, run, dir) = run::command("serves/server", &["9"], &[]);
    let server = Server::begin(command);
    let process = server_of(server.child.id());
    let mut done = server.connect();
    ask(&mut done, &[&post("cmpl-done 70 3 0 1")], STREAM_ENDS);
    let mut half = server.connect();
    half.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nContent-").expect("it reads");
    let mut long = server.connect();
    // A kill may come between the sending of a token and its record: of six that came, five are recorded.
    ask(&mut long, &[&post("cmpl-long 40 1000000 0 1")], "\"5\"");
    (server, process, run, dir, vec![done, half, long])
}

/// The process of the server that `brickscope run` has started.
fn server_of(parent: u32) -> String {
    let is_server = |process: &str| {
        let program = std::fs::read_link(format!("/proc/{process}/exe"));
        program.is_ok_and(|program| program.ends_with("serves/server"))
    };
    until("the server's process", || {
        let threads = std::fs::read_dir(format!("/proc/{parent}/task")).ok()?;
        threads.flatten().find_map(|thread| {
            let children = std::fs::read_to_string(thread.path().join("children")).ok()?;
            children.split_whitespace().find(|child| is_server(child)).map(str::to_owned)
        })
    })
}

/// Whether the system tells which processes a process has started.
fn tells_children() -> bool {
    let tells = Path::new("/proc/thread-self/children").exists();
    if !tells {
        skipped("the system doesn't tell which processes a process has started");
    }
    tells
}

fn signal(signal: &str, process: &str) {
    let sent = Command::new("kill").args([signal, process]).status();
    assert!(sent.expect("kill").success(), "{signal} {process}");
}

/// What was recorded up to a kill is in the profile.
fn has_what_came(profile: &Profile) {
    assert_eq!(profile.check(), Ok(()));
    let (_, done) = named(profile, "cmpl-done");
    assert_eq!((done.tokens_ns.len(), done.ending), (3, Some(Ending::Length)));
    assert!(done.admitted_ns.is_some());
    let (_, long) = named(profile, "cmpl-long");
    assert!(long.tokens_ns.len() >= 5 && long.ending.is_none(), "{long:?}");
}

#[test]
fn a_server_that_is_killed_leaves_the_requests_that_came() {
    if !tells_children() {
        return;
    }
    let (mut server, process, run, _dir, clients) = in_the_middle();
    signal("-KILL", &process);
    let mut passes = String::new();
    server.said.read_to_string(&mut passes).expect("text");
    let ended = server.child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(128 + 9), "{said}");
    drop(clients);
    has_what_came(&Profile::load(&run.join("profile.json")).expect("it is written"));
}

#[test]
fn a_server_that_is_killed_with_us_is_named_by_the_next_run_and_can_be_read() {
    if !tells_children() {
        return;
    }
    let (mut server, process, run, dir, clients) = in_the_middle();
    // Else it would write the run.
    signal("-STOP", &server.child.id().to_string());
    signal("-KILL", &process);
    server.child.kill().expect("it runs");
    server.child.wait().expect("it ends");
    drop(clients);
    assert!(!run.exists());
    let (mut next, _, _dir) = run::command("/usr/bin/true", &[], &[]);
    let next = next.env("TMPDIR", dir.path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&next.stderr);
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("1 earlier run did not come to the end"), "{said}");
    assert!(words.contains("serves/server 9, in"), "{said}");
    let mut recover = Command::new(command::program());
    recover.args(["run", "--recover", "--out"]).arg(&run).env("TMPDIR", dir.path());
    let recovered = recover.env("BRICKSCOPE_CACHE", command::cache()).output();
    let recovered = recovered.expect("it starts");
    let said = String::from_utf8_lossy(&recovered.stderr);
    assert_eq!(recovered.status.code(), Some(0), "{said}");
    has_what_came(&Profile::load(&run.join("profile.json")).expect("it is written"));
}
