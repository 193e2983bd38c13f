//! The subcommands, one a file.

pub(crate) mod check_overhead;
pub(crate) mod diverge;
pub(crate) mod doctor;
pub(crate) mod history;
pub(crate) mod logits;
pub(crate) mod machine;
pub(crate) mod profile;
pub(crate) mod show;
pub(crate) mod synth;
pub(crate) mod tokenize;
