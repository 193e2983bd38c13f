//! `brickscope ls`: the runs in a folder.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result};
use brickscope::save::now_rfc3339;
use brickscope_runs::{Budget, List, Moment, Wanted, home, is_run, list, view};
use terminal_size::terminal_size;

use crate::output;
use crate::text::{WIDTH, count};

/// List the runs in a folder, the newest first.
///
/// `when` is when its work ran. That of an import may be long before the import, which `--json` has as `imported_at`; the
/// newest is the one that was written last. Of another year it is the day.
///
/// The speed is decoded tokens per second, as `show` says it; `disturbed` is how many passes were, of how many. A `*` is at
/// a rate without disturbed passes, if those took more than 5 % of the time (`rate_of` in `--json`): it can't be held
/// against one of all passes. What a run doesn't have is `-`. Where runs differ in it, `on` is the engine or the kernels,
/// and the threads: `llama.cpp 2t`. On a terminal names are cut to its width, in a pipe they are whole.
///
/// Each run has a small file with these figures. A run of an earlier version, or of a program of your own, gets it when it is
/// listed for the first time: at most 32 of them and 32 MiB at once, and of the others the speed is `?`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope ls\n  brickscope ls runs/nightly --read-all\n  brickscope ls --since 7d --tag 'v1.*'\n  brickscope ls --json | jq -r '.runs[] | select(.tag) | .path'\n\nWhat names a run, in all commands:\n  brickscope show @                  the newest run\n  brickscope compare @-1 @           the one before it, and it\n  brickscope show best               a tag\n  brickscope show 20261129-12        the beginning of the name of one run\n  brickscope show brickscope-runs/x  a path, which wins over all these"
)]
pub(crate) struct LsArgs {
    /// The folder. By default `brickscope-runs`.
    pub(crate) folder: Option<PathBuf>,

    /// Only runs whose work ran then or later: 7d or 12h ago, 2026-11-20, or 2026-11-20T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Moment>,

    /// Only runs whose work ran then or before; a day counts as a whole.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Moment>,

    /// Only runs with a tag like this: `*` is any text, and `?` any letter.
    #[arg(long, value_name = "GLOB")]
    pub(crate) tag: Option<String>,

    /// Read all runs that have no small file yet, however long that takes.
    #[arg(long)]
    pub(crate) read_all: bool,

    /// Print it as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &LsArgs) -> Result<()> {
    let named = args.folder.as_deref();
    let folder = named.unwrap_or(home());
    let budget = if args.read_all { Budget::ALL } else { Budget::SOME };
    let mut list = match list(folder, budget) {
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => List::default(),
        listed => listed.with_context(|| output::shown(folder))?,
    };
    let shown = output::shown(folder);
    if list.rows.is_empty() && is_run(folder) {
        tell!("note: {shown} is a run itself: `brickscope show {shown}`");
    } else if list.rows.is_empty() {
        tell!("note: there is no run in {shown}: `profile`, `run`, `import` write one");
    }
    if list.unread > 0 {
        tell!(
            "note: {} not read, for want of a summary: `brickscope ls --read-all` reads all",
            count(list.unread as u64, "run")
        );
    }
    let all = list.rows.len();
    let wanted = Wanted { since: args.since, until: args.until, tag: args.tag.clone() };
    wanted.keep(&mut list);
    if all > 0 && list.rows.is_empty() {
        tell!("note: none of {} in {shown} is wanted", count(all as u64, "run"));
    }
    match (args.json, list.rows.is_empty()) {
        (true, _) => output::print(view::json(&list, folder)),
        (false, true) => Ok(()),
        (false, false) => output::print(view::table(&list, width(), &now_rfc3339())),
    }
}

/// The columns of the terminal; `None` for a pipe, which has no end of a line.
fn width() -> Option<usize> {
    let known = terminal_size().map(|(columns, _)| usize::from(columns.0));
    output::is_terminal().then(|| known.filter(|columns| *columns > 0).unwrap_or(WIDTH))
}
