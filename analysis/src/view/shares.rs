//! What each thread did of the bricks that threads share, and how long it waited for the others.

use std::fmt::Write;

use brickscope_profile::text::{micros, percent, shortened};
use brickscope_profile::{Phase, Profile};

use crate::view::layout::wrapped;
use crate::waiting::Waiting;

/// Threads in the table at most.
const MOST_THREADS: usize = 32;
/// Bricks that are named at most.
const MOST_BRICKS: usize = 4;

/// The shares, if any were recorded.
pub(super) fn in_report(profile: &Profile, text: &mut String) {
    for phase in Phase::SHOWN {
        let Some(waiting) = Waiting::of(profile, phase) else { continue };
        let _ = writeln!(
            text,
            "\nThreads in {phase}: how long each worked at its share of bricks, and waited"
        );
        let row = |name: &str, of: [&str; 4]| {
            let [shares, worked, waited, part] = of;
            format!("{name:24} {shares:>10} {worked:>14} {waited:>14} {part:>9}\n")
        };
        text.push_str(&row("Thread", ["Shares", "Worked (µs)", "Waited (µs)", "Waited"]));
        let _ = writeln!(text, "{}", "-".repeat(75));
        for (thread, share) in waiting.threads.iter().take(MOST_THREADS) {
            let all = share.worked_ns as f64 + share.waited_ns as f64;
            let figures = [
                share.count.to_string(),
                micros(share.worked_ns as f64),
                micros(share.waited_ns as f64),
                percent(share.waited_ns as f64, all),
            ];
            let name = format!("thread {thread}");
            text.push_str(&row(&name, figures.each_ref().map(String::as_str)));
        }
        if let more @ 1.. = waiting.threads.len().saturating_sub(MOST_THREADS) {
            let _ = writeln!(text, "({more} more)");
        }
        let named = waiting.bricks.iter().take(MOST_BRICKS).map(|(brick, share)| {
            let of = share.waited().unwrap_or(0.0);
            format!("{} ({:.1} % of the threads' time in it)", shortened(brick, 30, ""), 100.0 * of)
        });
        let named: Vec<_> = named.collect();
        if !named.is_empty() {
            text.push('\n');
            wrapped(&format!("they waited most in {}", named.join(", ")), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{Share, ThreadShare};

    use super::*;

    fn profile() -> Profile {
        let mut profile = Profile::empty(Default::default());
        let mut add = |thread, brick: &str, worked_ns, waited_ns| {
            let share = Share { count: 12, worked_ns, waited_ns };
            let (phase, brick) = (Phase::Decode, brick.to_owned());
            profile.shares.push(ThreadShare { thread, phase, brick, share });
        };
        add(0, "QkvProjection", 900_000, 100_000);
        add(1, "QkvProjection", 950_000, 50_000);
        add(0, "FlashAttention", 400_000, 10_000);
        add(1, "FlashAttention", 100_000, 310_000);
        profile
    }

    #[test]
    fn threads_and_the_bricks_they_wait_in() {
        let mut text = String::new();
        in_report(&profile(), &mut text);
        insta::assert_snapshot!(text);
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn one_thread_waits_for_nobody() {
        let mut one = profile();
        one.shares.retain(|of| of.thread == 0);
        let mut text = String::new();
        in_report(&one, &mut text);
        assert_eq!(text, "");
        assert!(Waiting::of(&profile(), Phase::Prefill).is_none());
    }
}
