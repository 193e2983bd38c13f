//! Wall time whose throughput is told in GFLOP/s, for kernels whose work is multiplying and adding.

use std::time::{Duration, Instant};

use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};

/// Wall time, of benchmarks that count each FLOP as an element.
#[derive(Debug)]
pub(crate) struct Flops;

impl Measurement for Flops {
    type Intermediate = Instant;
    type Value = Duration;

    fn start(&self) -> Instant {
        WallTime.start()
    }

    fn end(&self, start: Instant) -> Duration {
        WallTime.end(start)
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        WallTime.add(a, b)
    }

    fn zero(&self) -> Duration {
        WallTime.zero()
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        self
    }
}

impl ValueFormatter for Flops {
    fn scale_values(&self, typical_ns: f64, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_values(typical_ns, values)
    }

    fn scale_throughputs(
        &self,
        typical_ns: f64,
        throughput: &Throughput,
        values: &mut [f64],
    ) -> &'static str {
        let flops = match *throughput {
            Throughput::Elements(flops)
            | Throughput::ElementsAndBytes { elements: flops, bytes: _ } => flops as f64,
            _ => return WallTime.formatter().scale_throughputs(typical_ns, throughput, values),
        };
        // FLOPs per nanosecond; in one unit, so that rows can be compared at a glance.
        for value in values {
            *value = flops / *value;
        }
        "GFLOP/s"
    }

    fn scale_for_machines(&self, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_for_machines(values)
    }
}
