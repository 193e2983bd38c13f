//! The code that this process has mapped.

use std::path::PathBuf;

use crate::recording::Mapping;

/// The mappings with code in `/proc/self/maps`.
pub(super) fn code(from_ns: u64) -> Vec<Mapping> {
    // Without it, stacks end at once, and are marked so.
    let text = std::fs::read("/proc/self/maps").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().filter_map(|line| parse(line, from_ns)).collect()
}

/// Parses a line of `/proc/self/maps`, if it is for code.
fn parse(line: &str, from_ns: u64) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after.trim_start();
        field
    };
    let (addresses, permissions, offset) = (field(), field(), field());
    let (_device, _inode) = (field(), field());
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = addresses.split_once('-')?;
    permissions.contains('x').then_some(Mapping {
        from_ns,
        addresses: hexadecimal(start)?..hexadecimal(end)?,
        file_offset: hexadecimal(offset)?,
        // The kernel's name in records of `perf_event_open`.
        file: PathBuf::from(if rest.is_empty() { "//anon" } else { rest }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_taken_with_its_whole_path() {
        let line = "55d0-55e0 r-xp 00001000 fe:00 1234                       /opt/a b/c (deleted)";
        let mapping = parse(line, 7).expect("code");
        assert_eq!(mapping.addresses, 0x55d0..0x55e0);
        assert_eq!((mapping.from_ns, mapping.file_offset), (7, 0x1000));
        assert_eq!(mapping.file, PathBuf::from("/opt/a b/c (deleted)"));
        assert_eq!(parse("55d0-55e0 rw-p 00001000 fe:00 1234 /opt/a", 0), None);
        let anonymous = parse("7f00-7f10 rwxp 00000000 00:00 0 ", 0).expect("code");
        assert_eq!(anonymous.file, PathBuf::from("//anon"));
        for line in ["", "x", "1-2 r-xp", "zz-2 r-xp 0 0 0 x"] {
            assert_eq!(parse(line, 0), None);
        }
    }

    #[test]
    fn this_program_is_mapped() {
        let here = this_program_is_mapped as fn() as usize as u64;
        assert!(code(0).iter().any(|mapping| mapping.addresses.contains(&here)));
    }
}
