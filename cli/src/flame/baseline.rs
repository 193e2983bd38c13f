//! The baseline of `flamegraph --diff`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use brickscope::load::{Limit, UpTo};
use brickscope_analysis::stacks::Stacks;
use brickscope_formats::export;

use super::shares;
use super::summary::{SCHEMA_VERSION, Source, Summary};
use crate::runs::FLAMEGRAPH;

/// The most that is read of folded stacks.
const LIMIT: Limit =
    Limit { bytes: 1 << 30, instead: "leave out rare stacks, or record for a shorter time" };

/// An earlier flamegraph.
#[derive(Debug)]
pub(crate) struct Baseline {
    pub(crate) summary: Summary,
    pub(crate) stacks: Stacks,
}

impl Baseline {
    /// Reads the folder of a flamegraph, its `flamegraph.json`, or folded stacks by any program.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let is_summary = path.extension().is_some_and(|extension| extension == "json");
        if !path.is_dir() && !is_summary {
            let stacks = folded(path)?;
            return Ok(Self { summary: of_folded(&stacks), stacks });
        }
        let dir = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
        let file = if path.is_dir() { dir.join(FLAMEGRAPH) } else { path.to_owned() };
        let summary =
            Summary::load(&file).map_err(|why| anyhow::anyhow!("{}: {why}", file.display()))?;
        let mut stacks = folded(&dir.join("flamegraph.folded"))?;
        stacks.unit = summary.unit;
        Ok(Self { summary, stacks })
    }

    /// Whether its stacks have frames of layers.
    pub(crate) fn has_layers(&self) -> bool {
        let number = |name: &'_ str| name.strip_prefix("layer ").is_some_and(is_number);
        self.stacks.frames.iter().any(|frame| number(&frame.name))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads folded stacks by any program.
pub(crate) fn folded(path: &Path) -> Result<Stacks> {
    let file = UpTo::open(path, LIMIT).with_context(|| path.display().to_string())?;
    let mut file = BufReader::with_capacity(1 << 16, file);
    let start = file.fill_buf().with_context(|| path.display().to_string())?;
    let is = brickscope_formats::import::told(path, start);
    export::folded::read_from(file, path).map_err(|error| match is {
        Some(is) => anyhow::anyhow!("{} {is}", path.display()),
        None => error.into(),
    })
}

fn of_folded(stacks: &Stacks) -> Summary {
    Summary {
        schema_version: SCHEMA_VERSION,
        brickscope_version: env!("CARGO_PKG_VERSION").to_owned(),
        generated: String::new(),
        source: Source { via: "folded".to_owned(), event: None, frequency: None },
        unit: stacks.unit,
        total: stacks.total(),
        warnings: Vec::new(),
        model: None,
        run: None,
        machine: None,
        command: None,
        command_line: Vec::new(),
        build: String::new(),
        classes: shares::classes(stacks),
        bricks: shares::bricks(stacks),
        functions: shares::functions(stacks),
        agreement: None,
        agreement_absent: None,
        hidden: None,
        latency: Vec::new(),
        insights: Vec::new(),
        disturbed: None,
        counts_by_passes: false,
    }
}
