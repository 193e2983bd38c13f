//! `brickscope lake`: questions of a lake, and its upkeep.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Arg, Subcommand, ValueEnum};

use crate::text::is_date;

/// Ask a lake of runs: which machine is slow, which commit, since when.
///
/// A lake is what `brickscope collect` writes. DuckDB answers: its library in this process, or its command
/// (`pip install duckdb-cli`). The questions are SQL that other engines understand, too; --sql prints it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope lake inventory --lake lake\n  brickscope lake slowest-machines --lake lake --since 2026-11-01\n  brickscope lake percentiles --lake lake --brick LmHead\n  brickscope lake query --lake lake 'SELECT machine, count(*) FROM runs GROUP BY machine'\n  brickscope lake compact --lake lake"
)]
pub(crate) struct LakeArgs {
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// What is in the lake: runs by engine, model and quantisation.
    #[command(
        mut_args(|arg| only(arg, &["model"])),
        after_help = "Example:\n  brickscope lake inventory --lake lake --since 2026-11-01"
    )]
    Inventory(AskArgs),
    /// The machines, their runs, and how busy other programs kept them.
    #[command(
        mut_args(|arg| only(arg, &[])),
        after_help = "Example:\n  brickscope lake machines --lake lake"
    )]
    Machines(AskArgs),
    /// Speed by day.
    #[command(
        mut_args(|arg| only(arg, &["model", "test"])),
        after_help = "Example:\n  brickscope lake trend --lake lake --test tg128 --model llama-1b"
    )]
    Trend(AskArgs),
    /// Speeds side by side, by one property of runs: --by quant, engine, machine …
    #[command(
        mut_args(|arg| only(arg, &["model", "test", "by"])),
        after_help = "Example:\n  brickscope lake compare --lake lake --by quant --test tg128"
    )]
    Compare(AskArgs),
    /// Each machine's speed beside the median machine's, on the same work.
    #[command(
        mut_args(|arg| only(arg, &["model", "test"])),
        after_help = "Example:\n  brickscope lake slowest-machines --lake lake --since 2026-11-01"
    )]
    SlowestMachines(AskArgs),
    /// Each commit's speed beside that of the one before it on the same machine.
    #[command(
        mut_args(|arg| only(arg, &["model", "test"])),
        after_help = "Example:\n  brickscope lake regressions --lake lake --since 2026-11-01 --test tg128"
    )]
    Regressions(AskArgs),
    /// Since which commit requests of servers wait longer.
    #[command(
        mut_args(|arg| only(arg, &["model"])),
        after_help = "Example:\n  brickscope lake requests --lake lake --since 2026-11-01"
    )]
    Requests(AskArgs),
    /// Where the time of passes goes; or which bricks changed from one commit to another.
    #[command(
        mut_args(|arg| only(arg, &["model", "phase", "brick"])),
        after_help = "Examples:\n  brickscope lake bricks --lake lake --phase decode\n  brickscope lake bricks --lake lake --before 1a2b3c4 --after 5d6e7f8"
    )]
    Bricks(BricksArgs),
    /// The kernels with the most time.
    #[command(
        mut_args(|arg| only(arg, &["model", "phase", "brick"])),
        after_help = "Example:\n  brickscope lake kernels --lake lake --brick LmHead"
    )]
    Kernels(AskArgs),
    /// Percentiles of the spans of bricks and kernels.
    #[command(
        mut_args(|arg| only(arg, &["model", "phase", "brick"])),
        after_help = "Example:\n  brickscope lake percentiles --lake lake --brick LmHead"
    )]
    Percentiles(AskArgs),
    /// Bricks far from what memory can do.
    #[command(
        mut_args(|arg| only(arg, &["model", "phase", "brick"])),
        after_help = "Example:\n  brickscope lake far-from-roof --lake lake --phase decode"
    )]
    FarFromRoof(AskArgs),
    /// The slowest passes beside the median of their run.
    #[command(
        mut_args(|arg| only(arg, &["model", "phase"])),
        after_help = "Example:\n  brickscope lake slow-passes --lake lake --since 2026-11-01"
    )]
    SlowPasses(AskArgs),
    /// Machines on which other work disturbs measurements.
    #[command(
        mut_args(|arg| only(arg, &["model"])),
        after_help = "Example:\n  brickscope lake disturbed --lake lake"
    )]
    Disturbed(AskArgs),
    /// The runs behind a number of tokens per second.
    #[command(
        mut_args(|arg| only(arg, &["model", "test"])),
        after_help = "Example:\n  brickscope lake who-backs 41.7 --lake lake --within 2"
    )]
    WhoBacks(WhoBacksArgs),
    /// Receipts that did not verify.
    #[command(
        mut_args(|arg| only(arg, &[])),
        after_help = "Example:\n  brickscope lake unverified --lake lake"
    )]
    Unverified(AskArgs),
    /// Is it the commit or the machine? Takes all runs of the same work apart.
    Verdict(VerdictArgs),
    /// Run a query in SQL.
    #[command(
        after_help = "Example:\n  brickscope lake query 'SELECT machine, count(*) AS runs FROM runs GROUP BY machine' --lake lake"
    )]
    Query(QueryArgs),
    /// Merge many small files into few.
    #[command(after_help = "Example:\n  brickscope lake compact --lake lake")]
    Compact(CompactArgs),
    /// Read all files, and say whether each run is there as a whole.
    #[command(after_help = "Example:\n  brickscope lake check --lake lake")]
    Check(CheckArgs),
    /// Print the tables and their columns.
    #[command(after_help = "Example:\n  brickscope lake schema")]
    Schema(SchemaArgs),
}

