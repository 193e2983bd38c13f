//! `brickscope load`: asks a server as many clients would.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

/// Ask a server of language models as many clients would, and say how long they waited.
///
/// The server has OpenAI's API over HTTP: llama-server, vLLM, SGLang, Ollama and others. A request's times count from when it
/// was due, not from when it could be sent: a server that stalls isn't asked less meanwhile. Without --rate and --trace, clients
/// ask again when they have their answer, which is a test of throughput.
///
/// The run has what clients saw. Beside a run of the server on the same machine (`brickscope run -- llama-server …`),
/// `brickscope requests SERVER --client RUN` says what the client, the network and the server took.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope load http://localhost:8080 --rate 2 --requests 200\n  brickscope load http://localhost:8080 --rate 2 --slo ttft=500ms,token=50ms\n  brickscope load http://localhost:8000 --concurrency 16 --prompt 512 --output 128\n  brickscope load http://localhost:8080 --trace azure_llm_2023_code.csv --lengths 0.1 --speed 2"
)]
pub(crate) struct LoadArgs {
    /// The server's address, or that of an endpoint.
    pub(crate) url: String,

    /// This many requests in a second on average, due by chance (a Poisson process).
    #[arg(long, value_name = "PER_SECOND", value_parser = above_zero)]
    pub(crate) rate: Option<f64>,

    /// With --rate: due at equal distances.
    #[arg(long, requires = "rate")]
    pub(crate) constant: bool,

    /// This many clients, each of which asks again when it has its answer.
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "trace"], value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub(crate) concurrency: Option<u32>,

    /// Ask what a trace of a real server says, when it says: Mooncake's JSON lines or Azure's CSV.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "prompt", "output"])]
    pub(crate) trace: Option<PathBuf>,

    /// With --trace: this many times as fast.
    #[arg(long, value_name = "TIMES", requires = "trace", default_value_t = 1.0, value_parser = above_zero)]
    pub(crate) speed: f64,

    /// With --trace: prompts and answers this many times as long.
    #[arg(long, value_name = "TIMES", requires = "trace", default_value_t = 1.0, value_parser = above_zero)]
    pub(crate) lengths: f64,

    /// How many requests. By default 100, or the whole trace.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    pub(crate) requests: Option<u32>,

    /// The tokens of each prompt.
    #[arg(long, value_name = "TOKENS", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub(crate) prompt: u64,

    /// The tokens of each answer.
    #[arg(long, value_name = "TOKENS", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub(crate) output: u64,

    /// Count the requests that keep these limits: ttft to the first token, token for a further one on average, e2e to the end.
    #[arg(long, value_name = "ttft=200ms,token=50ms")]
    pub(crate) slo: Option<String>,

    /// Which endpoint is asked.
    #[arg(long, value_enum, default_value_t = Endpoint::Completions)]
    pub(crate) api: Endpoint,

    /// The model's name. By default the first that the server lists.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// Sent as `Authorization: Bearer …`. Rather set the variable: command lines are seen by others.
    #[arg(long, value_name = "KEY", env = "BRICKSCOPE_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,

    /// A JSON object that is added to each request. Null removes: {"ignore_eos": null} for servers that refuse it.
    #[arg(long, value_name = "JSON")]
    pub(crate) body: Option<String>,

    /// How long an answer may take to begin, and then to end, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,

    /// What times and words are chosen by: the same asks the same again, which a server may have in a cache. By default another
    /// one each time.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// The folder to write the run to. By default a new one in `brickscope-runs`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Print the figures as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// An endpoint of OpenAI's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Endpoint {
    /// /v1/completions.
    Completions,
    /// /v1/chat/completions.
    Chat,
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let is_in = number.is_finite() && (1e-6..=1e6).contains(&number);
    if is_in { Ok(number) } else { Err("it must be between 0.000001 and 1000000".to_owned()) }
}

#[cfg(not(feature = "load"))]
pub(crate) fn run(_: &LoadArgs) -> Result<()> {
    anyhow::bail!(
        "load: this brickscope was built without it; `cargo install --path cli --profile dist --features full` has it"
    )
}

#[cfg(feature = "load")]
pub(crate) use self::asking::run;

#[cfg(feature = "load")]
mod asking {
    use std::fmt::Write;
    use std::num::NonZeroUsize;
    use std::path::Path;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use anyhow::{Context, Result, bail};
    use brickscope::load::{self as file, Limit};
    use brickscope::text::grouped;
    use brickscope::{Profile, Run};
    use brickscope_analysis::requests::times;
    use brickscope_analysis::view;
    use brickscope_load::{
        Api, Driven, Figures, Pace, Plan, Progress, Server, Settings, Slo, drive, read,
    };
    use serde_json::json;

    use super::{Endpoint, LoadArgs};
    use crate::figures::pass_time;
    use crate::runs::RunDir;
    use crate::text::{self, count, printable_text, wrapped};
    use crate::{interrupt, output, progress};

