//! The figures as text and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::figures::{Alike, Cell, Phase, median};
use crate::memory::{Memory, least};
use crate::turns::Arm;

/// A model with its figures by number of threads.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) file: String,
    pub(crate) parameters: u64,
    pub(crate) quantization: String,
    /// Bytes of weights that a token reads.
    pub(crate) bytes: usize,
    pub(crate) cells: Vec<Cell>,
}

/// The table for people, 80 columns wide.
pub(crate) fn text(models: &[Model]) -> String {
    let mut text = String::from(
        "thr  phase      the peer               ours  ours / the peer        % of read bw\n     \
              tokens/s               tokens/s  (95 % interval)         peer   ours\n",
    );
    for model in models {
        model_text(&mut text, model).expect("a string takes everything");
    }
    text
}

fn model_text(text: &mut String, model: &Model) -> std::fmt::Result {
    let Model { file, parameters, quantization, bytes, cells } = model;
    // File names may contain anything.
    writeln!(text, "\n{}", file.escape_debug())?;
    writeln!(
        text,
        "{:.1} million weights, most in {quantization}; a token reads {:.1} MB of them",
        *parameters as f64 / 1e6,
        *bytes as f64 / 1e6
    )?;
    for cell in cells {
        for (name, phase) in [("prefill", &cell.prefill), ("decode", &cell.decode)] {
            let Phase { better, ratio, .. } = phase;
            let interval = format!(
                "{:.2} ({:.2} to {:.2})",
                1.0 + ratio.estimate,
                1.0 + ratio.low,
                1.0 + ratio.high
            );
            let share = |arm| match cell.share_of_roof(arm, *bytes) {
                Some(share) if name == "decode" => format!("{:.0}", 100.0 * share),
                _ => String::new(),
            };
            let line = format!(
                "{:>3}  {name:<7}  {:>10} {:<8}  {:>8}  {interval:<22} {:>5}  {:>5}",
                cell.threads,
                rate(phase.rate(*better)),
                better.name(),
                rate(phase.rate(Arm::Ours)),
                share(*better),
                share(Arm::Ours)
            );
            writeln!(text, "{}", line.trim_end())?;
        }
    }
    for cell in cells {
        let threads =
            format!("{} thread{}", cell.threads, if cell.threads == 1 { "" } else { "s" });
        match (&cell.bandwidth, cell.roof()) {
            (Ok(rates), Some(roof)) => writeln!(
                text,
                "{threads}: read bandwidth {:.1} GB/s at best, {:.1} by the median of {} rounds",
                roof / 1e9,
                median(rates) / 1e9,
                rates.len()
            )?,
            (Err(why), _) => writeln!(text, "{threads}: read bandwidth {why}")?,
            (Ok(_), None) => {}
        }
        let [theirs, ours] =
            [cell.decode.better, Arm::Ours].map(|arm| 100.0 * cell.share_around(arm, *bytes));
        writeln!(
            text,
            "  decode, of what was read around its turns: {theirs:.0} % (peer), {ours:.0} % (ours)"
        )?;
        alike_text(text, cell)?;
        let agreement = &cell.agreement;
        writeln!(
            text,
            "  logits after the prompt: the same top-1 in {} of {}, at most {} apart\n  \
             (standard deviation {:.2})",
            agreement.same_top_1,
            agreement.compared,
            difference(agreement.max_difference),
            agreement.deviation
        )?;
    }
    Ok(())
}

/// The pairs of turns with all of memory, and those with less, if that is known of enough pairs but not of all.
fn alike_text(text: &mut String, cell: &Cell) -> std::fmt::Result {
    let line = least(cell.best_around()) / 1e9;
    for (name, phase) in [("prefill", &cell.prefill), ("decode", &cell.decode)] {
        for (memory, when) in [(Memory::All, "from"), (Memory::Less, "below")] {
            let Alike { pairs, rates: [theirs, ours], ratio } = cell.alike(phase, memory);
            let Some(ratio) = ratio.filter(|_| pairs < phase.seconds[Arm::Ours as usize].len())
            else {
                continue;
            };
            writeln!(
                text,
                "  {name:<7} {when:<5} {line:.0} GB/s: {} and {}, {:.2} ({:.2} to {:.2}), {pairs} pairs",
                rate(theirs),
                rate(ours),
                1.0 + ratio.estimate,
                1.0 + ratio.low,
                1.0 + ratio.high,
            )?;
        }
    }
    Ok(())
}

