//! A publisher with watchers that behave, watchers that don't, and watchers that come too late.
#![cfg(unix)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use brickscope::{BrickId, BrickProfiler, MockClock, Phase, Run};
use brickscope_live::socket::{
    Facts, Frame, LiveError, MOST_WATCHERS, Message, Messages, Next, Publisher, Starting, Watch,
};
use brickscope_testing::patience::{HANG, first_to_judge, until, wait_until};
use tempfile::TempDir;

/// A published profiler with a manual clock.
struct Engine {
    hand: MockClock,
    profiler: Arc<BrickProfiler>,
    publisher: Option<Publisher>,
    path: PathBuf,
    _folder: TempDir,
}

impl Engine {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("engine.sock");
        let hand = MockClock::default();
        let profiler = Arc::new(BrickProfiler::with_clock(hand.clock()));
        profiler.enable();
        profiler.set_kv_cache_tokens(64);
        let run = Run { backend: "avx2".to_owned(), threads: 2, ..Run::default() };
        let facts = Facts { run: Some(run), ..Facts::default() };
        let publisher = Publisher::start_at(&profiler, facts, &path).expect("it publishes");
        Self { hand, profiler, publisher: Some(publisher), path, _folder: folder }
    }

    fn token(&self, position: u64) {
        let pass = self.profiler.begin_pass(Phase::Decode);
        let layer = self.profiler.begin_layer(0);
        let timer = self.profiler.start_brick(BrickId::LmHead);
        self.hand.advance(90_000);
        self.profiler.stop_brick(timer, 32_000);
        self.profiler.end_layer(layer);
        self.hand.advance(10_000);
        self.profiler.end_pass(pass, 1, position);
    }

    fn watch(&self) -> Watch {
        watch(&self.path)
    }
}

/// Watches the publisher that listens on a socket.
fn watch(path: &Path) -> Watch {
    until("a hello", || match answered(|| Watch::socket(path)) {
        Ok(watch) => Some(watch),
        // The thread of a watcher that gave up notices it when it sends the next frame.
        Err(LiveError::Refused(why)) if why.starts_with("there are already ") => None,
        Err(error) => panic!("{error}"),
    })
}

/// What comes of watching, which is tried again where it took too long: the threads of whoever listens may wait for a
/// processor for longer than a watcher waits.
fn answered(mut watch: impl FnMut() -> Result<Watch, LiveError>) -> Result<Watch, LiveError> {
    until("an answer", || match watch() {
        Err(error) if is_time_out(&error) => None,
        answer => Some(answer),
    })
}

fn is_time_out(error: &LiveError) -> bool {
    let LiveError::Io { cause, .. } = error else { return false };
    matches!(cause.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

#[test]
fn requests_come_with_details_and_in_the_last_frame() {
    let judged = first_to_judge(|_| {
        let mut engine = Engine::start();
        let mut watch = engine.watch();
        let newest = frame(&mut watch);
        assert!(newest.requests.is_none(), "it has said nothing of any");
        let request = engine.profiler.requests().arrive("chatcmpl-1");
        engine.hand.advance(7);
        engine.profiler.requests().token(request);
        end(&mut engine, &mut watch, newest)
    });
    let Some(last) = judged else { return };
    let now = last.requests.expect("it has one");
    assert_eq!((now.of, now.going_on, now.left_out), (1, 1, 0));
    let [one] = &now.listed[..] else { panic!("{now:?}") };
    assert_eq!((&*one.id, one.last_ns, one.age_ns), ("chatcmpl-1", Some(7), 7));
}

/// Waits for the next frame.
fn frame(watch: &mut Watch) -> Frame {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < HANG, "no frame");
        match watch.next(Duration::from_secs(1)).expect("a frame") {
            Next::Frame(frame) => return *frame,
            Next::Nothing => {}
            Next::Gone => panic!("the publisher has gone"),
        }
    }
}

/// Ends the publisher, and returns the newest frame of its watcher, which has `newest` so far.
fn end(engine: &mut Engine, watch: &mut Watch, newest: Frame) -> Result<Frame, String> {
    let begun = Instant::now();
    drop(engine.publisher.take());
    let took = begun.elapsed();
    let mut last = newest;
    loop {
        match watch.next(Duration::from_secs(1)).expect("frames to the end") {
            Next::Frame(frame) => last = *frame,
            Next::Nothing => assert!(begun.elapsed() < HANG, "it has no end"),
            Next::Gone => break,
        }
    }
    // So long it waits for a thread that does nothing, such as one that gets no processor.
    match last.last || took < Duration::from_secs(2) {
        true => Ok(last),
        false => Err(format!("the watcher's thread did not end in {took:?}")),
    }
}