    const TRACE: Limit =
        Limit { bytes: 1 << 30, instead: "cut it to the requests that are to be asked" };
    /// The most reasons of failures on a screen.
    const MOST_REASONS: usize = 5;

    pub(crate) fn run(args: &LoadArgs) -> Result<()> {
        let slo: Option<Slo> = args
            .slo
            .as_deref()
            .map(|slo| slo.parse().map_err(|why| anyhow::anyhow!("--slo: {why}")))
            .transpose()?;
        let plan = plan(args)?;
        let settings = Settings {
            api: match args.api {
                Endpoint::Completions => Api::Completions,
                Endpoint::Chat => Api::Chat,
            },
            model: args.model.clone(),
            key: args.api_key.clone(),
            body: args.body.clone(),
            timeout: Duration::from_secs(args.timeout),
        };
        let created = Profile::empty(Default::default()).created;
        let dir = RunDir::create_late(args.out.as_deref(), &created)?;
        interrupt::watch()?;
        let note = progress::note("asking the server how long words are");
        let server = Server::open(&args.url, settings)?;
        let words = server.measure_words().with_context(|| {
            "the first request was not answered. If the server refuses a setting, --body takes it out"
        })?;
        note.finish_and_clear();
        if words.is_none() {
            tell!(
                "note: the server doesn't say how many tokens a prompt has: a word counts as one"
            );
        }
        let bar = progress::requests(plan.asks.len() as u64);
        interrupt::keep();
        let driven = drive(&server, &plan, words, &interrupt::is_asked, &mut |now: Progress| {
            bar.set_position(now.ended as u64);
            let failed =
                if now.failed > 0 { format!(", {} failed", now.failed) } else { String::new() };
            bar.set_prefix(format!("{} going on{failed}", now.begun - now.ended));
        });
        bar.finish_and_clear();
        if let (Pace::Closed(wanted), Some(clients)) = (plan.pace, driven.clients)
            && clients < wanted.get().min(plan.asks.len())
        {
            tell!("note: {} only: the system has no more threads", count(clients as u64, "client"));
        }
        if driven.answers.is_empty() && !interrupt::was_heeded() {
            bail!("nothing was asked: the system has no thread left");
        }
        if driven.answers.is_empty() {
            return Err(interrupt::Nothing.into());
        }
        let figures = Figures::of(&driven, slo.as_ref());
        let profile = described(&driven, &figures, plan.seed);
        let written = dir.write(|dir| dir.save(&profile));
        let shown =
            Shown { args, plan: &plan, server: &server, figures: &figures, profile: &profile };
        crate::runs::finish(written, Default::default(), |folder| {
            output::print(if args.json { shown.json(folder)? } else { shown.text(folder) })
        })
    }

    fn plan(args: &LoadArgs) -> Result<Plan> {
        let LoadArgs { prompt, output, .. } = *args;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = args.seed.unwrap_or(now.as_nanos() as u64);
        let requests = args.requests.unwrap_or(100) as usize;
        if let Some(path) = &args.trace {
            let name = path.display();
            let text = file::text(path, TRACE).with_context(|| name.to_string())?;
            let (plan, left_out, why) = read(&text, seed).with_context(|| name.to_string())?;
            if let (Some(line), Some(why)) = (left_out.first(), why) {
                let lines = count(left_out.len() as u64, "line");
                tell!(
                    "note: {lines} of {} left out; line {line}: {}",
                    output::shown(path),
                    printable_text(&why)
                );
            }
            let most = args.requests.map_or(usize::MAX, |requests| requests as usize);
            return Ok(plan.changed(most, args.speed, args.lengths));
        }
        Ok(match args.rate {
            Some(rate) if args.constant => Plan::constant(rate, requests, prompt, output, seed),
            Some(rate) => Plan::poisson(rate, requests, prompt, output, seed),
            None => {
                let clients =
                    args.concurrency.and_then(|clients| NonZeroUsize::new(clients as usize));
                let clients = clients.unwrap_or(NonZeroUsize::MIN);
                Plan::closed(clients, requests, prompt, output, seed)
            }
        })
    }

    /// The run, as far as a client knows it.
    fn described(driven: &Driven, figures: &Figures, seed: u64) -> Profile {
        let mut profile = driven.profile();
        let cut_short = (figures.not_sent > 0)
            .then(|| format!("{} not sent", count(figures.not_sent, "request")));
        // Both are 0 in a run that doesn't state them; pieces are no tokens.
        let tokens = figures.prompt_tokens.zip(figures.answer_tokens);
        let (prompt_tokens, generated_tokens) = tokens.unwrap_or((0, 0));
        profile.run = Some(Run {
            command: text::command_line(),
            backend: "a client of a server".to_owned(),
            prompt_tokens,
            generated_tokens,
            seed: Some(seed),
            cut_short,
            ..Run::default()
        });
        profile
    }

