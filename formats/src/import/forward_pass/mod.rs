//! What SGLang and Dynamo record of each forward pass of a server (`ForwardPassMetrics`): how long it took, how many requests
//! it was for, and their tokens in sum. Dynamo writes them with `DYN_FPM_TRACE=1`, a record a line:
//! <https://github.com/ai-dynamo/dynamo/blob/main/components/src/dynamo/common/forward_pass_metrics.py>
//!
//! ```text
//! {"timestamp":1250,"event":{"schema":"dynamo.fpm.trace.v1","capture_mode":"full","observed_at_unix_ms":1782777601250,
//!  "fpm":{"version":1,"worker_id":"4192","dp_rank":0,"counter_id":42,"wall_time":0.025,
//!   "scheduled_requests":{"num_prefill_requests":2,"sum_prefill_tokens":256,"sum_prefill_kv_tokens":64,
//!                         "num_decode_requests":3, …},"queued_requests":{"num_prefill_requests":1, …}}}}
//! ```
//!
//! All are of one pass but `counter_id`, which counts the records of a rank. `wall_time` is in seconds. Tokens in the KV cache
//! (`sum_prefill_kv_tokens`) are those found there and those of earlier pieces of the prompt, which aren't told apart. Nothing
//! says whose request is in a pass. `records.rs` reads the records, `answers.rs` counts the tokens of answers.

mod answers;
mod records;
mod seen;

use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

use brickscope_profile::text::count;
use brickscope_profile::{
    Lane, Part, PartKind, PartTold, Pass, PassPart, Phase, Profile, StepTold, save,
};

use self::answers::{Answers, Listed, without_ends};
use self::records::{Record, Stream, Told};
use super::{At, Format, ImportError, UNDATED, lacks, left_out, totals};

/// A text that only such files have.
pub(super) const KEY: &str = "\"scheduled_requests\"";

/// A time after it, in milliseconds since 1970, is none: the year 2100.
const LATEST_MS: u64 = 4_102_444_800_000;

