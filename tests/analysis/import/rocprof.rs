//! Results of rocprofv3. The files were made by hand, in the form of its source and of a public file of
//! MI350X, with round times.

use brickscope::{NameKind, Phase, Profile};
use brickscope_analysis::view;
use brickscope_formats::import::{Format, Options, format_of};

use super::{imported, passes_of, refused, sums};

pub(crate) const JSON: &str = include_str!("../../data/import/rocprofv3.json");
pub(crate) const CSV: &str = include_str!("../../data/import/rocprofv3_kernel_trace.csv");

/// Stream, kernel, layer and nanoseconds of what a device did.
fn kernels(profile: &Profile, device: usize) -> Vec<(String, String, Option<u16>, u64)> {
    let mut kernels = Vec::new();
    for stream in &profile.devices[device].streams {
        for span in &stream.spans {
            let name = &profile.names[usize::from(span.name.expect("a name"))];
            if name.kind == NameKind::Kernel {
                kernels.push((
                    stream.name.clone(),
                    name.name.clone(),
                    span.layer,
                    span.duration_ns,
                ));
            }
        }
    }
    kernels
}

fn expected() -> Vec<(String, String, Option<u16>, u64)> {
    [
        ("stream 1", "void gemm<float, 4>(float*, int)", Some(0), 5_000),
        ("stream 1", "Cijk_Alik_Bljk_MT64x32", Some(1), 12_500),
        ("stream 1", "Memcpy DtoH (Device -> Host)", None, 2_000),
        ("stream 2", "rms_norm_f32", None, 1_500),
        ("stream 2", "kernel 9, whose name isn't stated", None, 1_000),
    ]
    .map(|(stream, name, layer, ns)| (stream.to_owned(), name.to_owned(), layer, ns))
    .to_vec()
}

fn left_out(profile: &Profile) -> Vec<(&str, u64)> {
    let imported = profile.imported.as_ref().expect("of a file");
    imported.left_out.iter().map(|(why, count)| (why.as_str(), *count)).collect()
}

fn doubts(profile: &Profile) -> &[String] {
    &profile.imported.as_ref().expect("of a file").doubts
}

/// Changes what the file says of its process.
fn changed(change: impl FnOnce(&mut Vec<serde_json::Value>)) -> String {
    let mut file: serde_json::Value = serde_json::from_str(JSON).expect("JSON");
    change(file["rocprofiler-sdk-tool"].as_array_mut().expect("an array"));
    file.to_string()
}

#[test]
fn what_devices_did_is_tied_to_calls_and_ranges() {
    assert_eq!(format_of(JSON), Some(Format::Rocprof));
    let profile = imported(JSON, Format::Rocprof);
    assert_eq!(profile.devices.len(), 1);
    let device = &profile.devices[0];
    assert_eq!((&*device.name, &*device.api), ("AMD Instinct MI300X", "hip"));
    assert_eq!(kernels(&profile, 0), expected());
    let brick = |stream: usize, name: &str| {
        let total = device.streams[stream].totals.iter().find(|total| total.stats.name == name);
        total.map(|total| (total.stats.count, total.stats.exclusive_ns))
    };
    // By their ranges, by the kind of work, and inside of a graph by the kernel's name.
    assert_eq!(brick(0, "QkvProjection"), Some((1, 5_000)));
    assert_eq!(brick(0, "DownProjection"), Some((1, 12_500)));
    assert_eq!(brick(0, "Copy"), Some((1, 2_000)));
    assert_eq!(brick(1, "RmsNorm"), Some((1, 1_500)));
    let gemm = profile.names.iter().find(|name| name.name.starts_with("void gemm"));
    let launch = gemm.and_then(|name| name.device.as_ref()).expect("it is stated");
    assert_eq!((launch.grid, launch.block, launch.shared_mem), ((4, 1, 1), (256, 1, 1), 1_024));
    // The kernel has the number of the call of HSA; HIP's around it launched it. The first event begins at
    // 990 µs.
    assert_eq!(device.streams[0].launches[0].issued_ns, 22_000);
    assert!(doubts(&profile).is_empty());
    assert_eq!(
        left_out(&profile),
        [
            ("events that can't be read, such as event 5: missing field `end_timestamp`", 1),
            ("instants", 1),
            ("records of other kinds, such as allocations of memory", 1),
        ]
    );
    let imported = profile.imported.as_ref().expect("of a file");
    assert_eq!(imported.program.as_deref(), Some("rocprofv3"));
    let unlaunched = "the launch of 1 of 5 kernels and copies";
    assert!(imported.lacks.iter().any(|lack| lack.reason.starts_with(unlaunched)));
    assert!(view::report(&profile).contains("Imported from a.file (rocprof"));
}

