//! Whatever is in a file, its page is whole, and runs nothing but our script.

use brickscope::Profile;

use brickscope_testing::hostile;
use proptest::prelude::*;

use crate::provenance::walk;
use crate::read::{page, traced};
use crate::samples::{HOSTILE, on_a_device, sample};

/// Replaces some numbers of a file by impossible ones.
fn disturbed(value: &mut serde_json::Value, at: &mut impl FnMut() -> Option<u64>) {
    match value {
        serde_json::Value::Number(number) if number.is_u64() => {
            if let Some(other) = at() {
                *number = other.into();
            }
        }
        serde_json::Value::Array(values) => {
            values.iter_mut().for_each(|value| disturbed(value, at))
        }
        serde_json::Value::Object(values) => {
            values.values_mut().for_each(|value| disturbed(value, at))
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(brickscope_testing::cases(24))]

    #[test]
    fn whatever_the_numbers_are_the_page_is_whole(
        places in prop::collection::hash_map(
            0_usize..4_000,
            prop_oneof![Just(0), Just(u64::MAX), Just(u64::MAX - 1), 0_u64..300, any::<u64>()],
            1..200,
        ),
    ) {
        let mut value = serde_json::to_value(sample("moe")).expect("JSON");
        let mut nth = 0;
        disturbed(&mut value, &mut || {
            nth += 1;
            places.get(&nth).copied()
        });
        // Most numbers are accepted, whatever they are; otherwise the file is refused.
        if let Ok(profile) = serde_json::from_value::<Profile>(value) {
            walk(&page(&profile), |_, text, _| assert!(!text.contains("NaN") && !text.contains("inf ")));
        }
    }
}

#[test]
fn names_stay_names() {
    let mut profile = sample(HOSTILE);
    profile.lanes[0].name = Some(HOSTILE.to_owned());
    profile.names[0].name = HOSTILE.repeat(10_000);
    let (page, _) = traced(&profile);
    assert!(page.len() < 2 << 20, "{}", page.len());
    // Exactly two scripts: the data and ours.
    assert_eq!(page.matches("<script").count(), 2);
    assert!(!page.contains("hacked()</script>"));
    assert!(!page.contains('\u{202e}') && !page.contains('\u{0}'));
    // No inserted text was expanded again.
    assert!(page.contains("{{title}}"));
}

/// Each text of a file in turn, among them those that no other test makes hostile.
#[test]
fn no_text_of_a_file_controls_forges_or_floods_a_page() {
    let mut on_host = sample("moe");
    // Enough for each section, and fast enough for each text.
    on_host.passes.truncate(4);
    on_host.spans.retain(|span| span.pass.is_none_or(|pass| pass <= 4));
    for profile in [on_host, on_a_device()] {
        let honest = page(&profile).len();
        let value = serde_json::to_value(&profile).expect("JSON");
        let leaves = hostile::places(&value).into_iter();
        for place in leaves.filter(|place| matches!(place, hostile::Place::Leaf(_))) {
            let json = hostile::planted(&value, &place, &hostile::flood(20_000)).to_string();
            let Ok(profile) = Profile::from_json(&json, "x".as_ref()) else { continue };
            let page = page(&profile);
            assert_eq!(hostile::forbidden(&page), None, "{place:?}");
            assert!(page.lines().all(|line| !line.starts_with("FORGED")), "{place:?}");
            assert!(page.len() < honest + 200_000, "{place:?}: {} of {honest}", page.len());
            assert_eq!(page.matches("<script").count(), 2, "{place:?}");
        }
    }
}

#[test]
fn nothing_is_loaded_and_nothing_inline_is_needed() {
    let page = page(&sample("moe"));
    let policy = "default-src 'none'; style-src 'sha256-";
    assert!(page.contains(policy));
    walk(&page, |around, _, _| {
        for element in around {
            for (name, value) in &element.attributes {
                assert!(!name.starts_with("on") && name != "style" && name != "src", "{element:?}");
                assert!(name != "href" || value.starts_with('#'), "{element:?}");
            }
        }
    });
    // The only URL is the namespace of SVG, in our script.
    assert_eq!(page.matches("http").count() - page.matches("http-equiv").count(), 1);
}
