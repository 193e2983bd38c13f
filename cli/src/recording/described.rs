//! A run of a group of passes, with what is known of the engine, the machine and the model.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use brickscope::{
    Absent, Anchor, Beside, BrickProfiler, Clock, Engine, Model, Overhead, Phase, PhaseBeside,
    PhaseTotal, Profile, Run, Serialised,
};
use brickscope_analysis::typical;
use brickscope_llama::recording::{Files, Group, Recorded, Replayed, replay};

use crate::{ceilings_cache, progress, source, text};

/// A group of passes that is to be a run.
pub(crate) struct Of<'r> {
    pub(crate) recorded: &'r Recorded,
    pub(crate) groups: &'r [Group],
    /// The one that is meant.
    pub(crate) nth: usize,
    /// The process, if it is told apart from others by that.
    pub(crate) process: Option<u32>,
    /// The command line.
    pub(crate) line: &'r [OsString],
    /// The models that graphs have weights of, where their file was read for names.
    pub(crate) files: &'r Files,
    /// When the program began, on the machine's clocks, too.
    pub(crate) anchor: Option<Anchor>,
    /// Whether the program has ended. While it runs nothing is measured beside it, and nothing is drawn on its terminal.
    pub(crate) is_over: bool,
}

/// A run, with what is known of the machine and the model.
pub(crate) struct Described {
    pub(crate) profile: Profile,
    /// What tells it apart from the others of its process.
    name: String,
    /// As [`Replayed::turns`].
    pub(crate) turns: Vec<(f64, f64)>,
}

impl Described {
    /// How the run that this one is beside of tells of it.
    pub(crate) fn beside(&self, folder: String) -> Beside {
        let shown = typical::shown(&self.profile);
        let phases = Phase::ALL.into_iter().filter_map(|phase| {
            let PhaseTotal { tokens, wall_ns, .. } = *shown.phase(phase)?;
            Some(PhaseBeside { phase, tokens, wall_ns })
        });
        Beside { name: self.name.clone(), folder, phases: phases.collect() }
    }
}

