//! tracing: spans of a registry, and the smallest layer that knows how long they were.

use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

use tracing::span::Id;
use tracing::{Subscriber, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::row::{Row, timed};

/// Reads the clock at enter and exit, and sums: far less than a layer for people does.
struct Sums;

thread_local! {
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
    static NANOS: Cell<u64> = const { Cell::new(0) };
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Sums {
    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        START.set(Some(Instant::now()));
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        if let Some(start) = START.take() {
            NANOS.set(NANOS.get() + start.elapsed().as_nanos() as u64);
        }
    }
}

pub(super) fn rows<'a>() -> Vec<Row<'a>> {
    tracing::subscriber::set_global_default(Registry::default().with(Sums))
        .expect("nobody else sets one");
    let span = info_span!("RmsNorm");
    let each = Row::new("tracing_new", "tracing, a span each time", |spans| {
        let nanos = timed(spans, || {
            let _entered = info_span!("RmsNorm").entered();
        });
        black_box(NANOS.get());
        nanos
    });
    let same = Row::new("tracing_enter", "tracing, one span entered again", move |spans| {
        timed(spans, || {
            let _entered = span.enter();
        })
    });
    vec![each.more_than_ours(1.0, "log"), same.more_than_ours(1.0, "log")]
}
