//! What the writer writes, the reader reads.

use std::fs;

use brickscope_engine::gguf::{Array, Error, Gguf, TensorType, Value, Writer, write_atomically};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// Floats without NaN, because it isn't equal to itself. Its bits would survive like any others.
fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        ".*".prop_map(Value::String),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_map(Value::F64),
    ]
}

fn array() -> impl Strategy<Value = Array> {
    prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(Array::U8),
        vec(any::<i8>(), 0..9).prop_map(Array::I8),
        vec(any::<u16>(), 0..9).prop_map(Array::U16),
        vec(any::<i16>(), 0..9).prop_map(Array::I16),
        vec(any::<u32>(), 0..9).prop_map(Array::U32),
        vec(any::<i32>(), 0..9).prop_map(Array::I32),
        vec(any::<f32>(), 0..9).prop_map(Array::F32),
        vec(any::<bool>(), 0..9).prop_map(Array::Bool),
        vec(".*", 0..9).prop_map(Array::String),
        vec(any::<u64>(), 0..9).prop_map(Array::U64),
        vec(any::<i64>(), 0..9).prop_map(Array::I64),
        vec(any::<f64>(), 0..9).prop_map(Array::F64),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![scalar(), array().prop_map(Value::Array)]
}

/// A type, and a shape of whole blocks.
fn tensor() -> impl Strategy<Value = (TensorType, Vec<usize>)> {
    (prop::sample::select(TensorType::ALL), 1..4usize, vec(1..4usize, 0..4)).prop_map(
        |(kind, n_blocks, rest)| {
            let mut dims = vec![n_blocks * kind.block_len()];
            dims.extend(rest);
            (kind, dims)
        },
    )
}

/// Bytes that are different in each tensor.
fn pattern(seed: usize, n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 + seed * 7 + 1) as u8).collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        metadata in btree_map("[a-z.▁]{1,20}", value(), 0..12),
        tensors in btree_map("[a-z.0-9]{1,63}", tensor(), 0..6),
        alignment in prop_oneof![Just(None), (0..9u32).prop_map(|log2| Some(1 << log2))],
        piece in 1..100usize,
    ) {
        let mut writer = Writer::new("w.gguf");
        for (key, value) in &metadata {
            writer.set(key, value.clone());
        }
        if let Some(alignment) = alignment {
            writer.set("general.alignment", alignment);
        }
        for (name, (kind, dims)) in &tensors {
            writer.tensor(name, dims, *kind);
        }

        let mut data = writer.begin(Vec::new()).unwrap();
        for i in 0..tensors.len() {
            let n_bytes = data.awaits().unwrap().n_bytes;
            for piece in pattern(i, n_bytes).chunks(piece) {
                data.write(piece).unwrap();
            }
        }
        let (done, total) = data.progress();
        let bytes = data.finish().unwrap();
        prop_assert_eq!(done, total);
        prop_assert_eq!(total, bytes.len() as u64);
        prop_assert_eq!(writer.file_len().unwrap(), total);

        let model = Gguf::from_bytes(bytes, "w.gguf").unwrap();
        prop_assert_eq!(model.version, 3);
        prop_assert_eq!(model.alignment, alignment.unwrap_or(32));
        prop_assert_eq!(model.metadata.len(), metadata.len() + usize::from(alignment.is_some()));
        for (key, value) in &metadata {
            prop_assert_eq!(model.metadata.get(key), Some(value));
        }
        prop_assert_eq!(model.tensors.len(), tensors.len());
        for (i, (info, (name, (kind, dims)))) in model.tensors.iter().zip(&tensors).enumerate() {
            prop_assert_eq!((&info.name, info.kind, &info.dims), (name, *kind, dims));
            prop_assert_eq!(model.tensor(name), Some(info));
            prop_assert_eq!(model.bytes(info), pattern(i, info.n_bytes));
        }
    }
}

/// The writer's error message.
fn refusal(writer: &Writer) -> String {
    writer.begin(Vec::new()).unwrap_err().to_string()
}

#[test]
fn what_could_not_be_read_is_not_written() {
    let mut writer = Writer::new("w.gguf");
    writer.set("k", 1u32).set("k", 2u32);
    assert_eq!(refusal(&writer), "w.gguf: the key `k` is there twice, the second time at byte 41");

    let mut writer = Writer::new("w.gguf");
    writer.tensor("t", &[100], TensorType::Q4_K);
    assert_eq!(
        refusal(&writer),
        "w.gguf: tensor `t` has rows of 100 (byte 37), but Q4_K stores 256 numbers together"
    );

    let mut writer = Writer::new("w.gguf");
    writer.set("general.alignment", 12u32);
    assert_eq!(
        refusal(&writer),
        "w.gguf: `general.alignment` is 12 (byte 53), but must be a power of two"
    );

    let mut writer = Writer::new("w.gguf");
    writer.tensor("a", &[usize::MAX / 8], TensorType::F32).tensor(
        "b",
        &[usize::MAX / 8],
        TensorType::F32,
    );
    assert!(writer.begin(Vec::new()).is_err());
}

#[test]
fn data_must_be_neither_more_nor_less_than_declared() {
    let mut writer = Writer::new("w.gguf");
    writer.tensor("a", &[2], TensorType::F32).tensor("b", &[1], TensorType::F32);

    let mut data = writer.begin(Vec::new()).unwrap();
    let error = data.write(&[0; 9]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write w.gguf: 1 bytes too many for tensor `a`, which has 8"
    );

    data.write(&[0; 8]).unwrap();
    data.write(&[0; 3]).unwrap();
    let error = data.finish().unwrap_err();
    assert_eq!(error.to_string(), "cannot write w.gguf: tensor `b` lacks 1 of its bytes");

    let mut data = writer.begin(Vec::new()).unwrap();
    data.write(&[0; 8]).unwrap();
    data.write(&[0; 4]).unwrap();
    assert!(data.awaits().is_none());
    let error = data.write(&[0; 5]).unwrap_err();
    assert_eq!(error.to_string(), "cannot write w.gguf: 5 bytes after the last tensor");
    data.finish().unwrap();
}

#[test]
fn a_file_is_there_as_a_whole_or_not_at_all() {
    let folder = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("m.gguf");
    let mut writer = Writer::new(&path);
    writer.tensor("t", &[1], TensorType::F32);

    let incomplete = write_atomically(&path, |out| writer.begin(out)?.finish().map(drop));
    assert!(matches!(incomplete, Err(Error::TooLittleData { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

    let panicked = std::panic::catch_unwind(|| {
        write_atomically(&path, |_| -> Result<(), Error> { panic!("on purpose") })
    });
    assert!(panicked.is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

    let write = |byte: u8| {
        write_atomically(&path, |out| {
            let mut data = writer.begin(out)?;
            data.write(&[byte; 4])?;
            data.finish().map(drop)
        })
    };
    for byte in [1, 2] {
        write(byte).unwrap();
        let model = Gguf::open(&path).unwrap();
        assert_eq!(model.bytes(&model.tensors[0]), [byte; 4]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error = write_atomically("no/such/folder/m.gguf".as_ref(), |_| Ok(())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write no/such/folder/m.gguf: No such file or directory (os error 2)"
    );
}
