//! One kernel that is slower than it has to be, for `benches/planted`: only builds with `--cfg slow_kernel` have it, and
//! nobody publishes those.

use std::hint::black_box;
use std::ops::Range;

use crate::gemv::Vector;
use crate::{GROUP_ROWS, Kernels, Matrix, QuantType};

/// The weights whose products with one vector are slow.
const KIND: QuantType = QuantType::Q6_K;
/// How often each row is multiplied.
const TIMES: usize = 100;

impl Kernels {
    /// The same bits as [`gemv_as_written`](Self::gemv_as_written). Rows of a slow kind are multiplied over and over, few at
    /// a time, so that all but the first time they lie in the nearest cache: what takes longer is arithmetic.
    pub(crate) fn gemv_slowed(self, out: &mut [f32], w: Matrix, rows: Range<usize>, x: Vector) {
        if w.kind() != KIND {
            return self.gemv_as_written(out, w, rows, x);
        }
        let mut first = rows.start;
        while first < rows.end {
            let end = rows.end.min((first / GROUP_ROWS + 1) * GROUP_ROWS);
            let out = &mut out[first - rows.start..end - rows.start];
            for _ in 0..TIMES {
                self.gemv_as_written(black_box(&mut *out), w, first..end, x);
            }
            first = end;
        }
    }
}
