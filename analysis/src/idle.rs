//! When devices did nothing at all, by what ran on them in passes and outside of them.

use brickscope_profile::DeviceProfile;

/// When a device did something: intervals that don't overlap, each with the time of all before it.
pub(crate) struct Idle(Vec<(u64, u64, u64)>);

impl Idle {
    /// By all that ran on it, in passes and outside of them.
    pub(crate) fn of_device(device: &DeviceProfile) -> Self {
        let spans = device.streams.iter().flat_map(|stream| &stream.spans);
        let own = spans.filter(|span| span.exclusive_ns > 0);
        let times = own.map(|span| (span.start_ns, span.start_ns.saturating_add(span.duration_ns)));
        Self::of(times.collect())
    }

    pub(crate) fn of(mut spans: Vec<(u64, u64)>) -> Self {
        spans.sort_unstable();
        let mut merged: Vec<(u64, u64, u64)> = Vec::new();
        for (start, end) in spans {
            match merged.last_mut() {
                Some((_, until, _)) if start <= *until => *until = (*until).max(end),
                last => {
                    let before =
                        last.map_or(0, |(start, end, sum)| sum.saturating_add(*end - *start));
                    merged.push((start, end, before));
                }
            }
        }
        Self(merged)
    }

    /// Whether it did nothing before `at`, and something then.
    pub(crate) fn begins_at(&self, at: u64) -> bool {
        self.0.first().is_some_and(|&(start, ..)| start == at)
    }

    /// How much of the time before `at` it was busy.
    fn busy_until(&self, at: u64) -> u64 {
        let n = self.0.partition_point(|&(start, ..)| start < at);
        let Some(&(start, end, before)) = n.checked_sub(1).and_then(|n| self.0.get(n)) else {
            return 0;
        };
        before.saturating_add(end.min(at).saturating_sub(start))
    }

    /// Time in which it did nothing.
    pub(crate) fn within(&self, from: u64, to: u64) -> u64 {
        let all = to.saturating_sub(from);
        all - (self.busy_until(to.max(from)) - self.busy_until(from)).min(all)
    }
}
