//! Interleaves rows of weights in memory, for kernels that read them faster that way.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brickscope_kernels::{GROUP_ROWS, Kernels, QuantType, interleave};

use crate::gguf::Gguf;
use crate::weights::{Tensor, Weights};

/// Bytes that are rearranged between two reports of progress.
const AT_ONCE: usize = 2 << 20;

/// What [`Model::interleave`](crate::Model::interleave) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Interleaved {
    /// Matrices that were rearranged.
    pub matrices: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// Interleaves in place those matrices that `kernels` read faster that way, on at most `threads` threads. `None` if
/// there are none, or the bytes can't be changed.
pub(crate) fn interleave_matrices(
    gguf: &mut Gguf,
    weights: &mut Weights,
    kernels: Kernels,
    threads: NonZeroUsize,
    progress: &mut dyn FnMut(u64, u64),
) -> Option<Interleaved> {
    let chosen = faster_interleaved(weights, kernels);
    let chosen = chosen.map(|w| (gguf.range(w.info()), w.kind, w.cols));
    let mut chosen: Vec<(Range<usize>, QuantType, usize)> = chosen.collect();
    chosen.sort_by_key(|(range, ..)| range.start);
    if chosen.is_empty() {
        return None;
    }
    let bytes = gguf.bytes_mut()?;
    let begun = Instant::now();
    let total = chosen.iter().map(|(range, ..)| range.len() as u64).sum();
    rearrange(pieces(bytes, &chosen), threads, &mut |done| progress(done, total));
    let took = begun.elapsed();
    let starts: Vec<usize> = chosen.iter().map(|(range, ..)| range.start).collect();
    for w in weights.matrices_mut() {
        w.set_interleaved(starts.contains(&gguf.range(w.info()).start));
    }
    gguf.mark_interleaved(&starts);
    Some(Interleaved { matrices: chosen.len(), bytes: total, took })
}

/// The matrices that `kernels` read faster interleaved, and that aren't yet.
pub(crate) fn faster_interleaved(
    weights: &Weights,
    kernels: Kernels,
) -> impl Iterator<Item = &Tensor> {
    // All but the embedding, which comes first; a tied head is the same again.
    weights.matrices().skip(1).filter(move |w| {
        kernels.interleaves(w.kind) && w.rows.is_multiple_of(GROUP_ROWS) && !w.is_interleaved()
    })
}

/// Whole groups of rows: their type, columns and bytes.
type Piece<'b> = (QuantType, usize, &'b mut [u8]);

/// Cuts the matrices, which come in order of their places, into pieces.
fn pieces<'b>(
    mut bytes: &'b mut [u8],
    matrices: &[(Range<usize>, QuantType, usize)],
) -> Vec<Piece<'b>> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    for (range, kind, cols) in matrices {
        let (_, rest) = bytes.split_at_mut(range.start - at);
        let (matrix, rest) = rest.split_at_mut(range.len());
        (bytes, at) = (rest, range.end);
        let group = GROUP_ROWS * (cols / kind.block_len()) * kind.block_bytes();
        let piece = (AT_ONCE / group).max(1) * group;
        pieces.extend(matrix.chunks_mut(piece).map(|rows| (*kind, *cols, rows)));
    }
    pieces
}

