//! Spans of threads that began no pass, so that no pass has them.

use brickscope_profile::Source;

use crate::row::Event;

/// What is known of the threads that had one log after each other.
#[derive(Debug, Default)]
pub(super) struct Apart {
    /// Spans of threads before this one.
    before: u64,
    /// Spans that had ended when this thread began, and those of it that are counted for another reason.
    not_counted: u64,
    /// Whether this thread began a pass, or works for another one that says so.
    is_tied: bool,
    has_passes: bool,
}

impl Apart {
    /// Takes what isn't an ordinary span.
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::Span(span) if span.flags != 0 => {
                self.not_counted += 1;
                self.is_tied |= span.source == Source::HostOrder;
            }
            Event::Pass(_) | Event::NestedPass | Event::Abandoned | Event::Discarded => {
                self.is_tied = true;
                self.has_passes = true;
            }
            Event::HandOff(_) | Event::TakeOver(_) => self.is_tied = true,
            _ => {}
        }
    }

    /// Another thread begins when so many spans have ended.
    pub(super) fn begin_thread(&mut self, ended: u64) {
        *self = Self {
            before: self.spans(ended, false),
            not_counted: ended,
            is_tied: false,
            has_passes: self.has_passes,
        };
    }

    /// How many there are once so many spans have ended. `in_pass`: a pass is open now.
    pub(super) fn spans(&self, ended: u64, in_pass: bool) -> u64 {
        let of_this = ended.saturating_sub(self.not_counted);
        self.before + if self.is_tied || in_pass { 0 } else { of_this }
    }

    pub(super) fn has_passes(&self) -> bool {
        self.has_passes
    }
}
