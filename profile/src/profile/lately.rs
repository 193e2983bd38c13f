//! What a live view needs of requests.

use std::ops::Range;

use super::Profile;

/// The newest requests of a server that runs, with the passes that ran meanwhile and have ended.
#[derive(Debug, Clone)]
pub struct Lately {
    /// The requests, these passes and what each was for; nothing else.
    pub profile: Profile,
    /// When all passes are known that ran, in nanoseconds of the clock. Before, they had no room here; after, one may be open.
    pub known_ns: Range<u64>,
    /// How many earlier requests are left out.
    pub left_out: u64,
    /// Those that have not ended and of which nothing more is recorded, as indexes into the requests, in order: there was no
    /// room, or recording was off or began anew meanwhile. Whether they go on isn't known.
    pub lost: Vec<u32>,
}