#[test]
fn calls_and_ranges_are_the_hosts_time() {
    let profile = imported(JSON, Format::Rocprof);
    // Two launches of kernels and one of a graph; 1 µs of the first one is a call of HSA.
    assert_eq!(sums(&profile, None, "Launch"), (3, 18_000, 17_000));
    assert_eq!(sums(&profile, None, "hsa_signal_store_screlease"), (1, 1_000, 1_000));
    assert_eq!(sums(&profile, None, "QkvProjection"), (1, 20_000, 16_000));
    assert_eq!(sums(&profile, None, "WaitForDevice"), (1, 19_000, 19_000));
    // A range of the process is in none of its threads.
    assert_eq!(sums(&profile, None, "serving"), (1, 140_000, 140_000));
}

#[test]
fn a_range_can_be_a_pass() {
    let profile = super::import(JSON, Format::Rocprof, &passes_of("decode")).expect("a pass");
    let decode = profile.phase(Phase::Decode).expect("a phase");
    assert_eq!((decode.passes, decode.wall_ns), (1, 100_000));
    let of_device = &profile.devices[0].streams[0].passes;
    assert_eq!(of_device.len(), 1);
    // From 1.020 to 1.077 ms.
    assert_eq!((of_device[0].wall_ns, of_device[0].attributed_ns), (57_000, 19_500));
    assert!(profile.devices[0].streams[1].passes.is_empty());
    // A call can be one too, and only the first of two.
    let graph = super::import(JSON, Format::Rocprof, &passes_of("hipGraph*")).expect("a pass");
    assert_eq!(graph.devices[0].streams[1].passes.len(), 1);
    let first = passes_of("hipLaunch*[1]");
    let first = super::import(JSON, Format::Rocprof, &first).expect("a pass");
    assert_eq!(first.phase(Phase::Decode).map(|phase| phase.wall_ns), Some(4_000));
    let said = refused(JSON, Format::Rocprof, &passes_of("forward"));
    assert!(said.contains("no event `forward`, which should be a decode pass; it has `"), "{said}");
    assert!(said.contains("`decode`"), "{said}");
}

#[test]
fn the_order_of_keys_and_a_missing_end_do_not_matter() {
    // Sorted by name, records come before what names them.
    let sorted = changed(|_| {});
    assert!(sorted.find("\"buffer_records\"") < sorted.find("\"kernel_symbols\""));
    assert_eq!(kernels(&imported(&sorted, Format::Rocprof), 0), expected());
    let alone = changed(|processes| processes.truncate(1));
    let alone = alone.replacen("[{", "{", 1);
    let alone = alone.strip_suffix("]}").expect("the end").to_owned() + "}";
    assert_eq!(kernels(&imported(&alone, Format::Rocprof), 0), expected());
    // Without the copies, which come last.
    let cut = &JSON[..JSON.find("\"memory_copy\"").expect("they are there")];
    let profile = imported(cut, Format::Rocprof);
    let all: Vec<_> =
        expected().into_iter().filter(|kernel| !kernel.1.contains("Memcpy")).collect();
    assert_eq!(kernels(&profile, 0), all);
    assert!(left_out(&profile).contains(&("the rest of the file, which is truncated", 1)));
}

