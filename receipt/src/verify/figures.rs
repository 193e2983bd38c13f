//! Compares figures with those that follow from the samples, to the bit.

use serde_json::Value;

use super::{Code, Findings, said};
use crate::v1::{Aggregates, Receipt, Test};

/// Derives the aggregates of a test again.
pub(super) fn test(test: &Test, found: &mut Findings) {
    let derived = Aggregates::of(&test.samples);
    if derived == test.aggregates {
        return;
    }
    let values = [serde_json::to_value(&derived), serde_json::to_value(&test.aggregates)];
    let [Ok(derived), Ok(stated)] = values else { return };
    let mut differences = Vec::new();
    compare("", &derived, &stated, &mut differences);
    for (field, derived, stated) in differences {
        found.refuse(
            Code::AggregateNotOfSamples,
            format!(
                "{field} of test {} is stated as {stated}, but its samples give {derived}",
                said(&test.name)
            ),
        );
    }
}

fn compare(place: &str, derived: &Value, stated: &Value, out: &mut Vec<(String, String, String)>) {
    if derived == stated {
        return;
    }
    if let (Value::Object(derived), Value::Object(stated)) = (derived, stated) {
        for (name, value) in derived {
            let dot = if place.is_empty() { "" } else { "." };
            let stated = stated.get(name).unwrap_or(&Value::Null);
            compare(&format!("{place}{dot}{name}"), value, stated, out);
        }
        return;
    }
    let short = |value: &Value| match value {
        Value::Array(items) if items.len() > 3 => format!("{} other numbers", items.len()),
        value => value.to_string(),
    };
    out.push((place.to_owned(), short(derived), short(stated)));
}

/// Checks the figures of the whole receipt.
pub(super) fn whole(receipt: &Receipt, found: &mut Findings) {
    let decode = receipt.tests.iter().filter(|test| test.n_gen > 0).min_by_key(|t| t.n_depth);
    let median = decode.and_then(|test| test.aggregates.median_ts);
    if receipt.tokens_per_second != median {
        let say = |rate: Option<f64>| rate.map_or("null".to_owned(), |rate| rate.to_string());
        found.refuse(
            Code::AggregateNotOfSamples,
            format!(
                "tokens_per_second is {}, but the median of the decode test at the least depth is {}",
                say(receipt.tokens_per_second),
                say(median)
            ),
        );
    }
}
