//! Runs in folders: where they lie, how one is written and ends, and what is read of them.

pub(crate) mod again;
pub(crate) mod command;
mod finish;
mod folder;
#[cfg(feature = "parquet")]
pub(crate) mod lake;
mod left_out;
pub(crate) mod llama_bench;
pub(crate) mod otlp;
mod receipts;
pub(crate) mod sides;
pub(crate) mod timing;

pub(crate) use finish::{Places, finish, into_lake, ready_for_lake, send};
pub(crate) use folder::{
    FLAMEGRAPH, RunDir, SAMPLES, Written, folder_of, load, newest_receipt, profile_in, receipt_in,
    spare,
};
pub(crate) use left_out::without_disturbed;
pub(crate) use receipts::{receipt_file, sealed};
