//! Tracy: zones, kept in memory as no viewer is connected.

use tracy_client::{Client, span};

use crate::row::{Row, timed};

/// Nothing takes the zones out of memory, at about 64 bytes each.
const MOST: usize = 2048;

pub(super) fn row<'a>() -> Row<'a> {
    // Runs as long as the process; the handle is a mark that it has been started.
    Client::start();
    Row::new("tracy", "tracy-client, span!, no viewer", |spans| {
        timed(spans, || {
            let _zone = span!("RmsNorm");
        })
    })
    .most(MOST)
    .more_than_ours(1.0, "log")
}
