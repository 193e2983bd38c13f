//! No cycles of modules in any package, and no package that depends on what it must not know.
//! ARCHITECTURE.md says why.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which module of a package's top level uses which others.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Every package of the workspace, by its folder.
const PACKAGES: [&str; 18] = [
    ".", "analysis", "cli", "compare", "engine", "formats", "kernels", "lake", "live", "llama",
    "load", "profile", "receipt", "report", "runs", "sampler", "top", "tracing",
];

/// What a package may depend on, where that is a rule; names as in its manifest.
const MAY_DEPEND_ON: [(&str, &[&str]); 11] = [
    ("profile", &["serde", "serde_json", "presentar-terminal"]),
    (
        "analysis",
        &[
            "brickscope-compare",
            "brickscope-profile",
            "brickscope-receipt",
            "serde",
            "serde_json",
            "textwrap",
            "unicode-width",
        ],
    ),
    ("compare", &["brickscope-profile", "brickscope-receipt", "serde", "serde_json"]),
    (
        "formats",
        &[
            "brickscope-analysis",
            "brickscope-profile",
            "flate2",
            "prost",
            // Of databases, behind a feature.
            "rusqlite",
            "serde",
            "serde_json",
        ],
    ),
    (
        "receipt",
        &[
            "brickscope-profile",
            "ed25519-dalek",
            "serde",
            "serde_json",
            "serde_json_canonicalizer",
            "sha2",
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
    (
        "runs",
        &[
            "anyhow",
            "brickscope-analysis",
            "brickscope-formats",
            "brickscope-profile",
            "rustix",
            "serde",
            "serde_json",
            "tempfile",
            "toml",
        ],
    ),
    (
        "top",
        &[
            "brickscope-analysis",
            "brickscope-live",
            "brickscope-profile",
            "ratatui",
            "serde",
            "serde_json",
        ],
    ),
    ("tracing", &["brickscope", "tracing-core", "tracing-subscriber"]),
];

/// What a package must not depend on, where its list is longer than that.
const MUST_NOT_DEPEND_ON: [(&str, &[&str]); 3] = [
    ("engine", &["brickscope-analysis", "brickscope-live", "brickscope-sampler"]),
    // Its users have an engine, which is llama.cpp.
    ("llama", &["brickscope-engine", "brickscope-kernels", "llama-cpp-sys-2"]),
    ("sampler", &["brickscope", "brickscope-analysis", "brickscope-profile"]),
];

/// As many modules of one folder may use each other as two sides of one thing; more are no rooms any more.
const MOST_IN_A_KNOT: usize = 2;

#[test]
fn no_package_has_a_circle_of_modules() {
    let root = brickscope_testing::root();
    let mut circles = Vec::new();
    for package in PACKAGES {
        let rooms = rooms_in(&root.join(package).join("src"));
        assert!(rooms[0].uses.len() > 1, "{package} has modules");
        for Room { path, uses } in rooms {
            let most = if path.is_empty() { 1 } else { MOST_IN_A_KNOT };
            for knot in knots_in(&uses).into_iter().filter(|knot| knot.len() > most) {
                let way = circles_in(&uses).join(", ");
                circles.push(format!("{package}/{}: {knot:?}: {way}", path.join("/")));
            }
        }
    }
    assert!(circles.is_empty(), "modules that use each other:\n{}", circles.join("\n"));
}

#[test]
fn no_command_imports_another() {
    let rooms = rooms_in(&brickscope_testing::root().join("cli/src"));
    let commands = rooms.iter().find(|room| room.path == ["cmd"]).expect("there are commands");
    assert!(commands.uses.len() > 20, "{commands:?}");
    let import: Vec<_> = commands.uses.iter().filter(|(_, used)| !used.is_empty()).collect();
    assert!(import.is_empty(), "what two commands need is in a room of its own: {import:?}");
}

/// What is a library of something has a package of its own, and the command is what is left.
const MOST_LINES_OF_THE_COMMAND: usize = 28_000;

#[test]
fn the_command_has_no_room_for_libraries() {
    let src = brickscope_testing::root().join("cli/src");
    let mut files = Vec::new();
    collect_files(&src, &mut Vec::new(), &mut files);
    let lines = |(_, file): &(Vec<String>, PathBuf)| {
        let text = fs::read_to_string(file).expect("it was listed");
        without_tests(&text).lines().count()
    };
    let lines: usize = files.iter().map(lines).sum();
    assert!((20_000..=MOST_LINES_OF_THE_COMMAND).contains(&lines), "{lines}");
}

#[test]
fn a_planted_knot_within_a_folder_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    };
    write("lib.rs", "mod room;\n");
    write("room/mod.rs", "mod a;\nmod b;\nmod c;\npub(crate) use self::c::Thing;\n");
    write("room/a.rs", "use super::b::{self, Other};\n");
    write("room/b/mod.rs", "mod inner;\n");
    write("room/b/inner.rs", "use crate::room::{Thing, b};\n");
    write("room/c.rs", "use crate::{room::a::{X, Y}};\n");
    let rooms = rooms_in(folder.path());
    let [_, room, _] = &rooms[..] else { panic!("{rooms:?}") };
    assert_eq!(room.path, ["room"]);
    assert_eq!(knots_in(&room.uses), [["a", "b", "c"]]);
    write("room/c.rs", "use std::a::X;\n");
    assert_eq!(knots_in(&rooms_in(folder.path())[1].uses), [[""; 0]; 0]);
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
        let uses = &rooms_in(folder.path())[0].uses;
        assert_eq!(circles_in(uses), ["a → b → a"], "{in_a} {in_b}");
        // Without one of the two there is no circle, since tests and comments don't count.
        write("a.rs", "");
        assert_eq!(circles_in(&rooms_in(folder.path())[0].uses), [""; 0], "{in_b}");
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

/// The modules of a package's root or of a folder, and what they use of each other.
#[derive(Debug)]
struct Room {
    /// The path of the folder; none of the root.
    path: Vec<String>,
    uses: Uses,
}

/// Modules each of which uses each other one, by whatever way: those of one.
fn knots_in(uses: &Uses) -> Vec<Vec<String>> {
    fn reached<'u>(uses: &'u Uses, start: &'u str) -> BTreeSet<&'u str> {
        let mut reached: BTreeSet<&str> = BTreeSet::new();
        let mut open = vec![start];
        while let Some(module) = open.pop() {
            let next = uses[module].iter().map(String::as_str);
            open.extend(next.filter(|next| reached.insert(next)));
        }
        reached
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|module| (module.as_str(), reached(uses, module))).collect();
    let knot = |module: &String| -> Vec<String> {
        let both = |other: &&str| reached[other].contains(module.as_str());
        reached[module.as_str()].iter().copied().filter(both).map(str::to_owned).collect()
    };
    let knots: BTreeSet<Vec<String>> = uses.keys().map(knot).collect();
    knots.into_iter().filter(|knot| !knot.is_empty()).collect()
}

/// The modules that the names come from which a module re-exports.
fn re_exports(root: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut from = BTreeMap::new();
    for statement in root.split(';') {
        let Some((_, path)) = statement.rsplit_once("use ") else { continue };
        let path = path.trim_start().trim_start_matches("crate::").trim_start_matches("self::");
        for path in paths_from(path) {
            if let [module, .., name] = &path[..]
                && modules.contains(module)
            {
                from.insert(name.clone(), module.clone());
            }
        }
    }
    // A module's own name is that module.
    from.retain(|name, _| !modules.contains(name));
    from
}

/// The root of a source folder, then each folder in it, with what its modules use of each other outside of tests.
fn rooms_in(src: &Path) -> Vec<Room> {
    let mut files = Vec::new();
    collect_files(src, &mut Vec::new(), &mut files);
    let read = |(path, file): (Vec<String>, PathBuf)| {
        let text = fs::read_to_string(file).expect("source is text");
        let text = without_tests(&without_comments(&text));
        let used = paths_used(&text, &path);
        (path, text, used)
    };
    let files: Vec<_> = files.into_iter().map(read).collect();
    let above =
        |path: &Vec<String>| (0..path.len()).map(|n| path[..n].to_vec()).collect::<Vec<_>>();
    let folders: BTreeSet<Vec<String>> = files.iter().flat_map(|(path, ..)| above(path)).collect();
    let room = |path: Vec<String>| {
        let within =
            |of: &[String]| of.strip_prefix(&path[..]).and_then(|rest| rest.first().cloned());
        let modules: BTreeSet<String> = files.iter().filter_map(|(of, ..)| within(of)).collect();
        let mut uses: Uses =
            modules.iter().map(|module| (module.clone(), BTreeSet::new())).collect();
        let roots = files.iter().filter(|(of, ..)| *of == path);
        let re_exported: BTreeMap<String, String> =
            roots.flat_map(|(_, text, _)| re_exports(text, &modules)).collect();
        for (of, _, used) in &files {
            let Some(module) = within(of) else { continue };
            for used in used.iter().filter_map(|used| within(used)) {
                let used = re_exported.get(&used).cloned().unwrap_or(used);
                if used != module && modules.contains(&used) {
                    uses.get_mut(&module).expect("each has a row").insert(used);
                }
            }
        }
        Room { path, uses }
    };
    folders.into_iter().map(room).collect()
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

/// All paths in the package that a module's text names, from the package's root.
fn paths_used(text: &str, module: &[String]) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for root in ["crate::", "super::"] {
        for (at, _) in text.match_indices(root) {
            let is_longer = text[..at].ends_with("super::")
                || text[..at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c));
            if is_longer {
                continue;
            }
            let rest = text[at..].trim_start_matches("crate::");
            let path = rest.trim_start_matches("super::");
            let up = (rest.len() - path.len()) / "super::".len();
            let base = if root == "crate::" {
                Some(&[][..])
            } else {
                module.len().checked_sub(up).map(|n| &module[..n])
            };
            // Of a module within a file, more than the file's path says.
            let Some(base) = base else { continue };
            found.extend(paths_from(path).into_iter().map(|path| [base, &path[..]].concat()));
        }
    }
    found
}

/// `a::b` and `a::d::e` of `a::{b, d::e}`, as segments.
fn paths_from(text: &str) -> Vec<Vec<String>> {
    tree(text).0
}

/// The paths of a tree of `use`, and what comes after it.
fn tree(text: &str) -> (Vec<Vec<String>>, &str) {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut all = Vec::new();
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            match rest.chars().next() {
                None => return (all, rest),
                Some('}') => return (all, &rest[1..]),
                Some(_) => {}
            }
            let before = rest.len();
            let (paths, after) = tree(rest);
            all.extend(paths);
            rest = after;
            if rest.len() == before {
                // No path: a block of code, perhaps.
                return (all, rest);
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if word.is_empty() {
        return (Vec::new(), rest);
    }
    let own = vec![word.to_owned()];
    let Some(inner) = rest.strip_prefix("::") else {
        let renamed = rest.trim_start().strip_prefix("as ").map(|name| {
            let name = name.trim_start();
            &name[name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len())..]
        });
        return (vec![own], renamed.unwrap_or(rest));
    };
    let (paths, rest) = tree(inner);
    if paths.is_empty() {
        return (vec![own], rest);
    }
    (paths.into_iter().map(|path| [own.clone(), path].concat()).collect(), rest)
}
