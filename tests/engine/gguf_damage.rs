//! A good file, damaged in every place. Whatever comes of it, it is an answer: no panic, and no
//! memory to speak of.
//!
//! One test, because it looks at how much memory the whole process has ever asked for.

use std::path::Path;

use brickscope_engine::gguf::{TensorType, Writer, parse};

/// A file with all kinds of things in it, that ends with the last byte of its last tensor.
fn small_file() -> Vec<u8> {
    let mut writer = Writer::new("small.gguf");
    writer
        .set("general.architecture", "llama")
        .set("general.alignment", 32u32)
        .set("a.u8", 1u8)
        .set("a.i64", -1i64)
        .set("a.f64", 0.5f64)
        .set("a.bool", true)
        .set("a.tokens", vec!["<unk>".to_owned(), "▁the".to_owned(), String::new()])
        .set("a.scores", vec![0.0f32, -1.0, -2.0])
        .set("a.types", vec![2i32, 1, 1])
        .tensor("token_embd.weight", &[32, 3], TensorType::Q8_0)
        .tensor("output_norm.weight", &[8], TensorType::F32)
        .tensor("packed", &[4, 2, 1, 16], TensorType::I2_S);
    let mut data = writer.begin(Vec::new()).unwrap();
    for (i, n_bytes) in [102, 32, 64].into_iter().enumerate() {
        data.write(&vec![i as u8 + 1; n_bytes]).unwrap();
    }
    data.finish().unwrap()
}

/// The most address space that this process has had, in bytes: it counts what was asked for, used
/// or not.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[test]
fn a_damaged_file_is_an_error_and_nothing_worse() {
    let good = small_file();
    let name = Path::new("small.gguf");
    parse(&good, name).unwrap();
    let before = peak_memory();

    for len in 0..good.len() {
        assert!(
            parse(&good[..len], name).is_err(),
            "cut after {len} of {} bytes, and nobody noticed",
            good.len()
        );
    }

    let (mut n_read, mut n_refused) = (0u32, 0u32);
    let mut mutant = good.clone();
    for at in 0..good.len() {
        let old = good[at];
        for new in [
            0,
            1,
            2,
            7,
            8,
            9,
            0x40,
            0x7f,
            0x80,
            0xfe,
            0xff,
            old ^ 1,
            old ^ 0x20,
            old.wrapping_add(1),
        ] {
            mutant[at] = new;
            // Some bytes are free to change, such as those of a score. Then it is another file, and
            // a good one.
            match parse(&mutant, name) {
                Ok(model) => {
                    for tensor in &model.tensors {
                        assert!(model.range(tensor).end <= mutant.len());
                    }
                    n_read += 1;
                }
                Err(error) => {
                    assert!(error.to_string().starts_with("small.gguf"), "{error}");
                    n_refused += 1;
                }
            }
        }
        mutant[at] = old;
    }
    assert!(n_read > 0 && n_refused > 0, "{n_read} read, {n_refused} refused");

    match before.zip(peak_memory()) {
        Some((before, after)) => {
            assert!(after - before < 16 << 20, "asked for {} bytes more", after - before)
        }
        None => eprintln!("skipped: this system does not say how much memory was asked for"),
    }
}
