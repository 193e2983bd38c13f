//! The timeline of some passes, with threads and streams as tracks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use brickscope_analysis::typical::OnePass;
use brickscope_profile::{NameKind, Pass, Phase, Profile, Span};
use serde_json::{Value, json};

use super::figure::{Unit, at as place, count, counted, sub, time};
use super::html::{Table, details, note, reason, said, told};
use super::page::Names;
use super::source::{DURATION, EXCLUSIVE, START, Source, heading};

/// The most spans of a timeline: the longest. A pass of a model with some billion weights has fewer.
const MOST_SPANS: usize = 1_000;

/// The most steps from a span to its drawn ancestor.
const MOST_DEPTH: usize = 64;

/// A pass to draw.
struct Chosen<'p> {
    label: String,
    pass: &'p Pass,
    index: usize,
}

/// The serial numbers of a stream's passes by those of the host's passes that issued them. A device
/// numbers its passes itself.
type Issued = HashMap<u32, u32>;

/// The passes of each stream of each device for the host's passes, as far as they can be matched; and the
/// streams with passes that can't.
fn issued(profile: &Profile) -> (Vec<Vec<Issued>>, Vec<String>) {
    let mut untold = Vec::new();
    let of_devices = profile.devices.iter().map(|device| {
        let of_streams = device.streams.iter().map(|stream| {
            let pairs = stream.issued_by(&profile.passes).into_iter();
            let serials = |(host, done): (usize, usize)| {
                Some((profile.passes.get(host)?.serial, stream.passes.get(done)?.serial))
            };
            let has_spans = passes_of(&stream.spans);
            let issued: Issued =
                pairs.filter_map(serials).filter(|(_, done)| has_spans.contains(done)).collect();
            if issued.len() < has_spans.len() {
                untold.push(format!("{}, {}", device.name, stream.name));
            }
            issued
        });
        of_streams.collect()
    });
    (of_devices.collect(), untold)
}

/// The typical and the slowest pass of each phase, if their spans were kept.
fn choose<'p>(profile: &'p Profile, issued: &[Vec<Issued>]) -> Vec<Chosen<'p>> {
    let has_spans = passes_of(&profile.spans);
    let on_device: HashSet<u32> =
        issued.iter().flatten().flat_map(|of| of.keys().copied()).collect();
    let mut chosen: Vec<Chosen<'_>> = Vec::new();
    for phase in Phase::SHOWN {
        let is_seen = |pass: &&Pass| {
            pass.phase == phase
                && !pass.is_left_out
                && (has_spans.contains(&pass.serial) || on_device.contains(&pass.serial))
        };
        let one = OnePass::of(profile, phase);
        let doubt = one.as_ref().and_then(OnePass::doubts);
        let nearest = doubt.map(|doubt| format!("nearest to typical, disturbed: {doubt}"));
        let nearest = nearest.unwrap_or_else(|| "typical".to_owned());
        let typical =
            one.map(|one| one.pass).or_else(|| profile.typical_pass(phase).filter(is_seen));
        // The first of equal ones.
        let slowest = profile.passes.iter().filter(is_seen).rev().max_by_key(|pass| pass.wall_ns);
        let name = heading(Some(phase));
        for (pass, which) in [(typical, &*nearest), (slowest, "slowest")] {
            let Some(pass) = pass else { continue };
            if chosen.iter().any(|other| std::ptr::eq(other.pass, pass)) {
                continue;
            }
            let is_single = profile.phase(phase).is_some_and(|total| total.passes == 1);
            let label = if is_single {
                format!("{name}, the only pass")
            } else {
                format!("{name}, {which}")
            };
            let index =
                profile.passes.iter().position(|other| std::ptr::eq(other, pass)).unwrap_or(0);
            chosen.push(Chosen { label, pass, index });
        }
    }
    chosen
}

/// The passes with spans.
fn passes_of(spans: &[Span]) -> HashSet<u32> {
    let mut passes = HashSet::new();
    let mut last = None;
    // The spans of a pass are mostly consecutive.
    for pass in spans.iter().filter_map(|span| span.pass) {
        if last.replace(pass) != Some(pass) {
            passes.insert(pass);
        }
    }
    passes
}

