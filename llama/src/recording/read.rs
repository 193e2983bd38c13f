//! Reads the file of a recording. Its format is in `format.rs`.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::chosen::Chosen;
use super::events::{
    Asked, Context, Event, Graph, Library, Load, Pass, Recorded, SentPiece, ThreadLoad,
    ThreadShares,
};
use super::format::{
    HEADER, Head, INSIDE, MAGIC, NO_CPU, OfPass, Record, Sent, UNKNOWN, VERSION, halves,
};
use crate::Node;
use crate::node::original;

#[derive(Deserialize)]
struct Nodes {
    graph: u32,
    #[serde(default)]
    on: Option<String>,
    #[serde(default)]
    library: Option<u32>,
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Numbered {
    library: u32,
    #[serde(flatten)]
    of: Library,
}

#[derive(Deserialize)]
struct OfContext {
    context: u16,
    #[serde(flatten)]
    of: Context,
}

/// Why a file can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    path: PathBuf,
    /// The byte.
    at: usize,
    fault: String,
}

impl FileError {
    pub(super) fn new(path: &Path, at: usize, fault: String) -> Self {
        Self { path: path.to_owned(), at, fault }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, byte {}: {}", self.path.display(), self.at, self.fault)
    }
}

impl std::error::Error for FileError {}

impl Recorded {
    /// Reads the bytes of a file; `path` is for messages.
    ///
    /// # Errors
    ///
    /// If they are no such file, or one that is cut off or of another version, with the place. No bytes are a panic.
    pub fn read(bytes: &[u8], path: &Path) -> Result<Self, FileError> {
        let wrong = |at: usize, fault: String| FileError { path: path.to_owned(), at, fault };
        let header = bytes.get(..HEADER).filter(|header| header.starts_with(MAGIC));
        let header = words(
            header.ok_or_else(|| wrong(0, "not a recording of `brickscope run`".to_owned()))?,
        );
        if header[1] != VERSION {
            let fault = format!("version {}, and this program reads {VERSION}", header[1]);
            return Err(wrong(8, fault));
        }
        if header[5] > HEADER as u64 {
            // What was read has given its room back, so that zeros are there now.
            let fault = format!(
                "brickscope read it up to byte {} while it was written, and was ended: what it had kept and summed is gone",
                header[5]
            );
            return Err(wrong(40, fault));
        }
        let used = usize::try_from(header[2]).ok().filter(|&used| used >= HEADER);
        let used = used.and_then(|used| bytes.get(..used));
        let used = used.ok_or_else(|| {
            wrong(16, format!("it states {} bytes, and has {}", header[2], bytes.len()))
        })?;
        let mut recorded = Self {
            process: u32::try_from(header[3]).unwrap_or(0),
            refused: header[4],
            missed: header[6],
            ..Self::default()
        };
        let mut at = HEADER;
        let mut numbers = Vec::new();
        while at < used.len() {
            let (kind, len) = match used.get(at..at + 8) {
                Some(head) => (head[0], u32::from_le_bytes([head[4], head[5], head[6], head[7]])),
                None => return Err(wrong(at, "a record is cut off".to_owned())),
            };
            let body = at + 8;
            let record = used.get(body..).and_then(|rest| rest.get(..len as usize));
            let record =
                record.ok_or_else(|| wrong(at, format!("a record of {len} bytes is cut off")))?;
            recorded.add(kind, record, &mut numbers).map_err(|fault| wrong(at, fault))?;
            at = body + record.len().next_multiple_of(8);
        }
        Ok(recorded)
    }

