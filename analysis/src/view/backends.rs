//! Bricks by backend, as text.

use std::fmt::Write;

use brickscope_profile::Absent;
use brickscope_profile::text::{
    MOST_ROWS, count, percent, printable, printable_text, screened_lines, shortened,
};

use crate::backends::{BackendCell, BackendComparison, BackendPhase, BackendRow};
use crate::roofline::{Note, Reach};
use crate::text::wrap;
use crate::words::short;

/// A block for each phase, with a row for each brick and backend, and what qualifies its figures. At
/// most 80 columns wide.
#[must_use]
pub fn backends(comparison: &BackendComparison) -> String {
    let mut text = String::new();
    for phase in &comparison.phases {
        if !text.is_empty() {
            text.push('\n');
        }
        block(comparison, phase, &mut text);
    }
    if comparison.phases.is_empty() {
        text.push_str("No pass was recorded, so there is nothing to compare.\n");
    }
    text.push('\n');
    for line in notes(comparison).iter().flat_map(|note| wrap(note, 78)) {
        let _ = writeln!(text, "{line}");
    }
    screened_lines(text)
}

fn block(comparison: &BackendComparison, phase: &BackendPhase, text: &mut String) {
    let _ = writeln!(
        text,
        "{}: {} in {}, median of {}",
        phase.phase.heading(),
        count(phase.tokens, "token"),
        if phase.passes == 1 { "1 pass".to_owned() } else { format!("{} passes", phase.passes) },
        count(comparison.rounds, "round"),
    );
    let line = |name: &str, backend: &str, mark: char, cells: [&str; 7]| {
        let [time, bytes, flops, of_roof, limit, reach, speed] = cells;
        let line = format!(
            "{name:16} {backend:6}{mark}{time:>10}{bytes:>7}{flops:>8}{of_roof:>8} {limit:7} \
             {reach:7}{speed:>6}"
        );
        line.trim_end().to_owned() + "\n"
    };
    text.push_str(&line(
        "Brick",
        "on",
        ' ',
        ["µs/token", "GB/s", "GFLOP/s", "of roof", "bound", "reach", "speed"],
    ));
    let _ = writeln!(text, "{}", "-".repeat(79));
    let more = phase.bricks.len().saturating_sub(MOST_ROWS);
    let rows = std::iter::once(&phase.wall).chain(phase.bricks.iter().take(MOST_ROWS));
    for row in rows.chain([&phase.unattributed]) {
        let mut name = shortened(&row.name, 16, "");
        for cell in &row.cells {
            let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| short(rate / 1e9));
            let mark = if row.fastest.as_ref() == Some(&cell.backend) { '*' } else { ' ' };
            text.push_str(&line(
                &std::mem::take(&mut name),
                &shortened(&cell.backend, 6, ""),
                mark,
                [
                    &cell.total_ns.map_or("-".to_owned(), |ns| per_token(ns, phase.tokens)),
                    &rate(cell.bytes_per_second),
                    &rate(cell.flops_per_second),
                    &cell.of_roof.map_or("-".to_owned(), |part| percent(part, 1.0)),
                    &shortened(cell.limit().unwrap_or("-"), 7, ""),
                    cell.reach.map_or("-", Reach::name),
                    &cell.speed.map_or("-".to_owned(), short),
                ],
            ));
        }
    }
    if more > 0 {
        let _ = writeln!(text, "and {} more; see --json", count(more as u64, "brick"));
    }
}

/// Microseconds per token, the mean of a round.
fn per_token(ns: u64, tokens: u64) -> String {
    if tokens == 0 {
        return "-".to_owned();
    }
    format!("{:.1}", ns as f64 / 1e3 / tokens as f64)
}

