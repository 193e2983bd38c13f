//! Frauds made from the table of fields: one number changed alone, and two fields changed so that they agree with each
//! other or not. Each is refused by a code that the table names.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use brickscope::stats::SplitMix64;
use brickscope_analysis::receipt::v1::{NotFinite, Receipt};
use brickscope_analysis::receipt::{
    BorneOut, CanBe, Code, FIELDS, Field, Options, sha256_hex, verify,
};
use serde_json::{Value, json};

use super::contradictions::{is, leaves, plan, schema};
use super::devices::of_seed;
use super::honest::{Plan, Random, receipt, renewed, unsealed};

/// How many frauds of two fields are made from the table.
const PAIRS: u64 = 1200;

/// Whoever changes one number alone, within what it can be, contradicts another one: all but a few are borne out.
#[test]
fn each_number_but_a_few_is_borne_out_by_others() {
    let root = schema();
    let mut random = Random(SplitMix64(7));
    let mut accepted = BTreeMap::<String, Vec<String>>::new();
    let mut tried = BTreeSet::<String>::new();
    for depths in [vec![0], vec![0, 64]] {
        let plan = Plan { depths, n_gen: 12, ..Plan::default() };
        let value = serde_json::to_value(receipt(&plan)).expect("plain data");
        let mut all = Vec::new();
        leaves(root, root, &value, "", &mut all);
        let mut places_of = BTreeMap::<String, Vec<&(String, &Value)>>::new();
        for leaf in &all {
            places_of.entry(pattern(&leaf.0)).or_default().push(leaf);
        }
        for (wanted, places) in places_of {
            for factor in [0.3, 0.9, 1.1, 3.0, 20.0] {
                let (place, schema) = *random.one_of(&places);
                let mut changed = value.clone();
                let leaf = changed.pointer_mut(place).expect("it is there");
                let Some(before) = leaf.as_f64() else { continue };
                let is_whole = is(schema, "integer");
                let least = if is_whole { 7.0 } else { 0.007 };
                let after = if before == 0.0 { factor * least } else { before * factor };
                let after = if is_whole { after.round() } else { after };
                let [least, most] = ["minimum", "maximum"].map(|end| schema[end].as_f64());
                let fits = least.is_none_or(|least| after >= least)
                    && most.is_none_or(|most| after <= most);
                if !fits || after == before {
                    continue;
                }
                tried.insert(wanted.clone());
                *leaf = if is_whole { json!(after as i64) } else { json!(after) };
                let receipt: Receipt = serde_json::from_value(changed).expect("of the right types");
                // Without figures and doubts derived anew: a lone change.
                let receipt = receipt.sealed().expect("numbers");
                if verify(receipt.to_json().as_bytes(), &Options::default()).is_accepted() {
                    accepted.entry(wanted.clone()).or_default().push(format!("{before} → {after}"));
                }
            }
        }
    }
    let found: Vec<&str> = accepted.keys().map(String::as_str).collect();
    tried.retain(|place| {
        let field = Field::at(place).expect("each place has a row");
        matches!(field.borne_out, BorneOut::Alone(_))
    });
    assert_eq!(found, tried.iter().map(String::as_str).collect::<Vec<_>>(), "{accepted:#?}");
}

/// A place as the table of fields has it.
fn pattern(place: &str) -> String {
    let mut parts: Vec<&str> = place.split('/').skip(1).collect();
    for part in &mut parts {
        if part.parse::<u64>().is_ok() {
            *part = "[]";
        }
    }
    if let [map @ ("environment" | "dropped"), ..] = parts[..] {
        return format!("{map}.*");
    }
    parts.join(".").replace(".[]", "[]")
}

/// A receipt of a CPU or of a device, without a seal; one in three has logits that weren't numbers.
fn of_any_kind(random: &mut Random, on_device: bool) -> Receipt {
    let mut receipt = match on_device {
        true => of_seed(random.next(), random.one_of::<&str>(&["cuda", "wgpu"]), "Device"),
        false => unsealed(&plan(random)),
    };
    if random.below(3) == 0 {
        let test = receipt.tests.iter_mut().find(|test| test.n_gen > 0).expect("it decodes");
        let of = test.samples.iter().map(|sample| sample.pass_ns.len() as u64).sum();
        test.not_finite = Some(NotFinite { passes: 1, of, origin: "LmHead".to_owned() });
    }
    renewed(receipt)
}

