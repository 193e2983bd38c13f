//! What a list says of a run, in a small file beside its profile: of thousands of runs nobody reads thousands of profiles.
//!
//! It is made from the profile, by the same functions as the first screen, and has no figure of its own. It counts only
//! while the profile has as many bytes as when it was made, and while [`VERSION`] is the same.

use std::fs;
use std::path::Path;

use brickscope_analysis::rate::{ByDevice, Overlapped, Rate, RateOf};
use brickscope_analysis::receipt::Receipt;
use brickscope_profile::run::model_name;
use brickscope_profile::text::file_name;
use brickscope_profile::{GraphLayersBy, Imported, Phase, Profile, ProfileError};
use serde::{Deserialize, Serialize};

use crate::files::{self, PROFILE, SUMMARY};

/// To be raised when a figure of the same profile becomes another one, so that files of before don't count.
const VERSION: u32 = 4;

/// The most bytes of the file, which has some hundred.
const MOST_BYTES: u64 = 16 << 10;

/// The most characters of a name. A model's file may give it any.
const MOST_OF_A_NAME: usize = 200;

/// What a list says of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// When it was made, as its file says: RFC 3339 in UTC.
    pub created: String,
    /// Of an import, when that was, in the same form. Earlier versions didn't note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_at: Option<String>,
    /// The file that it was imported from: its name, and whether a capture told the layers of its graphs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_from: Option<String>,
    /// The model. Of a run that brickscope's own Python wrote, and that knows none, what wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The quantisation, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// What ran it, and on what: `avx512`, `llama.cpp, CPU`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The threads that computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Decoded tokens per second, as the first screen says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_tokens_per_second: Option<f64>,
    /// The part of the time of decoding that this rate leaves out, since passes were disturbed or had a stall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_left_out_of_wall: Option<f64>,
    /// Why a list has no rate, though the first screen has: nothing ran for most of the time that it is of. There it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_rate: Option<String>,
    /// The same of passes that ran at the same time, together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_passes_overlapped: Option<Overlapped>,
    /// The passes of the phase that the first screen begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passes: Option<Passes>,
}

/// What is alike in two runs whose rates are of one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series([Option<String>; 3], Option<u32>);

impl Series {
    /// That of a run.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let Summary { model, quantization, backend, threads, .. } = Summary::of(profile);
        Self([model, quantization, backend], threads)
    }
}

/// The passes of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Passes {
    /// The phase's name.
    pub phase: Option<Phase>,
    /// How many.
    pub all: u64,
    /// How many of them were disturbed; `None` if nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<u64>,
}

/// The file.
#[derive(Serialize, Deserialize)]
struct Kept<S> {
    summary_version: u32,
    /// The length of the file that it was made from.
    of_bytes: u64,
    #[serde(flatten)]
    summary: S,
}

