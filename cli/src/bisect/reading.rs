//! What a measurement gave, and what is kept of it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use brickscope::load::{self, Limit};
use brickscope::save;
use brickscope_analysis::compare::Process;
use serde::{Deserialize, Serialize};

const LIMIT: Limit = Limit { bytes: 1 << 28, instead: "is it a run that a search kept?" };

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    pub(crate) value: f64,
    /// The receipt that it is from.
    pub(crate) receipt: Option<PathBuf>,
    /// The run that it is from.
    pub(crate) run: Option<Box<Kept>>,
}

/// How a measurement ended.
#[derive(Debug)]
pub(crate) enum Measured {
    Value(Reading),
    /// Why there is no result.
    Failed(String),
    Interrupted,
}

/// What is kept of a run. The times of each pass and brick, and sums by layer and kernel, are some dozens of kilobytes, where
/// the run has megabytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kept {
    pub(crate) process: Process,
    pub(crate) engine: Option<String>,
    pub(crate) machine: Option<String>,
    /// The part of the CPU time that other programs used.
    pub(crate) others_share: Option<f64>,
    /// How long all of it took.
    pub(crate) seconds: f64,
}

impl Kept {
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        save::write_text(path, &(serde_json::to_string(self)? + "\n"))
            .with_context(|| path.display().to_string())
    }

    pub(crate) fn load(path: &Path) -> Result<Self> {
        let cannot = || path.display().to_string();
        let bytes = load::bytes(path, LIMIT).with_context(cannot)?;
        serde_json::from_slice(&bytes).with_context(cannot)
    }
}
