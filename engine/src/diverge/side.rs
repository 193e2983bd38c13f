//! What can be a side of a comparison: a session on the CPU, or on a device.

use std::sync::{Arc, Mutex, PoisonError};

use brickscope_kernels::Kernels;

use crate::executor::Routine;
use crate::executor::gpu::{Gpu, GpuSession};
use crate::forward::Outputs;
use crate::model::{Error, Model};
use crate::session::Session;
use crate::tap::{At, Tapped};

/// The names and shapes of a side's routines, some of which are known only when they first run.
#[derive(Debug, Clone, Default)]
pub struct Names(Arc<Mutex<Vec<(String, String)>>>);

impl Names {
    pub(super) fn get(&self, routine: Routine) -> Option<(String, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(routine.index()).cloned()
    }

    /// The number of a routine.
    pub(crate) fn number(&self, name: &str, shape: &str) -> Routine {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = list.iter().position(|(a, b)| (a.as_str(), b.as_str()) == (name, shape));
        Routine::numbered(known.unwrap_or_else(|| {
            list.push((name.to_owned(), shape.to_owned()));
            list.len() - 1
        }))
    }
}

/// Runs passes whose values somebody looks at.
pub trait Side<'m>: Send {
    /// The model.
    fn model(&self) -> &'m Model;
    /// Tokens in one pass at most.
    fn batch(&self) -> usize;
    /// Tokens so far.
    fn position(&self) -> usize;
    /// Forgets all tokens.
    fn clear(&mut self);
    /// Forgets all tokens but the first so many.
    fn truncate(&mut self, position: usize);
    /// Whether `prompt` can be run and `n_tokens` be chosen after it.
    ///
    /// # Errors
    ///
    /// If not.
    fn check_run(&self, prompt: &[u32], n_tokens: usize) -> Result<(), Error>;
    /// The names of its routines.
    fn names(&self) -> Names;
    /// Its kernels, if they are the CPU's: two sides of the same ones must be equal to the bit.
    fn kernels(&self) -> Option<Kernels>;
    /// One pass over tokens that were checked; `tap` sees each value when it was made, and may change it.
    ///
    /// # Errors
    ///
    /// By the device that it runs on.
    fn pass_tapped(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        tap: &dyn Fn(At<'_>, &mut [f32]),
    ) -> Result<(), Error>;
    /// The logits of the last pass that computed any.
    fn last_logits(&self) -> &[f32];
}

impl<'m> Side<'m> for Session<'m> {
    fn model(&self) -> &'m Model {
        self.model()
    }

    fn batch(&self) -> usize {
        self.batch()
    }

    fn position(&self) -> usize {
        self.position()
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn truncate(&mut self, position: usize) {
        self.truncate(position);
    }

    fn check_run(&self, prompt: &[u32], n_tokens: usize) -> Result<(), Error> {
        self.check_run(prompt, n_tokens)
    }

    fn names(&self) -> Names {
        let list = self.routines().list().iter();
        let list = list.map(|(name, launch)| (name.clone(), launch.shape.clone())).collect();
        Names(Arc::new(Mutex::new(list)))
    }

    fn kernels(&self) -> Option<Kernels> {
        Some(self.cpu().kernels)
    }

    fn pass_tapped(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        tap: &dyn Fn(At<'_>, &mut [f32]),
    ) -> Result<(), Error> {
        let tapped = Tapped::new(self.position(), tokens.len(), tap);
        self.pass(&tapped, tokens, outputs);
        Ok(())
    }

    fn last_logits(&self) -> &[f32] {
        self.last_logits()
    }
}

impl<'m, G: Gpu + Send> Side<'m> for GpuSession<'m, G> {
    fn model(&self) -> &'m Model {
        self.model()
    }

    fn batch(&self) -> usize {
        self.batch()
    }

    fn position(&self) -> usize {
        self.position()
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn truncate(&mut self, position: usize) {
        self.truncate(position);
    }

    fn check_run(&self, prompt: &[u32], n_tokens: usize) -> Result<(), Error> {
        self.check_run(prompt, n_tokens)
    }

    fn names(&self) -> Names {
        self.names.clone()
    }

    fn kernels(&self) -> Option<Kernels> {
        None
    }

    fn pass_tapped(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        tap: &dyn Fn(At<'_>, &mut [f32]),
    ) -> Result<(), Error> {
        self.pass_tapped(tokens, outputs, tap)
    }

    fn last_logits(&self) -> &[f32] {
        self.last_logits()
    }
}
