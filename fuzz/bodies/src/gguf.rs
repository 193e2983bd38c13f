//! Any bytes give a model or a readable error.

use std::path::Path;

use brickscope_engine::gguf::parse;

/// Panics if that is not so.
pub fn run(bytes: &[u8]) {
    match parse(bytes, Path::new("fuzz.gguf")) {
        Ok(model) => {
            let mut end = model.data_start;
            for tensor in &model.tensors {
                let range = model.range(tensor);
                assert!(
                    range.start >= end && range.end <= bytes.len(),
                    "`{}` is at {range:?}",
                    tensor.name
                );
                assert_eq!(model.tensor(&tensor.name), Some(tensor));
                end = range.end;
            }
            for (key, value) in model.metadata.iter() {
                assert_eq!(
                    model.metadata.get(key).map(|value| value.type_id()),
                    Some(value.type_id())
                );
                // At most one of a value's getters succeeds; none may panic.
                let _ =
                    (model.metadata.u32(key), model.metadata.i32s(key), model.metadata.f32(key));
            }
        }
        Err(error) => assert!(error.to_string().contains("fuzz.gguf")),
    }
}
