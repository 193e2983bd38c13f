//! How many tokens of answers a pass brought forth.
//!
//! A record that lists its requests states how many tokens the pass computes of each. One of an answer is its next token.
//! Several are a guess that the pass verifies, and only those that were right count: by so many the request's KV cache has
//! grown when the next pass begins. Nothing names requests, so this is known where one alone was in both passes.

use super::records::Record;

/// The tokens of answers of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// So many: one of each request.
    Told(u64),
    /// So many were right, by what the KV cache grew.
    Grown(u64),
    /// One request alone had several verified, and the next record isn't of its next pass.
    Ended,
    /// Several were verified, of one of several requests or beside a prompt: nobody knows which is which in the next pass.
    Verified,
    /// The record counts requests alone.
    Summed,
}

/// A pass with the list of its requests: of each the tokens that it computes, and those in the KV cache before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed<'t> {
    pub(super) record: &'t Record,
    pub(super) each: &'t [[u64; 2]],
}

impl<'t> Listed<'t> {
    /// Those of the requests that get their next tokens. `None` if the record lists none.
    fn answers(self) -> Option<&'t [[u64; 2]]> {
        let prompts = usize::try_from(self.record.prompts).ok()?;
        self.each.get(prompts..).filter(|answers| !answers.is_empty())
    }
}

impl Answers {
    /// Those of a pass; `next` is the record that follows.
    pub(super) fn of(pass: Listed<'_>, next: Option<Listed<'_>>) -> Self {
        if pass.record.answers == 0 {
            return Self::Told(0);
        }
        let Some(answers) = pass.answers() else { return Self::Summed };
        if answers.iter().all(|[tokens, _]| *tokens == 1) {
            return Self::Told(pass.record.answers);
        }
        // Of a prompt that is read whole, the next pass has an answer, which could be taken for this one.
        match answers {
            [one] if pass.record.prompts == 0 => {
                let grown = next.and_then(|next| grown(*one, pass.record, next));
                grown.map_or(Self::Ended, Self::Grown)
            }
            _ => Self::Verified,
        }
    }

    /// How many they are, if that is known.
    pub(super) fn tokens(self) -> Option<u64> {
        match self {
            Self::Told(tokens) | Self::Grown(tokens) => Some(tokens),
            Self::Ended | Self::Verified | Self::Summed => None,
        }
    }
}

/// By how many tokens the KV cache of a request that was alone has grown in the next pass: one to all that were verified.
fn grown([tokens, before]: [u64; 2], record: &Record, next: Listed<'_>) -> Option<u64> {
    let follows = record.counter.filter(|&counter| counter > 0)?.checked_add(1);
    if next.record.counter != follows {
        return None;
    }
    let &[[_, after]] = next.answers()? else { return None };
    after.checked_sub(before).filter(|grown| (1..=tokens).contains(grown))
}

/// Whether passes of which the next record isn't there are left out: the rate is that of the others, whose tokens are known.
pub(super) fn without_ends<'a>(of_decode: impl Iterator<Item = &'a Answers>) -> bool {
    let mut has_grown = false;
    for of in of_decode {
        match of {
            Answers::Grown(_) => has_grown = true,
            // Of a part of the passes there is no rate in any case.
            Answers::Verified | Answers::Summed => return false,
            Answers::Told(_) | Answers::Ended => {}
        }
    }
    has_grown
}
