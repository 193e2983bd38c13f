//! No cycles of modules in any package, and no package that depends on what it must not know.
//! ARCHITECTURE.md says why.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which module of a package's top level uses which others.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Every package of the workspace, by its folder.
const PACKAGES: [&str; 12] = [
    ".", "analysis", "cli", "engine", "kernels", "lake", "live", "llama", "profile", "report",
    "sampler", "tracing",
];

/// What a package may depend on, where that is a rule; names as in its manifest.
const MAY_DEPEND_ON: [(&str, &[&str]); 6] = [
    ("profile", &["serde", "serde_json", "presentar-terminal"]),
    (
        "analysis",
        &[
            "brickscope-profile",
            "ed25519-dalek",
            "flate2",
            "prost",
            "serde",
            "serde_json",
            "serde_json_canonicalizer",
            "sha2",
            "textwrap",
            "unicode-width",
        ],
    ),
    (
        ".",
        &[
            "brickscope-kernels",
            "brickscope-profile",
            "libc",
            "loom",
            "perf-event2",
            "presentar-terminal",
            "serde_json",
        ],
    ),
    ("kernels", &[]),
    ("report", &["brickscope-analysis", "brickscope-profile", "serde", "serde_json"]),
    ("tracing", &["brickscope", "tracing-core", "tracing-subscriber"]),
];

/// What a package must not depend on, where its list is longer than that.
const MUST_NOT_DEPEND_ON: [(&str, &[&str]); 3] = [
    ("engine", &["brickscope-analysis", "brickscope-live", "brickscope-sampler"]),
    // Its users have an engine, which is llama.cpp.
    ("llama", &["brickscope-engine", "brickscope-kernels", "llama-cpp-sys-2"]),
    ("sampler", &["brickscope", "brickscope-analysis", "brickscope-profile"]),
];

/// Modules that use each other and may: products are methods of `Kernels`, and take `Kernels`.
const KNOWN: (&str, [&str; 4]) = ("kernels", ["gemm", "inputs", "kernels", "matmul"]);

#[test]
fn no_package_has_a_circle_of_modules() {
    let root = brickscope_testing::root();
    let mut circles = Vec::new();
    for package in PACKAGES {
        let uses = uses_in(&root.join(package).join("src"));
        assert!(uses.len() > 1, "{package} has modules");
        let is_known = |circle: &String| {
            package == KNOWN.0 && circle.split(" → ").all(|module| KNOWN.1.contains(&module))
        };
        let new = circles_in(&uses).into_iter().filter(|circle| !is_known(circle));
        circles.extend(new.map(|circle| format!("{package}: {circle}")));
    }
    assert!(circles.is_empty(), "modules that use each other:\n{}", circles.join("\n"));
}

#[test]
fn no_package_depends_on_what_it_must_not_know() {
    let root = brickscope_testing::root();
    for (package, allowed) in MAY_DEPEND_ON {
        let manifest =
            fs::read_to_string(root.join(package).join("Cargo.toml")).expect("a manifest");
        let found = dependencies(&manifest);
        let forbidden: Vec<&String> =
            found.iter().filter(|name| !allowed.contains(&name.as_str())).collect();
        assert!(forbidden.is_empty(), "{package} must not depend on {forbidden:?}");
    }
    for (package, forbidden) in MUST_NOT_DEPEND_ON {
        let manifest =
            fs::read_to_string(root.join(package).join("Cargo.toml")).expect("a manifest");
        let found = dependencies(&manifest);
        let found: Vec<&&str> = forbidden.iter().filter(|name| found.contains(**name)).collect();
        assert!(found.is_empty(), "{package} must not depend on {found:?}");
    }
}

#[test]
fn a_planted_circle_is_found_however_it_is_written() {
    let ways = [
        ("use crate::b::Thing;", "use crate::{\n    a::{Other, More},\n    c,\n};"),
        ("fn f() { crate::b::go() }", "pub(crate) use crate::a;"),
        ("use super::b;", "use super::{a::X, c::Y};"),
        // Through what the root re-exports.
        ("use crate::{More, Thing};", "use crate::X;"),
    ];
    for (in_a, in_b) in ways {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        write(
            "lib.rs",
            "mod a;\nmod b;\nmod c;\npub use a::X;\npub use crate::b::{Other, Thing};\n",
        );
        write("a.rs", in_a);
        write("b/mod.rs", "mod inner;\n");
        write("b/inner.rs", &in_b.replace("super::", "super::super::"));
        write("c.rs", "//! As `crate::a` does.\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n");
        let uses = uses_in(folder.path());
        assert_eq!(circles_in(&uses), ["a → b → a"], "{in_a} {in_b}");
        // Without one of the two there is no circle, since tests and comments don't count.
        write("a.rs", "");
        assert_eq!(circles_in(&uses_in(folder.path())), [""; 0], "{in_b}");
    }
}

#[test]
fn a_planted_dependency_is_found_in_every_table() {
    let manifest = "[workspace.dependencies]\nhttp = \"1\"\n[package]\nname = \"x\"\n[dependencies]\nserde = \"1\"\nlibc.workspace = true\n\
        [target.'cfg(unix)'.dependencies]\nrustix = { version = \"1\" }\n[dependencies.tokio]\n\
        version = \"1\"\n[dev-dependencies]\ninsta = \"1\"\n[build-dependencies]\ncc = \"1\"\n";
    let found = dependencies(manifest);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["cc", "libc", "rustix", "serde", "tokio"]);
}

