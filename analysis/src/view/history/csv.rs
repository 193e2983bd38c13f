//! Runs over time, for spreadsheets: one line a point.

use brickscope_profile::text::{printable_text, screened};

use crate::history::{History, Measure};
use crate::text::csv_cell as cell;

const HEAD: &str = "test,model,model_sha256,quantization,backend,kernels,threads,batch,profiled,cpu,cpu_id,\
     logical_cpus,time,version,binary,commit,machine,measure,unit,median,low,high,repetitions,processes,\
     processes_of,against_before,against_level,is_change,p,disturbed,doubts,differences,absent,sources,device";

/// A line with the names of the columns, then one for each point of each series (RFC 4180). Absent
/// values are empty; several doubts, differences or sources are joined by ` | `. Text that a
/// spreadsheet would take for a formula has a `'` before it, as [`csv_guarded`](crate::text::csv_guarded) says.
#[must_use]
pub fn history_csv(history: &History) -> String {
    let mut lines = HEAD.to_owned() + "\r\n";
    let measure = match &history.measure {
        Measure::TokensPerSecond => "tokens_per_second",
        Measure::Brick(name) => name,
    };
    for series in &history.series {
        let kind = &series.kind;
        for (i, point) in series.points.iter().enumerate() {
            let change = series.changes.iter().find(|change| change.at == i as u64);
            let number =
                |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
            let words = |value: &Option<String>| value.as_deref().map_or(String::new(), text);
            let cells = [
                text(&kind.test),
                text(&series.model),
                text(&kind.model_sha256),
                text(&kind.quantization),
                text(&kind.backend),
                text(&kind.kernels),
                kind.threads.to_string(),
                kind.batch.to_string(),
                kind.profiled.to_string(),
                words(&kind.machine.cpu),
                words(&kind.machine.cpu_id),
                kind.machine.logical_cpus.map_or(String::new(), |n| n.to_string()),
                text(&point.time),
                text(&point.version),
                words(&point.binary),
                words(&point.commit),
                words(&point.machine),
                text(measure),
                text(history.measure.unit()),
                number(point.figures.map(|figures| figures.median)),
                number(point.figures.map(|figures| figures.low)),
                number(point.figures.map(|figures| figures.high)),
                point.repetitions.to_string(),
                point.processes.to_string(),
                point.processes_of.to_string(),
                number(point.against_before),
                number(point.against_level),
                change.is_some().to_string(),
                number(change.map(|change| change.p)),
                point.disturbed.to_string(),
                texts(point.doubts.iter().map(|doubt| printable_text(doubt))),
                texts(point.differences.iter().map(super::difference)),
                words(&point.absent),
                texts(point.sources.iter().map(|source| printable_text(source))),
                words(&kind.device),
            ];
            lines.push_str(&cells.join(","));
            lines.push_str("\r\n");
        }
    }
    screened(lines)
}

/// A cell of text; empty if the text is.
fn text(text: &str) -> String {
    if text.is_empty() { String::new() } else { cell(&printable_text(text)) }
}

/// A cell of several texts.
fn texts(texts: impl Iterator<Item = String>) -> String {
    let all = texts.collect::<Vec<_>>().join(" | ");
    if all.is_empty() { all } else { cell(&all) }
}
