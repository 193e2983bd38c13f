//! Absolute limits: whether a set of processes, or a run, is as fast as it is asked to be.

use std::fmt;

use brickscope_profile::stats::{median, student};
use brickscope_profile::text::printable;
use brickscope_profile::{Histogram, Phase, Profile};
use serde::Serialize;

use super::{LEAST_PROCESSES, Outcome, Process, Test};
use crate::rate::{LEAST_FOR_INTERVAL, Rate};
use crate::receipt::{Receipt, v1};

/// What the decode test at the least depth has to reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// At least so many tokens per second: of each process the median of its repetitions.
    Throughput(f64),
    /// At most so many milliseconds for the 99th percentile of a token: of each process that of all its tokens.
    P99(f64),
}

/// What a set of processes reached of a [`Limit`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Held {
    /// The limit.
    pub limit: Limit,
    /// The test's name; empty if there is none.
    pub test: String,
    /// The mean of the processes; `None` if one of them lacks its figure.
    pub figure: Option<f64>,
    /// The 95 % interval of that, by Student's t over the processes: repetitions and tokens of one process resemble
    /// each other, so they have none.
    pub interval: Option<[f64; 2]>,
    /// The processes.
    pub processes: usize,
    /// Whether the interval is that of the passes of one run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_of_passes: bool,
    /// Why nothing is decided.
    pub undecided: Option<String>,
    /// Whether all of the interval holds the limit, or none of it.
    pub outcome: Outcome,
}

impl Limit {
    /// Holds the receipts of a set's processes against the limit.
    #[must_use]
    pub fn hold(self, receipts: &[Receipt]) -> Held {
        self.held(receipts.len(), receipts.iter().map(|receipt| self.of(receipt)).collect())
    }

    /// Holds processes without a receipt against it, such as files of llama-bench.
    #[must_use]
    pub fn hold_processes(self, processes: &[Process]) -> Held {
        let figures = processes.iter().map(|process| self.of_process(process)).collect();
        let mut held = self.held(processes.len(), figures);
        let test = processes.first().and_then(decode_test).filter(|_| !held.test.is_empty());
        if let Some(test) = test {
            held.test.clone_from(&test.name);
        }
        held
    }

    fn held(self, processes: usize, figures: Result<Vec<(&str, f64)>, String>) -> Held {
        let mut held = Held::none(self, processes);
        held.undecided = match figures {
            Ok(figures) => held.decide(figures),
            Err(why) => Some(why),
        };
        held
    }

    fn of_process(self, process: &Process) -> Result<(&str, f64), String> {
        let test = decode_test(process).ok_or("a process has no decode test with times")?;
        match self {
            Self::Throughput(_) => {
                let rate = |&ns: &u64| test.tokens as f64 * 1e9 / ns as f64;
                // What took no time was not timed.
                let timed = test.wall_ns.iter().filter(|ns| **ns > 0);
                let rates: Vec<f64> = timed.map(rate).collect();
                let median = median(&rates).ok_or("a process has no measured repetition")?;
                Ok((&test.name, median))
            }
            Self::P99(_) => Err("a p99 takes the times of single tokens, which only receipts of \
                 `brickscope benchmark` have"
                .to_owned()),
        }
    }

    /// Holds runs that are no benchmarks against a throughput, by the decode rate that their first screen says: one by the
    /// interval over its passes, several by that over the runs.
    #[must_use]
    pub fn hold_runs(self, runs: &[Profile]) -> Held {
        let mut held = Held::none(self, runs.len());
        let rates: Option<Vec<Rate>> =
            runs.iter().map(|run| Rate::of(run, Phase::Decode)).collect();
        held.undecided = match (rates.as_deref(), runs) {
            _ if !self.is_at_least() => {
                Some("a p99 is of receipts, which `brickscope benchmark` writes".to_owned())
            }
            (None, _) => Some("no pass of it decoded tokens that were counted".to_owned()),
            (Some([rate]), [run]) => held.decide_one(rate, run),
            (Some(rates), _) => {
                let name = Phase::Decode.name();
                held.decide(rates.iter().map(|rate| (name, rate.tokens_per_second)).collect())
            }
        };
        held
    }

