//! The work of attention by the arguments in a trace and the name of its step. Traces are made here, in the form that PyTorch's
//! profiler writes with `record_shapes=True`.

use std::path::Path;

use brickscope::{NameKind, Profile};
use brickscope_formats::import::{Format, Options, read_capture};
use serde_json::{Value, json};

use super::{import, imported};

const HALF: &str = "c10::BFloat16";
const SDPA: &str = "aten::_scaled_dot_product_flash_attention";
const FLASH: &str = "aten::_flash_attention_forward";
const EFFICIENT: &str = "aten::_scaled_dot_product_efficient_attention";
const VARLEN: &str = "_vllm_fa2_C::varlen_fwd";
const VLLM: &str = "vllm::unified_attention_with_output";
const FA3: &str = "sgl_kernel::fwd";

/// A request of 4 tokens with 6 keys, and two of one token with 20 keys.
const MIXED: &str = "execute_6_context_1(sq4sk6sqsq16sqsk24)_generation_2(sq2sk20sqsq2sqsk20)";

/// It has no sums.
const PLAIN: &str = "execute_context_1(4)_generation_2(2)";

/// An argument: dimensions, type and value.
type Argument = (usize, Value, &'static str, &'static str);

struct Op {
    name: &'static str,
    arguments: Value,
}

/// An operation of so many arguments, of which most are nothing.
fn op(name: &'static str, count: usize, arguments: &[Argument]) -> Op {
    let mut dims = vec![json!([]); count];
    let (mut types, mut values) = (vec![""; count], vec![""; count]);
    for &(at, ref of, kind, value) in arguments {
        dims[at] = of.clone();
        types[at] = kind;
        values[at] = value;
    }
    let arguments = json!({"Input Dims": dims, "Input type": types, "Concrete Inputs": values});
    Op { name, arguments }
}

/// Two sequences of 8 tokens, 4 heads of 16, and 2 of keys and values.
fn sdpa(queries: u64, is_causal: &'static str) -> Op {
    let of_keys = json!([2, 2, 8, 16]);
    op(
        SDPA,
        7,
        &[
            (0, json!([2, 4, queries, 16]), HALF, ""),
            (1, of_keys.clone(), HALF, ""),
            (2, of_keys, HALF, ""),
            (3, json!([]), "Scalar", "0."),
            (4, json!([]), "Scalar", is_causal),
            (5, json!([]), "Scalar", "False"),
        ],
    )
}

/// What `_scaled_dot_product_flash_attention` calls: tokens before heads.
fn flash(window: &'static str) -> Op {
    let of_keys = json!([2, 8, 2, 16]);
    op(
        FLASH,
        15,
        &[
            (0, json!([2, 8, 4, 16]), HALF, ""),
            (1, of_keys.clone(), HALF, ""),
            (2, of_keys, HALF, ""),
            (8, json!([]), "Scalar", "True"),
            (11, json!([]), "Scalar", window),
        ],
    )
}

/// 6 tokens of 3 requests, 4 heads of 16, 2 of keys in pages of 16.
fn varlen(is_causal: &'static str, window: &'static str, longest: &'static str) -> Op {
    let cache = json!([100, 16, 2, 16]);
    op(
        VARLEN,
        21,
        &[
            (0, json!([6, 4, 16]), HALF, ""),
            (1, cache.clone(), HALF, ""),
            (2, cache, HALF, ""),
            (3, json!([6, 4, 16]), HALF, ""),
            (4, json!([4]), "int", ""),
            (6, json!([3]), "int", ""),
            (8, json!([3, 7]), "int", ""),
            (11, json!([]), "Scalar", longest),
            (15, json!([]), "Scalar", is_causal),
            (16, json!([]), "Scalar", window),
            (17, json!([]), "Scalar", "-1"),
        ],
    )
}

fn full() -> Op {
    varlen("True", "-1", "10")
}

fn event(category: &str, name: &str, at: u64, duration: u64, args: &Value) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": duration, "args": args})
}

fn kernel(name: &str, at: u64, correlation: u64) -> Value {
    let args = json!({"device": 0, "stream": 7, "correlation": correlation});
    json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": 10, "args": args})
}

fn trace(events: &[Value]) -> String {
    json!({"schemaVersion": 1, "traceEvents": events}).to_string()
}

/// Operations one behind the other, each with those inside of it, and a call that launches kernel `attn_0`, `attn_1` and so
/// on from the innermost one.
fn launched(all: &[&[Op]]) -> Vec<Value> {
    let mut events = Vec::new();
    for (nested, number) in all.iter().zip(0_u64..) {
        let at = 1000 + 100 * number;
        for (op, depth) in nested.iter().zip(0_u64..) {
            let (at, duration) = (at + depth, 90 - 2 * depth);
            events.push(event("cpu_op", op.name, at, duration, &op.arguments));
        }
        let args = json!({"correlation": number + 1, "kernel": format!("attn_{number}")});
        events.push(event("cuda_runtime", "hipLaunchKernel", at + 20, 5, &args));
    }
    events
}