/// Hides the choices that a question doesn't have.
fn only(arg: Arg, choices: &[&str]) -> Arg {
    const ALL: [&str; 5] = ["model", "test", "phase", "brick", "by"];
    let id = arg.get_id().as_str();
    let is_refused = ALL.contains(&id) && !choices.contains(&id);
    arg.hide(is_refused)
}

/// Before any day that a run can be of.
const NO_DAY: &str = "0000-00-00";

/// After any.
const LAST_DAY: &str = "9999-99-99";

/// Where the lake is, and how to print an answer.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AnswerArgs {
    /// The lake: a folder, or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DIR|URL", env = "BRICKSCOPE_LAKE")]
    pub(crate) lake: PathBuf,

    /// The output format.
    #[arg(short = 'f', long = "format", alias = "output", short_alias = 'o', value_enum, value_name = "FORMAT", default_value_t = AnswerForm::Text)]
    pub(crate) output: AnswerForm,

    /// Print JSON: the same as --format json.
    #[arg(long, conflicts_with = "output")]
    pub(crate) json: bool,

    /// Print at most so many rows; 0 for all. Text has 40 without it, the other formats all.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,

    /// Print the SQL instead, for another engine.
    #[arg(long)]
    pub(crate) sql: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerForm {
    /// A table for people.
    Text,
    /// An array of objects.
    Json,
    /// CSV with a line of names.
    Csv,
}

/// Which runs a question is about.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,

    /// Only runs of this day and later, such as 2026-11-01.
    #[arg(long, value_name = "DATE", value_parser = day, default_value = NO_DAY, hide_default_value = true)]
    pub(crate) since: String,

    /// Only runs of this day and earlier.
    #[arg(long, value_name = "DATE", value_parser = day, default_value = LAST_DAY, hide_default_value = true)]
    pub(crate) until: String,

    /// Only runs of this model.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) model: String,

    /// Only this test, such as tg128; of profiles prefill or decode.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) test: String,

    /// Only this phase: prefill or decode.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) phase: String,

    /// Only this brick, or kernel.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) brick: String,

    /// The property whose values are put side by side; quant without it.
    #[arg(long, value_enum, value_name = "PROPERTY")]
    pub(crate) by: Option<By>,
}

