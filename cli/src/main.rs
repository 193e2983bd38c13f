//! The brickscope command.

fn main() {}
