//! The unit in which benchmarks of products tell their throughput.

#[path = "../benches/kernels/flops.rs"]
mod flops;

use std::time::Duration;

use criterion::Throughput;
use criterion::measurement::{Measurement, WallTime};

use flops::Flops;

#[test]
fn products_are_told_in_gflop_per_second_and_all_else_as_of_wall_time() {
    let told = |throughput| Flops.formatter().format_throughput(&throughput, 500.0);
    for throughput in
        [Throughput::Elements(20_000), Throughput::ElementsAndBytes { elements: 20_000, bytes: 7 }]
    {
        assert_eq!(told(throughput), "40.000 GFLOP/s");
    }
    let bytes = Throughput::Bytes(4096);
    let of_wall_time = WallTime.formatter().format_throughput(&bytes, 500.0);
    assert_eq!(told(bytes), of_wall_time);
    assert_eq!(Flops.formatter().format_value(500.0), WallTime.formatter().format_value(500.0));
    assert_eq!(Flops.to_f64(&Duration::from_micros(3)), 3_000.0);
}
