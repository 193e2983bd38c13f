//! The recorder by its public calls, and the repository as a whole.

mod device;
mod graph;
mod latency;
mod misuse;
mod modules;
mod nvtx;
mod porting;
mod promises;
mod reconcile;
mod requests;
mod root;
mod security;
mod tiles;
mod timed_pass;
mod truth;
mod wording;
