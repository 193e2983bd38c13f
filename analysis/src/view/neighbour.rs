//! What prompts of others cost tokens, in sentences.

use brickscope_profile::text::grouped;

use crate::requests::{Cost, Costs, NotKnown, PromptCost, is_distinct, rank};
use crate::words::{signed, time, whole_percent};

/// Of so many costs, 90 % lie in the middle; of fewer, the least and the most are shown.
const MANY: usize = 20;

/// What prompts of others cost slow tokens: what is predicted, what isn't known and what was measured, a sentence each.
pub(super) fn of_tokens(costs: &Costs) -> Vec<String> {
    let mut said = Vec::new();
    said.extend(predicted(costs));
    for (why, of) in &costs.not_known {
        let most = match why {
            NotKnown::FewPasses(1..) if *of > 1 => "at most ",
            _ => "",
        };
        let of = grouped(*of);
        said.push(format!("Of {of}, what a prompt cost is not known: {most}{why}."));
    }
    if let Some(median) = rank(&costs.alone_ns, 50) {
        said.push(format!(
            "Passes for prompts of others alone took {} of a token's time (median of {}): measured.",
            time(median as f64),
            grouped(costs.alone_ns.len() as u64)
        ));
    }
    said
}

/// What is predicted of some tokens. None if nothing is.
fn predicted(costs: &Costs) -> Option<String> {
    let [low, median, high] = [costs.percentile(5)?, costs.percentile(50)?, costs.percentile(95)?];
    let all = format!("median of {}", grouped(costs.known.len() as u64));
    let (which, interval, part) = match costs.known.as_slice() {
        // Of a single one its own interval says more.
        [one] => ("of one token".to_owned(), [one.low_ns, one.high_ns], covered(one)),
        known if known.len() < MANY => (all, [low, high], "for all".to_owned()),
        _ => (all, [low, high], "for the middle 90 %".to_owned()),
    };
    let unsure = costs.known.iter().filter(|cost| !cost.is_distinct()).count();
    let of_these = if unsure == 0 || costs.known.len() == 1 {
        String::new()
    } else {
        format!(", of which {} can't be told from 0", grouped(unsure as u64))
    };
    // Like costs may each have an interval with 0 in it.
    let is_distinct = is_distinct(interval) && 2 * unsure <= costs.known.len();
    let range = format!("{which}; {} {part}{of_these}", from_to(interval));
    let by = format!(
        "predicted from {} passes with as much decode and no prompt",
        grouped(costs.beside)
    );
    Some(if is_distinct {
        let cost = signed(median as f64);
        format!("A prompt of another in the same pass cost its token {cost} ({range}): {by}.")
    } else {
        format!(
            "What a prompt of another in the same pass cost its token is not distinguishable from 0 ({range}): {by}."
        )
    })
}

/// What prompts of others cost one token, by what is predicted and by what was measured.
pub(super) fn of_token(cost: &PromptCost) -> Vec<String> {
    const WHAT: &str = "prompts of others, in the same pass";
    let shared = cost.shared.map(|shared| match shared {
        Ok(cost) => {
            let figure = if cost.is_distinct() {
                format!("cost {}", signed(cost.cost_ns as f64))
            } else {
                "cost what is not distinguishable from 0".to_owned()
            };
            let interval = from_to([cost.low_ns, cost.high_ns]);
            let by = grouped(cost.beside);
            format!("{WHAT}, {figure} ({interval} {}): predicted from {by} passes", covered(&cost))
        }
        Err(why) => format!("what {WHAT}, cost is not known: {why}"),
    });
    let alone = (cost.alone_ns > 0).then(|| {
        format!("prompts of others, in passes alone, took {}: measured", time(cost.alone_ns as f64))
    });
    shared.into_iter().chain(alone).collect()
}

fn from_to([low_ns, high_ns]: [i64; 2]) -> String {
    format!("{} to {}", signed(low_ns as f64), signed(high_ns as f64))
}

/// How often such an interval is right.
fn covered(cost: &Cost) -> String {
    format!("in {} of such cases", whole_percent(cost.coverage))
}
