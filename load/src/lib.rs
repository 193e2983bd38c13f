//! Load for servers of language models: OpenAI's API over HTTP.
//!
//! # Map
//!
//! | file | contents |
//! |---|---|
//! | `plan.rs` | what is asked, and when |
//! | `trace.rs` | plans from traces of real servers: Mooncake's and Azure's |
//! | `text.rs` | prompts of a wanted length |
//! | `server.rs` | where to ask: its address, its model |
//! | `answer.rs` | one request, and what comes back, piece by piece |
//! | `drive.rs` | all requests, each on a thread of its own |
//! | `figures.rs` | what came of them |
//!
//! A request is due at a time, whatever became of those before it; its times count from then on. So a server that stalls
//! isn't asked less meanwhile, and what waits in this client is seen, too.
//!
//! ```no_run
//! use brickscope_load::{Plan, Server, Settings, drive};
//!
//! let server = Server::open("http://localhost:8080", Settings::default())?;
//! let words = server.measure_words()?;
//! // 100 prompts of 256 tokens, two a second, for answers of 64 tokens.
//! let plan = Plan::poisson(2.0, 100, 256, 64, 1);
//! let driven = drive(&server, &plan, words, &|| false, &mut |_| {});
//! println!("{} answers", driven.answers.len());
//! # Ok::<(), brickscope_load::LoadError>(())
//! ```

mod answer;
mod drive;
mod figures;
mod plan;
mod screen;
mod server;
mod text;
mod trace;

pub use answer::Answer;
pub use drive::{Driven, Progress, drive};
pub use figures::{Figures, Slo};
pub use plan::{Ask, Pace, Plan};
pub use screen::Screen;
pub use server::{Api, LoadError, Server, Settings};
pub use text::Words;
pub use trace::{TraceError, read};
