//! Plants bottlenecks in runs of the real engine, and checks what brickscope says of each: see `run` beside this folder.

mod engine;
mod model;
mod plants;
mod unmap;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use brickscope::{Change, Phase, Profile, RUN_FILE, Trial, TrialVerdict};
use brickscope_analysis::findings::{Finding, FindingKind, Findings};
use brickscope_analysis::trial::Question;
use brickscope_engine::gguf::TensorType;

use crate::plants::{Cure, PLANTS, Plant};

/// What others did to a run on this machine, which says nothing of its plant: then it is recorded again, …
const DISTURBANCES: [&str; 6] = [
    "stalls",
    "other-programs",
    "threads-share-a-cpu",
    "hypervisor",
    "cpu-quota",
    "waits-for-a-cpu",
];
/// … until there are so many recordings.
const RECORDINGS: usize = 10;
/// A prediction is right within this part of it.
const TOLERANCE: f64 = 0.15;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        // What this program starts itself.
        ["busy"] => {
            // Until the check ends, however it does.
            let parent = std::os::unix::process::parent_id();
            while std::os::unix::process::parent_id() == parent {
                (0..1_000_000).for_each(|_| std::hint::spin_loop());
            }
            Ok(())
        }
        ["stopper", pid] => stop_now_and_then(pid),
        ["turns", planted, cured, threads, rounds, position] => {
            print_turns([planted, cured], threads, rounds, position)
        }
        ["engine", plant, model, tokens, out] => {
            let tokens = tokens.parse().context("a number of tokens");
            tokens.and_then(|tokens| engine::run(plant, Path::new(model), tokens, Path::new(out)))
        }
        ["--record", folder, ref names @ ..] => check(names, Some(Path::new(folder))),
        ref names => check(names, None),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("planted: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints pairs of times as JSON: see [`engine::in_turns`]. With `2/1` threads those on two, where what the other model is
/// faster on one thread is taken out of its times: nobody waits for anybody there.
fn print_turns(models: [&str; 2], threads: &str, rounds: &str, position: &str) -> Result<()> {
    let (threads, alone) = threads.split_once('/').map_or((threads, None), |(n, m)| (n, Some(m)));
    let number = |text: &str| text.parse::<NonZeroUsize>().context("a number of threads");
    let (threads, alone) = (number(threads)?, alone.map(number).transpose()?);
    let rounds = rounds.parse().context("a number of rounds")?;
    let position = position.parse().context("a number of tokens")?;
    let mut times = engine::in_turns(models, threads, rounds, position)?;
    if let Some(alone) = alone {
        let alone = engine::in_turns(models, alone, rounds, position)?;
        let mut ratios: Vec<f64> = alone.iter().map(|(planted, cured)| planted / cured).collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios[ratios.len() / 2];
        times.iter_mut().for_each(|(_, cured)| *cured *= ratio);
    }
    println!("{}", serde_json::to_string(&times)?);
    Ok(())
}

/// Stops a process for 40 ms, and lets it run for 300 ms, until it ends.
fn stop_now_and_then(pid: &str) -> Result<()> {
    let signal = |name: &str| Command::new("kill").args([name, pid]).stderr(Stdio::null()).status();
    loop {
        thread::sleep(Duration::from_millis(300));
        if !signal("-STOP")?.success() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(40));
        signal("-CONT")?;
    }
}

/// What brickscope said of a plant.
struct Row {
    plant: &'static str,
    expected: &'static str,
    found: String,
    /// What was predicted to be saved, in parts: at least, most likely, at most; and whether anything is likeliest.
    predicted: Option<([f64; 3], bool)>,
    measured: Option<Trial>,
    /// How often it was recorded, as others disturbed it.
    recordings: usize,
    /// Why it failed, if it did.
    failed: Option<String>,
}

fn check(names: &[&str], record: Option<&Path>) -> Result<()> {
    for name in names {
        ensure!(PLANTS.iter().any(|plant| plant.name == *name), "there is no plant `{name}`");
    }
    let bench = Bench::new()?;
    println!("{:14} {:20} {:>22} {:>24}  ", "planted", "named first", "predicted", "measured");
    let (mut failed, mut all) = (0, 0);
    for plant in PLANTS.iter().filter(|plant| names.is_empty() || names.contains(&plant.name)) {
        let row = row(&bench, plant, record);
        let row = row.unwrap_or_else(|error| Row {
            plant: plant.name,
            expected: plant.rule,
            found: String::new(),
            predicted: None,
            measured: None,
            recordings: 0,
            failed: Some(format!("{error:#}")),
        });
        all += 1;
        failed += usize::from(row.failed.is_some());
        print(&row);
    }
    println!("\n{} of {all} as expected", all - failed);
    ensure!(failed == 0, "{failed} of {all} failed");
    Ok(())
}

