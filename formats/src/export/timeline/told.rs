//! What a profile tells of its spans and passes, and what an imported file left out.

use brickscope_profile::name::{OTHER_BRICK, OTHER_KERNEL};
use brickscope_profile::run::Format;
use brickscope_profile::{NameKind, Pass, Profile, Span, Work};

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::export) enum SpanKind {
    Layer,
    Brick,
    Kernel,
}

impl SpanKind {
    pub(in crate::export) fn name(self) -> &'static str {
        match self {
            Self::Layer => "layer",
            Self::Brick => "brick",
            Self::Kernel => "kernel",
        }
    }
}

pub(in crate::export) fn kind_of(profile: &Profile, span: &Span) -> SpanKind {
    match span.name {
        None => SpanKind::Layer,
        Some(OTHER_KERNEL) => SpanKind::Kernel,
        Some(name) => match profile.names.get(usize::from(name)) {
            Some(name) if name.kind == NameKind::Kernel => SpanKind::Kernel,
            _ => SpanKind::Brick,
        },
    }
}

/// The name at an index; `None` if the profile has none and it is not one of the catch-all names.
pub(in crate::export) fn name_of(profile: &Profile, index: u16) -> Option<&str> {
    match profile.names.get(usize::from(index)) {
        Some(name) => Some(&name.name),
        None if index == OTHER_BRICK || index == OTHER_KERNEL => Some("(other)"),
        None => None,
    }
}

/// Whether the times at which passes and spans began are known: some imported files don't have them, and
/// zeros stand for them.
#[must_use]
pub fn has_begins(profile: &Profile) -> bool {
    let untold = [
        Format::LlamaBench,
        Format::NcclInspector,
        Format::ForwardPassMetrics,
        Format::VkPerfLogger,
        Format::Folded,
    ];
    let of = profile.imported.as_ref();
    of.is_none_or(|of| untold.iter().all(|format| format.name() != of.format))
}

/// The tokens of a pass and its position; an imported file may have neither, or tokens only. llama-bench states both.
pub(in crate::export) fn told_tokens(profile: &Profile, pass: &Pass) -> [Option<u64>; 2] {
    let of = profile.imported.as_ref();
    let is_bench = of.is_some_and(|of| of.format == Format::LlamaBench.name() && pass.tokens > 0);
    [pass.tokens, pass.position].map(|n| (of.is_none() || is_bench || n > 0).then_some(n))
}

/// The stated work: elements, FLOPs, bytes.
pub(in crate::export) fn stated(work: Work) -> [(&'static str, Option<u64>); 3] {
    let some = |count: u64| (count > 0).then_some(count);
    [("elements", some(work.elements)), ("flops", some(work.flops)), ("bytes", some(work.bytes))]
}
