//! Files that are no text, or that another program makes a file of a known format from: what they are, and what to do.

use std::path::Path;

use brickscope_profile::load;

/// The text of a file. Besides UTF-8 it may be UTF-16, which PowerShell's `>` writes. A character that the end of the
/// file breaks off is left out.
///
/// # Errors
///
/// The first byte that is of no character.
pub fn decoded(bytes: Vec<u8>) -> Result<String, usize> {
    if let Some((is_big, from)) = utf_16(&bytes) {
        let unit = |pair: &[u8]| {
            let pair = [pair[0], pair[1]];
            if is_big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
        };
        let units = bytes[from..].chunks_exact(2).map(unit);
        let mut text = String::with_capacity(bytes.len() / 2);
        let mut at = from;
        let mut chars = char::decode_utf16(units).peekable();
        while let Some(c) = chars.next() {
            match c {
                Ok(c) => {
                    text.push(c);
                    at += 2 * c.len_utf16();
                }
                // Half of a pair, at the end.
                Err(_) if chars.peek().is_none() => break,
                Err(_) => return Err(at),
            }
        }
        return Ok(text);
    }
    String::from_utf8(bytes).or_else(|error| {
        let fault = error.utf8_error();
        let mut bytes = error.into_bytes();
        match fault.error_len() {
            None if fault.valid_up_to() > 0 => {
                bytes.truncate(fault.valid_up_to());
                String::from_utf8(bytes).map_err(|error| error.utf8_error().valid_up_to())
            }
            _ if bytes[fault.valid_up_to().saturating_sub(1)..].starts_with(LATIN_1_SIGN) => {
                decoded(with_utf_8_sign(&bytes)).map_err(|_| fault.valid_up_to())
            }
            _ => Err(fault.valid_up_to()),
        }
    })
}

/// `±` between spaces, as Latin-1 has it. In UTF-8 the byte is never the first of a character.
const LATIN_1_SIGN: &[u8] = b" \xb1 ";

/// Some editors write so the one sign in a table of llama-bench that isn't ASCII.
fn with_utf_8_sign(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let before = at.saturating_sub(1);
        match *byte == LATIN_1_SIGN[1] && bytes[before..].starts_with(LATIN_1_SIGN) {
            true => text.extend_from_slice("±".as_bytes()),
            false => text.push(*byte),
        }
    }
    text
}

/// Whether it is UTF-16.
pub(super) fn is_utf_16(bytes: &[u8]) -> bool {
    utf_16(bytes).is_some()
}

/// Whether UTF-16 has its high byte first, and where the text begins; `None` if it's none.
fn utf_16(bytes: &[u8]) -> Option<(bool, usize)> {
    match bytes {
        [0xff, 0xfe, ..] => Some((false, 2)),
        [0xfe, 0xff, ..] => Some((true, 2)),
        // Without a mark, of which all that is read here begins with two characters of ASCII.
        [1..=0x7f, 0, 1..=0x7f, 0, ..] => Some((false, 0)),
        [0, 1..=0x7f, 0, 1..=0x7f, ..] => Some((true, 0)),
        _ => None,
    }
}

/// What is said of a database by a build that can't read it.
pub(super) const NO_SQLITE: &str = "is a database (SQLite), as of Nsight Systems or rocprofv3, which this build \
                                    can't read: `cargo install brickscope-cli --features sqlite` makes one that \
                                    can";