    struct Shown<'s> {
        args: &'s LoadArgs,
        plan: &'s Plan,
        server: &'s Server,
        figures: &'s Figures,
        profile: &'s Profile,
    }

    impl Shown<'_> {
        fn text(&self, folder: Option<&Path>) -> String {
            let Figures { sent, answered, failed, lasted_ns, .. } = self.figures;
            let mut text = String::new();
            let mut row = |label: &str, value: String| wrapped(label, &value, &mut text);
            let model =
                self.server.model().map(|model| format!(", model {}", printable_text(model)));
            row("server   ", format!("{}{}", self.server.url(), model.unwrap_or_default()));
            let seconds = *lasted_ns as f64 / 1e9;
            let not_sent = match self.figures.not_sent {
                0 => String::new(),
                not_sent => format!("; {} more were not sent", grouped(not_sent)),
            };
            let per_second = |number: u64| format!("{}/s", digits(self.figures.rate_of(number)));
            row(
                "sent     ",
                format!(
                    "{}, {}; in {seconds:.1} s, {}{not_sent}",
                    count(*sent, "request"),
                    self.pace(),
                    per_second(*sent)
                ),
            );
            if self.plan.pace == Pace::Open {
                let of = &self.figures.late;
                let shown = |ns: Option<u64>| ns.map(|ns| pass_time(ns as f64));
                let p50 = shown(of.p50_ns).map_or(String::new(), |p50| format!("{p50} at p50, "));
                let most = shown(of.longest_ns).unwrap_or_default();
                row(
                    "late     ",
                    format!("{p50}{most} at most: from due to sent, part of all times"),
                );
            }
            let more = failed.len().saturating_sub(MOST_REASONS);
            let reasons = failed.iter().take(MOST_REASONS);
            let reasons: Vec<String> = reasons
                .map(|(why, n)| format!("{} {}", grouped(*n), printable_text(why)))
                .collect();
            let reasons = if reasons.is_empty() {
                String::new()
            } else {
                format!("; {}", reasons.join("; "))
            };
            let more = if more > 0 { format!("; and {more} other reasons") } else { String::new() };
            row("answered ", format!("{}{reasons}{more}", grouped(*answered)));
            if let Some(tokens) = self.figures.answer_tokens {
                let prompts = self.figures.prompt_tokens.map_or(String::new(), |prompts| {
                    let cached = self.figures.cached_tokens.map_or(String::new(), |cached| {
                        format!(", {} of them cached", grouped(cached))
                    });
                    format!("; {} of prompts{cached}", grouped(prompts))
                });
                row(
                    "tokens   ",
                    format!("{} of answers, {}{prompts}", grouped(tokens), per_second(tokens)),
                );
            } else {
                let pieces = self.figures.pieces;
                row(
                    "pieces   ",
                    format!(
                        "{}, {}; the server doesn't say how many tokens",
                        grouped(pieces),
                        per_second(pieces)
                    ),
                );
            }
            if let (Some(good), Some(slo)) = (self.figures.good, &self.args.slo) {
                row(
                    "goodput  ",
                    format!(
                        "{}: {} of {} within {}",
                        per_second(good),
                        grouped(good),
                        grouped(*sent),
                        printable_text(slo)
                    ),
                );
            }
            let _ = write!(text, "\n{}", view::times_of_requests(self.profile));
            if let Some(folder) = folder {
                let folder = output::shown(folder);
                let _ = write!(
                    text,
                    "\nThe run is {folder}. What the server did meanwhile:\n  brickscope requests SERVER_RUN --client {folder}\n"
                );
            }
            text
        }

        fn pace(&self) -> String {
            match (self.plan.pace, self.plan.rate()) {
                (Pace::Closed(clients), _) => count(clients.get() as u64, "client"),
                (Pace::Open, None) => "at once".to_owned(),
                (Pace::Open, Some(rate)) => {
                    let how = match (&self.args.trace, self.args.constant) {
                        (Some(path), _) => output::shown(path),
                        (None, true) => "at equal distances".to_owned(),
                        (None, false) => "Poisson".to_owned(),
                    };
                    format!("{how}, due at {}/s", digits(rate))
                }
            }
        }

        fn json(&self, folder: Option<&Path>) -> Result<String> {
            let all = json!({
                "run": folder.map(|folder| folder.display().to_string()),
                "url": self.server.url(),
                "model": self.server.model(),
                "due_per_second": self.plan.rate(),
                "figures": self.figures,
                "times": times(self.profile),
            });
            Ok(serde_json::to_string_pretty(&all)? + "\n")
        }
    }

    fn digits(rate: f64) -> String {
        if rate >= 100.0 {
            format!("{rate:.0}")
        } else if rate >= 10.0 {
            format!("{rate:.1}")
        } else {
            format!("{rate:.2}")
        }
    }
}
