//! Runs in folders: how one ends, where it goes, and what is read of it. Where they lie and how one is found is the part of
//! `brickscope-runs`.

pub(crate) mod again;
pub(crate) mod command;
mod finish;
#[cfg(feature = "parquet")]
pub(crate) mod lake;
mod named;
pub(crate) mod otlp;
pub(crate) mod sides;
mod so_far;
pub(crate) mod timing;

use brickscope::Profile;
#[cfg(feature = "flamegraph")]
pub(crate) use brickscope_runs::SAMPLES;
pub(crate) use brickscope_runs::{
    FLAMEGRAPH, RunDir, Written, folder_of, home, llama_bench, load, newest_receipt, profile_in,
    receipt_file, receipt_files, receipt_in, sealed, spare,
};
pub(crate) use finish::{Places, finish, into_lake, ready_for_lake, send};
pub(crate) use named::{named, named_or_newest, newest_if_any};
pub(crate) use so_far::so_far_of;

/// The profile without passes that were disturbed or had a stall, with a note where none would remain.
pub(crate) fn without_disturbed(profile: Profile, is_report: bool) -> Profile {
    brickscope_runs::without_disturbed(profile, is_report, |note| tell!("note: {note}"))
}
