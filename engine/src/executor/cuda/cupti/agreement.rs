//! Compares brickscope's stamps with CUPTI's records, kernel by kernel.
//!
//! Both are of the same passes, so each pair is one run of one kernel, and differences come from the
//! instruments, not from noise between runs. A stamped time begins at the stamp before the kernel and ends at the one
//! after it; a record covers only the kernel. So a stamped time is longer by the gap before the kernel and
//! the cost of a stamp. [`Recorded::SinceLast`] includes that gap in the record: it counts from the end of the kernel
//! before. Where kernels note themselves when they begin ([`Stamps::Inside`](super::super::Stamps::Inside)), a stamped time
//! lasts until the next kernel begins, as [`Recorded::UntilNext`] does.

use std::collections::HashSet;
use std::sync::Arc;

use super::CuptiRecords;

/// The largest difference that always counts as agreement, in nanoseconds.
const NEAR_NS: u64 = 1_000;

/// The largest relative difference, as one part in this many: 5 %.
const NEAR_PART: u64 = 20;

/// A kernel by brickscope's stamps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamped {
    /// Its name.
    pub kernel: Arc<str>,
    /// From the stamp before it to the one after it, in nanoseconds.
    pub ns: u64,
}

/// A pass whose kernels were stamped while CUPTI recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StampedPass {
    /// [`Cupti::now_ns`](super::Cupti::now_ns) before its first launch, when all earlier work was done.
    pub begun_ns: u64,
    /// In the order of their launches.
    pub kernels: Vec<Stamped>,
}

/// The time of a record that is compared with a stamped time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// From the kernel's start to its end.
    Alone,
    /// From the end of the previous kernel of its pass to its own. The first kernel of a pass has no such time.
    SinceLast,
    /// From the kernel's start to that of the next kernel of its pass. The last kernel of a pass has no such time.
    UntilNext,
}

/// One run of a kernel, by both.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pair {
    /// Its name.
    pub kernel: Arc<str>,
    /// The index of its pass.
    pub pass: usize,
    /// The time by brickscope.
    pub stamped_ns: u64,
    /// The time by CUPTI.
    pub recorded_ns: u64,
    /// The time by CUPTI, from the end of the previous kernel of its pass.
    pub since_last_ns: Option<u64>,
    /// The time by CUPTI, until the next kernel of its pass starts.
    pub until_next_ns: Option<u64>,
    /// The number of its kernel in the pass.
    pub launch: usize,
}

impl Pair {
    fn recorded(&self, what: Recorded) -> Option<u64> {
        match what {
            Recorded::Alone => Some(self.recorded_ns),
            Recorded::SinceLast => self.since_last_ns,
            Recorded::UntilNext => self.until_next_ns,
        }
    }
}

/// The pairs of some passes.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Agreement {
    /// All pairs, in order of passes and of launches.
    pub pairs: Vec<Pair>,
    /// Passes whose kernels all have a record.
    pub passes: usize,
    /// Passes that are left out because their records don't match their kernels one by one: some are
    /// missing, so the rest can't be assigned.
    pub left_out: usize,
    /// Records in these passes of kernels without a stamp.
    pub others: usize,
}

/// How far apart pairs are.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Apart<'p> {
    /// The number of pairs.
    pub n: usize,
    /// The median of stamped minus recorded, in nanoseconds.
    pub median_ns: f64,
    /// The first of the pairs that are furthest apart, and its stamped minus recorded time in nanoseconds.
    pub furthest: (&'p Pair, i64),
    /// Pairs more than 5 % of the record apart.
    pub beyond_part: usize,
    /// Pairs more than 1 µs apart.
    pub beyond_ns: usize,
    /// Pairs beyond both.
    pub beyond: usize,
}