fn print(row: &Row) {
    let percent = |part: f64| format!("{:.1}", 100.0 * part);
    let predicted = match row.predicted {
        Some(([low, likely, high], true)) => {
            format!("{} ({} to {}) %", percent(likely), percent(low), percent(high))
        }
        Some(([low, _, high], false)) => format!("{} to {} %", percent(low), percent(high)),
        None => "-".to_owned(),
    };
    let measured = row.measured.as_ref().map_or("-".to_owned(), |trial| {
        let [low, saved, high] = trial.saved();
        format!("{} ({} to {}) %", percent(saved), percent(low), percent(high))
    });
    let mark = if row.failed.is_some() { "FAILED" } else { "ok" };
    let again = match row.recordings {
        0 | 1 => String::new(),
        n => format!(" (recording {n})"),
    };
    println!("{:14} {:20} {predicted:>22} {measured:>24}  {mark}{again}", row.plant, row.found);
    if let Some(why) = &row.failed {
        println!("               expected {}: {why}", row.expected);
    }
}

fn row(bench: &Bench, plant: &Plant, record: Option<&Path>) -> Result<Row> {
    let out = bench.folder.path().join(plant.name);
    let helper = bench.helper(plant)?;
    let mut recordings = 1;
    loop {
        bench.make(plant, plant.planted, &out)?;
        let profile = Profile::load(&out.join(RUN_FILE))?;
        let findings = Findings::of(&profile);
        let is_disturbed =
            |finding: &Finding| finding.rule != plant.rule && DISTURBANCES.contains(&finding.rule);
        if recordings == RECORDINGS || !findings.found.iter().any(is_disturbed) {
            break;
        }
        fs::remove_dir_all(&out)?;
        recordings += 1;
    }
    if let Some(threads) = plant.sweep {
        bench.try_it(plant, &out, &["--threads", threads])?;
    }
    let profile = Profile::load(&out.join(RUN_FILE))?;
    if let Some(folder) = record {
        fs::create_dir_all(folder)?;
        profile.save(&folder.join(format!("{}.json", plant.name)))?;
    }
    let findings = Findings::of(&profile);
    let first = findings
        .found
        .iter()
        .find(|finding| !plant.rule.is_empty() || finding.kind != FindingKind::Limit);
    let found = first.map_or("nothing".to_owned(), |first| first.rule.to_owned());
    let mut row = Row {
        plant: plant.name,
        expected: if plant.rule.is_empty() { "nothing" } else { plant.rule },
        found,
        predicted: first
            .and_then(|first| first.gain)
            .map(|gain| (gain.parts(), gain.likely_ns.is_some())),
        measured: None,
        recordings,
        failed: None,
    };
    if row.found != row.expected {
        row.failed = Some(first.map_or(String::new(), |first| format!("it said: {}", first.what)));
        return Ok(row);
    }
    if let Some(wrong) = findings.found.iter().find(|of| plant.never.contains(&of.rule)) {
        row.failed = Some(format!("it also said: {}", wrong.what));
        return Ok(row);
    }
    let Some(first) = first.filter(|_| !plant.rule.is_empty()) else { return Ok(row) };
    if plant.brick.is_some_and(|brick| !first.sentence().contains(brick)) {
        row.failed = Some(format!("it named no brick, or another one: {}", first.sentence()));
        return Ok(row);
    }
    let trial = bench.cure(plant, first, &out, helper.as_ref())?;
    row.failed = not_as_predicted(first, &trial);
    row.measured = Some(trial);
    Ok(row)
}

/// Why the gain is not as predicted, if it isn't: it has to be confirmed, and its interval has to meet the predicted one, or
/// to be within 15 % of it.
fn not_as_predicted(finding: &Finding, trial: &Trial) -> Option<String> {
    if trial.verdict != TrialVerdict::Confirmed {
        return Some(format!("the gain is {}", trial.verdict.name()));
    }
    let [least, saved, most] = trial.saved();
    let [low, likely, high] = finding.gain?.parts();
    let is_met = least <= high && most >= low;
    let is_near = |of: f64| (saved / of - 1.0).abs() <= TOLERANCE;
    let is_predicted = is_met || [low, likely, high].into_iter().any(is_near);
    (!is_predicted).then(|| "the gain is not as predicted".to_owned())
}

