//! `brickscope collect`: adds runs to a lake.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::flags::LakeAbout;

/// Add runs to a lake: Parquet files with the runs of many machines, in a folder or an object store.
///
/// A run is its folder, its profile.json, a receipt, or a file of llama-bench that you name; in other folders `collect`
/// finds all runs. Many processes and machines may write to one lake at once. A run that is there already is not added
/// again, and a run is in the lake as a whole or not at all. docs/fleet.md describes lakes, and how to name a server of S3.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope collect brickscope-runs --lake /shared/lake\n  brickscope collect runs/nightly --lake lake --machine ci-7 --commit \"$(git rev-parse HEAD)\"\n  brickscope collect brickscope-runs --lake s3://bucket/lake\n  brickscope lake inventory --lake lake"
)]
pub(crate) struct CollectArgs {
    /// Runs, or folders with runs.
    #[arg(required = true)]
    pub(crate) runs: Vec<PathBuf>,

    /// The lake: a folder, or s3://BUCKET/PREFIX in builds with object stores. It is made if it isn't there.
    #[arg(long, value_name = "DIR|URL", env = "BRICKSCOPE_LAKE")]
    pub(crate) lake: PathBuf,

    #[command(flatten)]
    pub(crate) about: LakeAbout,

    /// Print how many runs were added as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(not(feature = "parquet"))]
pub(crate) fn run(_: &CollectArgs) -> Result<()> {
    bail!(
        "collect: this brickscope was built without Parquet; `cargo install --path cli --profile dist --features full` has it"
    )
}

#[cfg(feature = "parquet")]
pub(crate) fn run(args: &CollectArgs) -> Result<()> {
    use crate::runs::lake::{HOST, Lake, collect};
    use crate::runs::named;
    use crate::text::{count, printable_text};
    use crate::{output, progress};

    let lake = Lake::open_or_make(&args.lake, &HOST)?;
    let runs = args.runs.iter().map(|run| named(run)).collect::<Result<Vec<_>>>()?;
    let bar = progress::steps("collecting", runs.len() as u64);
    let each = &mut |done, all| progress::at(&bar, done, all);
    let collected = collect(&lake, &runs, &args.about.clone().into(), each);
    bar.finish_and_clear();
    let collected = collected?;
    for (path, reason) in &collected.left_out {
        tell!("left out: {}: {}", output::shown(path), printable_text(reason));
    }
    let LakeAbout { commit, session, .. } = &args.about;
    if collected.known > 0 && (commit.is_some() || session.is_some()) {
        tell!("note: runs that are there already keep their commit and session");
    }
    if args.json {
        output::print(serde_json::to_string_pretty(&collected)? + "\n")?;
    } else {
        let known = match collected.known {
            0 => String::new(),
            known => format!("; {} there already", count(known, "run")),
        };
        output::print(format!(
            "{} added to {}{known}\n",
            count(collected.added, "run"),
            output::shown(&args.lake)
        ))?;
    }
    if collected.added + collected.known == 0 {
        bail!("no run could be collected");
    }
    Ok(())
}