/// The longest of some spans, in their order, and the number of all.
fn longest<'s>(spans: impl Iterator<Item = (usize, &'s Span)>) -> (Vec<(usize, &'s Span)>, usize) {
    let mut heap = BinaryHeap::with_capacity(MOST_SPANS + 1);
    let mut all = 0;
    let mut by_index: HashMap<usize, &Span> = HashMap::new();
    for (index, span) in spans {
        all += 1;
        let key = Reverse((span.duration_ns, Reverse(index)));
        // Of millions of spans, nearly all are shorter than the shortest that is kept.
        if heap.len() == MOST_SPANS {
            match heap.peek() {
                Some(shortest) if key < *shortest => {}
                _ => continue,
            }
        }
        heap.push(key);
        by_index.insert(index, span);
        if heap.len() > MOST_SPANS
            && let Some(Reverse((_, Reverse(shortest)))) = heap.pop()
        {
            by_index.remove(&shortest);
        }
    }
    let mut kept: Vec<(usize, &Span)> = by_index.into_iter().collect();
    kept.sort_unstable_by_key(|(index, _)| *index);
    (kept, all)
}

/// The spans of a thread or stream in a pass.
struct Track<'s> {
    title: String,
    spans: Vec<(usize, &'s Span)>,
}

pub(super) fn section(
    profile: &Profile,
    run: &str,
    names: &mut Names,
    diagrams: &mut Vec<Value>,
) -> String {
    let (issued, untold) = issued(profile);
    let untold = if untold.is_empty() {
        String::new()
    } else {
        note(&format!(
            "Passes of {} are missing here: a device numbers its passes itself, and these can’t be matched with \
            passes of the host. Other exports include them.",
            told(&untold.join("; "))
        ))
    };
    let chosen = choose(profile, &issued);
    if chosen.is_empty() {
        if profile.phases.is_empty() {
            return untold;
        }
        return reason(if profile.passes.is_empty() {
            "Single passes were not kept, so there is no timeline and no critical path."
        } else {
            "No spans of passes were kept, so there is no timeline, no flame view and no critical path."
        }) + &untold;
    }
    let host = Source::host(profile, run);
    let mut html = String::from("<fieldset class=\"choice js\"><legend>Pass</legend>\n");
    for (nth, chosen) in chosen.iter().enumerate() {
        let checked = if nth == 0 { " checked" } else { "" };
        html.push_str(&format!(
            "<label><input type=\"radio\" name=\"pass\" value=\"{nth}\"{checked}> {}</label>\n",
            chosen.label
        ));
    }
    html.push_str("</fieldset>\n");
    for (nth, chosen) in chosen.iter().enumerate() {
        let hidden = if nth == 0 { "" } else { " data-later" };
        html.push_str(&format!("<div class=\"pass\" data-pass=\"{nth}\"{hidden}>\n"));
        html.push_str(&pass(&host, chosen, &issued, names, diagrams));
        html.push_str("</div>\n");
    }
    html + &untold
}

fn pass(
    host: &Source<'_>,
    chosen: &Chosen<'_>,
    issued: &[Vec<Issued>],
    names: &mut Names,
    diagrams: &mut Vec<Value>,
) -> String {
    let profile = host.profile;
    let pass = chosen.pass;
    let end = pass.start_ns.saturating_add(pass.wall_ns);
    let at = |field: &str| host.at(&format!("/passes/{}/{field}", chosen.index));
    let mut html = format!(
        "<h3>{}: pass {}, {}",
        chosen.label,
        count(pass.serial, at("serial")),
        time(pass.wall_ns, at("wall_ns")),
    );
    // An imported file may have neither.
    if profile.imported.is_none() || pass.tokens > 0 {
        html.push_str(&format!(", {}", counted(pass.tokens, "token", at("tokens"))));
    }
    if profile.imported.is_none() || pass.position > 0 {
        html.push_str(&format!(" at position {}", count(pass.position, at("position"))));
    }
    html.push_str("</h3>\n");
    let number = diagrams.len();
    html.push_str(&format!(
        "<div class=\"diagram js\" data-timeline=\"{number}\"></div>\n<noscript><p class=\"note\">The timeline needs \
         JavaScript; the table below has its numbers.</p></noscript>\n"
    ));
    let unit = Unit::of(pass.wall_ns);
    let columns = [
        format!("#Begins, {}", unit.name),
        format!("#Takes, {}", unit.name),
        format!("#Own, {}", unit.name),
    ];
    let columns = ["What", "#Layer", "Where", &columns[0], &columns[1], &columns[2]];
    let mut table = Table::new(&format!("{}, span by span", chosen.label), &columns);
    let mut tracks = Vec::new();
    let mut left_out = 0;
    // Spans of other threads meanwhile are outside of passes.
    let is_of = |span: &Span| {
        span.pass == Some(pass.serial)
            || span.pass.is_none()
                && span.lane != pass.lane
                && (pass.start_ns..end).contains(&span.start_ns)
    };
    let (spans, all) = longest(profile.spans.iter().enumerate().filter(|(_, span)| is_of(span)));
    left_out += all - spans.len();
    let mut lanes: BTreeMap<u32, Vec<(usize, &Span)>> = BTreeMap::new();
    for (index, span) in spans {
        lanes.entry(span.lane).or_default().push((index, span));
    }
    for (lane, spans) in lanes {
        let name = profile.lanes.get(lane as usize).and_then(|lane| lane.name.as_deref());
        let title = match name {
            Some(name) => name.to_owned(),
            None => "an unnamed thread".to_owned(),
        };
        let track = Track { title, spans };
        tracks.push(drawn(host, &track, pass, names));
        rows(host, &track, chosen, unit, &mut table);
    }
    for (device, of) in profile.devices.iter().enumerate() {
        for (stream, what) in of.streams.iter().enumerate() {
            let issued = issued.get(device).and_then(|streams| streams.get(stream));
            let Some(serial) = issued.and_then(|of| of.get(&pass.serial)) else { continue };
            let of_pass = what.spans.iter().enumerate();
            let (spans, all) = longest(of_pass.filter(|(_, span)| span.pass == Some(*serial)));
            if spans.is_empty() || tracks.len() > 16 {
                continue;
            }
            left_out += all - spans.len();
            let source = Source {
                title: None,
                base: format!("{}/devices/{device}/streams/{stream}", host.base),
                profile,
                is_device: true,
                device: None,
                judged: None,
            };
            let track = Track { title: format!("{}, {}", of.name, what.name), spans };
            tracks.push(drawn(&source, &track, pass, names));
            rows(&source, &track, chosen, unit, &mut table);
        }
    }
    diagrams.push(json!({
        "label": chosen.label,
        "base": host.base,
        "pass": chosen.index,
        "wall": pass.wall_ns,
        "tracks": tracks,
    }));
    if left_out > 0 {
        html.push_str(&note(
            "This pass has more spans than a timeline shows; the shortest are left out here and in the table.",
        ));
    }
    html + &details("The spans of this pass as a table", &table.end())
}

/// The name of a span; `None` for a layer.
fn name_of<'p>(profile: &'p Profile, span: &Span) -> Option<(&'p str, NameKind)> {
    let name = profile.names.get(usize::from(span.name?))?;
    Some((&name.name, name.kind))
}

