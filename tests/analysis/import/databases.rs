//! Databases: the export of Nsight Systems, and rocprofv3's rocpd. `nsight.sql` and `rocpd.sql` were made by
//! hand, with round times, and become databases here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use brickscope::{NameKind, Phase, Profile};
use brickscope_analysis::view;
use brickscope_formats::import::{ImportError, Options, is_database, read_database};
use brickscope_profile::LaunchKind;
use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{passes_of, sums};

const NSIGHT: &str = include_str!("../../data/import/nsight.sql");
const ROCPD: &str = include_str!("../../data/import/rocpd.sql");

/// A database of what SQL makes, in a folder of its own.
fn database(sql: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a temporary folder");
    // A name that needs care in an address.
    let path = folder.path().join("a b?#%.sqlite");
    let connection = Connection::open(&path).expect("a database");
    connection.execute_batch(sql).expect("SQL");
    connection.close().expect("it is written");
    (folder, path)
}

pub(super) fn import(sql: &str, options: &Options) -> Result<Profile, ImportError> {
    let (_folder, path) = database(sql);
    let profile = read_database(&path, options)?;
    assert_eq!(profile.check(), Ok(()));
    let json = profile.to_json();
    let back = Profile::from_json(&json, Path::new("profile.json")).expect("it was written");
    assert_eq!(back.to_json(), json);
    Ok(profile)
}

fn imported(sql: &str) -> Profile {
    import(sql, &passes_of("decode")).expect("it can be read")
}

fn refused(sql: &str) -> String {
    import(sql, &Options::default()).expect_err("it should be refused").to_string()
}

/// Count and nanoseconds of each kernel of a stream.
fn kernels(profile: &Profile, device: usize, stream: usize) -> BTreeMap<String, (u64, u64)> {
    let stream = profile.on_device(device, stream).expect("a stream");
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for span in &stream.spans {
        let name = span.name.and_then(|name| stream.names.get(usize::from(name)));
        if let Some(name) = name.filter(|name| name.kind == NameKind::Kernel) {
            let sum = sums.entry(name.name.clone()).or_default();
            *sum = (sum.0 + 1, sum.1 + span.duration_ns);
        }
    }
    sums
}

fn expected(sums: &[(&str, u64, u64)]) -> BTreeMap<String, (u64, u64)> {
    sums.iter().map(|&(name, count, nanos)| (name.to_owned(), (count, nanos))).collect()
}

/// What a profile says of its file.
fn lacks(profile: &Profile) -> Vec<&str> {
    let imported = profile.imported.iter();
    imported.flat_map(|imported| &imported.lacks).map(|lack| &*lack.reason).collect()
}

const GEMM: &str = "void gemm<(int)64>(float *, int)";
const ELEMENTWISE: &str = "void vectorized_elementwise_kernel<(int)4>(int, T2)";

#[test]
fn kernels_of_nsight_are_to_the_nanosecond_on_the_gpu_that_their_process_means() {
    let profile = imported(NSIGHT);
    let devices: Vec<_> = profile
        .devices
        .iter()
        .map(|of| (&*of.name, &*of.api, &*of.driver, &*of.streams[0].name, of.streams.len()))
        .collect();
    let driver = "driver for CUDA 13.0";
    assert_eq!(
        devices,
        [
            ("NVIDIA H100 PCIe", "cuda", driver, "stream 7", 1),
            ("NVIDIA H200", "cuda", driver, "stream 7", 1)
        ]
    );
    let first = [
        (GEMM, 2, 1_900),
        (ELEMENTWISE, 1, 300),
        ("void flash_fwd_kernel<(int)128>(Params)", 2, 800),
        ("Memcpy HtoD (Pinned -> Device)", 1, 400),
        ("Memset (Device)", 1, 50),
        ("CUDA graph 5 (its kernels were not recorded)", 1, 1_000),
    ];
    assert_eq!(kernels(&profile, 0, 0), expected(&first));
    // A copy has the bytes that the file states.
    let mut totals = profile.devices[0].streams[0].totals.iter();
    let copy = totals.find(|total| total.stats.name.starts_with("Memcpy ")).expect("a copy");
    assert_eq!(copy.stats.total_bytes, 4_096);
    assert_eq!(kernels(&profile, 1, 0), expected(&[(GEMM, 1, 800), (ELEMENTWISE, 1, 100)]));
    let launch = profile.names.iter().find(|name| name.name == GEMM).expect("it is there");
    let launch = launch.device.as_ref().expect("it was launched on a device");
    assert_eq!((launch.grid, launch.block, launch.shared_mem), ((24, 1, 1), (256, 1, 1), 1_040));
    assert_eq!(profile.created, "2023-11-14T22:13:20Z");
    let imported = profile.imported.as_ref().expect("it is");
    assert_eq!(imported.format, "nsight");
    assert_eq!(imported.program.as_deref(), Some("Nsight Systems 2026.2.1.210"));
}

