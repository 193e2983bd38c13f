//! Moves memory: read, write, copy and triad as in John McCalpin's STREAM
//! (<https://www.cs.virginia.edu/stream/ref.html>; read and write are the halves of its copy).

use crate::kernels::Kernels;

/// Where the data of a stream lies. The fastest loop differs between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a cache: plain loads and stores.
    Cache,
    /// In memory: writes bypass the caches, so that no line is read only to be overwritten, and reads are prefetched
    /// across page boundaries, as in the GEMV kernels.
    Memory,
}

// Returns the result of the SIMD loop for a place, if there is one.
macro_rules! on_lanes {
    ($kernels:ident, $place:ident, $function:ident($($argument:expr),*)) => {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if $kernels.has_eight_lanes() {
            // SAFETY: the line above says that the CPU has what the function needs.
            #[allow(unsafe_code)]
            return unsafe {
                match $place {
                    Place::Cache => wide::$function::<false>($($argument),*),
                    Place::Memory => wide::$function::<true>($($argument),*),
                }
            };
        }
    };
}

impl Kernels {
    /// Reads all of `words` once, as 1, 2 or 4 parallel streams. Returns the sum of their bits, so that no compiler can
    /// optimise the reads away.
    ///
    /// Which number is fastest from memory depends on the processor's prefetchers and the size of pages. Plain Rust
    /// supports one stream only.
    ///
    /// # Panics
    ///
    /// If `streams` is none of these numbers.
    pub fn read_streams(self, words: &[f64], streams: usize) -> u64 {
        assert!([1, 2, 4].contains(&streams), "read_streams: {streams} streams, not 1, 2 or 4");
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if self.has_eight_lanes() {
            // SAFETY: the line above says that the CPU has what the function needs.
            #[allow(unsafe_code)]
            return unsafe {
                match streams {
                    1 => wide::read(words),
                    2 => wide::read_side_by_side::<2>(words),
                    _ => wide::read_side_by_side::<4>(words),
                }
            };
        }
        scalar::read(words)
    }

    /// `out = value`.
    pub fn write_stream(self, out: &mut [f64], value: f64, place: Place) {
        on_lanes!(self, place, write(out, value));
        let _ = place;
        out.fill(value);
    }

    /// `out = a`. Moves the bytes of both.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn copy_stream(self, out: &mut [f64], a: &[f64], place: Place) {
        assert!(out.len() == a.len(), "copy_stream: {} and {} numbers", out.len(), a.len());
        on_lanes!(self, place, copy(out, a));
        let _ = place;
        out.copy_from_slice(a);
    }

    /// `out = a + factor·b`. Moves the bytes of all three.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn triad_stream(self, out: &mut [f64], a: &[f64], b: &[f64], factor: f64, place: Place) {
        let (n, n_a, n_b) = (out.len(), a.len(), b.len());
        assert!(n == n_a && n == n_b, "triad_stream: {n}, {n_a} and {n_b} numbers");
        on_lanes!(self, place, triad(out, a, b, factor));
        let _ = place;
        scalar::triad(out, a, b, factor);
    }
}

mod scalar {
    pub(super) fn read(words: &[f64]) -> u64 {
        const LANES: usize = 8;
        let mut sums = [0u64; LANES];
        let (chunks, rest) = words.as_chunks::<LANES>();
        for chunk in chunks {
            for (sum, word) in sums.iter_mut().zip(chunk) {
                *sum = sum.wrapping_add(word.to_bits());
            }
        }
        let rest = rest.iter().map(|word| word.to_bits());
        sums.into_iter().chain(rest).fold(0, |a, b| a.wrapping_add(b))
    }

    pub(super) fn triad(out: &mut [f64], a: &[f64], b: &[f64], factor: f64) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a + factor * b;
        }
    }
}

