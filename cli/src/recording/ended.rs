//! How the program that was recorded ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use brickscope::Profile;
use brickscope_analysis::requests::requests_came;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What a shell adds to the number of the signal that ended a process.
const BY_SIGNAL: i32 = 128;

/// Says in the runs of a command how it ended. A server goes on until somebody ends it, so what asks it to end cuts nothing
/// short, nor what its other contexts and processes computed. No status is of one that goes on.
pub(crate) fn tell(mut runs: Vec<&mut Profile>, status: Option<ExitStatus>) {
    let is_server = runs.iter().any(|of| requests_came(of));
    let (cut_short, ended_by) = match status {
        Some(status) if status.success() => return,
        Some(status) => match asked_by(status).filter(|_| is_server) {
            Some(by) => (None, Some(by.to_owned())),
            None => (Some(format!("the program ended with {status}")), None),
        },
        None => {
            let why = "brickscope ended before the program, and the rest was recovered";
            (Some(why.to_owned()), None)
        }
    };
    for run in runs.iter_mut().filter_map(|of| of.run.as_mut()) {
        (run.cut_short, run.ended_by) = (cut_short.clone(), ended_by.clone());
    }
}

/// What asked it to end, if it ended because of that.
fn asked_by(status: ExitStatus) -> Option<&'static str> {
    let is_by =
        |signal: i32| status.signal() == Some(signal) || status.code() == Some(BY_SIGNAL + signal);
    let asked = [(SIGINT, "Ctrl-C"), (SIGTERM, "SIGTERM"), (SIGHUP, "SIGHUP")];
    asked.into_iter().find(|(signal, _)| is_by(*signal)).map(|(_, by)| by)
}

#[cfg(test)]
mod tests {
    use brickscope::{ClockInfo, Request, Run};

    use super::*;

    #[test]
    fn what_ends_a_server_cuts_nothing_short() {
        let ended = |status: i32, is_server: bool| {
            let mut profile = Profile::empty(ClockInfo::default());
            profile.run = Some(Run::default());
            profile.requests.extend(is_server.then(Request::default));
            tell(vec![&mut profile], Some(ExitStatus::from_raw(status)));
            let run = profile.run.expect("it has one");
            (run.cut_short.is_some(), run.ended_by)
        };
        let by = |what: &str| (false, Some(what.to_owned()));
        // As a signal ended it, or as it ended by itself because of one.
        assert_eq!(ended(SIGINT, true), by("Ctrl-C"));
        assert_eq!(ended((128 + SIGINT) << 8, true), by("Ctrl-C"));
        assert_eq!(ended(SIGTERM, true), by("SIGTERM"));
        assert_eq!(ended(SIGHUP, true), by("SIGHUP"));
        assert_eq!(ended(0, true), (false, None));
        // A crash does, and of any other program so does Ctrl-C.
        assert_eq!(ended(6, true), (true, None));
        assert_eq!(ended(9, true), (true, None));
        assert_eq!(ended(11, true), (true, None));
        assert_eq!(ended(SIGINT, false), (true, None));
    }

    /// A draft's context beside that of the requests, and a server whose requests had no room, are the server's, too.
    #[test]
    fn all_runs_of_a_server_ended_as_it_did() {
        let empty = || {
            let mut profile = Profile::empty(ClockInfo::default());
            profile.run = Some(Run::default());
            profile
        };
        let mut missed = empty();
        missed.dropped.missed_requests = 7;
        let mut all = [empty(), missed, empty()];
        tell(all.iter_mut().collect(), Some(ExitStatus::from_raw(SIGINT)));
        for run in all.map(|of| of.run.expect("it has one")) {
            assert_eq!((run.cut_short, run.ended_by.as_deref()), (None, Some("Ctrl-C")));
        }
    }
}