impl Agreement {
    /// Pairs records with kernels by launch order: a record belongs to the last pass that had begun by then, and
    /// within a pass the records must have its kernels' names, in order.
    #[must_use]
    pub fn new(passes: &[StampedPass], records: &CuptiRecords) -> Self {
        let mut agreement = Self::default();
        let stamped: HashSet<&str> =
            passes.iter().flat_map(|pass| &pass.kernels).map(|k| &*k.kernel).collect();
        for (index, pass) in passes.iter().enumerate() {
            let next = passes.get(index + 1).map_or(u64::MAX, |next| next.begun_ns);
            let within = &records.kernels;
            let within = &within[within.partition_point(|r| r.start_ns < pass.begun_ns)..];
            let within = &within[..within.partition_point(|r| r.start_ns < next)];
            let (own, others): (Vec<_>, Vec<_>) =
                within.iter().partition(|record| stamped.contains(&*record.name));
            agreement.others += others.len();
            let names = pass.kernels.iter().map(|kernel| &kernel.kernel);
            if pass.kernels.is_empty() || !names.eq(own.iter().map(|record| &record.name)) {
                agreement.left_out += 1;
                continue;
            }
            agreement.passes += 1;
            let mut last_end = None;
            let starts = own.iter().skip(1).map(|record| Some(record.start_ns)).chain([None]);
            let starts: Vec<Option<u64>> = starts.collect();
            for (launch, (kernel, record)) in pass.kernels.iter().zip(own).enumerate() {
                let next_start = starts[launch];
                agreement.pairs.push(Pair {
                    kernel: Arc::clone(&kernel.kernel),
                    pass: index,
                    stamped_ns: kernel.ns,
                    recorded_ns: record.duration_ns(),
                    since_last_ns: last_end.and_then(|end| record.end_ns.checked_sub(end)),
                    until_next_ns: next_start.and_then(|next| next.checked_sub(record.start_ns)),
                    launch,
                });
                last_end = Some(record.end_ns);
            }
        }
        agreement
    }

    /// The medians over the passes of each of a pass's kernels: its name, stamped and recorded. A single pair may be apart
    /// because CUPTI was busy with its buffers.
    #[must_use]
    pub fn medians(&self, what: Recorded) -> Vec<(&str, u64, u64)> {
        let n = self.pairs.iter().map(|pair| pair.launch + 1).max().unwrap_or(0);
        let mut of_launches = vec![("", Vec::new(), Vec::new()); n];
        for pair in &self.pairs {
            let Some(recorded) = pair.recorded(what) else { continue };
            let (name, stamps, records) = &mut of_launches[pair.launch];
            *name = &pair.kernel;
            stamps.push(pair.stamped_ns);
            records.push(recorded);
        }
        let median = |mut times: Vec<u64>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        let of_launches = of_launches.into_iter().filter(|(_, stamps, _)| !stamps.is_empty());
        of_launches.map(|(name, stamps, records)| (name, median(stamps), median(records))).collect()
    }

    /// How far apart the pairs are; `None` if there are none.
    #[must_use]
    pub fn apart(&self, what: Recorded) -> Option<Apart<'_>> {
        let (mut beyond_part, mut beyond_ns, mut beyond) = (0, 0, 0);
        let mut apart = Vec::with_capacity(self.pairs.len());
        let mut furthest: Option<(&Pair, i64)> = None;
        for pair in &self.pairs {
            let Some(recorded) = pair.recorded(what) else { continue };
            let by = pair.stamped_ns.abs_diff(recorded);
            let is_beyond_part = by > recorded / NEAR_PART;
            let is_beyond_ns = by > NEAR_NS;
            beyond_part += usize::from(is_beyond_part);
            beyond_ns += usize::from(is_beyond_ns);
            beyond += usize::from(is_beyond_part && is_beyond_ns);
            let signed = i64::try_from(by).unwrap_or(i64::MAX);
            let signed = if pair.stamped_ns < recorded { -signed } else { signed };
            if furthest.is_none_or(|(_, most)| by > most.unsigned_abs()) {
                furthest = Some((pair, signed));
            }
            apart.push(signed);
        }
        apart.sort_unstable();
        let middle = apart.len() / 2;
        let median_ns = if apart.len().is_multiple_of(2) {
            let (low, high) = (apart.get(middle.checked_sub(1)?)?, apart.get(middle)?);
            (*low as f64 + *high as f64) / 2.0
        } else {
            *apart.get(middle)? as f64
        };
        let n = apart.len();
        Some(Apart { n, median_ns, furthest: furthest?, beyond_part, beyond_ns, beyond })
    }
}

#[cfg(test)]
mod tests {
    use super::super::KernelRecord;
    use super::*;

    const NAMES: [&str; 3] = ["rms_norm", "gemv", "add"];

