//! Runs in folders: how one ends, where it goes, and what is read of it. Where they lie and how one is found is the part of
//! `brickscope-runs`.

pub(crate) mod again;
pub(crate) mod command;
mod finish;
#[cfg(feature = "parquet")]
pub(crate) mod lake;
mod left_out;
mod named;
pub(crate) mod otlp;
mod receipts;
pub(crate) mod sides;
pub(crate) mod timing;

pub(crate) use brickscope_runs::{
    FLAMEGRAPH, RunDir, SAMPLES, Written, folder_of, home, llama_bench, load, newest_receipt,
    profile_in, receipt_in, spare,
};
pub(crate) use finish::{Places, finish, into_lake, ready_for_lake, send};
pub(crate) use left_out::without_disturbed;
pub(crate) use named::{named, named_or_newest, newest_if_any};
pub(crate) use receipts::{receipt_file, sealed};
