//! Tests of screens: known frames go through the wire format into the state and onto a screen in memory.

use std::sync::Arc;

use brickscope::{
    BrickId, BrickProfiler, Ceilings, Ending, Grain, HostLaunch, MockClock, Model, Part, Phase,
    Run, SimulatedDevice, StreamId, Work,
};
use brickscope_analysis::requests::Now;
use brickscope_live::socket::{Facts, Frame, Hello, Message, Messages};
use brickscope_profile::{Disturbance, Pass};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::draw;
use crate::app::{App, BrickRow, Death, Event, State};
use crate::look::Look;
use crate::process::{Cpus, Memory, Reading, Thread};
use crate::text::is_unprintable;

/// A terminal of today, without colours.
const UNICODE: Look = Look { has_colour: false, is_unicode: true };

/// An engine with a mock clock.
struct Engine {
    hand: MockClock,
    profiler: Arc<BrickProfiler>,
    seq: u64,
    layers: u16,
}

impl Engine {
    fn new() -> Self {
        let hand = MockClock::default();
        let profiler = Arc::new(BrickProfiler::with_clock(hand.clock()));
        profiler.enable();
        profiler.sum_layers(true);
        profiler.set_kv_cache_tokens(128);
        Self { hand, profiler, seq: 0, layers: 3 }
    }

    fn facts() -> Facts {
        let model = Model {
            path: "models/tiny.gguf".to_owned(),
            name: Some("tiny \u{1b}[31m\u{202e} name".to_owned()),
            quantization: "q4_k".to_owned(),
            ..Model::default()
        };
        let run = Run { backend: "avx2".to_owned(), threads: 2, ..Run::default() };
        let ceilings = Ceilings {
            read_bytes_per_second: 10e9,
            flops_per_second: 100e9,
            basis: "told by the test".to_owned(),
            ..Ceilings::default()
        };
        Facts { run: Some(run), model: Some(model), ceilings: Some(ceilings), ..Facts::default() }
    }

    fn brick(&self, brick: BrickId, kernel: &str, micros: u64, work: Work) {
        let launch = HostLaunch { shape: "64×64".to_owned(), threads: 2 };
        let kernel = self.profiler.kernel(kernel, Some(launch));
        let timer = self.profiler.start_brick_kernel(brick, kernel);
        self.hand.advance(1_000 * micros);
        self.profiler.stop_brick_kernel(timer, work);
    }

    /// A pass in which each layer takes longer than the one before, and a millisecond is unattributed.
    fn pass(&self, phase: Phase, tokens: u64, position: u64) {
        let pass = self.profiler.begin_pass(phase);
        for layer in 0..self.layers {
            let timer = self.profiler.begin_layer(layer);
            let moved = Work { elements: 64, flops: 100_000, bytes: 1_000_000, ..Work::default() };
            self.brick(BrickId::QkvProjection, "gemv_q4_k", 200 + 100 * u64::from(layer), moved);
            self.brick(BrickId::Activation, "silu_mul", 20, Work::elements(64));
            self.profiler.end_layer(timer);
        }
        self.brick(BrickId::LmHead, "gemv_q6_k", 400, Work::elements(64));
        self.hand.advance(1_000_000);
        self.profiler.end_pass(pass, tokens, position);
    }

    fn frame(&mut self, last: bool) -> Frame {
        self.seq += 1;
        let at_ns = self.profiler.clock().now();
        let profile = self.profiler.snapshot();
        let lately = self.profiler.requests().lately();
        let requests = lately.map(|lately| Now::of(&lately, at_ns));
        let (seq, made_ns) = (self.seq, 100_000 * self.seq);
        Frame { seq, at_ns, made_ns, last, profile, details: true, requests }
    }

    fn hello(&self) -> Hello {
        let mut hello = Hello::new(self.profiler.clock().describe(), Self::facts());
        hello.pid = 4711;
        hello
    }
}

