//! Which experts the tokens of a graph choose.
//!
//! The numbers are in a tensor that several products read, and that is overwritten soon after them. So they are copied where
//! the CPU begins the first of these products, which takes less than to count them; they are counted when the graph has been
//! computed.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicPtr};

use crate::chosen::{Chosen, Unread};
use crate::format::UNKNOWN;
use crate::ggml::{IsHost, Layout, Tensor};
use crate::guarded;
use crate::hooks::COPIES;

/// Products of experts in a graph that are looked at: more than a hundred layers have.
const MOST_PRODUCTS: usize = 1 << 10;
/// Numbers of a graph that are copied: of 2048 tokens with 8 each in 64 layers. Others are counted in the product's time.
const MOST_IDS: usize = 1 << 20;

/// The number of the operation by which a copy multiplies with experts' matrices, once it is looked at.
static OPS: [AtomicI32; COPIES] = [const { AtomicI32::new(-1) }; COPIES];
/// Its function that says whether a buffer is in the host's memory; null if it has none.
static ARE_HOST: [AtomicPtr<c_void>; COPIES] = [const { AtomicPtr::new(ptr::null_mut()) }; COPIES];

/// A copy of ggml has been looked at.
pub(crate) fn know(copy: usize, layout: &Layout) {
    let is_host = layout.is_host.map_or(ptr::null_mut(), |is_host| is_host as *mut c_void);
    ARE_HOST[copy].store(is_host, Relaxed);
    // Who reads this one sees the other.
    OPS[copy].store(layout.experts, Release);
}

/// Those of the graph that a thread computes.
pub(crate) struct Experts {
    /// The operation of products with experts' matrices.
    pub(crate) op: i32,
    is_host: Option<IsHost>,
    /// Such products so far.
    products: usize,
    choices: Vec<Choice>,
    ids: Vec<i32>,
}

/// What several products use.
struct Choice {
    tensor: *const Tensor,
    of: Chosen,
    /// Where its numbers are; nothing, if they are counted or can't be.
    ids: Range<usize>,
}

impl Experts {
    pub(crate) fn new() -> Self {
        Self { op: -1, is_host: None, products: 0, choices: Vec::new(), ids: Vec::new() }
    }

    /// At the first product of a thread, since most models have none. Memory that isn't written to takes no room, and where
    /// there is none for numbers they are counted at once. Returns whether there is room for choices.
    #[cold]
    fn make_room(&mut self) -> bool {
        guarded(false, || {
            self.ids.try_reserve_exact(MOST_IDS).ok();
            self.choices.try_reserve_exact(MOST_PRODUCTS).is_ok()
        })
    }

    /// A graph begins that this copy of ggml computes.
    pub(crate) fn begin_graph(&mut self, copy: usize) {
        self.op = OPS[copy].load(Acquire);
        let is_host = ARE_HOST[copy].load(Relaxed);
        // SAFETY: it is null, or the function of the copy that was looked at.
        self.is_host = unsafe { std::mem::transmute::<*mut c_void, Option<IsHost>>(is_host) };
        self.products = 0;
        self.choices.clear();
        self.ids.clear();
    }

    /// A product with experts' matrices begins.
    ///
    /// # Safety
    ///
    /// The CPU is about to compute the node.
    #[cold]
    pub(crate) unsafe fn add(&mut self, node: *const Tensor) {
        if self.products == MOST_PRODUCTS {
            return;
        }
        if self.choices.capacity() == 0 && !self.make_room() {
            // None of this graph is recorded: products are counted from its first one on.
            self.products = MOST_PRODUCTS;
            return;
        }
        let product = self.products as u32;
        self.products += 1;
        // SAFETY: the caller says so.
        let tensor = unsafe { (*node).src[2] };
        if self.choices.last().is_some_and(|last| last.tensor == tensor) {
            return;
        }
        // SAFETY: as above.
        let n_expert = unsafe { (*node).src[0].as_ref() }.map_or(0, |matrices| matrices.ne[2]);
        let n_expert = u32::try_from(n_expert).unwrap_or(0);
        let mut of = Chosen { product, n_expert, ..Chosen::default() };
        let mut range = 0..0;
        // SAFETY: as above.
        match unsafe { (*node).ids(self.is_host) } {
            Ok(ids) => {
                (of.n_used, of.tokens) = (ids.used as u32, ids.tokens as u32);
                let begin = self.ids.len();
                if ids.used * ids.tokens <= self.ids.capacity() - begin {
                    // SAFETY: as above, so its numbers are there.
                    unsafe { ids.each(|chosen| self.ids.push(chosen)) };
                    range = begin..self.ids.len();
                } else {
                    let is_counted = guarded(false, || {
                        // SAFETY: as above.
                        of.count(|with| unsafe { ids.each(with) });
                        true
                    });
                    of.unread = (!is_counted).then_some(Unread::Other);
                }
            }
            Err(why) => of.unread = Some(why),
        }
        self.choices.push(Choice { tensor, of, ids: range });
    }

