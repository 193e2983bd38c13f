//! Begins and ends of the events of a thread, paired by their times: a file may have them in any order.

use std::collections::HashMap;

/// Begins and ends of a thread, in the order of the file. A begin carries a `B`.
pub(super) struct Edges<B> {
    edges: Vec<Edge<B>>,
    /// Whether one is earlier than one before it.
    is_disordered: bool,
}

struct Edge<B> {
    at: i64,
    /// The number of its name, which an end may lack.
    name: Option<u32>,
    /// What began; `None` for an end.
    begun: Option<B>,
}

impl<B> Default for Edges<B> {
    fn default() -> Self {
        Self { edges: Vec::new(), is_disordered: false }
    }
}

impl<B> Edges<B> {
    pub(super) fn begin(&mut self, at: i64, name: u32, begun: B) {
        self.add(Edge { at, name: Some(name), begun: Some(begun) });
    }

    /// Notes an end. One right behind its begin, of the same time, is of an event that took none, which is returned:
    /// sorted by time, the end would close another one.
    pub(super) fn end(&mut self, at: i64, name: Option<u32>) -> Option<B> {
        let is_it = |edge: &mut Edge<B>| {
            let is_named_so = name.is_none() || edge.name == name;
            edge.at == at && edge.begun.is_some() && is_named_so
        };
        if let Some(edge) = self.edges.pop_if(is_it) {
            return edge.begun;
        }
        self.add(Edge { at, name, begun: None });
        None
    }

    pub(super) fn len(&self) -> usize {
        self.edges.len()
    }

    fn add(&mut self, edge: Edge<B>) {
        self.is_disordered |= self.edges.last().is_some_and(|last| edge.at < last.at);
        self.edges.push(edge);
    }

    /// Calls `note` with what began and when it ended, inner ones first. An end with a name closes the one that began last
    /// of this name, one without a name the one that began last of all. Returns what has no end, and how many ends have no
    /// begin.
    pub(super) fn pair(self, mut note: impl FnMut(B, i64)) -> (Vec<B>, u64) {
        let Self { mut edges, is_disordered } = self;
        if is_disordered {
            // What begins when another one ends comes after it.
            edges.sort_by_key(|edge| (edge.at, edge.begun.is_some()));
        }
        let mut open = Open::default();
        // Ends of events that perhaps begin at the same time.
        let mut waiting: Vec<u32> = Vec::new();
        let (mut unbegun, mut now) = (0, i64::MIN);
        for Edge { at, name, begun } in edges {
            if at != now {
                unbegun += open.end_all(&mut waiting, now, &mut note);
                now = at;
            }
            match (begun, name) {
                (Some(begun), name) => open.begin(name.unwrap_or_default(), begun),
                (None, name) => match (open.end(name), name) {
                    (Some(begun), _) => note(begun, at),
                    (None, Some(name)) if is_disordered => waiting.push(name),
                    (None, _) => unbegun += 1,
                },
            }
        }
        unbegun += open.end_all(&mut waiting, now, &mut note);
        (open.rest(), unbegun)
    }
}

/// What has begun and not ended.
struct Open<B> {
    /// With the number of its name. What ended before those on top of it has left a gap; the last is none.
    stack: Vec<Option<(u32, B)>>,
    /// Where those of a name are.
    of_name: HashMap<u32, Vec<usize>>,
}

impl<B> Default for Open<B> {
    fn default() -> Self {
        Self { stack: Vec::new(), of_name: HashMap::new() }
    }
}

impl<B> Open<B> {
    fn begin(&mut self, name: u32, begun: B) {
        self.of_name.entry(name).or_default().push(self.stack.len());
        self.stack.push(Some((name, begun)));
    }

    fn end(&mut self, name: Option<u32>) -> Option<B> {
        let last = || self.stack.last()?.as_ref().map(|(name, _)| *name);
        let name = name.or_else(last)?;
        let at = self.of_name.get_mut(&name)?.pop()?;
        let (_, begun) = self.stack.get_mut(at)?.take()?;
        while self.stack.pop_if(|gap| gap.is_none()).is_some() {}
        Some(begun)
    }

