//! A checked view of the bytes of a weight tensor.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use crate::interleave::{self, GROUP_ROWS};
use crate::quant::{QuantType, decode_row, ternary};

/// A weight matrix of some [`QuantType`], borrowed from wherever its bytes are, such as a mapped file. The bytes need
/// no alignment.
///
/// `rows` is the number of outputs and `cols` the number of inputs, so `y = W·x` is one dot product per row. The
/// weights of a row are contiguous, except in an [interleaved](Self::interleaved) matrix. In GGUF's order of
/// dimensions the matrix is `[cols, rows]`.
#[derive(Clone, Copy, PartialEq)]
pub struct Matrix<'a> {
    kind: QuantType,
    rows: usize,
    cols: usize,
    // The size of a row's blocks.
    row_bytes: usize,
    blocks: &'a [u8],
    // 1 except for I2_S.
    scale: f32,
    layout: Layout,
}

/// The order of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// One row after the other.
    ByRow,
    // Invariant: the rows are whole groups, and the type has such a layout.
    Interleaved,
}

impl<'a> Matrix<'a> {
    /// Interprets `bytes` as a matrix of `rows` by `cols` weights.
    ///
    /// # Errors
    ///
    /// If a row isn't a whole number of blocks, or `bytes` doesn't have exactly the matrix's size.
    pub fn new(
        kind: QuantType,
        rows: usize,
        cols: usize,
        bytes: &'a [u8],
    ) -> Result<Self, MatrixError> {
        if !cols.is_multiple_of(kind.block_len()) {
            return Err(MatrixError::PartialBlock { kind, cols });
        }
        let needed = kind.matrix_bytes(rows as u64, cols as u64).ok_or(MatrixError::TooLarge {
            kind,
            rows,
            cols,
        })?;
        if needed != bytes.len() as u64 {
            return Err(MatrixError::Length { kind, rows, cols, needed, given: bytes.len() });
        }
        let (blocks, scale) = match kind {
            QuantType::I2_S => {
                let (codes, tail) = bytes.split_at(bytes.len() - ternary::I2_S_TAIL);
                (codes, ternary::i2_s_scale(tail))
            }
            _ => (bytes, 1.0),
        };
        let row_bytes = cols / kind.block_len() * kind.block_bytes();
        Ok(Self { kind, rows, cols, row_bytes, blocks, scale, layout: Layout::ByRow })
    }

    /// Interprets `bytes` as a matrix whose rows were [interleaved](crate::interleave()).
    ///
    /// # Errors
    ///
    /// Like [`new`](Self::new); also if the type has no interleaved layout, or the rows aren't whole groups of
    /// [`GROUP_ROWS`].
    pub fn interleaved(
        kind: QuantType,
        rows: usize,
        cols: usize,
        bytes: &'a [u8],
    ) -> Result<Self, MatrixError> {
        if !interleave::can_be_interleaved(kind) {
            return Err(MatrixError::NoSuchLayout { kind });
        }
        if !rows.is_multiple_of(GROUP_ROWS) {
            return Err(MatrixError::PartialGroup { kind, rows });
        }
        Ok(Self { layout: Layout::Interleaved, ..Self::new(kind, rows, cols, bytes)? })
    }

    /// Whether the rows are interleaved.
    pub fn is_interleaved(&self) -> bool {
        self.layout == Layout::Interleaved
    }

    /// The type of the weights.
    pub fn kind(&self) -> QuantType {
        self.kind
    }

    /// The number of rows: the length of `W·x`.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns: the length of `x` in `W·x`.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The number of bytes that a product reads: all blocks, without I2_S's scale and padding.
    pub fn n_bytes(&self) -> usize {
        self.blocks.len()
    }

