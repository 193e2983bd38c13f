//! Receipts: the result of a benchmark in a form that others can check. What ran, on what machine, how it was
//! measured, and every raw sample, under one hash.
#![forbid(unsafe_code)]

mod aggregate;
mod doubts;
mod fields;
mod file;
mod hash;
mod key;
mod place;
mod seal;
pub mod v1;
mod verify;

pub use doubts::derived_doubts;
pub use file::{MAX_BYTES, ReceiptError, read};
pub use hash::{sha256_file, sha256_file_with, sha256_hex, tokens_sha256};
pub use key::SecretKey;
pub use v1::{Aggregates, Receipt};
pub use verify::{
    BorneOut, CanBe, Claims, Code, FIELDS, Field, Options, Refusal, Rerun, Verdict, rerun_agrees,
    verify,
};
