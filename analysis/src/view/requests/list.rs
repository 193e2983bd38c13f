//! Requests as a list.

use std::fmt::Write;

use brickscope_profile::Profile;
use brickscope_profile::text::{grouped, printable};

use super::missed::not_recorded;
use crate::requests::{Cause, Listed, Requests};
use crate::text::{cut, cut_middle, padded};
use crate::view::layout::wrapped;
use crate::words::time;

/// Columns of a name: of a longer one its beginning and its end are shown.
const NAME: usize = 18;
/// Columns of a cause.
const CAUSE: usize = 17;

/// The requests of a run, a line each: their tokens, how long they waited for the first and at most for a further one, and why
/// for that; at the end how many more came that are not recorded. At most 80 columns wide.
#[must_use]
pub(super) fn list_of_requests(profile: &Profile) -> String {
    let mut text = of(&Requests::of(profile));
    if let Some(missed) = not_recorded(profile) {
        wrapped(&missed, &mut text);
    }
    text
}

pub(super) fn of(requests: &Requests<'_>) -> String {
    let mut text = String::new();
    text.push_str("Each request, its first token and its worst further one, with its cause:\n");
    line(["", "request", "prompt", "answer", "first", "worst", "its cause"], &mut text);
    for request in requests.list() {
        let Listed { number, of, prompt_tokens, answer_tokens, first_ns, worst_ns, cause, .. } =
            request;
        let tokens = |n: Option<u64>| n.map_or("-".to_owned(), grouped);
        let took = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| time(ns as f64));
        let nth = (u64::from(number) + 1).to_string();
        // What another request begins with, too, would name neither.
        let name = cut_middle(&printable(&of.id), request.unique.unwrap_or(0), NAME);
        let cause = cut(cause.map_or("-", Cause::name), CAUSE);
        let [prompt, answer] = [prompt_tokens, answer_tokens].map(tokens);
        let [first, worst] = [first_ns, worst_ns].map(took);
        line([&nth, &name, &prompt, &answer, &first, &worst, &cause], &mut text);
    }
    text
}

fn line([nth, name, prompt, answer, first, worst, cause]: [&str; 7], text: &mut String) {
    let name = padded(name, NAME);
    let times = format!("{first:>8}  {worst:>8}  {cause}");
    let row = format!("{nth:>5}  {name}  {prompt:>6}  {answer:>6}  {times}");
    let _ = writeln!(text, "{}", row.trim_end());
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Request};

    use super::*;

    #[test]
    fn what_is_shown_of_a_long_name_names_its_request() {
        let mut profile = Profile::empty(ClockInfo::default());
        let ids = [
            "chatcmpl-vLxCgp0WXgxgiI3HYkogO5Td9zvpZrpi",
            "chatcmpl-vLxCg9KWXgxgiI3HYkogO5Td9zvpZrpi",
            "chatcmpl-WeQ6thOaquAV7Ba3DntGdW5o6vBqtEcn",
        ];
        let request = |id: &str| Request { id: id.to_owned(), ..Request::default() };
        profile.requests.extend(ids.map(request));
        let text = list_of_requests(&profile);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let requests = Requests::of(&profile);
        for (row, number) in text.lines().skip(2).zip(0..) {
            let name = row.split_whitespace().nth(1).expect("a name");
            let (begin, _) = name.split_once('…').expect("it is cut");
            assert_eq!(requests.named(begin), Ok(number), "{row}");
            assert_eq!(requests.named(name), Ok(number), "{row}");
        }
    }
}
