//! Mixtures of experts.

use brickscope_profile::{ExpertRuns, ExpertTime, LayerExperts};

use super::*;

/// What experts of a layer have in each pass of the runs, in bytes: six tenths of what its two bricks read.
const EXPERTS: u64 = 6 * 2 * 47_500_000 / 10;

/// In each layer eight of 32 experts, of which one ran in nine tenths of the passes.
fn mixture(planted: &Planted) -> Profile {
    let mut profile = run(planted);
    let of_layer = |layer: u16| {
        let of = |expert: u32| {
            let reads = if expert == 7 { 36 } else { 40 };
            ExpertRuns {
                expert,
                tokens: reads,
                passes: reads,
                reads,
                bytes: EXPERTS * reads * 10 / 79,
            }
        };
        LayerExperts {
            phase: Phase::Decode,
            layer: Some(layer),
            n_expert: Some(32),
            n_used: Some(8),
            passes: 40,
            reads: 40,
            tokens: 40,
            experts: (0..8).map(of).collect(),
            times: Vec::new(),
            timed_passes: 0,
            odd: 0,
            unread: 0,
            unread_absent: None,
        }
    };
    profile.experts = (0..LAYERS).map(of_layer).collect();
    profile
}

fn found(profile: &Profile) -> Option<Finding> {
    Findings::of(profile).found.into_iter().find(|finding| finding.rule == "experts-read")
}

#[test]
fn a_mixture_under_the_memory_roof_says_how_many_experts_it_reads() {
    let profile = mixture(&Planted::default());
    let finding = found(&profile).expect("memory limits it");
    assert_eq!(finding.what, "a decode pass reads 7.9 of 32 experts a layer: 60 % of its weights");
    assert!(finding.gain.is_none() && finding.gain_absent.is_some());
    // What holds for all models comes first.
    assert_eq!(Findings::of(&profile).found[0].rule, "memory-roof");
}

#[test]
fn where_something_else_limits_or_not_all_is_known_nothing_is_said() {
    let far = Planted { of_roof: Some(0.2), ..Planted::default() };
    assert_eq!(found(&mixture(&far)), None);
    let mut unread = mixture(&Planted::default());
    unread.experts[1].unread = 1;
    assert_eq!(found(&unread), None);
    let mut few = mixture(&Planted::default());
    for of in few.experts.iter_mut().flat_map(|layer| &mut layer.experts) {
        of.bytes /= 2;
    }
    assert_eq!(found(&few), None);
    // Times alone tell nothing of what is read.
    let mut timed = mixture(&Planted::default());
    for layer in &mut timed.experts {
        let time = ExpertTime { expert: 7, ns: 1_000, kernels: 2, passes: 40 };
        *layer = LayerExperts {
            n_expert: None,
            n_used: None,
            passes: 0,
            reads: 0,
            tokens: 0,
            experts: Vec::new(),
            times: vec![time],
            timed_passes: 40,
            ..layer.clone()
        };
    }
    assert_eq!(found(&timed), None);
    assert_eq!(found(&run(&Planted::default())), None);
}