#[test]
fn several_processes_keep_their_calls_and_streams_apart() {
    let of_other_host = changed(|processes| {
        let mut other = processes[0].clone();
        other["metadata"]["node"]["hostname"] = "node2".into();
        processes.push(other);
    });
    let profile = imported(&of_other_host, Format::Rocprof);
    assert_eq!(profile.devices.len(), 2);
    assert_eq!((kernels(&profile, 0), kernels(&profile, 1)), (expected(), expected()));
    assert!(doubts(&profile).is_empty());
    let names: Vec<_> = profile.lanes.iter().filter_map(|lane| lane.name.clone()).collect();
    assert!(names.iter().all(|name| name.starts_with("serve 4100")), "{names:?}");

    let of_one_host = changed(|processes| {
        let mut other = processes[0].clone();
        other["metadata"]["pid"] = 4_200.into();
        processes.push(other);
    });
    let profile = imported(&of_one_host, Format::Rocprof);
    assert_eq!(profile.devices.len(), 1);
    let streams: Vec<&str> = profile.devices[0].streams.iter().map(|of| &*of.name).collect();
    assert_eq!(streams, ["stream 1", "stream 2", "stream 3", "stream 4"]);
    let launch = &profile.devices[0].streams[2].launches[0];
    assert_eq!(launch.issued_ns, 22_000);
}

#[test]
fn without_numbers_of_streams_queues_tell_work_apart() {
    let queues = JSON.replace("\"stream_id\": {\"handle\": 1}", "\"stream_id\": {\"handle\": 0}");
    let queues = queues.replace("\"stream_id\": {\"handle\": 2}", "\"stream_id\": {\"handle\": 0}");
    assert_ne!(queues, JSON);
    let profile = imported(&queues, Format::Rocprof);
    let streams: Vec<&str> = profile.devices[0].streams.iter().map(|of| &*of.name).collect();
    assert_eq!(streams, ["stream 0", "stream 16", "stream 17"]);
}

#[test]
fn counters_are_left_out_and_make_times_doubtful() {
    let with =
        JSON.replace("\"counter_collection\": []", "\"counter_collection\": [{}, {\"a\": 1}]");
    assert_ne!(with, JSON);
    let profile = imported(&with, Format::Rocprof);
    let why = "kernels with counters, of which only the counters are stated there";
    assert!(left_out(&profile).contains(&(why, 2)));
    assert!(doubts(&profile)[0].starts_with("counters were collected"));
    let alone =
        "{\"rocprofiler-sdk-tool\": [{\"callback_records\": {\"counter_collection\": [{}]}}]}";
    let said = refused(alone, Format::Rocprof, &Options::default());
    assert!(said.contains("has counters of kernels, and not when they ran"), "{said}");
    let nothing = "{\"rocprofiler-sdk-tool\": []}";
    assert_eq!(format_of(nothing), Some(Format::Rocprof));
    let said = refused(nothing, Format::Rocprof, &Options::default());
    assert!(said.contains("has no kernel") && said.contains("--kernel-trace"), "{said}");
}

