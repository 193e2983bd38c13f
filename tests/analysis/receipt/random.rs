//! Honest receipts at random, and receipts with anything in them.

use brickscope_analysis::receipt::{Options, Receipt, rerun_agrees, verify};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::honest::{Plan, receipt};

fn plans() -> impl Strategy<Value = Plan> {
    let work = (
        any::<u64>(),
        prop_oneof![300_000_u64..3_000_000, 50_000_000_u64..8_000_000_000],
        prop::sample::select(vec!["q4_k", "q8_0", "tq2_0", "f16", "f32"]),
        prop::sample::select(vec!["scalar", "avx2", "neon", "cuda", "avx512"]),
        prop::sample::select(vec![1_u32, 2, 3, 8, 64]),
    );
    let run = (
        1_u32..12,
        2_u32..6,
        prop::sample::select(vec![vec![0], vec![0, 512], vec![64]]),
        prop::sample::select(vec![0_u64, 1, 33, 128]),
        1_u64..24,
        any::<bool>(),
        prop::sample::select(vec![0.004, 0.01, 0.05]),
        any::<bool>(),
    );
    (work, run).prop_map(|((seed, parameters, quantization, kernels, threads), run)| {
        let (repetitions, warm_up, depths, n_prompt, n_gen, profiled, noise, has_caches) = run;
        Plan {
            seed,
            parameters,
            quantization,
            kernels,
            threads,
            repetitions,
            warm_up: warm_up + 1,
            depths,
            n_prompt,
            n_gen,
            profiled,
            noise,
            has_caches,
        }
    })
}

/// The places of a value, each as the way from the root.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| places(item, &format!("{at}/{i}"), out));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| places(field, &format!("{at}/{name}"), out));
        }
        _ => {}
    }
}

/// What may stand anywhere in a file.
fn anything() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![0_u64..4, Just(u64::MAX), Just(1 << 53), any::<u64>()].prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![Just(0.0), Just(-1.0), Just(1e300), Just(5e-324)].prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([0, u64::MAX, 1])),
    ]
}

fn small() -> Plan {
    Plan { parameters: 1_000_000, repetitions: 3, n_gen: 4, n_prompt: 40, ..Plan::default() }
}

/// Seals a value as a forger does: if it is a receipt at all.
fn sealed(value: Value) -> Value {
    match serde_json::from_value::<Receipt>(value.clone()).map(Receipt::sealed) {
        Ok(Ok(receipt)) => serde_json::to_value(receipt).expect("plain data"),
        _ => value,
    }
}

proptest! {
    #[test]
    fn honest_receipts_are_accepted(plan in plans()) {
        let receipt = receipt(&plan);
        let found = verify(receipt.to_json().as_bytes(), &Options::default());
        prop_assert!(found.is_accepted(), "{:#?}", found.refusals);
        prop_assert_eq!(rerun_agrees(&receipt, &receipt, 0.0, &[]), Default::default());
    }

    #[test]
    fn whatever_a_field_says_there_is_a_verdict(
        changes in prop::collection::vec((any::<prop::sample::Index>(), anything()), 1..4),
        require_gpu_kernels in any::<bool>(),
    ) {
        let mut value = serde_json::to_value(receipt(&small())).expect("plain data");
        for (place, change) in changes {
            let mut all = Vec::new();
            places(&value, "", &mut all);
            *value.pointer_mut(place.get::<String>(&all)).expect("it is a place") = change;
        }
        let value = sealed(value);
        let options = Options { require_gpu_kernels, ..Options::default() };
        let found = verify(value.to_string().as_bytes(), &options);
        for refusal in &found.refusals {
            let sentence = refusal.to_string();
            prop_assert!(!sentence.is_empty() && !sentence.chars().any(char::is_control));
        }
        if let Ok(changed) = serde_json::from_value::<Receipt>(value) {
            let _ = rerun_agrees(&receipt(&small()), &changed, 0.1, &[]);
            let _ = rerun_agrees(&changed, &receipt(&small()), 0.1, &[]);
        }
    }

    #[test]
    fn any_bytes_have_a_verdict(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(!verify(&bytes, &Options::default()).is_accepted());
    }
}
