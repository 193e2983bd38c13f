//! What a call of each brick takes at one commit beside another, with machines taken apart as for whole tests.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use brickscope_analysis::compare::Verdict;
use brickscope_analysis::fleet::{Cause, Explanation, Fleet, Observation};

use crate::engine::{Answer, AnswerColumn, answer, quoted};
use crate::order::of_commit;
use crate::part::Days;
use crate::questions::Asked;
use crate::store::Lake;
use crate::works::unify;

/// A change that matters, as in `compare`.
const THRESHOLD: f64 = 0.03;

/// A brick of one work: the work's name and all that it measured, the phase, the device, the brick.
type OfBrick = [String; 5];

/// A row for each brick that both commits have, the largest change first.
pub fn bricks_between(
    lake: &Lake,
    days: Days<'_>,
    asked: &Asked<'_>,
    commits: [&str; 2],
) -> Result<Answer> {
    between(&observed(lake, days, asked)?, commits)
}

fn between(
    bricks: &BTreeMap<OfBrick, Vec<Observation>>,
    [before, after]: [&str; 2],
) -> Result<Answer> {
    let mut found: Vec<(&OfBrick, Explanation, usize)> = Vec::new();
    for (of, runs) in bricks {
        let (Some(first), Some(second)) = (of_commit(runs, before)?, of_commit(runs, after)?)
        else {
            continue;
        };
        let fleet = Fleet::fit(runs, &Fleet::order_by_time(runs), true)?;
        found.push((of, fleet.explain(&first, &second)?, first.len() + second.len()));
    }
    if found.is_empty() {
        bail!(
            "no brick was measured at both {before} and {after} in runs of the same work: `brickscope lake inventory` says \
             what there is; receipts alone don't count calls"
        );
    }
    let size = |of: &Explanation| of.commit.ratio.ln().abs();
    found.sort_by(|a, b| {
        (&a.0[0], &a.0[2]).cmp(&(&b.0[0], &b.0[2])).then(size(&b.1).total_cmp(&size(&a.1)))
    });
    let column =
        |name: &str, is_number| AnswerColumn { name: name.to_owned(), is_number, is_flag: false };
    let columns = vec![
        column("work", false),
        column("phase", false),
        column("device", false),
        column("brick", false),
        column("runs", true),
        column("time_beside_before", true),
        column("low", true),
        column("high", true),
        column("than_before", false),
    ];
    let rows = found.iter().map(|(of, explained, runs)| {
        let [work, _, phase, device, brick] = (*of).clone();
        let part = explained.commit;
        let number = |ratio: f64| part.is_known().then(|| format!("{ratio:.4}"));
        let said = [Some(work), Some(phase), Some(device).filter(|of| !of.is_empty()), Some(brick)];
        let figures = [Some(runs.to_string()), number(part.ratio), number(part.low)];
        let rest = [number(part.high), Some(than_before(explained))];
        said.into_iter().chain(figures).chain(rest).collect()
    });
    Ok(Answer { columns, rows: rows.collect() })
}

/// `slower`, by the rule of `compare` and if it is the commit's; or why that isn't known.
fn than_before(explained: &Explanation) -> String {
    let part = explained.commit;
    if !part.is_known() {
        return explained.reason.clone();
    }
    let is_commits = matches!(explained.cause, Cause::Commit | Cause::Both);
    match Verdict::of(part.low - 1.0, part.high - 1.0, THRESHOLD) {
        verdict @ (Verdict::Slower | Verdict::Faster) if is_commits => verdict.name(),
        Verdict::Unchanged => Verdict::Unchanged.name(),
        _ => "not distinguishable",
    }
    .to_owned()
}

