//! Requests as their client saw them: when they had tokens, and nothing of what these waited for.

use std::fmt::Write;

use brickscope_profile::Profile;
use brickscope_profile::text::printable;

use crate::requests::{OF_CLIENT, Requests};
use crate::text::cut;
use crate::view::layout::wrapped;
use crate::words::time;

/// Whether a run has what a client of a server saw.
pub(super) fn is_by_client(profile: &Profile) -> bool {
    profile.run.as_ref().is_some_and(|run| run.backend == OF_CLIENT)
}

/// What a run of a client lacks, and the command that puts it beside the server's. That is to be copied, so it stays a line.
pub(super) fn say(text: &mut String) {
    wrapped(
        "Only the client saw this: what tokens waited for is in the server's run, if one was recorded. Put this \
         one beside it:",
        text,
    );
    text.push_str("  brickscope requests SERVER_RUN --client RUN\n");
}

/// One request, token by token, without what nobody saw.
pub(super) fn request(profile: &Profile, wanted: &str) -> Result<String, String> {
    let requests = Requests::of(profile);
    let number = requests.named(wanted)?;
    let of = &requests.all()[number as usize];
    let mut text = format!("request   {}", cut(&printable(&of.id), 60));
    if let Some(ending) = of.ending {
        let _ = write!(text, ", ended: {ending}");
    }
    text.push_str("\n\n");
    say(&mut text);
    let _ = writeln!(text, "\n{:>5}  {:>10}  {:>10}", "token", "at", "took");
    let late_ns = of.admitted_ns.unwrap_or(of.arrived_ns).saturating_sub(of.arrived_ns);
    let mut late = Some(late_ns).filter(|ns| *ns > 0);
    for interval in requests.intervals(number) {
        let at = time(interval.to_ns.saturating_sub(of.arrived_ns) as f64);
        let took = time(interval.ns() as f64);
        let late = late.take().map(|ns| format!("  late {}: due until sent", time(ns as f64)));
        let late = late.unwrap_or_default();
        let _ = writeln!(text, "{:>5}  {at:>10}  {took:>10}{late}", interval.until);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Ending, Request, Run};

    use super::*;
    use crate::view;

    #[test]
    fn what_only_a_client_saw_has_times_and_the_command_for_the_rest() {
        let mut profile = Profile::empty(ClockInfo::default());
        profile.requests.push(Request {
            id: "mine".to_owned(),
            admitted_ns: Some(352_000),
            tokens_ns: vec![2_010_000_000, 4_850_000_000],
            ended_ns: Some(4_850_000_000),
            ending: Some(Ending::Length),
            ..Request::default()
        });
        let run = |backend: &str| Run { backend: backend.to_owned(), ..Run::default() };
        profile.run = Some(run(OF_CLIENT));
        let text = view::request(&profile, "slowest").expect("it is there");
        assert!(text.starts_with("request   mine, ended: length\n"), "{text}");
        let first = "\n    1      2.01 s      2.01 s  late 352 µs: due until sent\n";
        assert!(text.contains(first), "{text}");
        assert!(text.contains("\n    2      4.85 s      2.84 s\n"), "{text}");
        assert!(!text.contains("unattributed"), "{text}");
        let beside = "\n  brickscope requests SERVER_RUN --client RUN\n";
        assert!(text.contains(beside), "{text}");
        assert!(view::requests(&profile).ends_with(beside));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        // An engine that tells of no passes is no client.
        profile.run = Some(run("an engine"));
        assert!(!view::requests(&profile).contains("--client"));
        assert!(view::request(&profile, "mine").expect("it is there").contains("(unattributed)"));
    }
}
