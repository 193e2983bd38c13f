//! Writes files as a whole or not at all, lays out JSON for people, and formats and parses times.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// Writes a file so that it either exists as a whole or not at all; returns what `write` returns.
///
/// The bytes go to a temporary file beside `path`, which is flushed to disk and then renamed. If anything
/// fails or panics, the temporary file is removed and `path` stays as it was. Only a process that is killed
/// leaves it behind: a hidden file that ends in `.partial`.
///
/// Links are followed, and a file that is replaced keeps its permissions. What is not a regular file, such as
/// a terminal, a pipe or `/dev/null`, is written to directly.
///
/// # Errors
///
/// Errors of `write`, and errors of the file system converted by `failed`.
pub fn write_atomically<T, E>(
    path: &Path,
    failed: impl Fn(io::Error) -> E,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, E>,
) -> Result<T, E> {
    let buffered = |file| BufWriter::with_capacity(1 << 18, file);
    let before = fs::metadata(path).ok();
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        let mut out = buffered(File::options().write(true).open(path).map_err(&failed)?);
        let result = write(&mut out)?;
        out.flush().map_err(&failed)?;
        return Ok(result);
    }
    let path = &match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => fs::canonicalize(path).map_err(&failed)?,
        _ => path.to_owned(),
    };
    let (partial, file) = Partial::create(path).map_err(&failed)?;
    if let Some(before) = before {
        file.set_permissions(before.permissions()).map_err(&failed)?;
    }
    let mut out = buffered(file);
    let result = write(&mut out)?;
    let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
    // The rename must not reach the disk before the bytes do.
    file.sync_all().map_err(&failed)?;
    drop(file);
    fs::rename(&partial.0, path).map_err(&failed)?;
    // Under its final name it must not be removed any more.
    std::mem::forget(partial);
    Ok(result)
}

/// Writes a text file as [`write_atomically`] does.
#[doc(hidden)]
pub fn write_text(path: &Path, text: &str) -> io::Result<()> {
    write_atomically(path, |error| error, |out| out.write_all(text.as_bytes()))
}

/// A temporary file that is removed when dropped.
struct Partial(PathBuf);

impl Partial {
    fn create(target: &Path) -> io::Result<(Self, File)> {
        // Two threads, or two processes, may be writing the same file: each has a temporary file of its
        // own, and the last rename wins.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Some(name) = target.file_name() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the path does not end in a file name",
            ));
        };
        // Processes in different containers have the same numbers, and one that was killed leaves its file.
        const TRIES: usize = 1000;
        let mut tries = 0;
        loop {
            let mut partial = OsString::from(".");
            partial.push(name);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            partial.push(format!(".{}-{count}.partial", std::process::id()));
            let path = target.with_file_name(partial);
            match File::options().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => {
                    tries += 1;
                }
                opened => return Ok((Self(path), opened?)),
            }
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Nothing more can be done about a file that can't be removed, and the error that led here
        // matters more.
        let _ = fs::remove_file(&self.0);
    }
}

/// JSON with one item per line down to the third level, and each deeper value on one line: tables of
/// thousands of rows stay readable.
///
/// # Panics
///
/// If a map in `value` has keys that aren't strings.
#[doc(hidden)]
pub fn to_json(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let layout = Layout { pretty: PrettyFormatter::new(), depth: 0 };
    value
        .serialize(&mut Serializer::with_formatter(&mut bytes, layout))
        .expect("plain data with string keys always writes");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

struct Layout {
    pretty: PrettyFormatter<'static>,
    depth: usize,
}

impl Layout {
    const PRETTY_DEPTH: usize = 3;

    fn is_pretty(&self) -> bool {
        self.depth <= Self::PRETTY_DEPTH
    }
}

/// Each method calls one of the two formatters.
macro_rules! by_depth {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(enters $enter:literal)? $(leaves $leave:literal)?;)*) => {
        $(fn $name<W: ?Sized + Write>(&mut self, writer: &mut W $(, $arg: $type)*) -> io::Result<()> {
            $(self.depth += $enter;)?
            let result = if self.is_pretty() {
                self.pretty.$name(writer $(, $arg)*)
            } else {
                CompactFormatter.$name(writer $(, $arg)*)
            };
            $(self.depth -= $leave;)?
            result
        })*
    };
}

impl Formatter for Layout {
    by_depth! {
        fn begin_array() enters 1;
        fn end_array() leaves 1;
        fn begin_array_value(first: bool);
        fn end_array_value();
        fn begin_object() enters 1;
        fn end_object() leaves 1;
        fn begin_object_key(first: bool);
        fn begin_object_value();
        fn end_object_value();
    }
}

/// Now, as RFC 3339 in UTC with seconds.
#[doc(hidden)]
pub fn now_rfc3339() -> String {
    time_rfc3339(SystemTime::now())
}

/// The same with milliseconds, for what may happen several times in a second.
#[doc(hidden)]
pub fn now_rfc3339_ms() -> String {
    let now = SystemTime::now();
    let ms = now.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_millis();
    format!("{}.{ms:03}Z", time_rfc3339(now).trim_end_matches('Z'))
}

