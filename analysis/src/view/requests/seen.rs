//! Requests as their client saw them: when they had tokens, and nothing of what these waited for.

use std::fmt::Write;

use brickscope_profile::Profile;

use super::names::heading;
use crate::requests::{ONLY_CLIENT, Requests, late_ns};
use crate::view::layout::wrapped;
use crate::words::time;

/// What a run of a client lacks, and the command that puts it beside the server's. That is to be copied, so it stays a line.
pub(super) fn say(run: &str, text: &mut String) {
    wrapped(&format!("{ONLY_CLIENT}. Put this one beside it:"), text);
    let _ = writeln!(text, "  brickscope requests SERVER_RUN --client {run}");
}

/// One request, token by token, without what nobody saw.
pub(super) fn request(profile: &Profile, wanted: &str, run: &str) -> Result<String, String> {
    let requests = Requests::of(profile);
    let number = requests.named(wanted)?;
    let of = &requests.all()[number as usize];
    let mut text = heading(of);
    text.push('\n');
    say(run, &mut text);
    let _ = writeln!(text, "\n{:>5}  {:>10}  {:>10}", "token", "at", "took");
    let mut late = late_ns(of);
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
    use crate::requests::OF_CLIENT;
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
        // A run that has a name is called by it, and what its requests are called stays.
        profile.requests[0].id = "--client RUN".to_owned();
        let named = view::request_of_run(&profile, "1", "runs/load");
        let named = named.expect("it is there");
        assert!(named.starts_with("request   --client RUN, ended: length\n"), "{named}");
        let beside = "\n  brickscope requests SERVER_RUN --client runs/load\n";
        assert!(named.contains(beside), "{named}");
        assert!(view::requests_of_run(&profile, "runs/load").ends_with(beside));
        profile.requests[0].id = "mine".to_owned();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        // An engine that tells of no passes is no client.
        profile.run = Some(run("an engine"));
        assert!(!view::requests(&profile).contains("--client"));
        assert!(view::request(&profile, "mine").expect("it is there").contains("(unattributed)"));
    }
}
