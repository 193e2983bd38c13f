//! Keys for signing receipts, and their files.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use brickscope_profile::load;
use ed25519_dalek::SigningKey;

use super::file::ReceiptError;
use super::hash::{hex, unhex};

/// A secret key of Ed25519 (RFC 8032). It is wiped from memory when dropped. The bytes that it was made of,
/// and the text of its file, which pass through functions here, are not.
///
/// Its file is one line: the 32 bytes of the key as 64 lower-case hexadecimal digits.
pub struct SecretKey(pub(super) SigningKey);

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the key itself.
        write!(f, "SecretKey(of {})", self.public_key())
    }
}

impl SecretKey {
    /// The key of 32 bytes, which must be random.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(bytes))
    }

    /// Makes a key from the system's random numbers (`/dev/urandom`) and writes it to a new file that
    /// only its owner can read: either all of it, or nothing.
    ///
    /// # Errors
    ///
    /// If the file exists already or can't be written, or the system has no random numbers.
    pub fn create(path: &Path) -> Result<Self, ReceiptError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| ReceiptError::Io { path, source }
        };
        let random = Path::new("/dev/urandom");
        let mut bytes = [0; 32];
        File::open(random).and_then(|mut file| file.read_exact(&mut bytes)).map_err(io(random))?;
        write_new(path, &format!("{}\n", hex(&bytes))).map_err(io(path))?;
        Ok(Self::from_bytes(&bytes))
    }

    /// Reads a key from its file.
    ///
    /// # Errors
    ///
    /// If the file can't be read or isn't one line of 64 digits.
    pub fn load(path: &Path) -> Result<Self, ReceiptError> {
        let mut text = String::new();
        // One byte more than a key file can have is enough to recognise another file.
        let read = load::open(path).and_then(|file| file.take(67).read_to_string(&mut text));
        let not_a_key = || ReceiptError::NotAKey { path: path.to_owned() };
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(not_a_key());
            }
            Err(source) => return Err(ReceiptError::Io { path: path.to_owned(), source }),
        }
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        unhex(line).map(|bytes| Self::from_bytes(&bytes)).ok_or_else(not_a_key)
    }

    /// The public key that belongs to it, in hexadecimal.
    #[must_use]
    pub fn public_key(&self) -> String {
        hex(self.0.verifying_key().as_bytes())
    }
}

/// Writes a new file that only its owner can read. A process that is killed meanwhile leaves a hidden file
/// beside it.
fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let mut partial = std::ffi::OsString::from(".");
    partial.push(name);
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = path.with_file_name(partial);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&partial)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    drop(file);
    // A rename would replace another key; a link doesn't.
    let linked = written.and_then(|()| match fs::hard_link(&partial, path) {
        // Some file systems have no links.
        Err(error) if error.kind() != ErrorKind::AlreadyExists && !path.exists() => {
            fs::rename(&partial, path)
        }
        linked => linked,
    });
    // After a rename it is gone; if it stays, only the owner can read it, too.
    let _ = fs::remove_file(&partial);
    linked
}
