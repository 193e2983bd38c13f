//! Several copies of ggml in one process, of which one is shown.

use std::collections::BTreeMap;

use brickscope_llama::file::Recorded;

use super::passes::{Found, Passes};

/// Which copy of ggml is shown, of several in one process: the one whose passes took longest.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) library: Option<u32>,
    /// What the others did, as sentences.
    pub(super) others: Vec<String>,
}

impl Shown {
    pub(super) fn of(recorded: &Recorded, at: impl Fn(u64) -> u64) -> Self {
        let mut all: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for found in Passes::of(recorded) {
            if let Some(library) = library_of(recorded, &found) {
                let (passes, ns) = all.entry(library).or_default();
                *passes += 1;
                *ns += at(found.pass.end).saturating_sub(at(found.pass.begin));
            }
        }
        let longest = all.iter().max_by_key(|(_, (_, ns))| *ns).map(|(library, _)| *library);
        let others = all.iter().filter(|(library, _)| Some(**library) != longest);
        let others = others.map(|(library, (passes, ns))| {
            let passes = crate::text::count(*passes, "pass");
            let (theirs, shown) = (name(recorded, *library), name(recorded, longest.unwrap_or(0)));
            format!(
                "{passes} of {theirs}, which took {:.1} ms, left out: this is a report of {shown}",
                *ns as f64 / 1e6
            )
        });
        Self { library: longest, others: others.collect() }
    }

    pub(super) fn has(&self, recorded: &Recorded, found: &Found<'_>) -> bool {
        library_of(recorded, found).is_none_or(|library| Some(library) == self.library)
    }
}

/// The copy of ggml that computed a pass, where it is known.
pub(super) fn library_of(recorded: &Recorded, found: &Found<'_>) -> Option<u32> {
    found.graphs.iter().find_map(|graph| recorded.copies.get(&graph.number)).copied()
}

/// `libggml-cpu.so (ggml 0.13.1)`.
pub(super) fn name(recorded: &Recorded, library: u32) -> String {
    let of = recorded.libraries.get(&library).cloned().unwrap_or_default();
    let file = of.file.rsplit('/').next().filter(|file| !file.is_empty());
    let version = of.version.map(|version| format!(" (ggml {version})")).unwrap_or_default();
    file.unwrap_or("the program's own ggml").to_owned() + &version
}
