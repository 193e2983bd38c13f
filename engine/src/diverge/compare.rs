//! Compares one value of `a` with the same value of `b`.

use std::collections::HashMap;

use brickscope::Digest;

use super::rounding::Rounding;
use super::tolerance::Bounds;
use super::{Divergence, Diverging, Element, KernelPair, Report, WORST};
use crate::model::Model;
use crate::routines::{Routine, RoutineNames};
use crate::value::{At, Value};

/// A value on its way from `a` to `b`.
pub(super) struct Sent {
    layer: Option<usize>,
    value: Value,
    routine: Option<Routine>,
    pub(super) data: Vec<f32>,
}

impl Sent {
    pub(super) fn new(at: &At<'_>, data: Vec<f32>) -> Self {
        Self { layer: at.layer, value: at.value, routine: at.routine, data }
    }
}

/// The state of a comparison, over all passes.
pub(super) struct Comparison<'m> {
    names: [RoutineNames; 2],
    bounds: Bounds<'m>,
    rounding: Rounding,
    /// A buffer for the tolerances of a tensor.
    tolerances: Vec<f32>,
    n_tensors: u64,
    n_elements: u64,
    pub(super) first: Option<Divergence>,
    places: Vec<Diverging>,
    kernels: Vec<KernelPair>,
    /// The index in `kernels` of each pair of routines.
    pairs: HashMap<(Value, Routine, Routine), usize>,
}

impl<'m> Comparison<'m> {
    pub(super) fn new(
        model: &'m Model,
        is_exact: bool,
        names: [RoutineNames; 2],
        rounding: Rounding,
    ) -> Self {
        Self {
            names,
            bounds: Bounds::new(model, is_exact),
            rounding,
            tolerances: Vec::new(),
            n_tensors: 0,
            n_elements: 0,
            first: None,
            places: Vec::new(),
            kernels: Vec::new(),
            pairs: HashMap::new(),
        }
    }

    /// A fresh comparison of the same two sides.
    pub(super) fn again(&self) -> Self {
        Self::new(self.bounds.model(), self.bounds.is_exact(), self.names.clone(), self.rounding)
    }

    /// Records whether the first difference occurred in `again`, too.
    pub(super) fn repeated(&mut self, again: &Self) {
        if let Some(first) = &mut self.first {
            first.is_repeatable = again
                .places
                .iter()
                .any(|place| (place.layer, place.value) == (first.layer, first.value));
        }
    }

    /// Compares `b` with what `a` sent, then overwrites it with that.
    pub(super) fn compare(&mut self, at: &At<'_>, sent: &Sent, b: &mut [f32]) {
        let a = &sent.data[..];
        assert!(
            (sent.layer, sent.value, a.len()) == (at.layer, at.value, b.len()),
            "both sides run one function on one shape"
        );
        self.n_tensors += 1;
        self.n_elements += a.len() as u64;
        let rounded = self.rounding.as_b_rounds(&at.operation, a, &self.bounds);
        let expected = rounded.as_deref().unwrap_or(a);
        let is_equal = expected.iter().zip(&*b).all(|(a, b)| a.to_bits() == b.to_bits());
        let mut most = 0.0_f64;
        if !is_equal {
            self.bounds.fill(at, expected, &mut self.tolerances);
            let wants_equal = self.bounds.wants_equal(&at.operation);
            let mut beyond = Beyond::default();
            for (i, ((&a, &b), &tolerance)) in
                expected.iter().zip(&*b).zip(&self.tolerances).enumerate()
            {
                let Some(difference) = difference(a, b, wants_equal) else { continue };
                // Infinite only for numbers without meaning, such as scores of tokens that aren't seen.
                if tolerance == f32::INFINITY {
                    continue;
                }
                let ratio = difference / f64::from(tolerance);
                // A tolerance of NaN allows nothing. Where bits have to be equal, whatever comes here differs,
                // zeros of different signs included.
                if !wants_equal && difference <= f64::from(tolerance) {
                    most = most.max(ratio);
                } else {
                    beyond.add(i, ratio, difference);
                }
            }
            if beyond.n > 0 {
                most = f64::INFINITY.min(beyond.worst.first().map_or(most, |worst| worst.1));
                self.note(at, sent, expected, b, &beyond);
            }
        }
        self.note_kernels(at, sent, most);
        b.copy_from_slice(a);
    }

