//! Names of weights that a program's graphs have none for, from the file of the model: whisper.cpp's.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use super::events::Recorded;
use crate::whisper::{Weight, Whisper};
use brickscope::{Model, WeightGroup};

/// The models of a program whose weights are in its graphs, by the numbers of these.
pub type Files = HashMap<u32, Model>;

/// Names the weights of graphs that have none, if the program's command names the file that has them: by their numbers and
/// their size, which no other weight of the file has.
pub fn name_weights(recorded: &mut Recorded, line: &[OsString], notes: &mut Vec<String>) -> Files {
    let mut files = Files::new();
    let mut unread = Vec::new();
    let sources = |recorded: &Recorded| {
        let nodes = recorded.graphs.values().flatten();
        nodes.flat_map(|node| &node.src).any(|of| of.numbers.is_some())
    };
    if !sources(recorded) {
        return files;
    }
    for word in line.iter().skip(1) {
        let path = Path::new(word);
        // A pipe or a device may block, or do something.
        if !path.is_file() {
            continue;
        }
        let Ok(file) = File::open(path) else { continue };
        let of = match Whisper::read(BufReader::new(file)) {
            Ok(Some(of)) => of,
            Ok(None) => continue,
            Err(why) => {
                unread.push(format!("the weights of {} have no names: {why}", path.display()));
                continue;
            }
        };
        let model = described(path, &of);
        let mut names: HashMap<(u64, u64), Option<&str>> = HashMap::new();
        let mut sizes: HashMap<(&str, u64), Option<&str>> = HashMap::new();
        for Weight { name, kind, bytes, numbers, .. } in &of.weights {
            // Of two that look the same nobody knows which it is.
            names.entry((*bytes, *numbers)).and_modify(|of| *of = None).or_insert(Some(name));
            sizes.entry((kind, *bytes)).and_modify(|of| *of = None).or_insert(Some(name));
        }
        for (graph, nodes) in &mut recorded.graphs {
            for node in &mut *nodes {
                let then = node.then.iter_mut().flat_map(|then| &mut then.src);
                for source in node.src.iter_mut().chain(then) {
                    let Some(numbers) = source.numbers else { continue };
                    if let Some(Some(name)) = names.get(&(source.bytes, numbers)) {
                        (*name).clone_into(&mut source.name);
                        files.entry(*graph).or_insert_with(|| model.clone());
                    }
                }
            }
            // Of a table only some rows are read, so its numbers are not looked at: it is the only one of its size.
            let tables = nodes.iter_mut().filter(|node| node.op == "GET_ROWS");
            let tables = tables.filter_map(|node| node.src.first_mut());
            for table in
                tables.filter(|of| of.name.starts_with("leaf_") && files.contains_key(graph))
            {
                if let Some(Some(name)) = sizes.get(&(table.kind.as_str(), table.bytes)) {
                    (*name).clone_into(&mut table.name);
                }
            }
        }
    }
    // Files of other kinds begin alike, such as models that find speech.
    if files.is_empty() {
        notes.extend(unread);
    }
    files
}

fn described(path: &Path, of: &Whisper) -> Model {
    let mut groups: Vec<WeightGroup> = Vec::new();
    let mut places: HashMap<(String, &str), usize> = HashMap::new();
    for Weight { name, kind, is_matrix, elements, bytes, .. } in &of.weights {
        let name = without_layer(name);
        let at = *places.entry((name.clone(), kind)).or_insert_with(|| {
            let is_matrix = *is_matrix;
            groups.push(WeightGroup {
                name,
                format: (*kind).to_owned(),
                is_matrix,
                ..Default::default()
            });
            groups.len() - 1
        });
        let group = &mut groups[at];
        group.tensors += 1;
        group.parameters = group.parameters.saturating_add(*elements);
        group.bytes = group.bytes.saturating_add(*bytes);
    }
    groups.sort_by_key(|of| std::cmp::Reverse(of.bytes));
    Model {
        path: path.display().to_string(),
        name: path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
        architecture: "whisper".to_owned(),
        quantization: groups.first().map(|of| of.format.clone()).unwrap_or_default(),
        file_bytes: path.metadata().map_or(0, |of| of.len()),
        parameters: of.weights.iter().map(|of| of.elements).fold(0, u64::saturating_add),
        layers: of.layers[0].saturating_add(of.layers[1]),
        embedding_length: of.width,
        weights: groups.into_iter().take(WeightGroup::MOST).collect(),
        ..Model::default()
    }
}