/// A process that disturbs runs, which ends with this.
struct Helper(std::process::Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The programs, and the models.
struct Bench {
    folder: tempfile::TempDir,
    own: PathBuf,
    brickscope: PathBuf,
    debug: PathBuf,
    /// With one slower kernel.
    slow: PathBuf,
}

impl Bench {
    fn new() -> Result<Self> {
        let own = std::env::current_exe()?;
        let target = own.parent().and_then(Path::parent).context("a folder of builds")?;
        let brickscope = own.with_file_name("brickscope");
        let debug = target.join("unoptimised/debug/brickscope");
        let slow = target.join("slow-kernel/release/brickscope");
        for program in [&brickscope, &debug, &slow] {
            ensure!(
                program.is_file(),
                "{} is not built: see benches/planted/run",
                program.display()
            );
        }
        // Beside the builds: a folder in memory has no disk to read from.
        let folder = tempfile::TempDir::new_in(target)?;
        let bench = Self { folder, own, brickscope, debug, slow };
        for (name, shape, quant) in [
            ("tiny", "tiny", "q8_0"),
            ("q8_0", "110m", "q8_0"),
            ("f16", "110m", "f16"),
            ("f32", "110m", "f32"),
            ("1b", "1b", "q8_0"),
            ("1b-q4_k", "1b", "q4_k"),
        ] {
            let mut command = Command::new(&bench.brickscope);
            command.args(["synth", "--shape", shape, "--quant", quant, "-o"]);
            run(command.arg(bench.model(name)))?;
        }
        let q8_0 = bench.model("q8_0");
        // In all layers, one would cost less than what runs differ by here; and no cache has room for these.
        let (q4_k, eight) = (bench.model("1b-q4_k"), [("llama.block_count", 8)]);
        model::rewrite(&q4_k, &bench.model("eight-layers"), &eight, None)?;
        let in_f32 = ("blk.2.ffn_down.weight", TensorType::F32);
        model::rewrite(&q4_k, &bench.model("slow"), &eight, Some(in_f32))?;
        // One matrix alone is multiplied by the kernel that is slow in one of the programs: the large model's head, and
        // `ffn_down` of the small one with one layer, which weighs a megabyte: the second-level caches of two cores hold it.
        let head = Some(("output.weight", TensorType::Q6_K));
        model::rewrite(&bench.model("1b"), &bench.model("q6_k-head"), &[], head)?;
        let one = [("llama.block_count", 1)];
        // (Rows of its head are so short that what goes before and after a row counts.)
        let down = Some(("blk.0.ffn_down.weight", TensorType::Q6_K));
        model::rewrite(&bench.model("tiny"), &bench.model("small-q6_k"), &one, down)?;
        // Two threads share three heads unevenly. The width stays the same.
        for (name, heads, width) in [("three-heads", 3, 256), ("two-heads", 2, 384)] {
            let heads = [
                ("llama.attention.head_count", heads),
                ("llama.attention.head_count_kv", heads),
                ("llama.rope.dimension_count", width),
            ];
            model::rewrite(&q8_0, &bench.model(name), &heads, None)?;
        }
        Ok(bench)
    }

    fn model(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.gguf"))
    }

    /// The words of a plant, with its models, programs and prompts.
    fn words(&self, words: &str) -> Vec<String> {
        let model = |word: &str| {
            let name = word.strip_prefix('@')?;
            let (name, pages) = name.split_at(name.find(':').unwrap_or(name.len()));
            Some(self.model(name).display().to_string() + pages)
        };
        let long = |word: &str| {
            let sentences = word.strip_prefix("--prompt=*")?.parse().ok()?;
            Some(format!(
                "--prompt={}",
                "A profiler is an instrument that says by how much. ".repeat(sentences)
            ))
        };
        words
            .split_whitespace()
            .map(|word| match word {
                "BRICKSCOPE" => self.brickscope.display().to_string(),
                "DEBUG" => self.debug.display().to_string(),
                "SLOW" => self.slow.display().to_string(),
                "PLANTED" => self.own.display().to_string(),
                _ => model(word).or_else(|| long(word)).unwrap_or_else(|| word.to_owned()),
            })
            .collect()
    }

    /// Makes a run, with ceilings.
    fn make(&self, plant: &Plant, words: &str, out: &Path) -> Result<()> {
        let words = self.words(words);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        self.keep_apart(plant, &mut command);
        if plant.is_engine() {
            run(command.arg(out))?;
            let mut command = Command::new(&self.brickscope);
            return run(command.args(["machine", "--add-to"]).arg(out));
        }
        run(command.arg("--out").arg(out))
    }

    /// What another build measures of its kernels says nothing of those of this one, so it is kept in a folder of its own.
    fn keep_apart(&self, plant: &Plant, command: &mut Command) {
        if plant.program() == "SLOW" {
            let folder = self.folder.path().join(format!("cache-{}", plant.name));
            command.env("BRICKSCOPE_CACHE", folder);
        }
    }

    fn helper(&self, plant: &Plant) -> Result<Option<Helper>> {
        if !plant.is_busy {
            return Ok(None);
        }
        Ok(Some(Helper(Command::new(&self.own).arg("busy").spawn()?)))
    }

    /// Cures it, in turns with the plant.
    fn cure(
        &self,
        plant: &Plant,
        finding: &Finding,
        out: &Path,
        helper: Option<&Helper>,
    ) -> Result<Trial> {
        match plant.cure {
            Cure::Own => self.try_it(plant, out, &[finding.rule]),
            Cure::Words(words) => {
                let words = self.words(words);
                let words: Vec<&str> =
                    [finding.rule].into_iter().chain(words.iter().map(String::as_str)).collect();
                self.try_it(plant, out, &words)
            }
            Cure::Switch(on, off) => {
                let pid = helper.map_or(String::new(), |helper| helper.0.id().to_string());
                let of = |text: &str| text.replace("HELPER", &pid);
                self.try_it(plant, out, &[finding.rule, "--on", &of(on), "--off", &of(off)])
            }
            Cure::Engine(words) => self.in_turns(plant, finding, words),
            Cure::Passes(words) => {
                let words = self.words(words);
                let output = output(Command::new(&words[0]).args(&words[1..]))?;
                let times: Vec<(f64, f64)> = serde_json::from_slice(&output)?;
                let question =
                    Question::of(finding, Change::Command(words.join(" ")), Phase::Decode);
                question.answer_times(&times, None).map_err(|absent| anyhow::anyhow!(absent.reason))
            }
        }
    }

    /// `brickscope try`, whose last trial is the answer.
    fn try_it(&self, plant: &Plant, out: &Path, words: &[&str]) -> Result<Trial> {
        let mut line = self.words(plant.around);
        line.extend(self.words(plant.program()));
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).arg("try").arg(out);
        self.keep_apart(plant, &mut command);
        let pairs = plant.pairs.to_string();
        let at = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        command.args(&words[..at]).args(["--json", "--pairs", &pairs]).args(&words[at..]);
        let output = command.stderr(Stdio::piped()).output()?;
        let trials: Result<Vec<Trial>, _> = serde_json::from_slice(&output.stdout);
        match trials.map(|mut trials| trials.pop()) {
            Ok(Some(trial)) => Ok(trial),
            _ => {
                bail!("`brickscope try` failed: {}", String::from_utf8_lossy(&output.stderr).trim())
            }
        }
    }

    /// Runs of this program, with the plant and without it.
    fn in_turns(&self, plant: &Plant, finding: &Finding, cured: &str) -> Result<Trial> {
        let question = Question::of(finding, Change::Command(cured.to_owned()), Phase::Decode);
        let mut times = Vec::new();
        for pair in 0..plant.pairs {
            let mut time = [0.0; 2];
            for turn in 0..2 {
                let arm = (turn + pair) % 2;
                let out = self.folder.path().join(format!("{}-{pair}-{arm}", plant.name));
                let words = self.words(if arm == 0 { plant.planted } else { cured });
                run(Command::new(&words[0]).args(&words[1..]).arg(&out))?;
                let profile = Profile::load(&out.join(RUN_FILE))?;
                let measured = question.time_of(&profile);
                time[arm] = measured.map_err(|absent| anyhow::anyhow!(absent.reason))?;
                fs::remove_dir_all(&out)?;
            }
            times.push((time[0], time[1]));
        }
        question.answer_times(&times, None).map_err(|absent| anyhow::anyhow!(absent.reason))
    }
}

fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// What a command prints.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{:?} failed ({}): {}", command.get_program(), output.status, said.trim());
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plant_has_a_name_of_its_own() {
        for (nth, plant) in PLANTS.iter().enumerate() {
            assert!(PLANTS[..nth].iter().all(|other| other.name != plant.name), "{}", plant.name);
        }
        let clean = PLANTS.iter().filter(|plant| plant.rule.is_empty()).count();
        assert!(clean >= 5 && PLANTS.len() - clean >= 15, "{clean} clean of {}", PLANTS.len());
    }
}
