//! Text for people: reports, tables, rooflines, trees, comparisons. Every function here is a pure
//! function of what was measured; none measures.

mod backends;
mod batches;
mod between;
pub mod bisect;
mod by_the_file;
mod comparison;
mod device;
mod doubts;
mod experts;
mod explain;
mod findings;
#[cfg(feature = "receipt")]
mod fleet;
mod headline;
#[cfg(feature = "receipt")]
mod history;
mod imported;
mod json;
mod kernels;
mod layers;
mod layout;
mod machine;
mod moved;
mod ranks;
mod ranks_compared;
mod rates_compared;
mod report;
mod requests;
mod roofline;
mod roofline_svg;
mod shares;
mod statistics;
mod summary;
mod svg;
mod tables;
mod tiles;
mod trials;
mod versus;
mod waits;

pub use brickscope_profile::graph::{
    PathRow, PathSummary, SlackRow, TreeOptions, critical_path, path_summary,
};
pub use brickscope_profile::text::{
    is_unprintable, printable, printable_text, screened, screened_lines, time,
};

pub use self::backends::backends;
pub use self::batches::{Batch, batches};
pub use self::between::around;
pub use self::by_the_file::host_to_record;
pub use self::comparison::{
    comparison, comparison_bmf, comparison_headline, comparison_json, comparison_markdown,
};
pub use self::device::{busy_in_words, serialised_notes};
pub use self::doubts::{Doubt, doubts, folded};
pub use self::explain::{explain, explain_json, words};
pub use self::findings::{findings, findings_of, nothing, test_command};
#[cfg(feature = "receipt")]
pub use self::fleet::{doubts_of_fleet, explanation, fleet, judged};
pub use self::headline::headline;
#[cfg(feature = "receipt")]
pub use self::history::{history, history_csv, history_json, history_markdown, history_svg};
pub use self::imported::import_in_words;
pub use self::json::json;
pub use self::kernels::kernels;
pub use self::machine::{ceilings, machine};
pub use self::ranks_compared::ranks_compared_in_words;
pub use self::rates_compared::{ComparedRate, RatesCompared, rates_compared};
pub use self::report::{machine_in_words, report, report_of_device};
pub use self::requests::{
    client as requests_of_client, list_of_requests, request, request_of_run, requests,
    requests_in_words, requests_of_run, table_of_times, times_of_requests,
};
pub use self::roofline::{memory_readings, roofline, swings_in_words};
pub use self::roofline_svg::roofline_svg;
pub use self::statistics::statistics;
pub use self::summary::{
    Piece, Size, Summary, Tone, disturbed_by, disturber, next_step, phase_limit, summary,
    waits_most,
};
pub use self::trials::{trials, tried};
pub use self::versus::{
    Circumstances, versus, versus_command, versus_json, versus_markdown, versus_of,
};
pub use crate::text::wrap;
pub use crate::words::quoted;

/// What went wrong on the devices of `profile`, one sentence each.
#[must_use]
pub fn device_notes(profile: &brickscope_profile::profile::Profile) -> Vec<String> {
    device::losses(profile).into_iter().map(screened_lines).collect()
}