/// The state after these messages have gone through the wire format.
fn replay(app: &mut App, messages: &[Message]) {
    let mut recorded = Vec::new();
    for message in messages {
        serde_json::to_writer(&mut recorded, message).expect("it is data");
        recorded.push(b'\n');
    }
    let mut messages = Messages::new(&recorded[..]);
    while let Some(message) = messages.next().expect("it was written") {
        app.update(match message {
            Message::Hello(hello) => Event::Hello(hello),
            Message::Frame(frame) => Event::Frame(frame),
            other => panic!("{other:?}"),
        });
    }
}

/// An engine that has run for some seconds, with readings of its process.
fn running() -> (Engine, App) {
    let mut engine = Engine::new();
    engine.pass(Phase::Prefill, 60, 0);
    let mut messages = vec![Message::Hello(Box::new(engine.hello()))];
    for position in 0..1_500 {
        if position % 100 == 0 {
            messages.push(Message::Frame(Box::new(engine.frame(false))));
        }
        engine.pass(Phase::Decode, 1, 60 + position % 60);
    }
    messages.push(Message::Frame(Box::new(engine.frame(false))));
    let mut app = App::new(UNICODE);
    replay(&mut app, &messages);
    for second in 0..3 {
        let thread = |tid, name: &str, run_ns| Thread {
            tid,
            name: name.to_owned(),
            run_ns,
            wait_ns: 50_000_000 * second,
        };
        let reading = Reading {
            at_ns: 1_000_000_000 * second,
            memory: Some(Memory {
                resident_bytes: 812_000_000,
                peak_bytes: Some(900_000_000),
                file_bytes: None,
            }),
            threads: Some(vec![
                thread(4711, "engine", 900_000_000 * second),
                thread(4712, "worker\n", 800_000_000 * second),
            ]),
            own: Some(170 * second),
            watcher: Some(second),
            cpus: Some(Cpus { busy: 180 * second, all: 200 * second, steal: Some(0) }),
        };
        app.update(Event::Process(Ok(Box::new(reading))));
    }
    (engine, app)
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '↓' => KeyCode::Down,
            '→' => KeyCode::Right,
            '⎋' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        app.update(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
}

/// A screen of this size as text.
fn text(app: &App, width: u16, height: u16) -> Result<String, std::convert::Infallible> {
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| draw(app, frame))?;
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let mut line = String::new();
        let mut x = 0;
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character also takes the next cells.
            x += crate::text::columns(symbol).max(1) as u16;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}

fn screen(app: &App) -> String {
    text(app, 80, 24).expect("a screen in memory")
}

#[test]
fn the_screens_of_a_running_engine() {
    let (_engine, mut app) = running();
    insta::assert_snapshot!("bricks", screen(&app));
    insta::assert_snapshot!("bricks_wide", text(&app, 120, 40).expect("a screen in memory"));
    let widest = text(&app, 200, 50).expect("a screen in memory");
    assert!(widest.lines().filter(|line| line.is_empty()).count() <= 25, "{widest}");
    insta::assert_snapshot!("bricks_widest", widest);
    press(&mut app, "\n");
    insta::assert_snapshot!("brick", screen(&app));
    press(&mut app, "⎋\t↓→");
    insta::assert_snapshot!("heat", screen(&app));
    press(&mut app, "\t\n↓\n");
    insta::assert_snapshot!("tree", screen(&app));
    press(&mut app, "\t");
    insta::assert_snapshot!("system", screen(&app));
    press(&mut app, "f");
    insta::assert_snapshot!("findings", screen(&app));
    press(&mut app, "?");
    insta::assert_snapshot!("help", screen(&app));
}

/// An engine that serves: of three requests one has ended, one gets tokens and one waits.
fn serving() -> App {
    let mut engine = Engine::new();
    let profiler = Arc::clone(&engine.profiler);
    let requests = profiler.requests();
    let pass = |parts: &[Part], ms: u64| {
        let pass = profiler.begin_pass_of(parts);
        engine.hand.advance(1_000_000 * ms);
        profiler.end_pass(pass, parts.iter().map(|part| part.tokens).sum(), 0);
    };
    let a = requests.arrive("chatcmpl-a");
    requests.admit(a);
    pass(&[Part::prompt(a, 8, 0)], 20);
    requests.token(a);
    let b = requests.arrive("chatcmpl-bee\u{1b}[31m");
    engine.hand.advance(5_000_000);
    requests.admit(b);
    pass(&[Part::decode(a, 8), Part::prompt(b, 512, 0)], 80);
    engine.hand.advance(1_000_000);
    requests.token(a);
    requests.token(b);
    requests.end(a, Ending::Length);
    let _ = requests.arrive("c");
    engine.hand.advance(2_000_000);
    pass(&[Part::decode(b, 512)], 10);
    requests.token(b);
    let messages =
        [Message::Hello(Box::new(engine.hello())), Message::Frame(Box::new(engine.frame(false)))];
    let mut app = App::new(UNICODE);
    replay(&mut app, &messages);
    app
}

