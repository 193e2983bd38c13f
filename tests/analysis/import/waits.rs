//! What devices waited for, by the traces that `tests/traces/run` has, too: what is shown of them is what a script finds there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use brickscope::{Phase, Profile};
use brickscope_analysis::compare::{Options, Process, Side, compare};
use brickscope_analysis::explain;
use brickscope_analysis::findings::Findings;
use brickscope_analysis::rate::{ByDevice, Rate, RateOf};
use brickscope_analysis::stacks::{By, Stacks};
use brickscope_analysis::view::{self, Size};
use brickscope_formats::import::{Format, join, state_limits};

use super::{FOLDED, imported};

const STREAMS: &str = include_str!("../../data/import/kineto-streams.json");
const TRAINING: &str = include_str!("../../data/import/kineto-training.json");

/// The first screen on one line, with its words one space apart.
fn screen(profile: &Profile) -> String {
    let text = view::summary(profile, Size { columns: 80, rows: 40 }, None).to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The whole report, likewise.
fn report(profile: &Profile) -> String {
    view::report(profile).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first step alone.
fn first_step() -> String {
    let lines = STREAMS.lines().filter(|line| {
        let at = line.split("\"ts\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
        at.is_none_or(|at| at.parse::<f64>().is_ok_and(|at| at < 5_006_000.0))
    });
    lines.collect::<Vec<_>>().join("\n").replace(",\n]}", "\n]}")
}

#[test]
fn a_device_that_waits_for_the_host_is_said_to() {
    let profile = imported(&first_step(), Format::Chrome);
    let screen = screen(&profile);
    // From 4010.125 µs on: kernels until 4600 µs, a copy of 20.125 µs until 4730.25 µs.
    for said in [
        "the device is busy 610 µs of 720 µs from its first kernel to its last, 84.7%;",
        "before its first kernel it waited 4.01 ms for the host to launch it;",
        "gaps 15.3 %",
        "Next: the device waits 4.01 ms of 4.73 ms a pass of decode for the host to launch its first kernel;",
    ] {
        assert!(screen.contains(said), "{said}: {screen}");
    }
    assert!(!screen.contains("of the host's time"), "{screen}");
    let said = "before its first kernel it waited 4.01 ms from the begin of the host's pass, for 4.01 ms of it the host had \
                launched nothing";
    assert!(report(&profile).contains(said), "{}", report(&profile));
    let findings = Findings::of(&profile);
    assert_eq!(findings.found[0].rule, "launch-bound");
}

#[test]
fn of_several_devices_the_one_that_waits_is_named() {
    // The trace's device is the second one now, beside one that is busy all the time.
    let mut lines: Vec<String> =
        first_step().replace("\"device\":0", "\"device\":1").lines().map(str::to_owned).collect();
    for nth in 0..5 {
        let (launched, at) = (5_000_001 + nth, 5_000_010 + 900 * nth);
        lines.insert(2, format!(
            "{{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"hipLaunchKernel\",\"pid\":1,\"tid\":1,\"ts\":{launched},\
             \"dur\":0.5,\"args\":{{\"correlation\":{}}}}},\n{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"own_{nth}\",\
             \"pid\":0,\"tid\":3,\"ts\":{at},\"dur\":899,\"args\":{{\"device\":0,\"stream\":3,\"correlation\":{}}}}},",
            100 + nth,
            100 + nth
        ));
    }
    let profile = imported(&lines.join("\n"), Format::Chrome);
    assert_eq!(profile.devices.len(), 2);
    let screen = screen(&profile);
    let said = "Next: device 1 waits 4.01 ms";
    let either = screen.contains(said) || screen.contains("launch earlier: device 1 waits 4.01 ms");
    assert!(either, "{screen}");
    let pages = explain::find_in("gaps", &profile);
    let figures = pages[0].in_run(&profile).sections;
    assert_eq!(figures.len(), 3, "{figures:?}");
    let busy = explain::find("busy")[0].in_run(&profile).sections;
    assert!(
        busy[0].text.contains("of 4.50 ms") && busy[1].text.contains("610 µs of 720 µs"),
        "{busy:?}"
    );
}

#[test]
fn what_is_compared_of_a_trace_is_the_device_and_a_pass_counts_once() {
    let profile = imported(&first_step(), Format::Chrome);
    let process = Process::from_profile("a", &profile).expect("it has passes");
    let names: Vec<&str> = process.tests.iter().map(|test| &*test.name).collect();
    assert_eq!(names, ["decode on the device"]);
    // From 4010.125 to 4730.125 µs, of which nothing ran from 4600 to 4710.
    let test = &process.tests[0];
    assert_eq!((&test.wall_ns[..], &test.unattributed_ns[..]), (&[720_000][..], &[110_000][..]));
    let mut bricks: Vec<(&str, u64)> =
        test.bricks.iter().map(|brick| (&*brick.name, brick.ns[0])).collect();
    bricks.sort_unstable();
    assert_eq!(bricks, [("AllReduce", 400_000), ("Copy", 20_125), ("MatMul", 550_750)]);
    // Without the host's passes of 5000.5 and 500 µs, which only launched this.
    let both = imported(STREAMS, Format::Chrome);
    assert_eq!(both.passes.len(), 2);
    let process = Process::from_profile("b", &both).expect("it has passes");
    assert_eq!(process.tests.len(), 1);
    assert_eq!(process.tests[0].wall_ns, [720_000, 870_000]);
    assert!(process.doubts.is_empty(), "{:?}", process.doubts);
    // What must be alike of passes is asked of them wherever they ran.
    assert!(process.tests[0].facts.iter().any(|fact| fact.name == "tokens of a decode pass"));
}

#[test]
fn two_traces_have_as_many_samples_as_passes() {
    let side = |name: &str, text: &str| Side {
        name: name.to_owned(),
        processes: vec![
            Process::from_profile(name, &imported(text, Format::Chrome)).expect("it has passes"),
        ],
    };
    let slower = STREAMS.replace("\"dur\":30,", "\"dur\":31,");
    let compared = compare(&side("a", STREAMS), &side("b", &slower), &Options::default());
    let compared = compared.expect("they are alike");
    assert_eq!((compared.a.samples, compared.b.samples), (2, 2));
    let tests: Vec<&str> = compared.tests.iter().map(|test| &*test.name).collect();
    assert_eq!(tests, ["decode on the device"]);
    assert!(compared.differences.is_empty(), "{:?}", compared.differences);
    // On another device it is another question, which is said.
    let other = slower.replace("\"name\":\"a device\"", "\"name\":\"another device\"");
    let compared = compare(&side("a", STREAMS), &side("b", &other), &Options::default());
    let said: Vec<String> =
        compared.expect("they are alike").differences.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["names of devices: a device and another device"]);
    // Of devices without names only the numbers differ.
    let name = r#""deviceProperties":[{"id":0,"name":"a device"}],"#;
    let unnamed = |text: &str| text.replace(name, "");
    let first = unnamed(STREAMS);
    assert_ne!(first, STREAMS);
    let second = unnamed(&slower).replace("\"device\":0", "\"device\":1");
    let compared = compare(&side("a", &first), &side("b", &second), &Options::default());
    let found = compared.expect("they are alike").differences;
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_pass_that_launched_nothing_is_no_sample_and_said_to_be_left_out() {
    // The second step is there without its kernels.
    let second = |line: &&str| !line.contains("\"ts\":5006") || line.contains("execute_context");
    let text: String = STREAMS.lines().filter(second).map(|line| format!("{line}\n")).collect();
    let profile = imported(&text, Format::Chrome);
    assert_eq!(profile.passes.len(), 2);
    let process = Process::from_profile("a", &profile).expect("it has a pass");
    assert_eq!(process.tests[0].wall_ns, [720_000]);
    assert!(process.doubts[0].starts_with("1 of its passes are left out"), "{:?}", process.doubts);
}

#[test]
fn stacks_of_a_device_add_up_to_how_busy_it_is_said_to_be() {
    let profile = imported(STREAMS, Format::Chrome);
    let device = &profile.devices[0];
    let busy = device.busy(Some(Phase::Decode)).expect("it is known").busy_ns;
    assert!(screen(&profile).contains("is busy 1.40 ms of 1.59 ms"), "{}", screen(&profile));
    for (by, blocks) in [(By::Brick, 0), (By::Layer, 2), (By::Thread, 3)] {
        let stacks = Stacks::of_device(&profile, 0, by, blocks).expect("it has passes");
        assert_eq!((stacks.total(), busy), (1_403_000, 1_403_000), "{by:?}");
    }
    let stacks = Stacks::of_device(&profile, 0, By::Brick, 0).expect("it has passes");
    let mut bricks: BTreeMap<&str, u64> = BTreeMap::new();
    for stack in stacks.iter() {
        let names: Vec<&str> = stacks.frames_of(stack).map(|frame| &*frame.name).collect();
        assert_eq!(names[0], "decode");
        *bricks.entry(names[1]).or_default() += stack.weight;
    }
    // From 4200 to 4560.875 µs both streams run: that is counted once, and given to neither.
    assert_eq!(bricks["AllReduce and MatMul at once"], 360_875);
    assert_eq!(bricks["AllReduce"], 400_000 - 360_875);
    assert_eq!(bricks["MatMul"], 550_750 - 360_875 + 602_000);
    assert_eq!(bricks["Copy"], 20_125);
    // Nothing of the host, which isn't the device's time.
    assert!(!bricks.contains_key("Launch"), "{bricks:?}");
}

#[test]
fn stacks_of_a_device_without_passes_are_of_all_that_it_ran() {
    let text = STREAMS.replace("execute_context_0(0)_generation_4(4)", "a range");
    let profile = imported(&text, Format::Chrome);
    let busy = profile.devices[0].busy_overall().expect("all is kept");
    let stacks = Stacks::of_device(&profile, 0, By::Brick, 0).expect("something ran");
    assert_eq!((stacks.total(), busy.busy_ns), (1_415_000, 1_415_000));
    assert!(Stacks::of_device(&profile, 1, By::Brick, 0).is_err());
}

#[test]
fn what_was_launched_and_did_not_begin_is_not_blamed_on_the_host() {
    // All is launched when the step begins, and runs as before.
    let text = first_step().replace("\"ts\":5004000.25,\"dur\":5", "\"ts\":5000000.25,\"dur\":5");
    assert_ne!(text, first_step());
    let profile = imported(&text, Format::Chrome);
    let screen = screen(&profile);
    let said = "before its first kernel it waited 4.00 ms with work launched;";
    assert!(screen.contains(said), "{screen}");
    let said = "it waited 4.01 ms from the begin of the host's pass, for 4.00 ms of it with work launched: for what, the file \
                doesn't tell";
    assert!(report(&profile).contains(said), "{}", report(&profile));
    assert!(screen.contains("Next: find out what the device waits for: 4.0"), "{screen}");
    // What comes next is what was found first, and nothing says that it wasn't found.
    let findings = Findings::of(&profile);
    let first = findings.found.first().expect("the wait");
    assert_eq!((first.rule, first.gain), ("waits-with-work-launched", None));
    assert_eq!(view::next_step(&profile), first.sentence());
    let is_of_waits = |why: &str| why.starts_with("what the device waited for");
    assert!(!findings.unknown.iter().any(|of| is_of_waits(&of.why)), "{findings:?}");
    // A launch that takes its time, as the first one of a kernel may, is the host's.
    let text = text.replace("\"ts\":5000000.25,\"dur\":5", "\"ts\":5000000.25,\"dur\":4005");
    let text = text.replace("\"ts\":5004020,", "\"ts\":5004006,");
    let profile = imported(&text, Format::Chrome);
    assert_eq!(Findings::of(&profile).found[0].rule, "launch-bound");
}

#[test]
fn kernels_count_to_the_step_that_launched_them_and_those_behind_it_are_told() {
    let profile = imported(STREAMS, Format::Chrome);
    let busy = profile.devices[0].busy(Some(Phase::Decode)).expect("it is known");
    // The second step's host is done after 500 µs; its kernels run from 120 to 990 µs.
    assert_eq!((busy.passes, busy.span_ns), (2, 720_000 + 870_000));
    let (screen, report) = (screen(&profile), report(&profile));
    let said = "490 µs of it is behind the end of the host's passes that launched it";
    assert!(report.contains(said), "{report}");
    // Its tokens by the host's clock would be a rate of launching. The device has 4 tokens from 4010.125 to 6120 µs.
    let said = "Decode: 1895.8 tokens/s by the device's clock (4 tokens in 2.11 ms);";
    assert!(screen.contains(said), "{screen}");
    let said = "Decode: 1895.8 tokens/s by the device's clock: 4 tokens in 2.11 ms from a pass's first kernel to the next \
                one's";
    let by = ByDevice::of(&profile, Phase::Decode).expect("it is known");
    assert_eq!((by.tokens, by.ns, by.passes, by.is_steady), (4, 2_109_875, 1, true));
    // Each place has this figure.
    let rate = Rate::of(&profile, Phase::Decode).expect("the same");
    assert_eq!((rate.of, rate.tokens_per_second), (RateOf::DeviceSteps, by.tokens_per_second()));
    assert!(view::json(&profile).contains(&format!("{:?}", rate.tokens_per_second)));
    assert!(report.contains(said), "{report}");
    let [of, figure, basis] = &view::busy_in_words(&profile)[0];
    assert_eq!((&**of, &**figure), ("Decode on the device", "1895.8 tokens/s"));
    assert!(said.contains(&**basis), "{basis}");
    assert_eq!(profile.phases[0].tokens_per_second(), None);
}

#[test]
fn a_first_launch_that_is_nothing_to_the_pass_is_no_finding() {
    let text = first_step();
    let rules = |text: &str| -> Vec<&'static str> {
        let found = Findings::of(&imported(text, Format::Chrome)).found;
        found.into_iter().map(|finding| finding.rule).collect()
    };
    assert_eq!(rules(&text)[0], "launch-bound");
    let longer = text.replacen("\"dur\":5000.5", "\"dur\":5000000.5", 1);
    assert_ne!(longer, text);
    assert!(!rules(&longer).contains(&"launch-bound"), "{:?}", rules(&longer));
}

#[test]
fn a_device_does_not_wait_while_it_works_for_another_pass() {
    let event = |cat: &str, name: &str, tid: u32, [at, lasts]: [u32; 2], args: &str| {
        format!(
            r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":1,"tid":{tid},"ts":{at},"dur":{lasts},"args":{{{args}}}}}"#
        )
    };
    let kernel = |number: u32, stream: u32, launched: u32, at: [u32; 2]| {
        let of = format!(r#""correlation":{number}"#);
        let place = format!(r#"{of},"device":0,"stream":{stream}"#);
        let call = event("cuda_runtime", "cudaLaunchKernel", 1, [launched, 1], &of);
        call + "," + &event("kernel", &format!("k{number}"), stream, at, &place)
    };
    // The first pass runs from 50 to 210 µs. In its gap of 140 µs the second one runs for 80 µs on another stream.
    let events = [
        event("user_annotation", "ProfilerStep#1", 1, [0, 100], ""),
        event("user_annotation", "ProfilerStep#2", 1, [100, 100], ""),
        kernel(1, 7, 10, [50, 10]),
        kernel(2, 7, 20, [200, 10]),
        kernel(3, 8, 105, [110, 80]),
    ];
    let profile = imported(&format!("[{}]", events.join(",")), Format::Chrome);
    let screen = screen(&profile);
    for said in [
        "the device is busy 100 µs of 240 µs from its first kernel to its last, 41.7% (sum of 2 passes), and with other work \
         for 80.0 µs of the rest;",
        "in between it waited 60.0 µs with work launched;",
    ] {
        assert!(screen.contains(said), "{said}: {screen}");
    }
}

#[test]
fn a_pass_alone_has_the_rate_of_its_own_span_on_the_device() {
    let text = STREAMS.replacen("execute_context_0(0)_generation_4(4)", "a range", 1);
    let profile = imported(&text, Format::Chrome);
    assert_eq!(profile.passes.len(), 1);
    let by = ByDevice::of(&profile, Phase::Decode).expect("it is known");
    // From 6120 to 6990 µs.
    assert_eq!((by.tokens, by.ns, by.passes, by.is_steady), (4, 870_000, 1, false));
    assert_eq!((by.hole_ns(), by.doubt()), (None, None));
    let said = "Decode: 4597.7 tokens/s by the device's clock (4 tokens in 870 µs);";
    assert!(screen(&profile).contains(said), "{}", screen(&profile));
    let said = "by the device's clock: 4 tokens in 870 µs from its first kernel to its last";
    assert!(report(&profile).contains(said), "{}", report(&profile));
}

#[test]
fn a_rate_by_the_device_is_of_passes_that_follow_each_other_and_have_tokens() {
    let steps = |names: [&str; 3]| {
        let text = STREAMS.replacen("execute_context_0(0)_generation_4(4)", "FIRST", 1);
        let text = text.replacen("execute_context_0(0)_generation_4(4)", "SECOND", 1);
        let text = text.replace("FIRST", names[0]).replace("SECOND", names[1]);
        let third = format!(
            "{{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"{}\",\"pid\":1,\"tid\":1,\"ts\":5008000,\"dur\":100,\
             \"args\":{{}}}},\n\
             {{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"hipLaunchKernel\",\"pid\":1,\"tid\":1,\"ts\":5008010,\
             \"dur\":5,\"args\":{{\"correlation\":9}}}},\n\
             {{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"my_own_kernel\",\"pid\":0,\"tid\":3,\"ts\":5008120,\"dur\":500,\
             \"args\":{{\"device\":0,\"stream\":3,\"correlation\":9}}}}\n]}}",
            names[2]
        );
        let text = text.trim_end().trim_end_matches("]}").trim_end().to_owned() + ",\n" + &third;
        let profile = imported(&text, Format::Chrome);
        assert_eq!(profile.passes.len(), 3, "{names:?}");
        let of = |phase| ByDevice::of(&profile, phase).map(|by| (by.tokens, by.ns, by.is_steady));
        (of(Phase::Decode), of(Phase::Prefill))
    };
    let decode = "execute_context_0(0)_generation_4(4)";
    let prefill = "execute_context_1(128)_generation_0(0)";
    let untold = "[Executor] _forward_step 3: 0 ctx reqs, 4 gen reqs";
    // First kernels at 4010.125, 6120 and 8120 µs.
    assert_eq!(steps([decode; 3]), (Some((8, 4_109_875, true)), None));
    // A pass of another phase in between: its time is none of theirs.
    let (of_decode, of_prefill) = steps([decode, prefill, decode]);
    assert_eq!(of_decode, Some((8, 720_000 + 500_000, false)));
    assert_eq!(of_prefill, Some((128, 870_000, false)));
    assert_eq!(steps([decode, decode, prefill]).0, Some((4, 2_109_875, true)));
    assert_eq!(steps([decode, untold, decode]).0, None);
}

#[test]
fn what_the_names_of_steps_tell_is_kept_and_mixed_passes_are_told() {
    let mixed = "execute_12_context_1(sq8sk8sqsq64sqsk64)_generation_4(sq4sk400sqsq4sqsk400)";
    let text = STREAMS.replacen("execute_context_0(0)_generation_4(4)", mixed, 1);
    let profile = imported(&text, Format::Chrome);
    let steps = &profile.imported.as_ref().expect("of a file").steps;
    let of = |nth: usize| {
        let (serial, told) = steps[nth];
        (serial, told.context.products, told.generation.keys, told.is_mixed)
    };
    assert_eq!(steps.len(), 2);
    assert_eq!(of(0), (1, Some(64), Some(400), true));
    assert_eq!(of(1), (2, None, None, false));
    let said = "1 of 1 prefill pass also generated: 8 tokens of prompts and 4 of answers";
    assert!(screen(&profile).contains(said), "{}", screen(&profile));
    assert!(view::report(&profile).contains("mixed"), "{}", view::report(&profile));
    assert!(!screen(&imported(STREAMS, Format::Chrome)).contains("also generated"));
}

#[test]
fn kernels_in_no_brick_are_told_with_lines_for_a_table() {
    let profile = imported(STREAMS, Format::Chrome);
    let report = view::report(&profile);
    let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
    // 42 of 1775.875 µs.
    let said = "no brick 1 kernel, 2.4% of devices' time, is in no brick of the table; name its brick in a file for \
                `import --map`: [kernel] \"my_own_kernel\" = \"\"";
    assert!(words.contains(said), "{words}");
    // What the lines say is so.
    let map = brickscope_formats::import::Map {
        path: "map.toml".into(),
        text: "[kernel]\n\"my_own_kernel\" = \"Mine\"\n".to_owned(),
    };
    let options = brickscope_formats::import::Options { map: Some(map), ..Default::default() };
    let profile = super::import(STREAMS, Format::Chrome, &options).expect("it is of this format");
    assert_eq!(profile.imported.as_ref().expect("of a file").unruled, None);
    let report = view::report(&profile);
    assert!(!report.contains("in no brick of the table"), "{report}");
}

#[test]
fn without_passes_a_device_that_hardly_ran_is_not_told_to_be_faster() {
    let text = STREAMS.replace("execute_context_0(0)_generation_4(4)", "a range");
    let screen = screen(&imported(&text, Format::Chrome));
    assert!(screen.contains("from its first kernel to its last."), "{screen}");
    assert!(screen.contains("Next: say which events are passes"), "{screen}");
    // Without anything of the host, nothing could be one.
    let is_kept = |line: &&str| !line.contains("\"cat\":") || line.contains("\"cat\":\"kernel\"");
    let bare = text.lines().filter(is_kept).collect::<Vec<_>>().join("\n");
    let bare = bare.replace(",\n]}", "\n]}");
    let bare = self::screen(&imported(&bare, Format::Chrome));
    assert!(bare.contains("Next: record what the host did, so that passes"), "{bare}");
}

/// A kernel and two copies, which nothing launched.
const COPIES: &str = r#"{"schemaVersion":1,"traceEvents":[
{"ph":"X","cat":"kernel","name":"my_kernel","pid":0,"tid":7,"ts":100,"dur":10,"args":{"device":0,"stream":7,"correlation":1}},
{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pinned -> Device)","pid":0,"tid":7,"ts":110,"dur":60,"args":{"device":0,"stream":7,"correlation":2,"bytes":3000000}},
{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pinned -> Device)","pid":0,"tid":7,"ts":170,"dur":40,"args":{"device":0,"stream":7,"correlation":3,"bytes":1000000}}
]}"#;

#[test]
fn the_view_that_has_kernels_is_named_and_a_device_needs_its_own_limits() {
    let profile = imported(COPIES, Format::Chrome);
    let of_all = screen(&profile);
    assert!(of_all.contains("Next: look at Copy, 90.9 % of the device's time there"), "{of_all}");
    let said = "`brickscope show RUN --as kernels` lists its kernels";
    assert!(of_all.contains(said) && !of_all.contains("full report has"), "{of_all}");
    assert!(view::kernels(&profile.whole_device(0).expect("there is one")).contains("Memcpy HtoD"));
    // This machine isn't the one that it ran on.
    let alone = screen(&profile.whole_device(0).expect("there is one"));
    assert!(alone.contains("`import --stated-limits` or `import --ceilings FILE`"), "{alone}");
    assert!(!alone.contains("machine --add-to"), "{alone}");
}

#[test]
fn copies_whose_bytes_are_stated_have_a_rate() {
    // 3 MB in 60 µs and 1 MB in 40 µs.
    let kernels = |profile: &Profile| view::kernels(&profile.whole_device(0).expect("one"));
    let profile = imported(COPIES, Format::Chrome);
    let said = "there, of which Memcpy HtoD (Pinned -> Device) moves 4.0 MB in 100 µs, 40.0 GB/s: ";
    assert!(screen(&profile).contains(said), "{}", screen(&profile));
    assert!(kernels(&profile).contains(" 4.0 MB, 40.0 GB/s\n"), "{}", kernels(&profile));
    // Bricks are held to the limits of the device's memory, through which a copy needn't go.
    let mut totals = profile.devices[0].streams[0].totals.iter();
    let brick = totals.find(|total| total.stats.name == "Copy").expect("it is a brick");
    assert_eq!(brick.stats.total_bytes, 0);
    // If one of them doesn't state them, their sum isn't known.
    let profile = imported(&COPIES.replace(",\"bytes\":1000000", ""), Format::Chrome);
    assert!(!screen(&profile).contains("GB/s"), "{}", screen(&profile));
    assert!(!kernels(&profile).contains("GB/s"), "{}", kernels(&profile));
}

#[test]
fn the_only_device_has_the_only_name_of_the_file() {
    let named = |properties: &str, text: &str| {
        let head = format!("{{\"deviceProperties\":{properties},");
        let profile = imported(&text.replacen('{', &head, 1), Format::Chrome);
        profile.devices.iter().map(|device| device.name.clone()).collect::<Vec<_>>()
    };
    let elsewhere = COPIES.replace("\"device\":0", "\"device\":9");
    let one = r#"[{"id":0,"name":"AMD Instinct MI300X"}]"#;
    assert_eq!(named(one, &elsewhere), ["AMD Instinct MI300X"]);
    // Of several, or for several, it isn't known which is which.
    let unnamed = "device 9, whose name isn't stated";
    let two = r#"[{"id":0,"name":"a device"},{"id":1,"name":"another device"}]"#;
    assert_eq!(named(two, &elsewhere), [unnamed]);
    let both = COPIES.replacen("\"device\":0", "\"device\":9", 1);
    assert_eq!(named(one, &both), ["AMD Instinct MI300X", unnamed]);
}

#[test]
fn steps_that_train_are_no_decode_and_get_no_advice_for_servers() {
    let profile = imported(TRAINING, Format::Chrome);
    assert_eq!(profile.phases[0].phase, Phase::Training);
    let screen = screen(&profile);
    assert!(screen.contains("Training: no rate") && screen.contains("training brick"), "{screen}");
    let all = format!("{screen}{}{}", view::findings(&profile, None), view::report(&profile));
    assert!(!all.contains("vLLM") && !all.to_lowercase().contains("decode"), "{all}");
    assert!(view::statistics(&profile).contains("Bricks, training"));
}

#[test]
fn a_range_that_is_named_as_a_brick_has_its_kernels() {
    let profile = imported(TRAINING, Format::Chrome);
    let screen = screen(&profile);
    assert!(screen.contains("AttentionSoftmax"), "{screen}");
    assert!(!screen.replace("AttentionSoftmax", "").contains("Softmax"), "{screen}");
}

#[test]
fn text_is_at_most_80_columns_wide_and_names_stay_apart() {
    for text in [STREAMS, TRAINING] {
        let profile = imported(text, Format::Chrome);
        let device = profile.whole_device(0).expect("a device");
        let pass = device.passes[0].serial;
        let tree = device.execution_graph(pass).expect("a graph").to_ascii_tree();
        for view in [
            view::report(&profile),
            view::kernels(&device),
            view::statistics(&device),
            view::summary(&profile, Size::default(), None).to_string(),
            tree,
        ] {
            let wide: Vec<&str> = view.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(wide.is_empty(), "{wide:#?}");
        }
    }
    let device = imported(STREAMS, Format::Chrome).whole_device(0).expect("a device");
    let kernels = view::kernels(&device);
    let lines: Vec<&str> = kernels.lines().filter(|line| line.starts_with("Cijk")).collect();
    assert_eq!(lines.len(), 2, "{kernels}");
    assert!(lines[0].ends_with("GSU1") && lines[1].ends_with("GSU2"), "{kernels}");
    // Of a kernel of a device nobody says that it ran on the CPU, and those of no brick are kernels, too.
    assert!(!kernels.contains("cpu") && kernels.contains("my_own_kernel"), "{kernels}");
}

#[test]
fn no_screen_is_without_a_reason() {
    let list = include_str!("../../data/import/llama-bench.json");
    for (text, format, why) in [
        (list, Format::LlamaBench, "a list of"),
        (FOLDED, Format::Folded, ""),
        (STREAMS, Format::Chrome, ""),
    ] {
        let options = brickscope_formats::import::Options {
            unit: (format == Format::Folded)
                .then_some(brickscope_formats::import::WeightUnit::Samples),
            ..Default::default()
        };
        let profile = super::import(text, format, &options).expect("it is of this format");
        let said = view::findings(&profile, None);
        if said.starts_with("No rule could look at this run.") {
            assert!(said.contains("Not known:") && said.contains(why), "{said}");
        }
    }
}

#[test]
fn terms_have_the_figures_of_a_run() {
    let profile = imported(STREAMS, Format::Chrome);
    for word in ["far", "near", "at roof", "µs above", "p50"] {
        let pages = explain::find(word);
        assert!(!pages.is_empty(), "{word}");
        for page in pages {
            let said = page.in_run(&profile).sections;
            let text: Vec<&str> = said.iter().map(|section| &*section.text).collect();
            assert!(!text.contains(&"a run has no figure of this word"), "{word}: {text:?}");
            assert_eq!(said[0].label, "decode", "{word}: {text:?}");
        }
    }
}

#[test]
fn passes_of_ranks_whose_clocks_are_apart_are_not_timed_together() {
    // The second rank's clock is 5 s ahead, and nothing tells that it is.
    let rank = |rank: u32, begins: &str| {
        let of = format!(
            "{{\"distributedInfo\":{{\"backend\":\"nccl\",\"rank\":{rank},\"world_size\":2}},"
        );
        let text = STREAMS.replacen('{', &of, 1).replace("\"ts\":5", begins);
        (PathBuf::from(format!("rank{rank}.json")), imported(&text, Format::Chrome))
    };
    let profile = join(vec![rank(0, "\"ts\":5"), rank(1, "\"ts\":10")]).expect("two ranks");
    let aligned = profile.ranks.iter().flat_map(|of| &of.ranks).map(|of| of.shift_ns.is_some());
    assert_eq!(aligned.collect::<Vec<_>>(), [true, false]);
    // Both have passes of the same serials.
    let begins: Vec<u64> = profile
        .devices
        .iter()
        .filter_map(|device| device.streams.iter().flat_map(|of| &of.passes).next())
        .map(|pass| pass.start_ns)
        .collect();
    assert!(begins[1].abs_diff(begins[0]) > 4_000_000_000, "{begins:?}");
    let by = ByDevice::of(&profile, Phase::Decode).expect("it is known");
    assert_eq!((by.tokens, by.ns, by.passes, by.devices), (4, 2_109_875, 1, 1));
    let screen = screen(&profile);
    assert!(screen.contains("Decode: 1895.8 tokens/s by the device's clock"), "{screen}");
}

#[test]
fn a_file_that_is_given_limits_is_not_said_to_lack_them() {
    let why = |profile: &Profile| {
        let unknown = Findings::of(profile).unknown;
        let of = unknown.into_iter().find(|of| of.rule == "far-from-the-roof");
        of.expect("it isn't known").why
    };
    let mut profile = imported(STREAMS, Format::Chrome);
    assert!(why(&profile).ends_with("nor limits of the device"), "{}", why(&profile));
    state_limits(&mut profile, "3350 GB/s, 989 TFLOP/s").expect("two rates");
    assert!(why(&profile).ends_with("the trace tells no work of what ran"), "{}", why(&profile));
    profile.devices[0].streams[0].totals[0].stats.total_bytes = 1_000;
    assert!(why(&profile).ends_with("how near its limits that is"), "{}", why(&profile));
}
