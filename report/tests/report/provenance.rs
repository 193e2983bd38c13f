//! Checks a page against its file: each number is looked up or recomputed from `profile.json` alone, and
//! there are no digits anywhere else. `report/derivations.md` describes the scheme.

use std::collections::{BTreeSet, HashMap};

use brickscope::{ExecutionGraph, Phase, Profile};
use brickscope_analysis::compare::{RanksChange, RanksOfRun};
use brickscope_analysis::findings::Findings;
use brickscope_analysis::rate;
use brickscope_analysis::typical::{self, Basis, Typical};
use brickscope_analysis::view::{self, PathSummary, path_summary};
use serde_json::{Map, Value, json};

/// The most rows of a path, and the most characters of a name, on a page.
const MOST_ROWS: usize = 24;
const MOST_CHARACTERS: usize = 160;

/// An open element.
#[derive(Debug, Clone, Default)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
}

impl Element {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}

/// Walks a page. Calls `visit` with each text and the elements around it, and with each element that ends
/// and its text. Panics if tags don't nest.
pub(crate) fn walk(page: &str, mut visit: impl FnMut(&[Element], &str, bool)) {
    const VOID: [&str; 5] = ["meta", "input", "br", "wbr", "link"];
    // Elements, and the text in each.
    let (mut open, mut texts) = (Vec::<Element>::new(), Vec::<String>::new());
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a page begins as one");
    loop {
        let (text, tag) = rest.split_once('<').unwrap_or((rest, ""));
        let text = unescaped(text);
        if !text.trim().is_empty() {
            visit(&open, &text, false);
        }
        // What is in an element is in those around it once it ends.
        if let Some(inside) = texts.last_mut() {
            inside.push_str(&text);
        }
        if tag.is_empty() {
            break;
        }
        if let Some(name) = tag.strip_prefix('/') {
            let (name, after) = name.split_once('>').expect("a tag ends");
            let inside = texts.pop().expect("something is open");
            let element = open.last().expect("something is open");
            assert_eq!(element.name, name, "tags nest; before {:.80}", after);
            visit(&open, &inside, true);
            open.pop();
            if let Some(around) = texts.last_mut() {
                around.push_str(&inside);
            }
            rest = after;
            continue;
        }
        let (element, is_empty, after) = start(tag);
        rest = after;
        if matches!(element.name.as_str(), "script" | "style") {
            let end = format!("</{}>", element.name);
            let (inside, after) = rest.split_once(&end).expect("a script ends");
            open.push(element);
            visit(&open, inside, true);
            open.pop();
            rest = after;
        } else if !is_empty && !VOID.contains(&element.name.as_str()) {
            open.push(element);
            texts.push(String::new());
        }
    }
    assert!(open.is_empty(), "left open: {:?}", open.last());
}

/// Parses a tag after its `<`. Returns it, whether it closes itself, and the rest of the page.
fn start(tag: &str) -> (Element, bool, &str) {
    let end = tag.find(|c: char| c.is_whitespace() || matches!(c, '>' | '/')).expect("a tag ends");
    let mut element = Element { name: tag[..end].to_owned(), attributes: Vec::new() };
    let mut rest = tag[end..].trim_start();
    loop {
        if let Some(after) = rest.strip_prefix("/>") {
            return (element, true, after);
        }
        if let Some(after) = rest.strip_prefix('>') {
            return (element, false, after);
        }
        let end =
            rest.find(|c: char| c.is_whitespace() || matches!(c, '=' | '>')).expect("it ends");
        let name = rest[..end].to_owned();
        assert!(!name.is_empty() && !name.contains(['"', '\'', '<']), "an attribute: {rest:.60}");
        rest = &rest[end..];
        let mut value = String::new();
        if let Some(after) = rest.strip_prefix('=') {
            let quote = after.chars().next().expect("a value");
            let (inside, after) = if matches!(quote, '"' | '\'') {
                after[1..].split_once(quote).expect("a value ends")
            } else {
                after.split_at(after.find([' ', '>', '\n']).expect("a value ends"))
            };
            value = unescaped(inside);
            rest = after;
        }
        element.attributes.push((name, value));
        rest = rest.trim_start();
    }
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Number(n) if n.is_f64() => n.as_f64().map(Self::Float),
            Value::Number(n) => {
                n.as_i64().map(i128::from).or(n.as_u64().map(i128::from)).map(Self::Int)
            }
            _ => None,
        }
    }

    fn read(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Float(text.parse().expect("a number")), Self::Int)
    }

    fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a == b,
            // The order of floating-point operations is not specified.
            _ => {
                let (a, b) = (self.float(), other.float());
                (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
            }
        }
    }
}

