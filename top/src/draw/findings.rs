//! The page of findings: the text of `brickscope findings`, which scrolls.

use brickscope_analysis::view;
use ratatui::text::Line;

use super::{Paint, absent};
use crate::app::Seen;
use crate::text::{columns, wrap};

/// Its heading, and its lines.
pub(super) fn page(seen: &Seen, paint: Paint, width: usize) -> (Line<'static>, Vec<Line<'static>>) {
    let title = " FINDINGS · over everything recorded · asked once a second";
    let title = Line::styled(title, paint.bold());
    let findings = match &seen.findings {
        Ok(findings) => findings,
        Err(why) => return (title, vec![absent(why)]),
    };
    let text = view::findings_of(&seen.snapshot.profile, findings, None);
    let mut lines: Vec<Line<'static>> =
        text.lines().flat_map(|line| fitting(line, width)).map(Line::raw).collect();
    lines.push(Line::raw(""));
    let rest = "Rules that need single spans or launches find nothing here: `brickscope findings \
                RUN` asks them all.";
    lines.extend(fitting(rest, width.min(80)).into_iter().map(Line::raw));
    (title, lines)
}

/// A line in as many as it needs, all with its indent.
fn fitting(line: &str, width: usize) -> Vec<String> {
    if columns(line) <= width {
        return vec![line.to_owned()];
    }
    let indent = line.len() - line.trim_start_matches(' ').len();
    let indent = if indent < width / 2 { indent } else { 0 };
    let lines = wrap(line.trim_start_matches(' '), width - indent);
    lines.into_iter().map(|part| format!("{:indent$}{part}", "")).collect()
}
