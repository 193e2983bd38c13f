//! How fast a run decoded, as lists say it, and which passes that is of.

use brickscope_analysis::history::Figures;
use brickscope_analysis::rate::Rule;

use crate::summary::Summary;

/// How fast a run decoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Tokens per second; of a set, the median of its processes.
    pub tokens_per_second: f64,
    /// Which passes it is of.
    pub rule: Rule,
    /// The part of the time that it leaves out.
    pub left_out_of_wall: Option<f64>,
    /// Of a set, its slowest process and its fastest one.
    pub processes: Option<[f64; 2]>,
}

impl Speed {
    /// Of a single run. `None` if it has no rate.
    pub(crate) fn of_run(summary: &Summary) -> Option<Self> {
        let left_out_of_wall = summary.decode_left_out_of_wall;
        Some(Self {
            tokens_per_second: summary.decode_tokens_per_second?,
            rule: Rule::of(left_out_of_wall),
            left_out_of_wall,
            processes: None,
        })
    }

    /// Of the processes of a set, as `history` has it. `None` if they have none, or rates of different passes.
    pub(crate) fn of_set(processes: &[Self]) -> Option<Self> {
        let rates: Vec<f64> = processes.iter().map(|of| of.tokens_per_second).collect();
        let Figures { low, median, high } = Figures::of(&rates)?;
        let rule = processes.first()?.rule;
        processes.iter().all(|of| of.rule == rule).then_some(Self {
            tokens_per_second: median,
            rule,
            left_out_of_wall: None,
            processes: Some([low, high]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_as_fast_as_its_median_process_unless_they_are_of_different_passes() {
        let of = |tokens_per_second, rule| Speed {
            tokens_per_second,
            rule,
            left_out_of_wall: None,
            processes: None,
        };
        let mut set = [of(70.0, Rule::All), of(90.0, Rule::All), of(72.0, Rule::All)];
        let speed = Speed::of_set(&set).expect("three rates");
        assert_eq!((speed.tokens_per_second, speed.processes), (72.0, Some([70.0, 90.0])));
        set[1].rule = Rule::Clean;
        assert_eq!(Speed::of_set(&set), None);
        assert_eq!(Speed::of_set(&[]), None);
    }
}
