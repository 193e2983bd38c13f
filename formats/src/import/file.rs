//! Files as they lie on a disk: packed by gzip, in the encoding of a shell, broken off, of any length, or of
//! a program whose files are no text.

use std::fs::File;
use std::io::{self, Chain, Cursor, ErrorKind, Read};
use std::path::Path;

use brickscope_profile::{Profile, load};
use flate2::read::MultiGzDecoder;
use serde::de::IgnoredAny;

use super::other::{is_utf_16, told_of_text};
use super::{
    At, Captured, Format, ImportError, MAX_BYTES, Options, breaks_off, chrome, decoded, format_of,
    left_out, told,
};

/// How many times its size a gzip file may have unpacked, if that is more than [`LEAST_UNPACKED`]. Traces
/// have 10 to 40 times; zeros a thousand.
const MOST_RATIO: u64 = 300;

/// What any file may have unpacked, in bytes.
const LEAST_UNPACKED: u64 = 64 << 20;

/// So many bytes tell whether it is text.
const BEGIN: u64 = 64 << 10;

/// A file of up to so many bytes is read as a whole. Of a longer one, a trace is read event by event.
const MOST_AT_ONCE: u64 = 64 << 20;

/// So many bytes tell the format of a longer file.
const BEGIN_OF_LONG: usize = 1 << 20;

/// Reads another program's file: text in UTF-8 or UTF-16, which may be packed by gzip and may break off.
/// Without a `format` it is detected. Chrome traces may have any length; of any other format, at most
/// [`MAX_BYTES`] are read.
///
/// # Errors
///
/// As [`read`](super::read); if the file can't be read or unpacked, or has none of the formats that can be
/// detected, with what it is instead, if that is known.
pub fn read_file(
    path: &Path,
    format: Option<Format>,
    options: &Options,
) -> Result<Profile, ImportError> {
    let at = At { path };
    let mut file = Unpacked::open(path).map_err(|error| at.whole(error.to_string()))?;
    let mut bytes = Vec::new();
    file.read_up_to(BEGIN, &mut bytes, &at)?;
    // A database is read where it lies.
    if super::is_database(&bytes) && !file.is_gzip() {
        let profile = super::read_database(path, options)?;
        let is = profile.imported.as_ref().map_or("", |imported| &*imported.format);
        return match format.map(Format::name) {
            Some(asked) if asked != is => {
                Err(at.whole(format!("is no file of {asked}, but a database of {is}")))
            }
            _ => Ok(profile),
        };
    }
    if file.is_gzip() && bytes.windows(4).any(|four| four == [0; 4]) {
        return Err(at.whole("unpacked, it is no text: it has bytes of 0"));
    }
    file.read_up_to(MOST_AT_ONCE + 1, &mut bytes, &at)?;
    if bytes.starts_with(b"GGUF") {
        let file = path.display();
        let is = format!("is a model (GGUF), not a trace: `brickscope profile {file}` runs it");
        return Err(at.whole(is));
    }
    if let Some(is) = told(path, &bytes) {
        return Err(at.whole(is));
    }
    let is_long = bytes.len() as u64 > MOST_AT_ONCE && !is_utf_16(&bytes);
    let long_format = || format.or_else(|| format_of_long(&bytes));
    if is_long && long_format() == Some(Format::Chrome) {
        options.check(Format::Chrome, &at)?;
        let read = chrome::read_from(without_mark(&bytes).chain(&mut file), &at, options);
        return match file.fault(&at) {
            Some(fault) => Err(fault),
            None => with_lost(read, file.lost()),
        };
    }
    file.read_all(&mut bytes, &at)?;
    let lost = file.lost();
    if lost.is_some() {
        whole_part(&mut bytes);
        if let (true, Some(error)) = (bytes.is_empty(), file.breaks_off) {
            return Err(at.place("a gzip file", error));
        }
    }
    // One bad byte in a name says nothing against a trace.
    if !is_utf_16(&bytes)
        && format.or_else(|| format_of(&String::from_utf8_lossy(&bytes))) == Some(Format::Chrome)
    {
        options.check(Format::Chrome, &at)?;
        let read = chrome::read(without_mark(&bytes), &at, options);
        return with_lost(read.inspect(|of| debug_assert_eq!(of.check(), Ok(()))), lost);
    }
    let text = text_of(bytes, &at)?;
    let read = match format.or_else(|| format_of(&text)) {
        Some(format) => super::read(&text, path, format, options),
        None => Err(at.whole(of_no_format(&text, path))),
    };
    with_lost(read, lost)
}