/// What a file is that can't be read, and what to do instead, as a sentence without its subject; `None` if that isn't
/// known. `bytes` may be its beginning.
#[must_use]
pub fn told(path: &Path, bytes: &[u8]) -> Option<&'static str> {
    const NSYS: &str = "is a report of Nsight Systems in its own format: `nsys export --type sqlite FILE` makes a \
                        database of it (.sqlite), which can be read";
    const NSYS_STATS: &str = "is what `nsys stats` prints, sums without times: `nsys export --type sqlite \
                              FILE.nsys-rep` makes a database (.sqlite), which can be read";
    const NCU: &str = "is a report of Nsight Compute, which measures kernels one at a time, many times over: it has no \
                       time of a run; record a trace with torch.profiler";
    const ROCPROF: &str = "is of an earlier rocprof, which can't be read: `rocprofv3 --kernel-trace --hip-trace \
                           --output-format json` writes what can";
    const SUMS: &str = "is a table of rocprof without the times of single kernels, which can't be read: give its trace of \
                        kernels (`*_kernel_trace.csv`), or what `rocprofv3 --kernel-trace --hip-trace --output-format json` \
                        writes";
    const PERFETTO: &str = "is a trace in Perfetto's binary format, which can't be read: `traceconv json FILE trace.json` \
                            makes what can, and `rocprofv3 --output-format json` writes more of the same run";
    const XSPACE: &str = "is a profile of XLA (XSpace, `.xplane.pb`), which can't be read: give the `.trace.json.gz` beside it, \
                          which `jax.profiler.start_trace(DIR, create_perfetto_trace=True)` writes, too";
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let begins = |start: &[u8]| bytes.starts_with(start);
    if begins(load::POINTER) {
        return Some(load::POINTER_IS);
    }
    if begins(b"GGUF") {
        return None;
    }
    if begins(b"PERFILE2") {
        return Some("is a recording of perf: `brickscope flamegraph` reads it");
    }
    if name.ends_with(".ncu-rep") || begins(b"NVR\0") {
        return Some(NCU);
    }
    if name.ends_with(".nsys-rep") || name.ends_with(".qdrep") || name.ends_with(".qdstrm") {
        return Some(NSYS);
    }
    if super::is_database(bytes) {
        return Some(NO_SQLITE);
    }
    // Its planes are named by devices and the host. A text may begin with an empty line, have colours, and name them, too.
    let has = |word: &[u8]| bytes[..bytes.len().min(512)].windows(word.len()).any(|of| of == word);
    let is_no_text = |byte: &u8| byte.is_ascii_control() && !b"\t\r\n\x0c\x1b".contains(byte);
    let is_message = begins(b"\n") && bytes.iter().take(64).any(is_no_text);
    if name.ends_with(".xplane.pb") || is_message && (has(b"/host:") || has(b"/device:")) {
        return Some(XSPACE);
    }
    // Its first packet, whose length and fields are no text.
    let is_binary = bytes.iter().take(64).any(|&byte| byte < b'\t') && !is_utf_16(bytes);
    let is_packet = begins(b"\n") && is_binary;
    if is_packet || name.ends_with(".pftrace") || name.ends_with(".perfetto-trace") {
        return Some(PERFETTO);
    }
    if begins(b"PK\x03\x04")
        || begins(b"\x28\xb5\x2f\xfd")
        || begins(b"\xfd7zXZ\0")
        || begins(b"BZh")
    {
        return Some("is an archive: unpack it first; of packed files only those of gzip are read");
    }
    let start = &bytes[..bytes.len().min(1 << 16)];
    let text = String::from_utf8_lossy(start);
    let text = text.trim_start_matches('\u{feff}');
    let head = || text.lines().map(str::trim).filter(|line| !line.is_empty()).take(40);
    let is_sums = |line: &str| {
        !line.starts_with(['[', '{']) && line.contains("TotalDurationNs") && line.contains("Calls")
    };
    let is_other_table =
        |line: &str| line.contains("\"Start_Timestamp\"") && !line.contains("Kernel_Name");
    if head().any(is_sums) || head().take(1).any(is_other_table) {
        return Some(SUMS);
    }
    if head().any(|line| line.contains("KernelName") && line.contains("DurationNs")) {
        return Some(ROCPROF);
    }
    if head().any(|line| line.contains("\"Kernel Name\"") && line.contains("\"Metric Name\""))
        || text.contains("==PROF== ")
    {
        return Some(NCU);
    }
    if head().any(|line| line.contains("Total Time (ns)") && line.contains("Avg (ns)"))
        || head().any(|line| line.contains("Start (ns)") && line.contains("Duration (ns)"))
    {
        return Some(NSYS_STATS);
    }
    is_perf_script(text).then_some(
        "is what `perf script` prints: fold it, `perf script | inferno-collapse-perf > stacks.folded`, or give the \
         recording itself (perf.data) to `brickscope flamegraph`",
    )
}