/// A name as a page has it.
fn shown(name: &str) -> String {
    match name.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}…", view::printable(&name[..end])),
        None => view::printable(name),
    }
}

/// How many passes a page leaves out, by their causes.
fn left_out(profile: &Profile) -> String {
    let typical = Typical::all(profile);
    let by_passes = || typical.iter().filter(|typical| typical.basis == Basis::Passes);
    let disturbed: u64 = by_passes().flat_map(|of| of.left_out.disturbed.values()).sum();
    let stalled: u64 = by_passes().map(|of| of.left_out.stalled).sum();
    let causes = [
        (disturbed, "disturbed"),
        (stalled, "with a stall"),
        (profile.dropped.warm_up_passes, "that warmed up"),
    ];
    let told = causes.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    told.collect::<Vec<_>>().join(", ")
}

/// The files that a page was made from.
pub(crate) struct Files<'f> {
    /// By the prefix of pointers: empty, or `A` and `B`.
    pub(crate) profiles: Vec<(&'static str, Value)>,
    pub(crate) receipt: Value,
    pub(crate) comparison: Value,
    /// Sentences that the library derives from them.
    pub(crate) told: BTreeSet<String>,
    /// The display names of the runs.
    pub(crate) names: &'f [&'f str],
    paths: HashMap<String, Value>,
}

