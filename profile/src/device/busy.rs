//! How busy a device was over all of its streams.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::absent::Absent;
use crate::brick::Phase;
use crate::device::DeviceProfile;

/// How busy a device was in some passes, over all of its streams. Time in which several streams ran bricks
/// counts once, so this isn't the sum over the streams. `busy_ns` + `idle_ns` = `span_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Busy {
    /// The number of passes.
    pub passes: u64,
    /// From the first mark of a pass to its last, on any stream, summed over the passes.
    pub span_ns: u64,
    /// Time in which a brick ran on at least one stream.
    pub busy_ns: u64,
    /// Time in which bricks ran on at least two streams.
    pub overlap_ns: u64,
    /// Time in which no brick of the pass ran. Where passes overlap, those of others may have.
    pub idle_ns: u64,
}

impl Busy {
    #[doc(hidden)]
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.passes, other.passes),
            (&mut self.span_ns, other.span_ns),
            (&mut self.busy_ns, other.busy_ns),
            (&mut self.overlap_ns, other.overlap_ns),
            (&mut self.idle_ns, other.idle_ns),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}

impl DeviceProfile {
    /// How busy the device was in the passes of a phase, or of all phases. Only passes whose bricks were timed
    /// and whose spans were all kept count.
    ///
    /// # Errors
    ///
    /// If there is no such pass, or bricks' times [include waits](DeviceProfile::includes_waits).
    pub fn busy(&self, phase: Option<Phase>) -> Result<Busy, Absent> {
        let mut sum = Busy::default();
        for busy in self.busy_by_pass(phase).values() {
            sum.add(busy);
        }
        if sum.passes > 0 {
            return Ok(sum);
        }
        let is_of_it = |of: Phase| phase.is_none_or(|phase| phase == of);
        let has_pass = self.streams.iter().any(|stream| {
            stream.passes.iter().any(|pass| is_of_it(pass.phase))
                || stream.phases.iter().any(|total| is_of_it(total.phase))
        });
        let reason = match (self.includes_waits, has_pass) {
            (true, _) => "its bricks' times include waits for the host",
            (false, true) => "there is no pass of which every brick was timed and kept",
            (false, false) => "nothing that ran there is known to be of such a pass",
        };
        Err(Absent { reason: reason.to_owned() })
    }

    /// The same from its first brick to its last, in passes and outside of them. `None` if nothing ran there, if spans were
    /// dropped, or if bricks' times [include waits](DeviceProfile::includes_waits).
    #[must_use]
    pub fn busy_overall(&self) -> Option<Busy> {
        let is_dropped = self.streams.iter().any(|stream| stream.dropped.spans > 0);
        if self.includes_waits || is_dropped {
            return None;
        }
        let spans = self.streams.iter().flat_map(|stream| &stream.spans);
        let own = spans.filter(|span| span.exclusive_ns > 0);
        let edges: Vec<(u64, i32)> = own
            .flat_map(|span| {
                [(span.start_ns, 1), (span.start_ns.saturating_add(span.duration_ns), -1)]
            })
            .collect();
        let start = edges.iter().map(|&(at, _)| at).min()?;
        let end = edges.iter().map(|&(at, _)| at).max()?;
        Some(Busy { passes: 0, ..sweep(edges, start, end) })
    }

    /// The same for each such pass, by its serial.
    #[must_use]
    pub fn busy_by_pass(&self, phase: Option<Phase>) -> BTreeMap<u32, Busy> {
        if self.includes_waits {
            return BTreeMap::new();
        }
        // The time attributed to bricks by the kept spans, for each pass on each stream.
        let mut incomplete: HashSet<u32> = HashSet::new();
        let mut walls: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for stream in &self.streams {
            let mut kept: HashMap<u32, u64> = HashMap::new();
            for span in &stream.spans {
                if let Some(pass) = span.pass {
                    let kept = kept.entry(pass).or_default();
                    *kept = u64::saturating_add(*kept, span.exclusive_ns);
                }
            }
            // Without these a stream may lack a pass altogether.
            if stream.dropped.passes > 0 {
                return BTreeMap::new();
            }
            let passes = stream.passes.iter();
            for pass in passes.filter(|pass| phase.is_none_or(|phase| pass.phase == phase)) {
                let end = pass.start_ns.saturating_add(pass.wall_ns);
                let wall = walls.entry(pass.serial).or_insert((pass.start_ns, end));
                *wall = (wall.0.min(pass.start_ns), wall.1.max(end));
                let is_whole = kept.get(&pass.serial).copied().unwrap_or(0) == pass.attributed_ns;
                if !is_whole || pass.attributed_ns == 0 && pass.wall_ns > 0 {
                    incomplete.insert(pass.serial);
                }
            }
        }
        // Where bricks begin and end, by pass.
        let mut edges: HashMap<u32, Vec<(u64, i32)>> = HashMap::new();
        for span in self.streams.iter().flat_map(|stream| &stream.spans) {
            if let Some(pass) = span.pass.filter(|_| span.exclusive_ns > 0) {
                let edges = edges.entry(pass).or_default();
                edges.push((span.start_ns, 1));
                edges.push((span.start_ns.saturating_add(span.duration_ns), -1));
            }
        }
        walls.retain(|serial, _| !incomplete.contains(serial));
        let busy = walls.into_iter().map(|(serial, (start, end))| {
            (serial, sweep(edges.remove(&serial).unwrap_or_default(), start, end))
        });
        busy.collect()
    }
}

/// Counts what is open from edge to edge.
fn sweep(mut edges: Vec<(u64, i32)>, start: u64, end: u64) -> Busy {
    edges.sort_unstable();
    let span_ns = end.saturating_sub(start);
    let mut busy = Busy { passes: 1, span_ns, ..Busy::default() };
    let (mut open, mut since) = (0, start);
    for (at, change) in edges {
        let nanos = at.saturating_sub(since);
        busy.busy_ns = busy.busy_ns.saturating_add(if open > 0 { nanos } else { 0 });
        busy.overlap_ns = busy.overlap_ns.saturating_add(if open > 1 { nanos } else { 0 });
        open += change;
        since = since.max(at);
    }
    busy.idle_ns = span_ns.saturating_sub(busy.busy_ns);
    busy
}
