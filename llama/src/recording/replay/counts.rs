//! What is counted of a recording besides times, and what is said of passes that are left out.

use brickscope::Phase;

/// What is counted on the way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) threads: u32,
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
    /// Passes that llama.cpp said had failed.
    pub(crate) failed: u64,
    /// Passes of which not all readings are there.
    pub(crate) incomplete: u64,
    /// Whether another backend computed nodes of passes that were timed in none.
    pub(crate) has_untimed: bool,
    /// Whether a pass was a call of llama.cpp, or looked up tokens as that does.
    pub(crate) is_llama: bool,
    /// Passes of which no node was timed, since another backend than the CPU computed them.
    pub(crate) elsewhere: u64,
    /// Graphs by themselves that no model is computed by.
    pub(crate) no_products: u64,
    /// Passes whose nodes were not timed, since they were compared with those whose nodes were.
    pub(crate) bare: u64,
    /// Passes with a graph that wasn't described, or whose readings don't fit.
    pub(crate) misfits: u64,
    /// Passes whose position isn't known.
    pub(crate) no_position: u64,
    pub(crate) warm_up: u64,
    /// Passes by which the program itself warms up.
    pub(crate) own_warm_up: u64,
    /// Passes that read a prompt of one sequence and decode another.
    pub(crate) mixed: u64,
}

impl Counts {
    pub(crate) fn add_tokens(&mut self, phase: Phase, tokens: u64) {
        let sum = match phase {
            Phase::Prefill | Phase::Encode | Phase::Training => &mut self.prompt_tokens,
            Phase::Decode => &mut self.generated_tokens,
        };
        *sum = sum.saturating_add(tokens);
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut say = |count: u64, what: &str| {
            if count > 0 {
                notes.push(format!("{count} {}{what}", if count == 1 { "pass" } else { "passes" }));
            }
        };
        say(
            self.warm_up,
            " left out: the first of each shape warms up, and their graphs were described in them",
        );
        say(self.own_warm_up, " left out: the program warms up by them");
        say(self.failed, " left out: llama.cpp returned an error");
        say(
            self.elsewhere,
            " not seen: the CPU computed nothing of them, so another backend did (a GPU?), whose nodes could not be \
             timed. Run with `-ngl 0`, or see what the backend's own profiler tells",
        );
        say(self.bare, " left out: their nodes were not timed, to measure what that costs");
        say(
            self.no_products,
            " left out: they multiply no matrix, so no model is computed by them",
        );
        say(self.incomplete, " left out: not all of their readings could be written");
        say(self.misfits, " left out: their readings do not fit their graphs");
        say(
            self.no_position,
            " counted as at position 0: this version does not say what is in the cache",
        );
        say(
            self.mixed,
            " read a prompt and decoded other sequences at once: prefill, with the tokens of both",
        );
        notes
    }
}
