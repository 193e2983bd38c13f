//! Other profilers, each as its documentation has it, and each at its cheapest: what they do at the
//! end of a batch, such as handing their spans on, isn't timed.

mod fastrace;
mod predecessor;
mod puffin;
mod tracing;
#[cfg(feature = "tracy")]
mod tracy;

use crate::row::Row;

/// A row for each peer. Made before the main thread is pinned: the threads that peers start would
/// inherit its core.
pub(crate) fn rows<'a>() -> Vec<Row<'a>> {
    let mut rows = predecessor::rows();
    rows.push(puffin::row());
    rows.extend(tracing::rows());
    rows.push(fastrace::row());
    #[cfg(feature = "tracy")]
    rows.push(tracy::row());
    rows
}
