//! The work of matrix products, as the shapes and types of their tensors state it, which PyTorch's profiler writes with
//! `record_shapes=True`. FLOPs are 2·M·N·K; bytes are those of both factors and of the result, each moved once. Biases and
//! scales don't count. What isn't stated is absent: of a type that isn't known nothing, and of weights that are packed the
//! FLOPs and, unless it is an argument, the result, since their dimensions are those of the words that they are packed in.
//!
//! The order of the arguments is that of each operation's schema: PyTorch's `native_functions.yaml`, vLLM's
//! `csrc/torch_bindings.cpp` and `csrc/rocm/torch_bindings.cpp`, SGLang's `sgl-kernel/csrc/common_extension.cc`, FBGEMM's
//! `quantize.cpp`; of `aiter::gemm_a16w16` and `vllm::rocm_unquantized_gemm` that of traces.

use std::borrow::Cow;
use std::collections::HashMap;

use brickscope_profile::{Data, Work};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::EventKind;
use crate::import::trace::{Timed, Trace};
use crate::import::values::words;

/// So many products are kept: each takes some 60 bytes.
const MOST_PRODUCTS: usize = 1 << 21;

/// The most dimensions of a tensor that are looked at.
const MOST_DIMS: usize = 16;

/// Products by the numbers of their links.
#[derive(Default)]
pub(in crate::import) struct Products {
    /// In the order of the numbers, which rise.
    of_link: Vec<(u32, Product)>,
    /// How many more there were.
    pub(super) over: u64,
}

/// A product of two matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Product {
    pub(super) work: Work,
    /// The bytes of its second factor.
    second: u64,
}

impl Products {
    /// Notes what the arguments of an operation with this link tell, if it is a product. Links come in their order.
    pub(in crate::import) fn note(&mut self, link: u32, name: &str, args: Option<&RawValue>) {
        let Some(args) = args.map(RawValue::get).filter(|args| args.contains("\"Input ")) else {
            return;
        };
        let Some(product) = Schema::of(name).and_then(|schema| product(schema, args)) else {
            return;
        };
        if self.of_link.len() == MOST_PRODUCTS {
            self.over += 1;
            return;
        }
        self.of_link.push((link, product));
    }

    pub(super) fn of(&self, link: Option<u32>) -> Option<Product> {
        let link = link?;
        let at = self.of_link.binary_search_by_key(&link, |(of, _)| *of).ok()?;
        self.of_link.get(at).map(|(_, product)| *product)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of_link.is_empty()
    }
}

impl Product {
    /// Whether its second factor is known to be weights.
    pub(super) fn has_weights(&self) -> bool {
        matches!(self.work.data, Data::Weights(_))
    }

    /// The same, if an operation around it says that the second factor is weights.
    pub(super) fn of_weights(self) -> Self {
        if self.work.bytes == 0 {
            return self;
        }
        let data = Data::Weights(self.second.min(self.work.bytes));
        Self { work: Work { data, ..self.work }, ..self }
    }
}

/// Which arguments of an operation are its factors.
#[derive(Debug, Clone, Copy)]
struct Schema {
    first: usize,
    second: Second,
    result: Written,
    /// Whether the second factor is weights.
    is_linear: bool,
}

#[derive(Debug, Clone, Copy)]
enum Second {
    At(usize),
    /// The first tensor of integers: versions differ in what is before it.
    Integers,
}

/// What tells the type of the result.
#[derive(Debug, Clone, Copy)]
enum Written {
    /// It is that of the first factor.
    AsFirst,
    /// It is an argument.
    At(usize),
    /// So many bytes an element.
    Bytes(u64),
    /// An argument has the number of a type; without it, it is that of a first factor of floats.
    Named,
}

impl Schema {
    fn of(name: &str) -> Option<Self> {
        use Second::Integers;
        use Written::{AsFirst, Bytes, Named};
        let at = Second::At;
        let (first, second, result, is_linear) = match name {
            "aten::mm" | "aten::matmul" | "aten::bmm" => (0, at(1), AsFirst, false),
            "aten::addmm" | "aten::_addmm_activation" | "aten::baddbmm" => {
                (1, at(2), AsFirst, false)
            }
            "aten::linear"
            | "aten::_weight_int8pack_mm"
            | "aten::_weight_int4pack_mm"
            | "vllm::rocm_unquantized_gemm"
            | "_C::awq_gemm"
            | "_C::gptq_gemm" => (0, at(1), AsFirst, true),
            // The weights come first.
            "_rocm_C::wvSplitK" | "_rocm_C::LLMM1" => (1, at(0), AsFirst, true),
            "aten::_int_mm" => (0, at(1), Bytes(4), true),
            "fbgemm::f8f8bf16_rowwise" => (0, at(1), Bytes(2), true),
            "aten::_scaled_mm"
            | "aiter::gemm_a16w16"
            | "sgl_kernel::fp8_scaled_mm"
            | "sgl_kernel::int8_scaled_mm"
            | "sgl_kernel::fp8_blockwise_scaled_mm" => (0, at(1), Named, true),
            "_C::cutlass_scaled_mm" | "_C::cutlass_scaled_mm_azp" | "_C::cutlass_scaled_fp4_mm" => {
                (1, at(2), Written::At(0), true)
            }
            "_C::gptq_marlin_gemm" | "_C::marlin_gemm" => (0, Integers, AsFirst, true),
            _ => return None,
        };
        Some(Self { first, second, result, is_linear })
    }
}

