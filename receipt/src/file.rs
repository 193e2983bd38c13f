//! Receipts as files: reading and writing JSON, and the errors of both.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use brickscope_profile::load::{self, Limit};
use brickscope_profile::save;
use brickscope_profile::text::{printable, printable_in, printable_text};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::v1::{Receipt, VERSION, VERSION_WITH_DEVICE};
use super::{fields, place};

/// The most bytes of a receipt. A thousand tests of ten samples are a third of it. Verifying takes at most
/// some twenty-five times as much memory.
pub const MAX_BYTES: u64 = 16 << 20;

impl Receipt {
    /// The receipt as the text of its file: JSON, a line for each item of its larger tables.
    #[must_use]
    pub fn to_json(&self) -> String {
        save::to_json(self)
    }

    /// Reads a receipt from the text of its file; errors name `path`.
    ///
    /// # Errors
    ///
    /// If it isn't JSON, isn't of [`VERSION`] or [`VERSION_WITH_DEVICE`], lacks a field, has one that its version doesn't
    /// know, or one of the wrong type.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, ReceiptError> {
        #[derive(Deserialize)]
        #[serde(expecting = "an object")]
        struct Version {
            schema_version: String,
        }
        let (all, text) = (text, without_mark(text));
        let fault = |source: serde_json::Error| {
            let (line, column) = (source.line(), source.column());
            // It is known where its object ends, and the field that was read last isn't at fault.
            let said = source.to_string();
            let missing = said.strip_prefix("missing field `").and_then(|of| of.split_once('`'));
            if let Some((name, _)) = missing {
                let field = place::in_object(text, line, column, name);
                return ReceiptError::Missing { path: path.to_owned(), field };
            }
            let (field, offset) = place::of(text, line, column);
            let offset = offset + (all.len() - text.len());
            ReceiptError::Json { path: path.to_owned(), field, offset, source }
        };
        let Version { schema_version: found } = serde_json::from_str(text).map_err(fault)?;
        if has_no_times(text) {
            return Err(ReceiptError::NoTimes { path: path.to_owned() });
        }
        if ![VERSION, VERSION_WITH_DEVICE].contains(&&*found) {
            return Err(ReceiptError::Version { path: path.to_owned(), found });
        }
        let receipt: Self = serde_json::from_str(text).map_err(fault)?;
        let have = fields::count_in(text).map_err(fault)?;
        // serde takes a missing field for `null`, but other readers don't.
        if have != fields::count_of(&receipt)
            && let Some(field) = fields::missing(&receipt, text)
        {
            return Err(ReceiptError::Missing { path: path.to_owned(), field });
        }
        let path = || path.to_owned();
        match receipt.field_of_device() {
            Some(field) if found == VERSION => Err(ReceiptError::Later { path: path(), field }),
            _ if found != VERSION && receipt.device.is_none() => {
                Err(ReceiptError::Missing { path: path(), field: "device".to_owned() })
            }
            _ => Ok(receipt),
        }
    }

    /// The first field that only receipts with a device have, if there is one.
    fn field_of_device(&self) -> Option<String> {
        if self.device.is_some() {
            return Some("device".to_owned());
        }
        self.tests.iter().enumerate().find_map(|(i, test)| {
            if !test.device_bricks.is_empty() {
                return Some(format!("tests[{i}].device_bricks"));
            }
            let at = test.samples.iter().position(|sample| sample.device.is_some())?;
            Some(format!("tests[{i}].samples[{at}].device"))
        })
    }

    /// Writes the receipt to a file: either all of it, or nothing.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn save(&self, path: &Path) -> Result<(), ReceiptError> {
        save::write_text(path, &self.to_json())
            .map_err(|source| ReceiptError::Io { path: path.to_owned(), source })
    }

    /// Reads a receipt from a file of at most [`MAX_BYTES`], without verifying it.
    ///
    /// # Errors
    ///
    /// If the file can't be read; otherwise as [`Receipt::from_json`].
    pub fn load(path: &Path) -> Result<Self, ReceiptError> {
        Self::from_bytes(&read(path)?, path)
    }

    /// Reads a receipt from the [bytes](read) of its file; errors name `path`.
    ///
    /// # Errors
    ///
    /// If they aren't UTF-8; otherwise as [`Receipt::from_json`].
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, ReceiptError> {
        let text = std::str::from_utf8(bytes).map_err(|error| ReceiptError::NotText {
            path: path.to_owned(),
            offset: error.valid_up_to(),
        })?;
        Self::from_json(text, path)
    }
}

/// The text without the mark that PowerShell and editors on Windows put before it. What is hashed doesn't have it.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Why [such a receipt](ReceiptError::NoTimes) can't be read.
pub(crate) const NO_TIMES: &str = "it has neither raw times (`tests`) nor a hash (`seal`), as receipts of BitNet.rs, \
    which are of a schema of their own that is called 1.0.0, too: nothing in it can be checked; `brickscope benchmark \
    MODEL` writes one that can";