/// A step that launches the kernels one by one.
fn eager(step: &str, all: &[&[Op]]) -> Profile {
    let mut events = vec![event("user_annotation", step, 990, 5000, &json!({}))];
    events.extend(launched(all));
    for number in 0..all.len() as u64 {
        events.push(kernel(&format!("attn_{number}"), 2000 + 20 * number, number + 1));
    }
    imported(&trace(&events), Format::Chrome)
}

/// FLOPs, bytes, and bytes of the KV cache of a kernel.
fn work(profile: &Profile, kernel: &str) -> [u64; 3] {
    let mut totals = profile.devices[0].streams[0].totals.iter();
    let total = totals.find(|of| of.kind == NameKind::Kernel && of.stats.name == kernel);
    let stats = &total.unwrap_or_else(|| panic!("no {kernel}")).stats;
    [stats.total_flops, stats.total_bytes, stats.data.kv]
}

fn lacks(profile: &Profile) -> String {
    let imported = profile.imported.as_ref().expect("it is imported");
    imported.lacks.iter().map(|lack| lack.reason.as_str()).collect::<Vec<_>>().join("\n")
}

/// That an attention has no work, and what is said of it.
fn without(step: &str, of: &[&[Op]], why: &str) {
    let profile = eager(step, of);
    for number in 0..of.len() {
        assert_eq!(work(&profile, &format!("attn_{number}")), [0; 3], "{why}");
    }
    let calls = if of.len() == 1 { "1 call".to_owned() } else { format!("{} calls", of.len()) };
    let said = format!("work of attention ({calls}): {why}");
    assert!(lacks(&profile).contains(&said), "{}", lacks(&profile));
}

#[test]
fn dimensions_and_causality_tell_flops_and_bytes() {
    // Queries and result, and 16 keys and values of 2 heads of 16 numbers.
    let bytes = 2 * (2 * 4 * 8 * 16 * 2) + 16 * 2 * 32 * 2;
    let both = [sdpa(8, "True"), flash("")];
    let profile = eager(PLAIN, &[&[sdpa(8, "False")], &[sdpa(8, "True")], &both]);
    // 64 pairs of a sequence, or 36 with those that are causal; 4 heads; 2·(16 + 16) FLOPs.
    assert_eq!(work(&profile, "attn_0"), [2 * 64 * 4 * 64, bytes, 0]);
    assert_eq!(work(&profile, "attn_1"), [2 * 36 * 4 * 64, bytes, 0]);
    // Both are the same one.
    assert_eq!(work(&profile, "attn_2"), [2 * 36 * 4 * 64, bytes, 0]);
    assert!(!lacks(&profile).contains("work of attention"), "{}", lacks(&profile));
}

#[test]
fn keys_that_are_shown_several_times_have_no_bytes() {
    let mut spread = sdpa(8, "False");
    let strides = [512, 0, 16, 1];
    spread.arguments["Input Strides"] = json!([[512, 128, 16, 1], strides, strides]);
    let profile = eager(PLAIN, &[&[spread]]);
    assert_eq!(work(&profile, "attn_0"), [2 * 64 * 4 * 64, 0, 0]);
}

#[test]
fn the_name_of_a_step_tells_the_keys_of_its_requests() {
    let profile = eager(MIXED, &[&[op(VLLM, 8, &[]), full()]]);
    // 4·6 − 4·3/2 pairs of the first request, 20 of the others.
    let flops = (18 + 20) * 4 * 64;
    let kv = 26 * 2 * 32 * 2;
    assert_eq!(work(&profile, "attn_0"), [flops, 2 * (6 * 4 * 16 * 2) + kv, kv]);
}

#[test]
fn what_is_masked_must_be_in_the_file() {
    let mask = (3, json!([1, 1, 8, 8]), HALF, "");
    let masked = op(EFFICIENT, 8, &[mask, (6, json!([]), "Scalar", "False")]);
    without(PLAIN, &[&[masked]], "it has a mask");
    without(PLAIN, &[&[sdpa(4, "True")]], "it is causal with other numbers of queries than keys");
    without(PLAIN, &[&[sdpa(8, "")]], "its arguments don't say whether it is causal");
    without(PLAIN, &[&[sdpa(8, "True"), flash("4")]], "it sees a window of the keys");
    without(MIXED, &[&[varlen("True", "127", "10")]], "it sees a window of the keys");
    // As vLLM's Triton kernels.
    without(MIXED, &[&[op(VLLM, 8, &[])]], "its arguments don't say whether it sees all keys");
}

