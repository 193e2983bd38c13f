//! Two sides that run in turns, compared after each few pairs: which is slower, and what of a pass moved.

use brickscope_profile::Absent;
use serde::Serialize;

use super::comparison::compare_beside;
use super::counted::Counted;
use super::middle::{in_brick, of_counted, of_tokens};
use super::moved_kernels::{KernelsOfBrick, kernels};
use super::moved_layers::MovedLayers;
use super::pairs::{MovedPart, Pairs, most_first, wall};
use super::{
    CompareError, Comparison, LeftOutTest, Options, Outcome, Pairing, Side, TestChange,
    UNATTRIBUTED, Verdict,
};

/// The name of what streams of a device do at once, which is in the time of several bricks.
const OVERLAP: &str = "(at once)";

/// Two sides compared, with what moved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Versus {
    /// The verdicts.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Which passes of each process count.
    pub counted: Counted,
    /// What moved, of each test of the comparison.
    pub moved: Vec<Moved>,
}

/// What a pass of one test takes on either side, and what of it moved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Moved {
    /// The name of the test.
    pub test: String,
    /// Nanoseconds of a pass of A: the mean of its processes.
    pub a_ns: f64,
    /// The same of B.
    pub b_ns: f64,
    /// What a pass typically takes on either side: the geometric mean of its processes. The ratio of the two is the change
    /// of the whole in the comparison, on which a few long runs don't weigh as they do on `a_ns` and `b_ns`.
    pub typical_ns: [f64; 2],
    /// The 95 % interval of `b_ns − a_ns`, by Student's t of the pairs' differences, and from 20 pairs on of
    /// these winsorised; `None` of fewer than five pairs.
    pub interval_ns: Option<[f64; 2]>,
    /// The bricks, and the time in no brick: those that moved most first. They add up to the whole.
    pub parts: Vec<MovedPart>,
    /// The same by layer, where both sides have layers: another sum of the same whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<MovedLayers>,
    /// Why there are none, if one side has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers_absent: Option<Absent>,
    /// Kernels that only one side has, by brick: those that take most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelsOfBrick>,
}

impl Moved {
    /// B − A, in nanoseconds.
    #[must_use]
    pub fn moved_ns(&self) -> f64 {
        self.b_ns - self.a_ns
    }

    /// Whether the plain means, or their ratio, are other ones than the [typical times](Self::typical_ns) and theirs, by more
    /// than a hundredth: it is told, where both are on a screen.
    #[must_use]
    pub fn means_differ(&self) -> bool {
        let off = |plain: f64, typical: f64| match plain > 0.0 && typical > 0.0 {
            true => (plain / typical).ln(),
            // Without pairs there is neither.
            false => 0.0,
        };
        let [a, b] = [off(self.a_ns, self.typical_ns[0]), off(self.b_ns, self.typical_ns[1])];
        [a, b, b - a].iter().any(|off| off.abs() > 0.01)
    }

    /// Which part of that so much is; 0 if nothing moved.
    #[must_use]
    pub fn part_of_it(&self, ns: f64) -> f64 {
        if self.moved_ns() == 0.0 { 0.0 } else { ns / self.moved_ns() }
    }
}

/// Compares sides whose processes ran in turns, the first of A beside the first of B and so on, at look number `look`.
/// Conditions that differ are listed, and no reason to refuse: they are what is asked about.
///
/// # Errors
///
/// If a side is empty, they have no test in common, or two files hold the same process: see [`CompareError`].
pub fn versus(a: &Side, b: &Side, look: u32, threshold: f64) -> Result<Versus, CompareError> {
    let counted = Counted::of(a.processes.iter().chain(&b.processes));
    let middle = [a, b].map(|side| of_counted(side, counted, &of_tokens([a, b])));
    let usual = Options::default();
    let look = f64::from(look.max(1));
    let level = usual.level / (look * (look + 1.0));
    let options = Options { threshold, is_forced: true, models_may_differ: true, level, ..usual };
    let comparison = compare_beside(&middle[0], &middle[1], [a, b], &options)?;
    let pairs: Vec<(usize, usize)> = match &comparison.pairing {
        Pairing::Paired { pairs } => pairs.clone(),
        Pairing::Unpaired { .. } => {
            (0..a.processes.len().min(b.processes.len())).map(|nth| (nth, nth)).collect()
        }
    };
    let of = |test: &TestChange| {
        let is_moved = matches!(test.whole.verdict, Verdict::Slower | Verdict::Faster);
        let mut moved = moved(&test.name, &middle, &pairs, counted, is_moved);
        // Sides that aren't paired are compared by the mean of each.
        if let (Pairing::Unpaired { .. }, Some(a), Some(b)) =
            (&comparison.pairing, test.whole.a_ns, test.whole.b_ns)
        {
            moved.typical_ns = [a, b];
        }
        moved
    };
    let moved = comparison.tests.iter().map(of).collect();
    Ok(Versus { comparison, counted, moved })
}

