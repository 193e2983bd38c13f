//! The rows of a server's requests.

use brickscope_analysis::requests::{Piece, Requests, Row, Until};
use brickscope_profile::Profile;
use brickscope_profile::stats::Histogram;

use super::Parts;
use super::table::{DurationRow, RequestRow};

/// Adds a row for each request, and the times between their tokens as a histogram.
pub(super) fn add(profile: &Profile, parts: &mut Parts) {
    if let Some(kept) = &profile.kept {
        // Those that were kept are the slow ones: only sums are of all.
        let of_all = kept.requests.as_ref().map(|of| rows_of(&of.between_tokens.histogram));
        parts.durations.extend(of_all.unwrap_or_default());
        return;
    }
    let requests = Requests::of(profile);
    let is_of_client = requests.are_of_client();
    parts.requests.extend(requests.rows().map(|row| request(&row, is_of_client)));
    parts.durations.extend(between_tokens(&requests));
}

/// A request has one first token and may have thousands of others: a row for each would be most of the lake.
fn between_tokens(requests: &Requests<'_>) -> Vec<DurationRow> {
    let mut times = Histogram::default();
    let further = requests.lengths().filter(|(until, _)| matches!(until, Until::Token(_)));
    further.for_each(|(_, ns)| times.record(ns));
    rows_of(&times)
}

fn rows_of(times: &Histogram) -> Vec<DurationRow> {
    let rows = times.bounds().map(|(from_ns, to_ns, spans)| DurationRow {
        phase: None,
        device: None,
        kind: "request".to_owned(),
        name: "between tokens".to_owned(),
        from_ns,
        to_ns,
        spans,
    });
    rows.collect()
}

fn request(row: &Row<'_>, is_of_client: bool) -> RequestRow {
    let of = row.of;
    let ns = |piece: Piece| row.pieces[piece as usize];
    RequestRow {
        // What is known of the run comes later.
        commit: None,
        is_of_client,
        request: row.number.into(),
        id: of.id.clone(),
        arrived_ns: of.arrived_ns,
        ending: of.ending.map(|ending| ending.name().to_owned()),
        prompt_tokens: of.prompt_tokens,
        cached_tokens: row.cached_tokens,
        output_tokens: of.output_tokens,
        timed_tokens: of.tokens_ns.len() as u64,
        to_first_token_ns: row.to_first_token_ns,
        mean_token_ns: of.mean_token_ns(),
        whole_ns: row.whole_ns,
        receiving_ns: ns(Piece::Receiving),
        queue_ns: ns(Piece::Queue),
        own_alone_ns: ns(Piece::OwnAlone),
        own_beside_prompts_ns: ns(Piece::OwnBesidePrompts),
        own_beside_decode_ns: ns(Piece::OwnBesideDecode),
        own_beside_both_ns: ns(Piece::OwnBesideBoth),
        other_prompts_ns: ns(Piece::OtherPrompts),
        other_decode_ns: ns(Piece::OtherDecode),
        other_both_ns: ns(Piece::OtherBoth),
        between_ns: ns(Piece::Between),
        unattributed_ns: ns(Piece::Unattributed),
    }
}