#[test]
fn a_watcher_hears_who_publishes_then_frames_and_a_last_one() {
    let judged = first_to_judge(|_| {
        let mut engine = Engine::start();
        engine.token(5);
        let mut watch = engine.watch();
        assert_eq!(watch.hello().pid, std::process::id());
        assert_eq!(watch.hello().facts.run.as_ref().expect("told").backend, "avx2");
        watch.ask(20).expect("asked");
        let first = frame(&mut watch);
        let decode = *first.profile.phase(Phase::Decode).expect("a pass");
        assert_eq!((decode.tokens, decode.wall_ns, decode.unattributed_ns), (1, 100_000, 10_000));
        assert_eq!(first.profile.observed.kv_cache_tokens, Some(64));
        assert_eq!(first.at_ns, 100_000);
        assert_eq!(first.profile.passes.last().expect("the newest").position, 5);
        assert_eq!(first.profile.totals[0].stats.histogram.count(), 0);
        assert!(first.profile.spans.is_empty());
        let second = frame(&mut watch);
        assert!(second.seq > first.seq && !second.last);

        engine.token(6);
        end(&mut engine, &mut watch, second).map(|last| (engine, last))
    });
    let Some((engine, last)) = judged else { return };
    assert!(last.last, "it ended in good order");
    assert_eq!(last.profile.phase(Phase::Decode).expect("passes").tokens, 2);
    // Layers are summed once somebody watches.
    let [row] = &last.profile.layers[..] else { panic!("{:?}", last.profile.layers) };
    assert!(last.details);
    assert_eq!((row.layer, row.count, row.exclusive_ns), (Some(0), 1, 90_000));
    assert!(!engine.path.exists(), "the socket is removed");
}

#[test]
fn a_last_frame_that_takes_long_is_waited_for() {
    let judged = first_to_judge(|_| {
        let mut engine = Engine::start();
        drop(engine.publisher.take());
        let (profiler, ends) = (Arc::clone(&engine.profiler), Arc::new(AtomicBool::new(false)));
        let is_slow = Arc::clone(&ends);
        let current = move || {
            if is_slow.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(600));
            }
            Arc::clone(&profiler)
        };
        let starting = Starting::begin_at(&engine.path).expect("it listens");
        let publisher = starting.publish_with(current, Facts::default());
        engine.publisher = Some(publisher.expect("it publishes"));
        let mut watch = engine.watch();
        let first = frame(&mut watch);
        ends.store(true, Ordering::Release);
        end(&mut engine, &mut watch, first)
    });
    let Some(last) = judged else { return };
    assert!(last.last, "it ended in good order");
}