/// The rows of the table by places in a receipt: most receipts have the same ones.
type Rows = HashMap<String, Option<&'static Field>>;

/// The receipt as JSON, and the leaves that the table has, by their place in it.
struct Leaves {
    value: Value,
    by_field: BTreeMap<&'static str, Vec<String>>,
}

impl Leaves {
    fn of(receipt: &Receipt, root: &Value, rows: &mut Rows) -> Self {
        let value = serde_json::to_value(receipt).expect("plain data");
        let (mut all, mut by_field) = (Vec::new(), BTreeMap::<_, Vec<String>>::new());
        leaves(root, root, &value, "", &mut all);
        // Most leaves are times of passes, one after the other: of one field.
        let mut of_one: Option<(&'static str, Vec<String>)> = None;
        for (place, _) in all {
            // Where the program lay is nobody's business.
            if place == "/run/command/0" {
                continue;
            }
            let row = match rows.get(&place) {
                Some(row) => *row,
                None => *rows.entry(place.clone()).or_insert(Field::at(&pattern(&place))),
            };
            let Some(field) = row else { continue };
            match &mut of_one {
                Some((of, places)) if std::ptr::eq(*of, field.place) => places.push(place),
                _ => {
                    let before = of_one.replace((field.place, vec![place]));
                    if let Some((of, places)) = before {
                        by_field.entry(of).or_default().extend(places);
                    }
                }
            }
        }
        if let Some((of, places)) = of_one {
            by_field.entry(of).or_default().extend(places);
        }
        Self { value, by_field }
    }

    /// Whether a field is there, and not `null`.
    fn has(&self, place: &str) -> bool {
        let places = self.by_field.get(place).into_iter().flatten();
        places.filter_map(|place| self.value.pointer(place)).any(|value| !value.is_null())
    }

    /// Puts something else into one of a field's places, from another receipt or made up, and says so. `None` where nothing
    /// else fits.
    fn change(&mut self, random: &mut Random, field: &Field, other: &Self) -> Option<String> {
        let place = random.one_of(self.by_field.get(field.place)?).clone();
        let before = self.value.pointer(&place)?.clone();
        let theirs = other.by_field.get(field.place).map(|places| random.one_of(places));
        let theirs = theirs.and_then(|place| other.value.pointer(place)).cloned();
        let made_up = made_up(random, field, &before);
        let options = [theirs, made_up].into_iter().flatten();
        let options: Vec<Value> = options.filter(|value| differs(&before, value)).collect();
        let after = options.get(random.below(options.len()))?.clone();
        let what = format!("{place}: {before} → {after}");
        *self.value.pointer_mut(&place)? = after;
        Some(what)
    }

    fn receipt(&self) -> Option<Receipt> {
        serde_json::from_value(self.value.clone()).ok()
    }
}

/// Whether the two aren't the same but for what measured values vary.
fn differs(before: &Value, after: &Value) -> bool {
    match (before.as_f64(), after.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() > 0.5 * a.abs().max(b.abs()),
        // Absent is what nobody could know.
        _ => before != after && !after.is_null(),
    }
}

fn made_up(random: &mut Random, field: &Field, before: &Value) -> Option<Value> {
    Some(match field.can_be {
        CanBe::Number(least, most) => {
            let factor = random.one_of(&[0.1, 0.3, 3.0, 20.0]);
            let number = before.as_f64().filter(|n| *n != 0.0).unwrap_or(7.0) * factor;
            let number = number.clamp(least, most);
            let is_whole = least.fract() == 0.0 && (before.is_u64() || before.is_null());
            if is_whole { json!(number.round() as u64) } else { json!(number) }
        }
        CanBe::Flag => json!(!before.as_bool()?),
        CanBe::Sha256 => json!(sha256_hex(&random.next().to_le_bytes())),
        CanBe::HalfHash => json!(sha256_hex(&random.next().to_le_bytes())[..16].to_owned()),
        // Two that are made up aren't of one day.
        CanBe::Time => {
            let month = if field.place == "timestamp" { 10 } else { 11 };
            json!(format!("2026-{month}-1{}T10:48:12Z", random.below(9)))
        }
        CanBe::OneOf(words) => json!(random.one_of(words)),
        _ => json!(format!("{}-{}", before.as_str().unwrap_or("some"), random.below(1000))),
    })
}

/// How a fraud changes two fields.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pair {
    /// A field, and one that bears it out: the two don't agree any more with each other, or with others.
    OfTwoThatAgree,
    /// A field, and one that has nothing to do with it.
    OfStrangers,
}

