//! ik_llama.cpp, in a program of its own (`ik.c`): its symbols are those of llama.cpp.

use std::io::{BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// A conversation with a model on a number of threads, in a process of its own. Between turns it waits for a command.
///
/// Each command is a round trip over two pipes, some microseconds that are in the peer's time.
#[derive(Debug)]
pub(crate) struct Context {
    child: Child,
    talk: Talk<BufReader<ChildStdout>, ChildStdin>,
    /// What the library was built with, as it prints it.
    pub(crate) built_with: String,
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
        let commands = child.stdin.take().expect("it was asked for");
        let answers = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut this =
            Self { child, talk: Talk::new(answers, commands), built_with: String::new() };
        let says = this.talk.text();
        this.built_with = this.explained(says)?;
        Ok(this)
    }

    /// Forgets all tokens.
    pub(crate) fn clear(&mut self) -> Result<()> {
        let done = self.talk.run(&[0]);
        self.explained(done)
    }

    /// Runs `tokens` after those so far.
    pub(crate) fn forward(&mut self, tokens: &[u32]) -> Result<()> {
        let n = u32::try_from(tokens.len()).context("more than 2³² tokens")?;
        let done = self.talk.run(&[&[n], tokens].concat());
        self.explained(done)
    }

    /// The logits that follow the last token.
    pub(crate) fn logits(&mut self) -> Result<Vec<f32>> {
        let logits = self.talk.logits();
        self.explained(logits)
    }

    /// Adds to an error how the program ended, which may be why.
    fn explained<T>(&mut self, done: Result<T>) -> Result<T> {
        done.with_context(|| {
            let _ = self.child.kill();
            match self.child.wait() {
                Ok(status) => format!("the program of ik_llama.cpp ({status})"),
                Err(why) => format!("the program of ik_llama.cpp ({why})"),
            }
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Commands and their answers.
#[derive(Debug)]
struct Talk<R, W> {
    answers: R,
    commands: W,
}

impl<R: Read, W: Write> Talk<R, W> {
    fn new(answers: R, commands: W) -> Self {
        Self { answers, commands }
    }

    fn run(&mut self, words: &[u32]) -> Result<()> {
        self.say(words)?;
        let status = self.word()?;
        ensure!(status == 0, "a forward pass failed ({})", status.cast_signed());
        Ok(())
    }

    fn logits(&mut self) -> Result<Vec<f32>> {
        self.say(&[u32::MAX])?;
        let n = self.word()?;
        let bytes = self.bytes(4 * u64::from(n))?;
        Ok(bytes.as_chunks().0.iter().copied().map(f32::from_ne_bytes).collect())
    }

    fn text(&mut self) -> Result<String> {
        let n = self.word()?;
        Ok(String::from_utf8_lossy(&self.bytes(n.into())?).into_owned())
    }

    fn say(&mut self, words: &[u32]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.commands.write_all(&bytes).context("it takes no command")
    }

    fn word(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        self.answers.read_exact(&mut bytes).context("it doesn't answer")?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// As many bytes as are announced, without room for more than come.
    fn bytes(&mut self, n: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.answers.by_ref().take(n).read_to_end(&mut bytes).context("it doesn't answer")?;
        ensure!(bytes.len() as u64 == n, "its answer ends after {} of {n} bytes", bytes.len());
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answering(words: &[u32]) -> Talk<std::io::Cursor<Vec<u8>>, Vec<u8>> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Talk::new(std::io::Cursor::new(bytes), Vec::new())
    }

    #[test]
    fn each_command_has_its_answer() {
        let mut talk = answering(&[0, 2, 1.5_f32.to_bits(), (-2.0_f32).to_bits(), 0]);
        talk.run(&[2, 7, 8]).unwrap();
        assert_eq!(talk.logits().unwrap(), [1.5, -2.0]);
        talk.run(&[0]).unwrap();
        let said: Vec<u32> =
            talk.commands.as_chunks().0.iter().copied().map(u32::from_ne_bytes).collect();
        assert_eq!(said, [2, 7, 8, u32::MAX, 0]);
        talk.run(&[0]).unwrap_err();
    }

    #[test]
    fn what_fails_or_ends_early_is_an_error() {
        let failed = answering(&[1_u32.wrapping_neg()]).run(&[1, 7]).unwrap_err();
        assert_eq!(failed.to_string(), "a forward pass failed (-1)");
        let early = answering(&[3, 0]).logits().unwrap_err();
        assert_eq!(early.to_string(), "its answer ends after 4 of 12 bytes");
        answering(&[u32::MAX]).text().unwrap_err();
    }
}
