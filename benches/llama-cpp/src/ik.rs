//! ik_llama.cpp, in a program of its own (`ik.c`): its symbols are those of llama.cpp.

use std::io::{BufReader, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// A conversation with a model on a number of threads, in a process of its own. Between turns it waits for a command.
#[derive(Debug)]
pub(crate) struct Context {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    logits: Vec<f32>,
}

impl Context {
    /// Starts `program`, which loads the model, and waits until it has. With `repacked`, as `-rtr 1` does.
    pub(crate) fn new(
        program: &Path,
        model: &Path,
        threads: NonZeroUsize,
        room: usize,
        repacked: bool,
    ) -> Result<Self> {
        let mut child = Command::new(program)
            .arg(model)
            .args([threads.get(), room, usize::from(repacked)].map(|n| n.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut this = Self { child, commands, answers, logits: Vec::new() };
        this.answered().with_context(|| format!("{} can't load it", program.display()))?;
        Ok(this)
    }

    /// Forgets all tokens.
    pub(crate) fn clear(&mut self) -> Result<()> {
        self.say(&[0])
    }

    /// Runs `tokens` after those so far.
    pub(crate) fn forward(&mut self, tokens: &[u32]) -> Result<()> {
        let n = u32::try_from(tokens.len()).context("more than 2³² tokens")?;
        self.say(&[&[n], tokens].concat())?;
        self.answered()
    }

    /// The logits that follow the last token.
    pub(crate) fn logits(&mut self) -> Result<&[f32]> {
        self.say(&[u32::MAX])?;
        let n = self.word()?;
        let mut bytes = vec![0; 4 * usize::try_from(n)?];
        self.answers.read_exact(&mut bytes).context("it ended")?;
        let floats = bytes.as_chunks().0.iter().copied().map(f32::from_ne_bytes);
        self.logits.clear();
        self.logits.extend(floats);
        Ok(&self.logits)
    }

    fn say(&mut self, words: &[u32]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let commands = self.commands.as_mut().expect("open until it is dropped");
        commands.write_all(&bytes).context("it ended")
    }

    fn word(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        self.answers.read_exact(&mut bytes).context("it ended")?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn answered(&mut self) -> Result<()> {
        let status = self.word()?;
        ensure!(status == 0, "a forward pass of ik_llama.cpp failed ({})", status.cast_signed());
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // It ends with its input.
        self.commands = None;
        let _ = self.child.wait();
    }
}
