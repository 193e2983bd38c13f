//! What a [`Profile`](brickscope_profile::Profile) says: text, rooflines, comparisons, histories,
//! receipts, and files for and from other programs. Nothing here measures.
//!
//! | module | what it has |
//! |---|---|
//! | [`view`] | text for people: the report, tables, the comparison, SVGs |
//! | [`roofline`], [`backends`] | each brick beside what the machine can do; backends side by side |
//! | [`stacks`] | spans as stacks, for flamegraphs, and the difference of two |
//! | [`compare`] | two sets of processes: what became slower, and how sure that is |
//! | `history` | many runs: when the speed changed for good (feature `receipt`) |
//! | `receipt` | a benchmark's result that others can check (feature `receipt`) |
//! | [`export`], [`import`] | files for other programs, and files of other programs |
#![forbid(unsafe_code)]

pub mod backends;
pub mod compare;
pub mod export;
#[cfg(feature = "receipt")]
pub mod history;
pub mod import;
#[cfg(feature = "receipt")]
pub mod receipt;
pub mod roofline;
pub mod stacks;
pub mod view;
