//! In words: the layers of a pass that moved, the kernels that only one of two commands has, and whether one reads more bytes
//! or reads them slower.

use brickscope_profile::text::brief;

use crate::compare::{
    KernelTime, KernelsOfBrick, LayerSpread, Moved, MovedLayers, MovedPart, TestChange,
};
use crate::words::{change_of, size, time};

/// The most lines of kernels of a test, and the most names in a list.
const MOST_LINES: usize = 6;
const MOST_NAMES: usize = 4;
/// The most layers that are named where the difference is spread neither over all nor over few.
const MOST_LAYERS: usize = 3;

/// A share of the difference, in whole per cent.
pub(super) fn share_of_it(share: f64) -> String {
    format!("{:.0} %", 100.0 * share).replace("-0 %", "0 %").replace('-', "−")
}

/// Where in the layers the difference is. `is_short` says that no table has it.
pub(super) fn layers_in_words(moved: &Moved, is_moved: bool, is_short: bool) -> Option<String> {
    let Some(layers) = &moved.layers else {
        return moved.layers_absent.as_ref().map(|absent| absent.reason.clone());
    };
    let share = |ns: f64| share_of_it(moved.part_of_it(ns));
    match &layers.spread {
        Some(LayerSpread::Alike) => {
            let n = layers.layers.len();
            let all = share(layers.in_layers.moved_ns);
            let [least, most] = ends(layers);
            Some(format!("in all {n} layers alike ({all} of B − A), {least} to {most} in each"))
        }
        Some(LayerSpread::Most { layers: few, brick }) => {
            let of = layers.layers.iter().filter(|of| of.layer.is_some_and(|of| few.contains(&of)));
            let ns: f64 = of.map(|of| of.whole.moved_ns).sum();
            let names: Vec<String> = few.iter().map(u16::to_string).collect();
            let layers = if few.len() == 1 { "layer" } else { "layers" };
            let names = listed(&names, names.len());
            let brick = brick.as_ref().map(|brick| format!(", there in {}", brief(brick)));
            let brick = brick.unwrap_or_default();
            Some(format!("most of it in {layers} {names} ({}){brick}", share(ns)))
        }
        None if is_moved && is_short => {
            let mut parts: Vec<&MovedPart> = layers.layers.iter().map(|of| &of.whole).collect();
            parts.sort_by(|x, y| y.moved_ns.abs().total_cmp(&x.moved_ns.abs()));
            if let Some([least, most]) = ends_if_in_each(&parts) {
                let [least, most] = [share(least), share(most)];
                return Some(format!(
                    "in each of {} layers, {least} to {most} of B − A",
                    parts.len()
                ));
            }
            let told = parts.iter().map(|part| format!("{} ({})", part.name, share(part.moved_ns)));
            let told: Vec<String> = told.collect();
            Some(listed(&told, MOST_LAYERS))
        }
        None => None,
    }
}

/// What the layer moved by that did least, and the one that did most.
fn ends(layers: &MovedLayers) -> [String; 2] {
    let mut all: Vec<f64> = layers.layers.iter().map(|of| of.whole.moved_ns).collect();
    all.sort_by(|x, y| x.abs().total_cmp(&y.abs()));
    [all.first(), all.last()].map(|ns| change_of(ns.copied().unwrap_or(0.0)))
}

/// What the layer moved by that did least, and the one that did most, where no list of some layers would tell more: all moved
/// in one direction, none by more than twice what another did. `parts` are sorted, those that moved most first.
fn ends_if_in_each(parts: &[&MovedPart]) -> Option<[f64; 2]> {
    let (most, least) = (parts.first()?.moved_ns, parts.last()?.moved_ns);
    let is_one_way = parts.iter().all(|part| part.moved_ns * most > 0.0);
    (parts.len() > MOST_LAYERS && is_one_way && most.abs() <= 2.0 * least.abs())
        .then_some([least, most])
}

/// How many more bytes B moves than A, and how fast: two rates, and what would follow from one. Or why that isn't known.
pub(super) fn bytes_in_words(test: &TestChange) -> Option<String> {
    let Some(moved) = &test.bytes else {
        let absent = test.bytes_absent.as_ref()?;
        return Some(format!("whether bytes or kernels differ isn't known: {}", absent.reason));
    };
    let [a, b] = moved.bytes.map(size);
    let rates = moved.rates();
    let [rate_a, rate_b] = rates.map(|rate| size(rate) + "/s");
    Some(format!(
        "B moves {:.2} × the bytes of A in {} (A {a}, B {b}), {:.2} × as fast (A {rate_a}, B {rate_b}). Predicted, not \
         measured: at A's rate B's bytes would take {}; they took {}",
        moved.more(),
        test.sample.whole(),
        rates[1] / rates[0],
        time(moved.at_the_rate_of_a()),
        time(moved.ns[1])
    ))
}

