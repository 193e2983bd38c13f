//! Digests of tensors: a few numbers that distinguish rounding from a fault, without the tensor.
//!
//! Two runs of one computation on different hardware are never equal to the bit, so a hash
//! ([`fnv1a_f32_checksum`](crate::fnv1a_f32_checksum)) can't compare them. A [`Digest`] can: it has
//! sums over the whole tensor, which change a little when the elements change a little.
//!
//! Sums don't see that two elements were swapped. So some of the sums have random signs; they are random
//! projections: `p_k = Σ ±x[i]`, with signs that depend only on `k` and `i`. For two tensors,
//! `(p_k(a) - p_k(b))²` is on average `‖a - b‖²`, whatever moved where (Johnson and Lindenstrauss,
//! 1984; with signs: Achlioptas, "Database-friendly random projections", J. Comput. Syst. Sci. 66,
//! 2003). Sixteen of them estimate the distance to within a factor of 2.
//! A swap of two elements whose signs agree in all sixteen stays unseen: one in 65536.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::printable;

/// The number of random projections of a digest.
const PROJECTIONS: usize = 16;

/// The number of elements that a digest keeps as they are.
const SAMPLES: usize = 16;

/// A summary of a tensor in some 40 numbers.
///
/// ```
/// use brickscope::{Digest, Tolerance, Verdict};
///
/// let reference: Vec<f32> = (0..4096).map(|i| (i as f32 * 0.37).sin()).collect();
/// let rounded: Vec<f32> = reference.iter().map(|x| x * (1.0 + 1e-7)).collect();
/// let mut swapped = reference.clone();
/// swapped.swap(1000, 1001);
///
/// let (reference, tolerance) = (Digest::of(&reference), Tolerance::default());
/// assert!(!reference.compare(&Digest::of(&rounded), tolerance).is_fault());
/// let verdict = reference.compare(&Digest::of(&swapped), tolerance);
/// assert!(verdict.is_fault());
/// println!("{verdict}");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    /// Elements.
    pub count: u64,
    /// Elements that are NaN. No sum includes them.
    pub nan: u64,
    /// Elements that are infinite. No sum includes them.
    pub infinite: u64,
    /// A hash (FNV-1a) of the places of NaNs and of infinities of either sign; 0 if there are none. `None`
    /// in files of earlier versions.
    #[serde(default)]
    pub not_finite: Option<u32>,
    /// The largest absolute value.
    pub max_abs: f32,
    /// The mean of the finite elements.
    pub mean: f64,
    /// The square root of the sum of squares.
    pub l2: f64,
    /// Sums with random signs.
    pub projections: [f64; PROJECTIONS],
    /// Elements at equal distances, from the first to the last; 0 for one that isn't finite.
    pub samples: Vec<f32>,
}

impl Digest {
    /// The digest of a tensor, in one pass over it, with sums in `f64`.
    #[must_use]
    pub fn of(data: &[f32]) -> Self {
        let (mut nan, mut infinite, mut max_abs) = (0, 0, 0.0_f32);
        let mut not_finite = NotFinite::default();
        let (mut sum, mut squares) = (0.0_f64, 0.0_f64);
        let mut projections = [0.0; PROJECTIONS];
        for (i, &x) in data.iter().enumerate() {
            if !x.is_finite() {
                nan += u64::from(x.is_nan());
                infinite += u64::from(x.is_infinite());
                not_finite.add(i as u64, x);
                continue;
            }
            max_abs = max_abs.max(x.abs());
            let x = f64::from(x);
            sum += x;
            squares += x * x;
            let signs = signs(i as u64);
            for (k, projection) in projections.iter_mut().enumerate() {
                *projection += if signs >> k & 1 == 0 { x } else { -x };
            }
        }
        let finite = data.len() as u64 - nan - infinite;
        let n_samples = data.len().min(SAMPLES);
        // The product fits: a slice of floats has fewer than 2^61 elements.
        let sample = |k: usize| data[k * (data.len() - 1) / (n_samples - 1).max(1)];
        let samples = (0..n_samples).map(sample);
        Self {
            count: data.len() as u64,
            nan,
            infinite,
            not_finite: Some(not_finite.hash()),
            max_abs,
            mean: if finite == 0 { 0.0 } else { sum / finite as f64 },
            l2: squares.sqrt(),
            projections,
            samples: samples.map(|x| if x.is_finite() { x } else { 0.0 }).collect(),
        }
    }

