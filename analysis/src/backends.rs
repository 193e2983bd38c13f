//! The same work on several backends: a table of bricks by backend, from a profile for each backend and
//! round.
//!
//! Backends run in turns, one round of each, since clocks and neighbours change within a minute and would
//! otherwise look like a difference between backends. For each brick the round with the median time counts:
//! every figure is one that was measured, and a disturbed round is not among them.

use brickscope_profile::{Absent, Ceilings, Phase, Profile, Source};
use serde::Serialize;

use crate::roofline::{Bound, Note, Reach, Roofline, RooflineBrick};

/// Bricks by backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackendComparison {
    /// How many turns each backend had.
    pub rounds: u64,
    /// The backends, in the order given. The others are compared with the first.
    pub backends: Vec<BackendFacts>,
    /// Decode and prefill, if there were such passes.
    pub phases: Vec<BackendPhase>,
}

/// What is known about a backend itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackendFacts {
    /// Its name.
    pub backend: String,
    /// Its ceilings on this machine.
    pub ceilings: Option<Ceilings>,
    /// Why they are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceilings_absent: Option<Absent>,
}

/// A phase on all backends. Tokens and passes are of one round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackendPhase {
    /// The phase.
    pub phase: Phase,
    /// Tokens in a round.
    pub tokens: u64,
    /// Passes in a round.
    pub passes: u64,
    /// The passes of all rounds that other work on the machine disturbed, by backend.
    pub disturbed: Vec<u64>,
    /// The wall time of the passes.
    pub wall: BackendRow,
    /// The bricks, those first that take longest on the backend with the shortest wall time.
    pub bricks: Vec<BackendRow>,
    /// The wall time that is not attributed to any brick.
    pub unattributed: BackendRow,
}

/// One brick, or the wall time, on all backends.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackendRow {
    /// Its name.
    pub name: String,
    /// The backend that took the least time in each round.
    pub fastest: Option<String>,
    /// Why no backend did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fastest_absent: Option<Absent>,
    /// One for each backend, in their order.
    pub cells: Vec<BackendCell>,
}

/// A brick on one backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackendCell {
    /// The backend.
    pub backend: String,
    /// Its time in each round, summed over its spans; empty if it never ran.
    pub round_ns: Vec<u64>,
    /// The round with the median time (of an even number, the shorter of the two in the middle), counted
    /// from 0. The figures below are this round's.
    pub round: Option<usize>,
    /// Its time in that round.
    pub total_ns: Option<u64>,
    /// Its speed relative to the first backend; 2 is twice as fast.
    pub speed: Option<f64>,
    /// Stated bytes per second.
    pub bytes_per_second: Option<f64>,
    /// Stated FLOPs per second.
    pub flops_per_second: Option<f64>,
    /// The part of this backend's roof that is reached.
    pub of_roof: Option<f64>,
    /// The level of the memory whose bandwidth is the nearest limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// What would limit it at best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// How near to that limit it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// Why there is no roof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<Absent>,
    /// Caveats about these figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

/// The input of [`BackendComparison::new`]: a backend, and what was recorded in each of its rounds.
#[derive(Debug, Clone, Copy)]
pub struct BackendRounds<'a> {
    /// The backend's name.
    pub backend: &'a str,
    /// A profile of each round, with this backend's ceilings.
    pub rounds: &'a [Profile],
}

