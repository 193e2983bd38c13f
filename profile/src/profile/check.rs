//! Whether the sums of a profile add up.

use std::collections::HashMap;

use super::Profile;
use crate::request;
use crate::sums::sum_is_wall;

impl Profile {
    /// Checks that the profile adds up: bricks + unattributed = wall time, to the nanosecond, in every
    /// phase and in every pass whose spans were all kept; likewise for each stream of a device. Times of requests don't go
    /// backwards.
    ///
    /// # Errors
    ///
    /// If a sum is wrong: a sentence that states which one, with its parts.
    pub fn check(&self) -> Result<(), String> {
        for (index, device) in self.devices.iter().enumerate() {
            device.check().map_err(|why| format!("device {index}: {why}"))?;
        }
        for phase in &self.phases {
            let bricks = self.bricks(Some(phase.phase));
            let bricks =
                bricks.iter().fold(0, |sum, b| u64::saturating_add(sum, b.stats.exclusive_ns));
            sum_is_wall(
                &format!("the bricks of {}", phase.phase),
                bricks,
                phase.unattributed_ns,
                phase.wall_ns,
            )?;
        }
        for pass in &self.passes {
            sum_is_wall(
                &format!("pass {}", pass.serial),
                pass.attributed_ns,
                pass.unattributed_ns,
                pass.wall_ns,
            )?;
        }
        if let Some(kept) = &self.kept {
            let passes = self.phases.iter().map(|phase| phase.passes);
            kept.check(passes.fold(0, u64::saturating_add))?;
            // Those that are left out are there for the requests that waited for them.
            let there = self.passes.iter().filter(|pass| !pass.is_left_out).count() as u64;
            let said = kept.kept();
            if said != there {
                return Err(format!("{said} passes were kept, and {there} are there"));
            }
            if let Some(requests) = &kept.requests {
                requests.check(self.requests.len())?;
            }
        }
        if let Some(fired) = &self.fired {
            fired.check()?;
        }
        let all_passes_are_kept = self.dropped.passes == 0;
        request::check(&self.requests, &self.parts, &self.passes, all_passes_are_kept)?;
        if self.dropped.spans == 0 {
            let mut explained = HashMap::<u32, u64>::new();
            for span in &self.spans {
                if let Some(pass) = span.pass {
                    let explained = explained.entry(pass).or_default();
                    *explained = u64::saturating_add(*explained, span.exclusive_ns);
                }
            }
            for pass in &self.passes {
                let spans = explained.get(&pass.serial).copied().unwrap_or_default();
                // Without a trace there is nothing to compare.
                if !self.spans.is_empty() {
                    sum_is_wall(
                        &format!("the spans of pass {}", pass.serial),
                        spans,
                        pass.unattributed_ns,
                        pass.wall_ns,
                    )?;
                }
            }
        }
        Ok(())
    }
}
