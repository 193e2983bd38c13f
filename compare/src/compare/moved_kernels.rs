//! Kernels that only one side has: fused, renamed, or of another backend.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::counted::Counted;
use super::pairs::{Pairs, mean};
use super::samples::test_of;
use super::{Side, Test};

/// The kernels of a brick that only one side has in it. Where there are some of either, those of A became those of B.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelsOfBrick {
    /// The brick; `None` for kernels in none.
    pub brick: Option<String>,
    /// Those that each run of A has and no run of B, the longest first.
    pub only_a: Vec<KernelTime>,
    /// The other way about.
    pub only_b: Vec<KernelTime>,
}

/// What a kernel takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelTime {
    /// Its name.
    pub kernel: String,
    /// Nanoseconds of a pass in it, on the side that has it.
    pub ns: f64,
}

/// A brick, if it is in one, and a kernel.
type Place<'t> = (Option<&'t str>, &'t str);

/// The kernels of a side.
struct Ran<'t> {
    /// Those in passes that count, of each run.
    in_each: BTreeSet<Place<'t>>,
    /// Those of any run.
    in_any: BTreeSet<Place<'t>>,
    /// The same wherever they ran.
    names: BTreeSet<&'t str>,
}

/// Those of a test, the bricks that took most of them first. None where the runs of a side have no kernels.
pub(super) fn kernels(
    name: &str,
    sides: &[Side; 2],
    pairs: &Pairs<'_>,
    counted: Counted,
) -> Vec<KernelsOfBrick> {
    let tests = sides.each_ref().map(|side| {
        side.processes.iter().filter_map(|process| test_of(process, name)).collect::<Vec<&Test>>()
    });
    if tests.iter().flatten().any(|test| test.inside.kernels.is_empty()) {
        return Vec::new();
    }
    let ran = tests.map(|tests| Ran::of(&tests, counted));
    let mut bricks: BTreeMap<Option<&str>, [Vec<KernelTime>; 2]> = BTreeMap::new();
    let mut new: BTreeSet<Place<'_>> = BTreeSet::new();
    for (side, (own, other)) in [(&ran[0], &ran[1]), (&ran[1], &ran[0])].into_iter().enumerate() {
        for &place in own.in_each.difference(&other.in_any) {
            let (brick, kernel) = place;
            // It may have run in this brick, too.
            if other.in_any.contains(&(None::<&str>, kernel)) {
                continue;
            }
            if !other.names.contains(kernel) {
                new.insert(place);
            }
            let times = pairs.kept().map(|nth| time(pairs.test(nth, side), place, counted));
            let kernel = KernelTime { kernel: kernel.to_owned(), ns: mean(times) };
            bricks.entry(brick).or_default()[side].push(kernel);
        }
    }
    let is_new = |brick: Option<&str>, of: &KernelTime| new.contains(&(brick, of.kernel.as_str()));
    let mut found: Vec<KernelsOfBrick> = bricks
        .into_iter()
        .map(|(brick, [mut only_a, mut only_b])| {
            // What is only elsewhere on the other side is worth telling where another kernel took its place.
            if only_a.is_empty() || only_b.is_empty() {
                only_a.retain(|of| is_new(brick, of));
                only_b.retain(|of| is_new(brick, of));
            }
            for kernels in [&mut only_a, &mut only_b] {
                kernels.sort_by(|x, y| y.ns.total_cmp(&x.ns));
            }
            KernelsOfBrick { brick: brick.map(str::to_owned), only_a, only_b }
        })
        .filter(|of| !(of.only_a.is_empty() && of.only_b.is_empty()))
        .collect();
    found.sort_by(|x, y| y.ns().total_cmp(&x.ns()));
    found
}

impl KernelsOfBrick {
    /// What all of them take, on their sides.
    pub(crate) fn ns(&self) -> f64 {
        self.only_a.iter().chain(&self.only_b).map(|of| of.ns).sum()
    }
}

impl<'t> Ran<'t> {
    fn of(tests: &[&'t Test], counted: Counted) -> Self {
        let mut in_each: Option<BTreeSet<Place<'t>>> = None;
        let mut in_any = BTreeSet::new();
        for &test in tests {
            let mut of_run = BTreeSet::new();
            for (place, ns) in places(test, counted) {
                in_any.insert(place);
                if ns > 0.0 {
                    of_run.insert(place);
                }
            }
            in_each = Some(match in_each {
                Some(known) => &known & &of_run,
                None => of_run,
            });
        }
        let names = in_any.iter().map(|&(_, kernel)| kernel).collect();
        Self { in_each: in_each.unwrap_or_default(), in_any, names }
    }
}

fn places(test: &Test, counted: Counted) -> impl Iterator<Item = (Place<'_>, f64)> {
    test.inside.kernels.iter().map(move |of| {
        let brick = of.brick.and_then(|brick| test.bricks.get(brick));
        let place = (brick.map(|brick| brick.name.as_str()), of.kernel.as_str());
        (place, test.inside.mean(of.ns, counted))
    })
}

fn time(test: &Test, place: Place<'_>, counted: Counted) -> f64 {
    places(test, counted).filter(|(of, _)| *of == place).map(|(_, ns)| ns).sum()
}

#[cfg(test)]
mod tests {
    use super::super::{Brick, Inside, KernelSum, Process, Turn, versus};
    use super::*;