#[test]
fn the_keys_must_be_those_of_the_step() {
    without(PLAIN, &[&[full()]], "the name of its step doesn't say how many keys");
    let others = "execute_7_context_1(sq5sk6sqsq25sqsk30)_generation_2(sq2sk20sqsq2sqsk20)";
    without(others, &[&[full()]], "its tokens or requests aren't those");
    // Of a prefix that requests share, and of the rest.
    let prefix = varlen("False", "-1", "10");
    without(MIXED, &[&[prefix], &[full()]], "it may see only a part of its layer's keys");
    // Of chunks, and of all.
    let chunked = varlen("True", "-1", "8");
    without(MIXED, &[&[chunked], &[full()]], "calls of its step differ");
    // Layers with a window change nothing for those without.
    let profile = eager(MIXED, &[&[varlen("True", "127", "10")], &[full()]]);
    assert_eq!(work(&profile, "attn_0"), [0; 3]);
    assert_eq!(work(&profile, "attn_1")[0], (18 + 20) * 4 * 64);
}

/// Of SGLang: two requests with a token each, as the capture has them.
fn fa3() -> Op {
    let cache = json!([100, 16, 2, 16]);
    op(
        FA3,
        36,
        &[
            (0, json!([2, 4, 16]), HALF, ""),
            (1, cache.clone(), HALF, ""),
            (2, cache, HALF, ""),
            (7, json!([3]), "int", ""),
            (11, json!([2]), "int", ""),
            (14, json!([2, 7]), "int", ""),
            (23, json!([]), "Scalar", "0.25"),
            (24, json!([]), "Scalar", "True"),
            (25, json!([]), "Scalar", "-1"),
            (26, json!([]), "Scalar", "-1"),
        ],
    )
}

/// The same with another argument.
fn fa3_with(at: usize, kind: &str, value: &str) -> Op {
    let mut call = fa3();
    call.arguments["Input type"][at] = json!(kind);
    call.arguments["Concrete Inputs"][at] = json!(value);
    call
}

#[test]
fn newer_arguments_of_flash_attention_3_may_leave_out_keys() {
    let step = "step[DECODE bs=2 g_sq=2 g_sqsq=2 g_sqsk=20 g_sk=20]";
    // The cap of the softmax in an older version, and no chunks in a newer one; the number of this device of one.
    let [cap, chunk] = ["50.", "0"].map(|value| fa3_with(27, "Scalar", value));
    let device = fa3_with(35, "Scalar", "0");
    let profile = eager(step, &[&[cap], &[chunk], &[device]]);
    for kernel in ["attn_0", "attn_1", "attn_2"] {
        assert_eq!(work(&profile, kernel)[0], 20 * 4 * 64, "{kernel}");
    }
    without(step, &[&[fa3_with(27, "Scalar", "8192")]], "it sees a window of the keys");
    without(step, &[&[fa3_with(34, "Scalar", "2")]], "it may see only a part of its layer's keys");
    without(step, &[&[fa3_with(35, "int", "")]], "it has a mask");
}

#[test]
fn sums_of_keys_may_be_without_guessed_tokens() {
    let mut call = fa3();
    // Two tokens of each request.
    call.arguments["Input Dims"][0] = json!([4, 4, 16]);
    let step = "step[DECODE bs=2 g_sq=4 g_sqsq=8 g_sqsk=40 g_sk=20]";
    without(step, &[&[call]], "its requests have several tokens each");
}

#[test]
fn a_capture_tells_heads_and_each_step_its_keys() {
    let mut events = launched(&[&[fa3()], &[fa3()]]);
    let bound = |name, at| event("cuda_runtime", name, at, 5, &json!({"correlation": at}));
    events.push(bound("hipStreamBeginCapture", 900));
    events.push(bound("hipStreamEndCapture", 9000));
    events.push(event("user_annotation", "capture_2_FULL", 890, 9000, &json!({})));
    let captured = read_capture(&trace(&events), Path::new("capture.json"), &Options::default());
    let options = Options { captures: vec![captured.expect("a capture")], ..Options::default() };
    let replayed = |step: &str| {
        let events = [
            event("user_annotation", step, 1000, 2000, &json!({})),
            event("cuda_runtime", "hipGraphLaunch", 1010, 20, &json!({"correlation": 9})),
            kernel("attn_0", 1100, 9),
            kernel("attn_1", 1120, 9),
        ];
        import(&trace(&events), Format::Chrome, &options).expect("a trace")
    };
    for keys in [20, 30] {
        let step = format!("step[DECODE bs=2 g_sq=2 g_sqsq=2 g_sqsk={keys} g_sk={keys}]");
        let kv = keys * 2 * 32 * 2;
        let expected = [keys * 4 * 64, 2 * (2 * 4 * 16 * 2) + kv, kv];
        let profile = replayed(&step);
        assert_eq!(work(&profile, "attn_0"), expected);
        assert_eq!(work(&profile, "attn_1"), expected);
    }
    let profile = replayed("step[DECODE bs=2]");
    assert_eq!(work(&profile, "attn_0"), [0; 3]);
    let said = "work of attention (2 calls): the name of its step doesn't say how many keys";
    assert!(lacks(&profile).contains(said), "{}", lacks(&profile));
}
