//! Any text gives requests in the order in which they are due, or a readable error.

use brickscope_load::read;

/// Panics if that is not so.
pub fn run(text: &str) {
    match read(text, 1) {
        Ok((plan, left_out, why)) => {
            assert!(plan.asks.is_sorted_by_key(|ask| ask.due_ns));
            assert_eq!(plan.asks[0].due_ns, 0);
            assert!(plan.asks.len() + left_out.len() <= text.lines().count());
            assert_eq!(left_out.is_empty(), why.is_none());
            let changed = plan.changed(7, 2.0, 0.5);
            assert!(changed.asks.len() <= 7);
            assert!(changed.asks.iter().all(|ask| ask.prompt_tokens > 0 && ask.answer_tokens > 0));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
