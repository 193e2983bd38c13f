//! How long bricks ran on a device of several streams: time in which one ran on several of them counts once, as
//! [`Busy`](brickscope_profile::Busy) counts the device's.

use std::collections::{BTreeMap, HashMap};

use brickscope_profile::text::printable;
use brickscope_profile::{DeviceProfile, DeviceStream, NameKind, Phase, Profile, Source, Span};

/// The name of a brick as tables have it, with a mark where its times are of the host's order.
pub(crate) fn shown_name(name: &str, source: Source) -> String {
    let mark = if source == Source::HostOrder { "†" } else { "" };
    printable(name) + mark
}

/// When something ran in passes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ran {
    /// Pass, begin and end, in order. None of a pass touches the next one.
    times: Vec<(u32, u64, u64)>,
    /// The sum of its spans' own times.
    own_ns: u64,
    /// Whether its own time lies where its spans and those inside of them say.
    is_known: bool,
}

impl Ran {
    /// Time in which it ran on at least one stream; `None` if it isn't known when it did.
    pub(crate) fn ns(&self) -> Option<u64> {
        let times = self.times.iter().map(|&(_, start, end)| end.saturating_sub(start));
        self.is_known.then(|| times.fold(0, u64::saturating_add))
    }

    /// The same, or else the sum over its streams: to sort by.
    pub(crate) fn or_sum_ns(&self) -> u64 {
        self.ns().unwrap_or(self.own_ns)
    }

    /// When any of these ran.
    pub(crate) fn any_of<'r>(all: impl IntoIterator<Item = &'r Self>) -> Self {
        let mut any = Self { is_known: true, ..Self::default() };
        for ran in all {
            any.times.extend_from_slice(&ran.times);
            any.own_ns = any.own_ns.saturating_add(ran.own_ns);
            any.is_known &= ran.is_known;
        }
        any.merge();
        any
    }

    fn add(&mut self, pass: u32, span: &Span, inside: &[&Span]) {
        self.own_ns = self.own_ns.saturating_add(span.exclusive_ns);
        if inside.is_empty() && span.exclusive_ns == span.duration_ns {
            let end = span.start_ns.saturating_add(span.duration_ns);
            self.times.push((pass, span.start_ns, end));
            return;
        }
        match own_times(span, inside) {
            Some(own) => self.times.extend(own.into_iter().map(|(start, end)| (pass, start, end))),
            None => self.is_known = false,
        }
    }

    fn merge(&mut self) {
        self.times.sort_unstable();
        self.times.dedup_by(|next, last| {
            let is_one = next.0 == last.0 && next.1 <= last.2;
            if is_one {
                last.2 = last.2.max(next.2);
            }
            is_one
        });
    }
}

/// When the bricks of a device ran in the passes of a phase that [`DeviceProfile::busy`] counts, by what `key` makes of a span
/// and its name.
pub(crate) fn by<'p, K: Ord>(
    profile: &'p Profile,
    device: &DeviceProfile,
    phase: Phase,
    key: impl Fn(&Span, &'p str) -> K,
) -> BTreeMap<K, Ran> {
    let passes = device.busy_by_pass(Some(phase));
    by_pass(profile, device, |span| span.pass.filter(|serial| passes.contains_key(serial)), key)
}

/// The same of a device that has no passes, of all that ran there.
pub(crate) fn overall<'p, K: Ord>(
    profile: &'p Profile,
    device: &DeviceProfile,
    key: impl Fn(&Span, &'p str) -> K,
) -> BTreeMap<K, Ran> {
    by_pass(profile, device, |span| span.pass.is_none().then_some(0), key)
}

fn by_pass<'p, K: Ord>(
    profile: &'p Profile,
    device: &DeviceProfile,
    pass_of: impl Fn(&Span) -> Option<u32>,
    key: impl Fn(&Span, &'p str) -> K,
) -> BTreeMap<K, Ran> {
    let mut all: BTreeMap<K, Ran> = BTreeMap::new();
    for stream in &device.streams {
        let inside = inside(profile, stream);
        for (row, span) in (0_u32..).zip(&stream.spans) {
            let pass = pass_of(span);
            let (Some(pass), Some(name), 1..) = (pass, brick(profile, span), span.exclusive_ns)
            else {
                continue;
            };
            let ran = all
                .entry(key(span, name))
                .or_insert_with(|| Ran { is_known: true, ..Ran::default() });
            ran.add(pass, span, inside.get(&row).map_or(&[], Vec::as_slice));
        }
    }
    all.values_mut().for_each(Ran::merge);
    all
}

