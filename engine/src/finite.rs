//! Whether logits are numbers.

/// Whether none of these is NaN or infinite.
#[must_use]
pub fn all_finite(x: &[f32]) -> bool {
    // Counted rather than searched for, since a loop without an early end runs on vectors.
    let (sixteens, rest) = x.as_chunks::<16>();
    let mut bad = [0u32; 16];
    for x in sixteens {
        for (bad, x) in bad.iter_mut().zip(x) {
            *bad |= u32::from(!x.is_finite());
        }
    }
    bad == [0; 16] && rest.iter().all(|x| x.is_finite())
}

/// What was seen of logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogitsSeen {
    /// How often there were logits.
    pub times: u64,
    /// How often NaN or infinity was among them.
    pub not_finite: u64,
    /// How often there had been logits before the first such time.
    pub first: Option<u64>,
}

impl LogitsSeen {
    /// Adds logits.
    pub fn see(&mut self, logits: &[f32]) {
        self.saw(all_finite(logits));
    }

    pub(crate) fn saw(&mut self, are_finite: bool) {
        if !are_finite {
            self.not_finite += 1;
            self.first.get_or_insert(self.times);
        }
        self.times += 1;
    }
}
