//! How the program that was recorded ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use brickscope::{Profile, Run};
use signal_hook::consts::{SIGINT, SIGTERM};

/// What a shell adds to the number of the signal that ended a process.
const BY_SIGNAL: i32 = 128;

/// Says in a run how its program ended. A server goes on until somebody ends it, so what asks it to end cuts nothing short.
/// No status is of one that goes on.
pub(crate) fn tell(profile: &mut Profile, status: Option<ExitStatus>) {
    let kept = profile.kept.as_ref().is_some_and(|kept| kept.requests.is_some());
    let is_server = kept || !profile.requests.is_empty();
    let Some(run) = profile.run.as_mut() else { return };
    let Run { cut_short, ended_by, .. } = run;
    match status {
        Some(status) if status.success() => {}
        Some(status) => match asked_by(status).filter(|_| is_server) {
            Some(by) => *ended_by = Some(by.to_owned()),
            None => *cut_short = Some(format!("the program ended with {status}")),
        },
        None => {
            let why = "brickscope ended before the program, and the rest was recovered";
            *cut_short = Some(why.to_owned());
        }
    }
}

/// What asked it to end, if it ended because of that.
fn asked_by(status: ExitStatus) -> Option<&'static str> {
    let is_by =
        |signal: i32| status.signal() == Some(signal) || status.code() == Some(BY_SIGNAL + signal);
    let asked = [(SIGINT, "Ctrl-C"), (SIGTERM, "SIGTERM")];
    asked.into_iter().find(|(signal, _)| is_by(*signal)).map(|(_, by)| by)
}

#[cfg(test)]
mod tests {
    use brickscope::{ClockInfo, Request};

    use super::*;

    #[test]
    fn what_ends_a_server_cuts_nothing_short() {
        let ended = |status: i32, is_server: bool| {
            let mut profile = Profile::empty(ClockInfo::default());
            profile.run = Some(Run::default());
            profile.requests.extend(is_server.then(Request::default));
            tell(&mut profile, Some(ExitStatus::from_raw(status)));
            let run = profile.run.expect("it has one");
            (run.cut_short.is_some(), run.ended_by)
        };
        let by = |what: &str| (false, Some(what.to_owned()));
        // As a signal ended it, or as it ended by itself because of one.
        assert_eq!(ended(SIGINT, true), by("Ctrl-C"));
        assert_eq!(ended((128 + SIGINT) << 8, true), by("Ctrl-C"));
        assert_eq!(ended(SIGTERM, true), by("SIGTERM"));
        assert_eq!(ended(0, true), (false, None));
        // A crash does, and of any other program so does Ctrl-C.
        assert_eq!(ended(6, true), (true, None));
        assert_eq!(ended(SIGINT, false), (true, None));
    }
}
