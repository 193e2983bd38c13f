//! Forges a receipt as the bytes say: changes some of its fields, derives what follows from them, and seals it.
//!
//! A fuzzer's mutations of a file's text break its hash, so that nothing behind that check is reached. Here each
//! byte leads somewhere: to a field, and to what becomes of it.

use std::sync::LazyLock;

use brickscope_analysis::receipt::{Aggregates, Options, Receipt, derived_doubts, verify};
use serde_json::{Number, Value, json};

/// Receipts that are accepted.
static HONEST: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let texts = [
        include_str!("../../corpus/receipt/ok-decode.json"),
        include_str!("../../corpus/receipt/ok-gpu.json"),
        include_str!("../../corpus/receipt/ok-prefill-and-decode-at-depth.json"),
    ];
    texts.iter().map(|text| serde_json::from_str(text).expect("JSON")).collect()
});

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../docs/receipt-v1.schema.json")).expect("JSON")
});

struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(u16::from_le_bytes([self.next(), self.next()])) % n.max(1)
    }

    fn number(&mut self) -> u64 {
        let width = self.below(9);
        (0..width).fold(0, |all, _| all << 8 | u64::from(self.next()))
    }
}

/// Panics if a forged receipt is refused without a readable sentence, or accepted with a number out of its range.
pub fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let which = bytes.below(HONEST.len());
    let mut forged = HONEST[which].clone();
    for _ in 0..=bytes.below(4) {
        change(&mut forged, &mut bytes);
    }
    let Ok(mut receipt) = serde_json::from_value::<Receipt>(forged) else { return };
    let derives = bytes.next();
    if derives & 1 == 0 {
        for test in &mut receipt.tests {
            test.aggregates = Aggregates::of(&test.samples);
        }
    }
    if derives & 2 == 0 {
        receipt.load.doubts = derived_doubts(&receipt);
    }
    let Ok(sealed) = receipt.sealed() else { return };
    let verdict = verify(sealed.to_json().as_bytes(), &Options::default());
    let sentences = verdict.refusals.iter().map(ToString::to_string);
    for sentence in sentences.chain(verdict.doubts.clone()).chain(verdict.not_checked.clone()) {
        assert!(!sentence.is_empty() && !sentence.chars().any(char::is_control), "{sentence:?}");
    }
    if verdict.is_accepted() {
        in_range(&SCHEMA, &serde_json::to_value(&sealed).expect("plain data"), "");
    }
}

/// Changes one value, or the number of items of one table.
fn change(value: &mut Value, bytes: &mut Bytes<'_>) {
    let inside = match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    // Deep inside more often than not: most of a receipt is there.
    if inside > 0 && !bytes.next().is_multiple_of(16) {
        let which = bytes.below(inside);
        let next = match value {
            Value::Object(fields) => fields.iter_mut().nth(which).map(|(_, field)| field),
            Value::Array(items) => items.get_mut(which),
            _ => None,
        };
        return next.map_or((), |next| change(next, bytes));
    }
    match value {
        Value::Array(items) if !items.is_empty() => {
            let which = bytes.below(items.len());
            match bytes.next() % 3 {
                0 => drop(items.remove(which)),
                1 => items.push(items[which].clone()),
                _ => items.swap(which, 0),
            }
        }
        Value::Number(number) => *value = number_like(number, bytes),
        Value::Bool(flag) => *flag = !*flag,
        Value::String(text) => match bytes.next() % 4 {
            0 => text.clear(),
            1 => text.push(char::from(bytes.next())),
            2 => *text = text.chars().rev().collect(),
            _ => *text = "9".repeat(bytes.below(300)),
        },
        _ => {
            *value = match bytes.next() % 4 {
                0 => Value::Null,
                1 => json!(bytes.number()),
                2 => json!(""),
                _ => json!(1e-3 * bytes.number() as f64),
            }
        }
    }
}

fn number_like(number: &Number, bytes: &mut Bytes<'_>) -> Value {
    let by = bytes.number();
    match (number.as_u64(), bytes.next() % 4) {
        (Some(_), 0) => json!(by),
        (Some(whole), 1) => json!(whole.wrapping_add(by)),
        (Some(whole), 2) => json!(whole.saturating_sub(by)),
        (Some(whole), _) => json!(whole.wrapping_mul(by.max(2))),
        (None, 0) => json!(-(by as f64)),
        (None, 1) => json!(f64::from_bits(by)),
        (None, _) => json!(number.as_f64().unwrap_or(0.0) * (by as f64 / 256.0)),
    }
}

/// Asserts that each number is within the range that the schema has for it.
fn in_range(schema: &Value, value: &Value, place: &str) {
    if let Some(target) = schema["$ref"].as_str() {
        let target = SCHEMA.pointer(target.trim_start_matches('#')).expect("it leads somewhere");
        return in_range(target, value, place);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let choice = choices.iter().find(|choice| choice["type"] != "null");
        return choice.map_or((), |choice| {
            if !value.is_null() {
                in_range(choice, value, place);
            }
        });
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let of_field =
                    schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                in_range(of_field, field, &format!("{place}/{name}"));
            }
        }
        Value::Array(items) => {
            for item in items {
                in_range(&schema["items"], item, place);
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().expect("finite");
            for (bound, is_beyond) in
                [("minimum", f64::lt as fn(&f64, &f64) -> bool), ("maximum", f64::gt)]
            {
                let is_out = schema[bound].as_f64().is_some_and(|limit| is_beyond(&number, &limit));
                assert!(!is_out, "{place} is {number}, beyond its {bound}, and was accepted");
            }
        }
        _ => {}
    }
}
