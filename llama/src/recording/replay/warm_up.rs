//! Which passes warm up, and are left out.

use std::collections::{BTreeMap, HashSet};

use brickscope::{Phase, Profile};

use super::counts::Counts;

/// What tells whether a pass warms up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// Whether a graph was described in it.
    pub(crate) is_described: bool,
    /// Whether the program says so.
    pub(crate) is_warm_up: bool,
    pub(crate) position: Option<u64>,
}

/// How many short passes at the begin are taken for no text: an empty run, and what a server tries.
const MOST_TRIES: usize = 4;

/// Leaves out the passes by which the program warms up, and of several passes of one phase and as many tokens those in which
/// graphs were described: the first ones. The only one of its kind stays.
pub(crate) fn leave_out_warm_up(profile: &mut Profile, marks: &[Mark], counts: &mut Counts) {
    let mark = |serial: u32| (serial as usize).checked_sub(1).and_then(|nth| marks.get(nth));
    // The empty run of llama.cpp's tools, a begin and an end of a text, and what a server tries with two tokens: they are
    // taken out of the cache, so that the next pass is at its begin, too.
    let is_try = |nth: usize, pass: &brickscope::Pass| {
        let is_at_begin = |nth: usize| marks.get(nth).is_some_and(|of| of.position == Some(0));
        let is_said = marks.get(nth).is_some_and(|of| of.is_warm_up);
        is_said || pass.tokens <= 2 && is_at_begin(nth) && is_at_begin(nth + 1)
    };
    let at_begin = profile.passes.iter().zip(0..).take_while(|(pass, nth)| is_try(*nth, pass));
    let tries = at_begin.filter(|(pass, nth)| pass.serial as usize == nth + 1).count();
    // Where no text follows, they are what was asked for.
    let is_text = |pass: &brickscope::Pass| {
        let is_later = mark(pass.serial).is_some_and(|mark| mark.position != Some(0));
        pass.serial as usize > tries && (pass.tokens > 2 || is_later)
    };
    let tries = if profile.passes.iter().any(is_text) { tries.min(MOST_TRIES) } else { 0 };
    let is_own = |pass: &brickscope::Pass| {
        let is_said = mark(pass.serial).is_some_and(|mark| mark.is_warm_up);
        is_said || pass.serial as usize <= tries
    };
    let is_own =
        |pass: &brickscope::Pass| is_own(pass) && profile.passes.iter().any(|of| !is_own(of));
    let is_described =
        |pass: &brickscope::Pass| mark(pass.serial).is_some_and(|mark| mark.is_described);
    let mut out: HashSet<u32> = HashSet::new();
    let mut own_warm_up = 0;
    let mut of_a_kind: BTreeMap<(Phase, u64), Vec<&brickscope::Pass>> = BTreeMap::new();
    for pass in &profile.passes {
        if is_own(pass) {
            out.insert(pass.serial);
            own_warm_up += 1;
        } else {
            of_a_kind.entry((pass.phase, pass.tokens)).or_default().push(pass);
        }
    }
    for passes in of_a_kind.values() {
        let (first, rest): (Vec<&brickscope::Pass>, Vec<_>) =
            passes.iter().partition(|pass| is_described(pass));
        let n = if rest.is_empty() { 1.min(passes.len() - 1) } else { first.len() };
        out.extend(first.iter().take(n).map(|pass| pass.serial));
    }
    if !out.is_empty()
        && let Ok(rest) = profile.without(|pass| out.contains(&pass.serial))
    {
        *profile = rest;
        profile.dropped.warm_up_passes = out.len() as u64;
        counts.own_warm_up = own_warm_up;
        counts.warm_up = out.len() as u64 - own_warm_up;
    }
}
