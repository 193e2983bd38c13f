//! What the arguments of attention tell, which PyTorch's profiler writes with `record_shapes=True`: the shapes and types of
//! queries, keys and values, and what is masked.
//!
//! The order of the arguments is that of PyTorch's `native_functions.yaml`, of flash-attention's
//! `flash_attn/flash_attn_interface.py`, of vLLM's flash-attention (`csrc/flash_attn/flash_api_torch_lib.cpp`,
//! `hopper/flash_api_torch_lib.cpp`), and of SGLang's `sgl-kernel/csrc/flash_extension.cc`.

use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;

use super::EventKind;
use super::attention::{Attention, Call, Keys, Noted, Why, pairs};
use super::shapes::{Args, Tensor};
use crate::import::trace::{Timed, Trace};

/// So many attentions are kept: each takes some 130 bytes.
const MOST_ATTENTIONS: usize = 1 << 20;

/// Attentions by the numbers of their links.
#[derive(Default)]
pub(in crate::import) struct Attentions {
    /// In the order of the numbers, which rise.
    of_link: Vec<(u32, Noted)>,
    /// Whether each sequence has as many queries as keys, and several, by the link, in the same order.
    are_whole: Vec<(u32, bool)>,
    /// How many more there were.
    pub(super) over: u64,
}

impl Attentions {
    /// Notes what the arguments of an operation with this link tell, if it is an attention. Links come in their order.
    pub(in crate::import) fn note(&mut self, link: u32, name: &str, args: Option<&RawValue>) {
        let schema = Schema::of(name);
        if schema.is_none() && name != OF_ANY_KERNEL {
            return;
        }
        let Some(args) = args.map(RawValue::get).filter(|args| args.contains("\"Input ")) else {
            return;
        };
        if self.are_whole.len() < MOST_ATTENTIONS {
            self.are_whole.extend(is_whole(schema, args).map(|is_whole| (link, is_whole)));
        }
        let Some(schema) = schema else { return };
        if self.of_link.len() == MOST_ATTENTIONS {
            self.over += 1;
            return;
        }
        self.of_link.push((link, noted(schema, args)));
    }

    fn of(&self, link: Option<u32>) -> Option<Noted> {
        let link = link?;
        let at = self.of_link.binary_search_by_key(&link, |(of, _)| *of).ok()?;
        self.of_link.get(at).map(|(_, noted)| *noted)
    }

    /// The names of those steps of the host whose attentions are all of whole sequences: none looks at a token that was
    /// computed before, so a step of an LLM computes prompts.
    pub(in crate::import) fn steps_of_prompts(
        &self,
        timed: &[Timed],
        is_step: impl Fn(u32) -> bool,
    ) -> HashSet<u32> {
        if self.are_whole.is_empty() {
            return HashSet::new();
        }
        let is_it = |event: &&Timed| !event.kind.is_of_device() && is_step(event.name);
        let mut steps: Vec<&Timed> = timed.iter().filter(is_it).collect();
        steps.sort_by_key(|step| step.start);
        let mut are_prompts: HashMap<u32, bool> = HashMap::new();
        for event in timed.iter().filter(|event| event.kind == EventKind::Op) {
            let Some(is_whole) = self.is_whole(event.link) else { continue };
            let begun = steps.partition_point(|step| step.start <= event.start);
            let step = steps.get(..begun).and_then(<[_]>::last);
            if let Some(step) = step.filter(|step| event.start < step.end) {
                *are_prompts.entry(step.name).or_insert(true) &= is_whole;
            }
        }
        are_prompts.into_iter().filter_map(|(name, are)| are.then_some(name)).collect()
    }

    fn is_whole(&self, link: Option<u32>) -> Option<bool> {
        let link = link?;
        let at = self.are_whole.binary_search_by_key(&link, |(of, _)| *of).ok()?;
        self.are_whole.get(at).map(|(_, is_whole)| *is_whole)
    }
}

/// PyTorch's attention, which chooses one of several operations that compute it. One of them has no name that tells of it.
const OF_ANY_KERNEL: &str = "aten::scaled_dot_product_attention";

/// Whether each sequence has as many queries as keys, and several; `None` if the shapes don't tell.
fn is_whole(schema: Option<Schema>, args: &str) -> Option<bool> {
    let tokens = match schema {
        Some(Schema::Sequences(of)) if !of.is_by_heads => 1,
        Some(Schema::Sequences(_)) | None => 2,
        Some(Schema::Tokens(_) | Schema::Untold) => return None,
    };
    let args = Args::read(args)?;
    let tokens_of = |at| match &args.tensor(at)?.dims[..] {
        dims @ [_, _, _, _] => dims.get(tokens).copied(),
        _ => None,
    };
    let (queries, keys) = (tokens_of(0)?, tokens_of(1)?);
    Some(queries > 1 && queries == keys)
}