/// Properties of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Quant,
    Engine,
    Backend,
    Model,
    Machine,
    Commit,
    Threads,
    Cpu,
    Device,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BricksArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,

    /// Say what a call of each brick takes at this commit beside that of --before, with its 95 % interval, and with machines
    /// taken apart as `verdict` does.
    #[arg(long, value_name = "COMMIT", requires = "before", conflicts_with = "sql")]
    pub(crate) after: Option<String>,

    /// The commit that --after is compared with.
    #[arg(long, value_name = "COMMIT", requires = "after")]
    pub(crate) before: Option<String>,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WhoBacksArgs {
    /// Tokens per second.
    #[arg(value_parser = number)]
    pub(crate) number: f64,

    /// How far from it a run may be, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = number)]
    pub(crate) within: f64,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// By a mixed model over commits, machines and sessions, which outliers don't move. Of fleets in which nothing is the
/// matter at most 1 in 100 get a commit or a machine named; docs/fleet.md says what it finds. Only runs with a commit
/// count, and only machines of one kind should be in one verdict: choose with --model, --test, --cpu.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope lake verdict --lake lake --test tg128 --repo ~/llama.cpp\n  brickscope lake verdict --lake lake --before 1a2b3c4 --after 5d6e7f8"
)]
pub(crate) struct VerdictArgs {
    /// The lake: a folder, or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DIR|URL", env = "BRICKSCOPE_LAKE")]
    pub(crate) lake: PathBuf,

    /// Only runs of this day and later, such as 2026-11-01.
    #[arg(long, value_name = "DATE", value_parser = day, default_value = NO_DAY, hide_default_value = true)]
    pub(crate) since: String,

    /// Only runs of this model.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// Only this test, such as tg128; of profiles prefill or decode.
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Option<String>,

    /// Only machines with this processor, as `brickscope lake machines` prints it.
    #[arg(long, value_name = "NAME")]
    pub(crate) cpu: Option<String>,

    /// The engine's git repository, which says in what order commits come: that of HEAD's history. By default they come
    /// in the order in which they were first measured.
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,

    /// Say why the runs of this commit differ from those of --before.
    #[arg(long, value_name = "COMMIT", requires = "before")]
    pub(crate) after: Option<String>,

    /// The commit that --after is compared with.
    #[arg(long, value_name = "COMMIT", requires = "after")]
    pub(crate) before: Option<String>,

    /// The output format.
    #[arg(short = 'f', long = "format", alias = "output", short_alias = 'o', value_enum, value_name = "FORMAT", default_value_t = VerdictForm::Text)]
    pub(crate) output: VerdictForm,

    /// Print JSON: the same as --format json.
    #[arg(long, conflicts_with = "output")]
    pub(crate) json: bool,
}