impl BackendComparison {
    /// Compares backends that ran the same work in the same number of rounds.
    ///
    /// # Errors
    ///
    /// If there is no backend or no round, or if their numbers of rounds, passes or tokens differ.
    pub fn new(sides: &[BackendRounds<'_>]) -> Result<Self, Absent> {
        let absent = |reason: String| Err(Absent { reason });
        let Some(first) = sides.first().and_then(|side| side.rounds.first()) else {
            return absent("no backend has a round".to_owned());
        };
        let rounds = sides[0].rounds.len();
        for side in sides {
            if side.rounds.len() != rounds {
                return absent(format!(
                    "{} had {rounds} rounds and {} had {}",
                    sides[0].backend,
                    side.backend,
                    side.rounds.len()
                ));
            }
            for (nth, profile) in side.rounds.iter().enumerate() {
                for phase in PHASES {
                    if work(profile, phase) != work(first, phase) {
                        return absent(format!(
                            "round {nth} of {} had other passes or tokens of {phase} than the first round",
                            side.backend
                        ));
                    }
                }
            }
        }
        let backends = sides.iter().map(|side| BackendFacts {
            backend: side.backend.to_owned(),
            ceilings: side.rounds[0].ceilings.clone(),
            ceilings_absent: side.rounds[0].ceilings_absent.clone(),
        });
        let phases = PHASES.into_iter().filter_map(|phase| BackendPhase::of(phase, sides));
        Ok(Self { rounds: rounds as u64, backends: backends.collect(), phases: phases.collect() })
    }
}

const PHASES: [Phase; 2] = [Phase::Decode, Phase::Prefill];

/// The passes and tokens of a phase.
fn work(profile: &Profile, phase: Phase) -> Option<(u64, u64)> {
    profile.phase(phase).map(|total| (total.passes, total.tokens))
}

impl BackendPhase {
    fn of(phase: Phase, sides: &[BackendRounds<'_>]) -> Option<Self> {
        let (passes, tokens) = work(&sides[0].rounds[0], phase)?;
        let row_of = |name: &str, ns: fn(&brickscope_profile::sums::PhaseTotal) -> u64| {
            let cell = |side: &BackendRounds<'_>| {
                let totals = side.rounds.iter().filter_map(|round| round.phase(phase));
                BackendCell::timed(side.backend, totals.map(ns).collect())
            };
            BackendRow::new(name, sides.iter().map(cell).collect())
        };
        let wall = row_of("wall", |total| total.wall_ns);
        let unattributed = row_of("unattributed", |total| total.unattributed_ns);

        let all: Vec<&Profile> = sides.iter().flat_map(|side| side.rounds).collect();
        let sides: Vec<Side<'_>> = sides.iter().map(|side| Side::of(side, phase, &all)).collect();
        // In the order of the fastest backend, its longest bricks first.
        let shortest = wall.cells.iter().enumerate().min_by_key(|(_, cell)| cell.total_ns);
        let fastest = shortest.map_or(0, |(index, _)| index);
        let mut keys: Vec<(&str, Source)> = Vec::new();
        for side in std::iter::once(&sides[fastest]).chain(&sides) {
            for brick in side.rounds.iter().flat_map(|round| &round.bricks) {
                let key = (brick.name, brick.source);
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        let mut bricks: Vec<BackendRow> = keys
            .into_iter()
            .map(|key| BackendRow::new(key.0, sides.iter().map(|side| side.cell(key)).collect()))
            .collect();
        bricks.sort_by_key(|row| std::cmp::Reverse(row.cells[fastest].total_ns));
        let disturbed = sides.iter().map(|side| side.disturbed).collect();
        Some(Self { phase, tokens, passes, disturbed, wall, bricks, unattributed })
    }
}

/// A backend's rounds of one phase.
struct Side<'a> {
    backend: &'a str,
    disturbed: u64,
    rounds: Vec<Round<'a>>,
}

struct Round<'a> {
    bricks: Vec<Timed<'a>>,
    roofline: Result<Roofline, Absent>,
}

/// A brick in a round.
struct Timed<'a> {
    name: &'a str,
    source: Source,
    ns: u64,
    flops: u64,
    bytes: u64,
}

impl<'a> Side<'a> {
    /// `all` rounds of all backends ran on one memory.
    fn of(side: &BackendRounds<'a>, phase: Phase, all: &[&Profile]) -> Self {
        let disturbed = side.rounds.iter().filter_map(|round| Some(round.phase(phase)?.disturbed));
        let rounds = side.rounds.iter().map(|round| Round {
            bricks: round
                .bricks(Some(phase))
                .into_iter()
                .map(|total| Timed {
                    name: &total.stats.name,
                    source: total.source,
                    ns: total.stats.total_ns,
                    flops: total.stats.total_flops,
                    bytes: total.stats.total_bytes,
                })
                .collect(),
            // Of all passes, as the times beside it.
            roofline: Roofline::of_sums_beside(round, phase, all),
        });
        let disturbed = disturbed.fold(0, u64::saturating_add);
        Self { backend: side.backend, disturbed, rounds: rounds.collect() }
    }

