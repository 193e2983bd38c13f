//! The hot path: what entering and exiting a span costs in a pass.
//!
//! ```text
//! enter ── is a pass open here? ── what is it? ── one reading: ends a piece of the span around it, begins its own
//! exit ─── the same the other way round
//! ```
//!
//! A span that has others in it is recorded in pieces, which lie between them: each is a brick between two readings, and
//! none is in another one, so nothing has to be taken off.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;

use brickscope::{BrickTimer, LayerTimer, PassTimer, Work};

use crate::Shared;
use crate::table::{Entry, LayerOf};

thread_local! {
    /// The serial of the layer that has a pass open on this thread, or 0. Apart from the rest, since it is all that
    /// spans outside of passes look at.
    static RECORDING: Cell<u64> = const { Cell::new(0) };
    static THREAD: RefCell<Thread> = const { RefCell::new(Thread::NEW) };
}

/// What is open in the pass of this thread.
struct Thread {
    /// Spans that were entered in this pass, the innermost last.
    entered: Vec<Entered>,
    /// The piece that runs now.
    piece: Option<BrickTimer>,
    layer: Option<(u16, LayerTimer)>,
    tokens: u64,
    /// The pass that a span began, with its tokens and position.
    own_pass: Option<(PassTimer, u64, u64)>,
}

#[derive(Clone, Copy)]
struct Entered {
    id: u64,
    /// Its brick, or that of the span around it whose time it has.
    brick: Option<u16>,
    product: Option<u16>,
    /// The list of its pieces, if they are different bricks, and how many bricks in it have ended.
    pieces: Option<u16>,
    ended: u16,
    is_brick: bool,
    ends: Ends,
}

/// What ends with a span.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Nothing,
    Layer,
    Pass,
}

/// Records the spans of this thread from now on. `false` if a pass is open already.
pub(crate) fn begin(shared: &Shared, tokens: u64) -> bool {
    if RECORDING.get() != 0 || !shared.profiler.is_enabled() {
        return false;
    }
    let begun = THREAD.try_with(|thread| {
        thread.try_borrow_mut().map(|mut thread| thread.tokens = tokens).is_ok()
    });
    let begun = begun.unwrap_or(false);
    if begun {
        RECORDING.set(shared.serial);
    }
    begun
}

/// Ends all that is open, and records no more. Spans that are entered now are not of the next pass.
pub(crate) fn end(shared: &Shared) {
    RECORDING.set(0);
    let _ = THREAD.try_with(|thread| {
        if let Ok(mut thread) = thread.try_borrow_mut() {
            thread.end(shared);
        }
    });
}

#[inline]
pub(crate) fn enter(shared: &Shared, id: u64) {
    if RECORDING.get() == shared.serial {
        let _ = THREAD.try_with(|thread| {
            // Else an allocator that has spans calls from within.
            if let Ok(mut thread) = thread.try_borrow_mut() {
                thread.enter(shared, id);
            }
        });
    } else if shared.profiler.is_enabled() {
        enter_outside(shared, id);
    }
}

#[inline]
pub(crate) fn exit(shared: &Shared, id: u64) {
    if RECORDING.get() == shared.serial {
        let _ = THREAD.try_with(|thread| {
            if let Ok(mut thread) = thread.try_borrow_mut() {
                thread.exit(shared, id);
            }
        });
    }
}

#[cold]
fn enter_outside(shared: &Shared, id: u64) {
    if shared.table.get(id).is_some_and(Entry::is_pass)
        && let Some((phase, tokens, position)) = shared.pass_of(id)
        && begin(shared, tokens)
    {
        let timer = shared.profiler.begin_pass(phase);
        let _ = THREAD.try_with(|thread| {
            if let Ok(mut thread) = thread.try_borrow_mut() {
                thread.own_pass = Some((timer, tokens, position));
                thread.entered.push(Entered { ends: Ends::Pass, ..Entered::around(id) });
            }
        });
    } else {
        shared.outside.fetch_add(1, Relaxed);
    }
}

impl Entered {
    fn around(id: u64) -> Self {
        Self {
            id,
            brick: None,
            product: None,
            pieces: None,
            ended: 0,
            is_brick: false,
            ends: Ends::Nothing,
        }
    }

    /// The brick that goes on now that one in it has ended.
    #[inline]
    fn go_on(&mut self, shared: &Shared) -> Option<u16> {
        if let Some(pieces) = self.pieces {
            self.ended = self.ended.saturating_add(1);
            self.brick = shared.pieces.brick(pieces, self.ended);
        }
        self.brick
    }
}

impl Thread {
    const NEW: Self =
        Self { entered: Vec::new(), piece: None, layer: None, tokens: 0, own_pass: None };