    const BRICKS: [&str; 3] = ["GateProjection", "DownProjection", "RmsNorm"];
    /// In every run of either side.
    const NORM: (Option<usize>, &str, u64) = (Some(2), "rms_norm", 50);

    /// A run with kernels in bricks that are named by their place.
    fn run(kernels: &[(Option<usize>, &str, u64)], place: u64) -> Process {
        let brick = |name: &str| Brick { name: name.to_owned(), ns: vec![500], ..Brick::default() };
        let kernel = |&(brick, kernel, ns): &(Option<usize>, &str, u64)| KernelSum {
            brick,
            kernel: kernel.to_owned(),
            // Both of two passes count.
            ns: [2 * ns; 2],
        };
        let kernels = kernels.iter().map(kernel).collect();
        let test = Test {
            name: "decode".to_owned(),
            wall_ns: vec![2_000 + place],
            unattributed_ns: vec![500 + place],
            bricks: BRICKS.map(brick).to_vec(),
            inside: Inside { of: [2; 2], cells: Vec::new(), kernels },
            ..Test::default()
        };
        let turns = vec![Turn { among: "here".to_owned(), place }];
        Process { turns, tests: vec![test], ..Process::default() }
    }

    type Kernels<'k> = &'k [(Option<usize>, &'k str, u64)];

    /// Three pairs; the last run of B may be another one.
    fn found(a: Kernels<'_>, b: Kernels<'_>, last: Kernels<'_>) -> Vec<KernelsOfBrick> {
        let of = |kernels: [Kernels<'_>; 3], first: u64| Side {
            name: String::new(),
            processes: (0..).zip(kernels).map(|(n, of)| run(of, 2 * n + first)).collect(),
        };
        let versus = versus(&of([a, a, a], 0), &of([b, b, last], 1), 1, 0.03).expect("compared");
        versus.moved[0].kernels.clone()
    }

    fn time_of(kernel: &str, ns: f64) -> KernelTime {
        KernelTime { kernel: kernel.to_owned(), ns }
    }

    #[test]
    fn a_kernel_that_took_the_place_of_another_is_told_with_it() {
        let a = [(Some(0), "mul_mat_q4_k", 400), (Some(1), "mul_mat_q4_k", 300), NORM];
        let b = [(Some(0), "mul_mat_q8_0", 200), (Some(1), "mul_mat_q4_k", 300), NORM];
        let expected = KernelsOfBrick {
            brick: Some("GateProjection".to_owned()),
            only_a: vec![time_of("mul_mat_q4_k", 400.0)],
            only_b: vec![time_of("mul_mat_q8_0", 200.0)],
        };
        assert_eq!(found(&a, &b, &b), [expected]);
        assert!(found(&a, &a, &a).is_empty());
    }

    #[test]
    fn two_kernels_that_became_one_are_told_together_and_those_that_take_most_first() {
        let a = [(Some(2), "mul", 20), (Some(2), "rms_norm", 50), (Some(0), "mul_mat", 10)];
        let b = [(Some(2), "rms_norm_mul", 55), (Some(0), "mul_mat on CUDA0", 5)];
        let found = found(&a, &b, &b);
        let bricks: Vec<_> = found.iter().map(|of| of.brick.as_deref()).collect();
        assert_eq!(bricks, [Some("RmsNorm"), Some("GateProjection")]);
        assert_eq!(found[0].only_a, [time_of("rms_norm", 50.0), time_of("mul", 20.0)]);
        assert_eq!(found[0].only_b, [time_of("rms_norm_mul", 55.0)]);
    }

    #[test]
    fn what_one_run_lacks_is_not_new() {
        let new = [(Some(0), "mul_mat_q8_0", 200), NORM];
        assert_eq!(found(&[NORM], &new, &new).len(), 1);
        assert!(found(&[NORM], &new, &[NORM]).is_empty());
        // In passes that don't count only.
        let unseen = [(Some(0), "mul_mat_q8_0", 0), NORM];
        assert!(found(&[NORM], &new, &unseen).is_empty());
    }

    #[test]
    fn what_the_other_side_has_elsewhere_is_not_new() {
        let (here, there) = ([(Some(0), "add", 10), NORM], [(Some(1), "add", 10), NORM]);
        assert!(found(&here, &there, &there).is_empty());
        // In passes whose spans weren't kept, so the brick isn't known.
        let somewhere = [(None, "add", 0), NORM];
        assert!(found(&somewhere, &here, &here).is_empty());
        // In no brick it is new, too.
        let bare = [(None, "add", 10), NORM];
        let found = found(&[NORM], &bare, &bare);
        assert!(found[0].brick.is_none() && found[0].only_a.is_empty(), "{found:?}");
        assert_eq!(found[0].only_b, [time_of("add", 10.0)]);
    }

    #[test]
    fn a_side_without_kernels_has_none_that_vanished() {
        assert!(found(&[NORM], &[], &[]).is_empty());
    }
}
