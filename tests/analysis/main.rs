//! The analysis by its public calls.

mod bisect;
mod compare;
mod earlier_files;
mod export;
mod false_alarms;
mod fleet;
mod history;
mod hostile_profile;
mod hostile_text;
mod import;
mod kept;
mod moved_layers;
mod one_figure;
mod planted;
mod planted_tokens;
mod receipt;
mod requests;
mod serialised;
mod slow_tokens;
mod stacks;
mod summary;
mod trees;
mod views;
mod work;
