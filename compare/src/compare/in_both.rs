//! How much the kernels of two imported runs have in common: what another program traced may not state its engine and its
//! model, and then nothing else tells that the two sides are other programs.

use std::collections::BTreeMap;

use brickscope_profile::{NameKind, Profile, Total};

use super::{Comparison, Side};

/// Nanoseconds by the name of the kernel.
pub(super) type Kernels = BTreeMap<String, u64>;

/// With less of both sides' time in kernels of both, they are other programs. Copies of memory and the small kernels of a
/// framework are in every trace of it: in two of vLLM and SGLang they are less than a hundredth.
const LEAST: f64 = 0.05;

impl Comparison {
    /// Whether [`Comparison::kernels_in_both`] is so little that the sides are other programs or models.
    #[must_use]
    pub fn is_of_other_programs(&self) -> bool {
        self.kernels_in_both.is_some_and(|shares| shares.iter().all(|share| *share < LEAST))
    }
}

/// The kernels of an import that states no model: those of its devices, or of the host where there is none.
pub(super) fn kernels(profile: &Profile) -> Kernels {
    let mut kernels = Kernels::new();
    if profile.imported.is_none() || profile.model.is_some() {
        return kernels;
    }
    let streams = profile.devices.iter().flat_map(|device| &device.streams);
    add(streams.flat_map(|stream| &stream.totals), &mut kernels);
    if kernels.is_empty() {
        add(&profile.totals, &mut kernels);
    }
    kernels
}

fn add<'t>(totals: impl IntoIterator<Item = &'t Total>, kernels: &mut Kernels) {
    for total in totals.into_iter().filter(|total| total.kind == NameKind::Kernel) {
        let sum = kernels.entry(total.stats.name.clone()).or_default();
        *sum = sum.saturating_add(total.stats.total_ns);
    }
}

/// The part of each side's time in kernels that is in kernels of both; `None` unless it is known of all processes.
pub(super) fn shares(sides: [&Side; 2]) -> Option<[f64; 2]> {
    let all = sides.map(of_side);
    let [Some(a), Some(b)] = &all else { return None };
    let share = |of: &BTreeMap<&str, u128>, other: &BTreeMap<&str, u128>| {
        let whole: u128 = of.values().sum();
        let common = of.iter().filter(|(name, _)| other.contains_key(*name));
        let common: u128 = common.map(|(_, ns)| *ns).sum();
        (whole > 0).then(|| common as f64 / whole as f64)
    };
    Some([share(a, b)?, share(b, a)?])
}

fn of_side(side: &Side) -> Option<BTreeMap<&str, u128>> {
    let mut sums: BTreeMap<&str, u128> = BTreeMap::new();
    for process in &side.processes {
        if process.kernels.is_empty() {
            return None;
        }
        for (name, ns) in &process.kernels {
            *sums.entry(name.as_str()).or_default() += u128::from(*ns);
        }
    }
    Some(sums)
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{Imported, Model};

    use super::super::Process;
    use super::*;

    fn side(processes: &[&[(&str, u64)]]) -> Side {
        let process = |kernels: &&[(&str, u64)]| Process {
            kernels: kernels.iter().map(|(name, ns)| ((*name).to_owned(), *ns)).collect(),
            ..Process::default()
        };
        Side { name: String::new(), processes: processes.iter().map(process).collect() }
    }

    #[test]
    fn the_time_in_kernels_of_both_is_what_they_have_in_common() {
        let a = side(&[&[("gemm", 90), ("copy", 10)], &[("gemm", 100)]]);
        let b = side(&[&[("other", 30), ("copy", 10)]]);
        assert_eq!(shares([&a, &b]), Some([0.05, 0.25]));
        assert_eq!(shares([&a, &a]), Some([1.0, 1.0]));
        assert_eq!(shares([&a, &side(&[&[("x", 1)]])]), Some([0.0, 0.0]));
        // Of a run without kernels nothing is known, nor of one whose kernels took no time.
        for unknown in [&[][..], &[("copy", 0)]] {
            assert_eq!(shares([&a, &side(&[unknown])]), None);
        }
    }

    #[test]
    fn a_run_that_states_its_model_or_was_recorded_here_needs_no_kernels() {
        let mut profile = Profile::empty(Default::default());
        assert_eq!(kernels(&profile), Kernels::new());
        profile.imported = Some(Imported::default());
        profile.model = Some(Model::default());
        assert_eq!(kernels(&profile), Kernels::new());
    }
}
