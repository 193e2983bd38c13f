//! The rows of a test, its wall time, categories and bricks, before they are judged.

use brickscope_profile::stats::median;

use super::ratio::Ratio;
use super::samples::{brick_names, brick_ns, category_ns, medians, seconds, tests_of, within};
use super::turns::Order;
use super::{
    Change, Options, Pairing, Side, Test, TestChange, UNATTRIBUTED, Verdict, exchange, ratio,
    trimming,
};

/// A row before it is judged.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) change: Change,
    pub(super) ratio: Option<Ratio>,
    /// By how much, as a logarithm, times change within a process: a quarter of the processes reach this. Only
    /// where there are too few processes to rule out that it is this change that the sides show.
    pub(super) within: Option<f64>,
}

/// A test before it is judged.
#[derive(Debug)]
pub(super) struct Rows {
    test: TestChange,
    pub(super) whole: Row,
    pub(super) categories: Vec<Row>,
    pub(super) bricks: Vec<Row>,
}

impl Rows {
    pub(super) fn new(
        name: &str,
        [a, b]: [&Side; 2],
        whole: [&Side; 2],
        order: &Order,
        options: &Options,
    ) -> Self {
        let (sides, samples) =
            ([a, b].map(|side| tests_of(side, name)), whole.map(|side| tests_of(side, name)));
        let walls = sides.each_ref().map(|side| medians(side, |test| Some(test.wall_ns.clone())));
        let seconds = seconds(a, b);
        let row = |name: &str, of: &dyn Fn(&Test) -> Option<Vec<u64>>| {
            let times = sides.each_ref().map(|side| medians(side, of));
            let few = sides.iter().any(|side| side.len() < exchange::PAIRS_THAT_DECIDE);
            let within = few.then(|| within(&samples, of)).flatten();
            let row = Row::new(name, &times, &walls, order, seconds.as_ref());
            Row { within, ..row }
        };
        let whole = row(name, &|test| Some(test.wall_ns.clone()));

        let [names_a, names_b] = sides.each_ref().map(|side| brick_names(side));
        let without = |names: &[String], others: &[String]| {
            let only = names.iter().filter(|name| !others.contains(name));
            only.cloned().collect::<Vec<String>>()
        };
        let mut test = TestChange {
            name: name.to_owned(),
            phase: sides[0][0].phase,
            tokens: sides[0][0].tokens,
            sample: sides[0][0].sample,
            whole: whole.change.clone(),
            categories: Vec::new(),
            bricks: Vec::new(),
            small: Vec::new(),
            only_in_a: without(&names_a, &names_b),
            only_in_b: without(&names_b, &names_a),
            bytes: None,
            bytes_absent: None,
        };
        let mut bricks: Vec<Row> = names_a
            .iter()
            .filter(|name| names_b.contains(name))
            .map(|name| row(name, &|test| brick_ns(test, name)))
            .collect();
        let has_rest = |test: &&Test| test.unattributed_ns.len() == test.wall_ns.len();
        if sides.iter().flatten().all(has_rest) {
            bricks.push(row(UNATTRIBUTED, &|test| Some(test.unattributed_ns.clone())));
        }
        let mut categories: Vec<String> = Vec::new();
        for brick in sides.iter().flatten().flat_map(|test| &test.bricks) {
            if !categories.contains(&brick.category) {
                categories.push(brick.category.clone());
            }
        }
        let mut categories: Vec<Row> =
            categories.iter().map(|name| row(name, &|test| category_ns(test, name))).collect();

        let share_of = |row: &Row| {
            let of_b = row.change.b_ns.zip(whole.change.b_ns).map(|(part, whole)| part / whole);
            row.change.share.into_iter().chain(of_b).fold(0.0, f64::max)
        };
        bricks.retain(|row| {
            let share = share_of(row);
            let is_small = share < options.min_share;
            if is_small {
                test.small.push((row.change.name.clone(), share));
            }
            !is_small
        });
        categories.retain(|row| share_of(row) >= options.min_share);
        for rows in [&mut bricks, &mut categories] {
            let key = |row: &Row| row.change.a_ns.unwrap_or(0.0);
            rows.sort_by(|x, y| key(y).total_cmp(&key(x)));
        }
        test.small.sort_by(|x, y| y.1.total_cmp(&x.1));
        Self { test, whole, categories, bricks }
    }

