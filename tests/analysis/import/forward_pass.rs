//! Records of forward passes, as Dynamo writes them: a file made by hand, with what the screens say of it.

use brickscope::Phase;
use brickscope_analysis::view::{self, Size};
use brickscope_formats::export::has_begins;
use brickscope_formats::import::Format;

use super::{FORWARD_PASSES, imported, refused};

#[test]
fn records_are_passes_and_what_they_lack_is_said() {
    let profile = imported(FORWARD_PASSES, Format::ForwardPassMetrics);
    let of = |phase| profile.phase(phase).map(|of| (of.passes, of.wall_ns, of.tokens));
    // Of the second prefill pass nobody told how many tokens its answer got.
    assert_eq!(of(Phase::Prefill), Some((2, 41_250_132 + 50_500_000, 0)));
    assert_eq!(of(Phase::Decode), Some((2, 12_500_000 + 13_100_000, 0)));
    assert!(!has_begins(&profile));
    let left_out = &profile.imported.as_ref().expect("it is imported").left_out;
    // One that breaks off, and one of an idle server.
    assert_eq!(left_out.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 1], "{left_out:?}");
    let said = view::import_in_words(&profile);
    assert_eq!(
        said,
        [
            "1 of 2 prefill passes also generated: 512 tokens of prompts; those of answers aren't \
             told",
            "requests waited for a place in 3 of 4 passes, at most 2 at once; in 1 some of them \
             had been preempted",
        ]
    );
}

#[test]
fn the_rate_of_drafted_tokens_is_that_of_those_that_were_accepted() {
    // Four are verified in each pass of 20 ms, of which one is right.
    let pass = |counter: u64, before: u64| {
        format!(
            r#"{{"fpm":{{"version":1,"counter_id":{counter},"wall_time":0.02,"scheduled_requests":{{"num_prefill_requests":0,"sum_prefill_tokens":0,"sum_prefill_kv_tokens":0,"num_decode_requests":1,"extend_lengths":[4],"past_kv_lengths":[{before}]}}}}}}"#
        )
    };
    let text = [pass(1, 100), pass(2, 101), pass(3, 102)].join("\n");
    let profile = imported(&text, Format::ForwardPassMetrics);
    let said = view::headline(&profile);
    assert!(said.contains("2 decode passes of 20.0 ms on average (50.0 tok/s)"), "{said}");
    let report = view::report(&profile);
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(report.contains("by which the KV cache grew"), "{report}");
    assert!(report.contains("their tokens were accepted: 1"), "{report}");
}

#[test]
fn records_in_a_log_are_known() {
    let mixed: String = FORWARD_PASSES.lines().map(|line| format!("INFO {line}\n")).collect();
    for text in [format!("INFO starting\n{FORWARD_PASSES}"), mixed] {
        let format = brickscope_formats::import::format_of(&text);
        assert_eq!(format, Some(Format::ForwardPassMetrics));
        assert_eq!(imported(&text, Format::ForwardPassMetrics).passes.len(), 4);
    }
}

#[test]
fn screens_without_requests_say_why() {
    let profile = imported(FORWARD_PASSES, Format::ForwardPassMetrics);
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = one_line(&view::requests(&profile));
    assert_eq!(
        said,
        "This run has no requests: a record counts those of a pass and doesn't name them, so \
         nobody knows when one came and got tokens."
    );
    let screen = view::summary(&profile, Size::default(), None).to_string();
    let passes = "2 decode passes of 12.8 ms on average, 2 prefill passes of 45.9 ms on average";
    assert!(one_line(&screen).contains(passes), "{screen}");
    assert!(one_line(&screen).contains("Next: to see where passes spend their time"), "{screen}");
    let doubt = "of SGLang, a time may be that of several passes";
    assert!(one_line(&screen).contains(doubt), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    let report = one_line(&view::report(&profile));
    assert!(report.contains("1 record between those that are there"), "{report}");
    let said = refused("{}", Format::ForwardPassMetrics, &super::Options::default());
    assert!(said.contains("has no record of a forward pass: 1 broken"), "{said}");
}

#[test]
fn the_first_screen_has_the_rate_of_passes_whose_tokens_are_known() {
    let is_mixed = |line: &&str| line.contains("\"counter_id\":42");
    let others: Vec<&str> = FORWARD_PASSES.lines().filter(|line| !is_mixed(line)).collect();
    let profile = imported(&others.join("\n"), Format::ForwardPassMetrics);
    let said = view::headline(&profile);
    let passes = "It has 2 decode passes of 12.8 ms on average, 1 prefill pass of 41.3 ms on \
                  average (10861 tok/s); no brick was recorded in them.";
    assert!(said.ends_with(passes), "{said}");
}
