//! The rows of a receipt.

use super::table::{BrickRow, PassRow, RunRow, SpeedRow};
use super::{Parts, counted, known};
use brickscope_analysis::compare::Work;
use brickscope_analysis::history::commit_of;
use brickscope_analysis::receipt::Receipt;
use brickscope_analysis::receipt::v1::{Sample, Test};
use brickscope_profile::run::model_name;

/// Fills in what the receipt says of the run, over what the profile said.
pub(super) fn describe(receipt: &Receipt, run: &mut RunRow) {
    let (model, machine) = (&receipt.model, &receipt.machine);
    run.brickscope_version = receipt.binary.version.clone();
    run.engine = "brickscope".to_owned();
    run.engine_version = Some(receipt.binary.version.clone());
    run.commit = commit_of(receipt).cloned();
    run.model = model_name(model.name.as_deref(), &model.path).map(str::to_owned);
    run.model_sha256 = known(&model.sha256);
    run.architecture = known(&model.architecture);
    run.quant = known(&model.quantization);
    run.parameters = counted(model.parameters);
    run.model_bytes = counted(model.bytes);
    run.is_synthetic = Some(model.synthetic);
    run.backend = match &*receipt.backend {
        "cpu" => known(&receipt.run.kernels),
        backend => known(backend),
    };
    run.device = receipt.device.as_ref().and_then(|device| known(&device.name));
    // On a device a thread only issues the work, as in a profile of one.
    run.threads = counted(receipt.run.threads.into()).filter(|_| receipt.device.is_none());
    run.batch = counted(receipt.run.batch);
    run.is_profiled = Some(receipt.run.profiled);
    run.session = machine.boot.as_ref().map(|boot| boot.chars().take(8).collect());
    run.os = known(&machine.os);
    run.arch = known(&machine.arch);
    run.cpu = machine.cpu.clone();
    run.logical_cpus = machine.logical_cpus.map(u64::from);
    run.memory_bytes = machine.memory_bytes;
    run.hypervisor = machine.hypervisor.clone();
    run.kernel_release = machine.kernel.clone();
    run.governor = machine.governor.clone();
    if let Some(ceilings) = &receipt.ceilings {
        run.read_bytes_per_second = Some(ceilings.read_bytes_per_second);
        run.flops_per_second = Some(ceilings.flops_per_second);
        run.roof_device = None;
    }
    run.others_share = receipt.load.others_share;
    run.clock = known(&receipt.clock.source);
    let dropped = receipt.dropped.iter().map(|(what, count)| format!("{what}: {count}"));
    run.dropped = dropped.collect::<Vec<_>>().join("\n");
    run.receipt_sha256 = receipt.seal.as_ref().map(|seal| seal.sha256.clone());
}

/// A row for each test.
pub(super) fn speeds(receipt: &Receipt) -> Vec<SpeedRow> {
    receipt.tests.iter().map(|test| speed(receipt, test)).collect()
}

fn measured(test: &Test) -> impl Iterator<Item = &Sample> {
    test.samples.iter().filter(|sample| !sample.is_warm_up)
}

fn phase(test: &Test) -> Option<&'static str> {
    match (test.n_prompt, test.n_gen) {
        (1.., 0) => Some("prefill"),
        (0, 1..) => Some("decode"),
        _ => None,
    }
}

fn speed(receipt: &Receipt, test: &Test) -> SpeedRow {
    let rates: Vec<f64> = measured(test).map(Sample::rate).collect();
    let fold = |pick: fn(f64, f64) -> f64| rates.iter().copied().reduce(pick);
    let known_load = measured(test).any(|sample| sample.disturbed.is_some());
    let disturbed = measured(test).filter(|sample| sample.disturbed == Some(true)).count() as u64;
    SpeedRow {
        test: test.name.clone(),
        phase: phase(test).map(str::to_owned),
        work: Work::of_receipt(receipt, test).json(),
        n_prompt: Some(test.n_prompt),
        n_gen: Some(test.n_gen),
        n_depth: Some(test.n_depth),
        repetitions: rates.len() as u64,
        disturbed: known_load.then_some(disturbed),
        tokens: Some(sum(measured(test).map(|sample| sample.tokens))),
        wall_ns: sum(measured(test).map(|sample| sample.wall_ns)),
        tokens_per_second: brickscope_profile::stats::median(&rates),
        low: fold(f64::min),
        high: fold(f64::max),
    }
}

/// Adds everything, for a receipt without a profile.
pub(super) fn add(receipt: &Receipt, parts: &mut Parts) {
    parts.speeds = speeds(receipt);
    let mut pass = 0;
    for test in &receipt.tests {
        let phase = phase(test).map(str::to_owned);
        let row = |kind: &str, exclusive_ns| BrickRow {
            test: Some(test.name.clone()),
            phase: phase.clone(),
            kind: kind.to_owned(),
            source: Some("host".to_owned()),
            exclusive_ns,
            ..BrickRow::default()
        };
        for (at, brick) in test.bricks.iter().enumerate() {
            let times = measured(test).map(|sample| sample.brick_ns.get(at).copied());
            // Without one of the times there is no sum.
            let Some(times) = times.collect::<Option<Vec<u64>>>() else { continue };
            parts.bricks.push(BrickRow {
                brick: Some(brick.name.clone()),
                category: Some(brick.category.clone()),
                ..row("brick", sum(times.into_iter()))
            });
        }
        let rest: Option<Vec<u64>> = measured(test).map(|sample| sample.unattributed_ns).collect();
        if let Some(rest) = rest.filter(|_| !test.bricks.is_empty()) {
            parts.bricks.push(row("unattributed", sum(rest.into_iter())));
        }
        let device = receipt.device.as_ref().and_then(|device| known(&device.name));
        for (at, brick) in test.device_bricks.iter().enumerate() {
            let times = measured(test).filter_map(|sample| sample.device.as_ref());
            parts.bricks.push(BrickRow {
                device: device.clone(),
                source: Some("device".to_owned()),
                brick: Some(brick.name.clone()),
                category: Some(brick.category.clone()),
                ..row("brick", sum(times.filter_map(|times| times.brick_ns.get(at).copied())))
            });
        }
        let Some(phase) = phase else { continue };
        for sample in measured(test) {
            for &wall_ns in &sample.pass_ns {
                parts.passes.push(PassRow {
                    test: Some(test.name.clone()),
                    pass,
                    phase: phase.clone(),
                    wall_ns,
                    ..PassRow::default()
                });
                pass += 1;
            }
        }
    }
}

fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}
