//! The work of attention. FLOPs are 2·heads·(size of a key + size of a value) for each query and key that it sees; bytes are
//! those of the queries, the result, and each key and value once. `attention_args.rs` has what its arguments tell. How many
//! keys there are is in the shapes, or else in the step's name. Where one is missing, there is no work: keys of full length
//! would be too many for a window.

use std::collections::HashMap;

use brickscope_profile::{Data, PartTold, StepTold, Work};

/// What the arguments of an attention tell, or why they don't tell its work.
pub(super) type Noted = Result<Attention, Why>;

/// Why the work of an attention isn't known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Why {
    Shapes,
    WindowUntold,
    Window,
    CausalUntold,
    Mask,
    Aligned,
    NoKeys,
    OtherTokens,
    Parts,
    Unlike,
    Drafts,
}

impl Why {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Shapes => "its arguments, or their types, are none that are known",
            Self::WindowUntold => {
                "its arguments don't say whether it sees all keys or a window of them"
            }
            Self::Window => "it sees a window of the keys, of which the file has no sum",
            Self::CausalUntold => {
                "its arguments don't say whether it is causal (`Concrete Inputs` has it)"
            }
            Self::Mask => "it has a mask, whose values aren't in the file",
            Self::Aligned => {
                "it is causal with other numbers of queries than keys, which may mean two things"
            }
            Self::NoKeys => "the name of its step doesn't say how many keys there are",
            Self::OtherTokens => "its tokens or requests aren't those that its step's name has",
            Self::Parts => "it may see only a part of its layer's keys, and how many isn't told",
            Self::Unlike => "calls of its step differ in how many keys they can have",
            Self::Drafts => {
                "its requests have several tokens each, which its step's sum of keys may lack"
            }
        }
    }
}

/// An attention, as its arguments state it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attention {
    /// The numbers of the result.
    pub(super) elements: u64,
    pub(super) flops_of_pair: u64,
    pub(super) bytes_of_key: u64,
    /// Those of queries and result, if they are known.
    pub(super) own_bytes: Option<u64>,
    /// Whether the keys are in the pages of a cache.
    pub(super) is_cache: bool,
    pub(super) keys: Keys,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// Pairs of queries and keys that they see, and the keys.
    Stated { pairs: u64, keys: u64 },
    /// The name of the step tells them.
    OfStep(Call),
}

/// A call for several requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) tokens: u64,
    pub(super) requests: u64,
    pub(super) is_causal: bool,
    /// How many keys there are in all, if they aren't in the pages of a cache.
    pub(super) held: Option<u64>,
    /// The most keys of a request, and the dimensions of the table of pages: alike in all layers that see the same keys.
    pub(super) room: (Option<u64>, [u64; 2]),
}

impl Attention {
    /// Its work in a step of which this is told.
    pub(super) fn work(&self, told: Option<&StepTold>) -> Result<Work, Why> {
        let (pairs, keys) = match &self.keys {
            Keys::Stated { pairs, keys } => (*pairs, *keys),
            Keys::OfStep(call) => call.pairs_and_keys(told.ok_or(Why::NoKeys)?)?,
        };
        self.of(pairs, keys).ok_or(Why::Shapes)
    }

    fn of(&self, pairs: u64, keys: u64) -> Option<Work> {
        let flops = pairs.checked_mul(self.flops_of_pair)?;
        let of_keys = keys.checked_mul(self.bytes_of_key)?;
        let bytes = match self.own_bytes {
            Some(own) => own.checked_add(of_keys)?,
            None => 0,
        };
        let is_cache = self.is_cache && bytes > 0;
        let data = if is_cache { Data::Kv(of_keys) } else { Data::Unstated };
        Some(Work { elements: self.elements, flops, bytes, data })
    }
}

impl Call {
    /// Pairs of queries and keys that they see, and the keys, of the part of a step that it computes.
    fn pairs_and_keys(&self, told: &StepTold) -> Result<(u64, u64), Why> {
        let computes = |part: &PartTold| part.tokens.is_some_and(|tokens| tokens > 0);
        let mut parts = vec![told.context, told.generation];
        parts.retain(computes);
        if let [context, generation] = parts[..] {
            parts.push(sum(&context, &generation));
        }
        if parts.iter().all(|part| part.keys.is_none()) {
            return Err(Why::NoKeys);
        }
        parts.retain(|part| {
            let has_requests = part.requests.is_none_or(|requests| requests == self.requests);
            part.tokens == Some(self.tokens) && has_requests
        });
        let [part] = parts[..] else { return Err(Why::OtherTokens) };
        // SGLang's sums are without the keys of tokens that a draft model guessed.
        let generation = &told.generation;
        let has_drafts = generation.tokens.zip(generation.requests).is_some_and(|(n, of)| n > of);
        if has_drafts && part != told.context {
            return Err(Why::Drafts);
        }
        let (Some(keys), Some(squares), Some(products)) = (part.keys, part.squares, part.products)
        else {
            return Err(Why::NoKeys);
        };
        if self.held.is_some_and(|held| held != keys) {
            return Err(Why::Parts);
        }
        // A query doesn't see the tokens behind it: q·(q − 1)/2 fewer of each request.
        let behind = squares.checked_sub(self.tokens).map(|twice| twice / 2);
        let pairs = behind.filter(|_| squares <= products).and_then(|of| products.checked_sub(of));
        pairs.map(|pairs| (pairs, keys)).ok_or(Why::OtherTokens)
    }
}

/// Both parts of a step together.
fn sum(one: &PartTold, other: &PartTold) -> PartTold {
    let add = |a: Option<u64>, b: Option<u64>| a?.checked_add(b?);
    PartTold {
        requests: add(one.requests, other.requests),
        tokens: add(one.tokens, other.tokens),
        keys: add(one.keys, other.keys),
        squares: add(one.squares, other.squares),
        products: add(one.products, other.products),
    }
}

/// Pairs of queries of a sequence and keys that they see.
pub(super) fn pairs(queries: u64, keys: u64, is_causal: bool, is_at_end: bool) -> Result<u64, Why> {
    let all = queries.checked_mul(keys).ok_or(Why::Shapes)?;
    match is_causal {
        false => Ok(all),
        // Each sees those before it and itself. No more than half of them are behind.
        true if queries == keys || is_at_end && queries < keys => {
            Ok(all - queries * (queries - 1) / 2)
        }
        true => Err(Why::Aligned),
    }
}

/// Why calls of one pass, or of one capture, may not have the keys of their step, by their tokens. Where one isn't causal,
/// calls may share the keys of a layer; those that have less room than others see a part of the keys.
pub(super) fn doubts<'n>(pass: impl Iterator<Item = &'n Noted>) -> HashMap<u64, Why> {
    let mut rooms = HashMap::new();
    let mut doubts = HashMap::new();
    for noted in pass {
        let Ok(Attention { keys: Keys::OfStep(call), .. }) = noted else { continue };
        if !call.is_causal {
            doubts.insert(call.tokens, Why::Parts);
        } else if *rooms.entry(call.tokens).or_insert(call.room) != call.room {
            doubts.entry(call.tokens).or_insert(Why::Unlike);
        }
    }
    doubts
}

/// What is noted, but for what is doubtful.
pub(super) fn settled(noted: Noted, doubts: &HashMap<u64, Why>) -> Noted {
    let attention = noted?;
    let doubt = match &attention.keys {
        Keys::OfStep(call) => doubts.get(&call.tokens),
        Keys::Stated { .. } => None,
    };
    doubt.map_or(Ok(attention), |why| Err(*why))
}