    fn note_kernels(&mut self, at: &At<'_>, sent: &Sent, most: f64) {
        let (Some(of_a), Some(of_b)) = (sent.routine, at.routine) else { return };
        let index = *self.pairs.entry((at.value, of_a, of_b)).or_insert_with(|| {
            let brick = at.value.brick();
            let kernels = [name(&self.names[0], of_a), name(&self.names[1], of_b)];
            let known = |pair: &KernelPair| pair.brick == brick && pair.kernels == kernels;
            self.kernels.iter().position(known).unwrap_or_else(|| {
                let most = (!self.bounds.wants_equal(&at.operation)).then_some(0.0);
                self.kernels.push(KernelPair { brick, kernels, n_elements: 0, most });
                self.kernels.len() - 1
            })
        });
        let pair = &mut self.kernels[index];
        pair.n_elements += sent.data.len() as u64;
        pair.most = pair.most.map(|so_far| so_far.max(most));
    }

    /// Records a tensor that differs.
    fn note(&mut self, at: &At<'_>, sent: &Sent, expected: &[f32], b: &[f32], beyond: &Beyond) {
        let (layer, value) = (at.layer, at.value);
        let n_beyond = beyond.n as u64;
        match self.places.iter_mut().find(|place| (place.layer, place.value) == (layer, value)) {
            Some(place) => {
                place.n_passes += 1;
                place.n_beyond += n_beyond;
            }
            None => self.places.push(Diverging { layer, value, n_passes: 1, n_beyond }),
        }
        if self.first.is_some() {
            return;
        }
        let element = |i: usize| {
            let (position, head, index) = place(at, b.len(), i);
            let (a, b) = (expected[i], b[i]);
            // Zeros of different signs are 0 apart.
            let difference = difference(a, b, false).unwrap_or(0.0);
            let tolerance = f64::from(self.tolerances[i]);
            Element { position, head, index, a, b, difference, tolerance }
        };
        // Numbers without meaning may be anything, and would dominate the digest.
        let digest = |data: &[f32]| {
            let meant = data.iter().zip(&self.tolerances);
            let meant =
                meant.map(|(&x, &tolerance)| if tolerance == f32::INFINITY { 0.0 } else { x });
            Digest::of(&meant.collect::<Vec<_>>())
        };
        let kernels = sent.routine.zip(at.routine);
        self.first = Some(Divergence {
            layer,
            value,
            position: place(at, b.len(), beyond.first).0,
            kernels: kernels.map(|(a, b)| [spell(&self.names[0], a), spell(&self.names[1], b)]),
            n_elements: b.len(),
            n_beyond: beyond.n,
            worst: beyond.worst.iter().map(|&(i, ..)| element(i)).collect(),
            digests: Box::new([digest(&sent.data), digest(b)]),
            is_repeatable: false,
        });
    }

    pub(super) fn into_report(self, tokens: Vec<u32>, n_passes: usize) -> Report {
        Report {
            tokens,
            n_passes,
            n_tensors: self.n_tensors,
            n_elements: self.n_elements,
            is_exact: self.bounds.is_exact(),
            first: self.first,
            places: self.places,
            kernels: self.kernels,
        }
    }
}

/// Elements of a tensor beyond their tolerance.
#[derive(Default)]
struct Beyond {
    n: usize,
    /// The index of the first one.
    first: usize,
    /// Index, difference in tolerances, difference; the worst first.
    worst: Vec<(usize, f64, f64)>,
}

