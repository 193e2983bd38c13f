//! The rows of a server's requests.

use brickscope_analysis::requests::{Piece, Requests, Row};
use brickscope_profile::Profile;

use super::Parts;
use super::table::RequestRow;

/// Adds a row for each request.
pub(super) fn add(profile: &Profile, parts: &mut Parts) {
    let requests = Requests::of(profile);
    let is_of_client = requests.are_of_client();
    parts.requests.extend(requests.rows().map(|row| request(&row, is_of_client)));
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
