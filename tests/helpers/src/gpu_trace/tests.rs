use serde_json::Value;

use super::*;

fn events(trace: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(trace).expect("it is JSON");
    file["traceEvents"].as_array().expect("events").clone()
}

fn of_device(event: &Value) -> bool {
    event["cat"] == "kernel" || event["cat"] == "gpu_memcpy"
}

#[test]
fn a_file_has_the_kernels_that_are_true() {
    let recorded = Recording::of(Net::dense(4)).steps(&[32, 32, 64]).record();
    let truth = &recorded.truth;
    let events = events(&recorded.trace);
    let kernels: Vec<&Value> = events.iter().filter(|event| of_device(event)).collect();
    // Copies, the embedding, layers, the last norm, and four more.
    assert_eq!(truth.kernels.len(), 3 * (3 + 1 + 4 * 11 + 1 + 4));
    assert_eq!(kernels.len(), truth.kernels.len());
    for (event, kernel) in kernels.iter().zip(&truth.kernels) {
        assert_eq!(event["name"], kernel.name.as_str());
        let (start, ns) = (kernel.start_ns, kernel.ns);
        let line = format!(
            "\"ts\":{}.{:03},\"dur\":{}.{:03},",
            start / 1_000,
            start % 1_000,
            ns / 1_000,
            ns % 1_000
        );
        assert!(recorded.trace.contains(&line), "{line}");
    }
    let graphs = events.iter().filter(|event| event["name"] == "cudaGraphLaunch").count();
    assert_eq!((graphs, truth.steps.len()), (3, 3));
    // The last step has other products, and no kernel begins before the one before it has ended.
    let products = |step: usize| {
        truth.kernels.iter().filter(move |kernel| kernel.step == step && kernel.brick == "LmHead")
    };
    assert!(products(0).zip(products(1)).all(|(one, other)| one.name == other.name));
    assert!(products(0).zip(products(2)).all(|(one, other)| one.name != other.name));
    assert!(truth.kernels.windows(2).all(|two| two[0].end_ns() < two[1].start_ns));
    assert!(truth.gaps_ns().iter().all(|&gap| gap > 60_000), "{:?}", truth.gaps_ns());
    let sums = (truth.by_layer().values().sum::<u64>(), truth.by_brick().values().sum::<u64>());
    assert_eq!(sums.0, sums.1);
    assert_eq!(recorded.trace, Recording::of(Net::dense(4)).steps(&[32, 32, 64]).record().trace);
}

#[test]
fn a_capture_has_the_calls_of_the_graph_in_its_order() {
    let recording = Recording { calls: Calls::Hip, ..Recording::of(Net::gpt_oss(4)) };
    let events = events(&recording.capture());
    let launched: Vec<&str> =
        events.iter().filter_map(|event| event["args"]["kernel"].as_str()).collect();
    let recorded = recording.record();
    let in_graph = recorded.truth.kernels.iter().filter(|kernel| kernel.is_in_graph);
    assert_eq!(launched, in_graph.map(|kernel| kernel.name.as_str()).collect::<Vec<_>>());
    assert!(!events.iter().any(of_device));
    let modules = events.iter().filter_map(|event| event["name"].as_str());
    assert_eq!(modules.filter(|name| name.starts_with("nn.Module: LlamaDecoderLayer_")).count(), 4);
}

#[test]
fn ranks_wait_for_the_last_one_and_transfer_together() {
    let recording = Recording { group: 4, ..Recording::of(Net::parallel(3)) };
    let recording = recording
        .plant(Planted::SlowRank { rank: 2, percent: 150 })
        .plant(Planted::SlowLink { group: 1, percent: 300 });
    let ranks = recording.ranks(8);
    assert_eq!(ranks.len(), 8);
    let collectives = |rank: usize| {
        let kernels = ranks[rank].truth.kernels.iter();
        kernels.filter(|kernel| kernel.brick == "AllReduce").collect::<Vec<_>>()
    };
    assert_eq!(collectives(0).len(), 6);
    for (first, slow) in [(0, false), (4, true)] {
        for nth in 0..6 {
            let group: Vec<_> = (first..first + 4).map(|rank| collectives(rank)[nth]).collect();
            let end = group[0].end_ns();
            assert!(group.iter().all(|kernel| kernel.end_ns() == end));
            // Who comes last waits for nobody.
            let transfer = group.iter().map(|kernel| kernel.ns).min().expect("four");
            assert!(group.iter().all(|kernel| kernel.ns - kernel.waited_ns == transfer));
            assert_eq!(transfer > 30_000, slow, "{transfer}");
        }
    }
    assert!(collectives(2).iter().all(|kernel| kernel.waited_ns == 0));
}

