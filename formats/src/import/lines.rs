//! Records of JSON one after the other, as programs write them while they run: of a line each, or of many lines.

use serde::Deserialize;

/// Calls `note` with each record of a text, in order. Returns how many are odd: they break off, or are something else. What
/// is odd is left out up to the next line that begins a record.
pub(super) fn each<'t, R: Deserialize<'t>>(text: &'t str, mut note: impl FnMut(R)) -> u64 {
    let (mut rest, mut odd) = (text, 0);
    loop {
        let mut records = serde_json::Deserializer::from_str(rest).into_iter::<R>();
        let mut is_odd = false;
        for record in records.by_ref() {
            match record {
                Ok(record) => note(record),
                Err(_) => {
                    is_odd = true;
                    break;
                }
            }
        }
        if !is_odd {
            return odd;
        }
        odd += 1;
        // The end of the last one that was read.
        let at = records.byte_offset();
        let broken = rest.get(at..).unwrap_or("").trim_start();
        match broken.find("\n{") {
            Some(line) => rest = broken.get(line + 1..).unwrap_or(""),
            None => return odd,
        }
    }
}
