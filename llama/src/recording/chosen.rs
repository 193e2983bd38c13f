//! Which experts the tokens of a graph chose, as both sides of a recording have it.

use super::format::{halves, word};

/// Experts that are told apart. The largest models have some hundred.
pub(crate) const MOST_EXPERTS: usize = 1024;

/// Why nobody knows what was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// It has another form than choices have in the versions that are known.
    Form = 1,
    /// It isn't in the host's memory.
    Place = 2,
    /// For a reason that this version doesn't know.
    Other = 3,
}

impl Unread {
    /// In words, with what is chosen as the subject.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Form => "the numbers of the chosen experts have a form that is not known",
            Self::Place => "the numbers of the chosen experts are not in the host's memory",
            Self::Other => "the numbers of the chosen experts could not be read",
        }
    }
}

/// What the tokens of a graph chose in a layer. Several products use one choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The first product that uses it: its index among the graph's products of experts.
    pub product: u32,
    /// How many experts there are.
    pub n_expert: u32,
    /// How many each token chooses.
    pub n_used: u32,
    /// How many tokens choose.
    pub tokens: u32,
    /// Choices that are the number of no expert.
    pub odd: u32,
    /// Choices of experts that aren't told apart, since there are too many.
    pub beyond: u32,
    /// Why it isn't known: then nothing below is counted.
    pub unread: Option<Unread>,
    /// Each expert that was chosen, and by how many tokens.
    pub experts: Vec<[u32; 2]>,
}

impl Chosen {
    /// The words before the experts.
    const HEAD: usize = 4;

    /// Counts choices, whatever numbers they are: `each` calls back with every one.
    pub(crate) fn count(&mut self, each: impl FnOnce(&mut dyn FnMut(i32))) {
        let mut tokens = [0_u32; MOST_EXPERTS];
        let (mut odd, mut beyond) = (0_u32, 0_u32);
        let n_expert = self.n_expert as usize;
        each(&mut |chosen| {
            let of = match usize::try_from(chosen) {
                Ok(expert) if expert < n_expert => tokens.get_mut(expert).unwrap_or(&mut beyond),
                _ => &mut odd,
            };
            *of = of.saturating_add(1);
        });
        (self.odd, self.beyond) = (odd, beyond);
        self.experts.clear();
        for (expert, tokens) in (0_u32..).zip(tokens) {
            if tokens > 0 {
                self.experts.push([expert, tokens]);
            }
        }
    }

    /// How many different experts were chosen, if that is known.
    pub(crate) fn different(&self) -> Option<u32> {
        let is_known = self.unread.is_none() && self.beyond == 0;
        is_known.then_some(self.experts.len() as u32)
    }

    /// Adds it to the words of a record.
    pub(crate) fn write(&self, words: &mut Vec<u64>) {
        let unread = self.unread.map_or(0, |why| why as u32);
        words.extend([
            word([self.product, self.experts.len() as u32]),
            word([self.n_expert, self.n_used]),
            word([self.tokens, self.odd]),
            word([self.beyond, unread]),
        ]);
        words.extend(self.experts.iter().copied().map(word));
    }

    /// Those of a record. `None` if it is cut off.
    pub(crate) fn read(mut words: &[u64]) -> Option<Vec<Self>> {
        let mut all = Vec::new();
        while !words.is_empty() {
            let (head, rest) = words.split_at_checked(Self::HEAD)?;
            let [[product, n], [n_expert, n_used], [tokens, odd], [beyond, unread]] =
                [head[0], head[1], head[2], head[3]].map(halves);
            let (experts, rest) = rest.split_at_checked(usize::try_from(n).ok()?)?;
            words = rest;
            let unread = match unread {
                0 => None,
                1 => Some(Unread::Form),
                2 => Some(Unread::Place),
                _ => Some(Unread::Other),
            };
            let experts = experts.iter().copied().map(halves).collect();
            all.push(Self { product, n_expert, n_used, tokens, odd, beyond, unread, experts });
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(n_expert: u32, ids: &[i32]) -> Chosen {
        let mut chosen = Chosen { n_expert, ..Chosen::default() };
        chosen.count(|with| ids.iter().for_each(|&id| with(id)));
        chosen
    }

    #[test]
    fn tokens_are_counted_by_expert() {
        let chosen = counted(8, &[3, 0, 3, 7, 3, 0]);
        assert_eq!(chosen.experts, [[0, 2], [3, 3], [7, 1]]);
        assert_eq!((chosen.odd, chosen.beyond, chosen.different()), (0, 0, Some(3)));
    }

    /// Memory may have anything in it.
    #[test]
    fn numbers_of_no_expert_are_odd_and_reach_no_other_place() {
        let chosen = counted(8, &[-1, i32::MIN, i32::MAX, 8, 1023, 1024, 2, 7]);
        assert_eq!((chosen.odd, &chosen.experts[..]), (6, &[[2, 1], [7, 1]][..]));
        // A negative number leaves an expert out, so what ran is known.
        assert_eq!(chosen.different(), Some(2));
        assert_eq!(counted(0, &[0, 1]).odd, 2);
        let many = counted(u32::MAX, &[1023, 1024, i32::MAX]);
        assert_eq!((many.beyond, &many.experts[..]), (2, &[[1023, 1]][..]));
        assert_eq!(many.different(), None, "there were others");
    }

    #[test]
    fn what_could_not_be_read_is_not_known() {
        let unread = Chosen { unread: Some(Unread::Place), ..Chosen::default() };
        assert_eq!(unread.different(), None);
        let mut words = Vec::new();
        unread.write(&mut words);
        assert_eq!(Chosen::read(&words), Some(vec![unread]));
        words[3] = 99 << 32;
        let other = Chosen::read(&words).expect("it is whole");
        assert_eq!(other[0].unread, Some(Unread::Other));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            all in prop::collection::vec(
                (any::<[u32; 6]>(), 0_u32..3, prop::collection::vec(any::<[u32; 2]>(), 0..9)), 0..5),
        ) {
            let of = |(numbers, unread, experts): &([u32; 6], u32, Vec<[u32; 2]>)| {
                let [product, n_expert, n_used, tokens, odd, beyond] = *numbers;
                let unread = [None, Some(Unread::Form), Some(Unread::Place)][*unread as usize];
                let experts = experts.clone();
                Chosen { product, n_expert, n_used, tokens, odd, beyond, unread, experts }
            };
            let all: Vec<Chosen> = all.iter().map(of).collect();
            let mut words = Vec::new();
            all.iter().for_each(|of| of.write(&mut words));
            prop_assert_eq!(Chosen::read(&words), Some(all));
            // One that is cut off is none.
            words.extend([word([0, 3]), 0, 0, 0, 5]);
            prop_assert_eq!(Chosen::read(&words), None);
        }

        #[test]
        fn no_numbers_are_a_panic(n_expert: u32, ids in prop::collection::vec(any::<i32>(), 0..40)) {
            let chosen = counted(n_expert, &ids);
            let known: u32 = chosen.experts.iter().map(|of| of[1]).sum();
            prop_assert_eq!((known + chosen.odd + chosen.beyond) as usize, ids.len());
        }
    }
}