impl<'f> Files<'f> {
    /// The file of one run.
    pub(crate) fn of(json: &str, names: &'f [&'f str]) -> Self {
        let value = serde_json::from_str(json).expect("JSON");
        let profile = Profile::from_json(json, "profile.json".as_ref()).expect("a profile");
        let mut files = Self {
            profiles: vec![("", value)],
            receipt: Value::Null,
            comparison: Value::Null,
            told: BTreeSet::new(),
            names,
            paths: HashMap::new(),
        };
        files.hear(&profile);
        files
    }

    /// The files of two runs.
    pub(crate) fn of_two(a: &str, b: &str, comparison: Value, names: &'f [&'f str]) -> Self {
        let mut files = Self::of(a, names);
        files.profiles[0].0 = "A";
        files.profiles.push(("B", serde_json::from_str(b).expect("JSON")));
        files.hear(&Profile::from_json(b, "profile.json".as_ref()).expect("a profile"));
        files.comparison = comparison;
        files
    }

    /// The sentences of the library about a profile.
    pub(crate) fn hear(&mut self, profile: &Profile) {
        use brickscope_analysis::roofline::Roofline;
        let mut told: Vec<String> = profile.dropped.lines().collect();
        told.extend(profile.kept.iter().map(|kept| kept.line()));
        told.extend(profile.fired.iter().map(|fired| fired.line()));
        told.push(brickscope_analysis::view::headline(profile));
        told.push(view::next_step(profile));
        told.extend(profile.not_finite.as_ref().map(ToString::to_string));
        told.extend(brickscope_analysis::typical::notes(profile));
        told.push(left_out(profile));
        for phase in Phase::SHOWN {
            let judged = typical::judged(profile, phase);
            let shown = typical::shown(profile);
            if let (Some(of), Some(all)) = (judged.phase(phase), shown.phase(phase)) {
                let is_of_medians = typical::is_of_medians(profile, phase);
                told.push(typical::basis_in_words(is_of_medians, of, all));
            }
        }
        told.push(view::swings_in_words());
        told.extend(view::requests_in_words(profile));
        told.extend(view::busy_in_words(profile).into_iter().flatten());
        let overlapped = Phase::SHOWN.map(|phase| rate::Overlapped::of(profile, phase));
        told.extend(overlapped.into_iter().flatten().map(|of| of.to_string()));
        told.extend(view::import_in_words(profile));
        for row in brickscope_analysis::rate::imported_tests(profile) {
            told.extend([row.rate, row.how]);
        }
        told.extend(profile.run.iter().map(|run| run.command.join(" ")));
        let findings = Findings::of(profile);
        for finding in &findings.found {
            told.extend([&finding.what, &finding.advice, &finding.refuted_if].map(String::clone));
            told.push(finding.prediction());
            told.extend(finding.tried.as_ref().map(view::tried));
            told.extend(view::test_command(finding, profile, None));
            for evidence in &finding.evidence {
                told.extend([evidence.text.clone(), evidence.place.clone()]);
            }
        }
        told.extend(findings.unknown.into_iter().map(|unknown| unknown.why));
        if let Err(why) = profile.check() {
            told.push(format!("this profile is inconsistent: {why}"));
        }
        let mut all = vec![profile.clone()];
        for (device, of) in profile.devices.iter().enumerate() {
            for (stream, what) in of.streams.iter().enumerate() {
                told.push(format!("{}, {}", of.name, what.name));
                told.extend(
                    what.dropped.lines().map(|l| format!("{}, {}: {l}", of.name, what.name)),
                );
                all.extend(profile.on_device(device, stream));
            }
        }
        for profile in &all {
            for roofline in Roofline::all(profile) {
                if let Some(says) = roofline.verdict().map(|verdict| verdict.says()) {
                    let disturber = view::disturber(profile, roofline.phase);
                    // That there is no verdict stands above it.
                    for says in [says.replace(": no verdict", ""), says] {
                        told.extend(disturber.map(|why| format!("{says}; {why}")));
                        let beside = |why| format!("{why}; without the waits {says}");
                        told.extend(disturber.map(beside));
                        told.push(says);
                    }
                }
                told.extend(roofline.says_source());
                told.extend(roofline.pace_absent.map(|absent| absent.reason));
                for brick in roofline.bricks {
                    told.extend(brick.absent.map(|absent| absent.reason));
                    told.extend(brick.notes.iter().map(ToString::to_string));
                }
            }
            for pass in &profile.passes {
                let graph = profile.execution_graph(pass.serial);
                let summary = graph.and_then(|graph| path_summary(&graph, MOST_ROWS));
                if let Some(summary) = summary {
                    told.extend(summary.rows.into_iter().map(|row| row.label));
                    told.extend(summary.slack.into_iter().map(|row| row.label));
                }
            }
            if let Some(summary) = profile.graph.as_ref().and_then(|g| path_summary(g, MOST_ROWS)) {
                told.extend(summary.rows.into_iter().map(|row| row.label));
                told.extend(summary.slack.into_iter().map(|row| row.label));
            }
        }
        self.told.extend(told.iter().map(|told| shown(told)));
        self.told.extend(told.iter().map(|told| brickscope_analysis::view::printable_text(told)));
    }

    fn file(&self, place: &str) -> (&Value, String) {
        let (run, pointer) = match place.split_once(':') {
            Some((run @ ("A" | "B"), rest)) => (run, rest),
            _ => ("", place),
        };
        let file = self.profiles.iter().find(|(name, _)| *name == run);
        (&file.unwrap_or_else(|| panic!("no run for {place}")).1, pointer.to_owned())
    }

    fn at(&self, place: &str) -> Option<&Value> {
        let (file, pointer) = self.file(place);
        file.pointer(&pointer)
    }

    /// All strings of the files, as they are shown.
    fn strings(&self) -> BTreeSet<String> {
        fn of(value: &Value, into: &mut BTreeSet<String>) {
            match value {
                Value::String(text) => {
                    into.insert(shown(text));
                    into.insert(brickscope_analysis::view::printable_text(text));
                }
                Value::Array(values) => values.iter().for_each(|value| of(value, into)),
                Value::Object(values) => values.values().for_each(|value| of(value, into)),
                _ => {}
            }
        }
        let mut strings = BTreeSet::new();
        self.profiles.iter().for_each(|(_, value)| of(value, &mut strings));
        of(&self.receipt, &mut strings);
        of(&self.comparison, &mut strings);
        strings
    }

    fn evaluate(&mut self, from: &Value, around: &str) -> Result<Number, String> {
        if let Some(number) = Number::of(from) {
            return Ok(number);
        }
        if let Some(place) = from.as_str() {
            let is_whole =
                place.starts_with('/') || place.starts_with("A:") || place.starts_with("B:");
            let place = if is_whole { place.to_owned() } else { format!("{around}{place}") };
            let value = self.at(&place).ok_or(format!("there is no {place}"))?;
            return Number::of(value).ok_or(format!("{place} is {value}, not a number"));
        }
        let parts = from.as_array().ok_or(format!("what is {from}?"))?;
        let (operator, rest) = parts.split_first().ok_or("nothing")?;
        let text = |n: usize| rest.get(n).and_then(Value::as_str).unwrap_or_default().to_owned();
        match operator.as_str().unwrap_or_default() {
            "const" => Number::of(&rest[0]).ok_or("a constant".to_owned()),
            "layer" => self.has_layer(&text(0), &rest[1]),
            "count" => {
                let rows = self.at(&text(0)).and_then(Value::as_array);
                rows.map(|rows| Number::Int(rows.len() as i128)).ok_or(format!("no {from}"))
            }
            "rows" => self.rows(&text(0), &text(1), rest[2].as_object().expect("a filter")),
            "flame" => self.flame(&text(0), &text(1), rest[2].as_array().expect("a path")),
            "passes" => self.passes(&text(0), rest[1].as_object().expect("a filter")),
            "path" | "graph" | "ping-pong" | "judged" => self.analysis(parts),
            "busy" => {
                let (file, place) = self.file(&text(0));
                let profile = Profile::from_json(&file.to_string(), "profile.json".as_ref());
                let nth = place.rsplit('/').next().and_then(|nth| nth.parse::<usize>().ok());
                let device =
                    profile.expect("a profile").devices.swap_remove(nth.expect("a number"));
                let phase = Phase::ALL.into_iter().find(|phase| phase.name() == text(1));
                let busy = json!(device.busy(phase).map_err(|absent| absent.reason)?);
                Number::of(&busy[text(2)]).ok_or(format!("no {from}"))
            }
            "ranks" => {
                let runs = ["A:", "B:"].map(|run| {
                    let text = self.file(run).0.to_string();
                    let profile = Profile::from_json(&text, "profile.json".as_ref());
                    RanksOfRun::of(&profile.expect("a profile"))
                });
                let change = RanksChange::of_runs(runs[0].as_ref(), runs[1].as_ref());
                json!(change).pointer(&text(0)).and_then(Number::of).ok_or(format!("no {from}"))
            }
            "compare" => {
                let value = self.comparison.pointer(&text(0));
                value.and_then(Number::of).ok_or(format!("no {from}"))
            }
            "receipt" => {
                let value = self.receipt.pointer(&text(0));
                value.and_then(Number::of).ok_or(format!("no {from}"))
            }
            operator => {
                let mut numbers = Vec::new();
                for part in rest {
                    numbers.push(self.evaluate(part, around)?);
                }
                reckon(operator, &numbers).ok_or(format!("can't do {from}"))
            }
        }
    }

    fn rows_of(&self, base: &str) -> Vec<Row<'_>> {
        let phases: HashMap<u64, &str> = self
            .at(&format!("{base}/passes"))
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|pass| Some((pass["serial"].as_u64()?, pass["phase"].as_str()?)))
            .collect();
        let passes = self.at(&format!("{base}/passes")).and_then(Value::as_array);
        let out = passes.into_iter().flatten().filter(|pass| pass["is_left_out"] == json!(true));
        let out: BTreeSet<u64> = out.filter_map(|pass| pass["serial"].as_u64()).collect();
        let spans = self.at(&format!("{base}/spans")).expect("spans");
        let (file, _) = self.file(base);
        let columns = spans["columns"].as_array().expect("columns");
        let rows = spans["rows"].as_array().expect("rows").iter();
        rows.map(|row| {
            let name = row[0].as_u64().map(|name| &file["names"][name as usize]);
            Row {
                columns,
                values: row.as_array().expect("a row"),
                phase: row[3].as_u64().and_then(|pass| phases.get(&pass).copied()),
                is_left_out: row[3].as_u64().is_some_and(|pass| out.contains(&pass)),
                name,
            }
        })
        .collect()
    }

    fn rows(
        &self,
        base: &str,
        column: &str,
        filter: &Map<String, Value>,
    ) -> Result<Number, String> {
        let mut sum = 0;
        for row in self.rows_of(base) {
            let holds = filter.iter().all(|(key, wanted)| match key.as_str() {
                "phase" => json!(row.phase) == *wanted,
                "layer" => row.get("layer") == wanted,
                "kind" => row.name.is_some_and(|name| name["kind"] == *wanted),
                "name" => wanted.as_array().is_some_and(|names| names.contains(row.get("name"))),
                other => panic!("a filter by {other}"),
            });
            if holds && !row.is_left_out {
                sum += i128::from(row.get(column).as_u64().expect("a number"));
            }
        }
        Ok(Number::Int(sum))
    }

    /// The spans with these ancestors.
    fn flame(&self, base: &str, column: &str, path: &[Value]) -> Result<Number, String> {
        let rows = self.rows_of(base);
        let is_step = |row: &Row<'_>, wanted: &Value| {
            let (key, value) = match row.get("name") {
                Value::Null => ("layer", row.get("layer")),
                name => ("name", name),
            };
            wanted.as_object().is_some_and(|of| of.len() == 1 && of.get(key) == Some(value))
        };
        let is_phase = |row: &Row<'_>, wanted: &Value| *wanted == json!({"phase": row.phase});
        let parent = |row: &Row<'_>| row.get("parent").as_u64().map(|parent| parent as usize);
        // From the span outwards; what is left of the path is the phase of the outermost one.
        let is_at = |start: &Row<'_>| {
            let mut wanted = path;
            let mut at = start;
            loop {
                match wanted.split_last() {
                    Some((step, rest)) if !rest.is_empty() && is_step(at, step) => wanted = rest,
                    _ => return false,
                }
                match parent(at) {
                    Some(index) => at = &rows[index],
                    None => return matches!(wanted, [phase] if is_phase(at, phase)),
                }
            }
        };
        let mut sum = 0;
        for row in &rows {
            // A phase without a wall time is as long as its contents.
            let is_wanted = match path {
                [phase] => parent(row).is_none() && is_phase(row, phase),
                _ => is_at(row),
            };
            if is_wanted && !row.is_left_out {
                sum += if column == "count" {
                    1
                } else {
                    i128::from(row.get(column).as_u64().unwrap())
                };
            }
        }
        Ok(Number::Int(sum))
    }

    fn passes(&self, base: &str, filter: &Map<String, Value>) -> Result<Number, String> {
        let passes =
            self.at(&format!("{base}/passes")).and_then(Value::as_array).ok_or("no passes")?;
        let within = |pass: &Value| {
            let wall = pass["wall_ns"].as_u64().unwrap();
            let from = filter["from_ns"].as_u64().unwrap();
            from <= wall && wall < filter["below_ns"].as_u64().unwrap()
        };
        let found = passes.iter().filter(|pass| {
            pass["phase"] == filter["phase"]
                && pass["tokens"] == filter["tokens"]
                && pass["is_left_out"] != json!(true)
                && within(pass)
        });
        Ok(Number::Int(found.count() as i128))
    }

    fn has_layer(&self, base: &str, layer: &Value) -> Result<Number, String> {
        let own = self.at(&format!("{base}/layers")).and_then(Value::as_array);
        let is_own = own.is_some_and(|rows| rows.iter().any(|row| row["layer"] == *layer));
        let is_of_span = || self.rows_of(base).iter().any(|row| row.get("layer") == layer);
        if is_own || is_of_span() {
            Number::of(layer).ok_or("a layer".to_owned())
        } else {
            Err(format!("no layer {layer}"))
        }
    }

    /// A value that the library computes from the file, from the spans of a pass or from nodes.
    fn analysis(&mut self, parts: &[Value]) -> Result<Number, String> {
        let (what, last) = parts.split_at(parts.len() - 1);
        let key = json!(what).to_string();
        if !self.paths.contains_key(&key) {
            let found = self.analyse(what, &last[0]);
            if what[0] == "ping-pong" {
                return Number::of(&found).ok_or(format!("{parts:?} has no number"));
            }
            self.paths.insert(key.clone(), found);
        }
        let pointer = last[0].as_str().unwrap_or_default();
        self.paths[&key]
            .pointer(pointer)
            .and_then(Number::of)
            .ok_or(format!("{key} has no {pointer}"))
    }

    fn analyse(&self, what: &[Value], last: &Value) -> Value {
        let base = what[1].as_str().expect("a base");
        let (file, rest) = self.file(base);
        let profile =
            Profile::from_json(&file.to_string(), "profile.json".as_ref()).expect("a profile");
        let numbers: Vec<usize> = rest.split('/').filter_map(|part| part.parse().ok()).collect();
        let profile = match numbers[..] {
            [device, stream] => profile.on_device(device, stream).expect("a stream"),
            _ => profile,
        };
        match what[0].as_str() {
            Some("path") => {
                let serial = what[2].as_u64().expect("a serial") as u32;
                let graph = profile.execution_graph(serial).expect("a graph");
                let pass = profile.passes.iter().find(|pass| pass.serial == serial).expect("it");
                summary(&graph, pass.wall_ns)
            }
            Some("graph") => summary(profile.graph.as_ref().expect("a graph"), 0),
            Some("judged") => {
                let mut phases = Phase::ALL.into_iter();
                let phase = phases.find(|phase| Some(phase.name()) == what[2].as_str());
                let judged = typical::judged(&profile, phase.expect("a phase"));
                serde_json::from_str(&judged.to_json()).expect("JSON")
            }
            _ => {
                let graph = profile.graph.expect("a graph");
                let found = &graph.ping_pong_findings()[what[2].as_u64().expect("which") as usize];
                match last.as_str() {
                    Some("times") => json!(found.times),
                    Some("bytes") => json!(found.bytes),
                    _ => json!(found.total_ns),
                }
            }
        }
    }
}

