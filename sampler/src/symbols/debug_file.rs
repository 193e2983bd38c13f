//! Finds debug information outside the file itself.

use std::fs;
use std::path::{Path, PathBuf};

use object::Object;

use crate::code_file::CodeFile;

/// Where systems store it: see "Debugging Information in Separate Files" in the GDB manual.
const FOLDER: &str = "/usr/lib/debug";

/// The file with the debug information of `path`: itself, or the file of the same build that its build id or its
/// `.gnu_debuglink` names.
pub(super) fn find(path: &Path, file: &CodeFile) -> Option<PathBuf> {
    let object = file.object();
    if object.has_debug_symbols() {
        return Some(path.to_owned());
    }
    let build_id = object.build_id().ok().flatten();
    by_build_id(build_id).or_else(|| by_link(path, file, build_id))
}

fn by_build_id(build_id: Option<&[u8]>) -> Option<PathBuf> {
    let hex: String = build_id?.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, name) = hex.split_at_checked(2)?;
    let path = PathBuf::from(format!("{FOLDER}/.build-id/{folder}/{name}.debug"));
    is_of(&path, build_id, None).then_some(path)
}

fn by_link(path: &Path, file: &CodeFile, build_id: Option<&[u8]>) -> Option<PathBuf> {
    let object = file.object();
    let (name, crc) = object.gnu_debuglink().ok().flatten()?;
    let name = Path::new(std::str::from_utf8(name).ok()?);
    // Only a file name, not a path to somewhere else.
    if name.file_name() != Some(name.as_os_str()) {
        return None;
    }
    let path = fs::canonicalize(path).ok()?;
    let folder = path.parent()?;
    let global = Path::new(FOLDER).join(folder.strip_prefix("/").ok()?);
    [folder.join(name), folder.join(".debug").join(name), global.join(name)]
        .into_iter()
        .find(|candidate| *candidate != path && is_of(candidate, build_id, Some(crc)))
}

/// Whether a file has the debug information of the build with this id or, without an id, whether it is the file that
/// the link was made for.
fn is_of(path: &Path, build_id: Option<&[u8]>, crc: Option<u32>) -> bool {
    let Ok(file) = CodeFile::open(path) else { return false };
    match (build_id, crc) {
        (Some(id), _) => file.object().build_id().ok().flatten() == Some(id),
        (None, Some(crc)) => crc32(&file.bytes) == crc,
        (None, None) => false,
    }
}

/// The checksum in `.gnu_debuglink`: zlib's CRC-32.
fn crc32(bytes: &[u8]) -> u32 {
    let mut table = [0u32; 256];
    for (byte, entry) in (0u32..).zip(&mut table) {
        *entry = (0..8).fold(byte, |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()));
    }
    !bytes
        .iter()
        .fold(!0, |sum, &byte| (sum >> 8) ^ table[usize::from((sum ^ u32::from(byte)) as u8)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_is_that_of_zlib() {
        // The check value of CRC-32/ISO-HDLC in the catalogue of CRCs.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