    pub(super) fn into_change(self) -> TestChange {
        let changes = |rows: Vec<Row>| rows.into_iter().map(|row| row.change).collect();
        TestChange {
            whole: self.whole.change,
            categories: changes(self.categories),
            bricks: changes(self.bricks),
            ..self.test
        }
    }
}

impl Row {
    /// From the medians of the processes of both sides; `None` for a process without a time.
    fn new(
        name: &str,
        times: &[Vec<Option<f64>>; 2],
        walls: &[Vec<Option<f64>>; 2],
        order: &Order,
        seconds: Option<&[Vec<f64>; 2]>,
    ) -> Self {
        let logs = |times: &Vec<Option<f64>>| -> Option<Vec<f64>> {
            times.iter().map(|time| time.filter(|&ns| ns > 0.0).map(f64::ln)).collect()
        };
        let typical = |times: &[Option<f64>]| {
            let known: Vec<Option<f64>> = times.iter().copied().filter(Option::is_some).collect();
            // Zeros have no logarithm; with any, the plain median has to do.
            logs(&known).and_then(|logs| trimming::typical(&logs)).map_or_else(
                || median(&known.into_iter().flatten().collect::<Vec<f64>>()),
                |(log, _)| Some(log.exp()),
            )
        };
        let [a_ns, b_ns] = times.each_ref().map(|times| typical(times));
        let both = logs(&times[0]).zip(logs(&times[1]));
        let b_interval_ns = both.as_ref().and_then(|(_, b)| {
            let interval = trimming::typical(b)?.1?;
            Some((interval.0.exp(), interval.1.exp()))
        });
        let fewest = times[0].len().min(times[1].len());
        let enough = both.as_ref().filter(|_| fewest >= ratio::MIN_PROCESSES);
        let ratio = enough.and_then(|(a, b)| match &order.pairing {
            Pairing::Paired { pairs } => {
                let logs: Vec<f64> = pairs.iter().map(|&(i, j)| b[j] - a[i]).collect();
                Ratio::paired(&logs, &order.a_first)
            }
            Pairing::Unpaired { .. } => {
                Ratio::unpaired(a, b, seconds.map(|[a, b]| [a.as_slice(), b.as_slice()]))
            }
        });
        let reason = match (&both, &ratio) {
            (None, _) if a_ns.is_none() => Some("only B has it".to_owned()),
            (None, _) if b_ns.is_none() => Some("only A has it".to_owned()),
            (None, _) => Some("some processes spent no time in it".to_owned()),
            (_, None) => Some(format!(
                "{}: no verdict below {} a side, since fewer agree by chance too often",
                match (fewest, &order.pairing) {
                    (1, _) => "one process only".to_owned(),
                    (n, Pairing::Paired { .. }) => format!("{n} pairs only"),
                    (n, _) => format!("{n} processes only"),
                },
                ratio::MIN_PROCESSES
            )),
            (_, Some(ratio)) if ratio.error == 0.0 => {
                Some("all processes have the same times, which no measurement gives".to_owned())
            }
            _ => None,
        };
        Self {
            change: Change {
                name: name.to_owned(),
                share: a_ns.zip(typical(&walls[0])).map(|(part, wall)| part / wall),
                a_ns,
                b_ns,
                b_interval_ns,
                // Without an interval where there are too few for one.
                change: a_ns.zip(b_ns).filter(|_| fewest > 1).map(|(a, b)| b / a - 1.0),
                low: None,
                high: None,
                visible: None,
                processes_needed: None,
                verdict: Verdict::Inconclusive,
                reason,
            },
            ratio: ratio.filter(|ratio| ratio.error > 0.0),
            within: None,
        }
    }
}