/// Interleaves all pieces on `threads` threads, the calling one among them. It reports how many bytes are done.
fn rearrange(pieces: Vec<Piece<'_>>, threads: NonZeroUsize, progress: &mut dyn FnMut(u64)) {
    let total: u64 = pieces.iter().map(|(.., rows)| rows.len() as u64).sum();
    let threads = threads.get().min(pieces.len());
    let (pieces, done) = (Mutex::new(pieces.into_iter()), AtomicU64::new(0));
    let work = |told: &mut dyn FnMut(u64)| {
        loop {
            let next = pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((kind, cols, rows)) = next else { break };
            interleave(kind, cols, rows);
            let len = rows.len() as u64;
            told(done.fetch_add(len, Ordering::Relaxed) + len);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without this thread, the others do the work.
            let _ = thread::Builder::new().spawn_scoped(scope, || work(&mut |_| ()));
        }
        work(progress);
    });
    progress(total);
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use brickscope_kernels::Backend;

    use super::*;
    use crate::model::Model;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models").join(name)
    }

    fn in_memory(name: &str) -> Model {
        let bytes = std::fs::read(fixture(name)).expect("the fixture");
        Model::from_gguf(Gguf::from_bytes(bytes, name).expect("a file")).expect("a model")
    }

    fn threads(n: usize) -> NonZeroUsize {
        NonZeroUsize::new(n).expect("not 0")
    }

    #[test]
    fn each_row_of_each_matrix_is_what_it_was() {
        let Ok(kernels) = Kernels::new(Backend::Avx512) else {
            return eprintln!("skipped: no AVX-512 VNNI");
        };
        let names = ["tiny-F16", "tiny-Q4_0", "tiny-Q8_0", "tiny-Q4_K_M", "tiny-bitnet-TQ2_0"];
        for (name, n) in names.into_iter().flat_map(|name| [(name, 1), (name, 2), (name, 3)]) {
            let name = &format!("{name}.gguf");
            let as_in_file = Model::open(&fixture(name)).expect("a model");
            let mut model = in_memory(name);
            let mut told = Vec::new();
            let progress = &mut |done, total| told.push((done, total));
            let done = model.interleave(kernels, threads(n), progress).expect("it has some");
            let (mut matrices, mut bytes) = (0, 0);
            let tensors: Vec<_> =
                as_in_file.weights.matrices().zip(model.weights.matrices()).collect();
            for (i, (before, after)) in tensors.iter().copied().enumerate() {
                // A tied head is the table of embeddings, the first.
                let is_head = |w: &Tensor| w.info().offset == before.info().offset;
                let is_multiplied = i > 0 || tensors[1..].iter().any(|(w, _)| is_head(w));
                let is_whole = before.rows.is_multiple_of(GROUP_ROWS);
                let expected = is_multiplied && kernels.interleaves(before.kind) && is_whole;
                assert_eq!(after.is_interleaved(), expected, "{name}, matrix {i}");
                if expected && i > 0 {
                    matrices += 1;
                    bytes += after.n_bytes();
                }
                let before = before.matrix(&as_in_file.gguf);
                let after = after.matrix(&model.gguf);
                assert_eq!(after.is_interleaved(), expected);
                for row in 0..before.rows() {
                    assert_eq!(after.row_bytes(row), before.row_bytes(row), "{name}, matrix {i}");
                }
            }
            assert!(matrices > 0);
            assert_eq!((done.matrices, done.bytes), (matrices, bytes));
            assert_eq!(told.last(), Some(&(bytes, bytes)));
            assert_eq!(model.interleaved(), Some(done));
            // A second time there is nothing left to do, and the file still knows what it is.
            let progress = &mut |_, _| panic!("nothing to do");
            assert_eq!(model.interleave(kernels, threads(n), progress), None);
            let again = Model::from_gguf(model.gguf.clone()).expect("the same model");
            let tensors = || again.weights.matrices().zip(model.weights.matrices());
            assert!(tensors().all(|(a, b)| a.matrix(&again.gguf) == b.matrix(&model.gguf)));
        }
    }

    #[test]
    fn bytes_of_others_and_what_is_read_no_faster_stay_as_they_are() {
        let nothing = |model: &mut Model, kernels| {
            let progress = &mut |_, _| panic!("nothing to do");
            assert_eq!(model.interleave(kernels, threads(1), progress), None);
            assert_eq!(model.interleaved(), None);
            assert!(model.weights.matrices().all(|w| !w.is_interleaved()));
        };
        let scalar = Kernels::new(Backend::Scalar).expect("every CPU has them");
        nothing(&mut in_memory("tiny-Q4_K_M.gguf"), scalar);
        let Ok(kernels) = Kernels::new(Backend::Avx512) else { return };
        nothing(&mut Model::open(&fixture("tiny-Q4_K_M.gguf")).expect("a model"), kernels);
        let mut model = in_memory("tiny-Q4_K_M.gguf");
        let other = model.gguf.clone();
        nothing(&mut model, kernels);
        drop(other);
        assert!(model.interleave(kernels, threads(1), &mut |_, _| ()).is_some());
    }
}