/// What the profiler writes of an operation's arguments.
#[derive(Deserialize)]
pub(super) struct Args<'a> {
    #[serde(borrow, rename = "Input Dims", alias = "Input dims")]
    dims: Vec<&'a RawValue>,
    #[serde(borrow, rename = "Input type")]
    types: Vec<&'a RawValue>,
    #[serde(borrow, default, rename = "Input Strides")]
    strides: Vec<&'a RawValue>,
    #[serde(borrow, default, rename = "Concrete Inputs")]
    values: Vec<&'a RawValue>,
}

pub(super) struct Tensor {
    pub(super) dims: Vec<u64>,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
}

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) bytes: u64,
    /// Whether an element may be several numbers.
    pub(super) is_packed: bool,
    pub(super) is_integer: bool,
}

impl Kind {
    /// By the name of C++, as `torch::TypeMeta` has it.
    fn of(name: &str) -> Option<Self> {
        let (bytes, is_packed, is_integer) = match name {
            "double" => (8, false, false),
            "float" => (4, false, false),
            "c10::Half" | "c10::BFloat16" => (2, false, false),
            "c10::Float8_e4m3fn"
            | "c10::Float8_e4m3fnuz"
            | "c10::Float8_e5m2"
            | "c10::Float8_e5m2fnuz" => (1, false, false),
            "c10::Float4_e2m1fn_x2" => (1, true, false),
            "signed char" => (1, false, true),
            "unsigned char" => (1, true, true),
            "short" | "short int" => (2, true, true),
            "int" => (4, true, true),
            "long" | "long int" => (8, true, true),
            _ => return None,
        };
        Some(Self { bytes, is_packed, is_integer })
    }

    /// The bytes of an element by PyTorch's number of its type:
    /// <https://github.com/pytorch/pytorch/blob/main/torch/headeronly/core/ScalarType.h>
    fn bytes_of_number(number: u64) -> Option<u64> {
        Some(match number {
            0 | 1 | 23..=26 => 1,
            2 | 5 | 15 => 2,
            3 | 6 => 4,
            4 | 7 => 8,
            _ => return None,
        })
    }
}

impl<'a> Args<'a> {
    pub(super) fn read(args: &'a str) -> Option<Self> {
        serde_json::from_str(args).ok()
    }

    /// An argument that is no tensor; nothing if there is none.
    pub(super) fn value(&self, at: usize) -> Cow<'_, str> {
        words(self.values.get(at).copied())
    }

    /// Whether there is such an argument, of any type.
    pub(super) fn is_given(&self, at: usize) -> bool {
        self.types.get(at).is_some_and(|kind| !words(Some(*kind)).is_empty())
    }

    /// Whether a tensor shows the same memory in several places.
    pub(super) fn is_spread(&self, at: usize) -> bool {
        let numbers =
            |of: &[&RawValue]| -> Option<Vec<u64>> { serde_json::from_str(of.get(at)?.get()).ok() };
        let (Some(dims), Some(strides)) = (numbers(&self.dims), numbers(&self.strides)) else {
            return false;
        };
        dims.iter().zip(strides).any(|(&dim, stride)| dim > 1 && stride == 0)
    }

    pub(super) fn tensor(&self, at: usize) -> Option<Tensor> {
        let dims: Vec<u64> = serde_json::from_str(self.dims.get(at)?.get()).ok()?;
        if dims.is_empty() || dims.len() > MOST_DIMS || dims.contains(&0) {
            return None;
        }
        let kind = Kind::of(&words(self.types.get(at).copied()))?;
        let bytes = times(&dims)?.checked_mul(kind.bytes)?;
        Some(Tensor { dims, kind, bytes })
    }

    /// The bytes of an element of the type that an argument has the number of.
    fn named(&self) -> Option<u64> {
        let mut arguments = self.types.iter().copied().zip(self.values.iter().copied());
        let number = arguments.find_map(|(of, value)| match &*words(Some(of)) {
            "Scalar" => words(Some(value)).parse().ok(),
            _ => None,
        })?;
        Kind::bytes_of_number(number)
    }
}