impl Of<'_> {
    /// `None`, with the reason among the notes, if no pass of it can be read.
    pub(crate) fn described(
        &self,
        clock: &Clock,
        notes: &mut Vec<String>,
        is_first: bool,
    ) -> Option<Described> {
        let group = &self.groups[self.nth];
        let note = self.is_over.then(|| progress::note("labelling what was recorded"));
        let replayed = replay(self.recorded, group, BrickProfiler::with_clock(clock.clone()));
        if let Some(note) = note {
            note.finish_and_clear();
        }
        let Replayed { mut profile, threads, has_untimed, is_llama, turns, .. } = replayed;
        let path = self.model_of(group).filter(|_| is_llama);
        let file = path.as_deref().and_then(Path::file_name).map(OsStr::to_string_lossy);
        let mut name = group.name(self.groups, file.as_deref());
        if let Some(process) = self.process {
            name += &format!(" in process {process}");
        }
        // The first one needs no name, unless it is none.
        let is_only = self.groups.len() == 1 && self.process.is_none();
        // Of passes that were only summed, the phases tell.
        let is_empty = profile.passes.is_empty() && profile.phases.is_empty();
        let of = match is_first && !is_empty || is_only {
            true => String::new(),
            false => format!(" of {name}"),
        };
        let named = |note: &String| {
            let (count, rest) = note.split_once(" pass").unwrap_or((note, ""));
            let (es, rest) = if rest.starts_with("es") { rest.split_at(2) } else { ("", rest) };
            format!("{count} pass{es}{of}{rest}")
        };
        notes.extend(replayed.notes.iter().map(named));
        if is_empty {
            return None;
        }
        profile.process = Some(self.recorded.process);
        if let (Some(began), Some(profiled)) = (self.anchor, profile.clock.anchors.first_mut()) {
            // It was profiled before it was read.
            *profiled = began;
        }
        profile.overhead = Overhead {
            span_ns: None,
            spans: profile.overhead.spans,
            basis: "absent: readings were taken in another process".to_owned(),
            measured: None,
            preparations: Vec::new(),
        };
        profile.run = Some(Run {
            cut_short: (!self.is_over).then(|| Run::WHILE_IT_RAN.to_owned()),
            command: text::kept(self.line),
            backend: backend_of(&profile, is_llama),
            threads,
            prompt_tokens: replayed.prompt_tokens,
            generated_tokens: replayed.generated_tokens,
            between: replayed.between,
            engine: Some(group.engine.clone()).filter(|engine| *engine != Engine::default()),
            ..Run::default()
        });
        profile.model = match path {
            Some(path) => Some(source::describe_file(&path)),
            None => group.model().or_else(|| self.model_in_graphs(group)),
        };
        // They would be measured for nothing.
        let is_serialised = |phase: &PhaseTotal| profile.serialised(phase.phase).is_some();
        let no_roof = profile.phases.iter().all(is_serialised).then(|| profile.serialised.first());
        let no_roof = no_roof.flatten().map(Serialised::no_roof).or_else(|| {
            let reason = "another backend than the CPU computed nodes that were not timed";
            has_untimed.then(|| Absent { reason: reason.to_owned() })
        });
        let no_roof = no_roof.or_else(|| {
            let reason = "not measured while the program ran";
            (!self.is_over).then(|| Absent { reason: reason.to_owned() })
        });
        if no_roof.is_some() {
            profile.ceilings_absent = no_roof;
            return Some(Described { profile, name, turns });
        }
        let note = progress::note("measuring what this machine can do");
        let threads = NonZeroUsize::new(threads as usize).unwrap_or(NonZeroUsize::MIN);
        let measured = ceilings_cache::ceilings_of_others(profile.model.as_ref(), threads);
        note.finish_and_clear();
        match measured {
            Ok(ceilings) => profile.ceilings = Some(ceilings),
            Err(why) => profile.ceilings_absent = Some(why),
        }
        Some(Described { profile, name, turns })
    }

    fn model_in_graphs(&self, group: &Group) -> Option<Model> {
        group.graphs(self.recorded).find_map(|graph| self.files.get(&graph)).cloned()
    }

    /// The file of the model: one that the process had mapped, or an argument of the command, that has as many weights as the
    /// context's model; of a model in several files, the first one.
    fn model_of(&self, group: &Group) -> Option<PathBuf> {
        let mapped = self.recorded.models.iter().map(PathBuf::from);
        let is_gguf = |file: &PathBuf| file.extension() == Some(OsStr::new("gguf"));
        let named =
            self.line.iter().map(PathBuf::from).filter(|file| is_gguf(file) && file.is_file());
        let mut files: Vec<PathBuf> = Vec::new();
        for file in mapped.chain(named) {
            let canonical = fs::canonicalize(&file).ok();
            let is_it = |known: &PathBuf| {
                *known == file || canonical.is_some() && fs::canonicalize(known).ok() == canonical
            };
            if !files.iter().any(is_it) {
                files.push(file);
            }
        }
        let told = group.context.as_ref().and_then(|of| of.model.as_ref());
        let Some(parameters) = told.and_then(|of| of.parameters) else {
            // A recording that says nothing of contexts.
            return files.into_iter().next();
        };
        let alike = files.iter().map(|file| (file, source::describe_file(file)));
        let mut alike: Vec<_> = alike.filter(|(_, of)| of.parameters == parameters).collect();
        if let Some(bytes) = told.and_then(|of| of.bytes).filter(|_| alike.len() > 1) {
            let sum = |of: &Model| of.weights.iter().map(|group| group.bytes).sum::<u64>();
            alike.retain(|(_, of)| sum(of) == bytes);
        }
        match alike.as_slice() {
            [(only, _)] => Some(only.to_path_buf()),
            [] => files.iter().find(|file| part_of(file) == Some(1)).cloned(),
            _ => None,
        }
    }
}

/// 1 of `model-00001-of-00003.gguf`.
fn part_of(file: &Path) -> Option<u32> {
    let (before, all) = file.file_stem()?.to_str()?.rsplit_once("-of-")?;
    all.parse::<u32>().ok()?;
    before.rsplit_once('-')?.1.parse().ok()
}

/// What computed: `llama.cpp, CPU and CUDA0`.
fn backend_of(profile: &Profile, is_llama: bool) -> String {
    let mut all = vec!["CPU"];
    for device in profile.serialised.iter().flat_map(|of| &of.devices) {
        if !all.contains(&device.as_str()) {
            all.push(device);
        }
    }
    let last = all.pop().unwrap_or_default();
    let before = if all.is_empty() { String::new() } else { all.join(", ") + " and " };
    let engine = if is_llama { "llama.cpp" } else { "ggml" };
    format!("{engine}, {before}{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_model_has_its_number_in_its_name() {
        let part = |name: &str| part_of(Path::new(name));
        assert_eq!(part("/m/llama-00001-of-00003.gguf"), Some(1));
        assert_eq!(part("/m/llama-00012-of-00013.gguf"), Some(12));
        for none in ["llama.gguf", "end-of-line.gguf", "a-1-of-b.gguf", "", "/"] {
            assert_eq!(part(none), None, "{none}");
        }
    }
}
