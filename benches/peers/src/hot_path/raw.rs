//! Raw readings: the floor of all that takes two of them.

use std::hint::black_box;
use std::time::Instant;

use crate::counter;
use crate::row::{PAIR, Row, timed};

pub(crate) const ONE: &str = "raw_one";

pub(crate) fn rows<'a>() -> Vec<Row<'a>> {
    let name = counter::NAME;
    vec![
        Row::new(PAIR, format!("two raw readings ({name})"), |spans| {
            let mut sum = 0_u64;
            let nanos = timed(spans, || {
                let start = counter::read();
                let end = counter::read();
                sum = sum.wrapping_add(end.wrapping_sub(start));
            });
            black_box(sum);
            nanos
        }),
        Row::new(ONE, "one raw reading", |spans| {
            let mut sum = 0_u64;
            let nanos = timed(spans, || sum = sum.wrapping_add(counter::read()));
            black_box(sum);
            nanos
        }),
        Row::new("os_pair", "two readings of the OS clock", |spans| {
            timed(spans, || {
                let start = black_box(Instant::now());
                black_box(start.elapsed());
            })
        }),
    ]
}
