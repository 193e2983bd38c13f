//! brickscope.
