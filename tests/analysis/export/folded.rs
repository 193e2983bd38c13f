use std::path::Path;

use brickscope_analysis::stacks::{Class, Frame, Level, Stacks, Unit};
use brickscope_formats::export::folded;
use proptest::prelude::*;

use super::{bytes, deep, functions, named, run, stacks};

fn text(stacks: &Stacks) -> String {
    String::from_utf8(bytes(|out| folded::write(stacks, out))).expect("text")
}

fn read(text: &str) -> Result<Stacks, String> {
    folded::read(text, Path::new("a.folded")).map_err(|error| error.to_string())
}

/// As FlameGraph's `flamegraph.pl` reads a line: the weight is what follows the last blank, and names
/// are between `;`.
fn as_others_read(text: &str) -> Vec<(Vec<&str>, u64)> {
    text.lines()
        .map(|line| {
            let (names, weight) = line.rsplit_once(' ').expect("a blank");
            (names.split(';').collect(), weight.parse().expect("a weight"))
        })
        .collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(stacks in stacks()) {
        let text = text(&stacks);
        let back = read(&text).expect("it was written");
        prop_assert_eq!(named(&back), named(&stacks));
        prop_assert_eq!(back.total(), stacks.total());
        let others = as_others_read(&text);
        prop_assert_eq!(others.iter().map(|(_, weight)| weight).sum::<u64>(), stacks.total());
        for (names, stack) in others.iter().map(|(names, _)| names).zip(stacks.iter()) {
            prop_assert_eq!(names.len(), stack.frames.len());
            let is_plain = |name: &&str| !name.is_empty() && name.trim() == *name;
            prop_assert!(names.iter().all(is_plain), "{:?}", names);
        }
    }

    #[test]
    fn no_text_makes_reading_panic(text in "[ab;% \t\r\n0-9]{0,40}") {
        if let Err(error) = read(&text) {
            prop_assert!(error.starts_with("a.folded"), "{}", error);
        }
    }
}

#[test]
fn a_run_by_layers() {
    assert_eq!(
        text(&run()),
        "prefill;layer 0;unattributed 2\n\
         prefill;layer 0;DownProjection;gemv_q4_k_avx2 300\n\
         prefill;layer 1;unattributed 2\n\
         prefill;layer 1;DownProjection;gemv_q4_k_avx2 300\n\
         decode;layer 0;unattributed 2\n\
         decode;layer 0;DownProjection;gemv_q4_k_avx2 40\n\
         decode;layer 1;unattributed 2\n\
         decode;layer 1;DownProjection;gemv_q4_k_avx2 40\n\
         prefill;unattributed 1\n\
         decode;unattributed 1\n"
    );
}

#[test]
fn names_that_the_format_can_not_say_are_written_as_codes() {
    let stacks = functions(&[
        (vec!["a;b", "line\nline\r", " around\u{a0}"], 1),
        (vec!["100%", "%3B", "%3b", "%", "", "\u{2028}"], 2),
        (vec!["<T as Trait<U>>::f(a, b)", "\"", "имя"], 3),
    ]);
    assert_eq!(
        text(&stacks),
        "a%3Bb;line%0Aline%0D;%20around%C2%A0 1\n\
         100%;%253B;%3b;%25;%;%E2%80%A8 2\n\
         <T as Trait<U>>::f(a, b);\";имя 3\n"
    );
    assert_eq!(named(&read(&text(&stacks)).expect("ours")), named(&stacks));
}

#[test]
fn stacks_of_the_same_names_are_one_line() {
    let mut stacks = Stacks::new(Unit::Nanoseconds, 0);
    for level in [Level::Kernel, Level::Tile] {
        let frame = Frame { name: "kernel".to_owned(), level, class: Class::Other };
        let frame = stacks.frame(frame);
        stacks.add(&[frame], u64::MAX / 2, 0);
    }
    assert_eq!(text(&stacks), format!("kernel {}\n", u64::MAX - 1));
}

