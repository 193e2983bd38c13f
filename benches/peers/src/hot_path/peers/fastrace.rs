//! fastrace: local spans below a root, reported to nobody.

use fastrace::collector::{Config, Reporter, SpanContext, SpanRecord};
use fastrace::prelude::{LocalSpan, Span};

use crate::row::{Row, timed};

struct Nobody;

impl Reporter for Nobody {
    fn report(&mut self, _: Vec<SpanRecord>) {}
}

/// A thread keeps 10 240 spans of one root; it drops the rest, which would be cheaper.
const MOST: usize = 8192;

pub(super) fn row<'a>() -> Row<'a> {
    fastrace::set_reporter(Nobody, Config::default());
    Row::new("fastrace", "fastrace, LocalSpan below a root", |spans| {
        let nanos = {
            let root = Span::root("Pass", SpanContext::random());
            let _parent = root.set_local_parent();
            timed(spans, || {
                let _span = LocalSpan::enter_with_local_parent("RmsNorm");
            })
        };
        // Gives the memory of the spans back, which would be new to the processor each time else.
        fastrace::flush();
        nanos
    })
    .most(MOST)
    .more_than_ours(1.0, "log")
}