/// Kernels that only one side has, a line for those that came and went alike.
pub(super) fn kernels_in_words(moved: &Moved) -> Vec<String> {
    let mut changes: Vec<Changed<'_>> = Vec::new();
    for of in &moved.kernels {
        match changes.iter_mut().find(|known| known.is_like(of)) {
            Some(known) => known.bricks.push(of),
            None => changes.push(Changed { bricks: vec![of] }),
        }
    }
    let left = changes.iter().skip(MOST_LINES).map(|of| of.bricks.len()).sum::<usize>();
    let mut lines: Vec<String> = changes.iter().take(MOST_LINES).map(Changed::in_words).collect();
    if left > 0 {
        lines.push(format!("others in {left} more of its bricks: --json has them"));
    }
    lines
}

/// Bricks in which the same kernels came and went.
struct Changed<'m> {
    /// At least one.
    bricks: Vec<&'m KernelsOfBrick>,
}

impl Changed<'_> {
    fn is_like(&self, other: &KernelsOfBrick) -> bool {
        let names = |kernels: &[KernelTime]| {
            let mut names: Vec<String> = kernels.iter().map(|of| of.kernel.clone()).collect();
            names.sort();
            names
        };
        self.bricks.iter().all(|of| {
            names(&of.only_a) == names(&other.only_a) && names(&of.only_b) == names(&other.only_b)
        })
    }

    fn in_words(&self) -> String {
        let named = self.bricks.iter().filter_map(|of| of.brick.as_deref()).map(brief);
        let bricks: Vec<String> = named.collect();
        let within = match bricks.is_empty() {
            true => "in no brick".to_owned(),
            false => format!("in {}", listed(&bricks, MOST_NAMES)),
        };
        let has_a = self.bricks.iter().any(|of| !of.only_a.is_empty());
        // Said once in a line.
        let of_b = if has_a { "" } else { " a pass" };
        match (self.kernels(|of| &of.only_a, " a pass"), self.kernels(|of| &of.only_b, of_b)) {
            (a, b) if b.is_empty() => format!("only A has {a} {within}"),
            (a, b) if a.is_empty() => format!("only B has {b} {within}"),
            (a, b) => format!("{a} became {b} {within}"),
        }
    }

    /// Those of one side, each with its time in all of the bricks, and what that is of.
    fn kernels(&self, of: fn(&KernelsOfBrick) -> &Vec<KernelTime>, per: &str) -> String {
        let mut all: Vec<(&str, f64)> = Vec::new();
        for kernel in self.bricks.iter().flat_map(|brick| of(brick)) {
            match all.iter_mut().find(|(name, _)| *name == kernel.kernel) {
                Some((_, ns)) => *ns += kernel.ns,
                None => all.push((kernel.kernel.as_str(), kernel.ns)),
            }
        }
        let told = all.iter().map(|&(name, ns)| format!("{} ({}{per})", brief(name), time(ns)));
        listed(&told.collect::<Vec<_>>(), MOST_NAMES)
    }
}

/// `a, b and c`, or `a, b and 3 more`.
fn listed(all: &[String], most: usize) -> String {
    match all {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] if all.len() <= most => format!("{} and {last}", first.join(", ")),
        _ => format!("{} and {} more", all[..most].join(", "), all.len() - most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(ns: &[f64]) -> Option<[f64; 2]> {
        let part = |&moved_ns: &f64| MovedPart {
            name: String::new(),
            a_ns: None,
            b_ns: None,
            moved_ns,
            interval_ns: None,
        };
        let parts: Vec<MovedPart> = ns.iter().map(part).collect();
        ends_if_in_each(&parts.iter().collect::<Vec<_>>())
    }

    #[test]
    fn layers_that_moved_by_about_as_much_are_told_as_all_of_them() {
        assert_eq!(moved(&[10.0, 9.0, 9.0, 8.0]), Some([8.0, 10.0]));
        assert_eq!(moved(&[-10.0, -9.0, -9.0, -8.0]), Some([-8.0, -10.0]));
        // One did far more, one did the contrary, and a list of three has them all.
        assert_eq!(moved(&[20.0, 9.0, 9.0, 8.0]), None);
        assert_eq!(moved(&[10.0, 9.0, -9.0, 8.0]), None);
        assert_eq!(moved(&[10.0, 9.0, 8.0]), None);
        assert_eq!(moved(&[]), None);
    }
}