/// What the columns mean, and what qualifies the figures.
fn notes(comparison: &BackendComparison) -> Vec<String> {
    let mut notes = Vec::new();
    if let [first, _, ..] = &comparison.backends[..] {
        notes.push("* faster than the others in each round".to_owned());
        notes.push(
            "each row shows its own median round; rows add up only within one round".to_owned(),
        );
        let first = printable(&first.backend);
        notes.push(format!("speed: how many times as fast as {first}"));
    }
    for facts in &comparison.backends {
        let backend = printable(&facts.backend);
        notes.push(match (&facts.ceilings, &facts.ceilings_absent) {
            (Some(ceilings), _) => format!(
                "roof of {backend}: {} GB/s, {} GFLOP/s, {}",
                short(ceilings.read_bytes_per_second / 1e9),
                short(ceilings.peak_per_second() / 1e9),
                printable_text(&ceilings.basis)
            ),
            (None, Some(Absent { reason })) => {
                format!("no roof of {backend}: {}", printable_text(reason))
            }
            (None, None) => format!("no roof of {backend}: not measured"),
        });
    }
    for phase in &comparison.phases {
        for (facts, &disturbed) in comparison.backends.iter().zip(&phase.disturbed) {
            if disturbed > 0 {
                let of = phase.passes.saturating_mul(comparison.rounds);
                let backend = printable(&facts.backend);
                let phase = phase.phase;
                notes.push(format!(
                    "other work disturbed {disturbed} of {of} {phase} passes on {backend}"
                ));
            }
        }
        let erroneous = |row: &BackendRow| {
            let cells = row.cells.iter().filter(|cell| cell.reach == Some(Reach::Above));
            cells.map(|cell| beyond(row, cell)).collect::<Vec<_>>()
        };
        let paced = (0..comparison.backends.len()).filter_map(|index| paced(phase, index));
        notes.extend(paced.map(|note| format!("{}: {note}", phase.phase)));
        let rows = phase.bricks.iter().take(MOST_ROWS);
        notes.extend(rows.flat_map(erroneous).map(|note| format!("{}: {note}", phase.phase)));
    }
    notes
}

/// What the code of a backend reaches by itself, for the first brick that this limits.
fn paced(phase: &BackendPhase, index: usize) -> Option<String> {
    phase.bricks.iter().find_map(|row| {
        let cell = row.cells.get(index).filter(|cell| cell.reach == Some(Reach::Kernel))?;
        let note = cell.notes.iter().find(|note| matches!(note, Note::Pace(_)))?;
        Some(format!("{} on {}: {note}", shortened(&row.name, 16, ""), printable(&cell.backend)))
    })
}

/// Why a brick is above its roof.
fn beyond(row: &BackendRow, cell: &BackendCell) -> String {
    let notes = cell.notes.iter().filter(|note| !matches!(note, Note::Pace(_)));
    let why: Vec<String> = notes.map(ToString::to_string).collect();
    format!("{} on {}: {}", shortened(&row.name, 16, ""), printable(&cell.backend), why.join("; "))
}

#[cfg(test)]
mod tests {
    use brickscope_profile::Profile;

    use super::*;
    use crate::backends::BackendRounds;
    use crate::backends::tests::round;

    fn text(sides: &[(&str, &[Profile])]) -> String {
        let sides: Vec<_> =
            sides.iter().map(|&(backend, rounds)| BackendRounds { backend, rounds }).collect();
        let text = backends(&BackendComparison::new(&sides).expect("the same work"));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        text
    }

    #[test]
    fn three_backends_have_a_row_for_each_brick() {
        let scalar = [round(90, 17, 20e9, 100e9), round(100, 19, 20e9, 100e9)];
        let avx2 = [round(40, 9, 40e9, 75e9), round(45, 6, 40e9, 75e9)];
        let mut avx512 = [round(22, 8, 40e9, 75e9), round(23, 8, 40e9, 75e9)];
        avx512[0].phases.iter_mut().for_each(|phase| phase.disturbed = 1);
        avx512.iter_mut().for_each(|round| {
            round.ceilings = None;
            round.ceilings_absent = Some(Absent { reason: "too little memory".to_owned() });
        });
        insta::assert_snapshot!(text(&[("scalar", &scalar), ("avx2", &avx2), ("avx512", &avx512)]));
    }

    #[test]
    fn hostile_names_break_no_line_and_nothing_is_no_table() {
        let mut rounds = [round(90, 17, 20e9, 10e9)];
        let long = "</script>\n\u{1b}[31m\u{202e}🧱".repeat(20);
        for total in &mut rounds[0].totals {
            total.stats.name = long.clone();
        }
        rounds[0].ceilings.as_mut().expect("some").basis = "a\nb".to_owned();
        let said = text(&[("\u{7}bell", &rounds), ("avx2", &rounds)]);
        assert!(!said.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{said}");

        rounds[0].phases.clear();
        assert!(text(&[("scalar", &rounds)]).starts_with("No pass was recorded"));
    }
}
