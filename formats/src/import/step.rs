//! What the names of a server's steps tell: which phase they are of, how many tokens they compute, and for whom.

use brickscope_profile::{PartTold, Phase, StepTold};

/// A step of a server, by its name.
#[expect(clippy::large_enum_variant, reason = "it is read from a name, and one lives at a time")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It computes.
    Pass {
        phase: Phase,
        /// 0 if the name doesn't tell.
        tokens: u64,
        told: StepTold,
    },
    /// It computes no token: vLLM has such a step when its last request has ended, and SGLang where others compute.
    Empty,
}

impl Step {
    /// The step that a name tells of, of these programs, with what else each may write:
    ///
    /// - vLLM: `execute_context_1(128)_generation_4(4)`, requests and their tokens;
    ///   `execute_132_context_1(sq128sk128sqsq16384sqsk16384)_generation_4(sq4sk512sqsq4sqsk512)`
    /// - SGLang: `step[DECODE bs=4]`; `step[EXTEND bs=2 toks=128 c_sq=128 c_sqsq=8192 c_sqsk=8192 c_sk=128]`
    /// - ATOM: `decode[bs=117/128 tok=117 d=117]`
    /// - TensorRT-LLM: `[Executor] _forward_step 12: 1 ctx reqs, 3 gen reqs`
    ///
    /// The first three are in TraceLens, `TraceLens/TraceUtils/annotation_utils.py`; SGLang's also in its
    /// `srt/model_executor/step_span_utils.py`; TensorRT-LLM's in `_torch/pyexecutor/py_executor.py`.
    pub(super) fn of(name: &str) -> Option<Self> {
        if let Some(step) = name.strip_prefix("step[") {
            return of_sglang(step);
        }
        if let Some(step) = name.strip_prefix("prefill[") {
            return of_atom(step, Phase::Prefill);
        }
        if let Some(step) = name.strip_prefix("decode[") {
            return of_atom(step, Phase::Decode);
        }
        if let Some(step) = name.strip_prefix("[Executor] _forward_step") {
            return of_tensorrt(step);
        }
        of_vllm(name)
    }

    /// The phase of what it computes, if it does.
    pub(super) fn phase(self) -> Option<Phase> {
        match self {
            Self::Pass { phase, .. } => Some(phase),
            Self::Empty => None,
        }
    }
}

/// Whether a graph for a step is one for as many as it has tokens. vLLM captures graphs for tokens
/// (<https://github.com/vllm-project/vllm/pull/37524>), SGLang for requests
/// (<https://github.com/sgl-project/sglang/pull/24370>), of which each may have several tokens.
pub(super) fn is_sized_by_tokens(name: &str, told: &StepTold, tokens: u64) -> bool {
    let requests = [told.context.requests, told.generation.requests];
    let stated = requests.iter().any(Option::is_some);
    let all = requests.into_iter().flatten().fold(0, u64::saturating_add);
    name.starts_with("execute_") || !stated || all == tokens
}

fn of_vllm(name: &str) -> Option<Step> {
    let (all, steps) = name.strip_prefix("execute_")?.split_once("context_")?;
    let is_all = |all: &str| all.strip_suffix('_').is_some_and(|all| all.parse::<u64>().is_ok());
    if !all.is_empty() && !is_all(all) {
        return None;
    }
    let (context, generation) = steps.split_once("_generation_")?;
    let (context, generation) = (part_of_vllm(context)?, part_of_vllm(generation)?);
    let (prompts, answers) = (context.tokens.unwrap_or(0), generation.tokens.unwrap_or(0));
    let is_mixed = prompts > 0 && answers > 0;
    let phase = match (prompts, answers) {
        (0, 0) => return Some(Step::Empty),
        (0, _) => Phase::Decode,
        _ => Phase::Prefill,
    };
    let told = StepTold { context, generation, is_mixed, ..StepTold::default() };
    Some(Step::Pass { phase, tokens: prompts.saturating_add(answers), told })
}

/// `4(4)` and `4(sq4sk512sqsq4sqsk512)`. A second number, as in `1(888_788544)`, has no name and isn't read.
fn part_of_vllm(text: &str) -> Option<PartTold> {
    let (requests, inside) = text.strip_suffix(')')?.split_once('(')?;
    let mut part = PartTold { requests: Some(requests.parse().ok()?), ..PartTold::default() };
    if inside.starts_with(|c: char| c.is_ascii_digit()) {
        part.tokens = number(inside);
        return Some(part);
    }
    let mut rest = inside;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (what, digits) = rest.split_at(at);
        match what {
            "sq" => part.tokens = number(digits),
            "sk" => part.keys = number(digits),
            "sqsq" => part.squares = number(digits),
            "sqsk" => part.products = number(digits),
            _ => return None,
        }
        rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    inside.starts_with("sq").then_some(part)
}

