//! Requests as rows of tables, for exports and lakes: what is known of each, and which of its pieces are.

use brickscope_profile::{PassPart, Request};

use super::{Interval, Piece, Requests, Until, missing_passes};

/// The nanoseconds of each piece, in the order of [`Piece::ALL`]; `None` where nobody could know it.
pub type KnownPieces = [Option<u64>; Piece::ALL.len()];

/// A request, and what follows from its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'p> {
    /// An index into [`Profile::requests`](brickscope_profile::Profile::requests).
    pub number: u32,
    /// The request, as it was told.
    pub of: &'p Request,
    /// Tokens of its prompt that were found in a cache: 0 if its first pass began with none. `None` if nobody said.
    pub cached_tokens: Option<u64>,
    /// From its arrival to its first token.
    pub to_first_token_ns: Option<u64>,
    /// From its arrival to its end.
    pub whole_ns: Option<u64>,
    /// Its intervals, summed up by piece; `None` if it has none.
    pub pieces: KnownPieces,
}

impl Piece {
    /// The name in columns and attributes, as in JSON but for `_` instead of `-`.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Receiving => "receiving",
            Self::Queue => "queue",
            Self::OwnAlone => "own_alone",
            Self::OwnBesidePrompts => "own_beside_prompts",
            Self::OwnBesideDecode => "own_beside_decode",
            Self::OwnBesideBoth => "own_beside_both",
            Self::OtherPrompts => "other_prompts",
            Self::OtherDecode => "other_decode",
            Self::OtherBoth => "other_both",
            Self::Between => "between",
            Self::Unattributed => "unattributed",
        }
    }
}