struct Row<'f> {
    columns: &'f [Value],
    values: &'f [Value],
    phase: Option<&'f str>,
    is_left_out: bool,
    name: Option<&'f Value>,
}

impl<'f> Row<'f> {
    fn get(&self, column: &str) -> &'f Value {
        let at = self.columns.iter().position(|other| other.as_str() == Some(column));
        let at = at.expect("a column");
        &self.values[at]
    }
}

/// A critical path as JSON, checked for consistency and against the wall time of its pass.
fn summary(graph: &ExecutionGraph, least: u64) -> Value {
    let PathSummary { makespan_ns, rows, rest, slack } =
        path_summary(graph, MOST_ROWS).expect("a path");
    let own =
        rows.iter().chain(rest.as_ref().map(|(row, _)| row)).map(|row| row.own_ns).sum::<u64>();
    assert_eq!(own, makespan_ns, "the steps add up to the path");
    assert!(makespan_ns >= least, "the path is as long as the pass, at least");
    let row = |row: &brickscope_analysis::view::PathRow| json!({"own_ns": row.own_ns, "times": row.times, "saves_ns": row.saves_ns});
    json!({
        "makespan_ns": makespan_ns,
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "rest": rest.as_ref().map(|(rest, _)| row(rest)),
        "slack": slack.iter().map(|s| json!({"timing_ns": s.timing_ns, "slack_ns": s.slack_ns})).collect::<Vec<_>>(),
    })
}