    fn cell(&self, (name, source): (&str, Source)) -> BackendCell {
        let mut times = Vec::new();
        let mut timed = Vec::new();
        for round in &self.rounds {
            let found = round.bricks.iter().position(|b| b.name == name && b.source == source);
            if let Some(index) = found {
                times.push(round.bricks[index].ns);
                timed.push((round, index));
            }
        }
        let mut cell = BackendCell::timed(self.backend, times);
        let Some((round, index)) = cell.round.map(|round| timed[round]) else {
            cell.absent = Some(Absent { reason: "it did not run".to_owned() });
            return cell;
        };
        // If it didn't run in every round, no single round can stand for it.
        if timed.len() < self.rounds.len() {
            cell.round = None;
        }
        let brick = &round.bricks[index];
        let rate = |amount: u64| {
            (amount > 0 && brick.ns > 0).then(|| amount as f64 * 1e9 / brick.ns as f64)
        };
        cell.bytes_per_second = rate(brick.bytes);
        cell.flops_per_second = rate(brick.flops);
        match &round.roofline {
            // It has the same bricks in the same order.
            Ok(roofline) => cell.stand(&roofline.bricks[index]),
            Err(absent) => cell.absent = Some(absent.clone()),
        }
        cell
    }
}

impl BackendRow {
    fn new(name: &str, mut cells: Vec<BackendCell>) -> Self {
        let first = cells.first().and_then(|cell| cell.total_ns);
        for cell in &mut cells {
            cell.speed = match (first, cell.total_ns) {
                (Some(first), Some(own)) if first > 0 && own > 0 => Some(first as f64 / own as f64),
                _ => None,
            };
        }
        let (fastest, fastest_absent) = match fastest(&cells) {
            Ok(backend) => (Some(backend), None),
            Err(reason) => (None, Some(Absent { reason: reason.to_owned() })),
        };
        Self { name: name.to_owned(), fastest, fastest_absent, cells }
    }
}

/// The backend that was faster than the others in each round, or why there is none.
fn fastest(cells: &[BackendCell]) -> Result<String, &'static str> {
    let rounds = cells.iter().map(|cell| cell.round_ns.len());
    let (fewest, most) = (rounds.clone().min().unwrap_or(0), rounds.max().unwrap_or(0));
    if cells.len() < 2 {
        return Err("there is only one backend");
    }
    if fewest == 0 || fewest < most {
        return Err("it did not run on every backend in every round");
    }
    let wins = |cell: &&BackendCell| {
        (0..fewest).all(|round| {
            let others = cells.iter().filter(|other| other.backend != cell.backend);
            others.map(|other| other.round_ns[round]).all(|other| cell.round_ns[round] < other)
        })
    };
    let winner = cells.iter().find(wins).map(|cell| cell.backend.clone());
    winner.ok_or("no backend was faster than the others in each round")
}

impl BackendCell {
    /// What would limit it at best, as a word: `compute`, or the level of the memory.
    #[must_use]
    pub fn limit(&self) -> Option<&str> {
        match self.bound? {
            Bound::Compute => Some(Bound::Compute.name()),
            Bound::Memory | Bound::Cache => self.level.as_deref(),
        }
    }

    fn timed(backend: &str, round_ns: Vec<u64>) -> Self {
        let mut order: Vec<usize> = (0..round_ns.len()).collect();
        order.sort_by_key(|&round| round_ns[round]);
        let round = order.get(order.len().saturating_sub(1) / 2).copied();
        Self {
            backend: backend.to_owned(),
            total_ns: round.map(|round| round_ns[round]),
            round,
            round_ns,
            speed: None,
            bytes_per_second: None,
            flops_per_second: None,
            of_roof: None,
            level: None,
            bound: None,
            reach: None,
            absent: None,
            notes: Vec::new(),
        }
    }