impl Summary {
    /// Of a profile.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let phase = Phase::SHOWN.into_iter().find_map(|phase| profile.phase(phase));
        let passes = phase.map(|total| Passes {
            phase: Some(total.phase),
            all: total.passes,
            // Files of earlier versions don't say whether somebody looked.
            disturbed: (total.unwatched.is_some() || total.disturbed > 0)
                .then_some(total.disturbed),
        });
        let model = profile.model.as_ref();
        let of = model.and_then(|model| model.called().or(Some(model.architecture.as_str())));
        let imported = profile.imported.as_ref();
        let own = imported.filter(|of| is_own(of)).and_then(|of| short(&of.format));
        let rate = Rate::of(profile, Phase::Decode);
        let by_device = rate.filter(|rate| rate.of == RateOf::DeviceSpans);
        let no_rate = by_device.and_then(|_| ByDevice::of(profile, Phase::Decode)?.doubt());
        let run = profile.run.as_ref();
        Self {
            created: profile.created.clone(),
            imported_at: profile.imported_at.clone(),
            imported_from: imported.filter(|of| !is_own(of)).and_then(source),
            model: of.and_then(short).or(own),
            quantization: model.and_then(|model| short(&model.quantized()?)),
            backend: run.and_then(|run| short(&run.backend)),
            threads: run.map(|run| run.threads).filter(|&threads| threads > 0),
            decode_tokens_per_second: rate
                .filter(|_| no_rate.is_none())
                .map(|rate| rate.tokens_per_second),
            decode_left_out_of_wall: rate.and_then(|rate| rate.left_out_of_wall),
            no_rate,
            decode_passes_overlapped: rate.and_then(|rate| rate.passes_overlapped),
            passes,
        }
    }

    /// Of a benchmark without a profile.
    #[must_use]
    pub fn of_receipt(receipt: &Receipt) -> Self {
        let model = &receipt.model;
        Self {
            created: receipt.timestamp.clone(),
            imported_at: None,
            imported_from: None,
            model: model_name(model.name.as_deref(), &model.path)
                .or(Some(model.architecture.as_str()))
                .and_then(short),
            quantization: short(&model.quantization),
            backend: short(&receipt.run.kernels),
            threads: Some(receipt.run.threads).filter(|&threads| threads > 0),
            decode_tokens_per_second: receipt.tokens_per_second,
            decode_left_out_of_wall: None,
            no_rate: None,
            decode_passes_overlapped: None,
            passes: None,
        }
    }

    /// Writes it beside the `file` in a run's folder. If that fails, the list reads the run instead.
    pub(crate) fn keep(&self, folder: &Path, file: &str) {
        let Ok(found) = fs::metadata(folder.join(file)) else { return };
        let kept = Kept { summary_version: VERSION, of_bytes: found.len(), summary: self };
        let Ok(mut json) = serde_json::to_vec(&kept) else { return };
        json.push(b'\n');
        if json.len() as u64 <= MOST_BYTES {
            let _ = files::put(folder, SUMMARY, &json);
        }
    }

    /// The one that is kept in a run's folder, if it is of a file with so many bytes.
    pub(crate) fn kept(folder: &Path, bytes: u64) -> Option<Self> {
        let json = files::small(&folder.join(SUMMARY), MOST_BYTES)?;
        let kept: Kept<Self> = serde_json::from_slice(&json).ok()?;
        (kept.summary_version == VERSION && kept.of_bytes == bytes).then_some(kept.summary)
    }
}

/// Writes a run's profile to its folder, and what a list says of it.
pub(crate) fn save(profile: &Profile, folder: &Path) -> Result<(), ProfileError> {
    profile.save(&folder.join(PROFILE))?;
    Summary::of(profile).keep(folder, PROFILE);
    Ok(())
}

/// Whether a run was measured and written by brickscope's own Python, at once and not by an import.
fn is_own(imported: &Imported) -> bool {
    imported.format.starts_with("brickscope")
}

/// What a run was imported from: the name of the file, and of a capture that there was one.
fn source(imported: &Imported) -> Option<String> {
    let file = Some(file_name(&imported.file)).filter(|file| !file.is_empty())?;
    let by = imported.graph_layers.as_ref().map(|layers| layers.by);
    let capture = if by == Some(GraphLayersBy::Capture) { " + capture" } else { "" };
    Some(short(file)? + capture)
}

