//! Replays the corpus of the fuzz targets of this package, by the targets' own code.
#![cfg(unix)]

#[path = "../../fuzz/bodies/live.rs"]
mod live;
#[path = "../../fuzz/bodies/sockets.rs"]
mod sockets;

use std::fs;
use std::path::Path;

fn replay(folder: &str, least: usize, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(folder);
    let files: Vec<_> = fs::read_dir(folder)
        .expect("the corpus")
        .map(|file| file.expect("a file").path())
        .collect();
    assert!(files.len() >= least, "{files:?} are left of the corpus");
    for file in files {
        let bytes = fs::read(&file).expect("it can be read");
        run(&bytes);
        for nth in 1..8 {
            run(&bytes[..bytes.len() * nth / 8]);
        }
    }
}

#[test]
fn whatever_a_publisher_sends_is_shown_or_refused() {
    replay("live", 2, live::run);
}

#[test]
fn whatever_a_client_sends_the_next_one_is_served() {
    replay("sockets", 8, sockets::run);
}
