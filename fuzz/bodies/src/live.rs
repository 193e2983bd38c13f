//! Any bytes from a publisher give frames that can be shown, or a readable error.

use brickscope_analysis::view;
use brickscope_live::socket::{Message, Messages};

/// Panics if that is not so.
pub fn run(bytes: &[u8]) {
    let mut messages = Messages::new(bytes);
    let mut before = None;
    loop {
        match messages.next() {
            Ok(Some(Message::Frame(mut frame))) => {
                if let Some(before) = &before {
                    frame.take_details_of(before);
                }
                let _ = (frame.profile.check(), view::report(&frame.profile));
                before = Some(*frame);
            }
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    }
}
