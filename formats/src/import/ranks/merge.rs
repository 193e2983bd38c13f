//! The devices of another rank beside those of the first: with its names, passes and clock.

use std::collections::{BTreeMap, HashMap};

use brickscope_profile::name::{OTHER_BRICK, OTHER_KERNEL};
use brickscope_profile::{Name, NameKind, Pass, Phase, Profile};

use crate::import::totals::{MOST_NAMES, phases, totals};

/// The names of all ranks.
pub(super) struct Names {
    pub(super) names: Vec<Name>,
    of_name: HashMap<Name, u16>,
}

impl Names {
    /// Those of the first rank keep their numbers.
    pub(super) fn new(names: Vec<Name>) -> Self {
        let numbers = (0..).zip(&names).map(|(number, name)| (name.clone(), number)).collect();
        Self { names, of_name: numbers }
    }

    /// The numbers of another rank's names.
    pub(super) fn add(&mut self, names: Vec<Name>) -> Vec<u16> {
        names.into_iter().map(|name| self.number(name)).collect()
    }

    fn number(&mut self, name: Name) -> u16 {
        if let Some(&number) = self.of_name.get(&name) {
            return number;
        }
        if self.names.len() >= MOST_NAMES {
            return if name.kind == NameKind::Brick { OTHER_BRICK } else { OTHER_KERNEL };
        }
        let number = self.names.len() as u16;
        self.names.push(name.clone());
        self.of_name.insert(name, number);
        number
    }
}

/// The passes of a rank by phase, in the order of their begin: of the host, and of devices where no pass of the host is.
pub(super) fn serials(profile: &Profile) -> BTreeMap<Phase, Vec<u32>> {
    let mut begins: BTreeMap<u32, (Phase, u64)> = BTreeMap::new();
    for pass in &profile.passes {
        begins.entry(pass.serial).or_insert((pass.phase, pass.start_ns));
    }
    let mut on_devices: BTreeMap<u32, (Phase, u64)> = BTreeMap::new();
    for pass in profile.devices.iter().flat_map(|of| &of.streams).flat_map(|of| &of.passes) {
        let first = on_devices.entry(pass.serial).or_insert((pass.phase, pass.start_ns));
        first.1 = first.1.min(pass.start_ns);
    }
    for (serial, first) in on_devices {
        begins.entry(serial).or_insert(first);
    }
    let mut sorted: Vec<(u64, u32, Phase)> =
        begins.into_iter().map(|(serial, (phase, start))| (start, serial, phase)).collect();
    sorted.sort_unstable_by_key(|&(start, serial, _)| (start, serial));
    let mut by_phase: BTreeMap<Phase, Vec<u32>> = BTreeMap::new();
    for (_, serial, phase) in sorted {
        by_phase.entry(phase).or_default().push(serial);
    }
    by_phase
}

/// Which passes of another rank are which of the first: by the passes of collectives that both have, else by their order.
#[derive(Debug, Default)]
pub(super) struct Partners {
    pub(super) of_serial: HashMap<u32, u32>,
    /// Passes of the other rank without one.
    pub(super) alone: u64,
    /// Whether both have equally many of each phase.
    pub(super) is_even: bool,
    /// Whether common collectives tell it.
    pub(super) is_told: bool,
}

/// `common` has the passes of common collectives: on the first rank, and on the other.
pub(super) fn partners(
    first: &BTreeMap<Phase, Vec<u32>>,
    other: &BTreeMap<Phase, Vec<u32>>,
    common: &[(u32, u32)],
) -> Partners {
    let mut partners = Partners { is_even: true, is_told: true, ..Partners::default() };
    for (phase, theirs) in other {
        let ours = first.get(phase).map_or(&[][..], Vec::as_slice);
        let place = |serials: &[u32]| -> HashMap<u32, i64> {
            serials.iter().zip(0..).map(|(&serial, place)| (serial, place)).collect()
        };
        let (place_of_ours, place_of_theirs) = (place(ours), place(theirs));
        // By how many passes the other rank's are behind.
        let mut votes: BTreeMap<i64, usize> = BTreeMap::new();
        for (a, b) in common {
            if let (Some(a), Some(b)) = (place_of_ours.get(a), place_of_theirs.get(b)) {
                *votes.entry(b - a).or_default() += 1;
            }
        }
        let all: usize = votes.values().sum();
        let most = votes.into_iter().max_by_key(|&(behind, n)| (n, std::cmp::Reverse(behind)));
        partners.is_even &= ours.len() == theirs.len();
        let behind = match most {
            Some((behind, n)) if n * 10 >= all * 9 => behind,
            // They contradict each other.
            Some(_) => {
                partners.is_told = false;
                partners.alone += theirs.len() as u64;
                continue;
            }
            None => {
                partners.is_told = false;
                0
            }
        };
        for (at, serial) in (0_i64..).zip(theirs) {
            let ours = usize::try_from(at - behind).ok().and_then(|at| ours.get(at));
            match ours {
                Some(&ours) => {
                    partners.of_serial.insert(*serial, ours);
                }
                None => partners.alone += 1,
            }
        }
    }
    partners
}

