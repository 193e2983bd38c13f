use brickscope::{BrickProfiler, Profile};
use brickscope_formats::export::csv;
use proptest::prelude::*;

use brickscope_testing::nesting;

use super::{bytes, name};

/// The cells of each line, by RFC 4180; a text that was in quotes is told from one that wasn't.
fn read(bytes: &[u8]) -> Vec<Vec<String>> {
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    let (mut lines, mut line, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut letters = text.chars().peekable();
    let mut is_quoted = false;
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' if is_quoted => is_quoted = false,
            '"' => {
                assert!(cell.is_empty(), "a quote in the middle of a cell");
                is_quoted = true;
            }
            letter if is_quoted => cell.push(letter),
            ',' => line.push(std::mem::take(&mut cell)),
            '\r' => {
                assert_eq!(letters.next(), Some('\n'));
                line.push(std::mem::take(&mut cell));
                lines.push(std::mem::take(&mut line));
            }
            '\n' => panic!("a line ends without a carriage return"),
            letter => cell.push(letter),
        }
    }
    assert!(line.is_empty() && cell.is_empty() && !is_quoted, "the last line ends");
    lines
}

fn spans(profile: &Profile) -> Vec<Vec<String>> {
    read(&bytes(|out| csv::spans(profile, out, &mut |_| {})))
}

/// The cells of a column.
fn column<'l>(lines: &'l [Vec<String>], name: &str) -> Vec<&'l str> {
    let at = lines[0].iter().position(|head| head == name).expect("a column");
    lines[1..].iter().map(|line| line[at].as_str()).collect()
}

proptest! {
    #[test]
    fn each_span_is_a_line(passes in prop::collection::vec(nesting::steps(), 0..4)) {
        let profile = super::profile(&passes, 1 << 16);
        let lines = spans(&profile);
        prop_assert!(lines.iter().all(|line| line.len() == lines[0].len()));
        let numbers = |name| -> Vec<u64> {
            column(&lines, name).iter().map(|cell| cell.parse().expect("a number")).collect()
        };
        let of = |value: fn(&brickscope::Span) -> u64| -> Vec<u64> {
            profile.spans.iter().map(value).collect()
        };
        prop_assert_eq!(numbers("start_ns"), of(|span| span.start_ns));
        prop_assert_eq!(numbers("duration_ns"), of(|span| span.duration_ns));
        prop_assert_eq!(numbers("exclusive_ns"), of(|span| span.exclusive_ns));
        prop_assert_eq!(numbers("row"), (0..profile.spans.len() as u64).collect::<Vec<_>>());
        let parents = column(&lines, "parent");
        for (cell, span) in parents.into_iter().zip(&profile.spans) {
            prop_assert_eq!(cell.parse().ok(), span.parent);
            prop_assert_eq!(cell.is_empty(), span.parent.is_none());
        }
    }

    #[test]
    fn names_come_back_and_none_is_a_formula(name in name()) {
        let profiler = BrickProfiler::new();
        profiler.enable();
        let brick = profiler.start(&name);
        profiler.stop(brick, 0);
        let profile = profiler.profile();
        let totals = read(&bytes(|out| csv::totals(&profile, out)));
        for lines in [spans(&profile), totals] {
            let cells = column(&lines, "name");
            let [cell] = cells[..] else { panic!("one span: {cells:?}") };
            prop_assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r']), "{:?}", cell);
            prop_assert_eq!(cell.strip_prefix('\'').unwrap_or(cell), &name);
        }
    }
}

#[test]
fn what_is_absent_is_empty() {
    let profiler = BrickProfiler::new();
    profiler.enable();
    let brick = profiler.start("=1+1");
    profiler.stop(brick, 0);
    let lines = spans(&profiler.profile());
    assert_eq!(column(&lines, "name"), ["'=1+1"]);
    for name in ["device", "stream", "parent", "pass", "phase", "layer", "elements", "flops", "ptx"]
    {
        assert_eq!(column(&lines, name), [""], "{name}");
    }
    let empty = Profile::empty(Default::default());
    assert_eq!(spans(&empty).len(), 1);
    assert_eq!(read(&bytes(|out| csv::passes(&empty, out))).len(), 1);
    assert_eq!(read(&bytes(|out| csv::totals(&empty, out))).len(), 1);
}
