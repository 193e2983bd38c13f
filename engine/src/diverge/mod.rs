//! Runs the same tokens on two executors in lockstep, and finds the first kernel whose output differs by more than
//! rounding.
//!
//! ```text
//!  a   kernel ──► value ──────────────────► next kernel …
//!                   │ a copy, one in flight at a time
//!  b   kernel ──► value: compare, then overwrite with a's ──► next kernel …
//! ```
//!
//! Every kernel of `b` reads what `a` computed, so differences don't propagate: each is the
//! kernel's own, rounding never adds up, and the tolerance can be that of one kernel
//! (`tolerance.rs`). There is nothing to search for either: one run meets every value once, in
//! order, and holds at most three of them at a time; on a CPU, each side also copies the keys
//! and the values that a layer reads. More in `docs/models.md`.

mod compare;
mod rounding;
mod tolerance;

use std::cell::RefCell;
use std::sync::mpsc;
use std::thread;

use brickscope::{BrickId, Digest};

use crate::any_session::AnySession;
use crate::error::Error;
use crate::forward::Outputs;
use crate::model::Model;
use crate::sample::{Sampler, Sampling};
use crate::value::{At, Value};
use crate::weights::Layer;
use compare::{Comparison, Sent};
use rounding::Rounding;

/// The number of worst elements that are kept.
const WORST: usize = 8;

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The tokens that both sides ran: the prompt, then the most likely by `a`'s logits.
    pub tokens: Vec<u32>,
    /// Passes.
    pub n_passes: usize,
    /// Tensors that were compared.
    pub n_tensors: u64,
    /// Numbers that were compared.
    pub n_elements: u64,
    /// Whether every bit had to be equal, because both sides run the same kernels. Any NaN equals
    /// any other.
    pub is_exact: bool,
    /// The first difference beyond its tolerance.
    pub first: Option<Divergence>,
    /// All tensors with such a difference, in order of their first.
    pub places: Vec<Diverging>,
    /// How far apart each pair of kernels was, in order of their first run.
    pub kernels: Vec<KernelPair>,
}

/// A tensor that differs by more than rounding.
#[derive(Debug, Clone, PartialEq)]
pub struct Divergence {
    /// The transformer layer; `None` outside of layers.
    pub layer: Option<usize>,
    /// Which value.
    pub value: Value,
    /// The position of the first affected token; in the KV cache, of the first affected row.
    pub position: usize,
    /// The kernel and shape that each side ran; `None` for values that no kernel makes.
    pub kernels: Option<[String; 2]>,
    /// Numbers in the tensor.
    pub n_elements: usize,
    /// Those beyond their tolerance.
    pub n_beyond: usize,
    /// The worst of them, at most eight, in descending order of difference ÷ tolerance.
    pub worst: Vec<Element>,
    /// Digests of the whole tensor, of `a` and of `b`.
    pub digests: Box<[Digest; 2]>,
    /// Whether it occurred again when the pass was repeated.
    pub is_repeatable: bool,
}

impl Divergence {
    /// The brick: the one that makes the value, or reads it from the KV cache.
    #[must_use]
    pub fn brick(&self) -> BrickId {
        self.value.brick()
    }
}

/// Two numbers that should be equal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Element {
    /// The position of the token, or of the row of the KV cache.
    pub position: usize,
    /// The query head, for scores and probabilities.
    pub head: Option<usize>,
    /// The index in the token's row; for scores and probabilities, the position of the key.
    pub index: usize,
    /// `a`'s number. If only one side rounds the input of a matrix product to 8 bits, this is what `a` would have
    /// if it rounded as `b` does.
    pub a: f32,
    /// `b`'s number.
    pub b: f32,
    /// `|a - b|`; infinite if one of them isn't finite and the other differs.
    pub difference: f64,
    /// The largest allowed difference. NaN, which allows none, if `a`'s inputs or result aren't finite.
    pub tolerance: f64,
}