pub(super) fn read(text: &str, at: &At<'_>) -> Result<Profile, ImportError> {
    let told = records::told(text);
    let Some((chosen, stream)) = told.longest() else {
        return Err(at.whole(none(&told)));
    };
    let program = told.is_dynamo.then(|| "Dynamo".to_owned());
    let clock = "of the server, durations alone";
    let mut profile = at.profile(Format::ForwardPassMetrics, program, clock);
    let first = told.first_ms.filter(|ms| (1..LATEST_MS).contains(ms));
    if let Some(ms) = first {
        profile.created = save::time_rfc3339(UNIX_EPOCH + Duration::from_millis(ms));
    }
    profile.lanes.push(Lane { name: None, tid: None });
    let of_stream = told.passes.iter().filter(|of| of.stream == chosen);
    let all: Vec<Listed<'_>> =
        of_stream.map(|record| Listed { record, each: told.each(record) }).collect();
    let nexts = all.iter().copied().skip(1).map(Some).chain([None]);
    let answers: Vec<Answers> =
        all.iter().zip(nexts).map(|(pass, next)| Answers::of(*pass, next)).collect();
    let of_decode = all.iter().zip(&answers).filter(|(pass, _)| pass.record.prompts == 0);
    let is_without_ends = without_ends(of_decode.map(|(_, of)| of));
    let kept: Vec<(Listed<'_>, Answers)> = all
        .iter()
        .copied()
        .zip(answers.iter().copied())
        .filter(|(_, of)| *of != Answers::Ended || !is_without_ends)
        .collect();
    let mut steps = Vec::new();
    for (&(pass, of), serial) in kept.iter().zip(1..) {
        let (record, each) = (pass.record, pass.each);
        let (step, parts) = (step(record, of), parts(record, each));
        profile.passes.push(pass_of(serial, record, of, &parts));
        profile.parts.extend(parts.into_iter().map(|part| PassPart { pass: serial, part }));
        steps.push((serial, step));
    }
    profile.phases = totals::phases(&profile.passes);
    if let Some(imported) = &mut profile.imported {
        imported.steps = steps;
        let doubt =
            "of SGLang, a time may be that of several passes, unless --disable-overlap-schedule";
        imported.doubts.push(doubt.to_owned());
        if kept.iter().any(|(_, of)| matches!(of, Answers::Grown(_))) {
            let how = "with a draft model, tokens of answers are those by which the KV cache grew until the \
                       next pass";
            imported.doubts.push(how.to_owned());
        }
        let captured: Vec<&str> = told.captured.iter().map(String::as_str).collect();
        if !captured.is_empty() {
            imported.conditions.push(("capture_mode".to_owned(), captured.join(", ")));
        }
        imported.conditions.push(("rank".to_owned(), stream.rank.clone()));
    }
    let kept: Vec<Answers> = kept.into_iter().map(|(_, of)| of).collect();
    say_what_it_lacks(&mut profile, stream, &kept, first.is_some());
    let ends = answers.len().saturating_sub(kept.len()) as u64;
    let why = "passes after which no record tells how many of their tokens were accepted";
    left_out(&mut profile, why, ends);
    say_what_is_left_out(&mut profile, &told, stream);
    Ok(profile)
}

/// Why there is nothing to import.
fn none(told: &Told) -> String {
    let counts = [
        (told.odd, "broken"),
        (told.unknown_version, "of another version"),
        (told.idle, "of an idle server"),
        (told.empty, "of a pass without a request"),
        (told.untimed, "without a time"),
        (told.absurd, "with more than a pass has"),
    ];
    let has = counts.into_iter().filter(|(n, _)| *n > 0);
    let has: Vec<String> = has.map(|(n, what)| format!("{n} {what}")).collect();
    let but = if has.is_empty() { String::new() } else { format!(": {}", has.join(", ")) };
    format!("has no record of a forward pass{but}")
}

/// The requests of a pass, of each of which it is known what the pass does: those that are listed, or one alone with a prompt.
/// Of others only the sums are known.
fn parts(record: &Record, each: &[[u64; 2]]) -> Vec<Part> {
    if each.is_empty() {
        let alone = (record.prompts, record.answers) == (1, 0);
        let sums = record.prompt_tokens.zip(record.prompt_cached).filter(|_| alone);
        return sums.map(|(n, before)| Part::prompt(Part::NOBODY, n, before)).into_iter().collect();
    }
    let kinds = (0..).map(|nth: u64| match nth < record.prompts {
        true => PartKind::Prompt,
        false => PartKind::Decode,
    });
    let request = Part::NOBODY;
    let part = |(&[tokens, position], kind): (&[u64; 2], PartKind)| Part {
        request,
        kind,
        tokens,
        position,
        cached: 0,
    };
    each.iter().zip(kinds).map(part).collect()
}

fn pass_of(serial: u32, record: &Record, answers: Answers, parts: &[Part]) -> Pass {
    let of_prompts = if record.prompts == 0 { Some(0) } else { record.prompt_tokens };
    let tokens = of_prompts.zip(answers.tokens()).and_then(|(a, b)| a.checked_add(b));
    Pass {
        serial,
        phase: if record.prompts > 0 { Phase::Prefill } else { Phase::Decode },
        lane: 0,
        // 0 stands for what isn't told.
        tokens: tokens.unwrap_or(0),
        position: if let [one] = parts { one.position } else { 0 },
        start_ns: 0,
        wall_ns: record.wall_ns,
        attributed_ns: 0,
        unattributed_ns: record.wall_ns,
        disturbance: None,
        is_left_out: false,
    }
}

fn step(record: &Record, answers: Answers) -> StepTold {
    let sums = record.prompt_tokens.zip(record.prompt_cached);
    let context = PartTold {
        requests: Some(record.prompts),
        tokens: record.prompt_tokens,
        // Each token attends to those before it in the cache, and to those beside it.
        keys: sums.and_then(|(tokens, before)| tokens.checked_add(before)),
        ..PartTold::default()
    };
    // Whether `sum_decode_kv_tokens` counts the token that is computed, engines don't agree.
    let generation = PartTold {
        requests: Some(record.answers),
        // Those that the pass computes: of several that it verifies, not all need be the answer's.
        tokens: answers.tokens().filter(|_| matches!(answers, Answers::Told(_))),
        ..PartTold::default()
    };
    StepTold {
        context,
        generation,
        is_mixed: record.prompts > 0 && record.answers > 0,
        waiting: record.waiting,
        preempted: record.preempted,
    }
}

fn say_what_it_lacks(profile: &mut Profile, stream: &Stream, answers: &[Answers], is_dated: bool) {
    lacks(
        profile,
        &[
            "bricks, kernels and layers: a record is of a pass as a whole",
            "when passes began: a record states how long one took, so all start_ns are 0 and there is \
             no timeline",
            "what a time is of: vLLM states that of a step by the host's clock, with scheduling and \
             output, SGLang the device's",
            "requests: a record counts those of a pass and doesn't name them, so nobody knows when \
             one came and got tokens",
            "tokens found in a cache of prompts: a record counts them with those of earlier pieces of \
             the prompt",
        ],
    );
    if answers.contains(&Answers::Summed) {
        let why = "tokens of answers: a record counts requests, and with a draft model each gets \
                   several in a pass";
        lacks(profile, &[why]);
    }
    let is_verified = |of: &&Answers| matches!(of, Answers::Verified | Answers::Ended);
    let verified = answers.iter().filter(is_verified).count();
    if verified > 0 {
        let of = count(verified as u64, "pass");
        let why = format!(
            "tokens of answers in {of}: the records list those that were verified, not those accepted, and \
             don't say which request has them in the next pass"
        );
        lacks(profile, &[why.as_str()]);
    }
    let known: HashSet<u32> = profile.parts.iter().map(|of| of.pass).collect();
    let summed = profile.passes.len().saturating_sub(known.len());
    if summed > 0 {
        let of = count(summed as u64, "pass");
        let why =
            format!("parts of {of}: the records have sums of their requests, not each of them");
        lacks(profile, &[why.as_str()]);
    }
    if stream.back > 0 {
        // What is missing before such a place may be there behind it.
        let places = count(stream.back, "place");
        let why = format!(
            "how many records are missing: their counter_id goes back in {places}, where a worker began \
             anew, or files aren't in order"
        );
        lacks(profile, &[why.as_str()]);
    } else if stream.missing > 0 {
        let records = count(stream.missing, "record");
        let why = format!(
            "{records} between those that are there, by their counter_id: not sampled, or lost on the \
             way (DYN_FPM_MODE=full writes all)"
        );
        lacks(profile, &[why.as_str()]);
    }
    if !is_dated {
        lacks(profile, &[UNDATED]);
    }
}

fn say_what_is_left_out(profile: &mut Profile, told: &Told, stream: &Stream) {
    let passes = told.passes.len() as u64;
    let Stream { worker, rank, .. } = stream;
    let others =
        format!("passes of other ranks than rank {rank} of worker `{worker}`, which has most");
    for (why, n) in [
        ("records that break off, or lack what they need", told.odd),
        ("records of another version than 1", told.unknown_version),
        (&*others, passes.saturating_sub(stream.passes)),
        ("records of an idle server, which are no passes", told.idle),
        ("passes that no request was in", told.empty),
        ("passes without a time: their wall_time is 0", told.untimed),
        ("records with more requests or tokens than a pass has", told.absurd),
        ("records that are there twice, by their counter_id", told.twice),
        ("passes beyond the most that are kept", told.beyond),
        ("lists of a pass's requests that don't come to its sums", told.unfit),
        ("lists of a pass's requests beyond the most that are kept", told.lists_beyond),
    ] {
        left_out(profile, why, n);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A record of Dynamo: number, seconds, prompts, their tokens, those in the cache, answers; and what else is scheduled.
    fn record(counter: u64, seconds: &str, of: [u64; 4], more: &str) -> String {
        let [prompts, tokens, cached, answers] = of;
        format!(
            r#"{{"timestamp":7,"event":{{"schema":"dynamo.fpm.trace.v1","capture_mode":"full","observed_at_unix_ms":1782777601250,"fpm":{{"version":1,"worker_id":"4192","dp_rank":0,"counter_id":{counter},"wall_time":{seconds},"scheduled_requests":{{"num_prefill_requests":{prompts},"sum_prefill_tokens":{tokens},"sum_prefill_kv_tokens":{cached},"num_decode_requests":{answers},"sum_decode_kv_tokens":1024{more}}},"queued_requests":{{"num_prefill_requests":{counter},"num_decode_requests":0}}}}}}}}"#
        )
    }

    fn profile(records: &[String]) -> Profile {
        let profile = read(&records.join("\n"), &At { path: Path::new("a.jsonl") });
        let profile = profile.expect("it has passes");
        assert_eq!(profile.check(), Ok(()));
        profile
    }

    fn lack<'p>(profile: &'p Profile, begin: &str) -> Option<&'p str> {
        let imported = profile.imported.as_ref().expect("it is");
        let mut all = imported.lacks.iter().map(|lack| &*lack.reason);
        all.find(|lack| lack.starts_with(begin))
    }

    #[test]
    fn a_record_is_a_pass_with_the_sums_of_its_requests() {
        let profile = profile(&[
            record(1, "0.025", [2, 256, 64, 3], ""),
            record(2, "0.010", [0, 0, 0, 5], ""),
            record(3, "0.020", [1, 100, 28, 0], ""),
        ]);
        let of = |pass: &Pass| (pass.phase, pass.tokens, pass.position, pass.wall_ns);
        let passes: Vec<_> = profile.passes.iter().map(of).collect();
        use Phase::{Decode, Prefill};
        assert_eq!(
            passes,
            [
                (Prefill, 0, 0, 25_000_000),
                (Decode, 0, 0, 10_000_000),
                (Prefill, 100, 28, 20_000_000),
            ]
        );
        let imported = profile.imported.as_ref().expect("it is");
        assert_eq!(imported.program.as_deref(), Some("Dynamo"));
        let (_, mixed) = imported.steps[0];
        assert_eq!((mixed.context.requests, mixed.context.tokens), (Some(2), Some(256)));
        assert_eq!((mixed.context.keys, mixed.generation.requests), (Some(320), Some(3)));
        assert_eq!((mixed.generation.tokens, mixed.is_mixed), (None, true));
        assert_eq!((mixed.waiting, mixed.preempted), (Some(1), Some(0)));
        // Whoever it was: it was alone.
        let part = Part::prompt(Part::NOBODY, 100, 28);
        assert_eq!(profile.parts, [PassPart { pass: 3, part }]);
        assert!(profile.requests.is_empty() && lack(&profile, "requests: ").is_some());
        assert!(lack(&profile, "tokens of answers: ").is_some());
        assert!(lack(&profile, "parts of 2 passes: ").is_some());
        assert_eq!(profile.created, "2026-06-30T00:00:01Z");
    }

    #[test]
    fn requests_that_are_listed_are_parts_of_somebody() {
        let lists = r#","extend_lengths":[200,56,4,1],"past_kv_lengths":[64,0,90,12]"#;
        let profile = profile(&[record(1, "0.025", [2, 256, 64, 2], lists)]);
        let parts: Vec<_> = profile.parts.iter().map(|of| of.part).collect();
        let decode = |tokens, position| Part { tokens, ..Part::decode(Part::NOBODY, position) };
        assert_eq!(
            parts,
            [
                Part::prompt(Part::NOBODY, 200, 64),
                Part::prompt(Part::NOBODY, 56, 0),
                decode(4, 90),
                decode(1, 12),
            ]
        );
        // Of the four that were verified nobody knows how many were right.
        assert_eq!(profile.passes[0].tokens, 0);
        assert_eq!(lack(&profile, "parts of"), None);
        assert!(lack(&profile, "tokens of answers in 1 pass: ").is_some());
    }

    /// A pass that verifies tokens of answers: number, tokens of each request, and those in the cache before.
    fn verifying(counter: u64, tokens: &str, before: &str) -> String {
        let lists = format!(r#","extend_lengths":[{tokens}],"past_kv_lengths":[{before}]"#);
        let answers = tokens.split(',').count() as u64;
        record(counter, "0.020", [0, 0, 0, answers], &lists)
    }

    fn decode(profile: &Profile) -> (u64, u64, u64) {
        let of = profile.phase(Phase::Decode).expect("it has passes");
        (of.passes, of.tokens, of.wall_ns)
    }

    #[test]
    fn tokens_of_a_draft_count_as_far_as_the_cache_grew() {
        // One of four was right, then three.
        let profile = profile(&[
            verifying(1, "4", "100"),
            verifying(2, "4", "101"),
            verifying(3, "4", "104"),
        ]);
        assert_eq!(decode(&profile), (2, 4, 40_000_000));
        let imported = profile.imported.as_ref().expect("it is");
        let after = "passes after which no record tells how many of their tokens were accepted";
        assert_eq!(imported.left_out, [(after.to_owned(), 1)]);
        assert!(imported.doubts.iter().any(|doubt| doubt.contains("the KV cache grew")));
        assert_eq!(lack(&profile, "tokens of answers"), None);
    }

    #[test]
    fn there_is_no_rate_where_nothing_tells_which_tokens_were_accepted() {
        for records in [
            // Two requests, of which nobody knows which is which.
            [verifying(1, "4,3", "100,50"), verifying(2, "4,4", "104,53")],
            // A record between them is missing.
            [verifying(1, "4", "100"), verifying(3, "4", "101")],
            // Another request, or the cache went back.
            [verifying(1, "4", "100"), verifying(2, "4", "105")],
            [verifying(1, "4", "100"), verifying(2, "4", "100")],
        ] {
            let profile = profile(&records);
            assert_eq!(decode(&profile), (2, 0, 40_000_000), "{records:?}");
            let said = lack(&profile, "tokens of answers in 2 passes: ").expect("it is said");
            assert!(said.contains("verified, not those accepted"), "{said}");
        }
        // Without a draft each request gets one.
        let profile = profile(&[verifying(1, "1,1", "100,50"), verifying(2, "1,1", "101,51")]);
        assert_eq!(decode(&profile), (2, 4, 40_000_000));
    }

    #[test]
    fn a_run_has_one_rank_and_counts_the_others() {
        let other = |counter| {
            let of = record(counter, "0.5", [0, 0, 0, 1], "");
            of.replace("\"dp_rank\":0", "\"dp_rank\":1")
        };
        let own = |counter| record(counter, "0.1", [0, 0, 0, 2], "");
        let profile = profile(&[other(1), own(1), own(4), own(5)]);
        assert_eq!(profile.passes.len(), 3);
        let left_out = &profile.imported.as_ref().expect("it is").left_out;
        let others = "passes of other ranks than rank 0 of worker `4192`, which has most";
        assert_eq!(left_out[..], [(others.to_owned(), 1)]);
        assert!(lack(&profile, "2 records between those").is_some());
    }

    #[test]
    fn records_out_of_order_are_passes_and_none_is_said_to_be_missing() {
        let of = |counter| record(counter, "0.1", [0, 0, 0, 2], "");
        let list = format!("[{}]", [5, 3, 4, 6].map(of).join(",\n"));
        let profile = profile(&[list]);
        assert_eq!(profile.passes.len(), 4);
        assert!(profile.imported.as_ref().is_some_and(|imported| imported.left_out.is_empty()));
        let said = lack(&profile, "how many records are missing").expect("it is said");
        assert!(said.contains("goes back in 1 place,"), "{said}");
        assert_eq!(lack(&profile, "1 record"), None);
    }

    #[test]
    fn nothing_to_import_is_said() {
        let at = At { path: Path::new("a.jsonl") };
        let said = |text: &str| read(text, &at).expect_err("it has none").to_string();
        assert_eq!(said(""), "a.jsonl: has no record of a forward pass");
        let idle = record(1, "0.0", [0; 4], "");
        let both = said(&format!("{idle}\n{{]"));
        assert!(both.ends_with("forward pass: 1 broken, 1 of an idle server"), "{both}");
    }
}
