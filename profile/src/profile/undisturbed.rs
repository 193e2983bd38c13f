//! A profile without its disturbed passes.

use std::collections::HashMap;

use super::Profile;
use crate::absent::Absent;
use crate::brick::Phase;
use crate::dropped::Dropped;
use crate::latency::Latency;
use crate::name::{Name, NameKind, OTHER_BRICK, OTHER_KERNEL};
use crate::stats::BrickStats;
use crate::sums::{Pass, PhaseTotal};

impl Profile {
    /// This profile with the statistics of undisturbed passes only. Disturbed passes stay in `passes` with
    /// `is_left_out` set, and [`Dropped::left_out_passes`] counts them.
    ///
    /// # Errors
    ///
    /// If not every pass and span was kept, since sums can't be taken apart again; or if any of it ran on
    /// devices.
    pub fn without_disturbed(&self) -> Result<Self, Absent> {
        self.without(Pass::is_disturbed)
    }

    /// This profile with the statistics of the passes for which `is_out` is false. The others stay in `passes` with
    /// `is_left_out` set, and [`Dropped::left_out_passes`] counts them.
    ///
    /// # Errors
    ///
    /// If not every pass and span was kept, since sums can't be taken apart again; or if any of it ran on
    /// devices.
    pub fn without(&self, is_out: impl Fn(&Pass) -> bool) -> Result<Self, Absent> {
        let are_out: Vec<bool> = self.passes.iter().map(is_out).collect();
        self.without_these(&are_out)
    }

    /// By itself, since what is generic is compiled with the package that calls it, and as little optimised.
    fn without_these(&self, are_out: &[bool]) -> Result<Self, Absent> {
        if !self.devices.is_empty() {
            return Err(Absent {
                reason: "disturbed passes can't be left out of a run on a device: disturbances of the host \
                         are known, those of the device are not"
                    .to_owned(),
            });
        }
        let Dropped { spans, passes, .. } = self.dropped;
        let has_passes = self.phases.iter().any(|phase| phase.passes > 0);
        if spans > 0 || passes > 0 || self.spans.is_empty() && has_passes {
            return Err(Absent {
                reason: "disturbed passes can't be left out: this needs every span and pass, and \
                         some were only summed"
                    .to_owned(),
            });
        }
        let mut rest = self.clone();
        for (pass, is_out) in rest.passes.iter_mut().zip(are_out) {
            pass.is_left_out |= is_out;
        }
        let left_out = rest.passes.iter().filter(|pass| pass.is_left_out).count() as u64;
        if left_out == 0 {
            return Ok(rest);
        }
        rest.dropped.left_out_passes = left_out;
        let kept = || rest.passes.iter().filter(|pass| !pass.is_left_out);
        rest.dropped.disturbed_passes = kept().filter(|pass| pass.is_disturbed()).count() as u64;
        let kept: HashMap<u32, Phase> = rest
            .passes
            .iter()
            .filter(|pass| !pass.is_left_out)
            .map(|pass| (pass.serial, pass.phase))
            .collect();
        let mut stats: HashMap<(Phase, u8, u16), BrickStats> = HashMap::new();
        for span in &rest.spans {
            if let (Some(name), Some(pass)) = (span.name, span.pass)
                && let Some(&phase) = kept.get(&pass)
            {
                stats
                    .entry((phase, span.source as u8, name))
                    .or_insert_with(|| BrickStats::new(""))
                    .add(span.duration_ns, span.exclusive_ns, span.work);
            }
        }
        let mut had_counters = false;
        let key =
            |name: &Name| (name.name.clone(), name.kind, name.host.clone(), name.device.clone());
        let numbers: HashMap<_, u16> = self.names.iter().map(key).zip(0..).collect();
        rest.totals.retain_mut(|total| {
            let Some(phase) = total.phase else { return true };
            let (kind, host, device) = (total.kind, total.host.clone(), total.device.clone());
            let name = (total.stats.name.clone(), kind, host, device);
            let number = numbers.get(&name).copied().unwrap_or(match kind {
                NameKind::Brick => OTHER_BRICK,
                NameKind::Kernel => OTHER_KERNEL,
            });
            let key = Some((phase, total.source as u8, number));
            let Some(mut found) = key.and_then(|key| stats.remove(&key)) else { return false };
            found.name = name.0;
            total.std_dev_ns = found.std_dev_ns();
            total.percentiles = found.percentiles();
            // Spans don't keep what their bytes are. All of one name are of the same kind, in parts that hardly differ.
            found.data = total.stats.data.part(found.total_bytes, total.stats.total_bytes);
            total.stats = found;
            // Counts are known only for all passes together.
            had_counters |= total.counters.take().is_some();
            true
        });
        if had_counters {
            let reason = "hardware counters are known only for all passes together".to_owned();
            rest.counters_absent = Some(Absent { reason });
        }
        rest.phases.retain_mut(|total| {
            let passes = rest.passes.iter().filter(|p| p.phase == total.phase && !p.is_left_out);
            let mut sum = PhaseTotal {
                passes: 0,
                disturbed: 0,
                unwatched: None,
                tokens: 0,
                wall_ns: 0,
                attributed_ns: 0,
                unattributed_ns: 0,
                ..*total
            };
            for pass in passes {
                sum.passes += 1;
                sum.disturbed += u64::from(pass.is_disturbed());
                if total.unwatched.is_some() {
                    let unknown = u64::from(pass.disturbance.is_none());
                    sum.unwatched = Some(sum.unwatched.unwrap_or(0) + unknown);
                }
                for (sum, of_pass) in [
                    (&mut sum.tokens, pass.tokens),
                    (&mut sum.wall_ns, pass.wall_ns),
                    (&mut sum.attributed_ns, pass.attributed_ns),
                    (&mut sum.unattributed_ns, pass.unattributed_ns),
                ] {
                    *sum = sum.saturating_add(of_pass);
                }
            }
            *total = sum;
            sum.passes > 0
        });
        if !rest.layers.is_empty() {
            rest.layers = rest.layers_of_spans();
        }
        let of_passes = Latency::of(&rest.passes, &rest.spans, &rest.names);
        rest.latency = of_passes.beside_requests_of(&self.latency);
        Ok(rest)
    }
}
