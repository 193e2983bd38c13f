//! Test of the commands in the documentation: each must parse.

use brickscope_runs::RUNS;

use crate::args::Args;

/// The pages, and the least number of commands on each.
const PAGES: [(&str, &str, usize); 20] = [
    ("README.md", include_str!("../../README.md"), 6),
    ("docs/README.md", include_str!("../../docs/README.md"), 6),
    ("docs/tutorial.md", include_str!("../../docs/tutorial.md"), 5),
    ("docs/profile.md", include_str!("../../docs/profile.md"), 3),
    ("docs/requests.md", include_str!("../../docs/requests.md"), 5),
    ("docs/llama-cpp.md", include_str!("../../docs/llama-cpp.md"), 4),
    ("docs/rust.md", include_str!("../../docs/rust.md"), 4),
    ("docs/models.md", include_str!("../../docs/models.md"), 3),
    ("docs/benchmark.md", include_str!("../../docs/benchmark.md"), 3),
    ("docs/export.md", include_str!("../../docs/export.md"), 12),
    ("docs/flamegraph.md", include_str!("../../docs/flamegraph.md"), 3),
    ("docs/ci.md", include_str!("../../docs/ci.md"), 11),
    // One block of code, without a fence.
    ("action/pull-request.yml", concat!("```\n", include_str!("../../action/pull-request.yml")), 5),
    ("docs/compare.md", include_str!("../../docs/compare.md"), 6),
    ("docs/import.md", include_str!("../../docs/import.md"), 20),
    ("docs/live.md", include_str!("../../docs/live.md"), 5),
    ("docs/findings.md", include_str!("../../docs/findings.md"), 2),
    ("docs/fleet.md", include_str!("../../docs/fleet.md"), 7),
    ("docs/history.md", include_str!("../../docs/history.md"), 10),
    ("src/profiler/porting.md", include_str!("../../src/profiler/porting.md"), 4),
];

/// Each call of brickscope in the code blocks of a page, as words.
fn calls(page: &str) -> Vec<Vec<String>> {
    let blocks = page.split("```").skip(1).step_by(2);
    let told = blocks.filter(|block| !block.starts_with("rust"));
    let lines = told.flat_map(|block| {
        let block = block.replace("\\\n", " ");
        block.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    lines.filter_map(|line| call(&line)).collect()
}

/// The call of brickscope in a line, if there is one: up to a pipe, a redirection, a comment or the next
/// command.
fn call(line: &str) -> Option<Vec<String>> {
    let words = words(line);
    let is_program = |word: &String| word == "brickscope" || word.ends_with("/brickscope");
    let leads = |word: &String| ["$", "run:", "if", "!", "do"].contains(&word.as_str());
    let start = words.iter().position(|word| !leads(word)).filter(|&at| is_program(&words[at]))?;
    // A dependency in a manifest.
    if words.get(start + 1).is_some_and(|word| word == "=") {
        return None;
    }
    let ends = |word: &String| {
        let word = word.trim_start_matches(|c: char| c.is_ascii_digit());
        word.starts_with(['|', '>', '<', '#', ';', '&'])
    };
    let rest = words[start..].iter().take_while(|word| !ends(word));
    Some(rest.cloned().collect())
}

/// Splits a line into words as a shell does, without expansions.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn every_command_in_the_documentation_is_one() {
    for (name, page, least) in PAGES {
        let calls = calls(page);
        assert!(calls.len() >= least, "{name}: {} calls, {calls:?}", calls.len());
        for call in calls {
            if let Err(error) = Args::read(&call) {
                panic!("{name}: {}: {error}", call.join(" "));
            }
        }
    }
}

#[test]
fn imports_in_the_documentation_go_where_names_are_looked_for() {
    let calls = PAGES.iter().flat_map(|(_, page, _)| calls(page));
    let imports: Vec<_> = calls.filter(|call| call.get(1).is_some_and(|w| w == "import")).collect();
    assert!(imports.len() > 10, "{imports:?}");
    for call in imports {
        let Some(at) = call.iter().position(|word| word == "--out") else { continue };
        let out = call.get(at + 1).and_then(|out| out.split_once('/'));
        assert_eq!(out.map(|(folder, _)| folder), Some(RUNS), "{}", call.join(" "));
    }
}

#[test]
fn a_call_ends_where_the_shell_goes_on() {
    let of = |line| call(line).map(|words| words.join("|"));
    assert_eq!(of("brickscope show 'a b' > c"), Some("brickscope|show|a b".to_owned()));
    assert_eq!(
        of("\"$X/brickscope\" show RUN || code=$?"),
        Some("$X/brickscope|show|RUN".to_owned())
    );
    assert_eq!(of("  $ brickscope doctor # all"), Some("brickscope|doctor".to_owned()));
    assert_eq!(of("cp target/release/brickscope bin"), None);
}
