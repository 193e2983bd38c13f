//! The first page that embedders see, on docs.rs: short, and with links that lead somewhere.

use std::fs;

/// What is listed there at most: modules, types, functions and macros.
const MOST_ITEMS: usize = 40;

/// The names of an item `pub use …;`.
fn names(item: &str) -> Vec<&str> {
    let list = match item.split_once('{') {
        Some((_, list)) => list.trim_end_matches(['}', ';']),
        None => item.rsplit("::").next().unwrap_or_default().trim_end_matches(';'),
    };
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

#[test]
fn the_root_of_the_crate_lists_what_an_engine_needs() {
    let text = fs::read_to_string(brickscope_testing::root().join("src/lib.rs")).expect("text");
    let mut shown = vec!["brick!".to_owned()];
    let mut is_hidden = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == "#[doc(hidden)]" {
            is_hidden = true;
        } else if let Some(module) = line.strip_prefix("pub mod ") {
            shown.push(module.trim_end_matches([';', '{', ' ']).to_owned());
        } else if line.starts_with("pub use ") {
            let mut item = line.to_owned();
            while !item.ends_with(';') {
                item += lines.next().expect("it ends");
            }
            if !std::mem::take(&mut is_hidden) {
                shown.extend(names(&item).into_iter().map(str::to_owned));
            }
        }
    }
    for needed in ["BrickProfiler", "PassTimer", "BrickId", "misuse", "device"] {
        assert!(shown.iter().any(|name| name == needed), "{needed}: {shown:?}");
    }
    assert!(!shown.iter().any(|name| name == "*"), "{shown:?}");
    assert!(shown.len() <= MOST_ITEMS, "{}: {shown:?}", shown.len());
}

#[test]
fn the_readme_of_the_crate_has_no_link_that_only_the_repository_knows() {
    let readme = brickscope_testing::root().join("src/README.md");
    let text = fs::read_to_string(readme).expect("text");
    let links: Vec<&str> = text.split("](").skip(1).collect();
    assert!(links.len() >= 4, "{links:?}");
    for link in links {
        let link = link.split(')').next().unwrap_or_default();
        let page = link.strip_prefix("https://github.com/brickscope/brickscope");
        let page = page.unwrap_or_else(|| panic!("{link} leads nowhere on docs.rs"));
        if let Some(path) = page.strip_prefix("/blob/main/") {
            let path = path.split('#').next().unwrap_or_default();
            assert!(brickscope_testing::root().join(path).is_file(), "there is no {path}");
        }
    }
}

/// Someone may have the folder alone.
#[test]
fn the_pages_of_docs_have_no_link_out_of_their_folder_and_none_that_leads_nowhere() {
    let root = brickscope_testing::root();
    let docs = fs::canonicalize(root.join("docs")).expect("a folder");
    let mut found = 0;
    for folder in [docs.clone(), docs.join("evidence")] {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let page = entry.expect("an entry").path();
            if page.extension().is_none_or(|end| end != "md") {
                continue;
            }
            let text = fs::read_to_string(&page).expect("text");
            for link in text.split("](").skip(1) {
                let link = link.split(')').next().unwrap_or_default();
                let path = link.split('#').next().unwrap_or_default();
                let what = format!("{}: {link}", page.display());
                found += 1;
                if let Some(path) = path.strip_prefix("https://github.com/brickscope/brickscope/") {
                    let of_main = |kind: &str| path.strip_prefix(kind)?.strip_prefix("/main/");
                    let path = of_main("blob").or_else(|| of_main("tree"));
                    assert!(path.is_some_and(|path| root.join(path).exists()), "{what}");
                } else if !path.is_empty() && !path.contains("://") {
                    let leads = fs::canonicalize(folder.join(path));
                    assert!(leads.is_ok_and(|to| to.starts_with(&docs)), "{what}");
                }
            }
        }
    }
    assert!(found > 100, "{found}");
}