    /// The figure of one process, or why there is none.
    fn of(self, receipt: &Receipt) -> Result<(&str, f64), String> {
        let tests = receipt.tests.iter().filter(|test| test.n_gen > 0);
        let test: &v1::Test = tests
            .min_by_key(|test| test.n_depth)
            .ok_or("a process has no decode test: benchmark with --tokens")?;
        let of = &test.aggregates;
        let figure = match self {
            Self::Throughput(_) => of.median_ts.ok_or("a process has no measured repetition")?,
            Self::P99(_) => match of.per_token.p99_ns {
                Some(ns) => ns as f64 / 1e6,
                None => {
                    return Err(format!(
                        "a p99 needs {} tokens in each process, and one has {}: benchmark with more --tokens or \
                         --repetitions",
                        Histogram::least_count(0.99).unwrap_or_default(),
                        of.per_token.count
                    ));
                }
            },
        };
        Ok((&test.name, figure))
    }

    fn is_at_least(self) -> bool {
        matches!(self, Self::Throughput(_))
    }

    fn value(self) -> f64 {
        match self {
            Self::Throughput(value) | Self::P99(value) => value,
        }
    }
}

/// The decode test at the least depth of a process without a receipt.
#[must_use]
pub fn decode_test(process: &Process) -> Option<&Test> {
    // A test of a list has no phase, but the name that llama-bench gives it: `tg128 @ d512`.
    let is_decode = |test: &&Test| {
        test.phase == Some(Phase::Decode) || (test.phase.is_none() && test.name.starts_with("tg"))
    };
    let depth = |test: &&Test| -> u64 {
        let depth = test.name.split_once("@ d").map(|(_, depth)| depth);
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        depth.and_then(|text| digits(text).parse().ok()).unwrap_or(0)
    };
    let timed = process.tests.iter().filter(|test| test.tokens > 0 && !test.wall_ns.is_empty());
    timed.filter(is_decode).min_by_key(depth)
}

impl Held {
    /// Before anything was looked at.
    fn none(limit: Limit, processes: usize) -> Self {
        Self {
            limit,
            test: String::new(),
            figure: None,
            interval: None,
            processes,
            is_of_passes: false,
            undecided: None,
            outcome: Outcome::Inconclusive,
        }
    }

    /// Fills in what a single run says. Returns why that decides nothing.
    fn decide_one(&mut self, rate: &Rate, run: &Profile) -> Option<String> {
        Phase::Decode.name().clone_into(&mut self.test);
        self.figure = Some(rate.tokens_per_second);
        let Some(interval) = rate.interval(run) else {
            return Some(format!(
                "it has no interval, which takes {LEAST_FOR_INTERVAL} passes or more, most of them undisturbed: \
                 `brickscope show` says what disturbed them"
            ));
        };
        self.is_of_passes = true;
        self.judge(interval, "more tokens")
    }

    /// Fills in what the figures say. Returns why they decide nothing.
    fn decide(&mut self, figures: Vec<(&str, f64)>) -> Option<String> {
        let Some(&(test, _)) = figures.first() else {
            return Some("there is no process".to_owned());
        };
        if figures.iter().any(|(other, _)| *other != test) {
            return Some("the processes ran different tests".to_owned());
        }
        test.clone_into(&mut self.test);
        let n = figures.len() as f64;
        let mean = figures.iter().map(|(_, figure)| figure).sum::<f64>() / n;
        self.figure = Some(mean);
        if figures.len() < LEAST_PROCESSES {
            return Some(format!(
                "it takes {LEAST_PROCESSES} processes, which differ by more than repetitions do: `benchmark --processes \
                 {LEAST_PROCESSES}`, or llama-bench as often, each time into a file of its own"
            ));
        }
        let squares: f64 = figures.iter().map(|(_, figure)| (figure - mean).powi(2)).sum();
        let error = (squares / (n - 1.0) / n).sqrt();
        let half = student::quantile(0.05, n - 1.0) * error;
        // No rate and no time is below 0.
        self.judge([(mean - half).max(0.0), mean + half], "more --processes")
    }

    /// Fills in whether an interval holds the limit. Returns why that isn't decided; `more` narrow it.
    fn judge(&mut self, [low, high]: [f64; 2], more: &str) -> Option<String> {
        self.interval = Some([low, high]);
        let limit = self.limit.value();
        let (all, none) = match self.limit.is_at_least() {
            true => (low >= limit, high < limit),
            false => (high <= limit, low > limit),
        };
        self.outcome = match (all, none) {
            (true, _) => Outcome::Pass,
            (_, true) => Outcome::Slower,
            _ => return Some(format!("the limit is within the interval: {more} narrow it")),
        };
        None
    }
}

