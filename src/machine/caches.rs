//! The data caches of this machine's processors, as the system describes them.

use std::fs;
use std::path::Path;

use brickscope_profile::CacheLevel;

use super::list;

/// The data caches of the first CPU, the smallest first; empty if the system doesn't report them.
///
/// Read from `/sys/devices/system/cpu/cpu0/cache`, so only on Linux. A virtual machine shows what its
/// host chose, which need not match the processor. If cores differ, the caches of the others are
/// ignored.
#[must_use]
pub fn caches() -> Vec<CacheLevel> {
    read_below(Path::new("/sys/devices/system/cpu/cpu0/cache"))
}

fn read_below(folder: &Path) -> Vec<CacheLevel> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut levels: Vec<CacheLevel> = entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"index"))
        .filter_map(|entry| {
            let field = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
            if field("type")?.trim() == "Instruction" {
                return None;
            }
            Some(CacheLevel {
                level: field("level")?.trim().parse().ok()?,
                bytes: size(field("size")?.trim()).filter(|&bytes| bytes > 0)?,
                shared_by: list::count(&field("shared_cpu_list")?)?,
            })
        })
        .collect();
    levels.sort_by_key(|cache| cache.level);
    levels
}

/// `32K`, `1024K` or `8M`, in bytes.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_linux_writes_them() {
        assert_eq!(
            ["32K", "8M", "512", "x", "K"].map(size),
            [Some(32 << 10), Some(8 << 20), Some(512), None, None]
        );
    }

    #[test]
    fn the_levels_of_data_are_found_and_those_of_instructions_are_not() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |index: &str, [level, kind, size, cpus]: [&str; 4]| {
            let folder = root.path().join(index);
            fs::create_dir_all(&folder).expect("made");
            for (name, text) in
                [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", cpus)]
            {
                fs::write(folder.join(name), format!("{text}\n")).expect("written");
            }
        };
        write("index3", ["3", "Unified", "32M", "0-7"]);
        write("index0", ["1", "Data", "32K", "0,8"]);
        write("index1", ["1", "Instruction", "64K", "0,8"]);
        write("index4", ["4", "Unified", "garbage", "0"]);
        let found = read_below(root.path());
        let none = read_below(&root.path().join("nowhere"));
        let l1 = CacheLevel { level: 1, bytes: 32 << 10, shared_by: 2 };
        let l3 = CacheLevel { level: 3, bytes: 32 << 20, shared_by: 8 };
        assert_eq!((found, none), (vec![l1, l3], vec![]));
        assert_eq!([1, 2, 16].map(|n| l1.bytes_per_thread(n)), [32 << 10, 16 << 10, 16 << 10]);
        assert_eq!([1, 2, 16].map(|n| l1.bytes_of(n)), [32 << 10, 32 << 10, 256 << 10]);
        assert_eq!((l3.name().as_str(), l3.bytes_of(9)), ("L3", 64 << 20));
    }
}
