//! Profiles of ONNX Runtime. `onnx.json` was made by hand, in the form that the runtime writes and with the names of
//! onnxruntime-genai: two layers, a prompt of five tokens and two steps of decode, in which each operation takes a third of its time in
//! the prompt.

use brickscope::{Phase, Profile};
use brickscope_analysis::view;
use brickscope_formats::import::{Format, Map, Options, format_of};

use super::{import, imported, passes_of, sums};

pub(crate) const RUNS: &str = include_str!("../../data/import/onnx.json");

/// Phase, tokens, nanoseconds, and those of them in no brick.
fn passes(profile: &Profile) -> Vec<(Phase, u64, u64, u64)> {
    let of = profile.passes.iter();
    of.map(|pass| (pass.phase, pass.tokens, pass.wall_ns, pass.unattributed_ns)).collect()
}

#[test]
fn runs_of_the_model_are_passes_by_the_shapes_of_their_operations() {
    assert_eq!(format_of(RUNS), Some(Format::Chrome));
    let profile = imported(RUNS, Format::Chrome);
    let decode = (Phase::Decode, 1, 204_000, 36_000);
    // 504 of 540 µs are in operations, and what lies between these is in no brick.
    assert_eq!(passes(&profile), [(Phase::Prefill, 5, 540_000, 36_000), decode, decode]);
    let imported = profile.imported.as_ref().expect("of a file");
    assert_eq!(imported.program.as_deref(), Some("ONNX Runtime"));
    assert!(imported.doubts.is_empty() && imported.left_out.is_empty());
    assert!(view::report(&profile).contains("by ONNX Runtime"));
}

#[test]
fn operations_are_bricks_by_their_modules_or_by_what_they_compute() {
    let profile = imported(RUNS, Format::Chrome);
    for (brick, count, each_ns) in [
        ("Embedding", 1, 2_000),
        ("QkvProjection", 2, 20_000),
        ("FlashAttention", 2, 11_000),
        ("OutputProjection", 2, 9_000),
        ("Elementwise", 2, 5_000),
        ("DownProjection", 2, 17_000),
        ("LmHead", 1, 31_000),
        // One that the table doesn't know.
        ("CustomSampler", 1, 1_000),
    ] {
        let ns = count * each_ns;
        assert_eq!(sums(&profile, Some(Phase::Prefill), brick), (count, 3 * ns, 3 * ns), "{brick}");
        let (count, ns) = (2 * count, 2 * ns);
        assert_eq!(sums(&profile, Some(Phase::Decode), brick), (count, ns, ns), "{brick}");
    }
    // Of both layers, and the one behind them.
    assert_eq!(sums(&profile, Some(Phase::Prefill), "RmsNorm"), (3, 30_000, 30_000));
    let mut bricks: Vec<&str> = profile.names.iter().map(|name| &*name.name).collect();
    bricks.sort_unstable();
    bricks.retain(|name| name.contains("model") || name.contains("session") || name.contains('/'));
    // Outside of passes.
    assert_eq!(bricks, ["model_loading_uri", "session_initialization"]);
    assert_eq!(sums(&profile, None, "session_initialization").1, 2_003_000);
}

#[test]
fn layers_are_those_of_the_modules_without_the_last_norms() {
    let profile = imported(RUNS, Format::Chrome);
    let in_layer = |layer: Option<u16>| -> u64 {
        let spans = profile.spans.iter().filter(|span| span.layer == layer);
        spans.filter(|span| span.pass == Some(2)).map(|span| span.exclusive_ns).sum()
    };
    assert_eq!(in_layer(Some(0)), 65_000);
    assert_eq!(in_layer(Some(1)), 65_000);
    assert_eq!(in_layer(Some(2)), 0);
    assert_eq!(in_layer(None), 38_000);
}

#[test]
fn the_user_says_which_runs_are_passes_and_what_operations_are() {
    let of_user = import(RUNS, Format::Chrome, &passes_of("model_run[2..]")).expect("passes");
    let phases: Vec<Phase> = of_user.passes.iter().map(|pass| pass.phase).collect();
    assert_eq!(phases, [Phase::Decode, Phase::Decode]);
    let text = "[range]\n\"onnx::CustomSampler\" = \"Sampling\"\n".to_owned();
    let map = Map { path: "map.toml".into(), text };
    let options = Options { map: Some(map), ..Options::default() };
    let mapped = import(RUNS, Format::Chrome, &options).expect("a table");
    assert_eq!(sums(&mapped, Some(Phase::Decode), "Sampling"), (2, 2_000, 2_000));
}

#[test]
fn a_list_without_its_end_is_read_and_runs_without_shapes_are_no_passes() {
    let open = RUNS.trim_end().trim_end_matches(']');
    assert_eq!(passes(&imported(open, Format::Chrome)).len(), 3);
    let without = RUNS.replace("input_type_shape", "shape");
    let profile = imported(&without, Format::Chrome);
    assert!(profile.passes.is_empty());
    assert_eq!(sums(&profile, None, "QkvProjection").0, 6);
}