#[test]
fn ranges_of_nvtx_tell_layers_bricks_and_passes() {
    let profile = imported(NSIGHT);
    let decode = profile.phase(Phase::Decode).expect("a pass");
    assert_eq!((decode.passes, decode.wall_ns), (1, 8_000));
    let gpu = profile.on_device(0, 0).expect("a stream");
    for (brick, count, nanos) in [
        ("QkvProjection", 1, 700),
        ("DownProjection", 1, 1_200),
        // By the operation that PyTorch named, and by the names of kernels.
        ("Elementwise", 1, 300),
        ("Copy", 2, 450),
        ("FlashAttention", 2, 800),
        ("CUDA graph 5 (its kernels were not recorded)", 1, 1_000),
    ] {
        assert_eq!(sums(&gpu, Some(Phase::Decode), brick), (count, nanos, nanos), "{brick}");
    }
    let of_layer = gpu.spans.iter().filter(|span| span.layer == Some(3) && span.parent.is_none());
    assert_eq!(of_layer.map(|span| span.duration_ns).sum::<u64>(), 1_900);
    let launches = &profile.devices[0].streams[0].launches;
    let replayed = launches.iter().filter(|launch| launch.kind == LaunchKind::Replayed).count();
    assert_eq!((replayed, launches.len()), (3, 8));
    // On the host, without the version of a call.
    assert_eq!(sums(&profile, Some(Phase::Decode), "WaitForDevice").1, 3_800);
    // Each module once, though it was marked twice.
    assert_eq!(sums(&profile, Some(Phase::Decode), "QkvProjection").0, 1);
}

#[test]
fn ranges_of_nvtx_tell_experts() {
    let sql = NSIGHT
        .replace("layers.3.self_attn.qkv_proj", "layers.3.mlp.experts.4.gate_proj")
        .replace("layers.3.mlp.down_proj", "layers.3.mlp.experts.17.down_proj");
    let profile = imported(&sql);
    let [of] = &profile.experts[..] else { panic!("{:?}", profile.experts) };
    assert_eq!((of.phase, of.layer, of.timed_passes), (Phase::Decode, Some(3), 1));
    let times: Vec<_> = of.times.iter().map(|of| (of.expert, of.ns, of.kernels)).collect();
    assert_eq!(times, [(4, 700, 1), (17, 1_200, 1)]);
    assert_eq!(imported(NSIGHT).experts, []);
}

