//! puffin: scopes in a frame, whose data is handed to sinks; there are none here.

use puffin::GlobalProfiler;

use crate::row::{Row, timed};

pub(super) fn row<'a>() -> Row<'a> {
    puffin::set_scopes_on(true);
    Row::new("puffin", "puffin, profile_scope!", |spans| {
        let nanos = {
            // Inner scopes are cheaper: the end of an outermost one locks the global profiler.
            puffin::profile_scope!("Batch");
            timed(spans, || {
                puffin::profile_scope!("RmsNorm");
            })
        };
        GlobalProfiler::lock().new_frame();
        nanos
    })
    .more_than_ours(1.0, "log")
}
