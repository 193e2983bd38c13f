//! Runs of servers, whose requests nobody sends again.

use brickscope_profile::Request;

use super::*;

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
