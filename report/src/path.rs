//! The critical path of a pass, with slack; and the copies of data.

use brickscope_analysis::path;
use brickscope_analysis::typical::OnePass;
use brickscope_analysis::view::{PathSummary, path_summary};
use brickscope_profile::{ExecutionGraph, ExecutionNode, NameKind, Phase, Total};
use serde_json::{Value, json};

use super::figure::{From, Unit, absent, count, div, percent, scaled, time};
use super::html::{Table, bar, note, reason, said, told};
use super::source::{Source, heading};

/// The most rows of each table: enough for a layer, the ends of the model, and some more.
const MOST_ROWS: usize = 24;

/// The most spans of a pass for a graph, which takes some hundred bytes for each.
const MOST_NODES: usize = 500_000;

const TOO_LARGE: &str = "The typical pass has too many spans to make a graph of it here.";

pub(super) fn section(source: &Source<'_>) -> String {
    let profile = source.profile;
    let (mut html, mut has_paths) = (String::new(), false);
    for phase in Phase::SHOWN {
        let Some(one) = OnePass::of(profile, phase) else { continue };
        let pass = one.pass;
        let spans = profile.spans.iter().filter(|span| span.pass == Some(pass.serial)).count();
        if spans > MOST_NODES {
            html.push_str(&reason(TOO_LARGE));
            continue;
        }
        let Some(graph) = profile.execution_graph(pass.serial) else { continue };
        let index = profile.passes.iter().position(|other| std::ptr::eq(other, pass));
        let at = |field: &str| source.at(&format!("/passes/{}/{field}", index.unwrap_or(0)));
        let which = if one.is_median {
            "the typical one"
        } else {
            "the closest to the typical one among those that were kept whole"
        };
        let doubt = one.doubts().map_or(String::new(), |doubt| format!(", disturbed: {doubt}"));
        html.push_str(&format!(
            "<h3>{}: pass {}, {which}{doubt}, {}</h3>\n",
            heading(Some(phase)),
            count(pass.serial, at("serial")),
            time(pass.wall_ns, at("wall_ns")),
        ));
        let from = |parts: Value| json!(["path", source.base, pass.serial, parts]);
        let of = source.device;
        if let Some(why) = of.and_then(|(run, device)| path::unknown(run, device, pass.serial)) {
            html.push_str(&reason(&format!("No critical path: {why}.")));
            continue;
        }
        has_paths = true;
        html.push_str(&tables(&graph, &from));
    }
    if let Some(graph) = &profile.graph {
        has_paths = true;
        html.push_str("<h3>The graph recorded by the engine</h3>\n");
        let from = |parts: Value| json!(["graph", source.base, parts]);
        html.push_str(&tables(graph, &from));
    }
    if html.is_empty() {
        // Without any span of a pass, the timeline says so.
        let has_spans = profile.spans.iter().any(|span| span.pass.is_some());
        return match has_spans {
            true => reason("No pass was kept with all its spans, so there is no critical path."),
            false => String::new(),
        };
    }
    if !has_paths {
        return html;
    }
    html.push_str(&note(
        "Own time is the time outside of inner spans; the rows add up to the length of the path. \
         Slack is how much later something could have ended without making the pass longer.",
    ));
    html
}

fn tables(graph: &ExecutionGraph, from: &dyn Fn(Value) -> From) -> String {
    let summary: PathSummary = match (graph.schedule(), path_summary(graph, MOST_ROWS)) {
        (Err(cycle), _) => return reason(&cycle.to_string()),
        (_, None) => return reason("Nothing in this graph has a time."),
        (_, Some(summary)) => summary,
    };
    let total = summary.makespan_ns;
    let unit = Unit::of(total);
    let (own, saves) =
        (format!("#Own time, {}", unit.name), format!("#Halved, saves, {}", unit.name));
    let mut table = Table::of_class(
        "bricks",
        "Critical path, by name",
        &["Step", "Share", "#%", &own, "#Steps", &saves],
    );
    let whole = from(json!("/makespan_ns"));
    let rest = summary.rest.as_ref().map(|(row, _)| row);
    let places = (0..).map(|n| format!("/rows/{n}")).take(summary.rows.len());
    let rows = places.zip(&summary.rows).chain(rest.map(|row| ("/rest".to_owned(), row)));
    for (place, row) in rows {
        let at = |field: &str| from(json!(format!("{place}/{field}")));
        let share = row.own_ns as f64 / total as f64;
        let saves = row.saves_ns.map_or_else(|| absent("-"), |ns| unit.show(ns, at("saves_ns")));
        let name = if place == "/rest" { "further steps".to_owned() } else { told(&row.label) };
        table.row(&[
            &name,
            &bar(share, "c-path"),
            &percent(share, div(at("own_ns"), whole.clone())),
            &unit.show(row.own_ns, at("own_ns")),
            &count(row.times, at("times")),
            &saves,
        ]);
    }
    table.row_of("wall", &["the whole path", "", "", &unit.show(total, whole)]);
    let mut html = table.end();
    if summary.slack.is_empty() {
        html.push_str(&note("Nothing has slack: each step waited for the one before it."));
        return html;
    }
    let columns = [format!("#Took, {}", unit.name), format!("#Slack, {}", unit.name)];
    let mut table = Table::new("Nodes with slack", &["Node", &columns[0], &columns[1]]);
    for (nth, row) in summary.slack.iter().enumerate() {
        let at = |field: &str| from(json!(format!("/slack/{nth}/{field}")));
        table.row(&[
            &told(&row.label),
            &unit.show(row.timing_ns, at("timing_ns")),
            &unit.show(row.slack_ns, at("slack_ns")),
        ]);
    }
    html + &table.end()
}