/// Adds `later_ns` to all times of a profile's devices and host.
pub(super) fn later(profile: &mut Profile, later_ns: u64) {
    let streams = profile.devices.iter_mut().flat_map(|device| &mut device.streams);
    let (mut spans, mut passes, mut launches) = (Vec::new(), Vec::new(), Vec::new());
    for stream in streams {
        spans.push(&mut stream.spans);
        passes.push(&mut stream.passes);
        launches.push(&mut stream.launches);
    }
    spans.push(&mut profile.spans);
    passes.push(&mut profile.passes);
    for span in spans.into_iter().flatten() {
        span.start_ns = span.start_ns.saturating_add(later_ns);
    }
    for pass in passes.into_iter().flatten() {
        pass.start_ns = pass.start_ns.saturating_add(later_ns);
    }
    for launch in launches.into_iter().flatten() {
        launch.issued_ns = launch.issued_ns.saturating_add(later_ns);
    }
}

/// Gives the devices of another rank the names and passes of the first. What was in a pass without a partner is in none.
pub(super) fn adopt(profile: &mut Profile, numbers: &[u16], partners: &HashMap<u32, u32>) {
    let number = |old: u16| numbers.get(usize::from(old)).copied().unwrap_or(old);
    for stream in profile.devices.iter_mut().flat_map(|device| &mut device.streams) {
        for span in &mut stream.spans {
            span.name = span.name.map(number);
            span.pass = span.pass.and_then(|serial| partners.get(&serial).copied());
        }
        let passes = std::mem::take(&mut stream.passes).into_iter();
        stream.passes = passes
            .filter_map(|pass| Some(Pass { serial: *partners.get(&pass.serial)?, ..pass }))
            .collect();
    }
}

/// Sums up the streams of a profile's devices again.
pub(super) fn sum_up(profile: &mut Profile) {
    for stream in profile.devices.iter_mut().flat_map(|device| &mut device.streams) {
        (stream.totals, stream.dropped.names) =
            totals(&stream.spans, &stream.passes, &profile.names);
        // A phase may have none though its passes have some: where their spans make no rate.
        let untold: Vec<Phase> =
            stream.phases.iter().filter(|of| of.tokens == 0).map(|of| of.phase).collect();
        stream.phases = phases(&stream.passes);
        for total in stream.phases.iter_mut().filter(|of| untold.contains(&of.phase)) {
            total.tokens = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(serials: &[u32]) -> BTreeMap<Phase, Vec<u32>> {
        BTreeMap::from([(Phase::Decode, serials.to_vec())])
    }

    #[test]
    fn passes_are_those_of_common_collectives_or_in_their_order() {
        let (ours, theirs) = (of(&[1, 2, 3]), of(&[7, 8, 9]));
        let by_order = partners(&ours, &theirs, &[]);
        assert_eq!(by_order.of_serial, HashMap::from([(7, 1), (8, 2), (9, 3)]));
        assert!(by_order.is_even && !by_order.is_told);
        // The other rank began a step later.
        let told = partners(&ours, &theirs, &[(2, 7), (3, 8)]);
        assert_eq!(told.of_serial, HashMap::from([(7, 2), (8, 3)]));
        assert_eq!((told.alone, told.is_told), (1, true));
        let other = partners(&ours, &theirs, &[(2, 7), (3, 9)]);
        assert!(other.of_serial.is_empty());
        assert_eq!(other.alone, 3);
    }

    #[test]
    fn names_of_another_rank_have_the_numbers_of_the_first() {
        let name = |name: &str, kind| Name {
            name: name.to_owned(),
            kind,
            category: None,
            host: None,
            device: None,
            transfer: None,
        };
        let mut names = Names::new(vec![name("a", NameKind::Brick), name("b", NameKind::Kernel)]);
        let numbers = names.add(vec![name("b", NameKind::Kernel), name("a", NameKind::Kernel)]);
        assert_eq!(numbers, [1, 2]);
        while names.names.len() < MOST_NAMES {
            names.number(name(&names.names.len().to_string(), NameKind::Kernel));
        }
        let numbers = names.add(vec![name("x", NameKind::Kernel), name("y", NameKind::Brick)]);
        assert_eq!(numbers, [OTHER_KERNEL, OTHER_BRICK]);
    }
}
