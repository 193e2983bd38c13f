//! Runs of servers, whose requests nobody sends again.

use brickscope_profile::{CpuWait, Disturber, Engine, Request};

use super::*;
use crate::findings::disturbed::cause;
use crate::typical::Typical;

/// A run of a Python program on two CPUs, with a server in it. In every other pass a thread waits, mostly for other programs.
fn disturbed(threads: u32) -> Profile {
    let mut profile = run(&Planted { of_roof: Some(0.4), ..Planted::default() });
    let command = ["venv/bin/python", "serve.py"].map(str::to_owned).to_vec();
    let backend = "llama.cpp, CPU".to_owned();
    profile.run = Some(Run { threads, backend, command, ..Run::default() });
    profile.machine = Some(Machine { logical_cpus: Some(2), ..Machine::default() });
    let total = profile.phases.iter_mut().find(|total| total.phase == Phase::Decode);
    let total = total.expect("decode");
    for pass in profile.passes.iter_mut().step_by(2) {
        for ns in [&mut pass.wall_ns, &mut pass.unattributed_ns] {
            *ns += PASS / 2;
        }
        for ns in [&mut total.wall_ns, &mut total.unattributed_ns] {
            *ns += PASS / 2;
        }
        total.disturbed += 1;
        pass.disturbance = Some(Disturbance {
            passes: 1,
            wall_ns: pass.wall_ns,
            longest_wait_ns: Some(PASS / 2),
            own_wait_ns: Some(PASS / 5),
            run_queue_wait_ns: Some(PASS / 2),
            ..Disturbance::default()
        });
    }
    profile
}

#[test]
fn of_a_run_with_requests_nothing_proposes_to_try_it() {
    for threads in [1, 2] {
        let mut profile = disturbed(threads);
        let proposed = |profile: &Profile| {
            let findings = Findings::of(profile);
            let changes = findings.found.iter().filter(|found| found.change.is_some()).count();
            (changes, format!("{findings:?}").matches("brickscope try").count())
        };
        assert!(proposed(&profile).1 > 0, "its program may end by itself");
        profile.trials = vec![trial_of_threads(4, 0.4, None)];
        assert!(proposed(&profile).0 > 0);
        profile.requests.push(Request::default());
        assert_eq!(proposed(&profile), (0, 0));
        profile.trials.clear();
        assert_eq!(proposed(&profile), (0, 0));
        let unknown = Findings::of(&profile).unknown;
        let why = "only runs tell (`-t`, under the same load)";
        assert!(unknown.iter().any(|of| of.why.ends_with(why)), "{unknown:?}");
    }
}

#[test]
fn what_is_advised_agrees_with_who_had_the_cpu_for_longest() {
    let waits = |own_ns| CpuWait {
        thread: 18_922,
        phase: Phase::Decode,
        cpu: Some(1),
        looked_ns: 1_000,
        ran_ns: 400,
        waited_ns: 500,
        own_ns,
    };
    let found = |profile: &Profile| {
        let found = Findings::of(profile).found;
        let rules = ["other-programs", "threads-share-a-cpu"];
        found.into_iter().find(|of| rules.contains(&of.rule)).expect("passes were disturbed")
    };
    let mut profile = disturbed(2);
    let others = |profile: &Profile| {
        let finding = found(profile);
        assert_eq!(finding.rule, "other-programs");
        assert!(finding.advice.starts_with("stop other programs"), "{}", finding.advice);
    };
    others(&profile);
    // Another thread, that hardly waited, doesn't count.
    let little = CpuWait { thread: 7, waited_ns: 10, own_ns: 10, ..waits(0) };
    profile.cpu_waits = vec![little, waits(240)];
    others(&profile);
    profile.cpu_waits[1] = waits(290);
    // Nor does it count that others used much of the machine.
    profile.other_load =
        Some(OtherLoad { machine_ns: 200, own_ns: 80, others_ns: 120, steal_ns: None });
    let finding = found(&profile);
    let had = "other threads of this process had the CPU for 58 % of what thread 18922 waited";
    assert_eq!(finding.rule, "threads-share-a-cpu");
    // The first screen names the same cause.
    let typical = Typical::of(&profile, Phase::Decode).expect("passes");
    let cause = cause(&profile, &typical, profile.phase(Phase::Decode).expect("decode"));
    assert_eq!(cause, Some((Disturber::OwnThreads, 20)));
    assert_eq!(finding.advice, format!("run fewer threads (`-t 1`): {had}"));
    assert_eq!(finding.change, Some(Change::Threads(1)));
    assert!(finding.evidence.iter().any(|of| of.text == had), "{finding:?}");
    let begin =
        "threads waited for a CPU in 20 of 40 decode passes, longest for others of this process";
    assert!(finding.what.starts_with(begin), "{finding:?}");
    // A server may have fewer requests in a pass.
    profile.requests.push(Request::default());
    let engine = Engine { sequences: Some(4), ..Engine::default() };
    profile.run.as_mut().expect("a run").engine = Some(engine);
    let place = "have one place fewer in the batch (3, now 4)";
    let finding = found(&profile);
    assert_eq!(finding.advice, format!("run fewer threads (`-t 1`), or {place}: {had}"));
    assert_eq!((finding.change, finding.test), (None, None));
    // Of a single thread there is none to leave out.
    profile.run.as_mut().expect("a run").threads = 1;
    assert_eq!(found(&profile).advice, format!("{place}: {had}"));
}