    /// `numbers` are those of the sequences of the next pass.
    pub(super) fn add(
        &mut self,
        kind: u8,
        record: &[u8],
        numbers: &mut Vec<(u32, Option<u32>)>,
    ) -> Result<(), String> {
        let text = || String::from_utf8_lossy(record).into_owned();
        let values = || {
            if record.len().is_multiple_of(8) {
                Ok(words(record))
            } else {
                Err(format!("a record of kind {kind} has {} bytes", record.len()))
            }
        };
        let short = || format!("a record of kind {kind} has only {} bytes", record.len());
        let known =
            Record::of(kind).ok_or_else(|| format!("a record of an unknown kind, {kind}"))?;
        match known {
            Record::Graph => {
                let values = values()?;
                let ([head, begin, end], nodes) = values.split_first_chunk().ok_or_else(short)?;
                let Head { number, threads, of_thread } = Head::of(*head);
                self.events.push(Event::Graph(Graph {
                    number,
                    threads: u32::from(threads),
                    of_thread,
                    begin: *begin,
                    end: *end,
                    nodes: nodes.to_vec(),
                    ..Graph::default()
                }));
            }
            Record::Nodes => {
                let Nodes { graph, on, library, mut nodes } = serde_json::from_slice(record)
                    .map_err(|why| format!("the nodes of a graph: {why}"))?;
                for node in &mut nodes {
                    name_as_original(node);
                }
                self.graphs.insert(graph, nodes);
                self.backends.extend(on.map(|on| (graph, on)));
                self.copies.extend(library.map(|library| (graph, library)));
            }
            Record::Pass => {
                let values = values()?;
                let ([begin, end, tokens, position, status, of], sequences) =
                    values.split_first_chunk().ok_or_else(short)?;
                let known = |value: &u64| (*value as i64 >= 0).then_some(*value);
                let of = OfPass::of(*of);
                let mut numbers = std::mem::take(numbers);
                if numbers.len() != sequences.len() {
                    numbers.clear();
                }
                self.events.push(Event::Pass(Pass {
                    begin: *begin,
                    end: *end,
                    tokens: known(tokens),
                    position: known(position),
                    sequences: sequences.iter().copied().map(halves).collect(),
                    numbers,
                    status: *status as i32,
                    graphs: of.graphs,
                    is_decode: of.is_decode,
                    is_bare: of.is_bare,
                    is_whole: of.is_whole,
                    is_incomplete: of.is_incomplete,
                    has_untimed: of.has_untimed,
                    is_graph: of.is_graph,
                    is_warm_up: of.is_warm_up,
                    context: Some(of.context).filter(|&number| number > 0),
                    of_thread: of.of_thread,
                }));
            }
            Record::Described => {
                let values = values()?;
                let ([begin, end], rest) = values.split_first_chunk().ok_or_else(short)?;
                let thread = rest.first().map_or(0, |thread| *thread as u16);
                self.events.push(Event::Described([*begin, *end], thread));
            }
            Record::Load => {
                let values = values()?;
                let ([at], threads) = values.split_first_chunk().ok_or_else(short)?;
                let thread = |[who, ran_ns, waited_ns]: &[u64; 3]| {
                    let [thread, cpu] = halves(*who);
                    let cpu = Some(cpu).filter(|&cpu| cpu != NO_CPU);
                    ThreadLoad { thread, cpu, ran_ns: *ran_ns, waited_ns: *waited_ns }
                };
                let (threads, rest) = threads.as_chunks();
                let threads = threads.iter().map(thread).collect();
                // Old recordings have none.
                let disk_faults = rest.first().copied().filter(|&faults| faults != UNKNOWN);
                self.events.push(Event::Load(Load { at: *at, threads, disk_faults }));
            }
            Record::Model => self.models.push(text()),
            Record::Fault => self.fault = Some(text()),
            Record::Lost => self.lost.push(text()),
            Record::Shares => {
                let values = values()?;
                let ([thread], nodes) = values.split_first_chunk().ok_or_else(short)?;
                let Some(Event::Graph(graph)) = self.events.last_mut() else {
                    return Err("shares of threads that follow no graph".to_owned());
                };
                let (nodes, []) = nodes.as_chunks() else {
                    return Err("a share of a thread without its waiting".to_owned());
                };
                let nodes = nodes.to_vec();
                graph.shares.push(ThreadShares { thread: *thread as u32, nodes });
            }
            Record::Part => {
                let values = values()?;
                let ([head], times) = values.split_first_chunk().ok_or_else(short)?;
                let (times, []) = times.as_chunks::<2>() else {
                    return Err("a node of another backend that begins and does not end".to_owned());
                };
                let (Some([begin, _]), Some([_, end])) = (times.first(), times.last()) else {
                    return Err(short());
                };
                let Head { number, of_thread, .. } = Head::of(*head);
                self.events.push(Event::Graph(Graph {
                    number,
                    of_thread,
                    begin: *begin,
                    end: *end,
                    nodes: times.iter().map(|[begin, _]| *begin).collect(),
                    ends: times.iter().map(|[_, end]| *end).collect(),
                    ..Graph::default()
                }));
            }
            Record::Library => {
                let Numbered { library, of } = serde_json::from_slice(record)
                    .map_err(|why| format!("a copy of ggml: {why}"))?;
                self.libraries.insert(library, of);
            }
            Record::Context => {
                // Its passes are there, whatever is known of it.
                match serde_json::from_slice(record) {
                    Ok(OfContext { context, of }) => drop(self.contexts.insert(context, of)),
                    Err(why) => self.lost.push(format!("what a context of llama.cpp is: {why}")),
                }
            }
            Record::Calls => {
                let values = values()?;
                let ([thread], sums) = values.split_first_chunk().ok_or_else(short)?;
                let (sums, _) = sums.as_chunks::<2>();
                let sums = *sums.first_chunk().ok_or_else(short)?;
                self.events.push(Event::Calls(*thread as u16, sums));
            }
            Record::Inside => {
                let values = values()?;
                let ([head, begin, end], _) = values.split_first_chunk().ok_or_else(short)?;
                let Head { number, of_thread, .. } = Head::of(*head);
                let what = number as usize;
                if what >= INSIDE.len() {
                    return Err(format!("a pass does something of an unknown kind, {number}"));
                }
                self.events.push(Event::Inside(of_thread, what, [*begin, *end]));
            }
            Record::Cached => {
                let values = values()?;
                self.last_graph()?.sequences = values.into_iter().map(halves).collect();
            }
            Record::Experts => {
                let values = values()?;
                let used = values.into_iter().map(|of| u32::try_from(of).ok());
                self.last_graph()?.experts = used.collect();
            }
            Record::Chosen => {
                let chosen = Chosen::read(&values()?);
                let chosen = chosen.ok_or_else(|| "a choice of experts is cut off".to_owned())?;
                self.last_graph()?.chosen = chosen;
            }
            Record::Numbers => {
                let of = |[number, outputs]: [u32; 2]| (number, outputs.checked_sub(1));
                *numbers = values()?.into_iter().map(halves).map(of).collect();
            }
            Record::Asked => {
                let (head, path) = record.split_at_checked(5 * 8).ok_or_else(short)?;
                let [number, accepted, _, read, idle_ms] = words(head)[..] else {
                    return Err(short());
                };
                let known = |value: u64| (value != UNKNOWN).then_some(value);
                let asked = Asked {
                    accepted: known(accepted),
                    read,
                    idle_ms: known(idle_ms),
                    path: String::from_utf8_lossy(path).into_owned(),
                    ..Asked::default()
                };
                self.asked.insert(number as u32, asked);
            }
            Record::Sent => {
                let (head, name) = record.split_at_checked(5 * 8).ok_or_else(short)?;
                let [who, begin, end, bytes, tokens] = words(head)[..] else {
                    return Err(short());
                };
                let tokens = halves(tokens).map(|n| Some(n).filter(|&n| n > 0));
                let [number, what] = halves(who);
                if let Some(asked) = self.asked(number) {
                    asked.sent.push(SentPiece { begin, end, bytes, tokens, what: Sent::of(what) });
                    if !name.is_empty() {
                        asked.name = Some(String::from_utf8_lossy(name).into_owned());
                    }
                }
            }
            Record::Gone => {
                let values = values()?;
                let ([number, when], _) = values.split_first_chunk().ok_or_else(short)?;
                if let Some(asked) = self.asked(*number as u32) {
                    asked.gone.get_or_insert(*when);
                }
            }
            Record::Tokenized => {
                let values = values()?;
                let ([who], _) = values.split_first_chunk().ok_or_else(short)?;
                let [number, tokens] = halves(*who);
                if let Some(asked) = self.asked(number) {
                    asked.tokenized.push(tokens);
                }
            }
        }
        Ok(())
    }