#[test]
fn what_is_not_there_is_told() {
    let profile = imported(NSIGHT);
    let imported = profile.imported.as_ref().expect("it is");
    let of_nvtx = "ranges of NVTX that don't nest in their thread, or end in another one";
    let left_out = [("instants", 2), ("events that have no begin or no end", 1), (of_nvtx, 2)];
    assert_eq!(imported.left_out, left_out.map(|(why, count)| (why.to_owned(), count)));
    assert_eq!(imported.doubts, Vec::<String>::new());
    for part in ["--cuda-graph-trace=node", "the launch of 1 of 10 kernels and copies"] {
        assert!(lacks(&profile).iter().any(|lack| lack.contains(part)), "{part}");
    }
    // It is wrapped.
    let report = view::report(&profile).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(report.contains("(nsight, by Nsight Systems 2026.2.1.210)"), "{report}");
    // A launch of which no kernel is in the file, which had the same number as one of another process.
    let lost = "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start = 2000;";
    let doubts = self::imported(&format!("{NSIGHT}{lost}")).imported.expect("it is").doubts;
    assert_eq!(doubts.len(), 1);
    assert!(doubts[0].starts_with("1 of 6 launches have no kernel"), "{doubts:?}");
}

#[test]
fn streams_of_two_processes_on_one_gpu_are_two() {
    let profile = imported(&format!("{NSIGHT}DELETE FROM TARGET_INFO_CUDA_DEVICE;"));
    assert_eq!(profile.devices.len(), 1);
    let names: Vec<&str> = profile.devices[0].streams.iter().map(|stream| &*stream.name).collect();
    assert_eq!(names, ["stream 7 of process 100", "stream 7 of process 200"]);
    assert_eq!(kernels(&profile, 0, 1), expected(&[(GEMM, 1, 800), (ELEMENTWISE, 1, 100)]));
}

#[test]
fn old_tables_lack_columns() {
    let profile = import(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, name TEXT, correlationId INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
             (100, 350, 'my_gemm', 1), (400, 410, 'my_gemm', 2), (500, NULL, 'my_gemm', 3), (700, 600, 'my_gemm', 4);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
             start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, name TEXT
         );
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (50, 60, (5 << 24) + 6, 1, 'cudaLaunchKernel');",
        &Options::default(),
    );
    let profile = profile.expect("it can be read");
    assert_eq!(kernels(&profile, 0, 0), expected(&[("my_gemm", 2, 260)]));
    assert!(lacks(&profile).iter().any(|lack| lack.starts_with("the launch of 1 of 2 kernels")));
    let left_out = &profile.imported.as_ref().expect("it is").left_out;
    let of = |why: &str| left_out.iter().find(|(of, _)| of == why).map(|&(_, count)| count);
    assert_eq!(of("events that have no begin or no end"), Some(1));
    assert_eq!(of("events that end before they begin"), Some(1));
}

#[test]
fn rocpd_has_kernels_calls_and_markers() {
    let profile = imported(ROCPD);
    let (device, gpu) = (&profile.devices[0], profile.on_device(0, 0).expect("a stream"));
    assert_eq!(
        (&*device.name, &*device.api, &*device.streams[0].name, profile.devices.len()),
        ("AMD Instinct MI300X", "hip", "stream 3", 1)
    );
    let all = [
        ("void gemm<64>(float*)", 1, 700),
        ("Cijk_Ailk_Bljk_MT64.kd", 2, 400),
        ("Memcpy HtoD", 1, 250),
    ];
    assert_eq!(kernels(&profile, 0, 0), expected(&all));
    for (brick, nanos) in [("DownProjection", 700), ("MatMul", 300), ("Copy", 250)] {
        assert_eq!(sums(&gpu, Some(Phase::Decode), brick), (1, nanos, nanos), "{brick}");
    }
    assert!(gpu.spans.iter().any(|span| span.layer == Some(2) && span.duration_ns == 700));
    let gemm = profile.names.iter().find(|name| name.name.starts_with("void gemm"));
    let launch = gemm.and_then(|name| name.device.as_ref()).expect("it was launched");
    // The file has the grid in threads.
    assert_eq!((launch.grid, launch.block, launch.shared_mem), ((4, 1, 1), (256, 1, 1), 1_024));
    assert!(lacks(&profile).iter().any(|lack| lack.starts_with("the launch of 1 of 4 kernels")));
    let json = profile.to_json();
    assert!(json.contains("rocprofv3") && !json.contains("secret"), "{json}");
}