#[test]
fn names_are_sent_now_and_then_and_numbers_in_between() {
    let engine = Engine::start();
    let stream = UnixStream::connect(&engine.path).expect("it listens");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    assert!(lines.next().expect("a line").starts_with(r#"{"hello":"#));
    engine.token(0);
    let whole = lines.find(|line| line.contains("LmHead")).expect("a whole frame of it");
    assert!(whole.starts_with(r#"{"frame":"#));
    // Whole frames come in between, and may include some of the tokens.
    let delta = (1..1_000).find_map(|position| {
        engine.token(position);
        lines.next().filter(|line| line.contains(r#""totals":[[0,["#))
    });
    let delta = delta.expect("a line of numbers");
    assert!(delta.starts_with(r#"{"delta":{"seq":"#), "{delta}");
    assert!(!delta.contains("LmHead") && delta.len() < 1_500, "{delta}");
}

#[test]
fn while_an_engine_starts_its_watchers_are_told_what_it_is_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("engine.sock");
    let starting = Starting::begin_at(&path).expect("it listens");
    starting.say("loading");
    let told = answered(|| Watch::socket_telling(&path, &mut |_| false));
    let told = told.expect_err("it waits for nothing");
    assert_eq!(told.to_string(), "the engine is still starting: loading");
    let (said, hears) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            answered(|| {
                Watch::socket_telling(&path, &mut |what| said.send(what.to_owned()).is_ok())
            })
        });
        assert_eq!(hears.recv().expect("it is told"), "loading");
        starting.say("warming up");
        while hears.recv().expect("it is told") != "warming up" {}
        let profiler = Arc::new(BrickProfiler::enabled());
        let publisher = starting.publish(&profiler, Facts::default()).expect("it publishes");
        assert_eq!(publisher.path(), path);
        let mut watch = watch.join().expect("no panic").expect("it publishes");
        assert!(!frame(&mut watch).last);
    });
}

#[test]
fn an_engine_that_never_runs_says_so() {
    // It can end once only, so that each try is of another one.
    let judged = first_to_judge(|_| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("engine.sock");
        let starting = Starting::begin_at(&path).expect("it listens");
        starting.say("loading");
        let mut starting = Some(starting);
        let mut took = Duration::ZERO;
        let told = Watch::socket_telling(&path, &mut |_| {
            // For example, its model can't be loaded.
            let begun = Instant::now();
            drop(starting.take());
            took = took.max(begun.elapsed());
            true
        });
        let told = told.expect_err("it has ended");
        // So long it waits for a thread that does nothing, such as one that gets no processor.
        if is_time_out(&told) || took >= Duration::from_secs(2) {
            return Err(format!(
                "its thread got no processor in time, {took:?} to its end: {told}"
            ));
        }
        assert!(!path.exists());
        Ok(told.to_string())
    });
    let Some(told) = judged else { return };
    assert_eq!(told, "the publisher says: the engine ended before it ran");
}

#[test]
fn frames_without_details_take_those_of_an_earlier_one() {
    let engine = Engine::start();
    let mut watch = engine.watch();
    watch.ask(20).expect("asked");
    // Layers are summed from the first frame on, and seven spans have a median.
    drop(frame(&mut watch));
    (0..7).for_each(|position| engine.token(position));
    let of_all = |frame: &Frame| {
        frame.details && frame.profile.totals.first().is_some_and(|total| total.stats.count == 7)
    };
    let mut earlier = frame(&mut watch);
    while !of_all(&earlier) {
        earlier = frame(&mut watch);
    }
    let mut later = frame(&mut watch);
    while later.details {
        later = frame(&mut watch);
    }
    assert!(
        later.profile.layers.is_empty() && later.profile.totals[0].percentiles.p50_ns.is_none()
    );
    later.take_details_of(&earlier);
    assert_eq!(later.profile.totals[0].percentiles.p50_ns, Some(90_000));
    assert_eq!(later.profile.layers, earlier.profile.layers);
    assert_eq!(later.profile.layers.len(), 1);

    // After a reset, the earlier percentiles describe other spans.
    later.profile.totals[0].stats.count = 1;
    later.profile.totals[0].percentiles = brickscope::Percentiles::default();
    later.take_details_of(&earlier);
    assert_eq!(later.profile.totals[0].percentiles.p50_ns, None);
}

#[test]
fn an_engine_can_wait_for_somebody_who_watches() {
    let engine = Engine::start();
    let publisher = engine.publisher.as_ref().expect("it publishes");
    assert!(!publisher.wait_for_watcher(Duration::from_millis(1)), "nobody has come");
    std::thread::scope(|scope| {
        scope.spawn(|| drop(frame(&mut engine.watch())));
        assert!(publisher.wait_for_watcher(HANG));
    });
}

#[test]
fn only_its_user_can_reach_the_socket() {
    let engine = Engine::start();
    let mode = std::fs::metadata(&engine.path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The private directory in which it was made is gone.
    let beside = engine.path.parent().expect("a folder").read_dir().expect("it is there");
    assert_eq!(beside.count(), 1);
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "mine").expect("written");
    let profiler = Arc::new(BrickProfiler::new());
    let told = Publisher::start_at(&profiler, Facts::default(), &path).expect_err("refused");
    assert!(told.to_string().contains("a file that isn't a socket"), "{told}");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "mine");
}

#[test]
fn one_watcher_too_many_is_told_so_and_the_others_go_on() {
    let engine = Engine::start();
    let mut watches: Vec<Watch> = (0..MOST_WATCHERS).map(|_| engine.watch()).collect();
    watches.iter_mut().for_each(|watch| drop(frame(watch)));
    let told = answered(|| Watch::socket(&engine.path));
    let told = told.expect_err("there is no room").to_string();
    assert_eq!(told, "the publisher says: there are already 4 watchers");
    drop(watches.pop());
    // Its thread notices when it sends the next frame.
    wait_until("room for a watcher", || Watch::socket(&engine.path).is_ok());
    drop(frame(&mut watches[0]));
}

#[test]
fn who_sends_no_request_is_told_why_and_who_sends_nothing_gets_frames() {
    let engine = Engine::start();
    for (said, why) in [
        ("rate=5\n".to_owned(), "not a request: expected value at line 1 column 1"),
        ("x".repeat(5_000), "bad request: the line is longer than 1024 bytes"),
    ] {
        let mut stream = UnixStream::connect(&engine.path).expect("it listens");
        // The publisher may hang up before it has read everything.
        let _ = stream.write_all(said.as_bytes());
        let mut messages = Messages::new(BufReader::new(stream));
        messages.hello().expect("it says who it is");
        let told = loop {
            let message = messages.next().expect("a message").expect("not the end");
            if let Message::Error(told) = message {
                break told;
            }
        };
        assert_eq!(told, why);
    }
    // Like `nc -U SOCKET < /dev/null`.
    let stream = UnixStream::connect(&engine.path).expect("it listens");
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut messages = Messages::new(BufReader::new(stream));
    messages.hello().expect("it says who it is");
    for _ in 0..3 {
        assert!(matches!(messages.next().expect("a frame"), Some(Message::Frame(_))));
    }
}

#[test]
fn a_watcher_that_takes_nothing_holds_up_neither_the_engine_nor_its_end() {
    let mut engine = Engine::start();
    // Enough names that a frame exceeds the socket's buffer.
    for name in 0..3_000 {
        let timer = engine.profiler.start(&format!("a brick with a long name, number {name}"));
        engine.profiler.stop(timer, 1);
    }
    let mut deaf = UnixStream::connect(&engine.path).expect("it listens");
    deaf.read_exact(&mut [0; 1]).expect("the hello");
    std::thread::sleep(Duration::from_millis(50));
    (0..1_000).for_each(|position| engine.token(position));
    assert_eq!(engine.profiler.brick_stats(BrickId::LmHead).count, 1_000);
    let begun = Instant::now();
    drop(engine.publisher.take());
    assert!(begun.elapsed() < HANG);
    assert!(!engine.path.exists());
}

#[test]
fn a_socket_that_a_dead_process_left_is_taken_over_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("1.sock");
    drop(UnixListener::bind(&path).expect("bound"));
    assert!(path.exists(), "dropping a listener leaves its socket");
    let told = Watch::socket(&path).expect_err("nobody listens").to_string();
    assert!(told.starts_with("nobody listens on "), "{told}");
    let profiler = Arc::new(BrickProfiler::new());
    let publisher = Publisher::start_at(&profiler, Facts::default(), &path).expect("taken over");
    let again = Publisher::start_at(&profiler, Facts::default(), &path).expect_err("in use");
    assert!(matches!(again, LiveError::InUse(_)), "{again}");
    drop(watch(&path));
    drop(publisher);
}

