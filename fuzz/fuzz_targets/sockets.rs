//! Whatever bytes a client sends, a publisher and a server of metrics go on serving others.
#![no_main]

use brickscope_fuzz_bodies::sockets;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sockets::run(bytes));
