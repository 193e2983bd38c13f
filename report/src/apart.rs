//! What tells two runs apart that are side by side: their marks, and in what they differ.

use brickscope_profile::Profile;

use super::figure::{at, counted};
use super::html::said;

/// The marks of the two runs, in the colours of their bars.
pub(super) const A: &str = "<span class=\"side a\">A</span>";
pub(super) const B: &str = "<span class=\"side b\">B</span>";

/// What tells the runs apart beside their names: the format of the weights, versions, threads. Empty where they don't differ,
/// or where one has no figures.
pub(super) fn apart(runs: [&Result<Profile, String>; 2]) -> [String; 2] {
    let [Ok(a), Ok(b)] = runs else { return Default::default() };
    let (mut of_a, mut of_b) = (String::new(), String::new());
    for ((a, html_a), (b, html_b)) in features(a, "A:").into_iter().zip(features(b, "B:")) {
        if a != b {
            of_a.push_str(&html_a);
            of_b.push_str(&html_b);
        }
    }
    [of_a, of_b]
}

/// What may tell a run from another one: each as text, and as it is shown.
fn features(profile: &Profile, run: &str) -> Vec<(String, String)> {
    let (model, of) = (profile.model.as_ref(), profile.run.as_ref());
    let engine = of.and_then(|of| of.engine.as_ref());
    let texts = [
        model.map(|model| &model.quantization),
        of.map(|of| &of.backend),
        engine.and_then(|engine| engine.library.as_ref()),
        engine.and_then(|engine| engine.version.as_ref()),
        engine.and_then(|engine| engine.commit.as_ref()),
        Some(&profile.brickscope_version),
    ];
    let texts = texts.into_iter().map(|text| match text {
        Some(text) if !text.is_empty() => (text.clone(), format!(" · {}", said(text))),
        _ => Default::default(),
    });
    let threads = of.map_or(0, |of| of.threads);
    let shown = match threads {
        0 => String::new(),
        n => format!(" · {}", counted(n.into(), "thread", at(format!("{run}/run/threads")))),
    };
    texts.chain([(threads.to_string(), shown)]).collect()
}
