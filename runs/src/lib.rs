//! Runs in folders: where they lie, how one is written, listed, named, found again and removed.
//!
//! | file | contents |
//! |---|---|
//! | `files.rs` | the files of a run, and which of them brickscope writes |
//! | `writing.rs` | a mark on folders that are being written, so that nobody removes them meanwhile |
//! | `summary.rs` | the small file of a run that [`list()`] reads in place of its profile |
//! | `archive.rs` | copies of flamegraphs that others replace |
//! | `folder.rs` | [`RunDir`]: the folder that a run is written to |
//! | `speed.rs` | how fast a run decoded, and which passes that is of |
//! | `so_far.rs` | [`write_so_far()`]: what there is of a run that goes on, in a folder of its own |
//! | `read.rs` | [`load`]: a run, given its folder or its file |
//! | `receipts.rs` | a receipt of a run, and whether it is as it was made |
//! | `sides.rs` | the sides of a comparison: the runs of one process or of many |
//! | `times.rs` | when a run was made and imported |
//! | `left_out.rs` | a run without its disturbed passes |
//! | `tag.rs` | names that users give to runs |
//! | `versus.rs` | what `versus` notes beside its runs, so that they can be compared as it did |
//! | `list.rs` | [`list()`]: the runs in a folder, newest first |
//! | `wanted.rs` | which runs of a list are wanted: [`Wanted`] |
//! | `find.rs` | [`find()`]: which run a word names. The one place that decides it |
//! | `remove.rs` | removing runs, and nothing else; [`old`]: which of many |
//! | `settings.rs` | [`Settings`](settings::Settings): the user's defaults, in `brickscope.toml` |
//! | `view.rs` | the list as a table and as JSON |
//! | `llama_bench.rs` | files of llama-bench in the place of runs |
//! | `give_back.rs` | room on the disk that a file needs no more |
//! | `private.rs` | folders that no other user can write to |
#![forbid(unsafe_code)]

mod archive;
mod files;
mod find;
mod folder;
mod give_back;
mod left_out;
mod list;
pub mod llama_bench;
pub mod private;
mod read;
mod receipts;
mod remove;
pub mod settings;
pub mod sides;
mod so_far;
mod speed;
mod summary;
pub mod tag;
mod times;
mod versus;
pub mod view;
mod wanted;
mod writing;

pub use crate::archive::{ARCHIVES, archive};
pub use crate::files::{
    FLAMEGRAPH, REPORT, RUNS, SAMPLES, folder_of, is_ours, is_run, profile_in, receipt_in,
};
pub use crate::find::{By, Found, find, newest};
pub use crate::folder::{RunDir, Written};
pub use crate::give_back::give_back;
pub use crate::left_out::without_disturbed;
pub use crate::list::{Budget, List, Row, list};
pub use crate::read::{load, newest_receipt, spare};
pub use crate::receipts::{receipt_file, receipt_files, sealed};
pub use crate::remove::{Contents, NotOurs, Removed, contents, old, remove};
pub use crate::settings::home;
pub use crate::so_far::write_so_far;
pub use crate::speed::Speed;
pub use crate::summary::{Passes, Series, Summary};
pub use crate::versus::Turns;
pub use crate::wanted::{Moment, Wanted};
pub use crate::writing::BeingWritten;
