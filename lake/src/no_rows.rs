//! Why a question has no rows: which of its conditions left none.

use anyhow::Result;
use brickscope_profile::text::{count, printable_text};

use crate::engine::answer;
use crate::part::ALL_DAYS;
use crate::store::Lake;

/// What runs have to meet, after all conditions before it.
struct Condition {
    /// In SQL, of `r`, `p` and the question's own table `x`.
    sql: &'static str,
    /// What none of the runs does.
    does: &'static str,
    /// The flag, and a column with its table, of which there are others.
    others: Option<(&'static str, &'static str)>,
}

const fn one(sql: &'static str, does: &'static str) -> Condition {
    Condition { sql, does, others: None }
}

const fn flag(
    sql: &'static str,
    does: &'static str,
    others: (&'static str, &'static str),
) -> Condition {
    Condition { sql, does, others: Some(others) }
}

const OF_DAYS: Condition = flag(
    "r.date >= p.since AND r.date <= p.until",
    "is of these days",
    ("--since and --until", "date FROM runs"),
);
const OF_MODEL: Condition =
    flag("(p.model = '' OR r.model = p.model)", "is of this model", ("--model", "model FROM runs"));
const OF_TEST: Condition =
    flag("(p.test = '' OR x.test = p.test)", "has this test", ("--test", "test FROM speeds"));
const OF_PHASE: Condition =
    flag("(p.phase = '' OR x.phase = p.phase)", "has this phase", ("--phase", "phase FROM bricks"));
const OF_BRICK: Condition =
    flag("(p.brick = '' OR x.brick = p.brick)", "has this brick", ("--brick", "brick FROM bricks"));
const OF_KERNEL: Condition = flag(
    "(p.brick = '' OR x.brick = p.brick OR x.kernel = p.brick)",
    "has this brick or kernel",
    ("--brick", "coalesce(kernel, brick) FROM bricks"),
);
const OF_SPANS: Condition = flag(
    "(p.brick = '' OR x.name = p.brick)",
    "has spans of this brick or kernel",
    ("--brick", "name FROM (SELECT * FROM durations WHERE phase IS NOT NULL) d"),
);
const SPEED: Condition = one("x.tokens_per_second > 0", "has a speed");
const COMMIT: Condition =
    one("r.commit IS NOT NULL", "names a commit: `brickscope collect --commit HASH` names it");
const IN_PASSES: Condition = one("x.phase IS NOT NULL", "has them in passes");
const BRICKS: Condition = one("x.kind <> 'kernel'", "has bricks");
const KERNELS: Condition = one("x.kind = 'kernel'", "has kernels");
const BYTES: Condition =
    one("x.kind = 'brick' AND x.bytes > 0", "has bricks that state their bytes");
const ON_HOST: Condition =
    one("x.device IS NULL AND x.total_ns > 0", "has them on the host, with their times");
const BANDWIDTH: Condition =
    one("r.read_bytes_per_second > 0", "has the bandwidth of its machine's memory");
const WATCHED: Condition =
    one("x.is_disturbed IS NOT NULL", "was watched for other work on its machine");
const RECEIPT: Condition = one("r.receipt_verifies IS NOT NULL", "has a receipt");

/// A question's own table, what runs have to meet there, and what is lacking where they meet all of it.
type Needs = (&'static str, &'static [Condition], &'static str);

fn needs(question: &str) -> Needs {
    match question {
        "trend" | "compare" => ("speeds", &[SPEED, OF_TEST], ""),
        "slowest-machines" => ("speeds", &[SPEED, OF_TEST], "no two machines did the same work"),
        "regressions" => {
            ("speeds", &[SPEED, OF_TEST, COMMIT], "no machine did the same work at two commits")
        }
        "verdict" => (
            "speeds",
            &[SPEED, OF_TEST, COMMIT],
            "none is of this --cpu, or each has a receipt that did not verify (`lake unverified`)",
        ),
        "who-backs" => ("speeds", &[SPEED, OF_TEST], "none is as near to this number as --within"),
        "requests" => ("requests", &[COMMIT], "no request has a first token"),
        "bricks" => ("bricks", &[BRICKS, IN_PASSES, OF_PHASE, OF_BRICK], ""),
        "kernels" => ("bricks", &[KERNELS, IN_PASSES, OF_PHASE, OF_KERNEL], ""),
        "far-from-roof" => {
            ("bricks", &[BYTES, ON_HOST, BANDWIDTH, IN_PASSES, OF_PHASE, OF_BRICK], "")
        }
        "percentiles" => ("durations", &[IN_PASSES, OF_PHASE, OF_SPANS], ""),
        "slow-passes" => ("passes", &[OF_PHASE], "none has three passes of a phase"),
        "disturbed" => ("passes", &[WATCHED], ""),
        "unverified" => ("", &[RECEIPT], "each receipt verified"),
        _ => ("", &[], ""),
    }
}

/// Why a question has no rows, and which values there are where a flag chose one that isn't there. `None` if runs meet all that
/// it asks for.
///
/// # Errors
///
/// That of the engine.
pub fn why_no_rows(lake: &Lake, question: &str, params: &str) -> Result<Option<String>> {
    let (table, own, lacking) = needs(question);
    let conditions: Vec<&Condition> = [&OF_DAYS, &OF_MODEL].into_iter().chain(own).collect();
    let answer = answer(lake, ALL_DAYS, params, &counts(table, &conditions))?;
    let runs: Vec<u64> = answer.rows.iter().flatten().map(|cell| number(cell.as_deref())).collect();
    let of = |runs: u64, why: &str| format!("of {}, {why}", count(runs, "run"));
    let Some(at) = runs.iter().position(|runs| *runs == 0) else {
        let all = runs.last().filter(|_| !lacking.is_empty());
        return Ok(all.map(|all| of(*all, lacking)));
    };
    // What comes first is how many runs there are, then how many of them have rows in the table.
    let before = at.checked_sub(1).map_or(0, |before| runs[before]);
    let none = |does: &str| of(before, &format!("none {does}"));
    let condition = match at {
        0 => return Ok(Some("the lake has no runs".to_owned())),
        1..=2 => conditions[at - 1],
        3 if !table.is_empty() => {
            let of_requests = table == "speeds" && has_requests(lake, params)?;
            let instead = if of_requests { ASK_REQUESTS } else { "" };
            return Ok(Some(none(lacks(table)) + instead));
        }
        _ => conditions[at - 1 - usize::from(!table.is_empty())],
    };
    let mut said = none(condition.does);
    if let Some((flag, has)) = condition.others {
        said += &format!("; {flag}: the lake has {}", choices(lake, params, has)?);
    }
    Ok(Some(said))
}

/// What runs of servers' requests have instead of a speed.
const ASK_REQUESTS: &str = "; `brickscope lake requests` says how long requests of servers waited";

fn has_requests(lake: &Lake, params: &str) -> Result<bool> {
    let answer = answer(lake, ALL_DAYS, params, "SELECT count(*) AS requests FROM requests")?;
    Ok(answer.rows.iter().flatten().any(|cell| number(cell.as_deref()) > 0))
}

/// What runs without rows in a table don't have.
fn lacks(table: &str) -> &'static str {
    match table {
        "requests" => "has requests of a server",
        "speeds" => "has a speed",
        "passes" => "has passes",
        _ => "has bricks: a benchmark of another program has speeds only",
    }
}