/// Two cache lines at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod wide {
    use super::super::step::{
        LINE, STEP, Sums, add_bits, fence, load, mul_add, no_sums, splat, store, total,
    };
    use crate::lanes::prefetch_ahead;

    /// The number of values before the first whole cache line of `out`, and the number in whole steps from there on.
    fn split(out: &[f64]) -> (usize, usize) {
        let head = out.as_ptr().align_offset(64).min(out.len());
        (head, (out.len() - head) / STEP * STEP)
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(super) fn read(words: &[f64]) -> u64 {
        let (steps, rest) = words.as_chunks::<STEP>();
        let mut sums = no_sums();
        for step in steps {
            sums = add_bits(sums, load(step));
        }
        with_the_rest(sums, rest)
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(super) fn read_side_by_side<const STREAMS: usize>(words: &[f64]) -> u64 {
        let steps = words.as_chunks::<STEP>().0;
        let part = steps.len() / STREAMS;
        let mut sums = no_sums();
        for i in 0..part {
            for stream in 0..STREAMS {
                sums = add_bits(sums, load(&steps[stream * part + i]));
            }
        }
        with_the_rest(sums, &words[STREAMS * part * STEP..])
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    #[inline]
    fn with_the_rest(sums: Sums, rest: &[f64]) -> u64 {
        let rest = rest.iter().map(|word| word.to_bits());
        rest.fold(total(sums), |a, b| a.wrapping_add(b))
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(super) fn write<const FAR: bool>(out: &mut [f64], value: f64) {
        let (head, whole) = split(out);
        out[..head].fill(value);
        let values = splat(value);
        for step in out[head..head + whole].as_chunks_mut().0 {
            store::<FAR>(step, values);
        }
        out[head + whole..].fill(value);
        fence::<FAR>();
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(super) fn copy<const FAR: bool>(out: &mut [f64], a: &[f64]) {
        let (head, whole) = split(out);
        out[..head].copy_from_slice(&a[..head]);
        let steps = out[head..head + whole].as_chunks_mut().0;
        for (out, a) in steps.iter_mut().zip(a[head..].as_chunks().0) {
            if FAR {
                prefetch_ahead(a);
                prefetch_ahead(&a[LINE..]);
            }
            store::<FAR>(out, load(a));
        }
        out[head + whole..].copy_from_slice(&a[head + whole..]);
        fence::<FAR>();
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(super) fn triad<const FAR: bool>(out: &mut [f64], a: &[f64], b: &[f64], factor: f64) {
        let (head, whole) = split(out);
        super::scalar::triad(&mut out[..head], &a[..head], &b[..head], factor);
        let factors = splat(factor);
        let steps = out[head..head + whole].as_chunks_mut().0;
        for ((out, a), b) in
            steps.iter_mut().zip(a[head..].as_chunks().0).zip(b[head..].as_chunks().0)
        {
            if FAR {
                for stream in [a, b] {
                    prefetch_ahead(stream);
                    prefetch_ahead(&stream[LINE..]);
                }
            }
            store::<FAR>(out, mul_add(factors, load(b), load(a)));
        }
        let rest = head + whole;
        super::scalar::triad(&mut out[rest..], &a[rest..], &b[rest..], factor);
        fence::<FAR>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;

    fn numbers(n: usize, seed: u64) -> Vec<f64> {
        (0..n as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9) % 1000) as f64).collect()
    }

    fn each(check: impl Fn(Kernels, Place, usize, usize)) {
        for kernels in [Kernels::new(Backend::Scalar).unwrap(), Kernels::best()] {
            for place in [Place::Cache, Place::Memory] {
                for len in [0, 1, 7, 15, 16, 17, 31, 32, 33, 1003] {
                    // Whole lines begin at a different value each time.
                    for start in 0..5 {
                        check(kernels, place, start, len);
                    }
                }
            }
        }
    }

    #[test]
    fn every_word_is_read_once() {
        let words = numbers(2000, 1);
        each(|kernels, _, start, len| {
            let words = &words[start..start + len];
            let expected = words.iter().fold(0u64, |sum, word| sum.wrapping_add(word.to_bits()));
            for streams in [1, 2, 4] {
                assert_eq!(kernels.read_streams(words, streams), expected, "{len} from {start}");
            }
        });
    }

    #[test]
    fn every_number_is_written_and_none_beside_them() {
        let (a, b) = (numbers(2000, 2), numbers(2000, 3));
        each(|kernels, place, start, len| {
            let range = start..start + len;
            let check = |run: &dyn Fn(&mut [f64]), expected: &dyn Fn(usize) -> f64| {
                let mut out = vec![-1.0; 2000];
                run(&mut out[range.clone()]);
                for (i, &out) in out.iter().enumerate() {
                    let expected = if range.contains(&i) { expected(i) } else { -1.0 };
                    assert_eq!(out, expected, "{kernels:?}, {place:?}, {range:?}, {i}");
                }
            };
            check(&|out| kernels.write_stream(out, 7.0, place), &|_| 7.0);
            check(&|out| kernels.copy_stream(out, &a[range.clone()], place), &|i| a[i]);
            // Small integers, so that fused and separate rounding agree.
            check(
                &|out| {
                    kernels.triad_stream(out, &a[range.clone()], &b[range.clone()], 3.0, place);
                },
                &|i| a[i] + 3.0 * b[i],
            );
        });
    }

    #[test]
    #[should_panic = "triad_stream: 3, 3 and 2 numbers"]
    fn lengths_that_differ_are_refused() {
        let kernels = Kernels::best();
        kernels.triad_stream(&mut [0.0; 3], &[0.0; 3], &[0.0; 2], 1.0, Place::Cache);
    }
}