#[test]
fn the_page_of_requests_has_those_that_go_on_and_how_long_all_take() {
    let mut app = serving();
    press(&mut app, "6");
    insta::assert_snapshot!("requests", screen(&app));
    insta::assert_snapshot!("requests_wide", text(&app, 120, 40).expect("a screen in memory"));
    insta::assert_snapshot!("requests_widest", text(&app, 200, 50).expect("a screen in memory"));
    press(&mut app, "\n");
    app.look = Look::plain();
    let ended = screen(&app);
    assert!(ended.is_ascii(), "{ended}");
    insta::assert_snapshot!("requests_ascii", ended);
    press(&mut app, "\n");
    assert!(screen(&app).contains("\n + 1 ended\n"));
    // For scripts.
    let json = app.json().expect("it is data").expect("a frame");
    let numbers: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(numbers["requests"]["listed"][0]["longest"]["ns"], 86_000_000);
    assert_eq!(numbers["requests"]["times"][0]["of"], 2);
    // What isn't known of a request that waits is null, and why is said.
    assert!(numbers["requests"]["listed"][1]["last_ns"].is_null(), "{numbers}");
    let absent = numbers["absent"].as_array().expect("rows");
    let why = absent.iter().find(|row| row["field"] == "requests.listed[].last_ns");
    assert_eq!(why.map(|row| &row["reason"]), Some(&"it has no token yet".into()));
}

#[test]
fn an_engine_without_requests_says_why_there_are_none() {
    let (_engine, mut app) = running();
    press(&mut app, "6");
    let page = screen(&app);
    let why = " absent: the engine tells of no requests (docs/requests.md says how it can)\n";
    assert!(page.contains(why), "{page}");
}

#[test]
fn the_screens_of_a_terminal_without_unicode_are_ascii() {
    let (_engine, mut app) = running();
    app.look = Look::plain();
    insta::assert_snapshot!("bricks_ascii", screen(&app));
    for keys in ["2", "3\n", "4", "5", "6", "?"] {
        press(&mut app, keys);
        let shown = text(&app, 120, 40).expect("a screen in memory");
        assert!(shown.is_ascii(), "{shown}");
    }
    press(&mut app, "x1");
    assert!(super::text(&app, 80).is_ascii());
}

#[test]
fn each_brick_has_a_bar_at_every_width() {
    let (_engine, app) = running();
    for width in [80, 99, 100, 120, 200] {
        let printed = super::text(&app, width);
        let row = printed.lines().find(|line| line.starts_with(">QkvProjection"));
        let row = row.expect("it is the first");
        assert!(row.contains("████"), "{width}: {row}");
        // The whole row, to what limits it.
        assert!(row.ends_with("memory") && row.chars().count() <= width, "{width}: {row}");
    }
}

