//! What needs candle to be compiled, apart from brickscope's workspace: `tests/maps.rs` runs tiny models of candle under
//! each map, `examples/profile.rs` profiles a GGUF file, `examples/cost.rs` measures what that costs.

/// The page, whose code is compiled here.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Page;