impl Versus {
    /// What came of the tests as a whole. A brick that is slower is no loss where the pass isn't: what it does may be another
    /// one's on the other side.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let has = |verdict| self.comparison.tests.iter().any(|of| of.whole.verdict == verdict);
        match () {
            () if has(Verdict::Slower) => Outcome::Slower,
            () if has(Verdict::Inconclusive) => Outcome::Inconclusive,
            () if self.comparison.left_out.iter().any(LeftOutTest::leaves_open) => {
                Outcome::Inconclusive
            }
            () => Outcome::Pass,
        }
    }

    /// Whether every test of the comparison has a verdict.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.comparison.tests.iter().all(|test| test.whole.verdict != Verdict::Inconclusive)
    }

    /// The tests with what of them moved.
    pub fn tests(&self) -> impl Iterator<Item = (&TestChange, &Moved)> {
        self.comparison.tests.iter().zip(&self.moved)
    }
}

/// `is_moved` says whether the test is slower or faster.
fn moved(
    name: &str,
    sides: &[Side; 2],
    pairs: &[(usize, usize)],
    counted: Counted,
    is_moved: bool,
) -> Moved {
    let mut pairs = Pairs::of(name, sides, pairs);
    let mut names: Vec<&str> = Vec::new();
    for brick in pairs.tests().flat_map(|test| &test.bricks) {
        if !names.contains(&&*brick.name) {
            names.push(&brick.name);
        }
    }
    if pairs.tests().all(|test| !test.unattributed_ns.is_empty()) {
        names.push(UNATTRIBUTED);
    }
    let whole = pairs.part(name, &|nth, side| Some(wall(pairs.test(nth, side))));
    if !is_moved {
        pairs.share_among(names.len());
    }
    let part = |name: &str| pairs.part(name, &|nth, side| in_brick(pairs.test(nth, side), name));
    let mut parts: Vec<MovedPart> = names.into_iter().map(part).collect();
    let [a_ns, b_ns] = [whole.a_ns, whole.b_ns].map(|ns| ns.unwrap_or(0.0));
    let sum = |of: fn(&MovedPart) -> Option<f64>| parts.iter().filter_map(of).sum::<f64>();
    let more = [a_ns - sum(|part| part.a_ns), b_ns - sum(|part| part.b_ns)];
    // Each mean is rounded to a nanosecond.
    let rounding = parts.len() as f64;
    if !parts.is_empty() && more.iter().any(|ns| ns.abs() > rounding) {
        let [a, b] = more;
        parts.push(MovedPart {
            name: OVERLAP.to_owned(),
            a_ns: Some(a),
            b_ns: Some(b),
            moved_ns: b - a,
            interval_ns: None,
        });
    }
    most_first(&mut parts);
    let in_layers = MovedLayers::of(&mut pairs, counted, b_ns - a_ns, is_moved);
    let (layers, layers_absent) = match in_layers {
        Ok(layers) => (Some(layers), None),
        Err(absent) => (None, absent),
    };
    Moved {
        test: name.to_owned(),
        a_ns,
        b_ns,
        typical_ns: [0, 1].map(|side| pairs.typical(side)),
        interval_ns: whole.interval_ns,
        parts,
        layers,
        layers_absent,
        kernels: kernels(name, sides, &pairs, counted),
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::stats::SplitMix64;

    use super::super::{Brick, Process, Sample, Test, Turn, look_after, pass_ns};
    use super::*;

    /// A process with ten passes of two bricks, of which the second takes `slow` times as long; each process takes up to 2 %
    /// more as a whole, each pass up to 4 %, and the last pass ten times as long.
    fn process(place: u64, slow: f64, random: &mut SplitMix64) -> Process {
        let mut part = |most: f64| 1.0 + most * (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        let own = part(0.02);
        let mut test = Test { name: "decode".to_owned(), ..Test::default() };
        test.bricks = ["Attention", "Feed"]
            .map(|name| Brick { name: name.to_owned(), ..Brick::default() })
            .to_vec();
        for pass in 0..10 {
            let pass = own * part(0.04) * if pass == 9 { 10.0 } else { 1.0 };
            let times = [400_000.0, 500_000.0 * slow, 100_000.0].map(|ns| (ns * pass) as u64);
            test.bricks[0].ns.push(times[0]);
            test.bricks[1].ns.push(times[1]);
            test.unattributed_ns.push(times[2]);
            test.wall_ns.push(times.iter().sum());
        }
        Process {
            turns: vec![Turn { among: "here".to_owned(), place }],
            tests: vec![test],
            ..Process::default()
        }
    }

    fn sides(pairs: u64, slow: f64, seed: u64) -> [Side; 2] {
        let mut random = SplitMix64(seed);
        let mut sides = [Side::default(), Side::default()];
        for pair in 0..pairs {
            let a_first = pair % 2;
            sides[0].processes.push(process(2 * pair + a_first, 1.0, &mut random));
            sides[1].processes.push(process(2 * pair + 1 - a_first, slow, &mut random));
        }
        sides
    }

    #[test]
    fn parts_add_up_to_what_the_pass_moved_by() {
        let [a, b] = sides(10, 1.2, 1);
        let versus = versus(&a, &b, 3, 0.03).expect("compared");
        assert_eq!(versus.comparison.tests[0].whole.verdict, Verdict::Slower);
        assert!(versus.is_decided());
        let moved = &versus.moved[0];
        let sum: f64 = moved.parts.iter().map(|part| part.moved_ns).sum();
        assert!((sum - moved.moved_ns()).abs() <= 3.0, "{moved:?}");
        assert_eq!(moved.parts[0].name, "Feed");
        // A fifth of half a pass, which the longest pass doesn't move.
        assert!((moved.parts[0].moved_ns - 103_000.0).abs() < 5_000.0, "{moved:?}");
        let [low, high] = moved.interval_ns.expect("of ten pairs");
        assert!(low < moved.moved_ns() && moved.moved_ns() < high);
    }

    #[test]
    fn the_middle_of_a_process_is_that_of_the_passes_that_versus_takes() {
        let [a, b] = sides(1, 1.0, 3);
        let versus = versus(&a, &b, 1, 0.03).expect("compared");
        let (test, moved) = (&a.processes[0].tests[0], &versus.moved[0]);
        assert_eq!(pass_ns(test, None, Counted::MiddleHalf), Some(moved.a_ns));
        for part in &moved.parts {
            assert_eq!(
                pass_ns(test, Some(&part.name), Counted::MiddleHalf),
                part.a_ns,
                "{}",
                part.name
            );
        }
        assert_eq!(pass_ns(test, Some("Fused"), Counted::MiddleHalf), None);
        assert_eq!(pass_ns(&Test::default(), None, Counted::MiddleHalf), None);
    }

    #[test]
    fn where_most_passes_are_disturbed_the_fastest_count() {
        let [mut a, b] = sides(10, 1.2, 3);
        let all = || a.processes.iter().chain(&b.processes);
        assert_eq!(Counted::of(all()), Counted::MiddleHalf);
        // A program beside them takes from 60 % of the passes of A up to as long as they take.
        for process in &mut a.processes {
            process.disturbed = 18;
            let test = &mut process.tests[0];
            for pass in 3..9 {
                let more = 150_000 * pass as u64;
                test.wall_ns[pass] += more;
                test.unattributed_ns[pass] += more;
            }
        }
        let found = versus(&a, &b, 3, 0.03).expect("compared");
        assert_eq!(found.counted, Counted::FastestQuarter);
        let whole = &found.comparison.tests[0].whole;
        assert!(whole.change.is_some_and(|change| (change - 0.1).abs() < 0.03), "{whole:?}");
        let fastest: Vec<usize> = Counted::FastestQuarter.range(10).collect();
        assert_eq!((fastest, Counted::FastestQuarter.range(1)), (vec![0, 1, 2], 0..1));
    }

    #[test]
    fn a_brick_that_one_side_lacks_took_nothing_there() {
        let [a, mut b] = sides(5, 1.0, 2);
        for process in &mut b.processes {
            process.tests[0].bricks[1].name = "Fused".to_owned();
        }
        let versus = versus(&a, &b, 1, 0.03).expect("compared");
        let moved = &versus.moved[0];
        let of = |name: &str| moved.parts.iter().find(|part| part.name == name).expect("there");
        assert!(of("Feed").b_ns.is_none() && of("Feed").moved_ns < -490_000.0);
        assert!(of("Fused").a_ns.is_none() && of("Fused").moved_ns > 490_000.0);
        let sum: f64 = moved.parts.iter().map(|part| part.moved_ns).sum();
        assert!((sum - moved.moved_ns()).abs() <= 4.0, "{moved:?}");
    }

    #[test]
    fn an_interval_of_many_pairs_holds_the_truth_as_often_as_one_of_few() {
        for pairs in [7, 26] {
            let mut held = 0;
            for seed in 0..200 {
                let [a, b] = sides(pairs, 1.1, 1000 + seed);
                let found = versus(&a, &b, 1, 0.03).expect("compared");
                // Each pass takes 2 % more in the mean than it would, as does each process.
                let truth = 50_000.0 * 1.02 * 1.01;
                let feed = &found.moved[0].parts[0];
                let [low, high] = feed.interval_ns.expect("of several pairs");
                held += usize::from(feed.name == "Feed" && low <= truth && truth <= high);
            }
            assert!((180..=198).contains(&held), "{held} of 200 of {pairs} pairs");
        }
    }

    /// Equal sides of one pass a process, of which in each second process another program takes a hundred times the pass from
    /// one of eight bricks: the whole is too noisy to tell, and so is each brick.
    fn interrupted(pairs: u64, random: &mut SplitMix64) -> [Side; 2] {
        let mut process = |place: u64| {
            // So long that no two processes have the same times, as copies have.
            let mut ns: Vec<u64> =
                (0..8).map(|_| 1_000_000_000 + random.bits() % 20_000_000).collect();
            if random.bits() & 1 == 0 {
                ns[(random.bits() % 8) as usize] += 400_000_000_000 + random.bits() % (1 << 38);
            }
            let test = Test {
                name: "prefill".to_owned(),
                wall_ns: vec![ns.iter().sum()],
                unattributed_ns: vec![0],
                bricks: (0..8)
                    .map(|nth| Brick {
                        name: format!("Brick{nth}"),
                        ns: vec![ns[nth]],
                        ..Brick::default()
                    })
                    .collect(),
                ..Test::default()
            };
            Process {
                turns: vec![Turn { among: "here".to_owned(), place }],
                tests: vec![test],
                ..Process::default()
            }
        };
        let mut sides = [Side::default(), Side::default()];
        for pair in 0..pairs {
            let a_first = pair % 2;
            sides[0].processes.push(process(2 * pair + a_first));
            sides[1].processes.push(process(2 * pair + 1 - a_first));
        }
        sides
    }

    #[test]
    fn a_brick_of_equal_sides_that_are_interrupted_does_not_seem_to_move() {
        for pairs in [10, 40] {
            let (mut random, mut missed) = (SplitMix64(5), 0);
            for _ in 0..100 {
                let [a, b] = interrupted(pairs, &mut random);
                let found = versus(&a, &b, 1, 0.03).expect("compared");
                let has_moved = |of: &MovedPart| {
                    of.interval_ns.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
                };
                missed += usize::from(found.moved[0].parts.iter().any(has_moved));
            }
            // 5 of 100, and what luck adds.
            assert!(missed <= 12, "{missed} of 100 of {pairs} pairs");
        }
    }

    #[test]
    fn few_pairs_have_no_interval() {
        let [a, b] = sides(4, 1.2, 6);
        let found = versus(&a, &b, 1, 0.03).expect("compared");
        assert_eq!(found.moved[0].interval_ns, None);
        assert!(found.moved[0].parts.iter().all(|part| part.interval_ns.is_none()));
    }

    #[test]
    fn the_typical_times_have_the_ratio_of_the_verdict() {
        for pairs in [1, 7, 26] {
            let [mut a, b] = sides(pairs, 1.1, 7);
            // One run that took thirty times as long.
            for ns in &mut a.processes[0].tests[0].wall_ns {
                *ns *= 30;
            }
            let found = versus(&a, &b, 1, 0.03).expect("compared");
            let (whole, [a_ns, b_ns]) =
                (&found.comparison.tests[0].whole, found.moved[0].typical_ns);
            let change = whole.change.or_else(|| Some(whole.b_ns? / whole.a_ns? - 1.0));
            let off = change.expect("both took time") - (b_ns / a_ns - 1.0);
            assert!(off.abs() < 1e-9, "{pairs} pairs: {whole:?}, {a_ns} {b_ns}");
        }
    }

    #[test]
    fn plain_means_that_are_longer_on_both_sides_are_told_though_their_ratio_is_not() {
        let [mut a, mut b] = sides(10, 1.0, 4);
        let is_told =
            |a: &Side, b: &Side| versus(a, b, 1, 0.03).expect("compared").moved[0].means_differ();
        assert!(!is_told(&a, &b));
        for process in [&mut a.processes[0], &mut b.processes[0]] {
            process.tests[0].wall_ns.iter_mut().for_each(|ns| *ns *= 30);
        }
        assert!(is_told(&a, &b));
    }

    #[test]
    fn passes_of_other_numbers_of_tokens_are_compared_by_the_token() {
        let [mut a, mut b] = sides(10, 1.0, 4);
        for (side, tokens, times) in [(&mut a, 256, 1), (&mut b, 512, 2)] {
            for test in side.processes.iter_mut().flat_map(|process| &mut process.tests) {
                test.tokens = tokens;
                let of_bricks = test.bricks.iter_mut().map(|brick| &mut brick.ns);
                let all = of_bricks.chain([&mut test.wall_ns, &mut test.unattributed_ns]);
                all.flatten().for_each(|ns| *ns *= times * 1000);
            }
        }
        let found = versus(&a, &b, 3, 0.03).expect("compared");
        let test = &found.comparison.tests[0];
        assert_eq!((test.sample, test.tokens), (Sample::Token, 1));
        assert_eq!(test.whole.verdict, Verdict::Unchanged, "{:?}", test.whole);
        assert!((found.moved[0].a_ns - 1_030_000_000.0 / 256.0).abs() < 40_000.0);
    }

    #[test]
    fn a_brick_that_is_slower_is_no_loss_where_the_pass_is_faster() {
        let [a, mut b] = sides(10, 0.7, 5);
        for test in b.processes.iter_mut().flat_map(|process| &mut process.tests) {
            // What the other brick did is partly done here.
            for (pass, ns) in test.bricks[0].ns.iter_mut().enumerate() {
                let more = *ns / 10;
                *ns += more;
                test.wall_ns[pass] += more;
            }
        }
        let found = versus(&a, &b, 3, 0.03).expect("compared");
        assert_eq!(found.comparison.outcome(), Outcome::Slower);
        assert_eq!(found.outcome(), Outcome::Pass);
    }

    #[test]
    fn who_looks_often_and_stops_is_seldom_wrong() {
        let mut alarms = 0;
        for seed in 0..300 {
            let [mut a, mut b] = sides(35, 1.0, 100 + seed);
            let all = (a.processes.clone(), b.processes.clone());
            let verdict = (1..=35).find_map(|pairs| {
                let look = look_after(pairs)?;
                a.processes = all.0[..pairs].to_vec();
                b.processes = all.1[..pairs].to_vec();
                let versus = versus(&a, &b, look, 0.002).expect("compared");
                let verdict = versus.comparison.tests[0].whole.verdict;
                (verdict != Verdict::Inconclusive).then_some(verdict)
            });
            alarms += usize::from(matches!(verdict, Some(Verdict::Slower | Verdict::Faster)));
        }
        // Half of one per cent of 300, and what luck adds.
        assert!(alarms <= 5, "{alarms} of 300");
    }
}