/// Where the arguments are that say what is told. The first three are queries, keys and values.
#[derive(Debug, Clone, Copy)]
enum Schema {
    Sequences(Sequences),
    Tokens(Tokens),
    /// Its arguments don't tell what is masked.
    Untold,
}

/// Of sequences that are equally long: tensors of four dimensions.
#[derive(Debug, Clone, Copy)]
struct Sequences {
    /// Whether the heads are before the tokens.
    is_by_heads: bool,
    mask: Option<usize>,
    /// What must not be there.
    without: &'static [usize],
    causal: usize,
    window: Window,
    /// Whether the last query sees the last key, if it is causal. Else it is only known of as many queries as keys.
    is_at_end: bool,
}

/// Of requests of any length, one behind the other.
#[derive(Debug, Clone, Copy)]
struct Tokens {
    result: Option<usize>,
    /// Where the queries of each request begin.
    begins: usize,
    /// How many keys each has in use.
    used: usize,
    table: usize,
    longest: usize,
    without: &'static [usize],
    causal: Causal,
}

#[derive(Debug, Clone, Copy)]
enum Causal {
    /// The window is behind it.
    At(usize),
    /// The first that is true or false from here on: versions differ in what is before it.
    From(usize),
}

/// Where the size of a window is: to the left, and then to the right.
#[derive(Debug, Clone, Copy)]
enum Window {
    Never,
    /// Nothing, if there is none.
    MayBe(usize),
    /// Less than 0, if there is none.
    At(usize),
}

impl Schema {
    fn of(name: &str) -> Option<Self> {
        let sdpa = |mask: Option<usize>, causal: usize| {
            Self::Sequences(Sequences {
                is_by_heads: true,
                mask,
                without: &[],
                causal,
                window: Window::Never,
                is_at_end: false,
            })
        };
        Some(match name {
            "aten::_scaled_dot_product_flash_attention" => sdpa(None, 4),
            "aten::_scaled_dot_product_efficient_attention"
            | "aten::_scaled_dot_product_cudnn_attention" => sdpa(Some(3), 6),
            "aten::_scaled_dot_product_fused_attention_overrideable" => sdpa(Some(3), 5),
            "aten::_flash_attention_forward" => Self::Sequences(Sequences {
                is_by_heads: false,
                mask: None,
                without: &[3, 4, 13, 15],
                causal: 8,
                window: Window::MayBe(11),
                is_at_end: false,
            }),
            "flash_attn::_flash_attn_forward" => Self::Sequences(Sequences {
                is_by_heads: false,
                mask: None,
                without: &[],
                causal: 5,
                window: Window::At(6),
                is_at_end: true,
            }),
            "flash_attn::_flash_attn_varlen_forward" => Self::Tokens(Tokens {
                result: None,
                begins: 3,
                used: 17,
                table: 15,
                longest: 6,
                without: &[16],
                causal: Causal::At(9),
            }),
            "_vllm_fa2_C::varlen_fwd" => Self::Tokens(Tokens {
                result: Some(3),
                begins: 4,
                used: 6,
                table: 8,
                longest: 11,
                without: &[7],
                causal: Causal::At(15),
            }),
            "_vllm_fa3_C::fwd" | "sgl_kernel::fwd" => Self::Tokens(Tokens {
                result: Some(6),
                begins: 7,
                used: 11,
                table: 14,
                longest: 13,
                // New keys and values, those of MLA, and what shifts or chooses them.
                without: &[3, 4, 5, 10, 15, 16],
                causal: Causal::From(23),
            }),
            // The window is a field of the layer in Python.
            "vllm::unified_attention_with_output" | "vllm::unified_attention" => Self::Untold,
            name if name.starts_with("sglang_profiler::attention_") => Self::Untold,
            _ => return None,
        })
    }
}

fn noted(schema: Schema, args: &str) -> Noted {
    let args = Args::read(args).ok_or(Why::Shapes)?;
    match schema {
        Schema::Sequences(schema) => sequences(&schema, &args),
        Schema::Tokens(schema) => tokens(&schema, &args),
        Schema::Untold => Err(Why::WindowUntold),
    }
}

fn causal(args: &Args<'_>, at: usize) -> Result<bool, Why> {
    match &*args.value(at) {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(Why::CausalUntold),
    }
}

