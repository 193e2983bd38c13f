//! A benchmark's result in the form that others can check: what ran, on what, how measured, with
//! every raw sample, under one hash.

mod aggregate;
pub mod v1;

pub use v1::{Aggregates, Receipt};
