//! One or two runs, or those of a folder, as a self-contained HTML file: what `brickscope report` writes.
//!
//! ```
//! use brickscope_profile::{ClockInfo, Profile};
//! use brickscope_report::{Run, of_run};
//!
//! let profile = Profile::empty(ClockInfo::default()); // or `Profile::load`, or a profiler's
//! let run = Run { name: "today".to_owned(), profile: &profile, receipt: None };
//! let page = of_run(&run, &mut || ());
//! assert!(page.starts_with("<!DOCTYPE html>"));
//! ```
//!
//! Every section is a function of a profile. Numbers are written by `figure.rs`, which requires their
//! place in `profile.json`, and text by `html.rs`, so that no name becomes markup. `tests/report/provenance.rs` checks
//! both, on the finished page.
#![forbid(unsafe_code)]

mod apart;
mod bricks;
mod comparison;
mod difference;
mod experts;
mod figure;
mod findings;
mod flame;
mod folder;
mod html;
mod labels;
mod layers;
mod machine;
mod open;
mod overview;
mod page;
mod path;
mod ranks;
mod requests;
mod roofline;
mod source;
mod threads;
mod tiles;
mod timeline;
mod tokens;

use brickscope_analysis::compare::Comparison;
use brickscope_analysis::receipt::Receipt;
use brickscope_analysis::typical;
use brickscope_profile::Profile;

pub use self::folder::{Folder, links, of_folder};
pub use self::open::open;
pub use self::page::is_page;
use self::page::{Diagrams, Section};
use self::source::Source;

/// A run to report.
#[derive(Debug, Clone)]
pub struct Run<'p> {
    /// Its display name.
    pub name: String,
    /// What was recorded.
    pub profile: &'p Profile,
    /// The receipt, if it is a benchmark.
    pub receipt: Option<&'p Receipt>,
}

/// How often [`of_run`] calls `done` for this profile: for a progress bar.
pub fn steps(profile: &Profile) -> u64 {
    let streams: usize = profile.devices.iter().map(|device| device.streams.len()).sum();
    3 + SHEETS.len() as u64 * (1 + streams.min(source::MOST_STREAMS) as u64)
}