/// A tensor that differed by more than rounding in some pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diverging {
    /// The transformer layer; `None` outside of layers.
    pub layer: Option<usize>,
    /// Which value.
    pub value: Value,
    /// Passes in which it differed.
    pub n_passes: u64,
    /// Numbers that differed, in all passes.
    pub n_beyond: u64,
}

/// A kernel of `a` and its counterpart on `b`.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelPair {
    /// The brick that they belong to.
    pub brick: BrickId,
    /// The kernel on each side, in all shapes.
    pub kernels: [String; 2],
    /// Numbers that were compared.
    pub n_elements: u64,
    /// The largest difference, in tolerances: up to 1 is rounding. `None` if the tolerance is 0 and
    /// every bit has to be equal.
    pub most: Option<f64>,
}

/// Runs `prompt` and the `n_tokens` most likely tokens after it (by `a`'s logits; the last isn't run)
/// on both sides and compares all values. Clears both sessions first.
///
/// `plant` sees `b`'s values before they are compared and may change them, for tests. After each pass, `progress`
/// gets the number of tokens run so far.
///
/// # Errors
///
/// If the models differ in shape, or the tokens can't be run.
pub fn diverge<'a, 'b>(
    a: &mut dyn AnySession<'a>,
    b: &mut dyn AnySession<'b>,
    prompt: &[u32],
    n_tokens: usize,
    plant: &dyn Fn(At<'_>, &mut [f32]),
    progress: &mut dyn FnMut(usize),
) -> Result<Report, Error> {
    same_shape(a.model(), b.model())?;
    a.clear();
    b.clear();
    a.check_run(prompt, n_tokens)?;
    b.check_run(prompt, n_tokens)?;
    let (model, batch) = (a.model(), a.batch().min(b.batch()));
    let is_exact = a.kernels().is_some_and(|kernels| b.kernels() == Some(kernels));
    let names = [a.routine_names(), b.routine_names()];
    let rounding = Rounding::new([a.kernels(), b.kernels()]);
    let comparison = RefCell::new(Comparison::new(model, is_exact, names, rounding));

    let mut sampler = Sampler::new(Sampling::Greedy);
    let mut tokens = prompt.to_vec();
    let (mut done, mut n_passes) = (0, 0);
    while done < tokens.len() {
        let pass = &tokens[done..tokens.len().min(done + batch)];
        let is_last = done + pass.len() == tokens.len();
        // As in `generate`, the last token would be chosen and not run, so there is nothing to compare.
        let goes_on = is_last && tokens.len() + 1 < prompt.len() + n_tokens;
        let outputs = if is_last { Outputs::Last } else { Outputs::None };
        let had_one = comparison.borrow().first.is_some();
        lockstep(a, b, pass, outputs, &comparison, plant)?;
        if !had_one && comparison.borrow().first.is_some() {
            // Once more: a fault of code or weights occurs again, one of memory or of a race may not.
            a.truncate(done);
            b.truncate(done);
            let again = RefCell::new(comparison.borrow().again());
            lockstep(a, b, pass, outputs, &again, plant)?;
            comparison.borrow_mut().repeated(&again.into_inner());
        }
        done += pass.len();
        n_passes += 1;
        if goes_on {
            tokens.push(sampler.sample(a.last_logits()));
        }
        progress(done);
    }
    Ok(comparison.into_inner().into_report(tokens, n_passes))
}

/// One pass on both sides, `a` on a thread of its own.
fn lockstep<'a, 'b>(
    a: &mut dyn AnySession<'a>,
    b: &mut dyn AnySession<'b>,
    tokens: &[u32],
    outputs: Outputs,
    comparison: &RefCell<Comparison<'_>>,
    plant: &dyn Fn(At<'_>, &mut [f32]),
) -> Result<(), Error> {
    let (to_b, from_a) = mpsc::sync_channel::<Sent>(1);
    let (give_back, spare) = mpsc::channel::<Vec<f32>>();
    thread::scope(|scope| {
        // Owned by this closure: if it panics, `a` finds the channel closed and ends.
        let (from_a, give_back) = (from_a, give_back);
        let a = thread::Builder::new().spawn_scoped(scope, move || {
            let send = |at: At<'_>, out: &mut [f32]| {
                let mut data = spare.try_recv().unwrap_or_default();
                data.clear();
                data.extend_from_slice(out);
                // Fails only if the other side has ended.
                let _ = to_b.send(Sent::new(&at, data));
            };
            a.pass_tapped(tokens, outputs, &send)
        });
        let a = a.map_err(|error| Error::Thread(error.to_string()))?;
        let receive = |at: At<'_>, out: &mut [f32]| {
            plant(at, out);
            let Ok(sent) = from_a.recv() else { return };
            comparison.borrow_mut().compare(&at, &sent, out);
            let _ = give_back.send(sent.data);
        };
        let b = b.pass_tapped(tokens, outputs, &receive);
        // So that `a`, which may have more to send, finds the channel closed.
        drop(from_a);
        let a = a.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        a.and(b)
    })
}

