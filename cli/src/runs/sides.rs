//! The sides of a comparison, each of the device that ran it.

use std::path::Path;

use anyhow::Result;
use brickscope_analysis::compare::Side;
pub(crate) use brickscope_runs::sides::{beside, files, is_receipt};

use crate::device;

/// The processes at `path`, under the name that the user gave it.
pub(crate) fn load(path: &Path, is_forced: bool) -> Result<Side> {
    let of_device = |profile| device::where_it_ran(profile, "compared");
    brickscope_runs::sides::side(path, is_forced, &of_device)
}
