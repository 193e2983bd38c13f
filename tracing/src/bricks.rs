//! The bricks and products of a map by small numbers, which fit the word that says what a span is.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use brickscope::{BrickCategory, BrickId, BrickKey, BrickProfiler, Data, Work};

use crate::role::Weight;

/// More names than this share one brick.
const MOST: usize = 1024;

const MORE: &str = "(more spans)";

/// The bricks of a map. The first ones are the well-known ones.
#[derive(Debug)]
pub(crate) struct Bricks {
    names: Mutex<Vec<(String, BrickCategory)>>,
    /// A brick has its key since it was first entered: the profiler is to know no names that nobody ran.
    keys: Box<[OnceLock<BrickKey>]>,
}

impl Bricks {
    pub(crate) fn new() -> Self {
        let well_known =
            BrickId::ALL.iter().map(|brick| (brick.name().to_owned(), brick.category()));
        let keys: Box<[OnceLock<BrickKey>]> = (0..MOST).map(|_| OnceLock::new()).collect();
        for (key, brick) in keys.iter().zip(BrickId::ALL) {
            key.get_or_init(|| brick.into());
        }
        Self { names: Mutex::new(well_known.collect()), keys }
    }

    pub(crate) fn number(&self, name: &str, category: BrickCategory) -> u16 {
        let mut names = lock(&self.names);
        if let Some(number) = names.iter().position(|known| known.0 == name && known.1 == category)
        {
            return number as u16;
        }
        if names.len() >= MOST - 1 {
            names.truncate(MOST - 1);
            names.push((MORE.to_owned(), BrickCategory::Other));
        } else {
            names.push((name.to_owned(), category));
        }
        (names.len() - 1) as u16
    }

    #[inline]
    pub(crate) fn key(&self, number: u16, profiler: &BrickProfiler) -> BrickKey {
        let key = &self.keys[usize::from(number) % MOST];
        match key.get() {
            Some(key) => *key,
            None => *key.get_or_init(|| self.named(number, profiler)),
        }
    }

    #[cold]
    fn named(&self, number: u16, profiler: &BrickProfiler) -> BrickKey {
        let (name, category) = lock(&self.names)[usize::from(number)].clone();
        profiler.named_brick(&name, category)
    }
}

/// A product of a matrix with each token, or with the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) weight: Weight,
    pub(crate) last_token: bool,
}

impl Product {
    /// Its work in a pass of so many tokens.
    pub(crate) fn work(&self, tokens: u64) -> Work {
        let Weight { rows, columns, bytes } = self.weight;
        let tokens = if self.last_token { 1 } else { tokens };
        let each = rows.saturating_add(columns).saturating_mul(4);
        Work {
            elements: rows.saturating_mul(tokens),
            flops: rows.saturating_mul(columns).saturating_mul(2).saturating_mul(tokens),
            bytes: bytes.saturating_add(each.saturating_mul(tokens)),
            data: Data::Weights(bytes),
        }
    }
}

/// The different products: a handful, since layers are alike. Those that find no room have no stated work.
const MOST_PRODUCTS: usize = 256;

#[derive(Debug)]
pub(crate) struct Products(Box<[OnceLock<Product>]>);

impl Products {
    pub(crate) fn new() -> Self {
        Self((0..MOST_PRODUCTS).map(|_| OnceLock::new()).collect())
    }

    pub(crate) fn number(&self, product: Product) -> Option<u16> {
        let found = self.0.iter().position(|slot| *slot.get_or_init(|| product) == product);
        found.map(|number| number as u16)
    }

    #[inline]
    pub(crate) fn work(&self, number: Option<u16>, tokens: u64) -> Work {
        let product = number.and_then(|number| self.0.get(usize::from(number))?.get());
        product.map_or(Work::default(), |product| product.work(tokens))
    }
}

/// More lists of pieces than this are not told apart: a map has one or two.
const MOST_PIECES: usize = 64;

/// The bricks of spans whose pieces are different ones.
#[derive(Debug)]
pub(crate) struct Pieces(Box<[OnceLock<Vec<u16>>]>);

impl Pieces {
    pub(crate) fn new() -> Self {
        Self((0..MOST_PIECES).map(|_| OnceLock::new()).collect())
    }

    pub(crate) fn number(&self, bricks: Vec<u16>) -> Option<u16> {
        let found = self.0.iter().position(|slot| *slot.get_or_init(|| bricks.clone()) == bricks);
        found.map(|number| number as u16)
    }

    /// The brick of a piece that so many bricks in the span have ended before.
    #[inline]
    pub(crate) fn brick(&self, number: u16, ended: u16) -> Option<u16> {
        let bricks = self.0.get(usize::from(number))?.get()?;
        bricks.get(usize::from(ended)).or(bricks.last()).copied()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_find_no_room_share_a_brick() {
        let bricks = Bricks::new();
        let number = |nth: usize| bricks.number(&format!("span {nth}"), BrickCategory::Other);
        assert_eq!(bricks.number("RmsNorm", BrickCategory::Norm), 0);
        assert_eq!(number(0), 15);
        let last = (1..2 * MOST).map(number).max().expect("some");
        assert_eq!(usize::from(last), MOST - 1);
        assert_eq!(number(0), 15);
        let profiler = BrickProfiler::enabled();
        let timer = profiler.start_brick(bricks.key(last, &profiler));
        profiler.stop_brick(timer, 0);
        assert_eq!(profiler.stats(MORE).map(|stats| stats.count), Some(1));
    }

    #[test]
    fn products_are_counted_once_and_state_their_work() {
        let products = Products::new();
        let weight = Weight { rows: 8, columns: 4, bytes: 34 };
        let product = Product { weight, last_token: false };
        let head = Product { last_token: true, ..product };
        assert_eq!(products.number(product), Some(0));
        assert_eq!(products.number(head), Some(1));
        assert_eq!(products.number(product), Some(0));
        let work = products.work(Some(0), 3);
        assert_eq!((work.elements, work.flops, work.bytes), (24, 192, 34 + 3 * 48));
        assert_eq!(products.work(Some(1), 3).flops, 64);
        assert_eq!(products.work(None, 3), Work::default());
        let other = |rows| products.number(Product { weight: Weight { rows, ..weight }, ..head });
        assert_eq!((100..).map(other).take(300).flatten().count(), MOST_PRODUCTS - 2);
    }
}
