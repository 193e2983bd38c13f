//! Moving memory: read, write, copy and triad, as John McCalpin's STREAM has them
//! (<https://www.cs.virginia.edu/stream/ref.html>; read and write are the halves of its copy).

use crate::kernels::Kernels;

/// Where the data of a stream lie. The fastest loop for the one is not that for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a cache: plain loads and stores.
    Cache,
    /// In memory: writes go past the caches, so that no line is read only to be overwritten, and what is
    /// read for them is fetched past the ends of pages, as the GEMV kernels do.
    Memory,
}

/// Calls the AVX2 loop for a place, or goes on where there is none.
macro_rules! on_avx2 {
    ($kernels:ident, $place:ident, $function:ident($($argument:expr),*)) => {
        #[cfg(target_arch = "x86_64")]
        if $kernels.has_avx2() {
            // SAFETY: the line above says that the CPU has AVX2, FMA and F16C.
            #[allow(unsafe_code)]
            return unsafe {
                match $place {
                    Place::Cache => avx2::$function::<false>($($argument),*),
                    Place::Memory => avx2::$function::<true>($($argument),*),
                }
            };
        }
    };
}

impl Kernels {
    /// Reads all of `words` once, as 1, 2 or 4 streams side by side; returns the sum of their bits, so
    /// that no compiler can leave it out.
    ///
    /// Which number is the fastest from memory depends on how far the prefetchers of the processor
    /// look, and on the size of pages. Plain Rust knows one stream only.
    ///
    /// # Panics
    ///
    /// If there are to be another number of streams.
    pub fn read_streams(self, words: &[f64], streams: usize) -> u64 {
        assert!([1, 2, 4].contains(&streams), "read_streams: {streams} streams, not 1, 2 or 4");
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2() {
            // SAFETY: the line above says that the CPU has AVX2, FMA and F16C.
            #[allow(unsafe_code)]
            return unsafe {
                match streams {
                    1 => avx2::read(words),
                    2 => avx2::read_side_by_side::<2>(words),
                    _ => avx2::read_side_by_side::<4>(words),
                }
            };
        }
        scalar::read(words)
    }

    /// `out = value`.
    pub fn write_stream(self, out: &mut [f64], value: f64, place: Place) {
        on_avx2!(self, place, write(out, value));
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
        on_avx2!(self, place, copy(out, a));
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
        on_avx2!(self, place, triad(out, a, b, factor));
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

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2 {
    use std::arch::x86_64::*;

    use crate::lanes::prefetch_ahead;

    /// Numbers in a cache line.
    const LINE: usize = 64 / size_of::<f64>();
    /// A step is two lines: four vectors.
    const STEP: usize = 2 * LINE;

    /// Four vectors of a step.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    fn load(step: &[f64; STEP]) -> [__m256d; 4] {
        let at = step.as_ptr();
        // SAFETY: a step has 128 bytes, and the last load begins at byte 96 of it.
        unsafe { [0, 4, 8, 12].map(|i| _mm256_loadu_pd(at.add(i))) }
    }

    /// Writes a step; past the caches if `FAR`, and then it has to be aligned to 32 bytes.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    fn store<const FAR: bool>(step: &mut [f64; STEP], vectors: [__m256d; 4]) {
        let at = step.as_mut_ptr();
        for (i, vector) in vectors.into_iter().enumerate() {
            // SAFETY: a step has 128 bytes, and the last store begins at byte 96 of it. `split` has
            // cut a far one where it is aligned.
            unsafe {
                if FAR {
                    debug_assert!(at.cast::<__m256d>().is_aligned());
                    _mm256_stream_pd(at.add(4 * i), vector);
                } else {
                    _mm256_storeu_pd(at.add(4 * i), vector);
                }
            }
        }
    }

    /// Makes stores that went past the caches visible to other threads before any later one.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[allow(
        unused_unsafe,
        reason = "it is safe in later compilers than the oldest that builds this"
    )]
    fn fence<const FAR: bool>() {
        if FAR {
            // SAFETY: it is of SSE, which AVX2 has, and touches no memory.
            unsafe { _mm_sfence() };
        }
    }

    /// How many numbers come before the first whole line of `out`, and how many are in whole steps
    /// from there on.
    fn split(out: &[f64]) -> (usize, usize) {
        let head = out.as_ptr().align_offset(64).min(out.len());
        (head, (out.len() - head) / STEP * STEP)
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn read(words: &[f64]) -> u64 {
        let (steps, rest) = words.as_chunks::<STEP>();
        let mut sums = [_mm256_setzero_si256(); 4];
        for step in steps {
            for (sum, vector) in sums.iter_mut().zip(load(step)) {
                *sum = _mm256_add_epi64(*sum, _mm256_castpd_si256(vector));
            }
        }
        total(sums, rest)
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn read_side_by_side<const STREAMS: usize>(words: &[f64]) -> u64 {
        let steps = words.as_chunks::<STEP>().0;
        let part = steps.len() / STREAMS;
        let mut sums = [_mm256_setzero_si256(); 4];
        for i in 0..part {
            for stream in 0..STREAMS {
                for (sum, vector) in sums.iter_mut().zip(load(&steps[stream * part + i])) {
                    *sum = _mm256_add_epi64(*sum, _mm256_castpd_si256(vector));
                }
            }
        }
        total(sums, &words[STREAMS * part * STEP..])
    }

    /// The sum of all lanes and of the bits of what is left over.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    fn total(sums: [__m256i; 4], rest: &[f64]) -> u64 {
        let sum = sums.into_iter().reduce(|a, b| _mm256_add_epi64(a, b)).expect("four sums");
        let mut lanes = [0u64; 4];
        // SAFETY: `lanes` has the 32 bytes that are written.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
        let rest = rest.iter().map(|word| word.to_bits());
        lanes.into_iter().chain(rest).fold(0, |a, b| a.wrapping_add(b))
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn write<const FAR: bool>(out: &mut [f64], value: f64) {
        let (head, whole) = split(out);
        out[..head].fill(value);
        let vector = _mm256_set1_pd(value);
        for step in out[head..head + whole].as_chunks_mut().0 {
            store::<FAR>(step, [vector; 4]);
        }
        out[head + whole..].fill(value);
        fence::<FAR>();
    }

    #[target_feature(enable = "avx2,fma,f16c")]
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

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn triad<const FAR: bool>(out: &mut [f64], a: &[f64], b: &[f64], factor: f64) {
        let (head, whole) = split(out);
        super::scalar::triad(&mut out[..head], &a[..head], &b[..head], factor);
        let factors = _mm256_set1_pd(factor);
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
            let (a, b) = (load(a), load(b));
            store::<FAR>(out, [0, 1, 2, 3].map(|i| _mm256_fmadd_pd(factors, b[i], a[i])));
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
                    // Whole lines begin at another number each time.
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
            // Small whole numbers, so that fused and separate rounding agree.
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
