//! SHA-256 (FIPS 180-4), in hexadecimal: of bytes, of files, of tokens.

use std::io::{self, Read};
use std::path::Path;

use brickscope_profile::load;
use sha2::{Digest, Sha256};

/// The SHA-256 of `bytes`.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The SHA-256 of a file and its size in bytes, read piece by piece.
///
/// # Errors
///
/// If the file can't be read, or is a device, which may have no end.
pub fn sha256_file(path: &Path) -> io::Result<(String, u64)> {
    sha256_file_with(path, &mut |_| ())
}

/// As [`sha256_file`]; `read` is called repeatedly with the number of bytes read so far.
///
/// # Errors
///
/// If the file can't be read.
pub fn sha256_file_with(path: &Path, read: &mut dyn FnMut(u64)) -> io::Result<(String, u64)> {
    let mut file = load::open(path)?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let n = match file.read(&mut piece) {
            Ok(0) => return Ok((hex(&hash.finalize()), bytes)),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(&piece[..n]);
        bytes += n as u64;
        read(bytes);
    }
}

/// The SHA-256 of some tokens, each as 4 bytes, little endian.
#[must_use]
pub fn tokens_sha256(tokens: &[u32]) -> String {
    let mut hash = Sha256::new();
    for token in tokens {
        hash.update(token.to_le_bytes());
    }
    hex(&hash.finalize())
}

/// Two lower-case digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// The `N` bytes that `text` spells in lower-case hexadecimal digits; `None` for any other text.
pub(super) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4's examples.
    const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn bytes_files_and_tokens_hash_alike() {
        assert_eq!((sha256_hex(b"abc").as_str(), sha256_hex(b"").as_str()), (OF_ABC, OF_NOTHING));
        assert_eq!(tokens_sha256(&[]), OF_NOTHING);
        // "abcd" as a number.
        assert_eq!(tokens_sha256(&[0x6463_6261]), sha256_hex(b"abcd"));
        let this = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/hash.rs");
        let bytes = std::fs::read(&this).expect("this file");
        let mut told = 0;
        let (hash, size) = sha256_file_with(&this, &mut |read| told = read).expect("this file");
        assert_eq!((hash, size, told), (sha256_hex(&bytes), bytes.len() as u64, size));
    }

    #[test]
    fn hexadecimal_there_and_back() {
        assert_eq!(unhex(&hex(&[0, 0x1f, 0xff])), Some([0, 0x1f, 0xff]));
        for wrong in ["001fF", "001ff", "001fFf", "001f g", "", "äöü"] {
            assert_eq!(unhex::<3>(wrong), None, "{wrong}");
        }
    }
}
