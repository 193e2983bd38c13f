//! What lies between passes.

use std::fmt::Write;

use brickscope_profile::text::{printable, printable_text};
use brickscope_profile::{Beside, Between, Run};

use crate::typical;
use crate::words::{digits, fraction};

/// Less than this part of the time is not worth a word.
const LEAST: f64 = 0.001;

/// What the time in none of the engine's functions is called.
const REST: &str = "the program itself";

fn parts(of: &Between) -> impl Iterator<Item = (String, Option<u64>, u64)> {
    let calls = of.calls.iter().map(|of| (printable(&of.name), Some(of.calls), of.ns));
    calls.chain([(REST.to_owned(), None, of.rest_ns())])
}

/// `123 tok/s of all 62 passes with the time between them, 7.5 %: sampling 5.1 %, the program itself 2.4 %`
pub(super) fn in_summary(of: &Between) -> String {
    let whole = of.passes_ns as f64 + of.between_ns as f64;
    let share = |ns: u64| if whole > 0.0 { ns as f64 / whole } else { 0.0 };
    let rate = of.tokens_per_second().map_or("no rate".to_owned(), digits);
    let mut text = format!(
        "{rate} tok/s of all {} with the time between them, {}",
        typical::passes_text(of.passes),
        fraction(share(of.between_ns))
    );
    let mut shown: Vec<_> = parts(of).filter(|(.., ns)| share(*ns) >= LEAST).collect();
    shown.sort_by_key(|(.., ns)| std::cmp::Reverse(*ns));
    for (nth, (name, _, ns)) in shown.iter().enumerate() {
        let before = if nth == 0 { ": " } else { ", " };
        let _ = write!(text, "{before}{name} {}", fraction(share(*ns)));
    }
    text
}

/// What a run of another engine has around its passes, as sentences: the rate with the time between them, and the other
/// runs of its process.
#[must_use]
pub fn around(run: &Run) -> Vec<String> {
    let between = run.between.iter().map(|of| format!("decode: {}", in_summary(of)));
    let beside = run.beside.iter().map(|of| format!("beside: {}", beside(of)));
    between.chain(beside).collect()
}

/// A table for the report.
pub(super) fn in_report(of: &Between, text: &mut String) {
    let whole = of.passes_ns as f64 + of.between_ns as f64;
    let percent = |ns: u64| 100.0 * ns as f64 / whole.max(1.0);
    let _ = writeln!(text, "\nBetween {} passes        Calls  Total (ms)   Share", of.passes);
    let row = |name: &str, calls: Option<u64>, ns: u64, text: &mut String| {
        let calls = calls.map(|calls| calls.to_string()).unwrap_or_default();
        let ms = ns as f64 / 1e6;
        let _ = writeln!(text, "{name:20} {calls:>10} {ms:>11.3} {:>6.1}%", percent(ns));
    };
    row("passes", Some(of.passes), of.passes_ns, text);
    for (name, calls, ns) in parts(of) {
        row(&name, calls, ns, text);
    }
    if let Some(rate) = of.tokens_per_second() {
        let _ =
            writeln!(text, "{} tokens, {rate:.1} tokens/s with the time between passes", of.tokens);
    }
}

/// `context-2: draft.gguf, decode 812 tok/s`: another run of the same process.
pub(super) fn beside(of: &Beside) -> String {
    let mut parts = vec![printable_text(&of.name)];
    parts.extend(of.phases.iter().filter_map(|phase| {
        Some(format!("{} {} tok/s", phase.phase, digits(phase.tokens_per_second()?)))
    }));
    format!("{}: {}", printable_text(&of.folder), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{Beside, Calls, Phase, PhaseBeside};

    use super::*;

    fn between() -> Between {
        let of = |name: &str, calls, ns| Calls { name: name.to_owned(), calls, ns };
        Between {
            passes: 10,
            tokens: 10,
            passes_ns: 90_000_000,
            between_ns: 10_000_000,
            calls: vec![of("sampling", 20, 7_000_000), of("grammar", 1, 40_000)],
        }
    }

    #[test]
    fn what_lies_between_passes_has_shares_of_the_whole_and_a_rest() {
        let said = "100 tok/s of all 10 passes with the time between them, 10.0 %: sampling 7.0 %, the program itself 3.0 %";
        assert_eq!(in_summary(&between()), said, "what is less than a thousandth has no word");
        let mut text = String::new();
        in_report(&between(), &mut text);
        for line in [
            "passes                       10      90.000   90.0%",
            "sampling                     20       7.000    7.0%",
            "grammar                       1       0.040    0.0%",
            "the program itself                    2.960    3.0%",
            "10 tokens, 100.0 tokens/s with the time between passes",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_run_says_what_is_beside_it() {
        let phase = PhaseBeside { phase: Phase::Decode, tokens: 5, wall_ns: 10_000_000 };
        let beside = Beside {
            name: "draft\u{1b}[31m".to_owned(),
            folder: "context-2".to_owned(),
            phases: vec![phase],
        };
        let run = Run { beside: vec![beside], ..Run::default() };
        let said = around(&run);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("beside: context-2: draft"), "{said:?}");
        assert!(said[0].ends_with("decode 500 tok/s") && !said[0].contains('\u{1b}'), "{said:?}");
        assert_eq!(around(&Run::default()), Vec::<String>::new());
    }
}