/// A time in the format of all brickscope files: RFC 3339 in UTC, with seconds.
#[must_use]
pub fn time_rfc3339(at: SystemTime) -> String {
    // A clock before 1970 is wrong anyway.
    rfc3339(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Days to a date: Howard Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`.
fn rfc3339(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Years begin in March here, so that a leap day is the last of its year.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Splits `2026-11-21T10:48:12Z`, with or without a fraction of a second, into what is before the fraction
/// and its digits without trailing zeros, so that the parts sort by time. `None` for any other text. The
/// number of days in a month isn't checked.
#[doc(hidden)]
pub fn parse_rfc3339(text: &str) -> Option<(&str, &str)> {
    const FORM: &[u8; 19] = b"0000-00-00T00:00:00";
    let (whole, rest) = text.split_at_checked(FORM.len())?;
    let fits = whole.bytes().zip(*FORM).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte == form,
    });
    let in_range = |from: usize, least: u32, most: u32| {
        let part = whole.get(from..from + 2).and_then(|two| two.parse::<u32>().ok());
        part.is_some_and(|number| (least..=most).contains(&number))
    };
    let is_moment = fits
        && in_range(5, 1, 12)
        && in_range(8, 1, 31)
        && in_range(11, 0, 23)
        && in_range(14, 0, 59)
        // 60: a leap second.
        && in_range(17, 0, 60);
    let fraction = match rest.strip_suffix('Z')? {
        "" => "",
        fraction => fraction.strip_prefix('.').filter(|digits| !digits.is_empty())?,
    };
    let are_digits = fraction.bytes().all(|byte| byte.is_ascii_digit());
    (is_moment && are_digits).then(|| (whole, fraction.trim_end_matches('0')))
}

/// Seconds since 1970 of a time such as `2026-11-21T10:48:12Z`, without fractions of a second; `None` for any
/// other text.
///
/// A date to days: Howard Hinnant, "chrono-compatible low-level date algorithms", `days_from_civil`.
#[doc(hidden)]
pub fn unix_seconds(text: &str) -> Option<u64> {
    const FORM: &[u8; 19] = b"0000-00-00T00:00:00";
    let (whole, _) = text.split_at_checked(FORM.len()).filter(|_| text.ends_with('Z'))?;
    let fits = whole.bytes().zip(*FORM).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte == form,
    });
    let part = |from: usize, to: usize| whole.get(from..to)?.parse::<u64>().ok();
    if !fits {
        return None;
    }
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    Some(days * 86_400 + part(11, 13)? * 3_600 + part(14, 16)? * 60 + part(17, 19)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn links_are_followed_permissions_kept_and_devices_stay_devices() {
        use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

        let folder = tempfile::tempdir().expect("a folder");
        let (file, link, dangling) =
            (folder.path().join("file"), folder.path().join("link"), folder.path().join("gone"));
        fs::write(&file, "before").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        symlink(&file, &link).expect("a link");
        write_text(&link, "after").expect("it is a file");
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "after");
        assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
        symlink(folder.path().join("nothing"), &dangling).expect("a link");
        write_text(&dangling, "x").expect_err("it leads nowhere");
        write_text("/dev/null".as_ref(), "x").expect("it takes all");
        assert!(fs::metadata("/dev/null").expect("it is there").file_type().is_char_device());
    }

    #[test]
    fn dates_are_read_as_they_are_written() {
        for seconds in [0, 86_399, 951_782_400, 1_583_020_799, 1_795_258_092, 4_107_542_400] {
            let text = rfc3339(Duration::from_secs(seconds));
            assert_eq!(unix_seconds(&text), Some(seconds), "{text}");
        }
        for text in ["", "yesterday", "1969-12-31T23:59:59Z", "2026-13-01T00:00:00Z", "2026-11-21"]
        {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }

    #[test]
    fn moments_are_told_from_other_texts() {
        for (text, fraction) in [
            ("2026-11-21T10:48:12Z", ""),
            ("2026-11-21T10:48:12.034Z", "034"),
            ("2026-12-31T23:59:60.500Z", "5"),
        ] {
            assert_eq!(parse_rfc3339(text), Some((&text[..19], fraction)));
        }
        for text in [
            "",
            "yesterday",
            "2026-11-21",
            "2026-11-21T10:48:12",
            "2026-11-21T10:48:12+01:00",
            "2026-11-21 10:48:12Z",
            "2026-13-21T10:48:12Z",
            "2026-99-99T99:99:99Z",
            "2026-11-00T10:48:12Z",
            "2026-11-21T10:48:12.Z",
            "2026-11-21T10:48:121Z",
            "2026-11-21T10:48:12.1.2Z",
            "2026-11-21t10:48:12Z",
            "2026-11-21T10:48:1\u{e4}Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        // From `date -u -d @N`.
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), date);
        }
    }

    #[test]
    fn deep_values_stay_on_one_line() {
        let value = serde_json::json!({"a": {"rows": [[1, null], [2, {"x": "y"}]], "empty": []}});
        assert_eq!(
            to_json(&value),
            "{\n  \"a\": {\n    \"empty\": [],\n    \"rows\": [\n      [1,null],\n      \
             [2,{\"x\":\"y\"}]\n    ]\n  }\n}\n"
        );
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file_and_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("taken")).unwrap();
        let path = folder.path().join("a.json");
        write_text(&path, "old").unwrap();
        write_text(&path, "new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        // A folder is in the way of the rename.
        fs::write(folder.path().join("taken/file"), b"").unwrap();
        assert!(write_text(&folder.path().join("taken"), "x").is_err());
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.json", "taken"]);
    }
}