fn reckon(operator: &str, numbers: &[Number]) -> Option<Number> {
    let all_int: Option<Vec<i128>> = numbers
        .iter()
        .map(|number| if let Number::Int(value) = number { Some(*value) } else { None })
        .collect();
    let floats = || numbers.iter().map(|number| number.float());
    Some(match (operator, all_int.as_deref()) {
        ("sum", Some(ints)) => Number::Int(ints.iter().sum()),
        ("sum", None) => Number::Float(floats().sum()),
        ("sub", Some([a, b])) => Number::Int(a - b),
        ("sub", None) => Number::Float(numbers.first()?.float() - numbers.get(1)?.float()),
        ("mul", _) => Number::Float(floats().product()),
        ("div", _) => Number::Float(numbers.first()?.float() / numbers.get(1)?.float()),
        ("max", _) => Number::Float(floats().fold(f64::NEG_INFINITY, f64::max)),
        _ => return None,
    })
}

/// Words with digits that aren't numbers.
const WORDS: [&str; 8] = ["p50", "p90", "p95", "p99", "SHA-256", "H2D", "D2H", "D2D"];

/// Panics unless everything on the page follows from the files. Returns the number of numbers.
pub(crate) fn check(page: &str, files: &mut Files<'_>) -> usize {
    let strings = files.strings();
    let mut found = 0;
    let mut faults = Vec::new();
    walk(page, |around, text, ends| {
        let element = around.last().cloned().unwrap_or_default();
        if ends && element.name == "data" {
            found += 1;
            if let Err(why) = number(around, text, files) {
                faults.push(why);
            }
        }
        if ends && let Some(kind) = element.get("data-text") {
            let holds = match kind {
                "file" => strings.contains(text),
                "library" => {
                    // What is in backticks is code.
                    let plain = text.replace('`', "");
                    let is_it = |told: &String| told.replace('`', "") == plain;
                    files.told.contains(text)
                        || strings.contains(text)
                        || !has_digit(text)
                        || files.told.iter().chain(&strings).any(is_it)
                }
                "name" => {
                    strings.contains(text) || files.names.iter().any(|name| shown(name) == text)
                }
                // Labels of an axis are chosen, not measured.
                "tick" => around.iter().any(|element| element.name == "svg"),
                _ => false,
            };
            if !holds {
                faults.push(format!("unexpected text {text:?} ({kind})"));
            }
        }
        let is_covered = around.iter().any(|element| {
            matches!(element.name.as_str(), "data" | "script" | "style" | "title" | "head")
                || element.get("data-text").is_some()
        });
        if !ends && !is_covered {
            let plain = WORDS.iter().fold(text.to_owned(), |text, word| text.replace(word, ""));
            if has_digit(&plain) {
                faults.push(format!("a number without an origin: {text:?} in {:?}", element.name));
            }
        }
        if ends && element.get("id") == Some("data") {
            found += drawn(text, files, &mut faults);
        }
    });
    faults.truncate(12);
    assert!(faults.is_empty(), "{} numbers, and {:#?}", found, faults);
    found
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|c| c.is_ascii_digit())
}