/// `tg128: 45.94 tokens/s (95 % 43.10 to 48.78, mean of 5 processes), at least 40 asked: held`.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, unit, bound) = match self.limit {
            Limit::Throughput(_) => ("", "tokens/s", "at least"),
            Limit::P99(_) => ("p99 of a token ", "ms", "at most"),
        };
        let test = if self.test.is_empty() { "decode".to_owned() } else { printable(&self.test) };
        let figure = self.figure.map_or("n/a".to_owned(), |figure| format!("{figure:.2}"));
        write!(f, "{test}: {what}{figure} {unit} (")?;
        if let Some([low, high]) = self.interval {
            write!(f, "95 % {low:.2} to {high:.2}, ")?;
        }
        let processes = match self.processes {
            1 if self.is_of_passes => "run, by its passes",
            1 => "process",
            _ => "processes",
        };
        let mean = if self.processes > 1 { "mean of " } else { "" };
        write!(f, "{mean}{} {processes}), {bound} {} asked: ", self.processes, self.limit.value())?;
        match (self.outcome, &self.undecided) {
            (Outcome::Pass, _) => f.write_str("held"),
            (Outcome::Slower, _) => f.write_str("not held"),
            (Outcome::Inconclusive, why) => {
                write!(f, "not decided: {}", why.as_deref().unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process whose decode test had this median rate and this 99th percentile.
    fn receipt(rate: f64, p99_ns: Option<u64>) -> Receipt {
        let text = include_str!("../../../tests/data/receipt-v1.json");
        let mut receipt = Receipt::from_json(text, "receipt-v1.json".as_ref()).expect("a receipt");
        let decode = receipt.tests.iter_mut().find(|test| test.n_gen > 0).expect("a decode test");
        decode.aggregates.median_ts = Some(rate);
        decode.aggregates.per_token.p99_ns = p99_ns;
        receipt
    }

    fn set(rates: &[f64]) -> Vec<Receipt> {
        // In milliseconds what the rates are in tokens/s, to have one arithmetic.
        rates.iter().map(|&rate| receipt(rate, Some((rate * 1e6) as u64))).collect()
    }

    /// Mean 100, deviation √2.5; t of 4 degrees is 2.776, so the interval is 98.04 to 101.96.
    const FIVE: [f64; 5] = [98.0, 99.0, 100.0, 101.0, 102.0];

    #[test]
    fn a_limit_is_held_if_the_whole_interval_holds_it() {
        let rate = |limit| Limit::Throughput(limit).hold(&set(&FIVE));
        let [low, high] = rate(1.0).interval.expect("five processes");
        assert!((low - 98.037).abs() < 1e-3 && (high - 101.963).abs() < 1e-3, "{low} {high}");
        assert_eq!(
            rate(98.0).to_string(),
            "tg4: 100.00 tokens/s (95 % 98.04 to 101.96, mean of 5 processes), at least 98 asked: held"
        );
        assert_eq!(rate(98.0).outcome, Outcome::Pass);
        assert_eq!(rate(99.0).outcome, Outcome::Inconclusive);
        assert!(
            rate(99.0).to_string().ends_with("within the interval: more --processes narrow it")
        );
        assert_eq!(rate(102.0).outcome, Outcome::Slower);
        // The other way round.
        let p99 = |limit| Limit::P99(limit).hold(&set(&FIVE));
        let outcomes = [98.0, 101.0, 102.0].map(|limit| p99(limit).outcome);
        assert_eq!(outcomes, [Outcome::Slower, Outcome::Inconclusive, Outcome::Pass]);
        assert_eq!(
            p99(98.0).to_string(),
            "tg4: p99 of a token 100.00 ms (95 % 98.04 to 101.96, mean of 5 processes), at most 98 asked: not held"
        );
    }

    #[test]
    fn too_few_processes_or_tokens_decide_nothing() {
        let held = Limit::Throughput(1.0).hold(&set(&FIVE[..4]));
        assert_eq!((held.outcome, held.interval), (Outcome::Inconclusive, None));
        assert_eq!(held.figure, Some(99.5), "the figure is known");
        assert!(held.to_string().contains("`benchmark --processes 5`"), "{held}");
        let mut short = set(&FIVE);
        short[3] = receipt(100.0, None);
        let held = Limit::P99(1e9).hold(&short);
        assert_eq!((held.outcome, held.figure), (Outcome::Inconclusive, None));
        assert!(
            held.to_string().contains("a p99 needs 459 tokens in each process, and one has 12")
        );
        short[3].tests.retain(|test| test.n_gen == 0);
        let held = Limit::Throughput(1.0).hold(&short);
        assert_eq!(held.outcome, Outcome::Inconclusive);
        assert!(held.to_string().starts_with("decode: n/a tokens/s"), "{held}");
        assert_eq!(Limit::Throughput(1.0).hold(&[]).outcome, Outcome::Inconclusive);
    }

    /// A run of passes over one token that took these times, in milliseconds.
    fn run(times: &[u64]) -> Profile {
        let hand = brickscope::MockClock::default();
        let profiler = brickscope::BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for (position, ms) in (0..).zip(times) {
            let pass = profiler.begin_pass(Phase::Decode);
            let timer = profiler.start_brick(brickscope::BrickId::LmHead);
            hand.advance(ms * 1_000_000);
            profiler.stop_brick(timer, 1);
            profiler.end_pass(pass, 1, position);
        }
        profiler.profile()
    }

    #[test]
    fn a_run_is_held_by_the_interval_over_its_passes() {
        // 20 ms a token, so 50 tokens/s.
        let times = [19, 21, 20, 19, 21, 20, 19, 21, 20, 20];
        let rate = |limit, times: &[u64]| Limit::Throughput(limit).hold_runs(&[run(times)]);
        let held = rate(20.0, &times);
        assert_eq!(held.outcome, Outcome::Pass, "{held}");
        let said = held.to_string();
        assert!(said.starts_with("decode: 50.00 tokens/s (95 % "), "{said}");
        assert!(said.ends_with("1 run, by its passes), at least 20 asked: held"), "{said}");
        assert_eq!(rate(80.0, &times).outcome, Outcome::Slower);
        assert_eq!(rate(50.0, &times).outcome, Outcome::Inconclusive);
        // Too few passes, none, and what a run doesn't have.
        let few = rate(20.0, &times[..2]);
        assert_eq!((few.outcome, few.interval), (Outcome::Inconclusive, None));
        assert_eq!(few.figure, Some(50.0), "the figure is known");
        assert_eq!(rate(20.0, &[]).outcome, Outcome::Inconclusive);
        let p99 = Limit::P99(5.0).hold_runs(&[run(&times)]);
        assert_eq!(p99.outcome, Outcome::Inconclusive);
    }

    #[test]
    fn files_of_llama_bench_are_held_by_their_decode_test_at_the_least_depth() {
        let test = |name: &str, phase: Option<Phase>, wall_ns: u64| Test {
            name: name.to_owned(),
            phase,
            tokens: 100,
            wall_ns: vec![wall_ns, wall_ns, 9 * wall_ns],
            ..Test::default()
        };
        let process = |rate: f64| Process {
            tests: vec![
                test("pp512", None, 1),
                test("tg100 @ d512", None, 1),
                test("tg100", None, (1e11 / rate) as u64),
            ],
            ..Process::default()
        };
        let five = FIVE.map(process);
        let held = Limit::Throughput(98.0).hold_processes(&five);
        assert_eq!(held.outcome, Outcome::Pass);
        assert!(held.to_string().starts_with("tg100: 100.00 tokens/s (95 % 98.04"), "{held}");
        let mut with_none = five.clone();
        with_none[0].tests.iter_mut().for_each(|test| test.wall_ns.push(0));
        let same = Limit::Throughput(98.0).hold_processes(&with_none);
        assert_eq!(same.to_string(), held.to_string());
        let held = Limit::P99(98.0).hold_processes(&five);
        assert_eq!(held.outcome, Outcome::Inconclusive);
        assert!(held.to_string().contains("times of single tokens"), "{held}");
        let prompts =
            Process { tests: vec![test("prefill", Some(Phase::Prefill), 1)], ..Process::default() };
        assert_eq!(Limit::Throughput(1.0).hold_processes(&[prompts]).figure, None);
    }

    #[test]
    fn processes_of_different_tests_are_not_averaged() {
        let mut mixed = set(&FIVE);
        mixed[2].tests.iter_mut().for_each(|test| test.name.push_str(" @ d512"));
        let held = Limit::Throughput(1.0).hold(&mixed);
        assert_eq!(held.undecided.as_deref(), Some("the processes ran different tests"));
    }
}