/// The names of all dependencies but those of tests.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_table = false;
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']').trim_start_matches('[');
            is_table = false;
            if table.contains("dev-dependencies") || table.starts_with("workspace") {
                continue;
            }
            if table.ends_with("dependencies") {
                is_table = true;
            } else if let Some((_, name)) = table.rsplit_once("dependencies.") {
                found.insert(name.to_owned());
            }
        } else if is_table && let Some((name, _)) = line.split_once('=') {
            let name = name.trim().split('.').next().unwrap_or_default();
            found.insert(name.to_owned());
        }
    }
    found
}

/// Each knot of modules, as the shortest way from its first module back to itself.
fn circles_in(uses: &Uses) -> Vec<String> {
    let mut circles = Vec::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for start in uses.keys() {
        if known.contains(start.as_str()) {
            continue;
        }
        // Breadth first, with how each module was reached.
        let mut from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = std::collections::VecDeque::from([start.as_str()]);
        while let Some(module) = queue.pop_front() {
            for next in &uses[module] {
                if !from.contains_key(next.as_str()) {
                    from.insert(next, module);
                    queue.push_back(next);
                }
            }
        }
        if from.contains_key(start.as_str()) {
            let mut way = vec![start.as_str()];
            while way.len() == 1 || way[way.len() - 1] != start {
                way.push(from[way[way.len() - 1]]);
            }
            way.reverse();
            known.extend(&way);
            circles.push(way.join(" → "));
        }
    }
    circles
}

/// The modules that the names come from which a crate's root re-exports.
fn re_exports(root: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut from = BTreeMap::new();
    for statement in without_tests(&without_comments(root)).split(';') {
        let Some((_, path)) = statement.rsplit_once("use ") else { continue };
        let path = path.trim_start().trim_start_matches("crate::").trim_start_matches("self::");
        let Some((module, names)) = path.split_once("::") else { continue };
        if modules.contains(module) {
            let names = names.split(|c: char| !c.is_alphanumeric() && c != '_');
            from.extend(names.map(|name| (name.to_owned(), module.to_owned())));
        }
    }
    // A module's own name is that module.
    from.retain(|name, _| !name.is_empty() && !modules.contains(name));
    from
}

/// What the modules at the top of a source folder use of each other, outside of tests.
fn uses_in(src: &Path) -> Uses {
    let mut files = Vec::new();
    collect_files(src, &mut Vec::new(), &mut files);
    let top = |path: &[String]| path.first().cloned();
    let modules: BTreeSet<String> = files.iter().filter_map(|(path, _)| top(path)).collect();
    let mut uses: Uses = modules.iter().map(|module| (module.clone(), BTreeSet::new())).collect();
    let roots = files.iter().filter(|(path, _)| path.is_empty());
    let re_exported: BTreeMap<String, String> = roots
        .flat_map(|(_, file)| {
            re_exports(&fs::read_to_string(file).expect("source is text"), &modules)
        })
        .collect();
    for (path, file) in &files {
        let Some(module) = top(path) else { continue };
        let text = fs::read_to_string(file).expect("source is text");
        for used in top_modules_used(&without_tests(&without_comments(&text)), path.len()) {
            let used = re_exported.get(&used).cloned().unwrap_or(used);
            if used != module && modules.contains(&used) {
                uses.get_mut(&module).expect("each has a row").insert(used);
            }
        }
    }
    uses
}

/// Source files with the path of their module; that of the crate's root is empty.
fn collect_files(folder: &Path, path: &mut Vec<String>, files: &mut Vec<(Vec<String>, PathBuf)>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for entry in entries {
        let name = entry.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let is_root = path.is_empty() && ["lib", "main"].contains(&name.as_str());
        if entry.is_dir() {
            path.push(name);
            collect_files(&entry, path, files);
            path.pop();
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            // A file of its own for tests.
            if name == "tests" || path.iter().any(|part| part == "tests") {
                continue;
            }
            let mut module = path.clone();
            if name != "mod" && !is_root {
                module.push(name);
            }
            files.push((module, entry));
        }
    }
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).fold(
        String::new(),
        |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        },
    )
}

/// The text without the modules that are only there for tests.
fn without_tests(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some(at) = rest.find("#[cfg(") {
        let (before, attribute) = rest.split_at(at);
        kept.push_str(before);
        let condition_end = attribute.find(")]").map_or(attribute.len(), |end| end + 2);
        let (condition, after) = attribute.split_at(condition_end);
        let is_test = condition.contains("(test") && after.trim_start().starts_with("mod ");
        match after.find('{').filter(|_| is_test) {
            Some(open) if after.find(';').is_none_or(|end| open < end) => {
                // Formatted code closes a block in the column in which it began: at the first for a module.
                let end = after.find("\n}\n").map_or(after.len(), |end| end + 3);
                rest = &after[end..];
            }
            _ => {
                kept.push_str(condition);
                rest = after;
            }
        }
    }
    kept + rest
}

/// The first segments of all paths from the crate's root, in a module so many levels below it.
fn top_modules_used(text: &str, depth: usize) -> BTreeSet<String> {
    let up = "super::".repeat(depth);
    let mut found = BTreeSet::new();
    for root in ["crate::", up.as_str()] {
        for (at, _) in text.match_indices(root) {
            let is_longer = text[..at].ends_with("super::")
                || text[..at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c));
            if !root.is_empty() && !is_longer {
                found.extend(first_segments(&text[at + root.len()..]));
            }
        }
    }
    found
}

/// `a` of `a::b`, and `a` and `c` of `{a::{b, d}, c}`.
fn first_segments(path: &str) -> Vec<String> {
    let word = |text: &str| {
        let text = text.trim_start();
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        text[..end].to_owned()
    };
    let Some(list) = path.strip_prefix('{') else { return vec![word(path)] };
    let mut segments = Vec::new();
    let mut depth = 0;
    let mut begin = 0;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                segments.push(word(&list[begin..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                segments.push(word(&list[begin..at]));
                begin = at + 1;
            }
            _ => {}
        }
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}
