//! Mixtures of experts.

use super::*;
use crate::recording::chosen::{Chosen, Unread};

/// Two layers of a mixture of four experts, of which each token chooses two: two products of the first layer, and one of
/// the second.
fn mixture(tokens: u64) -> Vec<Node> {
    let product = |name: &str, weight: &str, [columns, rows]: [u64; 2], ids: &str| {
        let weight = tensor(weight, [columns, rows, 4, 1]);
        let sources = vec![
            weight,
            tensor("ffn_norm", [columns, 1, tokens, 1]),
            tensor(ids, [2, tokens, 1, 1]),
        ];
        node("MUL_MAT_ID", name, [rows, 2, tokens, 1], sources)
    };
    let [first, second] = ["ffn_moe_topk-0", "ffn_moe_topk-1"];
    vec![
        product("ffn_moe_up-0", "blk.0.ffn_up_exps.weight", [64, 32], first),
        product("ffn_moe_down-0", "blk.0.ffn_down_exps.weight", [32, 64], first),
        product("ffn_moe_up-1", "blk.1.ffn_up_exps.weight", [64, 32], second),
    ]
}

/// A graph of it between two parts of a pass, in which so many tokens chose these experts in the two layers.
fn mixed(pass: &Pass, from: u64, tokens: u32, layers: [&[[u32; 2]]; 2]) -> Graph {
    let at = |part: u64| pass.begin + PASS_NS * part / 100;
    let chosen = |product: u32, experts: &[[u32; 2]]| Chosen {
        product,
        n_expert: 4,
        n_used: 2,
        tokens,
        experts: experts.to_vec(),
        ..Chosen::default()
    };
    let [first, second] = layers;
    let of = |experts: &[[u32; 2]]| Some(experts.len() as u32);
    Graph {
        number: 0,
        threads: 2,
        begin: at(from),
        end: at(from + 40),
        nodes: vec![at(from + 1), at(from + 10), at(from + 20)],
        experts: vec![of(first), of(first), of(second)],
        chosen: vec![chosen(0, first), chosen(2, second)],
        ..Graph::default()
    }
}

#[test]
fn experts_are_counted_by_layer_in_the_passes_that_count() {
    let mut recorded = Recorded { graphs: [(0, mixture(1))].into(), ..Recorded::default() };
    let mut add = |nth: u64, graph: &dyn Fn(&Pass) -> Graph| {
        let at = 6 + nth as u32;
        let pass = pass(nth, &[[at, at + 1]]);
        recorded.events.push(Event::Graph(graph(&pass)));
        if nth == 0 {
            recorded.events.push(Event::Described([pass.end - 1000, pass.end - 900], 0));
        }
        recorded.events.push(Event::Pass(pass));
    };
    // The first one warms up.
    add(0, &|pass| mixed(pass, 1, 1, [&[[0, 1], [2, 1]], &[[0, 2]]]));
    add(1, &|pass| mixed(pass, 1, 1, [&[[1, 1], [3, 1]], &[[0, 1], [1, 1]]]));
    add(2, &|pass| mixed(pass, 1, 1, [&[[1, 1], [2, 1]], &[[0, 1], [1, 1]]]));
    add(3, &|pass| {
        let mut graph = mixed(pass, 1, 1, [&[], &[[0, 1], [1, 1]]]);
        graph.chosen[0].unread = Some(Unread::Place);
        graph.chosen[1].odd = 1;
        graph.chosen[1].beyond = 5;
        graph
    });
    let profile = replayed(&recorded).profile;
    assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(3));
    let [first, second] = &profile.experts[..] else { panic!("{:?}", profile.experts) };
    assert_eq!((first.phase, first.layer, first.n_expert), (Phase::Decode, Some(0), Some(4)));
    assert_eq!((first.n_used, first.passes, first.reads, first.tokens), (Some(2), 2, 2, 2));
    // An expert's rows of both of its matrices.
    let bytes = 2 * 64 * 32 * 4;
    let ran = |expert, n| brickscope::ExpertRuns {
        expert,
        tokens: n,
        passes: n,
        reads: n,
        bytes: n * bytes,
    };
    assert_eq!(first.experts, [ran(1, 2), ran(2, 1), ran(3, 1)]);
    assert_eq!(first.unread, 1);
    let why = first.unread_absent.as_ref().expect("there is a reason");
    assert_eq!(why.reason, "the numbers of the chosen experts are not in the host's memory");
    assert_eq!((second.layer, second.passes, second.odd, second.unread), (Some(1), 3, 1, 0));
    let tokens: Vec<_> = second.experts.iter().map(|of| (of.expert, of.tokens, of.bytes)).collect();
    assert_eq!(tokens, [(0, 3, 3 * bytes / 2), (1, 3, 3 * bytes / 2)]);
    assert_eq!(profile.dropped.experts, 5);
}