    /// A request that began to be read, or one that was there before it could be seen.
    fn asked(&mut self, number: u32) -> Option<&mut Asked> {
        self.asked.get_mut(&number)
    }

    fn last_graph(&mut self) -> Result<&mut Graph, String> {
        match self.events.last_mut() {
            Some(Event::Graph(graph)) => Ok(graph),
            _ => Err("tokens or experts that follow no graph".to_owned()),
        }
    }
}

/// What a tensor is that ggml's scheduler copied to another backend, the name of the original tells.
fn name_as_original(node: &mut Node) {
    let then = node.then.iter_mut().flat_map(|then| &mut then.src);
    for src in node.src.iter_mut().chain(then) {
        let name = original(&src.name);
        if name.len() < src.name.len() {
            src.name = name.to_owned();
        }
    }
}

/// Bytes as little-endian words; what doesn't fill one is left out.
fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|eight| u64::from_le_bytes(*eight)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::chosen::Unread;
    use super::super::events::Model;
    use super::super::format::UNKNOWN;
    use super::*;

    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, 0, 0, 0];
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn words_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn file(records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = b"BRKNODES".to_vec();
        let used = HEADER + records.iter().map(Vec::len).sum::<usize>();
        bytes.extend(words_of(&[1, used as u64, 4321, 2, 0, 5, 0]));
        bytes.extend(records.concat());
        // A file has room for more.
        bytes.extend([0xff; 32]);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Recorded, String> {
        Recorded::read(bytes, Path::new("7.nodes")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_position_of_several_sequences_is_their_tokens_mean() {
        let pass = |sequences: &[[u32; 2]], position| Pass {
            begin: 0,
            end: 1,
            tokens: None,
            position,
            sequences: sequences.to_vec(),
            numbers: Vec::new(),
            status: 0,
            graphs: 1,
            is_decode: true,
            is_bare: false,
            is_whole: false,
            is_incomplete: false,
            has_untimed: false,
            is_graph: false,
            is_warm_up: false,
            context: None,
            of_thread: 0,
        };
        // A server's first client may have any sequence, and the first one's cache may be old.
        assert_eq!(pass(&[[40, 41]], Some(7)).position(), Some(40));
        assert_eq!(pass(&[[40, 41], [100, 103]], None).position(), Some((40 + 300) / 4));
        for none in [&[][..], &[[9, 9]], &[[u32::MAX, 0]]] {
            assert_eq!(pass(none, Some(7)).position(), Some(7));
        }
    }

    #[test]
    fn a_file_whose_reader_is_gone_is_no_whole_recording() {
        let mut bytes = file(&[record(6, b"/models/a.gguf")]);
        assert!(read(&bytes).is_ok());
        bytes[40..48].copy_from_slice(&4096_u64.to_le_bytes());
        let refused = read(&bytes).expect_err("a part of it is gone");
        assert!(refused.contains("byte 40: brickscope read it up to byte 4096"), "{refused}");
    }

    #[test]
    fn each_kind_of_record_is_read() {
        let nodes = br#"{"graph":3,"nodes":[{"op":"ADD","name":"a","type":"f32","ne":[4,1,1,1],"bytes":16,"src":[]}]}"#;
        let nothing = UNKNOWN;
        let recorded = read(&file(&[
            record(2, nodes),
            record(1, &words_of(&[3 | 2 << 32, 10, 90, 20])),
            record(9, &words_of(&[1, 60, 9])),
            record(15, &words_of(&[7 | 9 << 32, 3 << 32])),
            record(16, &words_of(&[8, u64::MAX])),
            // Of 128 experts 2 each: 3 tokens, one of which left one out; and a choice that is elsewhere.
            record(
                22,
                &words_of(&[
                    2 << 32,
                    128 | 2 << 32,
                    3 | 1 << 32,
                    0,
                    5 | 3 << 32,
                    127 | 2 << 32,
                    1,
                    128,
                    1,
                    2 << 32,
                ]),
            ),
            record(4, &words_of(&[91, 99])),
            record(17, &words_of(&[2, 5 | 1 << 32])),
            record(3, &words_of(&[5, 100, 1, nothing, 0, 1 | 1 << 32, 10 | 11 << 32, 3 << 32])),
            record(
                5,
                &words_of(&[101, 77 | 3 << 32, 1000, 50, 78 | u64::from(u32::MAX) << 32, 1, 2]),
            ),
            record(6, b"/m.gguf"),
            record(7, b"why"),
            record(8, b"what"),
            record(11, br#"{"library":1,"file":"/libggml-cpu.so","version":"0.13.1"}"#),
        ]));
        let recorded = recorded.expect("it is whole");
        assert_eq!((recorded.process, recorded.refused, recorded.missed), (4321, 2, 5));
        assert_eq!(recorded.graphs[&3][0].out.elements(), 4);
        assert_eq!(
            (recorded.models, recorded.lost),
            (vec!["/m.gguf".to_owned()], vec!["what".to_owned()])
        );
        assert_eq!(recorded.fault.as_deref(), Some("why"));
        let library = Library {
            file: "/libggml-cpu.so".to_owned(),
            version: Some("0.13.1".to_owned()),
            commit: None,
        };
        assert_eq!(recorded.libraries, [(1, library)].into());
        let thread = |thread, cpu, ran_ns, waited_ns| ThreadLoad { thread, cpu, ran_ns, waited_ns };
        let expected = [
            Event::Graph(Graph {
                number: 3,
                threads: 2,
                of_thread: 0,
                begin: 10,
                end: 90,
                nodes: vec![20],
                ends: vec![],
                shares: vec![ThreadShares { thread: 1, nodes: vec![[60, 9]] }],
                sequences: vec![[7, 9], [0, 3]],
                experts: vec![Some(8), None],
                chosen: vec![
                    Chosen {
                        product: 0,
                        n_expert: 128,
                        n_used: 2,
                        tokens: 3,
                        odd: 1,
                        beyond: 0,
                        unread: None,
                        experts: vec![[5, 3], [127, 2]],
                    },
                    Chosen {
                        product: 1,
                        n_expert: 128,
                        tokens: 1,
                        unread: Some(Unread::Place),
                        ..Chosen::default()
                    },
                ],
            }),
            Event::Described([91, 99], 0),
            Event::Pass(Pass {
                begin: 5,
                end: 100,
                tokens: Some(1),
                position: None,
                sequences: vec![[10, 11], [0, 3]],
                numbers: vec![(2, None), (5, Some(0))],
                status: 0,
                graphs: 1,
                is_decode: true,
                is_bare: false,
                is_whole: false,
                is_incomplete: false,
                has_untimed: false,
                is_graph: false,
                is_warm_up: false,
                context: None,
                of_thread: 0,
            }),
            Event::Load(Load {
                at: 101,
                threads: vec![thread(77, Some(3), 1000, 50), thread(78, None, 1, 2)],
                disk_faults: None,
            }),
        ];
        assert_eq!(recorded.events, expected);
    }

    #[test]
    fn parts_of_other_backends_have_ends_and_the_names_of_what_was_copied() {
        let src =
            |name: &str| format!(r#"{{"name":"{name}","type":"f32","ne":[4,1,1,1],"bytes":16}}"#);
        let names = ["GPU0#blk.1.attn_q.weight#0", "GPU0#a#b", "x#", "#", "cache_k_l0 (view)"];
        let nodes = format!(
            r#"{{"graph":7,"on":"GPU0","nodes":[{{"op":"ADD","name":"a","type":"f32","ne":[4,1,1,1],"bytes":16,"src":[{}]}}]}}"#,
            names.map(src).join(",")
        );
        let recorded = read(&file(&[
            record(2, nodes.as_bytes()),
            record(10, &words_of(&[7, 10, 20, 25, 40])),
            record(3, &words_of(&[5, 100, 1, 9, 0, 1 << 32 | 1 << 34])),
        ]));
        let recorded = recorded.expect("it is whole");
        assert_eq!(recorded.backends[&7], "GPU0");
        let names: Vec<&str> =
            recorded.graphs[&7][0].src.iter().map(|src| src.name.as_str()).collect();
        assert_eq!(names, ["blk.1.attn_q.weight", "GPU0#a#b", "x#", "#", "cache_k_l0 (view)"]);
        let Event::Graph(part) = &recorded.events[0] else { panic!("{:?}", recorded.events) };
        assert_eq!((part.begin, part.end, part.threads), (10, 40, 0));
        assert_eq!((&part.nodes[..], &part.ends[..]), (&[10, 25][..], &[20, 40][..]));
        let Event::Pass(pass) = &recorded.events[1] else { panic!("{:?}", recorded.events) };
        assert!(pass.is_whole && pass.is_decode && !pass.is_bare);
    }

    #[test]
    fn contexts_and_calls_are_read_and_what_llama_did_not_tell_is_absent() {
        let told = br#"{"context":2,"n_ctx":4096,"pooling":-1,"model":{"at":7,"parameters":5,"name":"a"}}"#;
        let calls = [&[3, 2, 900][..], &[0; 8]].concat();
        let of_pass = 1 << 32 | 2 << 39 | 3 << 48;
        let recorded = read(&file(&[
            record(12, told),
            record(12, br#"{"context":3,"threads":-1,"n_batch":4294967296,"n_ubatch":4294967295}"#),
            record(12, b"no JSON"),
            record(13, &words_of(&calls)),
            record(14, &words_of(&[2 | 3 << 48, 7, 9])),
            record(3, &words_of(&[5, 100, 1, 9, 0, of_pass])),
        ]));
        let recorded = recorded.expect("it is whole");
        let model =
            Model { at: 7, parameters: Some(5), name: Some("a".to_owned()), ..Model::default() };
        let first = Context {
            n_ctx: Some(4096),
            pooling: Some(-1),
            model: Some(model),
            ..Context::default()
        };
        let second = Context { n_ubatch: Some(u32::MAX), ..Context::default() };
        assert_eq!(recorded.contexts, [(2, first), (3, second)].into());
        assert!(recorded.lost[0].starts_with("what a context of llama.cpp is: "));
        let sums = [[2, 900], [0; 2], [0; 2], [0; 2], [0; 2]];
        assert_eq!(recorded.events[0], Event::Calls(3, sums));
        assert_eq!(recorded.events[1], Event::Inside(3, 2, [7, 9]));
        let unknown = read(&file(&[record(14, &words_of(&[4, 7, 9]))]));
        assert!(unknown.expect_err("there are four").ends_with("of an unknown kind, 4"));
        let Event::Pass(pass) = &recorded.events[2] else { panic!("{:?}", recorded.events) };
        assert_eq!((pass.context, pass.of_thread), (Some(2), 3));
        assert!(pass.is_decode && !pass.is_warm_up);
    }

    #[test]
    fn requests_of_a_server_are_read_and_the_numbers_of_sequences() {
        let first = Sent { status: 200, pieces: 1, ..Sent::default() };
        let last = Sent { is_last: true, is_limit: true, ..Sent::default() };
        let asked = [words_of(&[7, UNKNOWN, 10, 20, 3]), b"/v1/completions".to_vec()].concat();
        let named = words_of(&[7 | u64::from(first.word()) << 32, 50, 51, 300, 0]);
        let pass = |sequences: &[u64]| {
            record(3, &words_of(&[&[5, 100, 1, 9, 0, 1 << 32], sequences].concat()))
        };
        let recorded = read(&file(&[
            record(18, &asked),
            record(21, &words_of(&[7 | 12 << 32])),
            record(19, &[named, b"cmpl-1".to_vec()].concat()),
            record(19, &words_of(&[7 | u64::from(last.word()) << 32, 60, 61, 30, 12 | 3 << 32])),
            record(20, &words_of(&[7, 70])),
            record(20, &words_of(&[7, 80])),
            // Nothing is known of its begin.
            record(20, &words_of(&[8, 80])),
            pass(&[0, 1 << 32]),
            record(17, &words_of(&[1 | 2 << 32])),
            pass(&[1 << 32]),
            // One of them isn't known.
            record(17, &words_of(&[1])),
            pass(&[1 << 32, 1 << 32]),
        ]));
        let recorded = recorded.expect("it is whole");
        let piece = |begin, end, bytes, tokens, what| SentPiece { begin, end, bytes, tokens, what };
        let expected = Asked {
            accepted: None,
            read: 20,
            idle_ms: Some(3),
            path: "/v1/completions".to_owned(),
            name: Some("cmpl-1".to_owned()),
            tokenized: vec![12],
            sent: vec![
                piece(50, 51, 300, [None; 2], first),
                piece(60, 61, 30, [Some(12), Some(3)], last),
            ],
            gone: Some(70),
        };
        assert_eq!(recorded.asked, [(7, expected)].into());
        let numbers = recorded.events.iter().map(|event| match event {
            Event::Pass(pass) => pass.numbers.clone(),
            other => panic!("{other:?}"),
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [vec![], vec![(1, Some(1))], vec![]]);
    }

    #[test]
    fn a_file_that_is_not_one_is_refused_with_the_place() {
        let good = file(&[record(6, b"/m.gguf")]);
        let with = |at: usize, word: u64| {
            let mut bytes = good.clone();
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            bytes
        };
        for (bytes, said) in [
            (b"GGUF".to_vec(), "7.nodes, byte 0: not a recording of `brickscope run`"),
            (with(8, 9), "7.nodes, byte 8: version 9, and this program reads 1"),
            (with(16, 1 << 40), "7.nodes, byte 16: it states 1099511627776 bytes, and has 112"),
            (with(16, 8), "7.nodes, byte 16: it states 8 bytes, and has 112"),
            (with(64, 6 | 1 << 40), "7.nodes, byte 64: a record of 256 bytes is cut off"),
            (with(64, 23 | 7 << 32), "7.nodes, byte 64: a record of an unknown kind, 23"),
            (with(64, 22 | 7 << 32), "7.nodes, byte 64: a record of kind 22 has 7 bytes"),
            (with(64, 22 | 8 << 32), "7.nodes, byte 64: a choice of experts is cut off"),
            (with(64, 18 | 7 << 32), "7.nodes, byte 64: a record of kind 18 has only 7 bytes"),
            (with(64, 19 | 7 << 32), "7.nodes, byte 64: a record of kind 19 has only 7 bytes"),
            (with(64, 20 | 7 << 32), "7.nodes, byte 64: a record of kind 20 has 7 bytes"),
            (with(64, 21 | 7 << 32), "7.nodes, byte 64: a record of kind 21 has 7 bytes"),
            (with(64, 15 | 8 << 32), "7.nodes, byte 64: tokens or experts that follow no graph"),
            (with(64, 16 | 7 << 32), "7.nodes, byte 64: a record of kind 16 has 7 bytes"),
            (with(64, 14 | 8 << 32), "7.nodes, byte 64: a record of kind 14 has only 8 bytes"),
            (with(64, 13 | 8 << 32), "7.nodes, byte 64: a record of kind 13 has only 8 bytes"),
            (with(64, 10 | 8 << 32), "7.nodes, byte 64: a record of kind 10 has only 8 bytes"),
            (with(64, 9 | 8 << 32), "7.nodes, byte 64: shares of threads that follow no graph"),
            (with(64, 1 | 7 << 32), "7.nodes, byte 64: a record of kind 1 has 7 bytes"),
            (with(64, 3 | 8 << 32), "7.nodes, byte 64: a record of kind 3 has only 8 bytes"),
            (
                with(64, 2 | 7 << 32),
                "7.nodes, byte 64: the nodes of a graph: expected value at line 1 column 1",
            ),
        ] {
            assert_eq!(read(&bytes).err().as_deref(), Some(said));
        }
    }

    #[test]
    fn each_kind_has_its_number() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|&number| Record::of(number).is_some()).collect();
        assert_eq!(known, (1..=22).collect::<Vec<u8>>());
        assert!(known.iter().all(|&n| Record::of(n).map(|kind| kind as u8) == Some(n)));
    }

    proptest! {
        #[test]
        fn what_is_packed_into_a_word_is_read_from_it(word: u64, pair: [u32; 2]) {
            prop_assert_eq!(Head::of(word).word(), word);
            prop_assert_eq!(OfPass::of(word).word(), word);
            let sent = word as u32 & 0x3f_ffff;
            prop_assert_eq!(Sent::of(sent).word(), sent);
            prop_assert_eq!(halves(super::super::format::word(pair)), pair);
        }

        #[test]
        fn no_file_is_a_panic(
            records in prop::collection::vec(
                (0_u8..23, prop::collection::vec(any::<u8>(), 0..80)), 0..8),
            flips in prop::collection::vec((0_usize..400, any::<u8>()), 0..4),
        ) {
            let records: Vec<_> = records.iter().map(|(kind, body)| record(*kind, body)).collect();
            let mut bytes = file(&records);
            for (at, byte) in flips {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            let _ = read(&bytes);
        }
    }
}