    /// The root of the mean square of the finite elements; 0 if there are none.
    #[must_use]
    pub fn rms(&self) -> f64 {
        let finite = self.count.saturating_sub(self.nan.saturating_add(self.infinite));
        if finite == 0 { 0.0 } else { self.l2 / (finite as f64).sqrt() }
    }

    /// An estimate of `‖a - b‖` from the projections: its square is right on average, and it is nearly
    /// always within a factor of 2.
    #[must_use]
    pub fn distance(&self, other: &Self) -> f64 {
        let squares = self.projections.iter().zip(&other.projections).map(|(a, b)| (a - b).powi(2));
        (squares.sum::<f64>() / PROJECTIONS as f64).sqrt()
    }

    /// Compares `other` with this digest, the reference. Each measure may differ by as much as it can if no
    /// element differs by more than `tolerance` allows.
    #[must_use]
    pub fn compare(&self, other: &Self, tolerance: Tolerance) -> Verdict {
        if self == other {
            return Verdict::Equal;
        }
        let r = tolerance.relative;
        let (rms, max_abs) = (self.rms(), f64::from(self.max_abs));
        let mut broken = Vec::new();
        let mut most = 0.0_f64;
        let mut check = |measure, expected: f64, actual: f64, difference: f64, allowed: f64| {
            if difference == 0.0 {
                return;
            }
            // NaN is not within any tolerance.
            if difference <= allowed {
                most = most.max(difference / allowed);
            } else {
                broken.push(Broken { measure, expected, actual, difference, allowed });
            }
        };
        for (measure, expected, actual) in [
            (Measure::Count, self.count, other.count),
            (Measure::Nan, self.nan, other.nan),
            (Measure::Infinite, self.infinite, other.infinite),
        ] {
            check(measure, expected as f64, actual as f64, expected.abs_diff(actual) as f64, 0.0);
        }
        // Sums over different lengths, or without the same elements, tell nothing more.
        let is_alike =
            (self.count, self.nan, self.infinite) == (other.count, other.nan, other.infinite);
        let hashes = self.not_finite.zip(other.not_finite).filter(|(a, b)| a != b);
        if let Some((a, b)) = hashes.filter(|_| is_alike) {
            check(Measure::NotFinite, a.into(), b.into(), f64::from(a.abs_diff(b)), 0.0);
        }
        if is_alike && hashes.is_none() {
            let mut near = |measure, expected: f64, actual: f64, allowed: f64| {
                check(measure, expected, actual, (expected - actual).abs(), allowed);
            };
            near(Measure::MaxAbs, max_abs, other.max_abs.into(), r * (rms + max_abs));
            // The mean of |a| is at most the root of the mean square.
            near(Measure::Mean, self.mean, other.mean, 2.0 * r * rms);
            // ‖a - b‖ ≤ r·‖rms + |a|‖ ≤ 2·r·‖a‖, and the norms differ by no more.
            near(Measure::L2, self.l2, other.l2, 2.0 * r * self.l2);
            for (k, (&a, &b)) in self.samples.iter().zip(&other.samples).enumerate() {
                let (a, b) = (f64::from(a), f64::from(b));
                near(Measure::Sample(k), a, b, r * (rms + a.abs()));
            }
            // The estimated distance is more than twice too large less than once in a million: χ² with
            // 16 degrees of freedom.
            let allowed = 2.0 * 2.0 * r * self.l2;
            check(Measure::Projections, 0.0, self.distance(other), self.distance(other), allowed);
        }
        if broken.is_empty() { Verdict::Rounding { most } } else { Verdict::Fault(broken) }
    }
}

/// A hash of the places and kinds of the elements that aren't finite. All NaNs are one kind, since their bits
/// differ between machines.
#[derive(Default)]
struct NotFinite(Option<u32>);

impl NotFinite {
    fn add(&mut self, index: u64, x: f32) {
        let kind = match x {
            f32::INFINITY => 1,
            f32::NEG_INFINITY => 2,
            _ => 0,
        };
        let bytes = index.to_le_bytes().into_iter().chain([kind]);
        // FNV-1a, 32 bits (Fowler, Noll, Vo).
        let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        self.0 = Some(bytes.fold(self.0.unwrap_or(0x811c_9dc5), fnv));
    }

