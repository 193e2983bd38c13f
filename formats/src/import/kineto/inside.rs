//! Which layer and brick the kernels inside of graphs are of, which one call launches together: that call tells of the
//! whole graph only.

use std::collections::HashMap;

use brickscope_profile::GraphLayers;

use super::Names;
use super::host::Host;
use crate::import::trace::{Timed, Trace};

/// What is known of the kernels inside of graphs, by the index of their event.
#[derive(Default)]
pub(super) struct Inside {
    of_event: HashMap<usize, (Option<u16>, Option<u16>)>,
    /// How it became known.
    pub(super) layers: Option<GraphLayers>,
}

impl Inside {
    pub(super) fn layer(&self, event: usize) -> Option<u16> {
        self.of_event.get(&event)?.0
    }

    pub(super) fn brick(&self, event: usize) -> Option<u16> {
        self.of_event.get(&event)?.1
    }

    pub(super) fn has_layers(&self) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.kernels > 0)
    }
}

/// Finds it out.
pub(super) fn of(_: &Trace, _: &[Timed], _: &Host, _: &mut Names<'_>) -> Inside {
    Inside::default()
}