impl Requests<'_> {
    /// Each request, in their order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> + '_ {
        let cached = self.cached_tokens();
        self.all().iter().zip(0..).zip(cached).map(|((of, number), cached_tokens)| {
            let mut sums: Option<[u64; Piece::ALL.len()]> = None;
            let mut to_first_token_ns = None;
            for interval in self.intervals(number) {
                if interval.until == Until::FirstToken {
                    to_first_token_ns = Some(interval.ns());
                }
                let sums = sums.get_or_insert_default();
                sums.iter_mut().zip(interval.pieces).for_each(|(sum, ns)| *sum += ns);
            }
            Row {
                number,
                of,
                cached_tokens,
                to_first_token_ns,
                whole_ns: of.ended_ns.map(|ended| ended.saturating_sub(of.arrived_ns)),
                pieces: sums.map_or([None; Piece::ALL.len()], |sums| self.known(number, sums)),
            }
        })
    }

    /// Whether they are as a client saw them, which knows no pass: a request arrives when it is due, and is admitted when it
    /// is sent.
    #[must_use]
    pub fn are_of_client(&self) -> bool {
        self.profile.passes.is_empty() && missing_passes(self.profile) == 0
    }

    /// The pieces of an interval, as far as they could be known.
    #[must_use]
    pub fn known_pieces(&self, interval: &Interval) -> KnownPieces {
        self.known(interval.request, interval.pieces)
    }

    /// These nanoseconds of a request without those of which nobody said anything: they are 0, and unknown.
    fn known(&self, request: u32, mut ns: [u64; Piece::ALL.len()]) -> KnownPieces {
        let of = &self.profile.requests[request as usize];
        // What a client waited before it sent a request is no queue of the server.
        let is_of_client = self.are_of_client();
        if is_of_client {
            let waited = std::mem::take(&mut ns[Piece::Queue as usize]);
            ns[Piece::Unattributed as usize] += waited;
        }
        let is_known = |piece| match piece {
            Piece::Receiving => of.received_ns.is_some(),
            Piece::Queue => of.admitted_ns.is_some() && !is_of_client,
            Piece::OwnAlone
            | Piece::OwnBesidePrompts
            | Piece::OwnBesideDecode
            | Piece::OwnBesideBoth => self.has_passes[request as usize],
            Piece::OtherPrompts | Piece::OtherDecode | Piece::OtherBoth => !self.parts.is_empty(),
            Piece::Between => self.idle == Piece::Between || self.is_covered(request),
            Piece::Unattributed => true,
        };
        Piece::ALL.map(|piece| is_known(piece).then_some(ns[piece as usize]))
    }

    /// Of each request, the tokens that were found in a cache.
    fn cached_tokens(&self) -> Vec<Option<u64>> {
        let mut first: Vec<Option<&PassPart>> = vec![None; self.profile.requests.len()];
        for of in &self.profile.parts {
            let Some(known) = first.get_mut(of.part.request as usize) else { continue };
            if known.is_none_or(|known| of.pass < known.pass) {
                *known = Some(of);
            }
        }
        // Tokens before its first pass that nobody explains: passes are missing, or an engine doesn't tell.
        let cached = |of: &PassPart| match (of.part.cached, of.part.position) {
            (0, 1..) => None,
            (cached, _) => Some(cached),
        };
        first.into_iter().map(|of| of.and_then(cached)).collect()
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Part, Pass, Phase, Profile};

    use super::*;

    fn pass(serial: u32, start_ns: u64, wall_ns: u64) -> Pass {
        Pass {
            serial,
            phase: Phase::Decode,
            lane: 0,
            tokens: 1,
            position: 0,
            start_ns,
            wall_ns,
            attributed_ns: 0,
            unattributed_ns: wall_ns,
            disturbance: None,
            is_left_out: false,
        }
    }

    /// One that is admitted at 10 and has tokens at 30 and 45, one of which no pass is known, and one that only came.
    fn profile() -> Profile {
        let request = |id: &str| Request { id: id.to_owned(), ..Request::default() };
        let requests = vec![
            Request {
                admitted_ns: Some(10),
                tokens_ns: vec![30, 45],
                ended_ns: Some(50),
                ..request("a")
            },
            Request { arrived_ns: 5, received_ns: Some(8), ended_ns: Some(48), ..request("b") },
            Request { arrived_ns: 60, ..request("c") },
        ];
        let part = |pass, part| PassPart { pass, part };
        Profile {
            requests,
            passes: vec![pass(0, 10, 15), pass(1, 30, 10)],
            // The second is told first.
            parts: vec![part(1, Part::decode(0, 7)), part(0, Part::prompt(0, 3, 4).with_cached(4))],
            ..Profile::empty(ClockInfo::default())
        }
    }

    fn of(row: &Row<'_>, piece: Piece) -> Option<u64> {
        row.pieces[piece as usize]
    }

    #[test]
    fn what_could_not_be_known_is_none_and_the_rest_adds_up() {
        let profile = profile();
        let requests = Requests::of(&profile);
        let rows: Vec<Row<'_>> = requests.rows().collect();
        let [a, b, c] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((a.to_first_token_ns, a.whole_ns), (Some(30), Some(50)));
        assert_eq!(a.cached_tokens, Some(4));
        assert_eq!((of(a, Piece::Receiving), of(a, Piece::Queue)), (None, Some(10)));
        assert_eq!((of(a, Piece::OwnAlone), of(a, Piece::Between)), (Some(25), Some(15)));
        assert_eq!((of(b, Piece::Receiving), of(b, Piece::Queue)), (Some(3), None));
        assert_eq!((of(b, Piece::OwnAlone), b.cached_tokens), (None, None));
        for row in [a, b] {
            assert_eq!(row.pieces.iter().flatten().sum::<u64>(), row.whole_ns.expect("it ended"));
        }
        assert_eq!((c.to_first_token_ns, c.whole_ns), (None, None));
        assert_eq!(c.pieces, [None; Piece::ALL.len()]);
    }

    #[test]
    fn what_a_client_waits_is_no_queue() {
        let client = Profile { passes: Vec::new(), parts: Vec::new(), ..profile() };
        let requests = Requests::of(&client);
        let rows: Vec<Row<'_>> = requests.rows().collect();
        assert!(requests.are_of_client());
        assert_eq!(of(&rows[0], Piece::Queue), None);
        assert_eq!(of(&rows[0], Piece::Unattributed), Some(50));
        // Passes of a server may have had no room.
        let mut server = client.clone();
        server.dropped.passes = 1;
        let requests = Requests::of(&server);
        assert!(!requests.are_of_client());
        assert_eq!(requests.rows().next().and_then(|row| of(&row, Piece::Queue)), Some(10));
    }

    #[test]
    fn pieces_have_the_names_that_json_has() {
        for piece in Piece::ALL {
            let json = serde_json::to_value(piece).expect("a text");
            assert_eq!(json, piece.key().replace('_', "-"));
        }
    }

    #[test]
    fn what_a_cache_had_is_known_by_the_first_pass() {
        let mut profile = profile();
        let cached = |profile: &Profile| {
            let requests = Requests::of(profile);
            requests.rows().next().and_then(|row| row.cached_tokens)
        };
        profile.parts[1].part.cached = 0;
        assert_eq!(cached(&profile), None);
        profile.parts[1].part.position = 0;
        assert_eq!(cached(&profile), Some(0));
    }
}