fn of_sglang(step: &str) -> Option<Step> {
    let requests = value(step, "bs")?;
    let sums = |of: &str| PartTold {
        requests: None,
        tokens: value(step, &format!("{of}_sq")),
        keys: value(step, &format!("{of}_sk")),
        squares: value(step, &format!("{of}_sqsq")),
        products: value(step, &format!("{of}_sqsk")),
    };
    let (mut context, mut generation) = (sums("c"), sums("g"));
    let all = value(step, "toks");
    let (phase, tokens) = match words(step).next()? {
        "EXTEND" | "DLLM_EXTEND" => {
            context.requests = Some(requests);
            context.tokens = all.or(context.tokens);
            (Phase::Prefill, context.tokens)
        }
        "MIXED" => {
            (context.requests, generation.requests) = (value(step, "c"), value(step, "g"));
            let sum = context.tokens.zip(generation.tokens);
            (Phase::Prefill, sum.map(|(c, g)| c.saturating_add(g)).or(all))
        }
        // Each request has one, unless a draft model guesses more.
        "DECODE" => {
            generation.requests = Some(requests);
            generation.tokens = generation.tokens.or(Some(requests));
            (Phase::Decode, generation.tokens)
        }
        // It computes the tokens that a draft model guessed.
        "VERIFY" | "TARGET_VERIFY" => {
            generation.requests = Some(requests);
            generation.tokens = generation.tokens.or(all);
            (Phase::Decode, generation.tokens)
        }
        "IDLE" => return Some(Step::Empty),
        _ => return None,
    };
    let is_mixed = step.starts_with("MIXED");
    let told = StepTold { context, generation, is_mixed, ..StepTold::default() };
    Some(Step::Pass { phase, tokens: tokens.unwrap_or(0), told })
}

fn of_atom(step: &str, phase: Phase) -> Option<Step> {
    let tokens = value(step, "tok")?;
    let part = PartTold {
        requests: Some(value(step, "bs")?),
        tokens: Some(tokens),
        keys: value(step, "sk"),
        squares: value(step, "sqsq"),
        products: value(step, "sqsk"),
    };
    let mut told = StepTold::default();
    match phase {
        Phase::Decode => told.generation = part,
        _ => told.context = part,
    }
    Some(if tokens == 0 { Step::Empty } else { Step::Pass { phase, tokens, told } })
}

/// ` 12: 1 ctx reqs, 128 ctx tokens, 3 gen reqs`; earlier ones have no number of tokens, or none of the step. How many tokens
/// a request of generation has isn't told: with a draft model it has several.
fn of_tensorrt(step: &str) -> Option<Step> {
    let (_, parts) = step.split_once(": ")?;
    let mut told = StepTold::default();
    for part in parts.split(", ") {
        let (count, what) = part.split_once(' ')?;
        match what {
            "ctx reqs" => told.context.requests = number(count),
            "ctx tokens" => told.context.tokens = number(count),
            "gen reqs" => told.generation.requests = number(count),
            _ => {}
        }
    }
    let (phase, tokens) = match (told.context.requests?, told.generation.requests?) {
        (0, 0) => return Some(Step::Empty),
        (0, _) => (Phase::Decode, None),
        (_, 0) => (Phase::Prefill, told.context.tokens),
        _ => {
            told.is_mixed = true;
            (Phase::Prefill, None)
        }
    };
    Some(Step::Pass { phase, tokens: tokens.unwrap_or(0), told })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ']'])
}

/// The number behind `key=`.
fn value(text: &str, key: &str) -> Option<u64> {
    number(words(text).find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?)
}