/// Checks one number: its value must be the file's, and the shown text must be that value, rounded.
fn number(around: &[Element], text: &str, files: &mut Files<'_>) -> Result<(), String> {
    let element = around.last().expect("itself");
    let value = Number::read(element.get("value").ok_or("a number without a value")?);
    let from = element.get("data-from").ok_or(format!("{text} has no origin"))?;
    let parsed = if from.starts_with('[') || from.parse::<f64>().is_ok() && from.contains('.') {
        serde_json::from_str(from).map_err(|error| format!("{from}: {error}"))?
    } else {
        Value::String(from.to_owned())
    };
    let place = around.iter().rev().find_map(|element| element.get("data-at")).unwrap_or_default();
    let file =
        files.evaluate(&parsed, place).map_err(|why| format!("{text} from {from}: {why}"))?;
    if !value.is(file) {
        return Err(format!("{text} is {value:?}, but {from} is {file:?}"));
    }
    let per: f64 = element.get("data-per").map_or(1.0, |per| per.parse().expect("a number"));
    let plain = text.replace('−', "-");
    let end = plain.find(|c: char| !(c.is_ascii_digit() || matches!(c, '-' | '+' | '.')));
    let digits = &plain[..end.unwrap_or(plain.len())];
    let shown: f64 = digits.parse().map_err(|_| format!("{text:?} is no number"))?;
    let unit = plain[end.unwrap_or(plain.len())..].trim();
    if let Some(least) =
        [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("%", 0.01), ("GB/s", 1e9)]
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, per)| *per)
        && per != least
    {
        return Err(format!("{text} is in units of {per}"));
    }
    let places = digits.split_once('.').map_or(0, |(_, after)| after.len());
    let half = 0.5 * 10f64.powi(-(places as i32)) * (1.0 + 1e-6);
    let exact = value.float() / per;
    if (shown - exact).abs() > half.max(1e-9 * exact.abs()) {
        return Err(format!("{text} is shown for {exact}"));
    }
    Ok(())
}

