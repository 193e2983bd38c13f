//! Progress bars on standard error, if it is a terminal, with how long the rest takes at the rate so far.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::text::printable;

/// A bar of `total` bytes.
pub(crate) fn bytes(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{msg:10} [{bar:30}] {bytes}/{total_bytes}, {eta} left")
}

/// A bar of `total` tokens.
pub(crate) fn tokens(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{msg:10} [{bar:30}] {pos}/{len} tokens, {eta} left")
}

/// A bar of `total` steps of the same kind.
pub(crate) fn steps(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{msg:10} [{bar:30}] {pos}/{len}, {eta} left")
}

/// A bar of `total` requests, with how many are going on, and how long it will take.
#[cfg_attr(not(feature = "load"), allow(dead_code))]
pub(crate) fn requests(total: u64) -> ProgressBar {
    bar("asking", total, "{msg:10} [{bar:30}] {pos}/{len}, {prefix}, {eta} left")
}

/// A bar of `total` milliseconds, with a note on the state of the result.
pub(crate) fn time(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{msg:10} [{bar:20}] {eta} left  {prefix}")
}

/// A note without a bar, for work of unknown length.
pub(crate) fn note(what: &'static str) -> ProgressBar {
    let note = bar(what, 0, "{msg} …");
    note.tick();
    note
}

/// Changes the message of a bar to what another program says.
#[cfg_attr(not(feature = "top"), allow(dead_code))]
pub(crate) fn quote(bar: &ProgressBar, what: &str) {
    bar.set_message(printable(what));
}

fn bar(what: &'static str, total: u64, template: &str) -> ProgressBar {
    // Without a thread of its own, since the cores belong to what is measured. The bar is redrawn at most
    // ten times a second, and only between passes.
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    let bar = bar.with_style(style.progress_chars("=> ")).with_message(what);
    // Where nobody knows yet how much it will be, 0 of 0 says nothing.
    if total > 0 {
        bar.tick();
    }
    bar
}

/// Moves a bar to so many of all.
#[cfg_attr(not(feature = "parquet"), allow(dead_code))]
pub(crate) fn at(bar: &ProgressBar, done: u64, all: u64) {
    if all > 0 {
        bar.set_length(all);
        bar.set_position(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_program_says_controls_no_terminal() {
        let bar = note("connecting");
        quote(&bar, "loading\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\n");
        assert!(
            !bar.message().contains(brickscope_analysis::view::is_unprintable),
            "{}",
            bar.message()
        );
    }
}
