//! Bars on standard error while something takes time; nothing when that is not a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of `total` bytes.
pub(crate) fn bytes(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{msg:10} [{bar:40}] {bytes}/{total_bytes}")
}

/// A bar of `total` tokens.
pub(crate) fn tokens(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{msg:10} [{bar:40}] {pos}/{len} tokens")
}

/// A bar of `total` steps of the same kind.
pub(crate) fn steps(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{msg:10} [{bar:40}] {pos}/{len}")
}

/// A bar of `total` milliseconds, with a word on how far the result is.
pub(crate) fn time(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{msg:10} [{bar:40}] {prefix}")
}

/// A word on what takes a moment and can't tell how far it is.
pub(crate) fn note(what: &'static str) -> ProgressBar {
    let note = bar(what, 0, "{msg} …");
    note.tick();
    note
}

fn bar(what: &'static str, total: u64, template: &str) -> ProgressBar {
    // No thread of its own redraws it: the cores belong to what is measured. Ten times a second at
    // most, and only between passes.
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    bar.set_style(style.progress_chars("=> "));
    bar.set_message(what);
    bar
}
