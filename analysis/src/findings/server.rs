//! The command line of a server with one flag changed, for a run of it under the same load.

use brickscope_profile::text::printable_text;
use brickscope_profile::{Profile, secrets};

use crate::words::shell_word;

/// What a flag says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    /// The most tokens of a pass, those of prompts among them.
    PassTokens,
    /// The most requests in a pass.
    Places,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    LlamaServer,
    Vllm,
}

/// A server that can be started again as it was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Server<'p> {
    command: &'p [String],
    kind: Kind,
    /// Where its own flags begin.
    flags: usize,
}

impl<'p> Server<'p> {
    /// `None` where the command line isn't that of a server whose flags are known, lacks a secret that a run doesn't keep, or
    /// can't be shown as it is.
    pub(super) fn of(profile: &'p Profile) -> Option<Self> {
        let run = profile.run.as_ref()?;
        let command = &run.command[..];
        let is_shown_whole = |word: &String| printable_text(word) == *word;
        if secrets::are_left_out(command) || !command.iter().all(is_shown_whole) {
            return None;
        }
        let backend = run.backend.as_str();
        // A line for a shell is one word, to which no flag can be added.
        let is_file = |word: &str, name: &str| {
            !word.contains(char::is_whitespace) && word.rsplit('/').next() == Some(name)
        };
        let of_llama =
            backend.starts_with("llama.cpp") && !backend.starts_with("llama.cpp in this program");
        if of_llama {
            let at = command.iter().position(|word| is_file(word, concat!("llama", "-server")))?;
            return Some(Self { command, kind: Kind::LlamaServer, flags: at + 1 });
        }
        if backend.starts_with("vLLM") {
            let is_it = |pair: &[String]| is_file(&pair[0], "vllm") && pair[1] == "serve";
            let at = command.windows(2).position(is_it)?;
            return Some(Self { command, kind: Kind::Vllm, flags: at + 2 });
        }
        None
    }

    /// Whether it is one that `brickscope run` starts.
    pub(super) fn is_llama_server(&self) -> bool {
        self.kind == Kind::LlamaServer
    }