/// Whether it is a receipt of BitNet.rs, or like them: it names kernels and a speed, but has no raw times and no hash.
pub(crate) fn has_no_times(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Top {
        compute_path: Option<IgnoredAny>,
        kernels: Option<IgnoredAny>,
        tests: Option<IgnoredAny>,
        seal: Option<IgnoredAny>,
    }
    serde_json::from_str(text).is_ok_and(|top: Top| {
        top.compute_path.is_some()
            && top.kernels.is_some()
            && top.tests.is_none()
            && top.seal.is_none()
    })
}

/// The bytes of a receipt's file.
///
/// # Errors
///
/// If it can't be read, or has more than [`MAX_BYTES`].
pub fn read(path: &Path) -> Result<Vec<u8>, ReceiptError> {
    let limit = Limit { bytes: MAX_BYTES, instead: "is it a receipt?" };
    load::bytes(path, limit).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => ReceiptError::TooLong { path: path.to_owned() },
        _ => ReceiptError::Io { path: path.to_owned(), source },
    })
}

/// A receipt, or a key, that can't be read, written, sealed or signed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiptError {
    /// The file can't be written or read.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is longer than a receipt can be.
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The file isn't UTF-8.
    NotText {
        /// The file.
        path: PathBuf,
        /// The first byte that isn't.
        offset: usize,
    },
    /// The file isn't a receipt.
    Json {
        /// The file.
        path: PathBuf,
        /// Where in the receipt: `tests[0].samples[3].wall_ns`; empty for all of it.
        field: String,
        /// The byte.
        offset: usize,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// The file lacks a field.
    Missing {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
    },
    /// It names kernels and a speed, but has neither raw times nor a hash, as receipts of BitNet.rs.
    NoTimes {
        /// The file.
        path: PathBuf,
    },
    /// A receipt of 1.0.0 has a field of 1.1.0.
    Later {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
    },
    /// The file is of another version.
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
    },
    /// A whole number above 2^53.
    Number {
        /// Where in the receipt.
        field: String,
        /// The number.
        number: String,
    },
    /// A number that is NaN or infinite.
    NotFinite {
        /// Where in the receipt.
        field: String,
    },
    /// The receipt has no canonical form.
    Canonical {
        /// Why.
        source: serde_json::Error,
    },
    /// A receipt without a seal can't be signed.
    Unsealed,
    /// A receipt whose seal doesn't match its content can't be signed.
    BrokenSeal,
    /// The file isn't a key.
    NotAKey {
        /// The file.
        path: PathBuf,
    },
}

impl fmt::Display for ReceiptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::TooLong { path } => {
                write!(f, "{} is not a receipt: it has more than {MAX_BYTES} bytes", path.display())
            }
            Self::NotText { path, offset } => {
                write!(f, "{} is not a receipt: byte {offset} is not UTF-8", path.display())
            }
            Self::Json { path, field, offset, source } => {
                let path = path.display();
                match source.is_eof() {
                    true => write!(f, "{path} is not a whole receipt: ")?,
                    false => write!(f, "{path} is not a receipt: ")?,
                }
                if !field.is_empty() {
                    write!(f, "{}: ", printable(field))?;
                }
                // It quotes the file.
                write!(f, "{} (byte {offset})", printable_text(&source.to_string()))
            }
            Self::Missing { path, field } => {
                write!(
                    f,
                    "{} is not a receipt: missing field `{}`",
                    path.display(),
                    printable(field)
                )
            }
            Self::NoTimes { path } => write!(f, "{}: {NO_TIMES}", path.display()),
            Self::Later { path, field } => write!(
                f,
                "{} is a receipt of version {VERSION}, but has the field `{field}` of {VERSION_WITH_DEVICE}",
                path.display()
            ),
            Self::Version { path, found } => write!(
                f,
                "{} is a receipt of version `{}`, but this brickscope reads {VERSION} and \
                 {VERSION_WITH_DEVICE}",
                path.display(),
                printable_in(found, 32)
            ),
            Self::Number { field, number } => {
                let (field, number) = (printable(field), printable(number));
                write!(f, "{field} is {number}: whole numbers go up to 2^53 in a receipt")
            }
            Self::NotFinite { field } => {
                let field = printable(field);
                write!(f, "a number in {field} is not finite, so JSON can't hold it")
            }
            Self::Canonical { source } => {
                write!(f, "the receipt has no canonical form: {source}")
            }
            Self::Unsealed => f.write_str("the receipt has no seal, so there is nothing to sign"),
            Self::BrokenSeal => {
                f.write_str("the receipt's hash is not that of its content: it was changed")
            }
            Self::NotAKey { path } => write!(
                f,
                "{} is not a key: a key file is one line of 64 hexadecimal digits, as `brickscope \
                 receipt keygen` writes it",
                path.display()
            ),
        }
    }
}

// Each message includes its cause, so there is no `source` to repeat it.
impl std::error::Error for ReceiptError {}
