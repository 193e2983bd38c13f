//! Requests by short names: each still names its request.

use brickscope_profile::Request;
use brickscope_profile::text::printable;

use crate::requests::{Listed, Requests};
use crate::text;

/// Columns of a name in a sentence.
const NAME: usize = 18;
/// Columns of a name above what is shown of its request.
const HEADING: usize = 60;

/// The first line of a screen of one request: `request   mine, ended: length`
pub(super) fn heading(of: &Request) -> String {
    let ended = of.ending.map_or_else(String::new, |ending| format!(", ended: {ending}"));
    format!("request   {}{ended}\n", text::cut(&printable(&of.id), HEADING))
}

/// The name of a request in so many columns: of a longer one its beginning and its end, as long as no other begins so.
pub(super) fn shortened(of: &Listed<'_>, most: usize) -> String {
    cut(of.of, of.unique, most)
}

fn cut(of: &Request, unique: Option<usize>, most: usize) -> String {
    // What another request begins with, too, would name neither.
    text::cut_middle(&printable(&of.id), unique.unwrap_or(0), most)
}

/// What requests are called in a sentence.
pub(super) struct Names<'p> {
    all: &'p [Request],
    unique: Vec<Option<usize>>,
}

impl<'p> Names<'p> {
    pub(super) fn of(requests: &Requests<'p>) -> Self {
        Self { all: requests.all(), unique: requests.unique() }
    }

    /// `chatcmpl-lD3S…XbQw (no. 43)`
    pub(super) fn name(&self, number: u32) -> String {
        let at = number as usize;
        match self.all.get(at) {
            None => "a request that isn't known".to_owned(),
            Some(of) => {
                let name = cut(of, self.unique.get(at).copied().flatten(), NAME);
                format!("{name} (no. {})", u64::from(number) + 1)
            }
        }
    }
}