/// A query for the number of runs that meet ever more of the conditions: in all, of these days and models, with rows in the
/// table, and then its own.
fn counts(table: &str, conditions: &[&Condition]) -> String {
    let joined = match table {
        "" => String::new(),
        table => format!(" JOIN {table} x ON x.run_id = r.run_id"),
    };
    let mut wanted = "true".to_owned();
    let counted = |joined: &str, wanted: &str| {
        format!(
            "(SELECT count(DISTINCT r.run_id) FROM runs r{joined} CROSS JOIN params p WHERE {wanted})"
        )
    };
    let mut counts = vec![counted("", &wanted)];
    for (nth, condition) in conditions.iter().enumerate() {
        let is_of_runs = nth < 2;
        if nth == 2 && !joined.is_empty() {
            counts.push(counted(&joined, &wanted));
        }
        wanted += &format!(" AND {}", condition.sql);
        counts.push(counted(if is_of_runs { "" } else { joined.as_str() }, &wanted));
    }
    let named: Vec<String> =
        counts.iter().enumerate().map(|(nth, count)| format!("{count} AS c{nth}")).collect();
    format!("SELECT {}", named.join(",\n  "))
}

fn number(cell: Option<&str>) -> u64 {
    cell.and_then(|cell| cell.parse().ok()).unwrap_or(0)
}

/// What there is to choose from; `has` is a column and its table.
fn choices(lake: &Lake, params: &str, has: &str) -> Result<String> {
    /// More are no help.
    const MOST: usize = 12;
    let column = has.split(" FROM ").next().unwrap_or_default();
    let query = format!("SELECT DISTINCT {has} WHERE {column} IS NOT NULL ORDER BY {column}");
    let answer = answer(lake, ALL_DAYS, params, &query)?;
    let mut values: Vec<String> = answer.rows.into_iter().flatten().flatten().collect();
    let all = values.len();
    values.truncate(MOST);
    if all > MOST {
        values.push(format!("{} more", all - MOST));
    }
    Ok(match values.is_empty() {
        true => "none".to_owned(),
        false => printable_text(&values.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::QUESTIONS;

    #[test]
    fn each_flag_of_a_question_is_a_condition_that_may_leave_no_rows() {
        for question in QUESTIONS {
            let (table, own, _) = needs(question.name);
            let conditions: Vec<&Condition> =
                [&OF_DAYS, &OF_MODEL].into_iter().chain(own).collect();
            let sql = counts(table, &conditions);
            for param in ["p.since", "p.until", "p.model", "p.test", "p.phase", "p.brick"] {
                let is_asked = question.sql.contains(param);
                assert!(!is_asked || sql.contains(param), "{}: {param}", question.name);
            }
            let is_joined = sql.contains(&format!(" JOIN {table} x "));
            assert_eq!(is_joined, !table.is_empty(), "{}: {sql}", question.name);
        }
    }

    #[test]
    fn conditions_are_counted_one_more_each_time() {
        let sql = counts("speeds", &[&OF_DAYS, &OF_MODEL, &SPEED]);
        let wheres: Vec<&str> = sql
            .lines()
            .filter_map(|line| line.split_once(" WHERE ").map(|(_, rest)| rest))
            .collect();
        assert_eq!(wheres.len(), 5, "all, days, model, with rows, with a speed: {sql}");
        assert_eq!(sql.matches(" JOIN speeds x").count(), 2, "{sql}");
        assert!(wheres[4].contains("x.tokens_per_second > 0) AS c4"), "{sql}");
        assert!(!wheres[3].contains("x."), "{sql}");
    }
}
