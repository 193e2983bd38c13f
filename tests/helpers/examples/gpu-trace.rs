//! Writes traces of a GPU with right answers beside them, for trying by hand.
//!
//! ```console
//! $ cargo run -p brickscope-testing --example gpu-trace -- --net deepseek --layers 61 --ranks 8 -o DIR
//! ```

use std::error::Error;
use std::path::PathBuf;

use brickscope_testing::gpu_trace::{Net, Planted, Recording};

const USAGE: &str = "gpu-trace [--net NET] [--layers N] [--ranks N] [--steps N] [--requests N] [--seed N] [--eager] \
    [--slow-layer N] [--slow-rank N] [--slow-link GROUP] [--group RANKS] [--dropped N] -o DIR\n\
    NET is dense, parallel, experts, shared-experts, gpt-oss, qwen3, gemma, deepseek or pairs";

fn main() -> Result<(), Box<dyn Error>> {
    let (mut net, mut layers, mut ranks) = (String::new(), 64_u16, 1_u32);
    let (mut steps, mut requests) = (3_usize, 32_u32);
    let (mut seed, mut group, mut is_eager) = (1_u64, 0_u32, false);
    let mut planted = Vec::new();
    let mut folder = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--eager" {
            is_eager = true;
            continue;
        }
        let value = words.next().ok_or(USAGE)?;
        match word.as_str() {
            "--net" => net = value,
            "--layers" => layers = value.parse()?,
            "--ranks" => ranks = value.parse()?,
            "--steps" => steps = value.parse()?,
            "--requests" => requests = value.parse()?,
            "--seed" => seed = value.parse()?,
            "--group" => group = value.parse()?,
            "--slow-layer" => {
                for brick in ["Experts", "DownProjection"] {
                    planted.push(Planted::SlowLayer { layer: value.parse()?, brick, percent: 180 });
                }
            }
            "--slow-rank" => {
                planted.push(Planted::SlowRank { rank: value.parse()?, percent: 120 });
            }
            "--slow-link" => {
                planted.push(Planted::SlowLink { group: value.parse()?, percent: 250 });
            }
            "--dropped" => {
                planted.push(Planted::Dropped { step: 0, from: 40, kernels: value.parse()? });
            }
            "-o" => folder = Some(PathBuf::from(value)),
            _ => return Err(USAGE.into()),
        }
    }
    let folder = folder.ok_or(USAGE)?;
    let net = match net.as_str() {
        "" if ranks > 1 => Net::parallel(layers),
        "" | "dense" => Net::dense(layers),
        "parallel" => Net::parallel(layers),
        "experts" => Net::of_experts(layers),
        "shared-experts" => Net::of_shared_experts(layers),
        "gpt-oss" => Net::gpt_oss(layers),
        "qwen3" => Net::qwen3(layers),
        "gemma" => Net::gemma(layers),
        "deepseek" => Net::deepseek(layers, 3),
        "pairs" => Net::with_pairs(layers),
        _ => return Err(USAGE.into()),
    };
    let steps = vec![requests; steps];
    let recording = Recording { steps, seed, group, is_eager, planted, ..Recording::of(net) };
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("capture.pt.trace.json"), recording.capture())?;
    for recorded in recording.ranks(ranks) {
        let truth = &recorded.truth;
        let rank = truth.rank;
        let trace = folder.join(format!("rank{rank}.pt.trace.json"));
        std::fs::write(&trace, &recorded.trace)?;
        let mut lines =
            vec!["step\tlayer\tbrick\tstream\tstart_ns\tns\twaited_ns\tname".to_owned()];
        lines.extend(truth.kernels.iter().map(|kernel| {
            let layer = kernel.layer.map_or("-".to_owned(), |layer| layer.to_string());
            format!(
                "{}\t{layer}\t{}\t{}\t{}\t{}\t{}\t{}",
                kernel.step,
                kernel.brick,
                kernel.stream,
                kernel.start_ns,
                kernel.ns,
                kernel.waited_ns,
                kernel.name
            )
        }));
        lines.push(String::new());
        std::fs::write(folder.join(format!("rank{rank}.truth.tsv")), lines.join("\n"))?;
        println!("{}: {} kernels", trace.display(), truth.kernels.len());
    }
    Ok(())
}