/// A section with a part for each source of times.
struct Sheet {
    id: &'static str,
    title: &'static str,
    lead: &'static str,
    html: fn(&Source<'_>, &mut Diagrams) -> String,
}

const SHEETS: [Sheet; 7] = [
    Sheet {
        id: "bricks",
        title: "Bricks",
        lead: "Where the time of each phase went, and how much is unattributed.",
        html: |source, _| bricks::section(source),
    },
    Sheet {
        id: "layers",
        title: "Layers",
        lead: "Whether the layers take the same time.",
        html: |source, _| layers::section(source),
    },
    Sheet {
        id: "flame",
        title: "Flame view",
        lead: "How spans nest, summed over the passes that the tables are of.",
        html: |source, diagrams| flame::section(source, &mut diagrams.names, &mut diagrams.flames),
    },
    Sheet {
        id: "roofline",
        title: "Roofline",
        lead: "How close each brick comes to the machine's limits.",
        html: |source, _| roofline::section(source),
    },
    Sheet {
        id: "path",
        title: "Critical path",
        lead: "What decides how long a pass takes, and what has slack.",
        html: |source, _| path::section(source),
    },
    Sheet {
        id: "transfers",
        title: "Transfers",
        lead: "Copies between memories.",
        html: |source, _| path::transfers(source),
    },
    Sheet {
        id: "tokens",
        title: "Tokens",
        lead: "How long a user waits for each token, and which bricks are behind the slow ones.",
        html: |source, _| tokens::section(source),
    },
];

/// The position of the timeline among the sections.
const TIMELINE: usize = 2;

/// The report of one run, without the passes that [`typical::shown`] leaves out, as HTML. Calls `done` after each of its
/// [`steps`]. The same run gives the same bytes.
pub fn of_run(run: &Run<'_>, done: &mut dyn FnMut()) -> String {
    let all = run.profile;
    let shown = typical::shown(all);
    let profile = &*shown;
    let mut diagrams = Diagrams::default();
    let mut parts: [String; SHEETS.len()] = Default::default();
    let left_out = source::each(profile, "", |source| {
        for (sheet, part) in SHEETS.iter().zip(&mut parts) {
            let html = (sheet.html)(source, &mut diagrams);
            if let Some(title) = source.title.as_ref().filter(|_| !html.is_empty()) {
                part.push_str(&format!(
                    "<h3 class=\"source\">{}</h3>\n",
                    html::said_or_ours(title, "Host")
                ));
            }
            part.push_str(&html);
            done();
        }
    });
    let mut sections: Vec<Section> = SHEETS
        .iter()
        .zip(parts)
        .map(|(&Sheet { id, title, lead, .. }, html)| Section { id, title, lead, html })
        .collect();
    let timeline = timeline::section(profile, "", &mut diagrams.names, &mut diagrams.timelines);
    done();
    sections.insert(
        TIMELINE,
        Section {
            id: "timeline",
            title: "Timeline",
            lead: "Single passes, span by span.",
            html: timeline,
        },
    );
    // First: it is what to do about the rest. Rules look at all passes, also those that the page leaves out.
    sections.insert(
        0,
        Section {
            id: "findings",
            title: "Findings",
            lead: "What slows this run down, what would be gained, and how to test it.",
            html: findings::section(all),
        },
    );
    sections.insert(
        1,
        Section {
            id: "requests",
            title: "Requests",
            lead: "How long who asked this server waited, and what slow tokens waited for.",
            html: requests::section(all),
        },
    );
    let mut devices = machine::devices(profile);
    if left_out > 0 {
        devices.push_str(&html::note("The tables above leave out further streams."));
    }
    done();
    sections.extend([
        Section {
            id: "tiles",
            title: "Tiles",
            lead: "How fast the tiles of products were, and how evenly threads shared them.",
            html: tiles::section(profile),
        },
        Section {
            id: "threads",
            title: "Threads",
            lead: "How long each thread worked, and where threads waited for each other.",
            html: threads::section(profile),
        },
        Section {
            id: "experts",
            title: "Experts",
            lead: "Which experts of a mixture ran, how evenly tokens chose them, or how long each took.",
            html: experts::section(profile),
        },
        Section {
            id: "devices",
            title: "Devices",
            lead: "The devices, their clocks, and the grain of their timing.",
            html: devices,
        },
        Section {
            id: "machine",
            title: "Machine and run",
            lead: "What ran on which machine, and how it was timed.",
            html: machine::section(profile),
        },
        Section {
            id: "receipt",
            title: "Receipt",
            lead: "The evidence for the figures of a benchmark.",
            html: machine::receipt(run.receipt),
        },
    ]);
    let title = overview::title(profile, &run.name);
    let page = page::page(&title, &overview::head(profile, all, &run.name), &sections, &diagrams);
    done();
    page
}

/// The report of two runs side by side, as HTML. The verdict of `comparison` comes first, or why there is none, and last where
/// all of it is inconclusive; beside it the figures of `runs`, or why they have none. `names` are their display names.
pub fn of_two(
    names: [&str; 2],
    comparison: &Result<Comparison, String>,
    runs: [&Result<Profile, String>; 2],
) -> String {
    let verdicts = Section {
        id: "verdicts",
        title: "Verdicts",
        lead: "What became slower or faster from A to B, by more than noise.",
        html: comparison::verdicts(comparison),
    };
    let mut sections = comparison::side_by_side(runs, comparison);
    let place = if comparison::decides(comparison) { 0 } else { sections.len() };
    sections.insert(place, verdicts);
    let head = comparison::head(names, comparison, runs);
    page::page("Two runs compared", &head, &sections, &Diagrams::default())
}