#[test]
fn files_of_other_programs_are_read() {
    let text = "swapper;[unknown];cpuidle_enter_state_[k] 12\r\n\
                llama-cli;std::vector<int, std::allocator<int> >::push_back 3\n\
                \n\
                python;main (app.py:7);%2e;50%;a  b\t4\n\
                java;Foo.bar_[j];;clear_page_erms_[k] 1";
    let stacks = read(text).expect("as others write");
    let expected = [
        (vec!["swapper", "[unknown]", "cpuidle_enter_state_[k]"], 12),
        (vec!["llama-cli", "std::vector<int, std::allocator<int> >::push_back"], 3),
        (vec!["python", "main (app.py:7)", "%2e", "50%", "a  b"], 4),
        (vec!["java", "Foo.bar_[j]", "", "clear_page_erms_[k]"], 1),
    ];
    assert_eq!(named(&stacks), named(&functions(&expected)));
    let classes: Vec<u64> = stacks.by_class().iter().map(|sum| sum.weight).collect();
    assert_eq!(classes, [0, 0, 1, 12, 0, 7]);
    assert_eq!((stacks.unit, stacks.blocks), (Unit::Samples, 0));
}

#[test]
fn equal_lines_add_up_and_stacks_without_weight_are_none() {
    let stacks = read("a;b 1\na 5\na;b 2\nc 0\n").expect("folded");
    assert_eq!(named(&stacks), named(&functions(&[(vec!["a", "b"], 3), (vec!["a"], 5)])));
}

#[test]
fn what_is_wrong_is_said_with_the_line() {
    for (text, expected) in [
        (
            "",
            "a.folded has no stack: each line should be frames with `;` between them, a blank and a count",
        ),
        (
            "\n\n",
            "a.folded has no stack: each line should be frames with `;` between them, a blank and a count",
        ),
        (
            "a 0",
            "a.folded has no stack: each line should be frames with `;` between them, a blank and a count",
        ),
        (
            "a;b 1\na;b",
            "a.folded, line 2: does not end with a blank and a number, the weight of its stack",
        ),
        (
            "a 1.5",
            "a.folded, line 1: its weight has a fraction, and samples are whole: `import --unit ns`, `us` or `ms` reads times",
        ),
        (
            "a -1",
            "a.folded, line 1: does not end with a blank and a number, the weight of its stack",
        ),
        (
            "a +1",
            "a.folded, line 1: does not end with a blank and a number, the weight of its stack",
        ),
        ("7", "a.folded, line 1: does not end with a blank and a number, the weight of its stack"),
        (" 7", "a.folded, line 1: has a weight, but no stack before it"),
        (
            "a 18446744073709551616",
            "a.folded, line 1: its weight, or the sum of all up to it, is more than 18446744073709551615",
        ),
        (
            "a 18446744073709551615\nb 1",
            "a.folded, line 2: its weight, or the sum of all up to it, is more than 18446744073709551615",
        ),
    ] {
        assert_eq!(read(text).expect_err(text), expected);
    }
    let long = format!("a 1\n{} 1\n", "x".repeat(1 << 20));
    assert_eq!(read(&long).expect_err("long"), "a.folded, line 2: is longer than 1048576 bytes");
    let deep = format!("{}a 1\n", "a;".repeat(1 << 14));
    assert_eq!(read(&deep).expect_err("deep"), "a.folded, line 1: has more than 16384 frames");
}

#[test]
fn two_thousand_frames_are_read_back() {
    let stacks = deep();
    assert_eq!(named(&read(&text(&stacks)).expect("ours")), named(&stacks));
}

#[test]
fn what_the_format_can_not_say_is_refused() {
    let write = |stacks: &Stacks| folded::write(stacks, &mut Vec::new()).map_err(|e| e.to_string());
    let empty = Stacks::new(Unit::Samples, 0);
    assert_eq!(
        write(&empty).expect_err("empty"),
        "there is no stack: the folded format can't represent an empty profile"
    );
    let no_frames: [(Vec<&str>, u64); 1] = [(vec![], 1)];
    assert_eq!(
        write(&functions(&no_frames)).expect_err("no frames"),
        "a stack has no frames, which the folded format can't represent"
    );
}
