//! What the writer of a receipt knows against its figures that doesn't follow from them: a sentence each. Those that follow
//! are [`derived_doubts`](brickscope_analysis::receipt::derived_doubts).

/// The circumstances of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances {
    /// The number of periods in which the control group's limit stopped this process.
    pub(crate) throttled: u64,
    /// Whether the program was built without optimisation.
    pub(crate) is_debug: bool,
}

/// All warnings that only the writer can give.
pub(crate) fn warnings(circumstances: Circumstances) -> Vec<String> {
    let Circumstances { throttled, is_debug } = circumstances;
    let debug = is_debug.then(|| "The program was built without optimisation.".to_owned());
    let stopped =
        || format!("The control group's CPU limit stopped the process {throttled} times.");
    debug.into_iter().chain((throttled > 0).then(stopped)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_circumstance_is_a_sentence() {
        assert_eq!(warnings(Circumstances { throttled: 0, is_debug: false }), [""; 0]);
        assert_eq!(
            warnings(Circumstances { throttled: 4, is_debug: true }),
            [
                "The program was built without optimisation.",
                "The control group's CPU limit stopped the process 4 times.",
            ]
        );
    }
}