/// What a call of each brick took in each run, in nanoseconds.
fn observed(
    lake: &Lake,
    days: Days<'_>,
    asked: &Asked<'_>,
) -> Result<BTreeMap<OfBrick, Vec<Observation>>> {
    let only = |column: &str, value: &str| match value {
        "" => String::new(),
        value => format!(" AND {column} {}", quoted(value)),
    };
    let query = format!(
        "SELECT concat_ws(', ', r.engine, r.model, r.quant, r.backend, r.device, \
             CASE WHEN r.threads IS NULL THEN NULL ELSE concat(r.threads, ' threads') END) AS work, \
           coalesce(t.works, '') AS works, b.phase AS phase, coalesce(b.device, '') AS device, b.brick AS brick, \
           r.machine AS machine, r.commit AS commit, coalesce(r.session, r.date) AS session, r.created_s AS created_s, \
           sum(b.exclusive_ns) / sum(b.calls) AS ns \
         FROM bricks b JOIN runs r ON r.run_id = b.run_id \
         LEFT JOIN (SELECT run_id, string_agg(concat(test, work), ' ' ORDER BY test, work) AS works \
           FROM speeds GROUP BY run_id) t ON t.run_id = r.run_id \
         WHERE b.kind = 'brick' AND b.phase IS NOT NULL AND b.brick IS NOT NULL AND b.calls > 0 \
           AND b.exclusive_ns > 0 AND r.commit IS NOT NULL \
           AND (r.receipt_refused IS NULL OR r.receipt_refused = 'kernel-ids'){}{}{}{}{} \
         GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, r.run_id ORDER BY r.created_s, r.run_id",
        only("r.date >=", asked.since),
        only("r.date <=", asked.until),
        only("r.model =", asked.model),
        only("b.phase =", asked.phase),
        only("b.brick =", asked.brick),
    );
    let mut bricks: BTreeMap<OfBrick, Vec<Observation>> = BTreeMap::new();
    for row in answer(lake, days, "", &query)?.rows {
        let Some(row) = row.into_iter().collect::<Option<Vec<String>>>() else { continue };
        let Ok([work, works, phase, device, brick, machine, commit, session, time, ns]) =
            <[String; 10]>::try_from(row)
        else {
            continue;
        };
        let value = ns.parse().with_context(|| format!("a time is {ns:?}"))?;
        let time = time.parse().with_context(|| format!("created_s is {time:?}"))?;
        let of = [work, works, phase, device, brick];
        let run = Observation { machine, commit, session, time, value };
        bricks.entry(of).or_default().push(run);
    }
    bricks.values_mut().for_each(|runs| unify(runs));
    Ok(bricks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three machines, eight days: the first four days `aaa1111`, then `bbb2222`, at which bricks take longer by these parts.
    fn made(slower: &[(&str, f64)]) -> BTreeMap<OfBrick, Vec<Observation>> {
        let runs = |part: f64| {
            let mut runs = Vec::new();
            for day in 0..8_i64 {
                for machine in 0..3_i64 {
                    let noise = ((day * 31 + machine * 17) % 13) as f64 / 4000.0;
                    let of_commit = if day < 4 { 1.0 } else { 1.0 + part };
                    runs.push(Observation {
                        machine: format!("m{machine}"),
                        commit: if day < 4 { "aaa1111" } else { "bbb2222" }.to_owned(),
                        session: format!("day {day}"),
                        time: 1_790_000_000 + 86_400 * day,
                        value: 1000.0 * (1.0 + machine as f64 / 5.0) * of_commit * (1.0 + noise),
                    });
                }
            }
            // Both commits on one day each, so that a machine didn't change itself.
            let again = Observation { commit: "aaa1111".to_owned(), ..runs[23].clone() };
            let value = again.value / (1.0 + part);
            runs.push(Observation { value, ..again });
            runs
        };
        let of = |brick: &str| ["a model", "", "decode", "", brick].map(str::to_owned);
        slower.iter().map(|(brick, part)| (of(brick), runs(*part))).collect()
    }

    #[test]
    fn the_brick_that_changed_comes_first_with_its_interval() {
        let bricks = made(&[("Embedding", 0.0), ("LmHead", 0.2)]);
        let answer = between(&bricks, ["aaa1111", "bbb2222"]).expect("both were measured");
        let cell = |row: usize, name: &str| {
            let at = answer.columns.iter().position(|of| of.name == name).expect(name);
            answer.rows[row][at].clone().unwrap_or_default()
        };
        assert_eq!([cell(0, "brick"), cell(1, "brick")], ["LmHead", "Embedding"]);
        let [low, high] = ["low", "high"].map(|of| cell(0, of).parse::<f64>().expect("a number"));
        assert!(low > 1.1 && low <= high && high < 1.3, "{low} {high}");
        assert_eq!([cell(0, "than_before"), cell(1, "than_before")], ["slower", "unchanged"]);
        let error = between(&bricks, ["aaa1111", "ccc3333"]).expect_err("nobody ran it");
        assert!(error.to_string().contains("ccc3333"), "{error}");
    }

    #[test]
    fn an_interval_with_1_in_it_is_no_change() {
        let bricks = made(&[("LmHead", 0.2)]);
        let runs = &bricks.values().next().expect("a brick")[..];
        let fleet = Fleet::fit(runs, &Fleet::order_by_time(runs), true).expect("runs");
        let of = |commit: &str| of_commit(runs, commit).expect("clear").expect("runs");
        let mut explained = fleet.explain(&of("aaa1111"), &of("bbb2222")).expect("runs");
        (explained.commit.low, explained.commit.high) = (0.99, 1.3);
        assert_eq!(than_before(&explained), "not distinguishable");
        (explained.commit.low, explained.commit.high) = (0.0, f64::INFINITY);
        assert_eq!(than_before(&explained), explained.reason);
    }
}