    fn stand(&mut self, brick: &RooflineBrick) {
        if let Some(place) = &brick.place {
            self.of_roof = Some(place.of_roof);
            self.level = Some(place.level.clone());
            self.bound = Some(place.bound);
            self.reach = Some(place.reach);
        }
        self.absent = brick.absent.clone();
        self.notes = brick.notes.clone();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use brickscope::{BrickProfiler, MockClock};
    use brickscope_profile::{BrickId, Work};

    use super::*;

    /// A round with a prefill pass of 4 tokens and two decode passes, whose bricks take so many
    /// microseconds each.
    pub(crate) fn round(projection_us: u64, score_us: u64, read: f64, peak: f64) -> Profile {
        let times = [projection_us, score_us];
        let passes = [(Phase::Prefill, 4), (Phase::Decode, 1), (Phase::Decode, 1)];
        of_passes(&passes.map(|(phase, tokens)| (phase, tokens, times)), read, peak)
    }

    /// A round with these passes: phase, tokens, and the microseconds of the two bricks.
    fn of_passes(passes: &[(Phase, u64, [u64; 2])], read: f64, peak: f64) -> Profile {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock()).with_log_capacity(1000);
        profiler.enable();
        let mut position = 0;
        for &(phase, tokens, [projection_us, score_us]) in passes {
            let pass = profiler.begin_pass(phase);
            for (brick, us, bytes) in [
                (BrickId::QkvProjection, projection_us, 1_000_000),
                (BrickId::AttentionScore, score_us, 20_000),
            ] {
                let timer = profiler.start_brick(brick);
                hand.advance(us * 1_000);
                let work =
                    Work { elements: 1, flops: 2 * bytes * tokens, bytes, ..Work::default() };
                profiler.stop_brick_with(timer, work);
            }
            let timer = profiler.start_brick(BrickId::Sampling);
            hand.advance(500);
            profiler.stop_brick(timer, 1);
            hand.advance(700);
            profiler.end_pass(pass, tokens, position);
            position += tokens;
        }
        let mut profile = profiler.profile();
        profile.ceilings = Some(Ceilings {
            read_bytes_per_second: read,
            flops_per_second: peak,
            basis: "measured before the run".to_owned(),
            ..Ceilings::default()
        });
        profile
    }

    #[test]
    fn a_stall_gives_no_brick_the_roof_of_another() {
        let mut passes = vec![(Phase::Prefill, 4, [90, 7])];
        passes.extend([(Phase::Decode, 1, [90, 7]); 20]);
        // By its sum this brick is then the longest, and by what is typical it isn't.
        passes[9].2 = [90, 20_000];
        let rounds = [of_passes(&passes, 20e9, 10e9)];
        let sides = [BackendRounds { backend: "scalar", rounds: &rounds }];
        let found = BackendComparison::new(&sides).expect("a round");
        let roofline = Roofline::of_sums(&rounds[0], Phase::Decode).expect("ceilings");
        assert_ne!(roofline, Roofline::of(&rounds[0], Phase::Decode).expect("ceilings"));
        for row in &found.phases[0].bricks {
            let of = roofline.bricks.iter().find(|of| of.name == row.name).expect("the brick");
            let of_roof = of.place.as_ref().map(|place| place.of_roof);
            assert_eq!(row.cells[0].of_roof, of_roof, "{}", row.name);
        }
    }

    #[test]
    fn what_one_backend_shows_of_memory_raises_the_roof_of_all() {
        // 1 MB in 20 µs are 50 GB/s, more than was measured and more than a cache holds of it.
        let [mut slow, mut fast] = [round(100, 7, 40e9, 1e15), round(20, 7, 40e9, 1e15)];
        for profile in [&mut slow, &mut fast] {
            profile.ceilings.as_mut().expect("ceilings").caches.clear();
        }
        let of_roof = |rounds: &[&Profile]| {
            let rounds: Vec<[Profile; 1]> = rounds.iter().map(|&of| [of.clone()]).collect();
            let sides: Vec<BackendRounds<'_>> =
                rounds.iter().map(|rounds| BackendRounds { backend: "x", rounds }).collect();
            let found = BackendComparison::new(&sides).expect("the same work");
            found.phases[0].bricks[0].cells[0].of_roof.expect("a place")
        };
        let (alone, beside) = (of_roof(&[&slow]), of_roof(&[&slow, &fast]));
        assert!((alone - 0.25).abs() < 1e-9 && (beside - 0.20).abs() < 1e-9, "{alone} {beside}");
    }

