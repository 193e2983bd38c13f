//! What `profile` tells on standard error where `BRICKSCOPE_TRACE_TIMING`, `BITNET_TRACE_TIMING` or `BITNET_TRACE_QUANT`
//! is set.

use std::collections::HashMap;

use brickscope::{BrickId, NameKind, Profile};

use crate::text::printable;

/// Prints what the variables ask for.
pub(crate) fn where_asked(profile: &Profile) {
    let is_set =
        |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    if is_set("BITNET_TRACE_TIMING") {
        timing(profile, Form::LineEach);
    } else if is_set("BRICKSCOPE_TRACE_TIMING") {
        timing(profile, Form::OneLine);
    }
    if is_set("BITNET_TRACE_QUANT") {
        kernels(profile);
    }
}

/// Prints a line on standard error for each kernel that ran: its name has the format of its weights.
fn kernels(profile: &Profile) {
    let kernels = profile.totals.iter().filter(|total| total.kind == NameKind::Kernel);
    for total in kernels {
        let (name, count) = (printable(&total.stats.name), total.stats.count);
        let shape = total.host.as_ref().map_or("", |host| &host.shape);
        let phase = total.phase.map_or("outside", |phase| phase.name());
        tell!("quant_dispatch: {name} {} phase={phase} calls={count}", printable(shape));
    }
}

/// How a pass is told.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// All figures in a line.
    OneLine,
    /// A line for each, as of BitNet.rs, whose scripts cut them.
    LineEach,
}

/// Prints on standard error what each pass took, without the bricks that it didn't run.
fn timing(profile: &Profile, form: Form) {
    // Start and end of the bricks that the line shows, by pass.
    let mut bricks: HashMap<(u32, u16), (u64, u64)> = HashMap::new();
    for span in &profile.spans {
        if let (Some(pass), Some(name)) = (span.pass, span.name) {
            let end = span.start_ns + span.duration_ns;
            bricks.entry((pass, name)).or_insert((span.start_ns, end));
        }
    }
    for pass in &profile.passes {
        let of = |brick: BrickId| bricks.get(&(pass.serial, brick as u16)).copied();
        let (embed, logits) = (of(BrickId::Embedding), of(BrickId::LmHead));
        // From the end of the embedding to the start of the head, or to the end of the pass.
        let pass_end = pass.start_ns + pass.wall_ns;
        let forward = embed.map(|(_, start)| (start, logits.map_or(pass_end, |(end, _)| end)));
        let figures = [
            ("embed_us", embed),
            ("forward_us", forward),
            ("logits_us", logits),
            ("sample_us", of(BrickId::Sampling)),
        ];
        let figures = figures.into_iter().filter_map(|(name, span)| {
            span.map(|(start, end)| format!("{name}={}", (end - start) / 1_000))
        });
        match form {
            Form::OneLine => tell!("timing: {}", figures.collect::<Vec<_>>().join(" ")),
            Form::LineEach => figures.for_each(|figure| tell!("timing: {figure}")),
        }
    }
}