    /// Passes of three kernels that last 10, 40 and 2 µs, 1 ms apart, stamped `late_ns` longer.
    fn passes(n: u64, late_ns: u64) -> Vec<StampedPass> {
        let stamped = |(name, ns): (&str, u64)| Stamped { kernel: name.into(), ns: ns + late_ns };
        (1..=n)
            .map(|pass| StampedPass {
                begun_ns: 1_000_000 * pass,
                kernels: NAMES.into_iter().zip([10_000, 40_000, 2_000]).map(stamped).collect(),
            })
            .collect()
    }

    /// Their records, with a gap of 500 ns before each kernel.
    fn records(n: u64) -> CuptiRecords {
        let mut kernels = Vec::new();
        for pass in 1..=n {
            let mut at = 1_000_000 * pass + 3_000;
            for (name, ns) in NAMES.into_iter().zip([10_000, 40_000, 2_000]) {
                at += 500;
                kernels.push(KernelRecord {
                    name: name.into(),
                    start_ns: at,
                    end_ns: at + ns,
                    correlation: pass as u32,
                    graph_node: Some(at),
                    device: 0,
                    stream: 7,
                });
                at += ns;
            }
        }
        CuptiRecords { kernels, ..CuptiRecords::default() }
    }

    #[test]
    fn the_gap_before_a_kernel_is_stamped_and_not_in_its_record() {
        let agreement = Agreement::new(&passes(4, 500), &records(4));
        assert_eq!((agreement.passes, agreement.left_out, agreement.pairs.len()), (4, 0, 12));
        let alone = agreement.apart(Recorded::Alone).expect("pairs");
        assert_eq!((alone.n, alone.median_ns, alone.furthest.1), (12, 500.0, 500));
        // 500 ns are 25 % of 2 µs, 5 % of 10 and less of 40.
        assert_eq!((alone.beyond_part, alone.beyond_ns, alone.beyond), (4, 0, 0));
        // The first of a pass has none before it.
        let since = agreement.apart(Recorded::SinceLast).expect("pairs");
        assert_eq!((since.n, since.median_ns, since.furthest.1), (8, 0.0, 0));
        assert_eq!((since.beyond_part, since.beyond_ns), (0, 0));
    }

    #[test]
    fn a_record_that_is_off_by_a_tenth_is_found_and_named() {
        let mut records = records(4);
        let gemv = &mut records.kernels[7];
        assert_eq!(&*gemv.name, "gemv");
        gemv.end_ns = gemv.start_ns + 44_000;
        let agreement = Agreement::new(&passes(4, 0), &records);
        let apart = agreement.apart(Recorded::Alone).expect("pairs");
        assert_eq!((apart.beyond_part, apart.beyond_ns, apart.beyond), (1, 1, 1));
        let (pair, by) = apart.furthest;
        assert_eq!((&*pair.kernel, pair.pass, by), ("gemv", 2, -4_000));
        assert_eq!(apart.median_ns, 0.0);
    }

    #[test]
    fn a_pass_that_lacks_a_record_is_left_out_whole() {
        let mut records = records(4);
        records.kernels.remove(4);
        let agreement = Agreement::new(&passes(4, 0), &records);
        assert_eq!((agreement.passes, agreement.left_out, agreement.pairs.len()), (3, 1, 9));
        assert!(agreement.pairs.iter().all(|pair| pair.pass != 1));
        // So is one whose records come in another order.
        records.kernels.swap(0, 1);
        assert_eq!(Agreement::new(&passes(4, 0), &records).left_out, 2);
        // A record of a kernel without a stamp is no reason.
        records.kernels.swap(0, 1);
        let mut stranger = records.kernels[1].clone();
        stranger.name = "memset".into();
        records.kernels.insert(1, stranger);
        let agreement = Agreement::new(&passes(4, 0), &records);
        assert_eq!((agreement.passes, agreement.others), (3, 1));
    }

    #[test]
    fn without_a_record_there_is_nothing_to_tell() {
        for (passes, records) in [(passes(2, 0), CuptiRecords::default()), (Vec::new(), records(2))]
        {
            let agreement = Agreement::new(&passes, &records);
            assert_eq!(agreement.passes, 0);
            assert_eq!(agreement.apart(Recorded::Alone), None);
        }
        // One kernel in a pass has none before it.
        let mut one = passes(1, 0);
        one[0].kernels.truncate(1);
        let mut record = records(1);
        record.kernels.truncate(1);
        let agreement = Agreement::new(&one, &record);
        assert!(agreement.apart(Recorded::Alone).is_some());
        assert_eq!(agreement.apart(Recorded::SinceLast), None);
    }
}