/// What a text is that has none of the formats that are read, and what to do instead, as a sentence without its subject.
pub(super) fn told_of_text(text: &str) -> Option<&'static str> {
    const LLAMA: &str = "is a log of llama.cpp, which has sums of a run and no times of its parts: `llama-bench -o jsonl` writes \
                         what can be read, and `brickscope run PROGRAM` times the passes of such a program";
    const BATCHED: &str = "is what llama-batched-bench prints, which can't be read: `llama-bench -o jsonl` writes what can";
    const OLLAMA: &str = "is what `ollama run --verbose` prints, the sums of one answer, which can't be read: `brickscope profile \
                          MODEL.gguf` times the same model's layers";
    const SERVING: &str = "is the result of a benchmark of a server, which has its percentiles and no times of the engine, and \
                           can't be read: `brickscope load` asks a server likewise, and `requests` says what its clients waited \
                           for";
    const TENSORRT: &str = "is what trtexec writes with --exportProfile, means of layers, which can't be read: record it under \
                            `nsys profile`, and give its export (.sqlite)";
    const GRAPH: &str = "is PyTorch's execution trace, a graph without times: give what the profiler's `export_chrome_trace` writes";
    const METRICS: &str = "is a list of a server's metrics, sums without times of its parts, which can't be read: record a trace of the \
                           server";
    const SPEEDSCOPE: &str = "is a file of speedscope, which can't be read: give the folded stacks of the program that wrote it, \
                              such as `py-spy record --format raw`";
    const HTML: &str = "has a table in HTML, which can't be read: copy the table from the page, or the text that it was made from";
    const TWO: &str = "is a table of compare-llama-bench.py, of two builds: `brickscope compare` takes the two files that it was made \
                       from";
    let has = |words: &[&str]| words.iter().all(|word| text.contains(*word));
    [
        (BATCHED, &["S_PP t/s", "S_TG t/s"][..]),
        (HTML, &["<td", ">t/s<"]),
        (TWO, &["| Test ", " t/s ", " Speedup |"]),
        (LLAMA, &["prompt eval time =", "eval time ="]),
        (OLLAMA, &["prompt eval rate:", "eval duration:"]),
        (SERVING, &["Serving Benchmark Result"]),
        (SERVING, &["\"mean_ttft_ms\"", "\"request_throughput\""]),
        (TENSORRT, &["\"averageMs\"", "\"timeMs\""]),
        (GRAPH, &["\"schema\"", "\"nodes\"", "\"ctrl_deps\""]),
        (METRICS, &["# HELP ", "# TYPE "]),
        (SPEEDSCOPE, &["speedscope.app/file-format-schema.json"]),
    ]
    .into_iter()
    .find_map(|(is, words)| has(words).then_some(is))
}

