//! Requests that came and that no figure has.

use brickscope_profile::Profile;
use brickscope_profile::text::count;

/// How many requests came beside those that a run has, and are not recorded. `None` if there are none.
pub(super) fn not_recorded(profile: &Profile) -> Option<String> {
    let missed = profile.dropped.missed_requests;
    let what = if profile.requests.is_empty() { "request" } else { "more request" };
    (missed > 0).then(|| format!("not recorded: {}, in no figure here", count(missed, what)))
}
