//! Whether kernels of a pass are missing. Those of a graph follow each other at once, so that one that wasn't recorded
//! leaves a gap.

use std::rc::Rc;

use super::sequence::{Known, Layers, Token, Whole, layers};
use crate::import::trace::Timed;

/// What a pass shows of that.
pub(super) struct Seen {
    /// Whether a graph launched all but the first and the last ones.
    is_of_graph: bool,
    /// Before which kernels one may be missing, and how long nothing ran there.
    gaps: Vec<(usize, i64)>,
}

impl Seen {
    /// Of kernels in order; `launch` is the number of the graph's launch that one is of.
    pub(super) fn of(
        timed: &[Timed],
        events: &[usize],
        launch: impl Fn(usize) -> Option<u64>,
    ) -> Self {
        let launches: Vec<Option<u64>> = events.iter().map(|&at| launch(at)).collect();
        let mut idle: Vec<(usize, i64)> = Vec::new();
        let mut end = i64::MIN;
        for (nth, &at) in events.iter().enumerate() {
            let of = launches[nth];
            if of.is_some() && nth.checked_sub(1).is_some_and(|before| launches[before] == of) {
                idle.push((nth, timed[at].start.saturating_sub(end).max(0)));
            }
            end = end.max(timed[at].end);
        }
        let mut lengths: Vec<i64> = idle.iter().map(|(_, ns)| *ns).collect();
        lengths.sort_unstable();
        // What is usual in this graph; one where streams wait for each other has a few longer ones in each layer.
        let usual = lengths.get(lengths.len() * 9 / 10).copied().unwrap_or_default();
        let most = usual.saturating_mul(2).max(usual.saturating_add(1_000));
        idle.retain(|(_, ns)| *ns > most);
        let mut graphs = launches.iter().skip_while(|of| of.is_none());
        let first = graphs.next().copied().flatten();
        let behind = graphs.skip_while(|of| **of == first);
        let is_of_graph = first.is_some() && behind.into_iter().all(Option::is_none);
        Self { is_of_graph, gaps: idle }
    }

    /// The layers of the pass, or why they aren't known.
    pub(super) fn layers(
        &self,
        tokens: &Rc<[Token]>,
        timed: &[Timed],
        events: &[usize],
        known: &mut Known,
    ) -> Result<Layers, &'static str> {
        // No two lose the same kernels.
        if known.comes_again(tokens) {
            return known.layers(tokens, Whole::Sure).clone();
        }
        let Some(&(first, _)) = self.gaps.first() else {
            let whole = if self.is_of_graph { Whole::Sure } else { Whole::Unsure };
            return known.layers(tokens, whole).clone();
        };
        let all = known.layers(tokens, Whole::Unsure);
        // A gap isn't always a loss: if all repeats, none is, but for whole layers.
        if let Ok(layers) = all
            && !layers.breaks_off
        {
            let mut layers = layers.clone();
            let longest = self.gaps.iter().map(|(_, ns)| *ns).max().unwrap_or_default();
            let shortest = shortest_layer(timed, events, &layers);
            layers.pause_ns = shortest.filter(|ns| longest >= ns / 2).map(|_| longest);
            return Ok(layers);
        }
        Ok(layers(&tokens[..first], Whole::Unsure)?.before_a_hole(tokens.len()))
    }
}

/// From the begin of a layer to that of the next one.
fn shortest_layer(timed: &[Timed], events: &[usize], layers: &Layers) -> Option<i64> {
    let mut begins = Vec::new();
    let mut last = None;
    for (&at, of) in events.iter().zip(&layers.of) {
        if of.is_some() && *of != last {
            begins.push(timed[at].start);
            last = *of;
        }
    }
    begins.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min()
}

#[cfg(test)]
mod tests {
    use super::super::EventKind;
    use super::super::sequence::tests::tokens;
    use super::*;

    const BODY: &str = "NPrkAPNPSP";

    /// Kernels of a graph, 10 µs each and 1 µs apart, but for a longer gap before one of them.
    fn found(text: &str, before: usize, gap: i64) -> Result<Layers, &'static str> {
        let tokens = tokens(text);
        let mut at = 0;
        let event = |nth: usize| {
            at += if nth == before { gap } else { 1_000 };
            let (start, end) = (at, at + 10_000);
            at = end;
            Timed { lane: 0, name: 0, start, end, kind: EventKind::Work, passes: 0, link: None }
        };
        let timed: Vec<Timed> = (0..tokens.len()).map(event).collect();
        let events: Vec<usize> = (0..tokens.len()).collect();
        let mut known = Known::default();
        let tokens = known.count(tokens);
        Seen::of(&timed, &events, |_| Some(7)).layers(&tokens, &timed, &events, &mut known)
    }

    #[test]
    fn a_pause_is_no_hole_where_all_repeats() {
        let text = format!("ec{}NPx", BODY.repeat(6));
        for (gap, pause) in [(1_000, None), (9_000, None), (400_000, Some(400_000))] {
            let layers = found(&text, 2 + 2 * BODY.len(), gap).expect("layers");
            assert_eq!((layers.count, layers.pause_ns), (6, pause), "{gap}");
        }
    }

    #[test]
    fn behind_a_hole_there_are_no_layers_and_first_ones_are_as_the_others() {
        let whole = BODY.repeat(9);
        let text = format!("ec{}{}NPx", &whole[..44], &whole[49..]);
        let layers = found(&text, 2 + 44, 60_000).expect("layers");
        assert_eq!(layers.of.iter().flatten().count(), 40);
        // A dense layer and the end of another are as a dense layer with a kernel more.
        let text = format!("ec{}z{}NPx", "NPrkAPNPSP", "NPrkAPNPREEz".repeat(8));
        assert_eq!(found(&text, usize::MAX, 0).map(|layers| layers.count), Ok(9));
        assert!(found(&text, 2 + 10, 60_000).is_err());
    }
}