#[test]
fn rocpd_may_keep_times_and_places_in_tables_of_their_own() {
    let (regions, kernels_of) = ("rocpd_region_00ab", "rocpd_kernel_dispatch_00ab");
    let mut sql = format!(
        "{ROCPD}
         CREATE TABLE rocpd_timestamp_00ab (id INTEGER PRIMARY KEY, value INTEGER);
         CREATE TABLE rocpd_track_00ab (
             id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, agent_id INTEGER, queue_id INTEGER, stream_id INTEGER
         );
         INSERT INTO rocpd_track_00ab VALUES (1, 1, 1, NULL, NULL, NULL), (2, 1, 1, 2, 1, 3);"
    );
    // Each time's number is the time itself and a million.
    for (table, track) in [(regions, 1), (kernels_of, 2), ("rocpd_memory_copy_00ab", 2)] {
        sql += &format!(
            "INSERT OR IGNORE INTO rocpd_timestamp_00ab SELECT start + 1000000, start FROM {table};
             INSERT OR IGNORE INTO rocpd_timestamp_00ab SELECT end + 1000000, end FROM {table};
             ALTER TABLE {table} RENAME COLUMN start TO start_id;
             ALTER TABLE {table} RENAME COLUMN end TO end_id;
             ALTER TABLE {table} RENAME COLUMN tid TO track_id;
             ALTER TABLE {table} DROP COLUMN pid;
             UPDATE {table} SET start_id = start_id + 1000000, end_id = end_id + 1000000, track_id = {track};"
        );
    }
    sql += &format!(
        "ALTER TABLE {kernels_of} DROP COLUMN agent_id; ALTER TABLE {kernels_of} DROP COLUMN queue_id;
         ALTER TABLE {kernels_of} DROP COLUMN stream_id;"
    );
    let (old, new) = (imported(ROCPD), imported(&sql));
    assert_eq!(kernels(&old, 0, 0), kernels(&new, 0, 0));
    assert_eq!(old.devices[0].streams[0].name, new.devices[0].streams[0].name);
    assert_eq!((old.spans, old.passes), (new.spans, new.passes));
}

#[test]
fn other_databases_are_named() {
    for (sql, says) in [
        ("CREATE TABLE a (b); DROP TABLE a;", "is a database (SQLite) without a table"),
        ("CREATE TABLE songs (name TEXT);", "its tables are `songs`"),
        ("CREATE TABLE StringIds (id INTEGER, value TEXT);", "has no kernel, call or range"),
        ("CREATE TABLE rocpd_region_1 (id INTEGER);", "has no kernel, call or range"),
    ] {
        let said = refused(sql);
        assert!(said.contains(says), "{sql}: {said}");
    }
    let nothing = import(NSIGHT, &passes_of("nothing")).expect_err("no such range").to_string();
    assert!(
        nothing.contains("has no event `nothing`") && nothing.contains("`decode`"),
        "{nothing}"
    );
    let rows = Options { rows: vec![1], ..Options::default() };
    let said = import(NSIGHT, &rows).expect_err("there are no tests").to_string();
    assert!(said.contains("a choice of rows is for files of llama-bench"), "{said}");
}