/// The text of a run of brickscope that somebody packed by gzip. `None` if the file is no gzip file, or holds something else.
///
/// # Errors
///
/// If it breaks off, or has more than [`MAX_BYTES`] unpacked or far more than its size.
pub fn packed_run(path: &Path) -> Result<Option<String>, ImportError> {
    let at = At { path };
    let mut file = Unpacked::open(path).map_err(|error| at.whole(error.to_string()))?;
    let mut bytes = Vec::new();
    if !file.is_gzip() || file.read_up_to(BEGIN, &mut bytes, &at).is_err() {
        return Ok(None);
    }
    let is_run = {
        let begin = String::from_utf8_lossy(&bytes);
        begin.trim_start().starts_with('{') && begin.contains("\"brickscope_version\"")
    };
    if !is_run {
        return Ok(None);
    }
    file.read_all(&mut bytes, &at)?;
    match file.breaks_off {
        Some(error) => Err(at.place("a gzip file", error)),
        None => text_of(bytes, &at).map(Some),
    }
}

/// Reads the file of a graph's capture, as [`read_capture`](super::read_capture) does; it may have any length and be packed.
///
/// # Errors
///
/// As `read_capture`; if the file can't be read or unpacked.
pub fn read_capture_file(path: &Path, options: &Options) -> Result<Captured, ImportError> {
    let at = At { path };
    let mut file = Unpacked::open(path).map_err(|error| at.whole(error.to_string()))?;
    let mut begin = Vec::new();
    file.read_up_to(BEGIN, &mut begin, &at)?;
    if is_utf_16(&begin) {
        file.read_all(&mut begin, &at)?;
        return super::read_capture(&text_of(begin, &at)?, path, options);
    }
    let captured = chrome::capture(without_mark(&begin).chain(&mut file), &at, options);
    match file.fault(&at) {
        Some(fault) => Err(fault),
        None => captured,
    }
}

/// The format of a long file, by its begin.
fn format_of_long(begin: &[u8]) -> Option<Format> {
    [&begin[..begin.len().min(BEGIN_OF_LONG)], begin]
        .into_iter()
        .find_map(|begin| format_of(&String::from_utf8_lossy(begin)))
}

/// The bytes of a text in UTF-8 without the marks that it may begin with.
fn without_mark(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = bytes.strip_prefix("\u{feff}".as_bytes()) {
        bytes = rest;
    }
    bytes
}

fn text_of(bytes: Vec<u8>, at: &At<'_>) -> Result<String, ImportError> {
    decoded(bytes).map_err(|byte| at.place(format!("byte {byte}"), "not UTF-8 text"))
}

/// What a file of no known format is.
fn of_no_format(text: &str, path: &Path) -> String {
    let file = path.display();
    if Profile::from_json(text, path).is_ok() {
        return format!("is a run already: `brickscope show {file}`");
    }
    if text.trim().is_empty() {
        return "is empty: did the program that should write it fail?".to_owned();
    }
    let text = text.trim_start_matches('\u{feff}');
    let is_json = text.trim_start().starts_with(['[', '{']);
    if is_json && serde_json::from_str::<IgnoredAny>(text).is_err_and(|error| error.is_eof()) {
        return "breaks off before it has an event or a test: was the program killed that wrote it?"
            .to_owned();
    }
    if let Some(is) = told_of_text(text) {
        return is.to_owned();
    }
    let known = Format::ALL.map(Format::name).join(", ");
    format!("has none of the formats that can be detected ({known}): name its format with --format")
}

/// Notes what was lost of a file.
fn with_lost(
    read: Result<Profile, ImportError>,
    lost: Option<String>,
) -> Result<Profile, ImportError> {
    let Some(lost) = lost else { return read };
    match read {
        Ok(mut profile) => {
            let is_list = profile.imported.iter().any(|of| !of.tests.is_empty());
            match is_list {
                true => left_out(&mut profile, &lost, 1),
                false => breaks_off(&mut profile, &lost, 1),
            }
            Ok(profile)
        }
        Err(error) => Err(ImportError { fault: format!("{}; lost: {lost}", error.fault), ..error }),
    }
}

/// Cuts what broke off at some byte to what is whole: characters, and of files that aren't JSON lines, whose
/// numbers would be others.
fn whole_part(bytes: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if !first.is_some_and(|first| b"[{\xef\xff\xfe".contains(first)) {
        let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(end);
    }
}

/// A file whose begin was read already.
struct Opened {
    file: Chain<Cursor<Vec<u8>>, File>,
    /// How many bytes of it were read, and how many it states, 0 for a pipe.
    read: u64,
    stated: u64,
}

impl Read for Opened {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.read = self.read.saturating_add(read as u64);
        Ok(read)
    }
}