/// `encoder.attn.query` of `encoder.blocks.3.attn.query.weight`.
fn without_layer(name: &str) -> String {
    let name = name.strip_suffix(".weight").unwrap_or(name);
    match name.split_once(".blocks.").and_then(|(part, rest)| Some((part, rest.split_once('.')?.1)))
    {
        Some((part, role)) => format!("{part}.{role}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Node, Tensor};

    use super::*;

    #[test]
    fn weights_get_the_names_that_the_file_has_if_their_numbers_are_those_of_one() {
        let ints = |of: &[u32]| of.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
        let mut file = ints(&[0x6767_6d6c, 9, 1500, 384, 6, 1, 448, 384, 6, 1, 80, 1, 0, 0, 0]);
        let rows: Vec<u8> = (0..80).collect();
        for (name, numbers) in [
            ("encoder.blocks.0.attn.query.weight", &rows[..]),
            ("encoder.blocks.0.attn.query.bias", &[1; 12]),
            ("encoder.blocks.0.attn.out.bias", &[1; 12]),
        ] {
            file.extend(ints(&[1, name.len() as u32, 0, numbers.len() as u32 / 4]));
            file.extend(name.bytes());
            file.extend(numbers);
        }
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("tiny.bin");
        std::fs::write(&path, &file).expect("a folder of ours");
        let of = Whisper::read(std::io::Cursor::new(&file)).expect("read").expect("a model");
        let [query, bias, _] = &of.weights[..] else { panic!("{of:?}") };

        let tensor = |bytes, numbers| Tensor {
            bytes,
            numbers,
            name: "leaf_1".to_owned(),
            ..Tensor::default()
        };
        let node = |src| Node { op: "MUL_MAT".to_owned(), out: Tensor::default(), src, then: None };
        let mut recorded = Recorded::default();
        let sources = vec![
            tensor(query.bytes, Some(query.numbers)),
            tensor(bias.bytes, Some(bias.numbers)),
            tensor(query.bytes + 4, Some(query.numbers)),
            tensor(query.bytes, None),
        ];
        recorded.graphs.insert(1, vec![node(sources)]);
        recorded.graphs.insert(2, vec![node(vec![tensor(7, Some(7))])]);
        let line: Vec<OsString> = ["whisper-cli", "-m"].into_iter().map(OsString::from).collect();
        let mut notes = Vec::new();
        assert!(name_weights(&mut recorded, &line, &mut notes).is_empty(), "no file is named");
        let line = [&line[..], &[path.clone().into()]].concat();
        let files = name_weights(&mut recorded, &line, &mut notes);
        let names: Vec<_> = recorded.graphs[&1][0].src.iter().map(|of| &*of.name).collect();
        // Two biases look the same.
        assert_eq!(names, ["encoder.blocks.0.attn.query.weight", "leaf_1", "leaf_1", "leaf_1"]);
        assert_eq!(files.keys().collect::<Vec<_>>(), [&1]);
        let model = &files[&1];
        assert_eq!((&*model.architecture, model.name.as_deref()), ("whisper", Some("tiny")));
        assert_eq!((model.layers, model.parameters, &*model.quantization), (2, 26, "f32"));
        let groups: Vec<_> = model.weights.iter().map(|of| (&*of.name, of.bytes)).collect();
        assert_eq!(groups[0], ("encoder.attn.query", 80));
        assert!(notes.is_empty(), "{notes:?}");

        // What breaks off is told, and names nothing.
        std::fs::write(&path, &file[..file.len() - 1]).expect("a folder of ours");
        assert!(name_weights(&mut recorded, &line, &mut notes).is_empty());
        assert!(notes[0].contains("tiny.bin have no names: byte "), "{notes:?}");
    }
}