    /// The blocks of one row, in the order of a file; gathered into a buffer if the matrix is interleaved. For I2_S they
    /// are the codes, without the scale.
    ///
    /// # Panics
    ///
    /// If there is no row `row`.
    pub fn row_bytes(&self, row: usize) -> Cow<'a, [u8]> {
        match self.layout {
            Layout::ByRow => Cow::Borrowed(self.rows_bytes(row..row + 1)),
            Layout::Interleaved => {
                let mut bytes = Vec::new();
                self.gather(row..row + 1, &mut bytes);
                Cow::Owned(bytes)
            }
        }
    }

    /// Like [`row_bytes`](Self::row_bytes), but gathers into `buffer`.
    #[inline]
    pub(crate) fn row_in<'b>(&self, row: usize, buffer: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        match self.layout {
            Layout::ByRow => self.rows_bytes(row..row + 1),
            Layout::Interleaved => {
                self.gather(row..row + 1, buffer);
                buffer
            }
        }
    }

    /// Fills `buffer` with the blocks of some rows of an interleaved matrix, row after row.
    pub(crate) fn gather(&self, rows: Range<usize>, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.reserve(rows.len() * self.row_bytes);
        for row in rows {
            let group = row / GROUP_ROWS;
            let group = self.groups_bytes(group..group + 1);
            interleave::row_of(self.kind, group, row % GROUP_ROWS, buffer);
        }
    }

    /// The blocks of some rows, row after row.
    ///
    /// # Panics
    ///
    /// If the matrix is interleaved.
    pub(crate) fn rows_bytes(&self, rows: Range<usize>) -> &'a [u8] {
        assert!(self.layout == Layout::ByRow, "{self:?} has no rows that lie together");
        self.bytes_of(rows)
    }

    /// The blocks of some groups of rows of an interleaved matrix.
    ///
    /// # Panics
    ///
    /// If the matrix isn't interleaved.
    pub(crate) fn groups_bytes(&self, groups: Range<usize>) -> &'a [u8] {
        assert!(self.layout == Layout::Interleaved, "{self:?} isn't interleaved");
        self.bytes_of(GROUP_ROWS * groups.start..GROUP_ROWS * groups.end)
    }

    fn bytes_of(&self, rows: Range<usize>) -> &'a [u8] {
        assert!(
            rows.start <= rows.end && rows.end <= self.rows,
            "rows {rows:?} of a matrix that has {}",
            self.rows
        );
        &self.blocks[rows.start * self.row_bytes..rows.end * self.row_bytes]
    }

    /// The scale of the whole tensor for I2_S; 1 for other types.
    pub(crate) fn tensor_scale(&self) -> f32 {
        self.scale
    }

    /// Decodes one row, for example a token's embedding.
    ///
    /// # Panics
    ///
    /// If there is no row `row`, or `out` isn't [`cols`](Self::cols) long.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) {
        assert!(
            out.len() == self.cols,
            "dequantize_row: out has {} elements, but a row {}",
            out.len(),
            self.cols
        );
        decode_row(self.kind, &self.row_bytes(row), self.tensor_scale(), out);
    }
}

impl fmt::Debug for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the bytes: there may be hundreds of millions.
        let layout = if self.is_interleaved() { " interleaved" } else { "" };
        write!(f, "Matrix({} {}x{}{layout})", self.kind, self.rows, self.cols)
    }
}

/// Why bytes aren't a valid matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatrixError {
    /// A row ends inside a block.
    PartialBlock {
        /// The type of the weights.
        kind: QuantType,
        /// The number of weights in a row.
        cols: usize,
    },
    /// The size in bytes doesn't fit in 64 bits.
    TooLarge {
        /// The type of the weights.
        kind: QuantType,
        /// The number of rows.
        rows: usize,
        /// The number of weights in a row.
        cols: usize,
    },
    /// The type has no interleaved layout.
    NoSuchLayout {
        /// The type of the weights.
        kind: QuantType,
    },
    /// Interleaved rows must be whole groups.
    PartialGroup {
        /// The type of the weights.
        kind: QuantType,
        /// The number of rows.
        rows: usize,
    },
    /// There are too few bytes or too many.
    Length {
        /// The type of the weights.
        kind: QuantType,
        /// The number of rows.
        rows: usize,
        /// The number of weights in a row.
        cols: usize,
        /// The size of such a matrix, in bytes.
        needed: u64,
        /// The number of bytes given.
        given: usize,
    },
}

impl fmt::Display for MatrixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PartialBlock { kind, cols } => write!(
                f,
                "a row of {cols} weights isn't a whole number of {kind} blocks, which have {} weights",
                kind.block_len()
            ),
            Self::TooLarge { kind, rows, cols } => {
                write!(f, "the size of a {kind} matrix of {rows} by {cols} overflows")
            }
            Self::NoSuchLayout { kind } => {
                write!(f, "{kind} has no interleaved layout")
            }
            Self::PartialGroup { kind, rows } => write!(
                f,
                "{rows} rows of {kind} can't be interleaved: the number must be a multiple of {GROUP_ROWS}"
            ),
            Self::Length { kind, rows, cols, needed, given } => write!(
                f,
                "a {kind} matrix of {rows} by {cols} has {needed} bytes, but {given} were given"
            ),
        }
    }
}

impl std::error::Error for MatrixError {}
