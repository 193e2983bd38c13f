//! JSON for scripts: the profile, and what is computed from it.

use brickscope_profile::text::screened;
use brickscope_profile::{Profile, save};
use serde::Serialize;

use crate::roofline::Roofline;
use crate::typical::Typical;

/// The profile as [`Profile::to_json`] has it, with `roofline` after its fields: a
/// [`Roofline`] for each phase that has one; and `typical`, what the passes of each phase [typically](Typical) take. A
/// reader of profiles reads it too.
#[must_use]
pub fn json(profile: &Profile) -> String {
    #[derive(Serialize)]
    struct WithRoofline<'p> {
        #[serde(flatten)]
        profile: &'p Profile,
        roofline: Vec<Roofline>,
        typical: Vec<Typical>,
    }
    let (roofline, typical) = (Roofline::all(profile), Typical::all(profile));
    screened(save::to_json(&WithRoofline { profile, roofline, typical }))
}
