//! A run, or two, as one HTML file that needs nothing else.
//!
//! Every section is a function of a profile. A number is written by `figure.rs`, which takes where in
//! `profile.json` it is from; text by `html.rs`, so that no name becomes markup.

mod bricks;
#[cfg(test)]
mod browser;
mod comparison;
mod difference;
mod figure;
mod flame;
mod html;
mod layers;
mod machine;
mod overview;
mod page;
mod path;
#[cfg(test)]
mod provenance;
mod roofline;
mod source;
#[cfg(test)]
mod tests;
mod tiles;
mod timeline;
mod tokens;

use brickscope::Profile;
use brickscope::compare::Comparison;
use brickscope::receipt::Receipt;

use self::page::{Pictures, Section};
use self::source::Source;

/// A run as it was read.
pub(crate) struct Run<'p> {
    /// What people call it: a path.
    pub(crate) name: String,
    pub(crate) profile: &'p Profile,
    /// Of a benchmark.
    pub(crate) receipt: Option<&'p Receipt>,
}

/// How many steps the report of a run takes, for those who show how far it is.
pub(crate) fn steps(profile: &Profile) -> u64 {
    let streams: usize = profile.devices.iter().map(|device| device.streams.len()).sum();
    3 + SHEETS.len() as u64 * (1 + streams.min(source::MOST_STREAMS) as u64)
}

/// A section that each source of times has its part of.
struct Sheet {
    id: &'static str,
    title: &'static str,
    lead: &'static str,
    html: fn(&Source<'_>, &mut Pictures) -> String,
}

const SHEETS: [Sheet; 7] = [
    Sheet {
        id: "bricks",
        title: "Bricks",
        lead: "Where the time of each phase went, and what no brick explains.",
        html: |source, _| bricks::section(source),
    },
    Sheet {
        id: "layers",
        title: "Layers",
        lead: "Whether the layers are alike.",
        html: |source, _| layers::section(source),
    },
    Sheet {
        id: "flame",
        title: "Flame view",
        lead: "What was inside of what, over all passes.",
        html: |source, pictures| flame::section(source, &mut pictures.names, &mut pictures.flames),
    },
    Sheet {
        id: "roofline",
        title: "Roofline",
        lead: "How near each brick comes to what the machine can do.",
        html: |source, _| roofline::section(source),
    },
    Sheet {
        id: "path",
        title: "Critical path",
        lead: "What decides how long a pass takes, and what could wait.",
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

/// Where the timeline stands among the sheets.
const TIMELINE: usize = 2;

/// The report of one run. `done` is told after each step. The same run gives the same bytes.
pub(crate) fn of_run(run: &Run<'_>, done: &mut dyn FnMut()) -> String {
    let profile = run.profile;
    let mut pictures = Pictures::default();
    let mut parts: [String; SHEETS.len()] = Default::default();
    let left_out = source::each(profile, "", |source| {
        for (sheet, part) in SHEETS.iter().zip(&mut parts) {
            if let Some(title) = &source.title {
                part.push_str(&format!(
                    "<h3 class=\"source\">{}</h3>\n",
                    html::said_or_ours(title, "Host")
                ));
            }
            part.push_str(&(sheet.html)(source, &mut pictures));
            done();
        }
    });
    let mut sections: Vec<Section> = SHEETS
        .iter()
        .zip(parts)
        .map(|(&Sheet { id, title, lead, .. }, html)| Section { id, title, lead, html })
        .collect();
    let timeline = timeline::section(profile, "", &mut pictures.names, &mut pictures.timelines);
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
    let mut devices = machine::devices(profile);
    if left_out > 0 {
        devices.push_str(&html::note("Further streams are left out of the tables above."));
    }
    done();
    sections.extend([
        Section {
            id: "tiles",
            title: "Tiles",
            lead: "What products are cut into, and how evenly threads shared them.",
            html: tiles::section(profile),
        },
        Section {
            id: "devices",
            title: "Devices",
            lead: "What devices were timed, by which clock, and how finely.",
            html: devices,
        },
        Section {
            id: "machine",
            title: "Machine and run",
            lead: "What ran on what, and how its times are known.",
            html: machine::section(profile),
        },
        Section {
            id: "receipt",
            title: "Receipt",
            lead: "What vouches for the figures of a benchmark.",
            html: machine::receipt(run.receipt),
        },
    ]);
    let title = overview::title(profile, &run.name);
    let page = page::page(&title, &overview::head(profile, &run.name), &sections, &pictures);
    done();
    page
}

/// The report of two runs beside each other. What the library says of them comes first, or why it says
/// nothing; `runs` are looked into, or have none to look into, and say why.
pub(crate) fn of_two(
    names: [&str; 2],
    comparison: &Result<Comparison, String>,
    runs: [&Result<Profile, String>; 2],
) -> String {
    let mut sections = vec![Section {
        id: "verdicts",
        title: "Verdicts",
        lead: "What became slower or faster from A to B, by more than noise.",
        html: comparison::verdicts(comparison),
    }];
    sections.extend(comparison::side_by_side(runs));
    let head = comparison::head(names, comparison);
    page::page("Two runs compared", &head, &sections, &Pictures::default())
}
