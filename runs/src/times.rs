//! When a run was made, and when it was imported: from its summary, or from the begin of its file.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::SystemTime;

use brickscope_profile::save::{parse_rfc3339, time_rfc3339};

use crate::files::RECEIPT;
use crate::summary::Summary;

/// So many bytes of a profile or a receipt have the times when it was made and imported, which are among their first fields.
const BEGIN: u64 = 512;

/// When a run was made, and of an import when that was, as far as either is known.
#[derive(Default)]
pub(crate) struct Times {
    pub(crate) created: Option<String>,
    pub(crate) imported_at: Option<String>,
}

impl Times {
    /// As a summary says, of a file that was written at this time.
    pub(crate) fn of(summary: &Summary, written: SystemTime) -> Self {
        // Imports of earlier versions don't say it. Their files were written then, unless they are copies.
        let is_import = summary.imported_from.is_some();
        let by_the_file = || is_import.then(|| time_rfc3339(written));
        let imported_at = summary.imported_at.clone().filter(|at| is_time(at)).or_else(by_the_file);
        Self { created: Some(summary.created.clone()).filter(|at| is_time(at)), imported_at }
    }

    /// From the first bytes of a run's file in its folder.
    pub(crate) fn in_the_begin(folder: &Path, file: &str) -> Option<Self> {
        let created = if file == RECEIPT { "\"timestamp\"" } else { "\"created\"" };
        let mut begin = Vec::new();
        File::open(folder.join(file)).ok()?.take(BEGIN).read_to_end(&mut begin).ok()?;
        let begin = String::from_utf8_lossy(&begin);
        let time = |field: &str| text_of(field, &begin).filter(|text| is_time(text));
        let [created, imported_at] = [created, "\"imported_at\""].map(time);
        Some(Self { created, imported_at })
    }
}

fn is_time(text: &str) -> bool {
    parse_rfc3339(text).is_some()
}

/// The text of a field of JSON.
fn text_of(field: &str, json: &str) -> Option<String> {
    let (_, rest) = json.split_once(field)?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    rest.split_once('"').map(|(text, _)| text.to_owned())
}
