//! Lists of CPUs as the kernel writes them: `0-3,8`.

use std::collections::BTreeSet;

/// More than any kernel has CPUs.
const MOST: u32 = 1 << 16;

/// The numbers in a list such as `0-3,8`.
pub(super) fn numbers(list: &str) -> Option<BTreeSet<u32>> {
    let mut numbers = BTreeSet::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// How many there are in such a list.
pub(super) fn count(list: &str) -> Option<u32> {
    u32::try_from(numbers(list)?.len()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, n) in [("0", 1), ("0-1\n", 2), ("0,64", 2), ("0-3,8,10-11", 7)] {
            assert_eq!(count(list), Some(n), "{list}");
        }
        for garbage in ["", "-", "3-1", "a", "0-", "0-4294967295", "0,,1"] {
            assert_eq!(count(garbage), None, "{garbage:?}");
        }
    }
}
