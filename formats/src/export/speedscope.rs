//! speedscope's own format, <https://www.speedscope.app/file-format-schema.json>: one profile of the
//! type `sampled`, whose samples are the stacks.

use std::io::{self, Write};

use serde::Serialize;

use brickscope_analysis::stacks::{Stacks, Unit};

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: &'a str,
    #[serde(rename = "activeProfileIndex")]
    active_profile_index: u32,
    exporter: &'static str,
    shared: Shared<'a>,
    profiles: [Sampled<'a>; 1],
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct Sampled<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start_value: u64,
    #[serde(rename = "endValue")]
    end_value: u64,
    samples: Vec<&'a [u32]>,
    weights: Vec<u64>,
}

/// Writes stacks under a name that speedscope shows as title. The unit is `nanoseconds`, or `none` for
/// samples.
///
/// speedscope reads numbers as JavaScript does, exact up to 2^53: 104 days in nanoseconds.
///
/// # Errors
///
/// If writing to `out` fails.
pub fn write(stacks: &Stacks, name: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let unit = match stacks.unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Samples => "none",
    };
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name,
        active_profile_index: 0,
        exporter: concat!("brickscope@", env!("CARGO_PKG_VERSION")),
        shared: Shared {
            frames: stacks.frames.iter().map(|frame| Frame { name: &frame.name }).collect(),
        },
        profiles: [Sampled {
            kind: "sampled",
            name,
            unit,
            start_value: 0,
            end_value: stacks.total(),
            samples: stacks.iter().map(|stack| stack.frames).collect(),
            weights: stacks.iter().map(|stack| stack.weight).collect(),
        }],
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")
}