/// That there is no window.
fn sees_all(args: &Args<'_>, window: Window, is_causal: bool) -> Result<(), Why> {
    let (left, may_be_none) = match window {
        Window::Never => return Ok(()),
        Window::MayBe(at) => (at, true),
        Window::At(at) => (at, false),
    };
    for (at, is_right) in [(left, false), (left + 1, true)] {
        let value = args.value(at);
        match value.parse::<i64>() {
            Ok(size) if size < 0 || (is_right && is_causal && size == 0) => {}
            Ok(_) => return Err(Why::Window),
            Err(_) if may_be_none && value.is_empty() => {}
            Err(_) => return Err(Why::WindowUntold),
        }
    }
    Ok(())
}

/// The same by what newer versions of flash-attention 3 have behind the window; `causal` is the place before it.
fn sees_all_of_newer(args: &Args<'_>, causal: usize) -> Result<(), Why> {
    // SGLang's chunks of keys, before the cap of the softmax, which is written with a point.
    if args.value(causal + 3).parse::<i64>().is_ok_and(|chunk| chunk != 0) {
        return Err(Why::Window);
    }
    // In vLLM, of how many devices this is one, each with a part of the keys.
    if !matches!(&*args.value(causal + 10), "" | "1") {
        return Err(Why::Parts);
    }
    // A number in vLLM; in SGLang a tensor, which says what is left out.
    let place = causal + 11;
    if args.is_given(place) && args.value(place).is_empty() {
        return Err(Why::Mask);
    }
    Ok(())
}

/// Queries, keys and values.
fn three(args: &Args<'_>) -> Result<[Tensor; 3], Why> {
    match (args.tensor(0), args.tensor(1), args.tensor(2)) {
        (Some(queries), Some(keys), Some(values)) => Ok([queries, keys, values]),
        _ => Err(Why::Shapes),
    }
}

fn sequences(schema: &Sequences, args: &Args<'_>) -> Noted {
    if schema.mask.is_some_and(|at| args.is_given(at)) {
        return Err(Why::Mask);
    }
    if schema.without.iter().any(|&at| args.is_given(at)) {
        return Err(Why::Shapes);
    }
    let is_causal = causal(args, schema.causal)?;
    sees_all(args, schema.window, is_causal)?;
    let tensors = three(args)?;
    let sizes = |tensor: &Tensor| match tensor.dims[..] {
        [of, heads, tokens, size] if schema.is_by_heads => Ok([of, tokens, heads, size]),
        [of, tokens, heads, size] => Ok([of, tokens, heads, size]),
        _ => Err(Why::Shapes),
    };
    let [queries, keys, values] = &tensors;
    let [of, of_queries, heads, size] = sizes(queries)?;
    let [also_of, of_keys, key_heads, key] = sizes(keys)?;
    let [of_values, tokens, value_heads, value] = sizes(values)?;
    if [also_of, of_values, tokens] != [of, of, of_keys] {
        return Err(Why::Shapes);
    }
    let pairs = pairs(of_queries, of_keys, is_causal, schema.is_at_end)?;
    let pairs = pairs.checked_mul(of).ok_or(Why::Shapes)?;
    let keys = of_keys.checked_mul(of).ok_or(Why::Shapes)?;
    let heads = [[heads, size], [key_heads, key], [value_heads, value]];
    let attention = factors(args, &tensors, heads, None);
    attention.map(|of| Attention { keys: Keys::Stated { pairs, keys }, ..of }).ok_or(Why::Shapes)
}