#[test]
fn a_database_that_breaks_off_or_is_none_is_an_error_and_stays_as_it_is() {
    let (folder, path) = database(NSIGHT);
    let whole = std::fs::read(&path).expect("it was written");
    assert!(is_database(&whole) && !is_database(&whole[1..]));
    assert!(read_database(&path, &Options::default()).is_ok());
    for end in [0, 50, 600, whole.len() / 2, whole.len() - 512] {
        std::fs::write(&path, &whole[..end]).expect("it is written");
        let said =
            read_database(&path, &Options::default()).expect_err("it breaks off").to_string();
        assert!(said.contains("is a database (SQLite)"), "{end}: {said}");
        assert_eq!(std::fs::read(&path).expect("it is there"), &whole[..end]);
    }
    std::fs::write(
        &path,
        "some text, which is long enough to be a header of a database".repeat(20),
    )
    .expect("it is written");
    let said = read_database(&path, &Options::default()).expect_err("it is text").to_string();
    assert!(said.contains("file is not a database"), "{said}");
    // Nothing was made beside it.
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

/// How many of what begins so are left out.
fn left_out(profile: &Profile, begin: &str) -> u64 {
    let left_out = profile.imported.iter().flat_map(|imported| &imported.left_out);
    left_out.filter(|(what, _)| what.starts_with(begin)).map(|(_, count)| count).sum()
}

#[test]
fn tables_that_share_their_pages_are_read_once() {
    let shared = format!(
        "{ROCPD}
         PRAGMA writable_schema = ON;
         INSERT INTO sqlite_master
             SELECT type, name || n, name || n, rootpage, replace(sql, name, name || n)
             FROM sqlite_master, (SELECT 1 AS n UNION SELECT 2) WHERE name = 'rocpd_region_00ab';"
    );
    let (plain, shared) = (imported(ROCPD), imported(&shared));
    assert_eq!(left_out(&shared, "tables that lie where another one does"), 2);
    assert_eq!((&plain.spans, &plain.lanes), (&shared.spans, &shared.lanes));
}

#[test]
fn tables_beyond_the_most_are_counted() {
    let more: String = (0..4_100).map(|nth| format!("CREATE TABLE t{nth} (a);\n")).collect();
    let (plain, many) = (imported(ROCPD), imported(&format!("{ROCPD}BEGIN;\n{more}COMMIT;\n")));
    // Its own are nine.
    assert_eq!(left_out(&many, "tables beyond the first 4096"), 9 + 4_100 - 4_096);
    assert_eq!(left_out(&plain, "tables"), 0);
    assert_eq!(plain.spans, many.spans);
}

#[test]
fn what_is_not_yet_in_the_file_is_told() {
    let (_folder, path) = database(ROCPD);
    let mut wal = path.clone().into_os_string();
    wal.push("-wal");
    let read = || read_database(&path, &Options::default());
    // It is empty while nothing was written since.
    for (bytes, count) in [("", 0), ("rows that only SQLite finds", 1)] {
        std::fs::write(&wal, bytes).expect("it is written");
        assert_eq!(left_out(&read().expect("it can be read"), "what is in "), count);
    }
    for sql in ["CREATE TABLE a (b); DROP TABLE a;", "CREATE TABLE rocpd_region_1 (id INTEGER);"] {
        let (_folder, path) = database(sql);
        let mut wal = path.clone().into_os_string();
        wal.push("-wal");
        std::fs::write(&wal, "rows that only SQLite finds").expect("it is written");
        let said = read_database(&path, &Options::default()).expect_err("it is empty").to_string();
        assert!(said.contains("-wal") && said.contains("wal_checkpoint"), "{said}");
    }
}

/// The bytes of both databases.
fn bytes() -> &'static [Vec<u8>; 2] {
    static BYTES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    BYTES.get_or_init(|| {
        [NSIGHT, ROCPD].map(|sql| {
            let (_folder, path) = database(sql);
            std::fs::read(path).expect("it was written")
        })
    })
}

proptest! {
    #![proptest_config(brickscope_testing::cases(256))]

    #[test]
    fn a_damaged_database_is_a_profile_or_an_error(
        which in 0_usize..2,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        is_of_steps in any::<bool>(),
    ) {
        let mut bytes = bytes()[which].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().join("a.sqlite");
        std::fs::write(&path, bytes).expect("it is written");
        let options = if is_of_steps { Options::default() } else { passes_of("decode") };
        match read_database(&path, &options) {
            Ok(profile) => {
                prop_assert_eq!(profile.check(), Ok(()));
                prop_assert!(view::report(&profile).contains("Imported from"));
            }
            Err(error) => prop_assert!(error.to_string().starts_with(&path.display().to_string())),
        }
    }
}