impl Beyond {
    fn add(&mut self, i: usize, ratio: f64, difference: f64) {
        if self.n == 0 {
            self.first = i;
        }
        self.n += 1;
        // NaN comes from a NaN tolerance, or from zeros of different signs that had to be equal.
        let ratio = if ratio.is_nan() { f64::INFINITY } else { ratio };
        let is_worse = |other: &(usize, f64, f64)| (ratio, difference) > (other.1, other.2);
        let at = self.worst.iter().position(is_worse).unwrap_or(self.worst.len());
        if at < WORST {
            self.worst.truncate(WORST - 1);
            self.worst.insert(at, (i, ratio, difference));
        }
    }
}

/// How far apart two numbers are; `None` if they are equal, or both are NaN. Zeros of different signs are equal
/// unless `to_the_bit`. NaNs always are: Rust doesn't specify their bits, and the same code may give others when it
/// is compiled into another loop.
fn difference(a: f32, b: f32, to_the_bit: bool) -> Option<f64> {
    let is_one = if to_the_bit { a.to_bits() == b.to_bits() } else { a == b };
    if is_one || (a.is_nan() && b.is_nan()) {
        return None;
    }
    let difference = (f64::from(a) - f64::from(b)).abs();
    Some(if difference.is_nan() { f64::INFINITY } else { difference })
}

/// The position, head and index of element `i` of `len`.
fn place(at: &At<'_>, len: usize, i: usize) -> (usize, Option<usize>, usize) {
    let context = at.position + at.n_tokens;
    match at.value {
        Value::CachedKeys | Value::CachedValues => {
            let width = len / context;
            (i / width, None, i % width)
        }
        // The logits and the norm before them are those of the last token.
        Value::OutputNorm | Value::Logits => (context - 1, None, i),
        Value::Scores | Value::Probabilities => {
            let width = len / at.n_tokens;
            (at.position + i / width, Some(i % width / context), i % context)
        }
        _ => {
            let width = len / at.n_tokens;
            (at.position + i / width, None, i % width)
        }
    }
}

/// A routine's name.
fn name(names: &RoutineNames, routine: Routine) -> String {
    names.get(routine).map(|(name, _)| name).unwrap_or_default()
}

/// A routine's name and shape.
fn spell(names: &RoutineNames, routine: Routine) -> String {
    names.get(routine).map(|(name, shape)| format!("{name} {shape}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_differs_from_all_that_is() {
        for bits in [false, true] {
            assert_eq!(difference(f32::NAN, -f32::NAN, bits), None);
            assert_eq!(difference(f32::INFINITY, f32::INFINITY, bits), None);
            assert_eq!(difference(1.0, f32::NAN, bits), Some(f64::INFINITY));
            assert_eq!(difference(f32::INFINITY, f32::NEG_INFINITY, bits), Some(f64::INFINITY));
            assert_eq!(difference(1.0, 1.5, bits), Some(0.5));
            assert_eq!(difference(f32::MAX, f32::MIN, bits), Some(2.0 * f64::from(f32::MAX)));
        }
    }

    #[test]
    fn zeros_of_different_signs_differ_only_to_the_bit() {
        assert_eq!(difference(0.0, -0.0, false), None);
        assert_eq!(difference(0.0, -0.0, true), Some(0.0));
        assert_eq!(difference(-0.0, -0.0, true), None);
    }

    #[test]
    fn the_worst_come_first_and_the_first_of_equals() {
        let mut beyond = Beyond::default();
        for (i, ratio) in
            [2.0, 9.0, f64::NAN, 3.0, 9.0, 4.0, 5.0, 6.0, 7.0, 8.0].into_iter().enumerate()
        {
            beyond.add(10 + i, ratio, 1.0);
        }
        let worst: Vec<usize> = beyond.worst.iter().map(|worst| worst.0).collect();
        assert_eq!(worst, [12, 11, 14, 19, 18, 17, 16, 15]);
        assert_eq!((beyond.n, beyond.first), (10, 10));
    }
}
