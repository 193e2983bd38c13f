//! Runs over time, for spreadsheets: one line a point.

use brickscope_profile::text::printable;

use crate::history::{History, Measure};

const HEAD: &str = "test,model,model_sha256,quantization,backend,kernels,threads,batch,profiled,cpu,cpu_id,\
     logical_cpus,time,version,binary,commit,measure,unit,median,low,high,repetitions,processes,\
     processes_of,against_before,against_level,is_change,p,disturbed,doubts,differences,absent,sources";

/// A line with the names of the columns, then one for each point of each series (RFC 4180). Absent
/// values are empty; several doubts, differences or sources are joined by ` | `.
#[must_use]
pub fn history_csv(history: &History) -> String {
    let mut text = HEAD.to_owned() + "\r\n";
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
            let words = |value: &Option<String>| value.clone().unwrap_or_default();
            let differences = point.differences.iter().map(super::difference);
            let cells = [
                kind.test.clone(),
                series.model.clone(),
                kind.model_sha256.clone(),
                kind.quantization.clone(),
                kind.backend.clone(),
                kind.kernels.clone(),
                kind.threads.to_string(),
                kind.batch.to_string(),
                kind.profiled.to_string(),
                words(&kind.machine.cpu),
                words(&kind.machine.cpu_id),
                kind.machine.logical_cpus.map_or(String::new(), |n| n.to_string()),
                point.time.clone(),
                point.version.clone(),
                words(&point.binary),
                words(&point.commit),
                measure.to_owned(),
                history.measure.unit().to_owned(),
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
                point.doubts.join(" | "),
                differences.collect::<Vec<_>>().join(" | "),
                words(&point.absent),
                point.sources.join(" | "),
            ];
            let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
            text.push_str(&cells.join(","));
            text.push_str("\r\n");
        }
    }
    text
}

/// A cell, in quotes where it has to be.
fn quoted(cell: &str) -> String {
    let cell = printable(cell);
    if cell.contains(['"', ',']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}