fn times(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim))
}

/// The elements of a product's result, and K: how many multiplications and additions each takes. `None` if the tensors don't
/// fit each other.
fn shape(first: &[u64], second: &[u64]) -> Option<(u64, u64)> {
    let (&k, rows) = first.split_last()?;
    let columns = |two: [u64; 2]| match two {
        [of, n] if of == k => Some(n),
        // Weights are often stored by rows of K.
        [n, of] if of == k => Some(n),
        _ => None,
    };
    let n = match *second {
        [of] => (of == k).then_some(1)?,
        [a, b] => columns([a, b])?,
        [ref batch @ .., a, b] => {
            // The same number of matrices on both sides.
            let (_, of_first) = rows.split_last()?;
            if batch != of_first {
                return None;
            }
            columns([a, b])?
        }
        [] => return None,
    };
    Some((times(rows)?.checked_mul(n)?, k))
}

fn product(schema: Schema, args: &str) -> Option<Product> {
    let args = Args::read(args)?;
    let first = args.tensor(schema.first)?;
    let second = match schema.second {
        Second::At(at) => args.tensor(at)?,
        Second::Integers => {
            let mut rest =
                (schema.first + 1..args.dims.len().min(MOST_DIMS)).filter_map(|at| args.tensor(at));
            rest.find(|tensor| tensor.kind.is_integer)?
        }
    };
    let factors = first.bytes.checked_add(second.bytes)?;
    let is_packed = first.kind.is_packed || second.kind.is_packed;
    let (elements, flops, result) = if is_packed {
        // The number of columns isn't known, nor with it the result.
        let result = match schema.result {
            Written::At(at) => args.tensor(at).map(|tensor| tensor.bytes),
            _ => Some(0),
        };
        (1, 0, result)
    } else {
        let (elements, k) = shape(&first.dims, &second.dims)?;
        let of_each = |bytes: u64| elements.checked_mul(bytes);
        let is_float = !first.kind.is_integer && first.kind.bytes > 1;
        let result = match schema.result {
            Written::At(at) => args.tensor(at).map(|tensor| tensor.bytes),
            Written::AsFirst => of_each(first.kind.bytes),
            Written::Bytes(bytes) => of_each(bytes),
            Written::Named => {
                args.named().or_else(|| is_float.then_some(first.kind.bytes)).and_then(of_each)
            }
        };
        (elements, elements.checked_mul(k)?.checked_mul(2)?, result)
    };
    let bytes = result.and_then(|result| factors.checked_add(result)).unwrap_or(0);
    let work = Work { elements, flops, bytes, data: Data::Unstated };
    if flops == 0 && bytes == 0 {
        return None;
    }
    let product = Product { work, second: second.bytes };
    Some(if schema.is_linear { product.of_weights() } else { product })
}