/// Checks the data for the script as well. Returns the number of its numbers.
fn drawn(json: &str, files: &mut Files<'_>, faults: &mut Vec<String>) -> usize {
    let data: Value = serde_json::from_str(json).expect("JSON");
    let mut found = 0;
    for diagram in data["timelines"].as_array().expect("timelines") {
        let base = diagram["base"].as_str().expect("a base");
        let pass =
            files.at(&format!("{base}/passes/{}", diagram["pass"])).expect("the pass").clone();
        if pass["wall_ns"] != diagram["wall"] {
            faults.push(format!("the wall of {}", diagram["label"]));
        }
        for track in diagram["tracks"].as_array().expect("tracks") {
            let base = track["base"].as_str().expect("a base");
            for row in track["rows"].as_array().expect("rows") {
                let place = format!("{base}/spans/rows/{}", row[0]);
                let span = files.at(&place).expect("the span").clone();
                let start = span[6].as_i64().unwrap() - pass["start_ns"].as_i64().unwrap();
                let of_file = json!([span[4], start, span[7], span[8]]);
                let of_page = json!([row[2], row[4], row[5], row[6]]);
                let (file, _) = files.file(base);
                let name = span[0].as_u64().map_or("layer".to_owned(), |name| {
                    shown(file["names"][name as usize]["name"].as_str().unwrap_or("?"))
                });
                let drawn = &data["names"][row[1].as_u64().unwrap() as usize][0];
                if of_file != of_page || *drawn != json!(name) {
                    faults.push(format!("{place} is drawn as {row}"));
                }
                found += 3;
            }
        }
    }
    for diagram in data["flames"].as_array().expect("flames") {
        let base = diagram["base"].as_str().expect("a base").to_owned();
        let mut paths: Vec<Vec<Value>> = Vec::new();
        for frame in diagram["frames"].as_array().expect("frames") {
            let outer = frame[0].as_i64().unwrap();
            let mut path = if outer < 0 { Vec::new() } else { paths[outer as usize].clone() };
            path.push(frame[5].clone());
            if path.len() > 1 {
                for (column, of_page) in [("duration_ns", &frame[4]), ("count", &frame[3])] {
                    let of_file = files.flame(&base, column, &path).expect("frames");
                    if !Number::of(of_page).is_some_and(|of_page| of_page.is(of_file)) {
                        faults.push(format!("{column} of {path:?}: {of_page}, but {of_file:?}"));
                    }
                    found += 1;
                }
            }
            paths.push(path);
        }
    }
    found
}
