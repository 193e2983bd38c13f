//! What can't leave its thread, with a compiler error that says what to do instead.
#![allow(unsafe_code, reason = "the compiler's own error names a raw pointer, which helps nobody")]

use std::marker::PhantomData;

/// No type has it: it is there for its error.
#[diagnostic::on_unimplemented(
    message = "a pass can't leave the thread that began it",
    label = "this may run on another thread, and it holds a pass of brickscope",
    note = "call `end_pass` before the `.await`, or run the whole pass on one thread, in \
            `spawn_blocking` for example",
    note = "a pass that has to go on after an `.await`, or on another thread, takes readings of \
            `profiler.clock().now()` and is recorded by `record_pass` when it is over",
    note = "both ways are in docs/embedding.md of brickscope"
)]
pub(super) trait LeavesItsThread {}

/// Of which type the error is.
#[derive(Debug)]
pub(super) enum Pass {}

/// What has this in it stays on its thread, since only that thread may write to its log.
#[derive(Debug)]
pub(super) struct Stays<T = Pass>(PhantomData<(*const (), T)>);

impl Stays {
    pub(super) const HERE: Self = Self(PhantomData);
}

// SAFETY: no type has the bound, so nothing is sent by this.
unsafe impl<T: LeavesItsThread> Send for Stays<T> {}