    /// The names of a flag, the one to add first.
    fn names(&self, flag: Flag) -> &'static [&'static str] {
        match (self.kind, flag) {
            (Kind::LlamaServer, Flag::PassTokens) => &["-b", "--batch-size"],
            (Kind::LlamaServer, Flag::Places) => &["-np", "--parallel"],
            (Kind::Vllm, Flag::PassTokens) => &["--max-num-batched-tokens"],
            (Kind::Vllm, Flag::Places) => &["--max-num-seqs"],
        }
    }

    /// Where the command has it: the last one counts.
    fn place(&self, flag: Flag) -> Option<usize> {
        let names = self.names(flag);
        let is_it = |word: &String| {
            let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
            // vLLM reads `_` as `-`.
            names.contains(&name.replace('_', "-").as_str())
        };
        let at = self.command.get(self.flags..)?.iter().rposition(is_it)?;
        Some(self.flags + at)
    }

    /// What the command says of it.
    pub(super) fn value(&self, flag: Flag) -> Option<u64> {
        let at = self.place(flag)?;
        let value = match self.command[at].split_once('=') {
            Some((_, value)) => value,
            None => self.command.get(at + 1)?.as_str(),
        };
        value.parse().ok().filter(|&value| value > 0)
    }

    /// The command that records it with another value of a flag.
    pub(super) fn with(&self, flag: Flag, value: u64) -> String {
        let mut words = self.command.to_vec();
        let value = value.to_string();
        match self.place(flag) {
            None => words.extend([self.names(flag)[0].to_owned(), value]),
            Some(at) => {
                let name = words[at].split_once('=').map(|(name, _)| name.to_owned());
                match name {
                    Some(name) => words[at] = format!("{name}={value}"),
                    None if at + 1 < words.len() => words[at + 1] = value,
                    None => words.push(value),
                }
            }
        }
        let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
        let by = match self.kind {
            Kind::LlamaServer => "brickscope run --",
            Kind::Vllm => "BRICKSCOPE_OUT=changed.json",
        };
        format!("{by} {}", words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Run};

    use super::*;

    fn run(backend: &str, command: &[&str]) -> Profile {
        let run = Run {
            backend: backend.to_owned(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            ..Run::default()
        };
        Profile { run: Some(run), ..Profile::empty(ClockInfo::default()) }
    }

    fn with(backend: &str, command: &str, flag: Flag) -> Option<String> {
        let words: Vec<&str> = command.split(' ').collect();
        let profile = run(backend, &words);
        Server::of(&profile).map(|server| server.with(flag, 8))
    }

    #[test]
    fn a_flag_is_added_or_its_last_value_is_replaced() {
        let llama = |command, flag| with("llama.cpp b1 on CPU", command, flag).expect("a server");
        assert_eq!(
            llama("./llama-server -m m.gguf", Flag::Places),
            "brickscope run -- ./llama-server -m m.gguf -np 8"
        );
        assert_eq!(
            llama("taskset -c 0 bin/llama-server --parallel 2 -np 4 -b 512", Flag::Places),
            "brickscope run -- taskset -c 0 bin/llama-server --parallel 2 -np 8 -b 512"
        );
        assert_eq!(
            llama("llama-server --batch-size 512 -ub 64", Flag::PassTokens),
            "brickscope run -- llama-server --batch-size 8 -ub 64"
        );
        // What comes before the server is another program's.
        assert_eq!(
            llama("wrap -b 2 llama-server -b", Flag::PassTokens),
            "brickscope run -- wrap -b 2 llama-server -b 8"
        );
        let vllm = |command, flag| with("vLLM on CUDA", command, flag).expect("a server");
        assert_eq!(
            vllm("/bin/vllm serve M --max_num_seqs=64", Flag::Places),
            "BRICKSCOPE_OUT=changed.json /bin/vllm serve M --max_num_seqs=8"
        );
        assert_eq!(
            vllm("vllm serve M", Flag::PassTokens),
            "BRICKSCOPE_OUT=changed.json vllm serve M --max-num-batched-tokens 8"
        );
    }

    #[test]
    fn what_its_command_says_is_read() {
        let value = |command: &[&str]| {
            let profile = run("llama.cpp b1", command);
            Server::of(&profile).expect("a server").value(Flag::Places)
        };
        assert_eq!(value(&["llama-server", "-np", "2", "--parallel", "4"]), Some(4));
        assert_eq!(value(&["llama-server", "--parallel=3"]), Some(3));
        assert_eq!(value(&["llama-server"]), None);
        assert_eq!(value(&["llama-server", "-np"]), None);
        assert_eq!(value(&["llama-server", "-np", "-1"]), None);
    }

    #[test]
    fn what_can_not_be_started_again_has_no_command() {
        for (backend, command) in [
            ("llama.cpp b1", "llama-cli -m m.gguf"),
            ("llama.cpp b1", "llama-server --api-key ***"),
            ("llama.cpp in this program", "llama-server"),
            ("vLLM on CUDA", "python3 offline.py"),
            ("avx2", "llama-server"),
        ] {
            assert_eq!(with(backend, command, Flag::Places), None, "{backend} {command}");
        }
        for word in ["exec ./llama-server", "\u{7}"] {
            let profile = run("llama.cpp b1", &["sh", "-c", word]);
            assert!(Server::of(&profile).is_none(), "{word:?}");
        }
        let profile = run("llama.cpp b1", &["llama-server", "-a", "\u{7}"]);
        assert!(Server::of(&profile).is_none());
    }

    #[test]
    fn words_of_a_command_stay_words() {
        let profile = run("llama.cpp b1", &["llama-server", "-a", "RUN  MODEL", "$(id)"]);
        let command = Server::of(&profile).expect("a server").with(Flag::Places, 8);
        assert_eq!(command, "brickscope run -- llama-server -a 'RUN  MODEL' '$(id)' -np 8");
    }
}
