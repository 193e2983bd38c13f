//! Records of JSON one after the other, as programs write them while they run: of a line each, or of many lines. Who gathered
//! them may have made a list of them.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;

/// Calls `note` with each record of a text, in order; a record is an object. Returns how many are odd: they break off, or are
/// something else. What is odd is left out up to the next line that begins a record.
pub(super) fn each<'t, R: Deserialize<'t>>(text: &'t str, mut note: impl FnMut(R)) -> u64 {
    let (mut rest, mut odd) = (text, 0);
    loop {
        let mut records = serde_json::Deserializer::from_str(rest).into_iter::<&'t RawValue>();
        // Whether the odd one was read to its end.
        let mut is_whole = None;
        for record in records.by_ref() {
            match record {
                Ok(list) if list.get().starts_with('[') => odd += each_of(list, &mut note),
                Ok(record) if read(record, &mut note) => {}
                Ok(_) => is_whole = Some(true),
                Err(_) => is_whole = Some(false),
            }
            if is_whole.is_some() {
                break;
            }
        }
        let Some(is_whole) = is_whole else { return odd };
        odd += 1;
        // The end of the last one that was read.
        let after = rest.get(records.byte_offset()..).unwrap_or("");
        let after = if is_whole { after } else { after.trim_start() };
        match after.find("\n{") {
            Some(line) => rest = after.get(line + 1..).unwrap_or(""),
            None => return odd,
        }
    }
}

/// Whether it is a record. A list isn't one, though its elements could be taken for fields.
fn read<'t, R: Deserialize<'t>>(record: &'t RawValue, note: &mut impl FnMut(R)) -> bool {
    let text = record.get();
    let record: Option<R> =
        text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten();
    record.map(note).is_some()
}

/// Reads the records of a list. Returns how many are odd.
fn each_of<'t, R: Deserialize<'t>>(list: &'t RawValue, note: &mut impl FnMut(R)) -> u64 {
    let mut odd = 0;
    let mut json = serde_json::Deserializer::from_str(list.get());
    let all = json.deserialize_seq(Elements(|record: &'t RawValue| {
        odd += u64::from(!read(record, note));
    }));
    odd + u64::from(all.is_err())
}

/// Calls the function with each element of a list, which is nowhere as a whole.
struct Elements<F>(F);

impl<'t, F: FnMut(&'t RawValue)> Visitor<'t> for Elements<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'t>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(record) = list.next_element::<&'t RawValue>()? {
            (self.0)(record);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Record {
        #[serde(default)]
        n: u64,
        #[serde(default)]
        more: u64,
    }

    /// The numbers of the records, and how many are odd.
    fn of(text: &str) -> (Vec<u64>, u64) {
        let mut numbers = Vec::new();
        let odd = each::<Record>(text, |record| numbers.push(record.n + record.more));
        (numbers, odd)
    }

    #[test]
    fn a_list_has_records_and_is_none_itself() {
        assert_eq!(of("[{\"n\":1},\n {\"n\":2},{\"n\":3}]\n{\"n\":4}"), (vec![1, 2, 3, 4], 0));
        assert_eq!(of("[]"), (vec![], 0));
        // Neither numbers nor lists of them are records, though a list could be taken for the fields of one.
        assert_eq!(of("[1,{\"n\":2},[3,4],{\"n\":\"x\"},{\"n\":5}]"), (vec![2, 5], 3));
    }

    #[test]
    fn what_is_odd_is_left_out_up_to_the_next_line() {
        for odd in
            ["{\"n\":\"x\"}", "7", "\"x\"", "x", "{\"n\":7", "{\"n\":", "12 INFO", "7 {\"n\":8}"]
        {
            let text = format!("{{\"n\":1}}\n{odd}\n{{\"n\":2}}\n{{\"n\":3}}");
            assert_eq!(of(&text), (vec![1, 2, 3], 1), "{odd}");
        }
        assert_eq!(of("[{\"n\":1},\n{\"n\":2},\n{\"n\""), (vec![2], 3));
    }
}
