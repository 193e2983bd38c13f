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
    after_help = "Examples:\n  brickscope load http://localhost:8080 --rate 2 --requests 200\n  brickscope load http://localhost:8080 --rate 2 --slo ttft=500ms,token=50ms\n  brickscope load http://localhost:8000 --concurrency 16 --prompt-tokens 512 --output-tokens 128\n  brickscope load http://localhost:8080 --trace azure_llm_2023_code.csv --lengths 0.1 --speed 2"
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
    #[arg(long = "prompt-tokens", alias = "prompt", value_name = "TOKENS", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub(crate) prompt: u64,

    /// The tokens of each answer.
    #[arg(long = "output-tokens", alias = "output", value_name = "TOKENS", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
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
    #[arg(short, long, value_name = "DIR")]
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
    use std::num::NonZeroUsize;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use anyhow::{Context, Result, bail};
    use brickscope::load::{self as file, Limit};
    use brickscope::{Profile, Run};
    use brickscope_analysis::requests::OF_CLIENT;
    use brickscope_formats::import::decoded;
    use brickscope_load::{
        Api, Driven, Figures, Pace, Plan, Progress, Screen, Server, Settings, Slo, drive, read,
    };

    use super::{Endpoint, LoadArgs};
    use crate::runs::RunDir;
    use crate::text::{self, count, printable_text};
    use crate::{interrupt, machine_name, output, progress};

    const TRACE: Limit =
        Limit { bytes: 1 << 30, instead: "cut it to the requests that are to be asked" };

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
        machine_name::given()?;
        machine_name::commit()?;
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
        let paced = match (&args.trace, args.constant) {
            (Some(path), _) => output::shown(path),
            (None, true) => "at equal distances".to_owned(),
            (None, false) => "Poisson".to_owned(),
        };
        let shown = Screen {
            plan: &plan,
            url: server.url(),
            model: server.model(),
            figures: &figures,
            profile: &profile,
            paced: &paced,
            slo: args.slo.as_deref(),
        };
        crate::runs::finish(written, Default::default(), |folder| {
            if args.json {
                let json = shown.json(folder.map(|folder| folder.display().to_string()));
                return output::print(serde_json::to_string_pretty(&json)? + "\n");
            }
            let next = folder.map_or_else(String::new, |folder| {
                let folder = output::shown(folder);
                format!(
                    "\nThe run is {folder}. What the server did meanwhile:\n  brickscope requests SERVER_RUN --client {folder}\n"
                )
            });
            output::print(shown.text() + &next)
        })
    }

    fn plan(args: &LoadArgs) -> Result<Plan> {
        let LoadArgs { prompt, output, .. } = *args;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = args.seed.unwrap_or(now.as_nanos() as u64);
        let requests = args.requests.unwrap_or(100) as usize;
        if let Some(path) = &args.trace {
            let name = path.display();
            let bytes = file::bytes(path, TRACE).with_context(|| name.to_string())?;
            let Ok(text) = decoded(bytes) else { bail!("{name}: it is not text") };
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
        profile.named = machine_name::named();
        profile.run = Some(Run {
            command: text::command_line(),
            backend: OF_CLIENT.to_owned(),
            prompt_tokens,
            generated_tokens,
            seed: Some(seed),
            cut_short,
            ..Run::default()
        });
        profile
    }
}