    #[test]
    fn a_brick_has_the_figures_of_its_middle_round() {
        let scalar =
            [round(90, 7, 20e9, 10e9), round(100, 9, 20e9, 10e9), round(80, 8, 20e9, 10e9)];
        let avx2 = [round(40, 9, 40e9, 80e9), round(45, 6, 40e9, 80e9), round(900, 7, 40e9, 80e9)];
        let sides = [("scalar", &scalar[..]), ("avx2", &avx2[..])]
            .map(|(backend, rounds)| BackendRounds { backend, rounds });
        let found = BackendComparison::new(&sides).expect("the same work");
        assert_eq!(found.rounds, 3);
        let decode = &found.phases[0];
        assert_eq!((decode.phase, decode.tokens, decode.passes), (Phase::Decode, 2, 2));
        assert_eq!(found.phases[1].phase, Phase::Prefill);

        let row = &decode.bricks[0];
        assert_eq!(row.name, "QkvProjection");
        assert_eq!(row.cells[0].round_ns, [180_000, 200_000, 160_000]);
        assert_eq!((row.cells[0].round, row.cells[0].total_ns), (Some(0), Some(180_000)));
        assert_eq!((row.cells[1].round, row.cells[1].total_ns), (Some(1), Some(90_000)));
        assert_eq!(row.cells[1].speed, Some(2.0));
        // 2 MB in 90 µs; the roof is that of the backend.
        assert_eq!(row.cells[1].bytes_per_second, Some(2e6 * 1e9 / 90_000.0));
        let of_roof = row.cells[1].of_roof.expect("both are known");
        assert!((of_roof - 2e6 / 40e9 / 90e-6).abs() < 1e-9, "{of_roof}");
        // In its third round it was slower.
        assert_eq!(row.fastest, None);
        assert_eq!(
            row.fastest_absent.as_ref().expect("a reason").reason,
            "no backend was faster than the others in each round"
        );
        assert_eq!(decode.bricks[1].name, "AttentionScore");
        let sampling = &decode.bricks[2];
        assert_eq!((sampling.cells[0].bytes_per_second, sampling.cells[0].of_roof), (None, None));
        assert_eq!(
            sampling.cells[0].absent.as_ref().expect("a reason").reason,
            "its work was not stated"
        );
        assert_eq!(decode.unattributed.cells[0].total_ns, Some(1_400));
    }

    #[test]
    fn who_is_fastest_in_each_round_is_the_fastest() {
        let sides = [
            [round(90, 7, 2e9, 1e9), round(80, 8, 2e9, 1e9)],
            [round(40, 7, 4e9, 8e9), round(79, 9, 4e9, 8e9)],
        ];
        let sides = [("scalar", &sides[0]), ("avx2", &sides[1])]
            .map(|(backend, rounds)| BackendRounds { backend, rounds: rounds.as_slice() });
        let found = BackendComparison::new(&sides).expect("the same work");
        for phase in &found.phases {
            let fastest = |row: &BackendRow| row.fastest.clone();
            assert_eq!(fastest(&phase.bricks[0]).as_deref(), Some("avx2"));
            assert_eq!(fastest(&phase.bricks[1]), None, "as fast is not faster");
            // Of two rounds the shorter one.
            assert_eq!(phase.bricks[0].cells[0].round, Some(1));
        }
        let alone = BackendComparison::new(&sides[..1]).expect("a backend");
        assert_eq!(alone.phases[0].bricks[0].fastest, None);
    }

    #[test]
    fn other_work_is_not_compared() {
        let one = [round(90, 7, 2e9, 1e9)];
        let two = [round(90, 7, 2e9, 1e9), round(90, 7, 2e9, 1e9)];
        let mut less = round(90, 7, 2e9, 1e9);
        less.phases[1].tokens -= 1;
        let less = [less];
        let reason = |a: &[Profile], b: &[Profile]| {
            let sides = [("scalar", a), ("avx2", b)]
                .map(|(backend, rounds)| BackendRounds { backend, rounds });
            BackendComparison::new(&sides).expect_err("they can't be compared").reason
        };
        assert_eq!(reason(&one, &two), "scalar had 1 rounds and avx2 had 2");
        assert_eq!(
            reason(&one, &less),
            "round 0 of avx2 had other passes or tokens of decode than the first round"
        );
        assert_eq!(reason(&[], &[]), "no backend has a round");
        assert!(BackendComparison::new(&[]).is_err());
    }

    #[test]
    fn without_ceilings_times_and_rates_stay() {
        let mut rounds = [round(90, 7, 2e9, 1e9)];
        rounds[0].ceilings = None;
        rounds[0].ceilings_absent = Some(Absent { reason: "no memory".to_owned() });
        let side = BackendRounds { backend: "scalar", rounds: &rounds };
        let found = BackendComparison::new(&[side]).expect("a backend");
        let cell = &found.phases[0].bricks[0].cells[0];
        assert_eq!((cell.total_ns, cell.of_roof), (Some(180_000), None));
        assert!(cell.bytes_per_second.is_some());
        assert_eq!(cell.absent.as_ref().expect("a reason").reason, "no memory");
    }
}