#[test]
fn what_can_not_be_watched_is_said() {
    // No process has this pid.
    let told = Watch::process(u32::MAX).expect_err("there is none").to_string();
    assert_eq!(told, "there is no process 4294967295");
    let mut told = Watch::process(std::process::id()).expect_err("it doesn't publish");
    // A process that had our number and was killed may have left its socket.
    while let LiveError::NobodyListens(left) = &told {
        std::fs::remove_file(left).expect("it is ours");
        told = Watch::process(std::process::id()).expect_err("it doesn't publish");
    }
    let told = told.to_string();
    assert!(told.contains("doesn't publish"), "{told}");
    assert!(told.contains("under `brickscope run`: that records it"), "{told}");

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("else.sock");
    let listener = UnixListener::bind(&path).expect("bound");
    // It ends with the program. A watcher that has given up reads nothing.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.expect("a watcher").write_all(b"HTTP/1.1 400 Bad Request\n");
        }
    });
    let told = answered(|| Watch::socket(&path)).expect_err("no publisher").to_string();
    assert!(told.starts_with("line 1: "), "{told}");
}

#[test]
fn what_was_recorded_of_a_socket_is_read_as_the_socket_is() {
    let engine = Engine::start();
    engine.token(0);
    let stream = UnixStream::connect(&engine.path).expect("it listens");
    let mut reader = BufReader::new(stream);
    let mut recorded = Vec::new();
    for _ in 0..2 {
        reader.read_until(b'\n', &mut recorded).expect("a line");
    }
    let mut messages = Messages::new(&recorded[..]);
    assert_eq!(messages.hello().expect("a hello").pid, std::process::id());
    let Some(Message::Frame(frame)) = messages.next().expect("a frame") else { panic!("no frame") };
    assert_eq!(frame.profile.phase(Phase::Decode).expect("a pass").tokens, 1);
    assert!(messages.next().expect("the end").is_none());
}