/// Formats a rate with its significant digits.
fn rate(rate: f64) -> String {
    if rate < 1000.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

fn difference(difference: f64) -> String {
    let is_small = difference > 0.0 && difference < 1e-3;
    if is_small { format!("{difference:.1e}") } else { format!("{difference:.3}") }
}

/// The figures for programs, including every turn.
pub(crate) fn json(models: &[Model]) -> Value {
    let phase = |cell: &Cell, phase: &Phase| {
        let alike = |memory| {
            let Alike { pairs, rates: [theirs, ours], ratio } = cell.alike(phase, memory);
            json!({
                "pairs": pairs,
                "peer_tokens_per_second": theirs,
                "ours_tokens_per_second": ours,
                "ratio": ratio.map(|ratio| 1.0 + ratio.estimate),
                "low": ratio.map(|ratio| 1.0 + ratio.low),
                "high": ratio.map(|ratio| 1.0 + ratio.high),
            })
        };
        let arm = |arm: Arm| {
            let seconds = &phase.seconds[arm as usize];
            json!({ "seconds": seconds, "tokens_per_second": phase.rate(arm) })
        };
        json!({
            "tokens": phase.tokens,
            "peer_repacked": arm(Arm::Repacked),
            "peer_plain": arm(Arm::Plain),
            "ours": arm(Arm::Ours),
            "better": phase.better.name(),
            "ours_to_better": {
                "ratio": 1.0 + phase.ratio.estimate,
                "low": 1.0 + phase.ratio.low,
                "high": 1.0 + phase.ratio.high,
                "pairs": phase.ratio.pairs,
            },
            "with_all_of_memory": alike(Memory::All),
            "with_less_of_memory": alike(Memory::Less),
        })
    };
    let cell = |cell: &Cell, bytes: usize| {
        let (rates, why) = match &cell.bandwidth {
            Ok(rates) => (Some(rates), None),
            Err(why) => (None, Some(why)),
        };
        json!({
            "threads": cell.threads,
            "prefill": phase(cell, &cell.prefill),
            "decode": phase(cell, &cell.decode),
            "read_around_turns": {
                "best": cell.best_around(),
                "peer_repacked": cell.around[Arm::Repacked as usize],
                "peer_plain": cell.around[Arm::Plain as usize],
                "ours": cell.around[Arm::Ours as usize],
            },
            "read_bytes_per_second": { "rounds": rates, "best": cell.roof(), "absent": why },
            "decode_share_of_read_around_turns": {
                "peer": cell.share_around(cell.decode.better, bytes),
                "ours": cell.share_around(Arm::Ours, bytes),
            },
            "decode_share_of_read_bandwidth": {
                "peer": cell.share_of_roof(cell.decode.better, bytes),
                "ours": cell.share_of_roof(Arm::Ours, bytes),
            },
            "logits": {
                "compared": cell.agreement.compared,
                "same_top_1": cell.agreement.same_top_1,
                "max_difference": cell.agreement.max_difference,
                "standard_deviation": cell.agreement.deviation,
            },
        })
    };
    let model = |model: &Model| {
        json!({
            "file": model.file,
            "parameters": model.parameters,
            "quantization": model.quantization,
            "weight_bytes_per_token": model.bytes,
            "threads": model.cells.iter().map(|of| cell(of, model.bytes)).collect::<Vec<_>>(),
        })
    };
    models.iter().map(model).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::{made, made_of};

    fn models() -> Vec<Model> {
        let no_roof = Cell { bandwidth: Err("not measured: no memory".to_owned()), ..made(2) };
        vec![Model {
            file: "a\u{1b}[2Jb\n.gguf".to_owned(),
            parameters: 1_100_000_000,
            quantization: "q4_k".to_owned(),
            bytes: 630_200_000,
            cells: vec![made(1), no_roof, made_of(24, 4)],
        }]
    }

    #[test]
    fn the_table_is_readable_at_80_columns() {
        let text = text(&models());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn programs_get_every_turn_and_what_is_absent_says_why() {
        let json = json(&models());
        let [one, two] = [&json[0]["threads"][0], &json[0]["threads"][1]];
        assert_eq!(one["decode"]["ours"]["seconds"].as_array().map(Vec::len), Some(6));
        assert_eq!(one["decode"]["ours_to_better"]["ratio"], 2.0);
        assert_eq!(one["read_bytes_per_second"]["best"], 40e9);
        assert_eq!(two["read_bytes_per_second"]["best"], Value::Null);
        assert_eq!(two["read_bytes_per_second"]["absent"], "not measured: no memory");
        assert_eq!(two["decode_share_of_read_bandwidth"]["ours"], Value::Null);
    }
}
