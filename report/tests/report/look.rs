//! What pages look like in a real browser at three widths, in light and in dark: their text and how it is laid out
//! is what the goldens have, with any font; and nothing of it is cut, covered or too pale to read.

use brickscope::Profile;
use brickscope_report::of_two;
use brickscope_testing::chromium;
use serde::Deserialize;

use crate::browser::{WATCH, crowded, of_many_bricks, with};
use crate::folder;
use crate::read::page;
use crate::samples::{HOSTILE, on_a_device, sample, served, slower, two_ranks};
use crate::two::compared;

/// Looks at a page, and says what is wrong with it.
const LOOK: &str = include_str!("look.js");

/// Adds text of each kind that any page has.
const KINDS: &str = include_str!("kinds.js");

/// Chooses two runs of a folder.
const CHOOSE: &str = r#"
window.act = function () {
    Array.from(document.querySelectorAll("table.runs input")).forEach(function (box, nth) { if (nth === 1 || nth === 120) box.click(); });
};
"#;

/// The first has the golden of all; of the others it has what is otherwise there.
const WINDOWS: [[u32; 2]; 3] = [[1280, 900], [480, 800], [1920, 1000]];

/// What the browser showed.
#[derive(Debug, Deserialize)]
struct Seen {
    /// Errors of scripts, and violations of the page's policy.
    errors: Vec<String>,
    /// What a reader can't read.
    wrong: Vec<String>,
    /// The page in words, in each of both.
    light: String,
    dark: String,
}

/// What is seen of the page after a script did something with it. `None` without a browser.
fn seen(page: &str, act: &str, window: [u32; 2]) -> Option<Seen> {
    let before = format!("{WATCH}{act}");
    let seen: Seen = chromium::seen(&with(page, &before, LOOK), "page.html", window)?;
    assert!(seen.errors.is_empty(), "{:?}", seen.errors);
    assert!(!seen.light.is_empty());
    Some(seen)
}

/// The page in words at each width, after checking that all of it can be read. `None` without a browser.
#[track_caller]
fn looks(page: &str, act: &str) -> Option<String> {
    let mut words: Vec<String> = Vec::new();
    for window in WINDOWS {
        let seen = seen(page, act, window)?;
        assert!(seen.wrong.is_empty(), "at {window:?}: {:#?}", seen.wrong);
        assert_eq!(seen.light, seen.dark, "colours change no text");
        words.push(seen.light);
    }
    let first = &words[0];
    let mut text = format!("{first}\n");
    for ([width, _], other) in WINDOWS.iter().zip(&words).skip(1) {
        assert_eq!(first.lines().count(), other.lines().count(), "at {width} as much: {other}");
        text.push_str(&format!("\nAt {width} pixels:\n"));
        for (_, line) in first.lines().zip(other.lines()).filter(|(one, line)| one != line) {
            text.push_str(&format!("{line}\n"));
        }
    }
    Some(text)
}

/// Without what each run of a test has otherwise: when it was, and the name of its thread.
fn dated(mut profile: Profile) -> Profile {
    "2026-11-21T09:00:00Z".clone_into(&mut profile.created);
    for lane in &mut profile.lanes {
        lane.name = Some("main".to_owned());
    }
    profile
}

#[test]
fn a_run() {
    let Some(text) = looks(&page(&dated(sample("moe"))), "") else { return };
    insta::assert_snapshot!("a_run", text);
}

#[test]
fn a_run_on_a_device_whose_host_waits() {
    let Some(text) = looks(&page(&dated(on_a_device())), "") else { return };
    insta::assert_snapshot!("a_device", text);
}

#[test]
fn requests() {
    let Some(text) = looks(&page(&dated(served())), "") else { return };
    insta::assert_snapshot!("requests", text);
}

#[test]
fn two_runs() {
    let (a, b) = (dated(sample("moe")), dated(slower("moe", 900)));
    let page = of_two(["runs/a", "runs/b"], &compared(&a, &b), [&Ok(a), &Ok(b)]);
    let Some(text) = looks(&page, "") else { return };
    insta::assert_snapshot!("two_runs", text);
}

#[test]
fn a_folder_of_which_two_are_chosen() {
    let page = folder::page(&folder::list(250));
    let Some(text) = looks(&page, CHOOSE) else { return };
    insta::assert_snapshot!("a_folder", text);
}

#[test]
fn pages_of_many_and_of_awkward_things_can_be_read() {
    for profile in [crowded(), of_many_bricks(), two_ranks(), sample(HOSTILE)] {
        // In the narrowest: these pages are long, and the browser takes seconds for each.
        let Some(seen) = seen(&page(&profile), "", WINDOWS[1]) else { return };
        assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
        assert_eq!(seen.light, seen.dark, "colours change no text");
    }
}

#[test]
fn text_of_each_kind_has_a_contrast_in_light_and_in_dark() {
    let Some(seen) = seen(&page(&sample("moe")), KINDS, WINDOWS[0]) else { return };
    // The rest is told of where these kinds were put, which is nowhere on a page.
    let pale: Vec<_> = seen.wrong.iter().filter(|of| of.starts_with("contrast")).collect();
    assert!(pale.is_empty(), "{pale:#?}");
    assert!(seen.light.contains("only A"), "they are there: {}", seen.light);
}