/// A name of usual length; `None` if it is empty.
fn short(name: &str) -> Option<String> {
    let name: String = name.chars().take(MOST_OF_A_NAME).collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, BrickProfiler, GraphLayers, MockClock, Model};
    use brickscope_analysis::rate::Rule;
    use brickscope_profile::Run;

    use super::*;

    fn profile() -> Profile {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for position in 0..3 {
            let pass = profiler.begin_pass(Phase::Decode);
            let timer = profiler.start_brick(BrickId::LmHead);
            hand.advance(1_000_000);
            profiler.stop_brick(timer, 1);
            profiler.end_pass(pass, 1, position);
        }
        let mut profile = profiler.profile();
        profile.model = Some(Model {
            path: "models/110m-q8_0.gguf".to_owned(),
            quantization: "q8_0".to_owned(),
            ..Model::default()
        });
        profile
    }

    #[test]
    fn its_figures_are_those_of_the_first_screen() {
        let profile = profile();
        let summary = Summary::of(&profile);
        assert_eq!(summary.model.as_deref(), Some("110m-q8_0"));
        assert_eq!(summary.quantization.as_deref(), Some("q8_0"));
        assert_eq!(summary.decode_tokens_per_second, Some(1000.0));
        assert_eq!(summary.passes.map(|of| (of.phase, of.all)), Some((Some(Phase::Decode), 3)));
        // Nothing ran, so nothing is said.
        let nothing = Summary::of(&Profile::empty(Default::default()));
        let Summary { model, quantization, decode_tokens_per_second, passes, .. } = nothing;
        assert_eq!((model, quantization, decode_tokens_per_second, passes), Default::default());
    }

    #[test]
    fn a_rate_says_how_much_of_the_time_it_leaves_out() {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for position in 0..64 {
            let pass = profiler.begin_pass(Phase::Decode);
            let timer = profiler.start_brick(BrickId::LmHead);
            hand.advance(if position == 40 { 80_000_000 } else { 1_000_000 });
            profiler.stop_brick(timer, 1);
            profiler.end_pass(pass, 1, position);
        }
        let summary = Summary::of(&profiler.profile());
        assert_eq!(summary.decode_tokens_per_second, Some(1000.0));
        let part = summary.decode_left_out_of_wall.expect("one pass had a stall");
        assert!((part - 80.0 / 143.0).abs() < 1e-9, "{part}");
        assert_eq!(Rule::of(Some(part)), Rule::Clean);
        assert_eq!(Summary::of(&profile()).decode_left_out_of_wall, None);
    }

    #[test]
    fn runs_on_other_threads_or_engines_are_of_other_series() {
        let on = |backend: &str, threads| {
            let run = Run { backend: backend.to_owned(), threads, ..Run::default() };
            Profile { run: Some(run), ..profile() }
        };
        let summary = Summary::of(&on("llama.cpp, CPU", 2));
        assert_eq!(summary.backend.as_deref(), Some("llama.cpp, CPU"));
        assert_eq!(summary.threads, Some(2));
        let series = [("avx512", 2), ("llama.cpp, CPU", 2), ("llama.cpp, CPU", 1)]
            .map(|(backend, threads)| Series::of(&on(backend, threads)));
        assert_eq!(series[0], Series::of(&on("avx512", 2)));
        assert!(series[0] != series[1] && series[1] != series[2], "{series:?}");
        // What isn't known isn't 0.
        let Summary { backend, threads, .. } = Summary::of(&on("", 0));
        assert_eq!((backend, threads), (None, None));
    }

    #[test]
    fn one_that_is_kept_counts_while_its_profile_is_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(PROFILE);
        let mut profile = profile();
        save(&profile, folder.path()).expect("there is room");
        let length = || fs::metadata(&file).expect("it is there").len();
        let summary = Summary::of(&profile);
        assert_eq!(Summary::kept(folder.path(), length()), Some(summary.clone()));
        // Another file in its place.
        profile.brickscope_version.push_str("-other");
        profile.save(&file).expect("there is room");
        assert_eq!(Summary::kept(folder.path(), length()), None);
        // Of another version of this, or broken, or too long.
        let kept = folder.path().join(SUMMARY);
        let text = fs::read_to_string(&kept).expect("it is there");
        for other in [
            text.replace("\"summary_version\":4", "\"summary_version\":3"),
            text[..text.len() / 2].to_owned(),
            format!("{text}{}", " ".repeat(20_000)),
            String::new(),
        ] {
            fs::write(&kept, other).expect("there is room");
            assert_eq!(Summary::kept(folder.path(), length()), None);
        }
    }

    #[test]
    fn an_import_is_named_by_its_file_and_what_told_its_layers() {
        let mut profile = Profile::empty(Default::default());
        let layers = |by| {
            let detail = String::new();
            GraphLayers { by, layers: 2, kernels: 4, of_kernels: 4, detail }
        };
        let mut from = |format: &str, file: &str, by: Option<GraphLayersBy>| {
            profile.imported = Some(Imported {
                format: format.to_owned(),
                file: file.to_owned(),
                graph_layers: by.map(layers),
                ..Imported::default()
            });
            let Summary { model, imported_from, .. } = Summary::of(&profile);
            (model, imported_from)
        };
        let file = |name: &str| (None, Some(name.to_owned()));
        let path = "/traces/vllm_decode.json.gz";
        assert_eq!(from("chrome", path, None), file("vllm_decode.json.gz"));
        let by = Some(GraphLayersBy::Sequence);
        assert_eq!(from("chrome", path, by), file("vllm_decode.json.gz"));
        let by = Some(GraphLayersBy::Capture);
        assert_eq!(from("chrome", path, by), file("vllm_decode.json.gz + capture"));
        assert_eq!(from("chrome", "", None), (None, None));
        // It measured this itself.
        let own = (Some("brickscope.py".to_owned()), None);
        assert_eq!(from("brickscope.py", "run", None), own);
    }

    #[test]
    fn a_name_without_end_is_cut() {
        let mut profile = profile();
        if let Some(model) = &mut profile.model {
            model.name = Some("é".repeat(100_000));
        }
        let model = Summary::of(&profile).model.expect("a name");
        assert_eq!(model.chars().count(), MOST_OF_A_NAME);
    }
}
