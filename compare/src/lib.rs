//! Runs beside each other: two sets of them, fleets, bisections, histories, and the ranks within one. Nothing here measures,
//! and nothing prints: `brickscope-analysis` re-exports all of it, and has views.
//!
//! A package of its own since it computes: everything else that reads profiles may be compiled without optimisation.
//!
//! # Map
//!
//! | folder or file | contents |
//! |---|---|
//! | `compare/` | two sets of processes: what became slower. `comparison.rs` the way through, `rows.rs` its rows, `ratio.rs` intervals, `verdict.rs` what may be said, `ranks.rs` the ranks of two runs |
//! | `fleet/` | many commits on many machines: is it the commit or the machine? |
//! | `bisect/` | which of many revisions is slower: what to measure next, and what the results say |
//! | `history/` | many runs (feature `receipt`): when the speed changed for good |
//! | `ranks.rs` | ranks of one job: what they waited for each other in collectives, and for whom |
//! | `links.rs` | groups of ranks that transfer slower than others do |
#![forbid(unsafe_code)]

pub mod bisect;
pub mod compare;
pub mod fleet;
#[cfg(feature = "receipt")]
pub mod history;
pub mod links;
pub mod ranks;