/// Whether lines with a time and an event (`llama-bench 4242 1234.567890: 250000 cycles:u:`) come before lines with an
/// address and a function in the file that has it.
fn is_perf_script(text: &str) -> bool {
    let lines = || text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let is_frame = |line: &str| {
        let mut words = line.split_whitespace();
        let is_address = words
            .next()
            .is_some_and(|word| word.len() >= 4 && word.bytes().all(|b| b.is_ascii_hexdigit()));
        line.starts_with([' ', '\t']) && is_address && line.trim_end().ends_with(')')
    };
    let is_event = |line: &str| {
        let is_time = |word: &str| {
            let time = word.strip_suffix(':').and_then(|word| word.split_once('.'));
            let is_number =
                |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            time.is_some_and(|(whole, fraction)| is_number(whole) && is_number(fraction))
        };
        line.split_whitespace().any(is_time) && line.trim_end().trim_end_matches(')').contains(':')
    };
    lines().take(4).any(is_event) && lines().take(200).any(is_frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_in_each_encoding_and_cut_anywhere() {
        let text = "[{\"a\": \"é🦀\"}]";
        let utf_16 = |is_big: bool, mark: bool| -> Vec<u8> {
            let units = mark.then_some(0xfeff).into_iter().chain(text.encode_utf16());
            units
                .flat_map(|unit: u16| if is_big { unit.to_be_bytes() } else { unit.to_le_bytes() })
                .collect()
        };
        for bytes in [
            text.as_bytes().to_vec(),
            utf_16(false, true),
            utf_16(true, true),
            utf_16(false, false),
            utf_16(true, false),
        ] {
            assert_eq!(decoded(bytes.clone()).expect("text"), text);
            for cut in 4..bytes.len() {
                let part = decoded(bytes[..cut].to_vec()).expect("text");
                assert!(text.starts_with(&part) && part.len() + 8 > cut / 2, "{cut}: {part}");
            }
        }
        assert_eq!(decoded(b"ab\xffc".to_vec()), Err(2));
        assert_eq!(decoded(Vec::new()).expect("text"), "");
        assert_eq!(decoded(b"8 \xb1 1\n9 \xb1 1".to_vec()).expect("text"), "8 ± 1\n9 ± 1");
        assert_eq!(decoded(b"8 \xb1 1 \xff 1".to_vec()), Err(2));
        assert_eq!(decoded(b"\xb1 1".to_vec()), Err(0));
        assert_eq!(decoded(vec![0xff, 0xfe, 0, 0xd8, b'a', 0]), Err(2));
        // Behind a character of two units.
        for (mark, at) in [(true, 2 + 6), (false, 6 + 2)] {
            let start: &[u16] = if mark { &[0xfeff] } else { &[0x61] };
            let units = start.iter().copied().chain("b🦀".encode_utf16()).chain([0xdc00, 0x61]);
            let bytes: Vec<u8> = units.flat_map(u16::to_be_bytes).collect();
            assert_eq!(decoded(bytes), Err(at));
        }
    }

    #[test]
    fn files_of_other_programs_are_told() {
        let perf = "llama-bench 4242 [001] 1234.567890:     250000 cycles:u: \n\t    7f1a2b3c ggml_vec_dot+0x1 \
                    (/lib/libggml.so)\n\t    55d0 main (/bin/llama-bench)\n\n";
        for (name, bytes, is) in [
            (
                "a",
                &b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n"[..],
                "a pointer of Git LFS",
            ),
            ("a.nsys-rep", b"\0\0", "a report of Nsight Systems"),
            ("a.sqlite", b"SQLite format 3\0 CUPTI_ACTIVITY_KIND_KERNEL", "a database (SQLite)"),
            ("a.csv", b"Time (%),Total Time (ns),Instances,Avg (ns)\n", "what `nsys stats` prints"),
            ("a.ncu-rep", b"NVR\0", "a report of Nsight Compute"),
            ("a.csv", b"\"Index\",\"KernelName\",\"DurationNs\"\n", "of an earlier rocprof"),
            ("a.csv", b"\"Name\",\"Calls\",\"TotalDurationNs\"\n", "a table of rocprof without"),
            (
                "a.csv",
                b"\"Domain\",\"Function\",\"Start_Timestamp\"\n",
                "a table of rocprof without",
            ),
            ("perf.data", b"PERFILE2", "a recording of perf"),
            ("a.txt", perf.as_bytes(), "what `perf script` prints"),
            ("a.zip", b"PK\x03\x04", "an archive"),
            ("a.pftrace", b"", "a trace in Perfetto's binary format"),
            ("trace", b"\n\x06\x50\x01\x68\x01", "a trace in Perfetto's binary format"),
            ("a.xplane.pb", b"\n\x9d\x08\x12\x0e/host:metadata", "a profile of XLA"),
            ("profile", b"\n\x9d\x08\x12\x0d/device:GPU:0", "a profile of XLA"),
        ] {
            let said = told(Path::new(name), bytes).unwrap_or_default();
            assert!(said.starts_with(&format!("is {is}")), "{name}: {said}");
        }
        for none in [
            "",
            "main;a 3\n",
            "\n\tmain;a 3\n",
            "[{\"ph\": \"X\"}]",
            "\n[{\"ph\": \"X\", \"name\": \"/device:GPU:0\"}]",
            "a: b\n  c (d)\n",
            "{\"rocprofiler-sdk-tool\": []}",
            "\"Kind\",\"Kernel_Name\",\"Start_Timestamp\"\n",
        ] {
            assert_eq!(told(Path::new("a.txt"), none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn texts_of_other_programs_are_told() {
        for (text, is) in [
            (
                "llama_perf_context_print: prompt eval time = 9 ms / 4 tokens\n\
                 llama_perf_context_print:        eval time = 9 ms / 4 runs\n",
                "a log of llama.cpp",
            ),
            ("|  PP |  S_PP t/s |  T_TG s | S_TG t/s |\n", "what llama-batched-bench prints"),
            (
                "prompt eval rate:     5 tokens/s\neval duration:        4s\n",
                "what `ollama run --verbose` prints",
            ),
            (
                "| Model | Test   |   t/s master |   t/s pr |   Speedup |\n|:--|:--|--:|--:|--:|\n",
                "a table of compare-llama-bench.py",
            ),
            ("==== Serving Benchmark Result ====\n", "the result of a benchmark of a server"),
            (
                "{\"request_throughput\": 2.4, \"mean_ttft_ms\": 60.1}",
                "the result of a benchmark of a server",
            ),
            (
                "[{\"count\": 2}, {\"name\": \"a\", \"timeMs\": 2, \"averageMs\": 1}]",
                "what trtexec writes",
            ),
            (
                "{\"schema\": \"1.0.1\", \"nodes\": [{\"ctrl_deps\": 1}]}",
                "PyTorch's execution trace",
            ),
            ("# HELP a b\n# TYPE a counter\na 1\n", "a list of a server's metrics"),
            (
                "{\"$schema\": \"https://www.speedscope.app/file-format-schema.json\"}",
                "a file of speedscope",
            ),
        ] {
            let said = told_of_text(text).unwrap_or_default();
            assert!(said.starts_with(&format!("is {is}")), "{text}: {said}");
        }
        let said = told_of_text("<tr><th>test</th><th>t/s</th></tr>\n<tr><td>pp512</td></tr>");
        assert!(said.is_some_and(|said| said.starts_with("has a table in HTML")), "{said:?}");
        assert_eq!(told_of_text("some text"), None);
    }
}