/// The number that a text begins with.
fn number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests, tokens, keys, squares and products of one kind.
    fn part(of: [Option<u64>; 5]) -> PartTold {
        let [requests, tokens, keys, squares, products] = of;
        PartTold { requests, tokens, keys, squares, products }
    }

    const NONE: [Option<u64>; 5] = [None; 5];

    #[test]
    fn names_tell_requests_tokens_and_sums() {
        let some = |of: [u64; 5]| of.map(Some);
        let two = |requests, tokens| [Some(requests), Some(tokens), None, None, None];
        let requests = |requests| [Some(requests), None, None, None, None];
        for (name, phase, tokens, context, generation) in [
            (
                "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
                Phase::Decode,
                32,
                some([0; 5]),
                some([32, 32, 55086, 32, 55086]),
            ),
            (
                "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)",
                Phase::Prefill,
                8192,
                some([9, 8155, 8430, 7_475_785, 7_671_310]),
                some([37, 37, 34489, 37, 34489]),
            ),
            ("execute_context_1(128)_generation_4(4)", Phase::Prefill, 132, two(1, 128), two(4, 4)),
            (
                "execute_context_1(888_788544)_generation_0(0)",
                Phase::Prefill,
                888,
                two(1, 888),
                two(0, 0),
            ),
            ("step[DECODE bs=32]", Phase::Decode, 32, NONE, two(32, 32)),
            // A draft model's guesses are computed, too.
            (
                "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]",
                Phase::Decode,
                128,
                NONE,
                some([64, 128, 131_072, 256, 262_144]),
            ),
            ("step[VERIFY bs=4]", Phase::Decode, 0, NONE, requests(4)),
            (
                "step[TARGET_VERIFY bs=4 g_sq=16 g_sqsq=64 g_sqsk=400 g_sk=100]",
                Phase::Decode,
                16,
                NONE,
                some([4, 16, 100, 64, 400]),
            ),
            ("step[EXTEND bs=2 toks=15360]", Phase::Prefill, 15360, two(2, 15360), NONE),
            (
                "step[EXTEND bs=2 toks=14721 c_sq=14721 c_sqsq=108745533 c_sqsk=108745533 c_sk=14721]",
                Phase::Prefill,
                14721,
                some([2, 14721, 14721, 108_745_533, 108_745_533]),
                NONE,
            ),
            (
                "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]",
                Phase::Prefill,
                6,
                some([1, 5, 8, 25, 40]),
                some([1, 1, 12, 1, 12]),
            ),
            ("step[MIXED bs=2]", Phase::Prefill, 0, NONE, NONE),
            (
                "prefill[bs=2 tok=14721 ctx=[7803, 6918]]",
                Phase::Prefill,
                14721,
                two(2, 14721),
                NONE,
            ),
            (
                "decode[bs=117/128 tok=117 d=117 sqsq=117 sqsk=900 sk=900]",
                Phase::Decode,
                117,
                NONE,
                some([117, 117, 900, 117, 900]),
            ),
            (
                "[Executor] _forward_step 12: 1 ctx reqs, 3 gen reqs",
                Phase::Prefill,
                0,
                requests(1),
                requests(3),
            ),
            (
                "[Executor] _forward_step: 2 ctx reqs, 0 gen reqs",
                Phase::Prefill,
                0,
                requests(2),
                requests(0),
            ),
            (
                "[Executor] _forward_step 7: 2 ctx reqs, 300 ctx tokens, 0 gen reqs",
                Phase::Prefill,
                300,
                two(2, 300),
                requests(0),
            ),
            (
                "[Executor] _forward_step 60000: 0 ctx reqs, 0 ctx tokens, 32 gen reqs",
                Phase::Decode,
                0,
                two(0, 0),
                requests(32),
            ),
        ] {
            let computes = |of: [Option<u64>; 5]| of.iter().flatten().any(|&number| number > 0);
            let both = computes(context) && computes(generation);
            let is_mixed = both || name.contains("MIXED");
            let (context, generation) = (part(context), part(generation));
            let told = StepTold { context, generation, is_mixed, ..StepTold::default() };
            assert_eq!(Step::of(name), Some(Step::Pass { phase, tokens, told }), "{name}");
        }
    }

    #[test]
    fn steps_without_tokens_and_other_names_are_none() {
        for name in [
            "execute_context_0(0)_generation_0(0)",
            "execute_0_context_0(sq0sk0sqsq0sqsk0)_generation_0(sq0sk0sqsq0sqsk0)",
            "step[IDLE bs=0]",
            "decode[bs=0 tok=0]",
            "[Executor] _forward_step 3: 0 ctx reqs, 0 gen reqs",
        ] {
            assert_eq!(Step::of(name), Some(Step::Empty), "{name}");
        }
        for name in [
            "execute_context_0(0)_generation_many",
            "execute_model_context_1(1)_generation_0(0)",
            "execute_context_1(sk4)_generation_0(0)",
            "execute_context_1(sq4é5)_generation_0(0)",
            "execute_diffusion_1_256x256",
            "step[DRAFT bs=1]",
            "step[DRAFT_LOOP raw_bs=1 bs=2 topk=4]",
            "step[DECODE",
            "step[DECODE bs=é]",
            "decode[3]",
            "decode[bs=4]",
            "[Executor] _forward_step",
            "[Executor] _forward_step 1: x",
            "[Executor] _forward_step 1: 4 gen reqs",
            "",
        ] {
            assert_eq!(Step::of(name), None, "{name}");
        }
        let most = format!("step[DECODE bs={}]", "9".repeat(40));
        assert_eq!(Step::of(&most), None);
    }
}
