//! Why two sides can't be compared.

use std::fmt;

use brickscope_profile::Phase;
use brickscope_profile::text::{printable, printable_text};

use super::Difference;

/// The reason why sides can't be compared.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CompareError {
    /// The threshold is not a number above 0.
    Threshold(f64),
    /// A side has no processes.
    Empty {
        /// Its name.
        side: String,
    },
    /// Two files hold the same process.
    Copy {
        /// The one file.
        one: String,
        /// The other.
        other: String,
    },
    /// The sides ran under different conditions.
    Unlike(Vec<Difference>),
    /// A side has no test of the [phase](super::Options::phase) that is asked for.
    NoTestOfPhase {
        /// The side's name.
        side: String,
        /// The phase.
        phase: Phase,
        /// The tests that it has.
        tests: Vec<String>,
    },
    /// They have no test in common.
    NoCommonTest {
        /// The tests of side A.
        a: Vec<String>,
        /// The tests of side B.
        b: Vec<String>,
    },
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threshold(value) => {
                write!(f, "the smallest change that matters must be above 0, not {value}")
            }
            Self::Empty { side } => write!(f, "{} has no runs", printable_text(side)),
            Self::Copy { one, other } if one == other => write!(
                f,
                "{} is there twice: a run says nothing about how it varies",
                printable_text(one)
            ),
            Self::Copy { one, other } => write!(
                f,
                "{} and {} hold the same run: a copy says nothing about how runs vary",
                printable_text(one),
                printable_text(other)
            ),
            Self::Unlike(differences) => {
                writeln!(f, "these runs can't be compared, since they differ in")?;
                for difference in differences {
                    writeln!(f, "  {difference}")?;
                }
                write!(f, "any of these could cause a change of time")
            }
            Self::NoTestOfPhase { side, phase, tests } => {
                let names: Vec<String> = tests.iter().map(|name| printable(name)).collect();
                write!(
                    f,
                    "{} has no test of {phase} alone: it has {}",
                    printable_text(side),
                    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
                )
            }
            Self::NoCommonTest { a, b } => {
                // `decode`, or `decode on the device`.
                let is_list = |names: &[String]| {
                    let is_phase = |name: &str| {
                        let word = name.split_once(" on ").map_or(name, |(phase, _)| phase);
                        Phase::ALL.iter().any(|phase| phase.name() == word)
                    };
                    // A run may have a prompt and its answer together, beside its phases.
                    let is_both = |name: &str| name.contains("+tg") && !name.contains('(');
                    names.iter().any(|name| !is_phase(name) && !is_both(name))
                };
                let hint = match is_list(a) != is_list(b) {
                    true => {
                        ": one side has a list of a benchmark's tests, the other the phases of one run. Compare two lists \
                         or two runs; of a list of llama-bench, `brickscope import --rows` makes a run"
                    }
                    false => "",
                };
                let [a, b] = [a, b].map(|names| {
                    let names: Vec<String> = names.iter().map(|name| printable(name)).collect();
                    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
                });
                write!(
                    f,
                    "the sides have no test in common: A has the tests {a}; B has the tests {b}{hint}"
                )
            }
        }
    }
}

impl std::error::Error for CompareError {}
