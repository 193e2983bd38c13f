use super::*;

use crate::executor::wgpu::ceilings::Meter;

#[test]
fn a_device_reads_and_multiplies_at_rates_that_it_can_have() {
    let ceilings = match measure_ceilings() {
        Ok(ceilings) => ceilings,
        Err(why) => return skipped(why).unwrap_or_default(),
    };
    // Between those of an old computer that others keep busy, and more than any device's.
    assert!((1e6..1e14).contains(&ceilings.read_bytes_per_second), "{ceilings:?}");
    assert!((1e6..1e16).contains(&ceilings.flops_per_second), "{ceilings:?}");
    let again = measure_memory().expect("as a moment ago");
    assert!((1e6..1e14).contains(&again), "{again}");
}

/// The first words of a buffer.
fn words(gpu: &OpenDevice, from: &wgpu::Buffer, len: usize) -> Vec<u32> {
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let staging = gpu.buffer("words on the host", 4 * len as u64, usage).expect("room");
    let mut encoder = gpu.device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(from, 0, &staging, 0, 4 * len as u64);
    gpu.queue.submit([encoder.finish()]);
    let mut words = vec![0.0_f32; len];
    fetch(gpu, &staging, &mut words).expect("they were copied");
    words.into_iter().map(f32::to_bits).collect()
}

#[test]
fn its_loops_read_everything_and_leave_no_product_out() {
    let meter = match Meter::new() {
        Ok(meter) => meter,
        Err(why) => return skipped(why).unwrap_or_default(),
    };
    let data = meter.read_once().expect("memory");
    let units = (data.size() / 16) as usize;
    // Each reads 32 times, what no other thread does.
    let (threads, reads) = (units / 32, 32);
    let out = words(&meter.gpu, &meter.out, threads.min(1 << 18));
    let unit = |at: usize| {
        let word = |k: usize| {
            let x = ((4 * at + k) as u32).wrapping_mul(2_654_435_761);
            let x = (x ^ x >> 15).wrapping_mul(2_246_822_519);
            x ^ x >> 13
        };
        [word(0), word(1), word(2), word(3)]
    };
    assert_eq!(words(&meter.gpu, &data, 400), (0..100).flat_map(unit).collect::<Vec<_>>());
    let mixed_of = |thread: usize| {
        let read = (0..reads).map(|nth| unit(thread + nth * threads));
        let four = read
            .fold([0_u32; 4], |sum, four| std::array::from_fn(|k| sum[k].wrapping_add(four[k])));
        four.into_iter().fold(0, |mixed, word| mixed ^ word)
    };
    for word in (0..out.len()).step_by(out.len() / 1000) {
        // Of more threads, a word is of several: one of them came last.
        let mut those = (word..threads).step_by(1 << 18);
        assert!(those.any(|thread| out[word] == mixed_of(thread)), "{word}");
    }

    // Few steps, since small differences grow in the long run: `fma` may round once or twice.
    meter.multiply_add_once(0).expect("nothing to do");
    let sums = words(&meter.gpu, &meter.out, 1000);
    meter.multiply_add_once(1).expect("a round");
    let after = words(&meter.gpu, &meter.out, 1000);
    for (thread, (sum, after)) in sums.into_iter().zip(after).enumerate() {
        let first: Vec<f32> = (0..16).map(|k| (thread % 97 + k) as f32 * 0.01).collect();
        let expected: f32 = first.iter().sum();
        assert!((f32::from_bits(sum) - expected).abs() < 1e-3, "{thread}");
        let after = f32::from_bits(after);
        assert!((-16.0 * 1.9..=16.0 * 1.9).contains(&after), "{thread}: {after}");
        assert!((after - expected).abs() > 1e-3, "{thread}: it went no step");
    }
}
