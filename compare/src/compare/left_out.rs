//! Tests that can't be compared, since not all processes have them.

use std::fmt;

use brickscope_profile::text::count;
use serde::Serialize;

use super::{Side, Test};

/// A test that wasn't compared, since not all processes have it: a file broke off, or one side ran other tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOutTest {
    /// Its name.
    pub name: String,
    /// How many processes of A have it, and how many of B.
    pub has: [usize; 2],
    /// How many processes there are of either.
    pub processes: [usize; 2],
}

impl LeftOutTest {
    /// Those of two sides, besides the ones that are compared.
    pub(super) fn all(
        sides: [&Side; 2],
        compared: &[String],
        is_asked: impl Fn(&Test) -> bool,
    ) -> Vec<Self> {
        let processes = sides.map(|side| side.processes.len());
        let mut all: Vec<Self> = Vec::new();
        for (nth, side) in sides.into_iter().enumerate() {
            for process in &side.processes {
                let tests = process.tests.iter().filter(|test| !test.wall_ns.is_empty());
                for test in tests.filter(|test| is_asked(test) && !compared.contains(&test.name)) {
                    let known = all.iter().position(|of| of.name == test.name);
                    let at = known.unwrap_or_else(|| {
                        all.push(Self { name: test.name.clone(), has: [0; 2], processes });
                        all.len() - 1
                    });
                    all[at].has[nth] += 1;
                }
            }
        }
        all
    }

    /// Whether side A has it, so that B may be slower in it: nobody knows.
    #[must_use]
    pub const fn leaves_open(&self) -> bool {
        self.has[0] > 0
    }
}

/// Why.
impl fmt::Display for LeftOutTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.has {
            [_, 0] => return f.write_str("only A has it"),
            [0, _] => return f.write_str("only B has it"),
            _ => {}
        }
        let lacks = [("A", 0), ("B", 1)].map(|(letter, side)| {
            (letter, self.processes[side], self.processes[side].saturating_sub(self.has[side]))
        });
        let said = lacks
            .into_iter()
            .filter(|(.., lacking)| *lacking > 0)
            .map(|(side, all, n)| format!("{n} of {} of {side}", count(all as u64, "process")));
        write!(f, "{} without it", said.collect::<Vec<_>>().join(" and "))
    }
}
