//! What a file says of a tensor, and the table of all tensor types.

/// One tensor of a file: its name, its shape and where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name in the file, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// One to four sizes, none of them 0. The first is the contiguous one: for a weight matrix, its
    /// input features.
    pub dims: Vec<usize>,
    /// How the numbers are stored.
    pub kind: TensorType,
    /// Where its bytes begin, counted from the start of the data section.
    pub offset: usize,
    /// How many bytes it has, without the padding after them.
    pub n_bytes: usize,
    /// Whether its rows were interleaved in memory, as [`Matrix::interleaved`] reads them. In a file they never
    /// are.
    ///
    /// [`Matrix::interleaved`]: brickscope_kernels::Matrix::interleaved
    pub is_interleaved: bool,
}

impl TensorInfo {
    /// How many numbers the tensor has.
    pub fn n_elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// How many numbers are contiguous: the first of [`dims`](Self::dims).
    pub fn n_cols(&self) -> usize {
        self.dims[0]
    }

    /// How many rows of [`n_cols`](Self::n_cols) there are.
    pub fn n_rows(&self) -> usize {
        self.dims[1..].iter().product()
    }
}

/// Writes the enum, its names and its sizes from one table, so that they can't disagree.
macro_rules! tensor_types {
    ($($variant:ident = $id:literal, $name:literal, $block_len:literal in $block_bytes:literal;)*) => {
        /// How a tensor's numbers are stored. Its discriminant is ggml's type id.
        ///
        /// All the types that ggml has today are here, also those that the kernels can't compute
        /// with: so a file's tensors can always be sized and named. Block sizes are from
        /// `ggml-common.h` (ggml 0.25.3).
        #[allow(non_camel_case_types, reason = "these are the names that people know from file names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum TensorType {
            $(
                #[doc = concat!("`", $name, "`: ", stringify!($block_len), " in ", stringify!($block_bytes), " bytes.")]
                $variant = $id,
            )*
        }

        impl TensorType {
            /// All types, by id.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The type with ggml's `id`, if there is one.
            pub fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The name people know it by, such as `Q4_K`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// How many numbers are stored together. Rows are whole blocks.
            pub fn block_len(self) -> usize {
                match self {
                    $(Self::$variant => $block_len,)*
                }
            }

            /// How many bytes a block has.
            pub fn block_bytes(self) -> usize {
                match self {
                    $(Self::$variant => $block_bytes,)*
                }
            }
        }
    };
}

tensor_types! {
    F32 = 0, "F32", 1 in 4;
    F16 = 1, "F16", 1 in 2;
    Q4_0 = 2, "Q4_0", 32 in 18;
    Q4_1 = 3, "Q4_1", 32 in 20;
    Q5_0 = 6, "Q5_0", 32 in 22;
    Q5_1 = 7, "Q5_1", 32 in 24;
    Q8_0 = 8, "Q8_0", 32 in 34;
    Q8_1 = 9, "Q8_1", 32 in 36;
    Q2_K = 10, "Q2_K", 256 in 84;
    Q3_K = 11, "Q3_K", 256 in 110;
    Q4_K = 12, "Q4_K", 256 in 144;
    Q5_K = 13, "Q5_K", 256 in 176;
    Q6_K = 14, "Q6_K", 256 in 210;
    Q8_K = 15, "Q8_K", 256 in 292;
    IQ2_XXS = 16, "IQ2_XXS", 256 in 66;
    IQ2_XS = 17, "IQ2_XS", 256 in 74;
    IQ3_XXS = 18, "IQ3_XXS", 256 in 98;
    IQ1_S = 19, "IQ1_S", 256 in 50;
    IQ4_NL = 20, "IQ4_NL", 32 in 18;
    IQ3_S = 21, "IQ3_S", 256 in 110;
    IQ2_S = 22, "IQ2_S", 256 in 82;
    IQ4_XS = 23, "IQ4_XS", 256 in 136;
    I8 = 24, "I8", 1 in 1;
    I16 = 25, "I16", 1 in 2;
    I32 = 26, "I32", 1 in 4;
    I64 = 27, "I64", 1 in 8;
    F64 = 28, "F64", 1 in 8;
    IQ1_M = 29, "IQ1_M", 256 in 56;
    BF16 = 30, "BF16", 1 in 2;
    TQ1_0 = 34, "TQ1_0", 256 in 54;
    TQ2_0 = 35, "TQ2_0", 256 in 66;
    I2_S = 36, "I2_S", 4 in 1;
    MXFP4 = 39, "MXFP4", 32 in 17;
    NVFP4 = 40, "NVFP4", 64 in 36;
    Q1_0 = 41, "Q1_0", 128 in 18;
    Q2_0 = 42, "Q2_0", 64 in 18;
}

impl TensorType {
    /// ggml's number for it.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// Bytes that a tensor has once, after its blocks. Only `I2_S` has any: one scale for the whole
    /// tensor and its padding.
    pub fn tail_bytes(self) -> usize {
        if self == Self::I2_S { 32 } else { 0 }
    }

    /// How many bytes `n_elements` numbers take, or `None` if they aren't whole blocks or the
    /// result overflows.
    pub fn n_bytes(self, n_elements: usize) -> Option<usize> {
        if !n_elements.is_multiple_of(self.block_len()) {
            return None;
        }
        (n_elements / self.block_len())
            .checked_mul(self.block_bytes())?
            .checked_add(self.tail_bytes())
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_types_are_two_names_of_one_thing() {
        for &kind in TensorType::ALL {
            assert_eq!(TensorType::from_id(kind.id()), Some(kind));
        }
        for gone in [4, 5, 31, 32, 33, 37, 38, 43, u32::MAX] {
            assert_eq!(TensorType::from_id(gone), None);
        }
    }

    #[test]
    fn a_tensor_is_whole_blocks_and_its_tail() {
        assert_eq!(TensorType::Q4_K.n_bytes(512), Some(288));
        assert_eq!(TensorType::Q4_K.n_bytes(500), None);
        assert_eq!(TensorType::I2_S.n_bytes(256), Some(96));
        assert_eq!(TensorType::F64.n_bytes(usize::MAX), None);
    }
}
