//! Any bytes give a recording whose stacks lie within it, or an error.

use brickscope_sampler::perf_data;

/// Panics if that is not so.
pub fn run(bytes: &[u8]) {
    match perf_data::parse(bytes, &mut |_, _| {}) {
        Ok(recording) => {
            for sample in &recording.samples {
                let stack = &recording.addresses[sample.stack.clone()];
                assert!(sample.n_kernel <= stack.len());
            }
            // Each address takes at least one byte of the file.
            assert!(recording.addresses.len() <= bytes.len());
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}
