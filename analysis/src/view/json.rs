//! JSON for scripts: the profile, and what is computed from it.

use brickscope_profile::{Profile, save};
use serde::Serialize;

use crate::roofline::Roofline;

/// The profile as [`Profile::to_json`] has it, with `roofline` after its fields: a
/// [`Roofline`] for each phase that has one. A reader of profiles reads it too.
#[must_use]
pub fn json(profile: &Profile) -> String {
    #[derive(Serialize)]
    struct WithRoofline<'p> {
        #[serde(flatten)]
        profile: &'p Profile,
        roofline: Vec<Roofline>,
    }
    save::to_json(&WithRoofline { profile, roofline: Roofline::all(profile) })
}
