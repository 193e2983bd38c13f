//! SECURITY.md names tests that exist.

use std::fs;
use std::path::Path;

/// The sources in a folder, as one text.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, text);
        } else if name.ends_with(".rs") {
            text.push_str(&fs::read_to_string(&path).expect("text"));
        }
    }
}

#[test]
fn each_promise_of_the_security_page_names_tests_that_exist() {
    let root = brickscope_testing::root();
    let page = fs::read_to_string(root.join("SECURITY.md")).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let rows: Vec<(&str, &str)> = rows.filter(|(promise, _)| *promise != "promise").collect();
    assert!(rows.len() >= 12, "{rows:?}");
    let mut text = String::new();
    sources(root, &mut text);
    for (promise, tests) in rows {
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "{promise}");
        for name in named {
            let exists = match name.contains('/') {
                true => root.join(name).is_file(),
                false => text.contains(&format!("fn {name}(")),
            };
            assert!(exists, "{promise}: there is no test {name}");
        }
    }
}
