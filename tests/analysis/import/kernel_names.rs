//! Names of kernels as traces and sources have them, each with its brick: `tests/data/import/kernel-names.toml`.

use std::collections::HashMap;

use brickscope::{NameKind, Profile};
use brickscope_formats::import::Format;
use brickscope_profile::Span;

use super::imported;

const NAMES: &str = include_str!("../../data/import/kernel-names.toml");

/// The names with their bricks: lines `"name" = "brick"`.
fn names() -> Vec<(&'static str, &'static str)> {
    let lines = NAMES.lines().filter(|line| line.starts_with('"'));
    let rule = |line: &'static str| {
        let (name, brick) = line.strip_prefix('"')?.strip_suffix('"')?.split_once("\" = \"")?;
        Some((name, brick))
    };
    lines.map(|line| rule(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

/// A trace of a graph with a kernel of each name, so that nothing but its name tells its brick.
fn trace(names: &[(&str, &str)]) -> Profile {
    let mut events = vec![
        r#"{"ph":"X","cat":"cuda_runtime","name":"cudaGraphLaunch","pid":1,"tid":1,"ts":1000,"dur":5,"args":{"correlation":1}}"#
            .to_owned(),
    ];
    events.extend(names.iter().enumerate().map(|(nth, (name, _))| {
        let name = serde_json::to_string(name).expect("JSON");
        format!(
            r#"{{"ph":"X","cat":"kernel","name":{name},"pid":0,"tid":7,"ts":{},"dur":1,"args":{{"device":0,"stream":7,"correlation":1}}}}"#,
            1_010 + 2 * nth
        )
    }));
    imported(&format!("[{}]", events.join(",")), Format::Chrome)
}

/// The brick of each kernel.
fn bricks(profile: &Profile) -> HashMap<String, String> {
    let stream = &profile.devices[0].streams[0];
    let name = |at: Option<u16>| &profile.names[usize::from(at.expect("a name"))];
    let kernels = stream.spans.iter().filter(|span| name(span.name).kind == NameKind::Kernel);
    let brick_of = |span: &Span| {
        let brick = stream.spans[span.parent.expect("a brick") as usize].name;
        (name(span.name).name.clone(), name(brick).name.clone())
    };
    kernels.map(brick_of).collect()
}

#[test]
fn kernels_of_today_are_in_their_bricks() {
    let names = names();
    assert!(names.len() > 600, "{}", names.len());
    let profile = trace(&names);
    let bricks = bricks(&profile);
    let wrong: Vec<String> = names
        .iter()
        .filter_map(|(name, brick)| {
            let is = bricks.get(*name).map_or("nowhere", String::as_str);
            let right = if brick.is_empty() { name } else { brick };
            (is != *right).then(|| format!("{name}: {is}, not {right}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // A name that the table has so as to be no brick isn't one that it lacks.
    assert_eq!(profile.imported.expect("of a file").unruled, None);
}

#[test]
fn what_the_table_lacks_is_told_and_the_longest_first() {
    let profile = trace(&[
        ("void my_scanner<int>(int*)", ""),
        ("my_own_kernel", ""),
        ("void my_scanner<long>(long*)", ""),
        ("rms_norm_f32", "RmsNorm"),
        ("\u{202e}", ""),
    ]);
    let unruled = profile.imported.expect("of a file").unruled.expect("it lacks some");
    // Each takes 1 µs; two are of one template.
    assert_eq!((unruled.names, unruled.ns, unruled.of_ns), (4, 4_000, 5_000));
    let longest: Vec<(&str, u64)> =
        unruled.longest.iter().map(|(pattern, ns)| (pattern.as_str(), *ns)).collect();
    assert_eq!(longest, [("void my_scanner*", 2_000), ("my_own_kernel", 1_000)]);
}