fn tokens(schema: &Tokens, args: &Args<'_>) -> Noted {
    if schema.without.iter().any(|&at| args.is_given(at)) {
        return Err(Why::Shapes);
    }
    let at = match schema.causal {
        Causal::At(at) => at,
        Causal::From(from) => {
            let is_bool = |at: &usize| matches!(&*args.value(*at), "True" | "False");
            (from..from + 4).find(is_bool).ok_or(Why::CausalUntold)?
        }
    };
    let is_causal = causal(args, at)?;
    sees_all(args, Window::At(at + 1), is_causal)?;
    if let Causal::From(_) = schema.causal {
        sees_all_of_newer(args, at)?;
    }
    let tensors = three(args)?;
    let begins = args.tensor(schema.begins).ok_or(Why::Shapes)?;
    let [begins] = begins.dims[..] else { return Err(Why::Shapes) };
    let requests = begins.checked_sub(1).filter(|&of| of > 0).ok_or(Why::Shapes)?;
    let is_paged = args.is_given(schema.table);
    let table = match args.tensor(schema.table).as_ref().map(|table| &table.dims[..]) {
        Some(&[of, pages]) => [of, pages],
        None if !is_paged => [0, 0],
        _ => return Err(Why::Shapes),
    };
    let [queries, keys, values] = &tensors;
    let [of_queries, heads, size] = queries.dims[..] else { return Err(Why::Shapes) };
    // One behind the other, or by pages.
    let (key_heads, key) = match keys.dims[..] {
        [_, heads, size] | [_, _, heads, size] => (heads, size),
        _ => return Err(Why::Shapes),
    };
    let (value, but_value) = values.dims.split_last().ok_or(Why::Shapes)?;
    if keys.dims.split_last().is_none_or(|(_, but_key)| but_key != but_value) {
        return Err(Why::Shapes);
    }
    let heads = [[heads, size], [key_heads, key], [key_heads, *value]];
    let held = match keys.dims[..] {
        [of_keys, _, _] if !is_paged && !args.is_given(schema.used) => Some(of_keys),
        _ => None,
    };
    let keys = match held {
        Some(keys) if requests == 1 => {
            Keys::Stated { pairs: pairs(of_queries, keys, is_causal, true)?, keys }
        }
        _ => Keys::OfStep(Call {
            tokens: of_queries,
            requests,
            is_causal,
            held,
            room: (args.value(schema.longest).parse().ok(), table),
        }),
    };
    let attention = factors(args, &tensors, heads, schema.result);
    attention.map(|of| Attention { keys, is_cache: is_paged, ..of }).ok_or(Why::Shapes)
}

/// One without keys so far. `heads` has their number and their size of queries, keys and values. `None` if they don't fit
/// each other, or are of types that don't tell their numbers.
fn factors(
    args: &Args<'_>,
    tensors: &[Tensor; 3],
    heads: [[u64; 2]; 3],
    result: Option<usize>,
) -> Option<Attention> {
    let [[heads, size], [key_heads, key], [value_heads, value]] = heads;
    let is_float = |tensor: &Tensor| !tensor.kind.is_packed && !tensor.kind.is_integer;
    let fits = size == key && key_heads == value_heads && heads.checked_rem(key_heads)? == 0;
    if !fits || !tensors.iter().all(is_float) {
        return None;
    }
    let [queries, keys, values] = tensors;
    let of_query = queries.kind.bytes.checked_mul(size)?;
    let elements = queries.bytes.checked_div(of_query)?.checked_mul(value)?;
    let of_key = key.checked_mul(keys.kind.bytes)?;
    let of_value = value.checked_mul(values.kind.bytes)?;
    // The result of 8 bits has another type.
    let own = Some(queries.kind.bytes).filter(|&bytes| bytes > 1);
    let of_result = result.and_then(|at| args.tensor(at)).map(|tensor| tensor.kind.bytes);
    let written = of_result.or(own).and_then(|bytes| bytes.checked_mul(elements));
    // Of keys that are shown to several heads, fewer are in memory than the shapes say.
    let is_spread = (0..3).any(|at| args.is_spread(at));
    let own_bytes = written.and_then(|bytes| bytes.checked_add(queries.bytes));
    Some(Attention {
        elements,
        flops_of_pair: key.checked_add(value)?.checked_mul(heads)?.checked_mul(2)?,
        bytes_of_key: of_key.checked_add(of_value)?.checked_mul(key_heads)?,
        own_bytes: own_bytes.filter(|_| !is_spread),
        is_cache: false,
        keys: Keys::Stated { pairs: 0, keys: 0 },
    })
}

/// What is noted of attentions, by the indexes of their events. Of those inside of each other, which are one, only the
/// innermost one counts.
pub(super) fn of_events(trace: &Trace, timed: &[Timed]) -> HashMap<usize, Noted> {
    let mut all = HashMap::new();
    if trace.attentions.of_link.is_empty() {
        return all;
    }
    // Those around, with their ends.
    let mut around: Vec<(i64, usize)> = Vec::new();
    let mut lane = u32::MAX;
    for (at, event) in timed.iter().enumerate().filter(|(_, event)| event.kind == EventKind::Op) {
        if event.lane != lane {
            around.clear();
            lane = event.lane;
        }
        while around.pop_if(|(end, _)| *end <= event.start).is_some() {}
        let Some(noted) = trace.attentions.of(event.link) else { continue };
        let outer = around.last().copied();
        if outer.is_some_and(|(end, _)| event.end > end) {
            continue;
        }
        if let Some((_, outer)) = outer {
            all.remove(&outer);
        }
        all.insert(at, noted);
        around.push((event.end, at));
    }
    all
}