    #[inline]
    fn enter(&mut self, shared: &Shared, id: u64) {
        // One that was made before this layer was there is not known, and changes nothing.
        let entry = shared.table.get(id).unwrap_or(Entry::AROUND);
        let around = self.entered.last().and_then(|around| around.brick);
        let (layer, ends) = match entry.layer() {
            LayerOf::Open => (self.layer_index(), Ends::Nothing),
            LayerOf::Index(index) => (Some(index), Ends::Nothing),
            LayerOf::Is(index) => (Some(index), Ends::Layer),
            LayerOf::None => (None, Ends::Nothing),
        };
        let (product, pieces) = (entry.product(), entry.pieces());
        let own = match pieces {
            Some(pieces) => shared.pieces.brick(pieces, 0),
            None => entry.brick(),
        };
        let brick = own.or(around);
        // First, so that its piece begins as late as can be.
        let is_brick = own.is_some();
        self.entered.push(Entered { id, brick, product, pieces, ended: 0, is_brick, ends });
        if layer != self.layer_index() {
            self.begin_piece(shared, None, Work::default());
            self.begin_layer(shared, layer);
            self.begin_piece(shared, brick, Work::default());
        } else if own.is_some() {
            self.begin_piece(shared, brick, Work::default());
        }
    }

    #[inline]
    fn exit(&mut self, shared: &Shared, id: u64) {
        match self.entered.last() {
            Some(last) if last.id == id => {
                let last = *last;
                self.entered.pop();
                if last.is_brick {
                    let work = shared.products.work(last.product, self.tokens);
                    let around = self.entered.last_mut().and_then(|around| around.go_on(shared));
                    self.begin_piece(shared, around, work);
                }
                self.end_with(shared, last.ends);
            }
            _ => self.exit_out_of_order(shared, id),
        }
    }

    /// A span that ends before others that were entered after it, or that was entered before the pass.
    #[cold]
    fn exit_out_of_order(&mut self, shared: &Shared, id: u64) {
        let Some(at) = self.entered.iter().rposition(|entered| entered.id == id) else { return };
        shared.out_of_order.fetch_add(1, Relaxed);
        let has_time = |entered: &Entered| entered.is_brick;
        let runs = self.entered.iter().rposition(has_time) == Some(at);
        let gone = self.entered.remove(at);
        // Those inside it had its brick, unless they have their own.
        let mut around = at.checked_sub(1).and_then(|below| self.entered[below].brick);
        for inner in &mut self.entered[at..] {
            match inner.is_brick {
                true => around = inner.brick,
                false => inner.brick = around,
            }
        }
        if runs {
            let work = shared.products.work(gone.product, self.tokens);
            self.begin_piece(shared, around, work);
        }
        self.end_with(shared, gone.ends);
    }

    fn end_with(&mut self, shared: &Shared, ends: Ends) {
        match ends {
            Ends::Nothing => {}
            Ends::Layer => {
                let brick = self.entered.last().and_then(|around| around.brick);
                self.begin_piece(shared, None, Work::default());
                self.begin_layer(shared, None);
                self.begin_piece(shared, brick, Work::default());
            }
            Ends::Pass => {
                RECORDING.set(0);
                self.end(shared);
            }
        }
    }

    fn layer_index(&self) -> Option<u16> {
        self.layer.as_ref().map(|(index, _)| *index)
    }

    /// Ends the piece that runs, whose span had this work if it ends too, and begins one of another brick.
    #[inline]
    fn begin_piece(&mut self, shared: &Shared, brick: Option<u16>, work: Work) {
        let profiler = &*shared.profiler;
        let key = |brick| shared.bricks.key(brick, profiler);
        self.piece = match (self.piece.take(), brick) {
            (Some(piece), Some(brick)) => Some(profiler.lap_with(piece, work, key(brick))),
            (Some(piece), None) => {
                profiler.stop_brick_with(piece, work);
                None
            }
            (None, Some(brick)) => Some(profiler.start_brick(key(brick))),
            (None, None) => None,
        };
    }

    fn begin_layer(&mut self, shared: &Shared, index: Option<u16>) {
        if let Some((_, before)) = self.layer.take() {
            shared.profiler.end_layer(before);
        }
        self.layer = index.map(|index| (index, shared.profiler.begin_layer(index)));
    }

    fn end(&mut self, shared: &Shared) {
        self.begin_piece(shared, None, Work::default());
        self.begin_layer(shared, None);
        self.entered.clear();
        // A panic has cut it short: dropped, it is abandoned.
        if let Some((timer, tokens, position)) = self.own_pass.take()
            && !std::thread::panicking()
        {
            shared.profiler.end_pass(timer, tokens, position);
        }
    }
}