/// A track for the script: its spans with their rows in the file.
fn drawn(source: &Source<'_>, track: &Track<'_>, pass: &Pass, names: &mut Names) -> Value {
    let place: HashMap<usize, usize> =
        track.spans.iter().enumerate().map(|(place, (index, _))| (*index, place)).collect();
    let all = if source.is_device { stream_spans(source) } else { &source.profile.spans[..] };
    let outer = |span: &Span| {
        let mut at = span.parent;
        for _ in 0..MOST_DEPTH {
            let parent = at? as usize;
            if let Some(&place) = place.get(&parent) {
                return Some(place);
            }
            at = all.get(parent)?.parent;
        }
        None
    };
    let mut depths: Vec<usize> = Vec::with_capacity(track.spans.len());
    let mut rows = Vec::with_capacity(track.spans.len());
    for (index, span) in &track.spans {
        let outer = outer(span);
        let depth = outer.and_then(|outer| depths.get(outer)).map_or(0, |depth| depth + 1);
        depths.push(depth.min(MOST_DEPTH));
        let name = match name_of(source.profile, span) {
            Some((name, kind)) => names.of(source.profile, name, kind),
            None if span.name.is_none() => names.layer(),
            None => names.unknown(),
        };
        let start = i128::from(span.start_ns) - i128::from(pass.start_ns);
        let start = i64::try_from(start).unwrap_or(i64::MAX);
        let outer = outer.map_or(-1, |outer| outer as i64);
        rows.push(json!([
            index,
            name,
            span.layer,
            depth,
            start,
            span.duration_ns,
            span.exclusive_ns,
            outer
        ]));
    }
    json!({"title": super::html::shown(&track.title), "base": source.base, "rows": rows})
}

/// The spans of the stream that a source stands for.
fn stream_spans<'p>(source: &Source<'p>) -> &'p [Span] {
    let mut numbers = source.base.split('/').filter_map(|part| part.parse::<usize>().ok());
    let (device, stream) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let device = source.profile.devices.get(device);
    device.and_then(|device| device.streams.get(stream)).map_or(&[], |stream| &stream.spans)
}

fn rows(
    source: &Source<'_>,
    track: &Track<'_>,
    chosen: &Chosen<'_>,
    unit: Unit,
    table: &mut Table,
) {
    let run = source.base.find('/').map_or(&*source.base, |end| &source.base[..end]);
    let begin = place(format!("{run}/passes/{}/start_ns", chosen.index));
    let title = told(&super::html::shown(&track.title));
    for (index, span) in &track.spans {
        let what = match name_of(source.profile, span) {
            Some((name, _)) => said(name),
            None => "layer".to_owned(),
        };
        let layer =
            span.layer.map_or_else(String::new, |layer| count(u64::from(layer), place("4")));
        let start = span.start_ns as f64 - chosen.pass.start_ns as f64;
        let begins = sub(place(START.to_string()), begin.clone());
        table.row_at(
            &format!("{}/spans/rows/{index}/", source.base),
            &[
                &what,
                &layer,
                &title,
                &unit.show(start, begins),
                &unit.show(span.duration_ns, place(DURATION.to_string())),
                &unit.show(span.exclusive_ns, place(EXCLUSIVE.to_string())),
            ],
        );
    }
}