/// Copies between memories: those timed as bricks, and those of a graph.
pub(super) fn transfers(source: &Source<'_>) -> String {
    let profile = source.profile;
    let mut html = String::new();
    let routes: Vec<(&Total, _)> = profile
        .totals
        .iter()
        .filter(|total| total.kind == NameKind::Brick)
        .filter_map(|total| {
            let name = profile.names.iter().find(|name| {
                name.kind == NameKind::Brick
                    && name.name == total.stats.name
                    && name.transfer.is_some()
            })?;
            Some((total, name.transfer.as_ref()?))
        })
        .take(MOST_ROWS)
        .collect();
    if let Some(most) = routes.iter().map(|(total, _)| total.stats.total_ns).max() {
        let unit = Unit::of(most);
        let took = format!("#Took, {}", unit.name);
        let columns = ["Copy", "Phase", "From", "To", "#Times", "#MB", &took, "#GB/s"];
        let mut table = Table::new("Timed copies", &columns);
        for (total, route) in routes {
            let from = |field: &str| source.of_total(total, field);
            let (bytes, ns) = (total.stats.total_bytes, total.stats.total_ns);
            let moved =
                if bytes > 0 { scaled(bytes, 1e6, "", from("total_bytes")) } else { absent("-") };
            let rate = if bytes > 0 && ns > 0 {
                scaled(
                    bytes as f64 / ns as f64,
                    1.0,
                    "",
                    div(from("total_bytes"), from("total_ns")),
                )
            } else {
                absent("-")
            };
            table.row(&[
                &format!("{}, {}", said(&total.stats.name), route.direction.name()),
                &heading(total.phase).to_lowercase(),
                &said(&route.src),
                &said(&route.dst),
                &count(total.stats.count, from("count")),
                &moved,
                &unit.show(ns, from("total_ns")),
                &rate,
            ]);
        }
        html.push_str(&table.end());
    }
    if let Some(graph) = &profile.graph {
        html.push_str(&in_graph(source, graph));
    }
    html
}

fn in_graph(source: &Source<'_>, graph: &ExecutionGraph) -> String {
    let copies = graph.nodes().enumerate().filter_map(|(index, node)| match node {
        ExecutionNode::Transfer { src, dst, bytes, direction, timing_ns } => {
            Some((index, src, dst, bytes, direction, timing_ns))
        }
        _ => None,
    });
    let mut html = String::new();
    let columns = ["From", "To", "Direction", "#MB", "#Took"];
    let mut table = Table::new("Copies in the graph recorded by the engine", &columns);
    let mut any = 0;
    for (index, src, dst, bytes, direction, ns) in copies.take(MOST_ROWS) {
        any += 1;
        let at = |field: &str| source.at(&format!("/graph/nodes/{index}/{field}"));
        table.row(&[
            &said(&src),
            &said(&dst),
            direction.name(),
            &scaled(bytes, 1e6, "", at("bytes")),
            &ns.map_or_else(|| absent("not measured"), |ns| time(ns, at("timing_ns"))),
        ]);
    }
    if any > 0 {
        html.push_str(&table.end());
    }
    if any == MOST_ROWS {
        html.push_str(&note(
            "These are the first; <code>brickscope show RUN --as graph-json</code> has all.",
        ));
    }
    let columns = ["Data", "Forced by", "Back for", "#Times", "#MB each", "#Took"];
    let mut table = Table::new("Copies that undo each other", &columns);
    let found = graph.ping_pong_findings();
    for (nth, found) in found.iter().take(MOST_ROWS).enumerate() {
        let at = |field: &str| json!(["ping-pong", source.base, nth, field]);
        let scope =
            |scope: &Option<String>| scope.as_deref().map_or_else(|| absent("not known"), said);
        table.row(&[
            &said(&found.tensor),
            &scope(&found.there),
            &scope(&found.back),
            &count(found.times as u64, at("times")),
            &scaled(found.bytes, 1e6, "", at("bytes")),
            &found.total_ns.map_or_else(|| absent("not measured"), |ns| time(ns, at("total_ns"))),
        ]);
    }
    if !found.is_empty() {
        html.push_str(&table.end());
    }
    html
}
