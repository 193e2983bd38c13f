//! Experts of a mixture on a page.

use brickscope::{Absent, ExpertRuns, ExpertTime, LayerExperts, Phase, Profile};

use crate::provenance::{Files, check, walk};
use crate::read::page;
use crate::samples::sample;

/// Experts of a layer, each with its tokens.
fn layer(layer: u16, n_expert: u32, tokens: &[(u32, u64)]) -> LayerExperts {
    let of = |&(expert, tokens): &(u32, u64)| ExpertRuns {
        expert,
        tokens,
        passes: tokens,
        reads: tokens,
        bytes: 1_250_000 * tokens,
    };
    LayerExperts {
        phase: Phase::Decode,
        layer: Some(layer),
        n_expert: Some(n_expert),
        n_used: Some(2),
        passes: 60,
        reads: 60,
        tokens: 60,
        experts: tokens.iter().map(of).collect(),
        times: Vec::new(),
        timed_passes: 0,
        odd: 0,
        unread: 0,
        unread_absent: None,
    }
}

/// The text and the HTML of the section, after checking each number of the page against the file.
fn section(profile: &Profile) -> (String, String) {
    let page = page(profile);
    let shown = brickscope_analysis::typical::shown(profile);
    let mut files = Files::of(&shown.to_json(), &["runs/today"]);
    files.hear(profile);
    assert!(check(&page, &mut files) > 0);
    let mut text = String::new();
    walk(&page, |around, inside, ends| {
        let is_it = |last: &crate::provenance::Element| last.get("id") == Some("experts");
        if ends && around.last().is_some_and(is_it) {
            inside.clone_into(&mut text);
        }
    });
    let html = page.split("<section id=\"experts\"").nth(1).unwrap_or_default();
    (text, html.split("</section>").next().unwrap_or_default().to_owned())
}

#[test]
fn a_few_experts_have_numbers_and_many_a_picture() {
    let mut profile = sample("moe");
    profile.experts =
        vec![layer(0, 4, &[(0, 60), (1, 15), (3, 45)]), layer(1, 4, &[(2, 60), (3, 60)])];
    let (text, html) = section(&profile);
    assert!(text.contains("Experts in decode") && text.contains("Time by expert is not known"));
    // 60 of 60 tokens chose the busiest of four, on which 30 fall on average.
    assert!(html.contains(">100.0 %<") && html.contains(">2.00<"), "{html}");
    assert!(html.contains(">150 MB<"), "{html}");
    // Five cells of each of two maps, and three that nobody chose.
    assert_eq!(html.matches(" h12 ").count(), 6, "{html}");
    assert_eq!(html.matches("<td class=\"n none\">").count(), 6, "{html}");
    assert_eq!(html.matches("<rect").count(), 0);

    profile.experts = vec![layer(0, 128, &[(0, 60), (127, 1)]), layer(1, 128, &[(5, 2)])];
    let (_, html) = section(&profile);
    assert_eq!(html.matches("<rect").count(), 3, "{html}");
    assert!(html.contains("viewBox=\"0 0 768 12\"") && !html.contains("table class=\"heat"));
    assert!(html.contains("x=\"762\" y=\"0\""), "{html}");
}

#[test]
fn what_is_not_known_of_experts_is_said() {
    let mut profile = sample("moe");
    let reason = "the numbers of the chosen experts are in the memory of CUDA0".to_owned();
    let unread = LayerExperts {
        reads: 0,
        unread: 7,
        unread_absent: Some(Absent { reason }),
        ..layer(0, 8, &[])
    };
    let odd = LayerExperts { layer: None, odd: 3, unread: 2, ..layer(1, 8, &[(7, 9)]) };
    profile.experts = vec![unread, odd];
    let (text, html) = section(&profile);
    assert!(text.contains("are not known, 9 times:") && text.contains("memory of CUDA0"), "{text}");
    assert!(text.contains("3 choices of no expert") && html.contains("none"), "{text}");
}

#[test]
fn a_page_without_experts_has_no_such_section() {
    assert!(!page(&sample("moe")).contains("id=\"experts\""));
}

/// Experts of a layer of which a trace tells the time alone.
fn timed(nth: u16, times: &[(u32, u64)]) -> LayerExperts {
    let of = |&(expert, ns): &(u32, u64)| ExpertTime { expert, ns, kernels: 4, passes: 2 };
    LayerExperts {
        n_expert: None,
        n_used: None,
        passes: 0,
        reads: 0,
        tokens: 0,
        times: times.iter().map(of).collect(),
        timed_passes: 2,
        ..layer(nth, 0, &[])
    }
}

#[test]
fn times_have_a_map_without_tokens() {
    let mut profile = sample("moe");
    profile.experts = vec![timed(0, &[(0, 1_000), (2, 3_000)]), timed(1, &[(1, 6_000)])];
    let (text, html) = section(&profile);
    assert!(text.contains("Time of experts in decode") && text.contains("time of each expert"));
    assert!(text.contains("bytes of its matrices, are not known"), "{text}");
    assert!(!text.contains("Experts in decode") && !text.contains("tokens that chose"), "{text}");
    // 4 µs in two passes, of which the longest ran three quarters: 1.5 times the mean of two.
    assert!(html.contains(">2.0<") && html.contains(">75.0 %<") && html.contains(">1.50<"));
    // The first layer's darkest cell is half of the second's.
    assert_eq!(html.matches(" h6 ").count() + html.matches(" h12 ").count(), 2, "{html}");
    assert_eq!(html.matches("<td class=\"n none\">").count(), 3, "{html}");
    // Of many, a picture.
    profile.experts = vec![timed(0, &[(0, 1_000), (255, 3_000)])];
    let (_, html) = section(&profile);
    assert_eq!(html.matches("<rect").count(), 2, "{html}");
    assert!(html.contains("darker where it ran longer"), "{html}");
}
