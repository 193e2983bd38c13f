//! Writing files: the whole of it or nothing, laid out for people, stamped with the time.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// Writes `bytes` to a temporary file beside `path` and renames it into place, so that a reader
/// sees the old file or the new one, and never half of one.
///
/// # Errors
///
/// Where the file can't be written. The temporary file is removed then.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.part", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        // The rename must not reach the disk before the bytes do.
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// JSON with one item a line down to the third level, and each deeper value on one line: tables of
/// thousands of rows stay readable.
///
/// # Panics
///
/// If a map in `value` has keys that aren't strings.
pub(crate) fn to_json(value: &impl Serialize) -> String {
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

/// Each method asks the one formatter or the other.
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
pub(crate) fn now_rfc3339() -> String {
    // A clock before 1970 is wrong in any case.
    rfc3339(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let folder = std::env::temp_dir().join(format!("brickscope-save-{}", std::process::id()));
        fs::create_dir_all(folder.join("taken")).unwrap();
        let path = folder.join("a.json");
        write_atomically(&path, b"old").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        // A folder is in the way of the rename.
        fs::write(folder.join("taken/file"), b"").unwrap();
        assert!(write_atomically(&folder.join("taken"), b"x").is_err());
        let mut left: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.json", "taken"]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
