//! The input of a flamegraph: a model or a program to run, or an earlier recording.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brickscope::load;

/// The input of a flamegraph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// A model to run: the file, or the default model.
    Model(Option<PathBuf>),
    /// A program to run.
    Command(Vec<OsString>),
    /// The folder of a run.
    Run(PathBuf),
    /// The output of `perf record`.
    PerfData(PathBuf),
    /// Folded stacks by any program.
    Folded(PathBuf),
}

impl Input {
    pub(crate) fn of(what: Option<&Path>, command: &[OsString]) -> Result<Self> {
        if !command.is_empty() {
            return Ok(Self::Command(command.to_owned()));
        }
        what.map_or(Ok(Self::Model(None)), Self::of_path)
    }

    /// Detected by the contents of the file, not by its name.
    fn of_path(path: &Path) -> Result<Self> {
        let kind = path.metadata().with_context(|| path.display().to_string())?.file_type();
        if kind.is_dir() {
            return Ok(Self::Run(path.to_owned()));
        }
        // Bytes read from a pipe would be lost, and a pipe can be none of the others.
        if kind.is_fifo() {
            return Ok(Self::Folded(path.to_owned()));
        }
        let mut start = Vec::new();
        load::open(path)
            .and_then(|file| file.take(4096).read_to_end(&mut start))
            .with_context(|| path.display().to_string())?;
        let is_profile = path.file_name().is_some_and(|name| name == "profile.json");
        Ok(match &start[..] {
            [] => bail!("{} is empty: there is nothing to draw", path.display()),
            [b'G', b'G', b'U', b'F', ..] => Self::Model(Some(path.to_owned())),
            // In either byte order; the wrong one is refused later, with a clear error.
            start if start.starts_with(b"PERFILE") || start.starts_with(b"2ELIFREP") => {
                Self::PerfData(path.to_owned())
            }
            _ if is_profile => Self::Run(path.to_owned()),
            start if start.contains(&0) => bail!(
                "{} is neither a GGUF file, nor a perf.data file, nor text: it can't be run or drawn",
                path.display()
            ),
            [b'{', ..] => bail!(
                "{} is JSON, but not the profile.json of a run: name the run's folder, a model, a \
                 perf.data file or folded stacks",
                path.display()
            ),
            _ => Self::Folded(path.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_a_file_is_its_first_bytes_say() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).expect("written");
            path
        };
        let model = write("a.folded", b"GGUF\x03\0\0\0");
        assert_eq!(Input::of_path(&model).unwrap(), Input::Model(Some(model)));
        let perf = write("b.gguf", b"PERFILE2\x68\0\0\0");
        assert_eq!(Input::of_path(&perf).unwrap(), Input::PerfData(perf));
        let folded = write("c", b"main;work 12\n");
        assert_eq!(Input::of_path(&folded).unwrap(), Input::Folded(folded));
        let profile = write("profile.json", b"{\"schema_version\": 2}");
        assert_eq!(Input::of_path(&profile).unwrap(), Input::Run(profile));
        let folder = dir.path().to_owned();
        assert_eq!(Input::of_path(&folder).unwrap(), Input::Run(folder));

        let why = |path: &Path| format!("{:#}", Input::of_path(path).unwrap_err());
        assert!(why(&write("e", b"")).contains("is empty"));
        assert!(
            why(&write("f", b"\x7fELF\0\0")).contains("neither a GGUF file, nor a perf.data file")
        );
        assert!(why(&write("g.json", b"{}")).contains("not the profile.json of a run"));
        assert!(why(&dir.path().join("nothing")).contains("nothing"));
    }
}
