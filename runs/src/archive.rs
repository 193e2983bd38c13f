//! Flamegraphs that another one is about to replace.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use brickscope_analysis::stacks::summary::Summary;

use crate::files::{FLAMEGRAPH, is_ours};

/// The folder of earlier flamegraphs, beside those that it has copies of.
pub const ARCHIVES: &str = "archives";

/// Copies the flamegraph in a folder, if it has one, into `archives` beside the folder, under the time of the flamegraph.
/// What is there already stays.
///
/// # Errors
///
/// If the flamegraph can't be read, or the copy can't be written.
pub fn archive(folder: &Path) -> Result<()> {
    if !folder.join(FLAMEGRAPH).is_file() {
        return Ok(());
    }
    let summary = Summary::load(folder).map_err(|why| anyhow!("{}: {why}", folder.display()))?;
    let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
    let (Some(name), Some(parent)) = (folder.file_name(), folder.parent()) else {
        bail!("{} lies in no other folder", folder.display())
    };
    // A file can say anything of its time.
    let time: String =
        summary.generated.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
    let mut archived = name.to_os_string();
    archived.push(format!("-{time}"));
    let to = parent.join(ARCHIVES).join(archived);
    if to.join(FLAMEGRAPH).exists() {
        return Ok(());
    }
    copy(&folder, &to).with_context(|| to.display().to_string())
}

/// Copies a run's files; `flamegraph.json` comes last, so that a folder that has it has all.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != FLAMEGRAPH && is_ours(&name) && entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(name))?;
        }
    }
    fs::copy(from.join(FLAMEGRAPH), to.join(FLAMEGRAPH)).map(drop)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_copy_is_kept_once_under_the_time_that_the_flamegraph_states() {
        let dir = TempDir::new().expect("a folder");
        let folder = dir.path().join("base");
        archive(&folder).expect("there is nothing to copy");
        assert!(!dir.path().join(ARCHIVES).exists());
        fs::create_dir(&folder).expect("a folder");
        let put = |name: &str, text: &str| fs::write(folder.join(name), text).expect("written");
        put("flamegraph.svg", "<svg/>");
        put("mine.txt", "stays where it is");
        put(FLAMEGRAPH, "{");
        let why = archive(&folder).expect_err("it can't be read").to_string();
        assert!(why.contains("truncated"), "{why}");
        put(
            FLAMEGRAPH,
            r#"{"schema_version": 1, "brickscope_version": "0.1.0", "generated": "../2026-11-21T14:16:02Z",
                "source": {"via": "folded"}, "unit": "samples", "total": 0, "doubts": [], "build": "",
                "classes": [], "bricks": [], "functions": []}"#,
        );
        for _ in 0..2 {
            archive(&folder).expect("copied, and then there already");
        }
        let kept = dir.path().join("archives/base-20261121T141602Z");
        assert!(kept.join("flamegraph.svg").exists() && kept.join(FLAMEGRAPH).exists());
        assert!(!kept.join("mine.txt").exists());
    }
}