/// Checks that the models can be compared brick by brick.
fn same_shape(a: &Model, b: &Model) -> Result<(), Error> {
    let numbers = |model: &Model| {
        let c = &model.config;
        [
            ("layers", c.n_layers),
            ("width", c.dim),
            ("query heads", c.n_heads),
            ("key heads", c.n_kv_heads),
            ("elements of a head", c.head_dim),
            ("elements of a head that RoPE rotates", c.n_rot),
            ("feed-forward width", c.ffn_dim),
            ("tokens of the vocabulary", c.n_vocab),
        ]
    };
    let differs = |what: &'static str, a_has: String, b_has: String| Error::Shapes {
        file: a.gguf.path.clone(),
        other: b.gguf.path.clone(),
        what,
        a: a_has,
        b: b_has,
    };
    let architectures = [a, b].map(|model| model.config.architecture.name().to_owned());
    let [a_is, b_is] = architectures;
    if a_is != b_is {
        return Err(differs("architecture", a_is, b_is));
    }
    if let Some(((what, a_has), (_, b_has))) =
        numbers(a).into_iter().zip(numbers(b)).find(|(a, b)| a != b)
    {
        return Err(differs(what, a_has.to_string(), b_has.to_string()));
    }
    let functions = [a, b].map(|model| model.config.activation);
    if functions[0] != functions[1] {
        let [a_is, b_is] = functions.map(|function| format!("{function:?}"));
        return Err(differs("function of the gate", a_is, b_is));
    }
    type Has = fn(&Layer) -> [bool; 7];
    for (what, has) in [("biases", Layer::biases as Has), ("scales", Layer::scales)] {
        let layers = a.weights.layers.iter().zip(&b.weights.layers);
        let mut has = layers.map(|(a, b)| (has(a), has(b)));
        if let Some((layer, (a_has, b_has))) =
            (&mut has).enumerate().find(|(_, (a_has, b_has))| a_has != b_has)
        {
            let spell = |has: [bool; 7]| {
                let names = ["Q", "K", "V", "output", "gate", "up", "down"];
                let names: Vec<_> = names
                    .into_iter()
                    .zip(has)
                    .filter(|(_, has)| *has)
                    .map(|(name, _)| name)
                    .collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                format!("{names} in layer {layer}")
            };
            return Err(differs(what, spell(a_has), spell(b_has)));
        }
    }
    let heads = [a, b].map(|model| model.weights.head_bias.is_some());
    if heads[0] != heads[1] {
        let [a_has, b_has] = heads.map(|has| if has { "yes" } else { "no" }.to_owned());
        return Err(differs("a bias of the head", a_has, b_has));
    }
    Ok(())
}
