//! Structurally real models with seeded random weights.