/// Frauds of two fields each, made from the table: each is refused by a code that the table names for one of the two.
#[test]
fn of_two_fields_that_are_changed_one_is_refused_by_its_code() {
    let root = schema();
    let is_of_figures =
        |place: &str| place.contains(".aggregates.") || place == "tokens_per_second";
    let of_by: Vec<(&Field, &[Code], &[&str])> = FIELDS
        .iter()
        .filter_map(|field| match field.borne_out {
            BorneOut::By { codes, with } => Some((field, codes, with)),
            _ => None,
        })
        .collect();
    let (mut missed, mut tried, mut changed) = (Vec::new(), 0, BTreeSet::new());
    let mut rows = Rows::new();
    for n in 0..PAIRS {
        let mut random = Random(SplitMix64(5_000_000 + n));
        let pair = if n.is_multiple_of(2) { Pair::OfTwoThatAgree } else { Pair::OfStrangers };
        let (field, codes, with) = of_by[(n / 2) as usize % of_by.len()];
        let on_device = field.place.contains("device") || random.below(4) == 0;
        let [one, other] = [(); 2].map(|()| of_any_kind(&mut random, on_device));
        let mut leaves = Leaves::of(&one, root, &mut rows);
        // Where none of the others is there, nothing bears it out.
        if !with.iter().any(|place| leaves.has(place)) {
            continue;
        }
        let second = match pair {
            Pair::OfTwoThatAgree => {
                Field::at(random.one_of::<&str>(with)).expect("a place of the table")
            }
            Pair::OfStrangers => loop {
                let second = random.one_of(FIELDS);
                // Of another version nothing else is read.
                let is_one = second.place != field.place
                    && !with.contains(&second.place)
                    && second.place != "schema_version"
                    && leaves.by_field.contains_key(second.place);
                if is_one {
                    break second;
                }
            },
        };
        // One of an engine's own is in any category.
        if pair == Pair::OfTwoThatAgree && second.place == "tests[].bricks[].name" {
            continue;
        }
        let mut all: Vec<Code> = codes.to_vec();
        if let (Pair::OfTwoThatAgree, BorneOut::By { codes, .. }) = (pair, second.borne_out) {
            all.extend(codes);
        }
        let other = Leaves::of(&other, root, &mut rows);
        // Figures and doubts are made anew, as a forger does, before a figure is changed.
        let (mut what, mut forged) = (Vec::new(), None);
        for of_figures in [false, true] {
            for field in [second, field] {
                if is_of_figures(field.place) == of_figures {
                    what.extend(leaves.change(&mut random, field, &other));
                }
            }
            let Some(receipt) = leaves.receipt() else { break };
            if of_figures {
                forged = Some(receipt);
            } else {
                leaves.value = serde_json::to_value(renewed(receipt)).expect("plain data");
            }
        }
        let is_changed = |place: &str| {
            what.iter().any(|what| {
                what.split_once(": ").is_some_and(|(changed, _)| pattern(changed) == place)
            })
        };
        if !is_changed(field.place) {
            continue;
        }
        let Some(Ok(receipt)) = forged.map(Receipt::sealed) else { continue };
        changed.insert(field.place);
        tried += 1;
        let found = verify(receipt.to_json().as_bytes(), &Options::default());
        if !found.refusals.iter().any(|refusal| all.contains(&refusal.code)) {
            let said: Vec<String> = found.refusals.iter().map(ToString::to_string).collect();
            missed.push(format!("{pair:?} {n}: {what:?}, by {all:?}: {said:?}"));
        }
    }
    assert!(missed.is_empty(), "{} of {tried}:\n{}", missed.len(), missed.join("\n"));
    assert!(tried >= 400, "{tried}");
    let lacking: Vec<&str> = of_by
        .iter()
        .map(|(field, ..)| field.place)
        .filter(|place| !changed.contains(place))
        .collect();
    assert!(lacking.is_empty(), "never changed: {lacking:?}");
}