/// The name of a brick; `None` for other spans.
fn brick<'p>(profile: &'p Profile, span: &Span) -> Option<&'p str> {
    let name = profile.names.get(usize::from(span.name?))?;
    (name.kind == NameKind::Brick).then_some(&*name.name)
}

/// The bricks directly inside of others of a stream, by the rows of these.
fn inside<'s>(profile: &Profile, stream: &'s DeviceStream) -> HashMap<u32, Vec<&'s Span>> {
    let mut inside: HashMap<u32, Vec<&Span>> = HashMap::new();
    for span in &stream.spans {
        if let (Some(parent), Some(_)) = (span.parent, brick(profile, span)) {
            inside.entry(parent).or_default().push(span);
        }
    }
    inside
}

/// A brick's time outside of the bricks inside of it; `None` if that isn't as long as its own time.
fn own_times(span: &Span, inside: &[&Span]) -> Option<Vec<(u64, u64)>> {
    let end_of = |span: &Span| span.start_ns.saturating_add(span.duration_ns);
    let end = end_of(span);
    let mut inner: Vec<(u64, u64)> =
        inside.iter().map(|span| (span.start_ns.min(end), end_of(span))).collect();
    inner.sort_unstable();
    let (mut own, mut from, mut ns) = (Vec::new(), span.start_ns, 0_u64);
    for (start, until) in inner.into_iter().chain([(end, end)]) {
        if start > from {
            own.push((from, start));
            ns = ns.saturating_add(start - from);
        }
        from = from.max(until);
    }
    (ns == span.exclusive_ns).then_some(own)
}

#[cfg(test)]
mod tests {
    use brickscope_profile::Work;

    use super::*;

    fn span(start_ns: u64, end: u64, inside_ns: u64) -> Span {
        Span {
            name: Some(0),
            source: Source::Device,
            lane: 0,
            pass: Some(1),
            layer: None,
            parent: None,
            start_ns,
            duration_ns: end - start_ns,
            exclusive_ns: end - start_ns - inside_ns,
            work: Work::default(),
        }
    }

    fn ran(spans: &[(u32, Span)]) -> Ran {
        let mut ran = Ran { is_known: true, ..Ran::default() };
        spans.iter().for_each(|(pass, span)| ran.add(*pass, span, &[]));
        ran.merge();
        ran
    }

    #[test]
    fn time_on_several_streams_counts_once_in_each_pass() {
        let twice = ran(&[(1, span(0, 300, 0)), (1, span(10, 310, 0)), (1, span(400, 450, 0))]);
        assert_eq!(twice.ns(), Some(360));
        assert_eq!(twice.or_sum_ns(), 360);
        // Passes are summed, even if they overlap.
        assert_eq!(ran(&[(1, span(0, 300, 0)), (2, span(10, 310, 0))]).ns(), Some(600));
        let other = ran(&[(1, span(300, 405, 0))]);
        assert_eq!(Ran::any_of([&twice, &other]).ns(), Some(450));
        assert_eq!(Ran::any_of([]).ns(), Some(0));
    }

    #[test]
    fn bricks_inside_of_a_brick_are_no_time_of_it() {
        let (outer, first, second) = (span(0, 100, 50), span(0, 20, 0), span(50, 80, 0));
        assert_eq!(own_times(&outer, &[&second, &first]), Some(vec![(20, 50), (80, 100)]));
        // One is missing, so nobody knows which of it is its own.
        assert_eq!(own_times(&outer, &[&first]), None);
        let unknown = ran(&[(1, outer)]);
        assert_eq!((unknown.ns(), unknown.or_sum_ns()), (None, 50));
    }
}