    fn hash(&self) -> u32 {
        self.0.unwrap_or(0)
    }
}

/// 64 random bits for an index: the output function of SplitMix64 (Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", OOPSLA 2014).
fn signs(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How much two tensors may differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Each element may differ by this part of its own absolute value, plus this part of the tensor's root
    /// mean square.
    pub relative: f64,
}

impl Default for Tolerance {
    /// 10⁻⁵, for one kernel in `f32` that sums some thousand terms: 170 times the rounding of one
    /// operation. Whole forward passes, which may drift apart, need more.
    fn default() -> Self {
        Self { relative: 1e-5 }
    }
}

/// The result of comparing two digests.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The digests are equal.
    Equal,
    /// They differ by no more than rounding can.
    Rounding {
        /// The largest difference, as a share of the allowed one: up to 1.
        most: f64,
    },
    /// They differ by more: by these measures.
    Fault(Vec<Broken>),
}

impl Verdict {
    /// Whether they differ by more than rounding.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Fault(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal => write!(f, "equal"),
            Self::Rounding { most } => {
                write!(f, "rounding: at most {:.0} % of the tolerance", most * 100.0)
            }
            Self::Fault(broken) => {
                write!(f, "fault: ")?;
                for (i, broken) in broken.iter().enumerate() {
                    let comma = if i > 0 { "; " } else { "" };
                    write!(f, "{comma}{broken}")?;
                }
                Ok(())
            }
        }
    }
}

/// A measure that differs by more than rounding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Broken {
    /// The measure.
    pub measure: Measure,
    /// The reference's value. For the projections 0, the distance to itself; for elements that aren't
    /// finite, the hash.
    pub expected: f64,
    /// The other's value. For the projections, the distance.
    pub actual: f64,
    /// The difference.
    pub difference: f64,
    /// The largest allowed difference.
    pub allowed: f64,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measure, expected, actual, difference, allowed } = self;
        match measure {
            Measure::Count | Measure::Nan | Measure::Infinite => {
                write!(f, "{measure} {actual} instead of {expected}")
            }
            Measure::NotFinite => write!(f, "{measure}"),
            Measure::Projections => write!(f, "{measure} {difference:.3e} (allowed {allowed:.3e})"),
            _ => write!(
                f,
                "{measure} {actual:.6e} instead of {expected:.6e}: off by {difference:.3e} \
                 (allowed {allowed:.3e})"
            ),
        }
    }
}

/// A part of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// The number of elements.
    Count,
    /// The number of NaNs.
    Nan,
    /// The number of infinities.
    Infinite,
    /// The places of NaNs and of infinities of either sign, if there are as many of them.
    NotFinite,
    /// The largest absolute value.
    MaxAbs,
    /// The mean.
    Mean,
    /// The root of the sum of squares.
    L2,
    /// The sample at this index.
    Sample(usize),
    /// The distance by the random projections.
    Projections,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => write!(f, "count"),
            Self::Nan => write!(f, "NaNs"),
            Self::Infinite => write!(f, "infinities"),
            Self::NotFinite => write!(f, "NaNs or infinities in other places or of other signs"),
            Self::MaxAbs => write!(f, "largest |x|"),
            Self::Mean => write!(f, "mean"),
            Self::L2 => write!(f, "L2 norm"),
            Self::Sample(k) => write!(f, "sample {k}"),
            Self::Projections => write!(f, "distance by projections"),
        }
    }
}

/// The digest of one kernel's output at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelDigest {
    /// The kernel, or the brick.
    pub name: String,
    /// The transformer layer.
    pub layer_idx: usize,
    /// The position in the sequence.
    pub position: u32,
    /// The output.
    pub digest: Digest,
}

/// The first kernel whose output differs from the reference's by more than rounding.
#[derive(Debug, Clone, PartialEq)]
pub struct DigestFault {
    /// The kernel.
    pub name: String,
    /// The transformer layer.
    pub layer_idx: usize,
    /// The position in the sequence.
    pub position: u32,
    /// The measures that differ, and by how much.
    pub verdict: Verdict,
}

impl fmt::Display for DigestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, layer_idx, position, verdict } = self;
        let name = printable(name);
        write!(f, "DIVERGENCE at '{name}' (layer {layer_idx}, pos {position}): {verdict}")
    }
}

