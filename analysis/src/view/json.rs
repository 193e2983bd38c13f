//! JSON for scripts: the profile, and what is computed from it.

use brickscope_profile::text::screened;
use brickscope_profile::{Absent, Phase, Profile, save};
use serde::Serialize;

use crate::layers::DeviceLayers;
use crate::ranks::InCollectives;
use crate::rate::Rate;
use crate::roofline::{Roofline, Verdict};
use crate::typical::Typical;
use crate::view::batches::{Batch, batches};

/// The profile as [`Profile::to_json`] has it, with `roofline` after its fields: a
/// [`Roofline`] for each phase that has one, with its [`Verdict`]; `roofline_absent`, why the others have none; `typical`, what
/// the passes of each phase [typically](Typical) take; `rates`, how fast each phase was ([`Rate`]); `batches`, where passes
/// had different numbers of tokens; `in_collectives`, what several ranks of a job did together ([`InCollectives`]); and
/// `layers_on_devices`, what the layers of a trace take there ([`DeviceLayers`]). A reader of profiles reads it too.
#[must_use]
pub fn json(profile: &Profile) -> String {
    #[derive(Serialize)]
    struct WithVerdict {
        #[serde(flatten)]
        roofline: Roofline,
        #[serde(skip_serializing_if = "Option::is_none")]
        verdict: Option<Said>,
    }
    #[derive(Serialize)]
    struct Said {
        #[serde(flatten)]
        verdict: Verdict,
        says: String,
    }
    #[derive(Serialize)]
    struct Without {
        phase: Phase,
        #[serde(flatten)]
        absent: Absent,
    }
    #[derive(Serialize)]
    struct WithRoofline<'p> {
        #[serde(flatten)]
        profile: &'p Profile,
        roofline: Vec<WithVerdict>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        roofline_absent: Vec<Without>,
        typical: Vec<Typical>,
        rates: Vec<Rate>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        batches: Vec<Batch>,
        #[serde(skip_serializing_if = "Option::is_none")]
        in_collectives: Option<InCollectives>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        layers_on_devices: Vec<DeviceLayers>,
    }
    let with_verdict = |roofline: Roofline| {
        let verdict = roofline.verdict().map(|verdict| Said { says: verdict.says(), verdict });
        WithVerdict { roofline, verdict }
    };
    let (mut roofline, mut roofline_absent) = (Vec::new(), Vec::new());
    for phase in Phase::SHOWN.into_iter().filter(|&phase| profile.phase(phase).is_some()) {
        match Roofline::of(profile, phase) {
            Ok(of) => roofline.push(with_verdict(of)),
            Err(absent) => roofline_absent.push(Without { phase, absent }),
        }
    }
    let typical = Typical::all(profile);
    let batches = batches(profile);
    let rates = Rate::all(profile);
    let in_collectives = InCollectives::of(profile);
    let layers_on_devices = DeviceLayers::all(profile);
    let whole = WithRoofline {
        profile,
        roofline,
        roofline_absent,
        typical,
        rates,
        batches,
        in_collectives,
        layers_on_devices,
    };
    screened(save::to_json(&whole))
}