#[test]
fn a_layer_that_a_pass_computes_twice_is_read_twice() {
    let mut recorded = Recorded { graphs: [(0, mixture(4))].into(), ..Recorded::default() };
    let pass = pass(0, &[[0, 8]]);
    for (from, experts) in [(1, &[[0, 8]][..]), (50, &[[0, 4], [3, 4]])] {
        let graph = mixed(&pass, from, 4, [experts, experts]);
        recorded.events.push(Event::Graph(graph));
    }
    recorded.events.push(Event::Pass(Pass { graphs: 2, ..pass }));
    let profile = replayed(&recorded).profile;
    let of = &profile.experts[0];
    assert_eq!((of.phase, of.passes, of.reads, of.tokens), (Phase::Prefill, 1, 2, 8));
    let ran: Vec<_> = of
        .experts
        .iter()
        .map(|of| [u64::from(of.expert), of.tokens, of.passes, of.reads])
        .collect();
    assert_eq!(ran, [[0, 12, 1, 2], [3, 4, 1, 1]]);
    assert_eq!(of.different(), Some(1.5));
}

#[test]
fn of_products_that_a_recording_lacks_the_choice_is_not_known() {
    let mut recorded = Recorded { graphs: [(0, mixture(1))].into(), ..Recorded::default() };
    let pass = pass(0, &[[6, 7]]);
    let mut graph = mixed(&pass, 1, 1, [&[[0, 1], [1, 1]]; 2]);
    graph.experts.truncate(2);
    graph.chosen.truncate(1);
    recorded.events.extend([Event::Graph(graph), Event::Pass(pass)]);
    let profile = replayed(&recorded).profile;
    let [first, second] = &profile.experts[..] else { panic!("{:?}", profile.experts) };
    assert_eq!((first.reads, first.unread), (1, 0));
    assert_eq!((second.layer, second.reads, second.unread), (Some(1), 0, 1));
    let why = second.unread_absent.as_ref().expect("there is a reason");
    assert_eq!(why.reason, "the graph has more products with experts' matrices than were recorded");
}

/// Those that were made before choices were recorded, and what another backend computed.
#[test]
fn of_a_recording_without_choices_experts_are_not_known() {
    let mut recorded = Recorded { graphs: [(0, mixture(1))].into(), ..Recorded::default() };
    for nth in 0..3 {
        let at = 6 + nth as u32;
        let pass = pass(nth, &[[at, at + 1]]);
        let mut graph = mixed(&pass, 1, 1, [&[[0, 1], [1, 1]]; 2]);
        graph.chosen.clear();
        recorded.events.extend([Event::Graph(graph), Event::Pass(pass)]);
    }
    let said = |recorded: &Recorded| -> Vec<(u64, usize, String)> {
        let profile = replayed(recorded).profile;
        let why = |of: &brickscope::LayerExperts| {
            assert_eq!((of.n_expert, of.n_used, of.reads), (Some(4), None, 0));
            let why = of.unread_absent.as_ref().map_or("", |absent| absent.reason.as_str());
            (of.unread, of.experts.len(), why.to_owned())
        };
        profile.experts.iter().map(why).collect()
    };
    let why = "the recording does not have the numbers of the chosen experts";
    assert_eq!(said(&recorded), [(3, 0, why.to_owned()), (3, 0, why.to_owned())]);
    recorded.backends.insert(0, "CUDA0".to_owned());
    let why = "the numbers of the chosen experts are in the memory of CUDA0";
    assert_eq!(said(&recorded)[1], (3, 0, why.to_owned()));
}