    /// Ends those with these names at a time. Returns how many there aren't.
    fn end_all(&mut self, names: &mut Vec<u32>, at: i64, note: &mut impl FnMut(B, i64)) -> u64 {
        let mut missing = 0;
        for name in names.drain(..) {
            match self.end(Some(name)) {
                Some(begun) => note(begun, at),
                None => missing += 1,
            }
        }
        missing
    }

    fn rest(self) -> Vec<B> {
        self.stack.into_iter().flatten().map(|(_, begun)| begun).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pairs of edges `(time, name, whether it begins)`, sorted; what has no end, and how many ends have no begin.
    fn pairs(of: &[(i64, &str, bool)]) -> (Vec<(String, i64, i64)>, usize, u64) {
        let mut edges = Edges::default();
        let mut found = Vec::new();
        let sum = |name: &str| name.bytes().map(u32::from).sum::<u32>();
        let number = |name: &str| (!name.is_empty()).then(|| sum(name));
        for &(at, name, begins) in of {
            if begins {
                edges.begin(at, number(name).unwrap_or_default(), (name.to_owned(), at));
            } else if let Some((name, begun)) = edges.end(at, number(name)) {
                found.push((name, begun, at));
            }
        }
        let (open, unbegun) = edges.pair(|(name, begun), at| found.push((name, begun, at)));
        found.sort();
        (found, open.len(), unbegun)
    }

    fn is(found: &[(&str, i64, i64)]) -> Vec<(String, i64, i64)> {
        found.iter().map(|&(name, begun, end)| (name.to_owned(), begun, end)).collect()
    }

    #[test]
    fn begins_and_ends_are_paired_by_time_in_any_order() {
        let ordered = [
            (0, "pass", true),
            (10, "a", true),
            (60, "a", false),
            (60, "b", true),
            (100, "b", false),
            (100, "pass", false),
        ];
        let all = is(&[("a", 10, 60), ("b", 60, 100), ("pass", 0, 100)]);
        let mut edges = ordered;
        for turn in 0..edges.len() {
            edges.rotate_left(1);
            assert_eq!(pairs(&edges), (all.clone(), 0, 0), "{turn}");
        }
        edges.reverse();
        assert_eq!(pairs(&edges), (all.clone(), 0, 0));
        // Ends may have no name.
        let unnamed = ordered.map(|(at, name, begins)| match begins {
            true => (at, name, begins),
            false => (at, "", begins),
        });
        assert_eq!(pairs(&unnamed), (all, 0, 0));
    }

    #[test]
    fn an_event_of_no_time_keeps_its_end() {
        let pass = (0, "pass", true);
        let zero = [(60, "a", true), (60, "a", false)];
        let around = [(60, "pass", false), (60, "b", true), (90, "b", false)];
        let all = is(&[("a", 60, 60), ("b", 60, 90), ("pass", 0, 60)]);
        let early = [&[pass][..], &zero, &around].concat();
        let behind = [&zero[..], &around, &[pass]].concat();
        for edges in [early, behind] {
            assert_eq!(pairs(&edges), (all.clone(), 0, 0));
        }
        // In another order than its begin.
        let apart = [(60, "a", false), (0, "pass", true), (60, "a", true), (90, "pass", false)];
        assert_eq!(pairs(&apart), (is(&[("a", 60, 60), ("pass", 0, 90)]), 0, 0));
    }

    #[test]
    fn an_end_closes_what_has_its_name() {
        let crossed = [(0, "pass", true), (60, "b", true), (100, "pass", false), (101, "b", false)];
        assert_eq!(pairs(&crossed), (is(&[("b", 60, 101), ("pass", 0, 100)]), 0, 0));
        let other = [(0, "pass", true), (60, "b", false), (100, "", false), (101, "", false)];
        assert_eq!(pairs(&other), (is(&[("pass", 0, 100)]), 0, 2));
        assert_eq!(pairs(&[(0, "pass", true), (1, "b", true)]), (Vec::new(), 2, 0));
    }
}