/// The work of products by the indexes of their events. Of products inside of each other, which are one, only the innermost
/// one has it: its tensors are those that are multiplied.
pub(super) fn products(trace: &Trace, timed: &[Timed]) -> HashMap<usize, Work> {
    let mut works = HashMap::new();
    if trace.products.is_empty() {
        return works;
    }
    // Those around, with their ends.
    let mut around: Vec<(i64, usize, bool)> = Vec::new();
    let mut lane = u32::MAX;
    for (at, event) in timed.iter().enumerate().filter(|(_, event)| event.kind == EventKind::Op) {
        if event.lane != lane {
            around.clear();
            lane = event.lane;
        }
        while around.pop_if(|(end, ..)| *end <= event.start).is_some() {}
        let Some(product) = trace.products.of(event.link) else { continue };
        if around.last().is_some_and(|(end, ..)| event.end > *end) {
            continue;
        }
        // Those further out have lost theirs to the one around this one, and told it of their weights.
        let outer = around.last().copied();
        if let Some((_, outer, _)) = outer {
            works.remove(&outer);
        }
        let has_weights = product.has_weights() || outer.is_some_and(|(.., has)| has);
        let product = if has_weights { product.of_weights() } else { product };
        works.insert(at, product.work);
        around.push((event.end, at, has_weights));
    }
    works
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// FLOPs, bytes, and those of weights.
    fn of(
        name: &str,
        dims: serde_json::Value,
        types: &[&str],
        values: &[&str],
    ) -> Option<[u64; 3]> {
        let args = json!({"Input Dims": dims, "Input type": types, "Concrete Inputs": values});
        let product = product(Schema::of(name)?, &args.to_string())?;
        let Work { flops, bytes, data, .. } = product.work;
        let weights = if let Data::Weights(bytes) = data { bytes } else { 0 };
        Some([flops, bytes, weights])
    }

    const HALF: &str = "c10::BFloat16";
    const FP8: &str = "c10::Float8_e4m3fn";

    #[test]
    fn shapes_tell_flops_and_bytes() {
        // 4 × 8 by 8 × 16: 2·4·16·8 FLOPs; 32, 128 and 64 numbers of 2 bytes.
        let flops = 1024;
        let bytes = 2 * (32 + 128 + 64);
        let two = [HALF, HALF];
        assert_eq!(of("aten::mm", json!([[4, 8], [8, 16]]), &two, &[]), Some([flops, bytes, 0]));
        let linear = Some([flops, bytes, 256]);
        assert_eq!(of("aten::linear", json!([[4, 8], [16, 8]]), &two, &[]), linear);
        assert_eq!(of("aten::linear", json!([[2, 2, 8], [16, 8]]), &two, &[]), linear);
        let three = [HALF, HALF, HALF];
        let addmm = of("aten::addmm", json!([[16], [4, 8], [8, 16]]), &three, &[]);
        assert_eq!(addmm, Some([flops, bytes, 0]));
        let bmm = of("aten::bmm", json!([[3, 4, 8], [3, 8, 16]]), &two, &[]);
        assert_eq!(bmm, Some([3 * flops, 3 * bytes, 0]));
        let first =
            of("_rocm_C::wvSplitK", json!([[16, 8], [4, 8], []]), &[HALF, HALF, "Scalar"], &[]);
        assert_eq!(first, linear);
    }

    #[test]
    fn types_tell_the_bytes_of_each_element() {
        // 32 and 128 numbers of a byte, and 64 of 2.
        let expected = Some([1024, 32 + 128 + 128, 128]);
        let dims = json!([[4, 8], [8, 16], [4, 1], [1, 16], [], []]);
        let types = [FP8, FP8, "float", "float", "Scalar", ""];
        let values = ["", "", "", "", "15", ""];
        assert_eq!(of("sgl_kernel::fp8_scaled_mm", dims.clone(), &types, &values), expected);
        // Without the type of the result, FLOPs alone are known.
        let values = ["", "", "", "", "True", ""];
        assert_eq!(of("aten::_scaled_mm", dims.clone(), &types, &values), Some([1024, 0, 0]));
        let values = ["", "", "", "", "77", ""];
        assert_eq!(of("aten::_scaled_mm", dims, &types, &values), Some([1024, 0, 0]));
        let dims = json!([[4, 16], [4, 8], [8, 16]]);
        assert_eq!(of("_C::cutlass_scaled_mm", dims, &[HALF, FP8, FP8], &[]), expected);
        let dims = json!([[4, 8], [8, 16]]);
        let int8 = of("aten::_int_mm", dims, &["signed char", "signed char"], &[]);
        assert_eq!(int8, Some([1024, 32 + 128 + 4 * 64, 128]));
    }

    #[test]
    fn of_packed_weights_the_bytes_alone_are_known() {
        // 8 × 16 numbers of 4 bits in words of 32.
        let types = [HALF, "", "int", HALF];
        let marlin = of("_C::gptq_marlin_gemm", json!([[4, 8], [], [1, 16], [1, 16]]), &types, &[]);
        assert_eq!(marlin, Some([0, 64 + 64, 64]));
        let types = [HALF, "unsigned char", "unsigned char"];
        let fp4 = of("_C::cutlass_scaled_fp4_mm", json!([[4, 16], [4, 4], [16, 4]]), &types, &[]);
        assert_eq!(fp4, Some([0, 16 + 64 + 128, 64]));
    }

    #[test]
    fn what_is_not_stated_is_absent() {
        let two = [HALF, HALF];
        for (dims, types) in [
            (json!([[4, 8], [9, 16]]), &two[..]),
            (json!([[4, 8], [8, 16]]), &["c10::complex<float>", HALF]),
            (json!([[4, 8], [8, 16]]), &[HALF, "my::Type"]),
            (json!([[4, 8], [8, 16]]), &[HALF]),
            (json!([[4, 8]]), &two),
            (json!([[4, 8], []]), &two),
            (json!([[0, 8], [8, 16]]), &two),
            (json!([[4, -8], [8, 16]]), &two),
            (json!([[4, 8], [[8, 16]]]), &two),
            (json!([[u64::MAX, 8], [8, 16]]), &two),
            (json!([[1_u64 << 40, 1_u64 << 20], [1_u64 << 20, 1_u64 << 20]]), &two),
            (json!([[2, 4, 8], [3, 8, 16]]), &two),
            (json!("[[4, 8], [8, 16]]"), &two),
        ] {
            assert_eq!(of("aten::matmul", dims.clone(), types, &[]), None, "{dims} {types:?}");
        }
        assert_eq!(of("aten::relu", json!([[4, 8], [8, 16]]), &two, &[]), None);
    }
}