/// The first of `actual`, in order, that differs by more than rounding from `reference` at the same name,
/// layer and position. Places recorded more than once are matched in order; places that `reference`
/// doesn't have are skipped.
#[doc(hidden)]
pub fn first_fault(
    actual: &[KernelDigest],
    reference: &[KernelDigest],
    tolerance: Tolerance,
) -> Option<DigestFault> {
    let mut expected: HashMap<(&str, usize, u32), VecDeque<&Digest>> = HashMap::new();
    for at in reference {
        let place = (at.name.as_str(), at.layer_idx, at.position);
        expected.entry(place).or_default().push_back(&at.digest);
    }
    actual.iter().find_map(|at| {
        let place = (at.name.as_str(), at.layer_idx, at.position);
        let verdict = expected.get_mut(&place)?.pop_front()?.compare(&at.digest, tolerance);
        verdict.is_fault().then(|| DigestFault {
            name: at.name.clone(),
            layer_idx: at.layer_idx,
            position: at.position,
            verdict,
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wave(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.61).sin() * 3.0).collect()
    }

    fn broken(verdict: &Verdict) -> Vec<Measure> {
        match verdict {
            Verdict::Fault(broken) => broken.iter().map(|broken| broken.measure).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_digest_has_the_measures_of_its_tensor() {
        let digest = Digest::of(&[3.0, -4.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
        assert_eq!((digest.count, digest.nan, digest.infinite), (5, 1, 2));
        assert_eq!((digest.max_abs, digest.mean, digest.l2), (4.0, -0.5, 5.0));
        assert_eq!(digest.samples, [3.0, -4.0, 0.0, 0.0, 0.0]);
        assert_eq!(digest.rms(), 5.0 / 2.0_f64.sqrt());
        // Each projection is ±3 ±4.
        assert!(digest.projections.iter().all(|p| [1.0, 7.0].contains(&p.abs())));
    }

    #[test]
    fn tensors_without_elements_and_of_one() {
        let empty = Digest::of(&[]);
        assert_eq!((empty.count, empty.mean, empty.rms(), empty.samples.len()), (0, 0.0, 0.0, 0));
        assert_eq!(Digest::of(&[2.0]).samples, [2.0]);
        assert_eq!(empty.compare(&empty, Tolerance::default()), Verdict::Equal);
        let verdict = empty.compare(&Digest::of(&[2.0]), Tolerance::default());
        assert_eq!(verdict.to_string(), "fault: count 1 instead of 0");
    }

    #[test]
    fn the_first_and_the_last_element_are_among_the_samples() {
        let data = wave(1000);
        let samples = Digest::of(&data).samples;
        assert_eq!((samples.len(), samples[0], samples[15]), (16, data[0], data[999]));
    }

    #[test]
    fn faults_are_told_by_the_measures_that_they_break() {
        let data = wave(4096);
        let reference = Digest::of(&data);
        let with = |change: &dyn Fn(&mut [f32])| {
            let mut other = data.clone();
            change(&mut other);
            broken(&reference.compare(&Digest::of(&other), Tolerance::default()))
        };
        // Neither sums nor samples see a swap: only where things are has changed.
        assert_eq!(with(&|x| x.swap(1000, 1003)), [Measure::Projections]);
        assert_eq!(with(&|x| x[77] = f32::NAN), [Measure::Nan]);
        assert_eq!(with(&|x| x[77] = f32::INFINITY), [Measure::Infinite]);
        let scaled = with(&|x| x.iter_mut().for_each(|x| *x *= 1.01));
        assert!(scaled.contains(&Measure::L2) && scaled.contains(&Measure::MaxAbs), "{scaled:?}");
        // 16 of 4096 elements off by 1 %.
        let block = with(&|x| x[512..528].iter_mut().for_each(|x| *x *= 1.01));
        assert!(block.contains(&Measure::Projections), "{block:?}");
    }

    #[test]
    fn where_nans_and_infinities_are_is_told_apart() {
        const INF: f32 = f32::INFINITY;
        let compare =
            |a: &[f32], b: &[f32]| Digest::of(a).compare(&Digest::of(b), Tolerance::default());
        let reference = [1.0, INF, 2.0, f32::NAN];
        assert_eq!(compare(&reference, &[1.0, INF, 2.0, -f32::NAN]), Verdict::Equal);
        for other in [
            [1.0, -INF, 2.0, f32::NAN],
            [1.0, f32::NAN, 2.0, INF],
            // With 0 in the place of both, nothing else would tell.
            [INF, 1.0, 2.0, f32::NAN],
        ] {
            let verdict = compare(&reference, &other);
            assert_eq!(broken(&verdict), [Measure::NotFinite], "{other:?}");
            let said = "fault: NaNs or infinities in other places or of other signs";
            assert_eq!(verdict.to_string(), said);
        }
        assert_eq!(Digest::of(&[1.0, 2.0]).not_finite, Some(0));
    }

    #[test]
    fn a_digest_of_before_is_held_to_what_it_has() {
        let digest = Digest::of(&[1.0, f32::INFINITY]);
        let mut json = serde_json::to_value(&digest).expect("it is plain data");
        json.as_object_mut().expect("an object").remove("not_finite");
        let before: Digest = serde_json::from_value(json).expect("it was read before");
        assert_eq!(before.not_finite, None);
        for verdict in [
            before.compare(&digest, Tolerance::default()),
            digest.compare(&before, Tolerance::default()),
        ] {
            assert_eq!(verdict, Verdict::Rounding { most: 0.0 });
        }
    }

    #[test]
    fn counts_of_a_file_may_be_anything() {
        let digest = Digest { nan: u64::MAX, infinite: 2, ..Digest::of(&[1.0]) };
        assert_eq!(digest.rms(), 0.0);
        let verdict = Digest::of(&[1.0]).compare(&digest, Tolerance::default());
        assert_eq!(broken(&verdict), [Measure::Nan, Measure::Infinite]);
        assert!(digest.compare(&Digest::of(&[1.0]), Tolerance::default()).is_fault());
    }

    #[test]
    fn a_verdict_says_by_how_much() {
        let reference = Digest::of(&[1.0, 2.0, 2.0]);
        let verdict = reference.compare(&Digest::of(&[1.0, 2.0, 2.1]), Tolerance::default());
        let said = verdict.to_string();
        let expected = "largest |x| 2.100000e0 instead of 2.000000e0: off by 1.000e-1";
        assert!(said.starts_with("fault: ") && said.contains(expected), "{said}");
    }

    #[test]
    fn a_digest_is_the_same_after_a_trip_through_json() {
        let digest = Digest::of(&wave(333));
        let json = serde_json::to_string(&digest).expect("it is plain data");
        assert_eq!(serde_json::from_str::<Digest>(&json).expect("the same"), digest);
    }

    proptest! {
        /// What the tolerance says of elements, the verdict says of tensors.
        #[test]
        fn rounding_is_no_fault(
            data in prop::collection::vec(-1e6_f32..1e6, 1..600),
            seed in any::<u64>(),
        ) {
            let reference = Digest::of(&data);
            let r = Tolerance::default().relative;
            let rms = reference.rms();
            let other: Vec<f32> = data.iter().enumerate().map(|(i, &x)| {
                let part = (signs(seed ^ i as u64) as f64 / u64::MAX as f64 - 0.5) * 1.9;
                // The cast rounds once more, by 6·10⁻⁸ of the element.
                (f64::from(x) + part * r * (rms + f64::from(x.abs()))) as f32
            }).collect();
            let verdict = reference.compare(&Digest::of(&other), Tolerance::default());
            prop_assert!(!verdict.is_fault(), "{}", verdict);
        }

        /// The distance by projections is that of the tensors, give or take a factor.
        #[test]
        fn a_swap_is_seen(i in 0_usize..2000, j in 0_usize..2000) {
            let data = wave(2000);
            let mut other = data.clone();
            other.swap(i, j);
            let distance = f64::from(data[i] - data[j]).abs() * 2.0_f64.sqrt();
            let estimate = Digest::of(&data).distance(&Digest::of(&other));
            // Where every projection sees it, that is the very bound: rounding goes beyond.
            prop_assert!(estimate <= 2.0_f64.sqrt() * distance * (1.0 + 1e-6) + 1e-9);
            // Each projection sees the swap or doesn't. One in 16 is a quarter of the distance.
            let unseen = (signs(i as u64) ^ signs(j as u64)) & 0xffff == 0;
            prop_assert!(unseen || estimate >= distance / 4.0, "{} {}", estimate, distance);
        }
    }
}
