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
    /// The most tokens in the KV cache.
    Context,
}

/// vLLM's least default of the tokens in a pass.
const LEAST_DEFAULT_TOKENS: u64 = 2_048;

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
            (Kind::LlamaServer, Flag::Context) => &["-c", "--ctx-size"],
            (Kind::Vllm, Flag::PassTokens) => &["--max-num-batched-tokens"],
            (Kind::Vllm, Flag::Places) => &["--max-num-seqs"],
            // It has as many as there is memory for.
            (Kind::Vllm, Flag::Context) => &[],
        }
    }

    /// The name by which it is told.
    pub(super) fn name(&self, flag: Flag) -> &'static str {
        self.names(flag).first().copied().unwrap_or_default()
    }

    /// Where the command has it: the last one counts.
    fn place(&self, flag: Flag) -> Option<usize> {
        let names = self.names(flag);
        let is_it = |word: &String| {
            let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
            // vLLM reads `_` as `-`.
            names.contains(&name.replace('_', "-").as_str())
        };
        let at = self.own().iter().rposition(is_it)?;
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

    /// Whether it reads a long prompt in several passes. vLLM that is told not to does not start with fewer tokens in a pass
    /// than a prompt may have.
    pub(super) fn cuts_prompts(&self) -> bool {
        let words = self.own();
        let is_off = |(at, word): (usize, &String)| {
            let word = word.replace('_', "-").to_ascii_lowercase();
            let next = words.get(at + 1).map(|next| next.to_ascii_lowercase());
            word == "--no-enable-chunked-prefill"
                || word == "--enable-chunked-prefill=false"
                || word == "--enable-chunked-prefill" && next.as_deref() == Some("false")
        };
        self.kind != Kind::Vllm || !words.iter().enumerate().any(is_off)
    }

    /// The most requests in a pass with which it starts: vLLM refuses more than there are tokens in one.
    pub(super) fn most_places(&self) -> u64 {
        match (self.kind, self.place(Flag::PassTokens)) {
            (Kind::LlamaServer, _) => u64::MAX,
            (Kind::Vllm, None) => LEAST_DEFAULT_TOKENS,
            (Kind::Vllm, Some(_)) => self.value(Flag::PassTokens).unwrap_or(0),
        }
    }

    /// The command that records it with another value of a flag.
    pub(super) fn with(&self, flag: Flag, value: u64) -> String {
        let mut words = self.command.to_vec();
        self.set(&mut words, flag, value);
        self.records(&words)
    }

    /// The command that records it with its cache of prompts on. `None` if nothing turns that off.
    pub(super) fn with_prompt_cache(&self) -> Option<String> {
        let off = match self.kind {
            Kind::LlamaServer => "--no-cache-prompt",
            Kind::Vllm => "--no-enable-prefix-caching",
        };
        let own = self.own();
        let kept: Vec<&String> = own.iter().filter(|word| word.replace('_', "-") != off).collect();
        let starts = self.command.iter().take(self.flags);
        let words: Vec<String> = starts.chain(kept.iter().copied()).cloned().collect();
        (kept.len() < own.len()).then(|| self.records(&words))
    }

    /// The command that records it with room for `to` requests in a pass instead of `from`.
    ///
    /// llama-server with -np gives each of them an equal part of its context, which stays as large as it was. Without -np all
    /// share the context, if there are several, and go on to.
    pub(super) fn with_places(&self, from: u64, to: u64) -> String {
        let mut words = self.command.to_vec();
        self.set(&mut words, Flag::Places, to);
        let is_shared = self.own().iter().any(|word| ["-kvu", "--kv-unified"].contains(&&**word));
        if self.kind == Kind::LlamaServer && !is_shared {
            if self.value(Flag::Places).is_none() && from > 1 {
                words.push("-kvu".to_owned());
            } else if let Some(context) = self.value(Flag::Context).filter(|_| to > from) {
                self.set(&mut words, Flag::Context, (context / from.max(1)).saturating_mul(to));
            }
        }
        self.records(&words)
    }

    /// Its own words, without what starts it.
    fn own(&self) -> &'p [String] {
        self.command.get(self.flags..).unwrap_or_default()
    }

    /// Gives a flag another value, in words that are those of its command and others behind them.
    fn set(&self, words: &mut Vec<String>, flag: Flag, value: u64) {
        let value = value.to_string();
        let Some(at) = self.place(flag) else {
            words.extend(self.names(flag).first().map(|name| (*name).to_owned()));
            words.push(value);
            return;
        };
        match self.command[at].split_once('=') {
            Some((name, _)) => words[at] = format!("{name}={value}"),
            None if at + 1 < self.command.len() => words[at + 1] = value,
            None => words.insert(at + 1, value),
        }
    }

    /// The line for a shell.
    fn records(&self, words: &[String]) -> String {
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
    fn each_request_has_as_much_context_as_before() {
        let with = |command: &str, from, to| {
            let words: Vec<&str> = command.split(' ').collect();
            let profile = run("llama.cpp b1", &words);
            let line = Server::of(&profile).expect("a server").with_places(from, to);
            line.strip_prefix("brickscope run -- llama-server").expect("it is run").to_owned()
        };
        // With -np each has a part of -c.
        assert_eq!(with("llama-server -c 4096 -np 2", 2, 4), " -c 8192 -np 4");
        assert_eq!(with("llama-server -np 2 --ctx-size 4096", 2, 3), " -np 3 --ctx-size 6144");
        assert_eq!(with("llama-server -np 4 -c 4096", 4, 2), " -np 2 -c 4096");
        assert_eq!(with("llama-server -np 2", 2, 4), " -np 4");
        // Of one without -np, and where there was one, each has all of it.
        assert_eq!(with("llama-server -c 512", 1, 2), " -c 1024 -np 2");
        // They share it.
        assert_eq!(with("llama-server -c 4096 -np 2 -kvu", 2, 4), " -c 4096 -np 4 -kvu");
        assert_eq!(with("llama-server -c 4096", 4, 8), " -c 4096 -np 8 -kvu");
        // A flag without its value.
        assert_eq!(with("llama-server -c 512 -np", 1, 2), " -c 1024 -np 2");
    }

    #[test]
    fn what_vllm_refuses_is_known() {
        let of = |command: &str| {
            let words: Vec<&str> = command.split(' ').collect();
            let profile = run("vLLM on CUDA", &words);
            let server = Server::of(&profile).expect("a server");
            (server.cuts_prompts(), server.most_places())
        };
        assert_eq!(of("vllm serve M"), (true, 2_048));
        assert_eq!(of("vllm serve M --enable-chunked-prefill"), (true, 2_048));
        assert_eq!(of("vllm serve M --max-num-batched-tokens 64"), (true, 64));
        // Who knows how many those are.
        assert_eq!(of("vllm serve M --max-num-batched-tokens=8k"), (true, 0));
        for off in [
            "--no-enable-chunked-prefill",
            "--no_enable_chunked_prefill",
            "--enable-chunked-prefill=False",
            "--enable-chunked-prefill False",
        ] {
            assert!(!of(&format!("vllm serve M {off}")).0, "{off}");
        }
    }

    #[test]
    fn what_turns_the_cache_of_prompts_off_is_taken_out() {
        let with = |backend: &str, command: &str| {
            let words: Vec<&str> = command.split(' ').collect();
            let profile = run(backend, &words);
            Server::of(&profile).expect("a server").with_prompt_cache()
        };
        let llama = with("llama.cpp b1", "llama-server --no-cache-prompt -np 2");
        assert_eq!(llama.as_deref(), Some("brickscope run -- llama-server -np 2"));
        let vllm = with("vLLM on CUDA", "vllm serve M --no_enable_prefix_caching");
        assert_eq!(vllm.as_deref(), Some("BRICKSCOPE_OUT=changed.json vllm serve M"));
        assert_eq!(with("llama.cpp b1", "llama-server -np 2"), None);
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
