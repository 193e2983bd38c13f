//! The passes of devices with several streams: a pass is one, from its first mark on any stream to its last. A stream has a
//! part of it only, and what it doesn't fill another may.

use std::collections::BTreeMap;

use brickscope_profile::{DeviceProfile, Pass, Phase};

/// Whether its passes are those of [`all_streams`] rather than a stream's own.
pub(super) fn has_several_streams(device: &DeviceProfile) -> bool {
    device.streams.len() > 1
}

/// The passes, by number, each with the time in which no stream ran a brick, if that is known.
pub(super) fn all_streams(device: &DeviceProfile) -> Vec<(Pass, Option<u64>)> {
    let mut passes: BTreeMap<u32, Pass> = BTreeMap::new();
    for of in device.streams.iter().flat_map(|stream| &stream.passes) {
        let pass = passes.entry(of.serial).or_insert(*of);
        let end = |pass: &Pass| pass.start_ns.saturating_add(pass.wall_ns);
        let end = end(pass).max(end(of));
        pass.start_ns = pass.start_ns.min(of.start_ns);
        pass.wall_ns = end.saturating_sub(pass.start_ns);
        pass.tokens = pass.tokens.max(of.tokens);
        pass.is_left_out |= of.is_left_out;
    }
    let busy = device.busy_by_pass(None);
    let with_rest = |(serial, pass): (u32, Pass)| {
        let idle_ns = busy.get(&serial).map(|busy| busy.idle_ns);
        (pass, idle_ns)
    };
    passes.into_iter().map(with_rest).collect()
}

/// The time of the passes of each phase in which no stream ran a brick, if it is known of all of them.
pub(super) fn rest(device: &DeviceProfile) -> Vec<(Phase, u64)> {
    let of_phase = |phase: Phase| {
        let sums = device.streams.iter().flat_map(|stream| &stream.phases);
        let passes = sums.filter(|sum| sum.phase == phase).map(|sum| sum.passes).max()?;
        let busy = device.busy(Some(phase)).ok().filter(|busy| busy.passes >= passes)?;
        Some((phase, busy.idle_ns))
    };
    Phase::ALL.into_iter().filter_map(of_phase).collect()
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{
        ClockInfo, DeviceStream, Imported, PhaseTotal, Profile, Source, Span, Ticks, Work,
    };

    use super::*;
    use crate::rows::{Facts, PASSES, RUNS, SPEEDS, Value, rows};

    fn facts() -> Facts {
        Facts { machine: "m1".to_owned(), source: "runs/1".to_owned(), ..Facts::default() }
    }

    fn device(name: &str, streams: Vec<Vec<Pass>>) -> DeviceProfile {
        let stream = |passes: Vec<Pass>| DeviceStream {
            name: "stream".to_owned(),
            passes,
            ..DeviceStream::default()
        };
        let ticks = Ticks { ns_per_tick: 1.0, resolution_ns: None, valid_bits: 64 };
        DeviceProfile {
            name: name.to_owned(),
            streams: streams.into_iter().map(stream).collect(),
            ..DeviceProfile::empty(ticks)
        }
    }

    #[test]
    fn a_pass_of_a_device_is_one_whatever_streams_ran_it() {
        let pass = |serial: u32, start_ns: u64, wall_ns: u64| Pass {
            serial,
            phase: Phase::Decode,
            lane: 0,
            tokens: 0,
            position: 0,
            start_ns,
            wall_ns,
            attributed_ns: 0,
            unattributed_ns: wall_ns,
            disturbance: None,
            is_left_out: false,
        };
        let mut profile = Profile::empty(ClockInfo::default());
        // One stream has the pass from end to end, the other a copy in the middle of it.
        let streams =
            [vec![pass(1, 100, 600), pass(2, 800, 616)], vec![pass(1, 300, 40), pass(2, 790, 50)]];
        profile.devices = vec![device("GPU", streams.into())];
        let run = rows(Some(&profile), None, &facts()).expect("it has a time");
        let cells = |column: &str| -> Vec<Value> {
            let at = PASSES.column(column).expect("a column");
            run.tables[3].iter().map(|row| row[at].clone()).collect()
        };
        assert_eq!(cells("pass"), [1, 2].map(Value::Int));
        assert_eq!(cells("wall_ns"), [600, 626].map(Value::Int));
        assert!(run.tables[1].is_empty(), "no stream has bricks: {:?}", run.tables[1]);
    }

    #[test]
    fn a_rate_that_is_mostly_a_wait_is_left_out() {
        let pass = |tokens: u64| Pass {
            serial: 1,
            phase: Phase::Decode,
            lane: 0,
            tokens,
            position: 0,
            start_ns: 0,
            wall_ns: 474,
            attributed_ns: 0,
            unattributed_ns: 474,
            disturbance: None,
            is_left_out: false,
        };
        let span = |start_ns: u64, end_ns: u64| Span {
            name: None,
            source: Source::Device,
            lane: 0,
            pass: Some(1),
            layer: None,
            parent: None,
            start_ns,
            duration_ns: end_ns - start_ns,
            exclusive_ns: end_ns - start_ns,
            work: Work::default(),
        };
        let rate = |second_ns: u64| {
            let mut profile = Profile::empty(ClockInfo::default());
            profile.imported = Some(Imported::default());
            profile.phases = vec![PhaseTotal {
                phase: Phase::Decode,
                passes: 1,
                disturbed: 0,
                unwatched: None,
                tokens: 0,
                wall_ns: 20,
                attributed_ns: 0,
                unattributed_ns: 20,
            }];
            profile.passes = vec![pass(0)];
            let mut device = device("GPU", vec![vec![pass(32)]]);
            device.streams[0].spans = vec![span(0, 10), span(second_ns, 474)];
            profile.devices = vec![device];
            let run = rows(Some(&profile), None, &facts()).expect("it has a time");
            let at = |name: &str| SPEEDS.column(name).expect("a column");
            let cell = |name: &str| run.tables[0][0][at(name)].clone();
            assert_eq!(cell("wall_ns"), Value::Int(474), "by the device's clock");
            cell("tokens_per_second")
        };
        assert!(matches!(rate(20), Value::Real(_)));
        assert_eq!(rate(463), Value::Null);
    }

    #[test]
    fn what_a_file_was_imported_with_makes_another_run_and_its_program_is_an_engine() {
        let imported = |program: &str, name: &str| {
            let mut profile = Profile::empty(ClockInfo::default());
            profile.created = "2026-11-29T10:00:00Z".to_owned();
            let program = Some(program.to_owned());
            profile.imported = Some(Imported { program, ..Imported::default() });
            profile.devices = vec![device(name, Vec::new())];
            rows(Some(&profile), None, &facts()).expect("it has a time")
        };
        let [a, again, b] = ["GPU", "GPU", "another"].map(|name| imported("x", name).run_id);
        assert!(a == again && a != b);
        for (program, engine, version) in [
            ("PyTorch's profiler", "PyTorch", None),
            ("Nsight Systems 2026.2.1.210", "Nsight Systems", Some("2026.2.1.210")),
            ("rocprofv3", "rocprofv3", None),
        ] {
            let run = imported(program, "GPU");
            let cell = |name: &str| &run.tables[6][0][RUNS.column(name).expect("a column")];
            assert_eq!(*cell("engine"), Value::Text(engine.to_owned()));
            let version = version.map_or(Value::Null, |text| Value::Text(text.to_owned()));
            assert_eq!(*cell("engine_version"), version, "{program}");
        }
    }
}
