//! Reads files that others may have made: at most a stated number of bytes, and nothing that has no end.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The most that is read of a kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// In bytes.
    pub bytes: u64,
    /// What to do about a file that has more, as the end of a sentence.
    pub instead: &'static str,
}

/// Opens a file, a pipe (such as the shell's `<(zcat FILE)`) or the terminal that is the standard input.
///
/// # Errors
///
/// If it is something else, such as `/dev/zero`, a folder or a socket, which isn't even opened; or the system's error.
/// None names the file.
pub fn open(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    let not_a_file = |kind, what| Err(io::Error::new(kind, format!("it is {what}, not a file")));
    if kind.is_dir() {
        return not_a_file(ErrorKind::IsADirectory, "a folder");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;

        if kind.is_socket() {
            return not_a_file(ErrorKind::InvalidInput, "a socket");
        }
        if kind.is_block_device() || (kind.is_char_device() && !is_standard_input(path)) {
            return not_a_file(ErrorKind::InvalidInput, "a device");
        }
    }
    File::open(path)
}

/// Whether a device is the terminal that is the standard input.
#[cfg(unix)]
fn is_standard_input(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.rdev());
    io::IsTerminal::is_terminal(&io::stdin()) && device(path) == device(Path::new("/dev/stdin"))
}

/// Reads what [`open`] opens, up to a limit.
#[derive(Debug)]
pub struct UpTo {
    file: File,
    limit: Limit,
    left: u64,
}

impl UpTo {
    /// Opens a file. One that states a size beyond the limit isn't read.
    ///
    /// # Errors
    ///
    /// As [`open`]; [`ErrorKind::FileTooLarge`].
    pub fn open(path: &Path, limit: Limit) -> io::Result<Self> {
        let file = open(path)?;
        let opened = Self { limit, left: limit.bytes, file };
        if opened.stated()? > limit.bytes { Err(opened.too_large()) } else { Ok(opened) }
    }

    /// 0 for a pipe.
    fn stated(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn too_large(&self) -> io::Error {
        let Limit { bytes, instead } = self.limit;
        let why = format!("it has more than {}, the most that is read: {instead}", said(bytes));
        io::Error::new(ErrorKind::FileTooLarge, why)
    }
}

impl Read for UpTo {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(bytes)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| self.too_large())?;
        Ok(read)
    }
}

/// All bytes of what [`open`] opens.
///
/// # Errors
///
/// As [`open`]; if reading fails; [`ErrorKind::FileTooLarge`] beyond the limit.
pub fn bytes(path: &Path, limit: Limit) -> io::Result<Vec<u8>> {
    let mut file = UpTo::open(path, limit)?;
    let mut bytes = Vec::new();
    // With room for one more the end is found without growing.
    bytes.try_reserve_exact(usize::try_from(file.stated()? + 1).unwrap_or(usize::MAX))?;
    file.read_to_end(&mut bytes)?;
    if bytes.starts_with(POINTER) {
        return Err(io::Error::other(format!("it {POINTER_IS}")));
    }
    Ok(bytes)
}

/// What Git LFS puts in the place of a file that isn't fetched begins so.
pub const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// What such a file is, as a sentence without its subject.
pub const POINTER_IS: &str = "is a pointer of Git LFS, not the file: `git lfs pull` fetches it";

/// The same as text.
///
/// # Errors
///
/// As [`bytes`]; [`ErrorKind::InvalidData`] if it isn't UTF-8.
pub fn text(path: &Path, limit: Limit) -> io::Result<String> {
    String::from_utf8(bytes(path, limit)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(ErrorKind::InvalidData, format!("it is not UTF-8 text (byte {at})"))
    })
}

/// A number of bytes in the largest unit that it is a multiple of.
fn said(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |&(shift, _): &(u32, _)| bytes >> shift > 0 && bytes.trailing_zeros() >= shift;
    match units.into_iter().find(fits) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { bytes: 4096, instead: "write less" };

    fn why(path: &Path) -> (ErrorKind, String) {
        let error = bytes(path, LIMIT).expect_err("it is refused");
        (error.kind(), error.to_string())
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, vec![b'x'; 4096]).expect("written");
        assert_eq!(bytes(&path, LIMIT).expect("it fits").len(), 4096);
        fs::write(&path, vec![b'x'; 4097]).expect("written");
        let too_large = "it has more than 4 KiB, the most that is read: write less";
        assert_eq!(why(&path), (ErrorKind::FileTooLarge, too_large.to_owned()));
        fs::write(&path, b"ab\xff").expect("written");
        let error = text(&path, LIMIT).expect_err("it is no text");
        assert_eq!(error.to_string(), "it is not UTF-8 text (byte 2)");
        assert_eq!(why(&folder.path().join("gone")).0, ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_states_too_much_is_not_read() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 42).expect("a file with a hole");
        // Reading it would take an hour.
        assert_eq!(why(file.path()).0, ErrorKind::FileTooLarge);
    }

    #[cfg(unix)]
    #[test]
    fn what_has_no_end_or_no_bytes_is_refused_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("profile.json");
        std::os::unix::fs::symlink("/dev/zero", &link).expect("a link");
        for path in [&link, Path::new("/dev/zero"), Path::new("/dev/urandom")] {
            assert_eq!(why(path).1, "it is a device, not a file", "{}", path.display());
        }
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        assert_eq!(why(&socket).1, "it is a socket, not a file");
        assert_eq!(
            why(folder.path()),
            (ErrorKind::IsADirectory, "it is a folder, not a file".into())
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_read_to_its_end_or_to_the_limit() {
        use std::io::Write;
        use std::os::fd::AsRawFd;

        for (length, is_read) in [(4096, true), (5000, false)] {
            let (reader, mut writer) = io::pipe().expect("a pipe");
            // As a shell names the pipe of `<(COMMAND)`.
            let path = format!("/dev/fd/{}", reader.as_raw_fd());
            // A pipe holds 64 KiB.
            writer.write_all(&vec![b'x'; length]).expect("there is room");
            // The second has a writer left, so it has no end.
            let writer = (!is_read).then_some(writer);
            let read = bytes(Path::new(&path), LIMIT);
            assert_eq!(
                read.map_err(|error| error.kind()).ok().map(|b| b.len()),
                is_read.then_some(length)
            );
            drop(writer);
        }
    }

    #[test]
    fn limits_are_said_in_the_unit_that_fits() {
        let texts = [1 << 30, 64 << 20, 3 << 10, 1000, 1025].map(said);
        assert_eq!(texts, ["1 GiB", "64 MiB", "3 KiB", "1000 bytes", "1025 bytes"]);
    }
}