#[test]
fn a_table_of_kernels_is_read_alone() {
    for text in [CSV.to_owned(), CSV.replace('\n', "\r\n")] {
        assert_eq!(format_of(&text), Some(Format::Rocprof));
        let profile = imported(&text, Format::Rocprof);
        let gemm = "void gemm<float, 4>(float*, int)";
        let own = |stream: &str, name: &str, ns: u64| {
            (stream.to_owned(), name.to_owned(), None::<u16>, ns)
        };
        assert_eq!(
            kernels(&profile, 0),
            [
                own("stream 7", gemm, 5_000),
                own("stream 7", "rms_norm_f32", 12_500),
                own("stream 8", gemm, 1_000),
            ]
        );
        assert_eq!(profile.devices[0].name, "device 2, whose name isn't stated");
        // 1,000 threads in blocks of 256.
        let grids = profile.names.iter().filter(|name| name.name == gemm);
        let grids: Vec<_> =
            grids.filter_map(|name| name.device.as_ref()).map(|of| of.grid).collect();
        assert_eq!(grids, [(4, 1, 1)]);
        let odd = "events that can't be read, such as event 5: `late` is no number of nanoseconds";
        assert_eq!(left_out(&profile), [(odd, 1)]);
    }
    // Kernels are no passes: neither is one asked for, nor are their names listed.
    let profile = imported(CSV, Format::Rocprof);
    let how = view::host_to_record(&profile).expect("it has nothing of the host");
    assert!(how.contains("--hip-trace --marker-trace"), "{how}");
    assert_eq!(view::host_to_record(&imported(JSON, Format::Rocprof)), None);
    // No screen advises what the file can't have.
    let said = view::findings(&profile, None).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("record what the host did") && !said.contains("--decode"), "{said}");
    let said = refused(CSV, Format::Rocprof, &passes_of("void gemm*"));
    assert!(said.contains("`void gemm*` is only kernels or copies of a device"), "{said}");
    assert!(said.contains("record ranges or calls of the host") && said.len() < 250, "{said}");
    let counters =
        "\"Dispatch_Id\",\"Kernel_Name\",\"Counter_Name\",\"Start_Timestamp\",\"End_Timestamp\"\n";
    let said = refused(counters, Format::Rocprof, &Options::default());
    assert!(said.contains("has counters of kernels, a line for each"), "{said}");
    let said = refused("Kernel_Name,Start_Timestamp\n", Format::Rocprof, &Options::default());
    assert!(said.contains("line 1: there is no column `End_Timestamp`"), "{said}");
}

#[test]
fn a_table_without_streams_tells_kernels_apart_by_queues() {
    let streams = |text: &str| -> Vec<String> {
        let profile = imported(text, Format::Rocprof);
        profile.devices[0].streams.iter().map(|of| of.name.clone()).collect()
    };
    // Versions that don't know streams state 0 for all.
    let without = CSV.replace(",1,7,4100,", ",1,0,4100,").replace(",2,8,4100,", ",2,0,4100,");
    assert_eq!(streams(&without), ["stream 1", "stream 2"]);
    assert_eq!(streams(&CSV.replace(",2,8,4100,", ",2,0,4100,")), ["stream 0", "stream 7"]);
    assert_eq!(streams(&CSV.replace(",1,7,4100,", ",1,0,4100,")), ["stream 0", "stream 8"]);
    // One queue is no reason; what runs at once there has rows of its own.
    let one = streams(&without.replace(",2,0,4100,", ",1,0,4100,"));
    assert_eq!(one, ["stream 0", "stream 0b"]);
}

#[test]
fn a_line_with_nothing_in_it_is_no_event() {
    let profile = imported(CSV, Format::Rocprof);
    for text in [format!("{CSV}\n \r\n"), CSV.replacen("\"KERNEL", "\n\"KERNEL", 1)] {
        let with = imported(&text, Format::Rocprof);
        assert_eq!(kernels(&with, 0), kernels(&profile, 0));
        let [(why, 1)] = left_out(&with)[..] else { panic!("{:?}", left_out(&with)) };
        assert!(why.ends_with("`late` is no number of nanoseconds"), "{why}");
    }
}

#[test]
fn a_file_of_which_no_record_can_be_read_says_why() {
    let lines: Vec<&str> = CSV.lines().collect();
    let table = [lines[0], lines[4]].join("\n");
    let said = refused(&table, Format::Rocprof, &Options::default());
    assert_eq!(said, "a.file, record 2: `late` is no number of nanoseconds");
    let json = "{\"rocprofiler-sdk-tool\": [{\"buffer_records\": {\"kernel_dispatch\": [{\"kind\": 11}]}}]}";
    let said = refused(json, Format::Rocprof, &Options::default());
    assert!(said.starts_with("a.file, record 1: missing field `"), "{said}");
}
