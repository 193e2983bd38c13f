//! What slows the run down, with the evidence and a test of each finding.

use brickscope_analysis::findings::{Evidence, Finding, Findings};
use brickscope_analysis::view::{nothing, test_command, tried};
use brickscope_profile::Profile;

use super::html::{attribute, note, reason, told};

pub(super) fn section(profile: &Profile) -> String {
    let findings = Findings::of(profile);
    // The top of the page says so.
    if profile.passes.is_empty() && profile.totals.is_empty() && profile.imported.is_none() {
        return String::new();
    }
    let mut html = String::new();
    if findings.found.is_empty() && findings.has_looked {
        html.push_str(&note(nothing(profile)));
    } else if findings.found.is_empty() && !findings.unknown.is_empty() {
        html.push_str(&reason("No rule could look at this run."));
    }
    if !findings.found.is_empty() {
        let items: String = findings.found.iter().map(|finding| item(finding, profile)).collect();
        html.push_str(&format!("<ol class=\"findings\">\n{items}</ol>\n"));
    }
    if !findings.unknown.is_empty() {
        let lines: String =
            findings.unknown.iter().map(|of| format!("<li>{}</li>\n", told(&of.why))).collect();
        html.push_str(&format!("<h3>Not known</h3>\n<ul class=\"notes\">\n{lines}</ul>\n"));
    }
    html
}

fn item(finding: &Finding, profile: &Profile) -> String {
    let mut rows = vec![("predicted", told(&finding.prediction()))];
    rows.extend(finding.tried.as_ref().map(|trial| ("tried", told(&tried(trial)))));
    for (nth, Evidence { text, place }) in finding.evidence.iter().enumerate() {
        let label = if nth == 0 { "evidence" } else { "" };
        rows.push((label, format!("{} <code>{}</code>", told(text), told(place))));
    }
    rows.push(("do", told(&finding.advice)));
    let test = test_command(finding, profile, None);
    if let Some(test) = test {
        rows.push(("test", format!("<code>{}</code>", told(&test))));
    } else if let Some(why) = &finding.test_absent {
        rows.push(("untested", told(&why.reason)));
    }
    rows.push(("refuted if", told(&finding.refuted_if)));
    rows.push(("rule", format!("<code>{}</code>", attribute(finding.rule))));
    let row = |(label, html): &(&str, String)| {
        let label = if label.is_empty() { String::new() } else { format!("<dt>{label}</dt>") };
        format!("{label}<dd>{html}</dd>\n")
    };
    let rows: String = rows.iter().map(row).collect();
    format!("<li><strong>{}</strong>\n<dl>\n{rows}</dl></li>\n", told(&finding.what))
}