#[test]
fn the_second_stream_runs_beside_the_first() {
    let truth = Recording::of(Net::of_shared_experts(3)).record().truth;
    let aside = |kernel: &&TrueKernel| kernel.stream == SIDE_STREAM;
    assert_eq!(truth.kernels.iter().filter(aside).count(), 3 * 3);
    for side in truth.kernels.iter().filter(aside) {
        let main = truth.kernels.iter().filter(|kernel| kernel.stream == MAIN_STREAM);
        let mut beside =
            main.filter(|main| main.start_ns < side.end_ns() && side.start_ns < main.end_ns());
        assert!(beside.all(|main| main.layer == side.layer));
    }
}

#[test]
fn what_is_planted_is_in_the_file() {
    let of = |planted| Recording::of(Net::of_experts(4)).plant(planted).record();
    let whole = Recording::of(Net::of_experts(4)).record();
    let slow = of(Planted::SlowLayer { layer: 2, brick: "Experts", percent: 180 });
    let sum = |truth: &Truth, layer: u16| {
        let own =
            truth.kernels.iter().filter(move |k| k.layer == Some(layer) && k.brick == "Experts");
        own.map(|kernel| kernel.ns).sum::<u64>()
    };
    assert_eq!(sum(&whole.truth, 1), sum(&slow.truth, 1));
    let (before, after) = (sum(&whole.truth, 2) as f64, sum(&slow.truth, 2) as f64);
    assert!((after / before - 1.8).abs() < 0.001, "{before} {after}");

    let dropped = of(Planted::Dropped { step: 0, from: 20, kernels: 5 });
    assert_eq!(dropped.truth.dropped, whole.truth.kernels[20..25]);
    assert_eq!(dropped.truth.kernels.len() + 5, whole.truth.kernels.len());
    assert_eq!(dropped.trace.lines().count() + 5, whole.trace.lines().count());

    let endless = of(Planted::Endless { step: 0, kernel: 20 });
    assert!(endless.trace.contains("\"dur\":1000000000000.000,"));
    let untimed = of(Planted::Untimed { step: 0, kernel: 20 });
    assert!(untimed.trace.contains("\"ts\":0.000,\"dur\":0.000,"));
    assert_eq!(untimed.truth.sound().count() + 1, whole.truth.kernels.len());
    let early = of(Planted::Early { step: 0, kernel: 20, ns: 3_000 });
    let [before, odd] = &early.truth.kernels[19..21] else { panic!("two") };
    assert!(odd.is_odd && odd.start_ns < before.end_ns());
}

#[test]
fn one_file_has_the_kernels_of_all_devices_with_numbers_of_their_own() {
    let recording = Recording::of(Net::parallel(3)).eager();
    let (trace, truths) = recording.devices(2);
    let events = events(&trace);
    let kernels: Vec<&Value> = events.iter().filter(|event| of_device(event)).collect();
    assert_eq!(kernels.len(), truths.iter().map(|truth| truth.kernels.len()).sum::<usize>());
    let calls: std::collections::BTreeSet<u64> =
        kernels.iter().filter_map(|event| event["args"]["correlation"].as_u64()).collect();
    assert_eq!(calls.len(), kernels.len());
    assert!(!trace.contains("distributedInfo"));
    // They do what two ranks do.
    let ranks = recording.ranks(2);
    for (truth, rank) in truths.iter().zip(&ranks) {
        assert_eq!(truth, &rank.truth);
    }
    let (sql, _) = recording.nsight(2);
    assert_eq!(sql.matches("INSERT INTO").count(), kernels.len());
}
