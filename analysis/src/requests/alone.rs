//! What a token takes of passes whatever else is in them, so that nothing promises it.

use super::cause::median;
use super::{Interval, Piece, Requests};

/// With fewer passes, their median says little.
const FEWEST: usize = 5;

/// The passes that a request is in.
pub(crate) const OWN: [Piece; 4] =
    [Piece::OwnAlone, Piece::OwnBesidePrompts, Piece::OwnBesideDecode, Piece::OwnBesideBoth];

/// How long a pass takes that has no prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alone {
    /// The median of such passes. Where they are too few, the shortest pass of the run, and each takes longer.
    pub(crate) ns: u64,
    /// Of how many passes that is the median. `None` if it is the shortest.
    pub(crate) median_of: Option<u64>,
}

impl Alone {
    pub(crate) fn of(requests: &Requests<'_>) -> Self {
        let known = || requests.passes.iter().filter(|pass| pass.prompts + pass.tokens > 0);
        let decode = known().filter(|pass| pass.prompts == 0);
        let mut decode: Vec<u64> = decode.map(|pass| pass.end_ns - pass.start_ns).collect();
        if decode.len() >= FEWEST {
            return Self { ns: median(&mut decode), median_of: Some(decode.len() as u64) };
        }
        let shortest = known().map(|pass| pass.end_ns - pass.start_ns).min();
        Self { ns: shortest.unwrap_or(0), median_of: None }
    }

    /// What of the time in its own passes a token needs all the same: one pass, less what it has of others.
    pub(crate) fn stays_ns(&self, interval: &Interval, waited_in_own_ns: u64) -> u64 {
        let own: u64 = OWN.into_iter().map(|piece| interval.of(piece)).sum();
        let others = own.saturating_sub(waited_in_own_ns);
        self.ns.saturating_sub(others).min(waited_in_own_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::Until;

    #[test]
    fn a_token_needs_one_pass_and_no_more_than_it_had() {
        let stays = |shared: u64, clean: u64, waited: u64| {
            let mut pieces = [0; Piece::ALL.len()];
            pieces[Piece::OwnBesideBoth as usize] = shared;
            pieces[Piece::OwnAlone as usize] = clean;
            pieces[Piece::OtherPrompts as usize] = 1_000;
            let to_ns = pieces.iter().sum();
            let until = Until::Token(1);
            let interval = Interval { request: 0, until, from_ns: 0, to_ns, pieces };
            Alone { ns: 10, median_of: Some(9) }.stays_ns(&interval, waited)
        };
        assert_eq!(stays(50, 0, 50), 10);
        // Another pass for it is there, of which it has a part in its time.
        assert_eq!(stays(50, 4, 50), 6);
        assert_eq!(stays(50, 12, 50), 0);
        // No more than it waited in these; and where they are of others alone, all may go.
        assert_eq!(stays(7, 0, 7), 7);
        assert_eq!(stays(0, 0, 0), 0);
    }
}