/// A verdict is no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerdictForm {
    /// Sentences for people.
    Text,
    /// An array of objects, one for each work.
    Json,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct QueryArgs {
    /// One query, of the tables that `brickscope lake schema` prints.
    #[arg(value_name = "SQL", allow_hyphen_values = true)]
    pub(crate) query: String,

    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CompactArgs {
    /// The lake: a folder, or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DIR|URL", env = "BRICKSCOPE_LAKE")]
    pub(crate) lake: PathBuf,

    /// Keep files whose rows are in merged ones for so many minutes, for readers that began before. With 0, a question
    /// that is asked of a folder in the same seconds may miss runs.
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    pub(crate) grace: u64,

    /// Print what was done as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CheckArgs {
    /// The lake: a folder, or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DIR|URL", env = "BRICKSCOPE_LAKE")]
    pub(crate) lake: PathBuf,

    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SchemaArgs {
    /// Print it as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn day(text: &str) -> Result<String, String> {
    if is_date(text) { Ok(text.to_owned()) } else { Err("must be like 2026-01-31".to_owned()) }
}

fn number(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "must be a number above 0".to_owned())
}

#[cfg(not(feature = "parquet"))]
pub(crate) fn run(_: &LakeArgs) -> Result<()> {
    anyhow::bail!(
        "lake: this brickscope was built without Parquet; `cargo install --path cli --profile dist --features full` has it"
    )
}

#[cfg(feature = "parquet")]
pub(crate) use with_parquet::run;

#[cfg(feature = "parquet")]
mod with_parquet {
    use std::time::Duration;

    use anyhow::{Context, Result, bail, ensure};
    use brickscope_analysis::fleet::Fleet;
    use brickscope_analysis::view;
    use brickscope_lake::rows::TABLES;
    use clap::ValueEnum;

    use super::{
        AnswerArgs, AnswerForm, AskArgs, By, CheckArgs, CompactArgs, LAST_DAY, LakeArgs, NO_DAY,
        SchemaArgs, VerdictArgs, VerdictForm, What,
    };
    use crate::runs::lake::{self, ALL_DAYS, Asked, Days, HOST, Lake, QUESTIONS, Wanted, refresh};
    use crate::text::{count, printable_text};
    use crate::{output, progress};

    pub(crate) fn run(args: &LakeArgs) -> Result<()> {
        let (name, ask) = match &args.what {
            What::Inventory(ask) => ("inventory", ask),
            What::Machines(ask) => ("machines", ask),
            What::Trend(ask) => ("trend", ask),
            What::Compare(ask) => ("compare", ask),
            What::SlowestMachines(ask) => ("slowest-machines", ask),
            What::Regressions(ask) => ("regressions", ask),
            What::Requests(ask) => ("requests", ask),
            What::Bricks(args) => match (&args.before, &args.after) {
                (Some(before), Some(after)) => return bricks_between(&args.ask, [before, after]),
                _ => ("bricks", &args.ask),
            },
            What::Kernels(ask) => ("kernels", ask),
            What::Percentiles(ask) => ("percentiles", ask),
            What::FarFromRoof(ask) => ("far-from-roof", ask),
            What::SlowPasses(ask) => ("slow-passes", ask),
            What::Disturbed(ask) => ("disturbed", ask),
            What::Unverified(ask) => ("unverified", ask),
            What::WhoBacks(args) => {
                return question("who-backs", &args.ask, args.number, args.within);
            }
            What::Verdict(args) => return verdict(args),
            What::Query(args) => {
                return answer(&args.answer, ALL_DAYS, "", &args.query, "", None);
            }
            What::Compact(args) => return compact(args),
            What::Check(args) => return check(args),
            What::Schema(args) => return schema(args),
        };
        question(name, ask, 0.0, 0.0)
    }

    fn question(name: &str, ask: &AskArgs, number: f64, within: f64) -> Result<()> {
        let question = QUESTIONS.iter().find(|question| question.name == name);
        let question = question.with_context(|| format!("there is no question {name}"))?;
        for (flag, column, is_set) in [
            ("--model", "p.model", !ask.model.is_empty()),
            ("--test", "p.test", !ask.test.is_empty()),
            ("--phase", "p.phase", !ask.phase.is_empty()),
            ("--brick", "p.brick", !ask.brick.is_empty()),
            ("--by", "p.by_column", ask.by.is_some()),
            ("--since", "p.since", ask.since != NO_DAY),
            ("--until", "p.until", ask.until != LAST_DAY),
        ] {
            ensure!(!is_set || question.sql.contains(column), "{name} has no {flag}");
        }
        let by = ask.by.unwrap_or(By::Quant);
        let by = by.to_possible_value().map(|value| value.get_name().to_owned());
        let params = Asked {
            since: &ask.since,
            until: &ask.until,
            model: &ask.model,
            test: &ask.test,
            phase: &ask.phase,
            brick: &ask.brick,
            by: &by.unwrap_or_default(),
            number,
            within,
        }
        .params();
        let heading = format!("{}\n\n", wrapped_at_80(question.meaning()));
        let days = match question.needs_all_days() {
            true => ALL_DAYS,
            false => (&*ask.since, &*ask.until),
        };
        answer(&ask.answer, days, &params, question.sql, &heading, Some(name))
    }

    /// What a call of each brick takes at one commit beside another.
    fn bricks_between(ask: &AskArgs, commits: [&str; 2]) -> Result<()> {
        ensure!(ask.test.is_empty() && ask.by.is_none(), "bricks has no --test and no --by");
        let mut lake = Lake::open(&ask.answer.lake, &HOST)?;
        let days = (&*ask.since, &*ask.until);
        refresh(&mut lake, days)?;
        let note = progress::note("asking");
        let asked = Asked {
            since: &ask.since,
            until: &ask.until,
            model: &ask.model,
            phase: &ask.phase,
            brick: &ask.brick,
            ..Asked::default()
        };
        let answer = lake::bricks_between(&lake, days, &asked, commits);
        note.finish_and_clear();
        let [before, after] = commits.map(printable_text);
        let heading = wrapped_at_80(&format!(
            "What a call of each brick takes at {after} beside {before}, with its 95 % interval. Each machine is compared with \
             itself; of twenty bricks one may move by chance."
        ));
        shown(&ask.answer, answer?, &format!("{heading}\n\n"))
    }

    /// 80, or what a wider terminal has; `None` where nobody sees the lines as lines of a screen.
    fn screen_columns() -> Option<usize> {
        let screen = terminal_size::terminal_size().map_or(0, |(columns, _)| columns.0.into());
        output::is_terminal().then_some(80.max(screen))
    }

    fn wrapped_at_80(text: &str) -> String {
        crate::text::broken(text, 80).join("\n")
    }

    fn answer(
        args: &AnswerArgs,
        days: Days<'_>,
        params: &str,
        query: &str,
        heading: &str,
        question: Option<&str>,
    ) -> Result<()> {
        let mut lake = Lake::open(&args.lake, &HOST)?;
        if args.sql {
            let prelude = lake::prelude(&lake, days, params)?;
            return output::print(format!("{prelude}\n{}\n", query.trim_end()));
        }
        refresh(&mut lake, days)?;
        let note = progress::note("asking");
        let answer = lake::answer(&lake, days, params, query);
        note.finish_and_clear();
        let answer = answer?;
        let all = answer.rows.len();
        shown(args, answer, heading)?;
        // On standard error, whatever the format. The table says already that there are none.
        let form = if args.json { AnswerForm::Json } else { args.output };
        let no_rows = if form == AnswerForm::Text { "" } else { "no rows: " };
        let question = question.filter(|_| all == 0);
        let why = question.map(|of| why_no_rows(&mut lake, of, params)).transpose()?.flatten();
        why.iter().for_each(|why| tell!("{no_rows}{why}"));
        Ok(())
    }

    /// Prints an answer in its form, as far as it is wanted.
    fn shown(args: &AnswerArgs, mut answer: lake::Answer, heading: &str) -> Result<()> {
        let form = if args.json { AnswerForm::Json } else { args.output };
        let most = args.limit.unwrap_or(if form == AnswerForm::Text { 40 } else { 0 });
        let all = answer.rows.len();
        if most > 0 {
            answer.rows.truncate(most);
        }
        match form {
            AnswerForm::Json => output::print(answer.json()?)?,
            AnswerForm::Csv => output::print(answer.csv())?,
            AnswerForm::Text => {
                output::print(heading.to_owned() + &lake::table(&answer, screen_columns()))?;
                if all > answer.rows.len() {
                    tell!(
                        "{} more; --limit 0 prints all",
                        count((all - answer.rows.len()) as u64, "row")
                    );
                }
            }
        }
        Ok(())
    }

    fn why_no_rows(lake: &mut Lake, question: &str, params: &str) -> Result<Option<String>> {
        // What there is to choose from may be of other days.
        refresh(lake, ALL_DAYS)?;
        lake::why_no_rows(lake, question, params)
    }

    fn verdict(args: &VerdictArgs) -> Result<()> {
        let mut lake = Lake::open(&args.lake, &HOST)?;
        refresh(&mut lake, (&args.since, LAST_DAY))?;
        let note = progress::note("asking");
        let wanted = Wanted {
            model: args.model.as_deref(),
            test: args.test.as_deref(),
            cpu: args.cpu.as_deref(),
            since: Some(&args.since),
            ..Wanted::default()
        };
        let asked = lake::works(&lake, &wanted)
            .and_then(|works| Ok((works, lake::circumstances(&lake, &wanted)?)));
        note.finish_and_clear();
        let (works, circumstances) = asked?;
        if works.is_empty() {
            let asked = Asked {
                since: &args.since,
                until: LAST_DAY,
                model: args.model.as_deref().unwrap_or_default(),
                test: args.test.as_deref().unwrap_or_default(),
                ..Asked::default()
            };
            let why = why_no_rows(&mut lake, "verdict", &asked.params())?;
            bail!("there is nothing to judge: {}", why.unwrap_or_default());
        }
        let mut text = String::new();
        let mut json = Vec::new();
        let (names, notes) = lake::named(&works.keys().collect::<Vec<_>>());
        for ((of, runs), work) in works.iter().zip(&names) {
            let (runs, order) = match &args.repo {
                Some(repo) => lake::ordered(&lake, repo, runs)?,
                None => (runs.clone(), Fleet::order_by_time(runs)),
            };
            let runs = &runs;
            if runs.is_empty() {
                continue;
            }
            let fleet = Fleet::fit(runs, &order, false)?;
            let commits = args.before.as_deref().zip(args.after.as_deref());
            let beside = circumstances.get(of).map_or(&[][..], Vec::as_slice);
            let doubts = lake::doubts_of(beside, commits.map(<[&str; 2]>::from));
            let explained = match (&args.before, &args.after) {
                (Some(before), Some(after)) => {
                    let (Some(first), Some(second)) =
                        (lake::of_commit(runs, before)?, lake::of_commit(runs, after)?)
                    else {
                        continue;
                    };
                    let explained = fleet.explain(&first, &second)?;
                    text += &format!("{}\n", printable_text(work));
                    text += &view::explanation(&explained, before, after);
                    text += &view::doubts_of_fleet(&doubts);
                    text.push('\n');
                    Some(explained)
                }
                _ => {
                    text += &view::fleet(&fleet, work);
                    text += &view::doubts_of_fleet(&doubts);
                    text.push('\n');
                    None
                }
            };
            json.push(serde_json::json!({
                "work": work, "fleet": fleet, "explained": explained, "circumstances": doubts,
            }));
        }
        match (&args.before, &args.after) {
            _ if !json.is_empty() => {}
            (Some(before), Some(after)) => bail!("{}", lake::not_both(&works, [before, after])),
            _ => bail!("no work was measured at a commit of this history"),
        }
        if args.json || args.output == VerdictForm::Json {
            return output::print(serde_json::to_string_pretty(&json)? + "\n");
        }
        for note in notes {
            text += &format!("{}\n", wrapped_at_80(&printable_text(&note)));
        }
        output::print(text.trim_end().to_owned() + "\n")
    }

    fn compact(args: &CompactArgs) -> Result<()> {
        let mut lake = Lake::open(&args.lake, &HOST)?;
        let bar = progress::steps("merging", 0);
        let grace = Duration::from_secs(args.grace.saturating_mul(60));
        let done = lake::compact(&mut lake, grace, &mut |done, all| progress::at(&bar, done, all));
        bar.finish_and_clear();
        let done = done?;
        if args.json {
            return output::print(serde_json::to_string_pretty(&done)? + "\n");
        }
        output::print(format!(
            "{} merged into {}; {} deleted, {} kept for {} minutes, {} left by killed writers deleted{}\n",
            count(done.runs, "run"),
            count(done.merged_parts, "part"),
            count(done.deleted_files, "file"),
            count(done.kept_files, "file"),
            args.grace,
            count(done.orphans, "file"),
            match done.given_up {
                0 => String::new(),
                n => format!("; {} not merged: see `lake check`", count(n, "part")),
            },
        ))
    }

    fn check(args: &CheckArgs) -> Result<()> {
        let mut lake = Lake::open(&args.lake, &HOST)?;
        let bar = progress::steps("checking", 0);
        let checked = lake::check(&mut lake, &mut |done, all| progress::at(&bar, done, all));
        bar.finish_and_clear();
        let checked = checked?;
        let faults = checked.faults.len() as u64;
        if args.json {
            output::print(serde_json::to_string_pretty(&checked)? + "\n")?;
        } else {
            for fault in &checked.faults {
                output::print(printable_text(fault) + "\n")?;
            }
            output::print(format!(
                "{} whole, {}\n",
                count(checked.whole, "run"),
                count(faults, "fault")
            ))?;
        }
        ensure!(faults == 0, "the lake is damaged");
        Ok(())
    }

    fn schema(args: &SchemaArgs) -> Result<()> {
        if args.json {
            return output::print(serde_json::to_string_pretty(&TABLES)? + "\n");
        }
        output::print(lake::schema_markdown())
    }
}