#[test]
fn findings_can_be_read_whole_and_scroll() {
    let (_engine, mut app) = running();
    let whole = |app: &App| text(app, 80, 200).expect("a screen in memory");
    press(&mut app, "2f");
    let page = whole(&app);
    for part in ["FINDINGS", "42.4 % of decode is in no brick", "predicted", "refuted if"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // What is below the screen comes by scrolling, and no further than the end.
    let last = page.lines().filter(|line| !line.is_empty()).nth_back(1).expect("lines").to_owned();
    let small = |app: &App| text(app, 80, 8).expect("a screen in memory");
    assert!(!small(&app).contains(&last), "{last}");
    press(&mut app, "G");
    assert!(small(&app).contains(&last), "{}", small(&app));
    let at_end = small(&app);
    press(&mut app, "↓");
    assert_eq!(small(&app), at_end);
    press(&mut app, "k");
    assert_ne!(small(&app), at_end, "one line up is one key");
    press(&mut app, "f");
    assert!(screen(&app).contains("layers by bricks"), "it goes back to where it was called");
    press(&mut app, "f⎋");
    assert!(!app.has_quit);
}

#[test]
fn what_is_printed_is_whole_whatever_a_screen_has_room_for() {
    let (engine, mut app) = running();
    let pass = engine.profiler.begin_pass(Phase::Decode);
    for nth in 0..60 {
        let timer = engine.profiler.start(&format!("brick {nth}"));
        engine.profiler.stop(timer, 1);
    }
    engine.profiler.end_pass(pass, 1, 0);
    let mut engine = engine;
    replay(&mut app, &[Message::Frame(Box::new(engine.frame(false)))]);
    let printed = super::text(&app, 80);
    for nth in 0..60 {
        let name = format!(" brick {nth} ");
        assert!(printed.contains(&name), "{name}: {printed}");
    }
    assert!(printed.lines().last().expect("lines").starts_with(" unattributed"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    assert!(!printed.contains("q:quit"), "there is nobody who presses keys");
}

#[test]
fn before_frames_come_and_after_the_engine_has_died() {
    let mut app = App::new(UNICODE);
    app.update(Event::Starting("warming up".to_owned()));
    insta::assert_snapshot!("starting", text(&app, 80, 6).expect("a screen in memory"));
    let (_engine, mut app) = running();
    let said = ["loading", "Error: no memory for the KV cache", "", "Caused by: 8 GB asked for"];
    let said = said.map(str::to_owned).to_vec();
    let how = Some("signal: 9 (SIGKILL)".to_owned());
    app.update(Event::Gone(Death { how, said: Some(said) }));
    let died = screen(&app);
    assert!(died.starts_with(" THE ENGINE HAS DIED: signal: 9 (SIGKILL)."), "{died}");
    for line in ["Error: no memory for the KV cache", "Caused by: 8 GB asked for"] {
        assert!(died.lines().any(|of| of.trim() == line), "{line}: {died}");
    }
    assert!(died.contains("QkvProjection"), "the last screen stays");
    // Keys still work.
    press(&mut app, "2");
    assert!(screen(&app).contains("layers by bricks"));
    press(&mut app, "q");
    assert!(app.has_quit);
}

#[test]
fn an_engine_that_says_that_it_ends_has_not_died() {
    let (mut engine, mut app) = running();
    replay(&mut app, &[Message::Frame(Box::new(engine.frame(true)))]);
    app.update(Event::Gone(Death::default()));
    assert_eq!(app.state, State::Ended);
    assert!(
        screen(&app).lines().next().expect("a title").ends_with("ENDED, this is the last frame")
    );
}

#[test]
fn the_first_finding_about_the_phase_is_a_line() {
    let (mut engine, mut app) = running();
    let line = |app: &App| {
        let is_finding = |line: &&str| line.starts_with(" finding ");
        screen(app).lines().find(is_finding).map(str::to_owned)
    };
    let decode = " finding  42.4 % of decode is in no brick; predicted: up to 42 % less: 1.00 ms …";
    assert_eq!(line(&app).as_deref(), Some(decode));
    press(&mut app, "p");
    // So far the prompt took less than a twentieth of the run.
    assert_eq!(line(&app), None);
    press(&mut app, "p");
    // Rules are asked once a second, and at the end.
    for _ in 0..500 {
        engine.pass(Phase::Prefill, 1, 0);
    }
    let asked = |app: &App| app.seen().expect("a snapshot").findings.expect("asked");
    let before = asked(&app);
    replay(&mut app, &[Message::Frame(Box::new(engine.frame(false)))]);
    let after = asked(&app);
    assert!(!std::rc::Rc::ptr_eq(&before, &after));
    engine.pass(Phase::Decode, 1, 0);
    replay(&mut app, &[Message::Frame(Box::new(engine.frame(false)))]);
    assert!(std::rc::Rc::ptr_eq(&after, &asked(&app)));
    replay(&mut app, &[Message::Frame(Box::new(engine.frame(true)))]);
    assert!(!std::rc::Rc::ptr_eq(&after, &asked(&app)));
}

#[test]
fn a_slow_engine_has_no_rate_of_0_and_is_disturbed_in_the_phase_that_was() {
    let mut engine = Engine::new();
    engine.pass(Phase::Prefill, 60, 0);
    let mut messages = vec![Message::Hello(Box::new(engine.hello()))];
    for position in 60..63 {
        let pass = engine.profiler.begin_pass(Phase::Decode);
        engine.hand.advance(4_000_000_000);
        engine.profiler.end_pass(pass, 1, position);
        let mut frame = engine.frame(false);
        let of_decode = |pass: &&mut Pass| pass.phase == Phase::Decode;
        for pass in frame.profile.passes.iter_mut().filter(of_decode) {
            let wait = Some(pass.wall_ns / 2);
            pass.disturbance = Some(Disturbance {
                passes: 1,
                wall_ns: pass.wall_ns,
                run_queue_wait_ns: wait,
                longest_wait_ns: wait,
                ..Disturbance::default()
            });
        }
        messages.push(Message::Frame(Box::new(frame)));
    }
    let mut app = App::new(UNICODE);
    replay(&mut app, &messages);
    let decode = text(&app, 120, 40).expect("a screen in memory");
    assert!(decode.contains(" 0 to 0.25 tok/s, 8 s"), "{decode}");
    assert!(decode.contains(" in the newest; "), "{decode}");
    // The cause is on a narrow screen, too, and of nearly all passes none is left out.
    let narrow = text(&app, 80, 24).expect("a screen in memory");
    assert!(narrow.contains(" in the newest; "), "{narrow}");
    assert!(!decode.contains("leaves out"), "{decode}");
    press(&mut app, "p");
    let prefill = text(&app, 120, 40).expect("a screen in memory");
    assert!(prefill.contains(" disturbs prefill: "), "{prefill}");
    assert!(!prefill.contains(" in the newest; "), "that is one of decode: {prefill}");
}

#[test]
fn the_window_is_what_happened_lately_and_its_percentiles_are_absent() {
    let (_engine, mut app) = running();
    let all = app.rows();
    press(&mut app, "w");
    let recent = app.rows();
    assert_eq!(all.len(), recent.len());
    // Passes of 3.36 ms: frames come each 336 ms, so the first that is two seconds ago is the sixth.
    let qkv = |rows: &[BrickRow]| {
        let row = rows.iter().find(|row| row.name == "QkvProjection").expect("it ran").clone();
        (row.count, row.exclusive_ns, row.p50_ns.is_some())
    };
    let per_pass = 3;
    assert_eq!(qkv(&all), (1_500 * per_pass, 1_500 * 900_000, true));
    let (count, ns, has_percentiles) = qkv(&recent);
    assert!(!has_percentiles);
    assert_eq!(ns, count / per_pass * 900_000);
    assert!((500..=1_000).contains(&(count / per_pass)), "{count}");
    assert!(screen(&app).contains("the last 2 s"));
}

#[test]
fn a_paused_view_stays_and_goes_on_where_the_engine_is() {
    let (mut engine, mut app) = running();
    press(&mut app, " ");
    let before = app.rows();
    (0..10).for_each(|position| engine.pass(Phase::Decode, 1, position));
    replay(&mut app, &[Message::Frame(Box::new(engine.frame(false)))]);
    assert_eq!(app.rows(), before);
    assert!(screen(&app).lines().next().expect("a title").ends_with("PAUSED, running"));
    // The system's data on the process stays as well.
    let looked = (app.memory(), app.activity().cloned());
    assert!(looked.0.is_ok() && looked.1.is_ok());
    let reading = Reading { at_ns: 9_000_000_000, ..Reading::default() };
    app.update(Event::Process(Ok(Box::new(reading))));
    assert_eq!((app.memory(), app.activity().cloned()), looked);
    press(&mut app, " ");
    assert_eq!(app.rows()[0].count, before[0].count + 30);
}

#[test]
fn bricks_are_sorted_and_filtered() {
    let (_engine, mut app) = running();
    let names = |app: &App| app.rows().into_iter().map(|row| row.name).collect::<Vec<_>>();
    assert_eq!(names(&app), ["QkvProjection", "LmHead", "Activation"]);
    press(&mut app, "s");
    assert_eq!(names(&app)[0], "LmHead", "by the average");
    press(&mut app, "ss");
    assert_eq!(names(&app)[0], "QkvProjection", "the only one of which the roof is known");
    press(&mut app, "sS");
    assert_eq!(names(&app), ["QkvProjection", "LmHead", "Activation"], "by name, reversed");
    press(&mut app, "/head\n");
    assert_eq!(names(&app), ["LmHead"]);
    press(&mut app, "/⎋");
    assert_eq!(names(&app).len(), 3);
    press(&mut app, "/nothing\n");
    assert!(screen(&app).contains("no brick has this in its name"));
}

#[test]
fn an_engine_that_forgets_begins_anew() {
    let (mut engine, mut app) = running();
    engine.profiler.reset();
    engine.pass(Phase::Decode, 1, 0);
    replay(&mut app, &[Message::Frame(Box::new(engine.frame(false)))]);
    let seen = app.seen().expect("a snapshot");
    assert!(seen.window.is_err(), "there is nothing before it");
    assert_eq!(app.rows()[0].count, 3);
}

/// No size, state or key makes it panic, and no name reaches the terminal unescaped.
#[test]
fn any_size_will_do_and_hostile_names_are_spelt_out() {
    let hostile =
        "\u{1b}[2J</script>\"'\n\r\t🔥\u{202e}\u{9b}\u{7f}\u{200b}\u{2066}\u{feff}\u{2028}";
    let mut engine = Engine::new();
    for _ in 0..3 {
        let pass = engine.profiler.begin_pass(Phase::Decode);
        let layer = engine.profiler.begin_layer(65_534);
        for nth in 0..60 {
            let kernel = engine.profiler.kernel(&format!("{nth}{hostile}"), None);
            let timer = engine.profiler.start(&format!("{hostile}{nth}"));
            let inner = engine.profiler.start_kernel(kernel);
            engine.hand.advance(1_000);
            engine.profiler.stop_kernel(inner, Work::default());
            engine.profiler.stop(timer, 1);
        }
        engine.profiler.end_layer(layer);
        engine.profiler.end_pass(pass, 1, u64::MAX);
    }
    let messages =
        [Message::Hello(Box::new(engine.hello())), Message::Frame(Box::new(engine.frame(false)))];
    for (width, height) in [(80, 24), (40, 10), (10, 3), (1, 1), (300, 100)] {
        let mut app = App::new(Look { has_colour: true, is_unicode: true });
        let tabs = ["⎋2→→↓", "3+\n↓\n", "4↓", "5↓G", "6\n↓"];
        for keys in ["", "?", "x", "\n"].into_iter().chain(tabs).chain(["w", "p", "1", "G", "/z"]) {
            press(&mut app, keys);
            let _ = text(&app, width, height).expect("a screen in memory");
            if keys.is_empty() {
                replay(&mut app, &messages);
            }
            let shown = text(&app, width, height).expect("a screen in memory");
            let odd = shown.chars().find(|&c| is_unprintable(c) && c != '\n');
            assert_eq!(odd, None, "{shown}");
        }
        let said = Some(vec![hostile.repeat(9), hostile.to_owned()]);
        app.update(Event::Gone(Death { how: Some(hostile.to_owned()), said }));
        let _ = text(&app, width, height).expect("a screen in memory");
        app.look = Look::plain();
        let shown = text(&app, width, height).expect("a screen in memory");
        assert!(shown.is_ascii(), "{shown}");
    }
}

#[test]
fn without_colour_there_is_none_and_nothing_is_missing() {
    let (_engine, mut app) = running();
    for keys in ["", "2", "3\n", "4"] {
        press(&mut app, keys);
        let drawn = |app: &App| {
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("in memory");
            terminal.draw(|frame| draw(app, frame)).expect("in memory");
            let cells = terminal.backend().buffer().content().to_vec();
            let is_plain = |colour| colour == Color::Reset;
            let plain = cells.iter().all(|cell| is_plain(cell.fg) && is_plain(cell.bg));
            (plain, cells.iter().map(|cell| cell.symbol().to_owned()).collect::<String>())
        };
        app.look.has_colour = false;
        let (is_plain, without) = drawn(&app);
        assert!(is_plain);
        app.look.has_colour = true;
        let (is_plain, with) = drawn(&app);
        assert!(!is_plain);
        assert_eq!(with, without);
    }
}

/// Eight passes of a device whose limits are known, each timed as finely as `grain` says of its position.
fn on_a_device(grain: impl Fn(u64) -> Grain) -> App {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    for position in 0..8 {
        timer.set_grain(grain(position));
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        for (layer, ns) in [(0, 30_000), (1, 10_000)] {
            let brick = [BrickId::QkvProjection, BrickId::LmHead][usize::from(layer)];
            let work = Work { elements: 1, flops: 1_000, bytes: 100_000, ..Work::default() };
            timer.brick(&mut device, StreamId(0), Some(layer), brick, work).expect("room");
            device.launch(StreamId(0), ns);
        }
        timer.end_pass(&mut device).expect("it is open");
        timer.settle(&mut device, true).expect("it is there");
    }
    timer.finish(&mut device).expect("it is there");
    let clock = profiler.clock();
    let of = Ceilings {
        read_bytes_per_second: 10e9,
        flops_per_second: 100e9,
        basis: "told by the test".to_owned(),
        ..Ceilings::default()
    };
    let facts = Facts { ceilings: None, device_ceilings: Some(of), ..Engine::facts() };
    let mut hello = Hello::new(clock.describe(), facts);
    hello.pid = 4711;
    let frame = Frame {
        seq: 1,
        at_ns: clock.now(),
        made_ns: 1,
        last: true,
        profile: profiler.snapshot(),
        details: true,
        requests: None,
    };
    let mut app = App::new(UNICODE);
    replay(&mut app, &[Message::Hello(Box::new(hello)), Message::Frame(Box::new(frame))]);
    app
}

/// What is outside of bricks, for scripts: the parts of all passes.
fn outside(app: &App) -> Vec<(String, u64)> {
    let json = app.json().expect("it is data").expect("a frame");
    let numbers: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let rows = numbers["categories"].as_array().expect("rows").iter();
    rows.filter_map(|row| Some((row["rest"].as_str()?.to_owned(), row["exclusive_ns"].as_u64()?)))
        .collect()
}

#[test]
fn a_device_of_which_only_whole_passes_were_timed_has_no_gaps() {
    let app = on_a_device(|_| Grain::Pass);
    let text = super::text(&app, 120);
    let rests = outside(&app);
    assert_eq!(rests.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["whole passes", "gaps"]);
    assert!(rests[0].1 > 0 && rests[1].1 == 0, "{rests:?}");
    assert!(text.contains("only layers, or the whole pass, were timed"), "{text}");
    assert!(!text.contains("unattributed"), "{text}");
}

#[test]
fn passes_of_a_device_that_were_timed_by_layer_are_no_gaps_and_its_limits_are_known() {
    // Bricks of two passes, layers of the others.
    let app = on_a_device(|n| if n < 2 { Grain::Brick } else { Grain::Layer });
    let text = super::text(&app, 120);
    assert!(text.contains("2 of 8 passes were timed by brick"), "{text}");
    let row = |name: &str| {
        let mut rows = text.lines().filter(|line| line[1..].starts_with(name));
        rows.next().unwrap_or_else(|| panic!("no {name}: {text}")).to_owned()
    };
    assert!(row("gaps").contains(" 0.0"), "{text}");
    assert!(row("QkvProjection").contains(" 75.0"), "{text}");
    for wrong in ["unattributed", "outside of all bricks", "not measured"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
    let rests = [("in layers", 6 * 40_000), ("gaps", 0)];
    assert_eq!(outside(&app), rests.map(|(name, ns)| (name.to_owned(), ns)));
}