enum Packing {
    None(Opened),
    Gzip(Box<MultiGzDecoder<Opened>>),
}

/// A file as it is read, unpacked if it is a gzip file. One that breaks off ends there.
struct Unpacked {
    packing: Packing,
    /// How many bytes were unpacked.
    bytes: u64,
    /// Why a gzip file breaks off.
    breaks_off: Option<String>,
    is_too_much: bool,
    /// Why it can't be read.
    error: Option<String>,
}

impl Unpacked {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = load::open(path)?;
        let stated = file.metadata()?.len();
        let mut magic = Vec::new();
        file.by_ref().take(2).read_to_end(&mut magic)?;
        let is_gzip = magic == [0x1f, 0x8b];
        let opened = Opened { file: Cursor::new(magic).chain(file), read: 0, stated };
        let packing = match is_gzip {
            true => Packing::Gzip(Box::new(MultiGzDecoder::new(opened))),
            false => Packing::None(opened),
        };
        Ok(Self { packing, bytes: 0, breaks_off: None, is_too_much: false, error: None })
    }

    fn is_gzip(&self) -> bool {
        matches!(self.packing, Packing::Gzip(_))
    }

    /// Reads on until there are so many bytes, or all.
    fn read_up_to(
        &mut self,
        most: u64,
        bytes: &mut Vec<u8>,
        at: &At<'_>,
    ) -> Result<(), ImportError> {
        let missing = most.saturating_sub(bytes.len() as u64);
        let read = self.by_ref().take(missing).read_to_end(bytes);
        read.map(drop)
            .map_err(|error| self.fault(at).unwrap_or_else(|| at.whole(error.to_string())))
    }

    /// Reads on until there is all of it, if that isn't too much.
    fn read_all(&mut self, bytes: &mut Vec<u8>, at: &At<'_>) -> Result<(), ImportError> {
        // One that states too much isn't read to find that out.
        if !matches!(&self.packing, Packing::None(file) if file.stated > MAX_BYTES) {
            self.read_up_to(MAX_BYTES + 1, bytes, at)?;
            if bytes.len() as u64 <= MAX_BYTES {
                return Ok(());
            }
        }
        let what = "it has more than 1 GiB, the most that is read: record for a shorter time";
        let unpacked = if self.is_gzip() { "unpacked, " } else { "" };
        Err(at.whole(format!("{unpacked}{what}")))
    }

    /// Why it can't be read, if it can't.
    fn fault(&self, at: &At<'_>) -> Option<ImportError> {
        if self.is_too_much {
            return Some(at.whole(format!(
                "unpacked, it has more than {MOST_RATIO} times its size, which no trace has: unpack it first to read it"
            )));
        }
        let error = self.error.as_ref()?;
        Some(if self.is_gzip() { at.place("a gzip file", error) } else { at.whole(error) })
    }

    /// What was lost of it.
    fn lost(&self) -> Option<String> {
        let error = self.breaks_off.as_ref()?;
        let bytes = self.bytes;
        Some(format!(
            "what is behind {bytes} unpacked bytes, where the gzip file breaks off ({error})"
        ))
    }

    fn unpack(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let gzip = match &mut self.packing {
            Packing::None(file) => return file.read(into),
            Packing::Gzip(_) if self.breaks_off.is_some() => return Ok(0),
            Packing::Gzip(gzip) => gzip,
        };
        match gzip.read(into) {
            Ok(read) => {
                self.bytes = self.bytes.saturating_add(read as u64);
                let packed = gzip.get_ref().read.max(gzip.get_ref().stated);
                self.is_too_much =
                    self.bytes > LEAST_UNPACKED.max(packed.saturating_mul(MOST_RATIO));
                if self.is_too_much { Err(ErrorKind::InvalidData.into()) } else { Ok(read) }
            }
            // What was unpacked before stays. Of any other error it isn't known that this is right.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && self.bytes > 0 => {
                self.breaks_off = Some(error.to_string());
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

impl Read for Unpacked {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.unpack(into);
        if let Err(error) = &read
            && error.kind() != ErrorKind::Interrupted
        {
            self.error = Some(error.to_string());
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_file_that_states_too_much_no_more_is_read() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 40).expect("a file with a hole");
        let at = At { path: file.path() };
        let mut unpacked = Unpacked::open(file.path()).expect("it is a file");
        let mut bytes = Vec::new();
        unpacked.read_up_to(BEGIN, &mut bytes, &at).expect("zeros");
        let error = unpacked.read_all(&mut bytes, &at).expect_err("it is too much");
        assert!(error.to_string().contains("more than 1 GiB"), "{error}");
        assert_eq!(bytes.len() as u64, BEGIN);
    }
}
