//! Spans of threads that began no pass, so that no pass has them.

use brickscope_profile::Source;

use crate::row::Event;

/// Threads that are told apart. What further ones did counts as done when the last of them ended.
const MOST_THREADS: usize = 64;

/// What is known of the threads that had one log after each other.
#[derive(Debug, Default)]
pub(super) struct Apart {
    /// Of threads before this one: when the last brick ended, and how many spans no pass has.
    before: Vec<(u64, u64)>,
    /// Spans that had ended when this thread began, and those of it that are counted for another reason.
    not_counted: u64,
    /// Whether this thread began a pass, or works for another one that says so.
    is_tied: bool,
}

impl Apart {
    /// Takes what isn't an ordinary span.
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::Span(span) if span.flags != 0 => {
                self.not_counted += 1;
                self.is_tied |= span.source == Source::HostOrder;
            }
            Event::Pass(_)
            | Event::NestedPass
            | Event::Abandoned
            | Event::Discarded
            | Event::HandOff(_)
            | Event::TakeOver(_) => self.is_tied = true,
            _ => {}
        }
    }

    /// This thread has ended, and so many spans have: its last brick at `last_end`.
    pub(super) fn end_thread(&mut self, ended: u64, last_end: u64) {
        let spans = self.of_this(ended);
        if spans == 0 {
            return;
        }
        let is_full = self.before.len() == MOST_THREADS;
        match self.before.last_mut().filter(|_| is_full) {
            Some(last) => *last = (last.0.max(last_end), last.1 + spans),
            None => self.before.push((last_end, spans)),
        }
    }

    /// Another thread begins when so many spans have ended.
    pub(super) fn begin_thread(&mut self, ended: u64) {
        self.not_counted = ended;
        self.is_tied = false;
    }

    /// How many there are once so many spans have ended, of threads that went on after `first_pass` began: what ran before
    /// all passes, as what loads a model does, is no part of one. `this` is whether the thread that has the log now is in no
    /// pass, and when its last brick ended.
    pub(super) fn spans(&self, ended: u64, this: (bool, u64), first_pass: u64) -> u64 {
        let before = self.before.iter().filter(|(last_end, _)| *last_end > first_pass);
        let before: u64 = before.map(|(_, spans)| spans).sum();
        let (is_outside, last_end) = this;
        before + if is_outside && last_end > first_pass { self.of_this(ended) } else { 0 }
    }

    fn of_this(&self, ended: u64) -> u64 {
        if self.is_tied { 0 } else { ended.saturating_sub(self.not_counted) }
    }
}
