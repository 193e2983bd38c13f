//! Screens of known frames.