    /// The graph has been computed. For each product how many experts it used, or unknown; and for each choice what was
    /// chosen: words of two records.
    pub(crate) fn end_graph(&mut self) -> [Vec<u64>; 2] {
        let (mut used, mut chosen) = (Vec::new(), Vec::new());
        let products = self.products;
        let ends: Vec<usize> =
            self.choices.iter().skip(1).map(|next| next.of.product as usize).collect();
        let ends = ends.into_iter().chain([products]);
        for (choice, end) in self.choices.iter_mut().zip(ends) {
            let ids = self.ids.get(choice.ids.clone()).unwrap_or_default();
            if !ids.is_empty() {
                choice.of.count(|with| ids.iter().for_each(|&chosen| with(chosen)));
            }
            used.resize(end, choice.of.different().map_or(UNKNOWN, u64::from));
            choice.of.write(&mut chosen);
        }
        [used, chosen]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ggml::tests::{I32, tensor};

    fn read(words: &[u64]) -> Vec<Chosen> {
        Chosen::read(words).expect("it was written")
    }

    /// Those of the products of a graph, each with its choice and its number of experts.
    fn of(experts: &mut Experts, products: &[(&Tensor, i64)]) -> (Vec<u64>, Vec<Chosen>) {
        for (ids, n_expert) in products {
            let matrices = tensor(8, [32, 4, *n_expert, 1], ptr::null());
            let mut node = tensor(0, [4, 2, 3, 1], ptr::null());
            node.src[0] = &raw const matrices;
            node.src[2] = ptr::from_ref(*ids);
            // SAFETY: the sources are there, and the numbers of the last one.
            unsafe { experts.add(&raw const node) };
        }
        let [used, chosen] = experts.end_graph();
        (used, read(&chosen))
    }

    #[test]
    fn products_that_use_one_choice_are_counted_once() {
        let numbers = [0_i32, 3, 3, 1, 3, 0];
        let first = tensor(I32, [2, 3, 1, 1], numbers.as_ptr().cast());
        let others = [1_i32, 2];
        let second = tensor(I32, [2, 1, 1, 1], others.as_ptr().cast());
        let mut experts = Experts::new();
        let (used, chosen) = of(&mut experts, &[(&first, 4), (&first, 4), (&second, 8)]);
        assert_eq!(used, [3, 3, 2]);
        assert_eq!((chosen[0].product, chosen[1].product), (0, 2));
        assert_eq!(chosen[0].experts, [[0, 2], [1, 1], [3, 3]]);
        assert_eq!((chosen[0].n_used, chosen[0].tokens, chosen[0].n_expert), (2, 3, 4));
        assert_eq!(chosen[1].experts, [[1, 1], [2, 1]]);
    }

    /// A choice is mostly a part of all experts in their order.
    #[test]
    fn numbers_lie_where_the_tensor_says() {
        let sorted = [5_i32, 1, -7, -7, 2, 5, -7, -7];
        let mut ids = tensor(I32, [2, 2, 1, 1], sorted.as_ptr().cast());
        ids.nb[1] = 16;
        let (used, chosen) = of(&mut Experts::new(), &[(&ids, 8)]);
        assert_eq!((used, &chosen[0].experts[..]), (vec![3], &[[1, 1], [2, 1], [5, 2]][..]));
        assert_eq!(chosen[0].odd, 0);
    }

    #[test]
    fn what_is_no_choice_is_not_read() {
        unsafe extern "C" fn never(_: *const c_void) -> bool {
            false
        }
        unsafe extern "C" fn always(_: *const c_void) -> bool {
            true
        }
        // An address at which nothing is mapped.
        let nowhere = ptr::without_provenance(16);
        let mut there = tensor(I32, [2, 1, 1, 1], nowhere);
        there.buffer = ptr::without_provenance(64);
        let mut experts = Experts::new();
        experts.is_host = Some(never);
        let (used, chosen) = of(&mut experts, &[(&there, 8)]);
        assert_eq!((used, chosen[0].unread), (vec![UNKNOWN], Some(Unread::Place)));

        let others = [1_i32, 2];
        for ids in [
            // Floats; nowhere; of more dimensions; of none.
            tensor(0, [2, 1, 1, 1], others.as_ptr().cast()),
            tensor(I32, [2, 1, 1, 1], ptr::null()),
            tensor(I32, [2, 1, 2, 1], nowhere),
            tensor(I32, [2, 0, 1, 1], nowhere),
            tensor(I32, [2, -1, 1, 1], nowhere),
            tensor(I32, [1 << 40, 1 << 40, 1, 1], nowhere),
        ] {
            let (used, chosen) = of(&mut Experts::new(), &[(&ids, 8)]);
            assert_eq!((used, chosen[0].unread), (vec![UNKNOWN], Some(Unread::Form)));
        }
        let mut here = tensor(I32, [2, 1, 1, 1], others.as_ptr().cast());
        here.buffer = ptr::without_provenance(64);
        let mut experts = Experts::new();
        experts.is_host = Some(always);
        assert_eq!(of(&mut experts, &[(&here, 8)]).0, [2]);
    }

    #[test]
    fn a_thread_has_room_from_its_first_product_on() {
        let mut experts = Experts::new();
        experts.begin_graph(0);
        assert_eq!((experts.ids.capacity(), experts.choices.capacity()), (0, 0));
        let numbers = [1_i32, 2];
        let ids = tensor(I32, [2, 1, 1, 1], numbers.as_ptr().cast());
        assert_eq!(of(&mut experts, &[(&ids, 4)]).0, [2]);
        assert!(experts.ids.capacity() >= MOST_IDS && experts.choices.capacity() >= MOST_PRODUCTS);
    }

    #[test]
    fn more_than_fits_is_counted_at_once() {
        let numbers: Vec<i32> = (0..24).map(|n| n % 3).collect();
        let ids = tensor(I32, [2, 12, 1, 1], numbers.as_ptr().cast());
        let mut experts = Experts::new();
        assert!(experts.make_room());
        experts.ids = Vec::with_capacity(4);
        let room = experts.ids.capacity();
        assert!(room < 24);
        let (used, chosen) = of(&mut experts, &[(&ids, 4)]);
        assert_eq!((used, &chosen[0].experts[..]), (vec![3], &[[0, 8], [1, 8], [2, 8]][..]));
        assert_eq!(experts.ids.capacity(), room);
    }
}
