//! Byte-level BPE, as in GPT-2, Llama 3, Qwen and Mistral's tekken.
//!
//! The vocabulary spells each byte as one printable character: `Ġ` is a space, `Ċ` a line feed.
//! A regex cuts the text into pieces (see [`split`](super::split)), each piece starts as its
//! bytes, and the two neighbours with the earliest merge in the file become one token until no
//! two neighbours have a merge. Nothing merges across pieces.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::Error;
use super::error::excerpt;
use super::merge::Merger;
use super::split::PreTokenizer;

/// The vocabulary as BPE needs it.
#[derive(Debug)]
pub(super) struct Bpe {
    pre: PreTokenizer,
    merges: HashMap<(u32, u32), Merge>,
    /// The tokens of the 256 bytes, where the vocabulary has them.
    bytes: Vec<Option<u32>>,
    unk: Option<u32>,
    /// In bytes of the GPT-2 alphabet.
    longest: usize,
}

#[derive(Clone, Copy, Debug)]
struct Merge {
    rank: u32,
    id: u32,
}

impl Bpe {
    pub(super) fn new(
        ids: &HashMap<String, u32>,
        pre: &str,
        merges: &[String],
        unk: Option<u32>,
    ) -> Result<Self, Error> {
        let pre = PreTokenizer::new(pre)?;
        let mut ranked = HashMap::with_capacity(merges.len());
        for (rank, merge) in (0..).zip(merges) {
            let (pair, merge) = parse_merge(ids, rank, merge)?;
            // The first of two equal merges counts.
            ranked.entry(pair).or_insert(merge);
        }
        let mut buffer = [0; 4];
        let bytes = (0..=u8::MAX)
            .map(|byte| ids.get(&*char_of(byte).encode_utf8(&mut buffer)).copied())
            .collect();
        let longest = ids.keys().map(String::len).max().unwrap_or(0);
        Ok(Self { pre, merges: ranked, bytes, unk, longest })
    }

    /// Appends the ids of a text without special tokens.
    pub(super) fn encode(
        &self,
        ids: &HashMap<String, u32>,
        text: &str,
        output: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let mut merger = Merger::new();
        for piece in self.pre.split(text)? {
            // A byte takes one or two bytes in the GPT-2 alphabet.
            if self.pre.ignores_merges() && piece.len() <= self.longest {
                let spelled: String = piece.bytes().map(char_of).collect();
                if let Some(&id) = ids.get(&spelled) {
                    output.push(id);
                    continue;
                }
            }

            merger.clear();
            for byte in piece.bytes() {
                merger.push(self.bytes[usize::from(byte)], 1);
            }
            merger.merge(|left, right| {
                let merge = self.merges.get(&(left.id?, right.id?))?;
                Some((Reverse(merge.rank), merge.id))
            });
            for symbol in merger.symbols() {
                let byte = piece.as_bytes()[symbol.start];
                output.push(symbol.id.or(self.unk).ok_or(Error::NoTokenForByte { byte })?);
            }
        }
        Ok(())
    }
}

fn parse_merge(
    ids: &HashMap<String, u32>,
    rank: u32,
    merge: &str,
) -> Result<((u32, u32), Merge), Error> {
    let index = rank as usize;
    // The space isn't looked for in the first character, which llama.cpp lets be a space.
    let first_len = merge.chars().next().map_or(0, char::len_utf8);
    let (left, right) = merge[first_len..]
        .find(' ')
        .map(|at| (&merge[..first_len + at], &merge[first_len + at + 1..]))
        .filter(|(_, right)| !right.is_empty())
        .ok_or_else(|| Error::BadMerge { index, merge: excerpt(merge) })?;
    let id_of = |token: &str| {
        ids.get(token).copied().ok_or_else(|| Error::MergeOfUnknownToken {
            index,
            merge: excerpt(merge),
            token: excerpt(token),
        })
    };
    let pair = (id_of(left)?, id_of(right)?);
    Ok((pair, Merge { rank, id: id_of(&format!("{left}{right}"))? }))
}

/// How the GPT-2 alphabet spells a byte: the printable ones of Latin-1 as themselves, the other
/// 68, in order, as the characters from U+0100 on.
pub(super) fn char_of(byte: u8) -> char {
    let shifted = match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => return char::from(byte),
        0x00..=0x20 => byte,
        0x7F..=0xA0 => byte - 0x7F + 33,
        0xAD => 67,
    };
    // Always a character: U+0100 to U+0143.
    char::from_u32(0x100 + u32::from(shifted)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that a character of the GPT-2 alphabet spells.
pub(super) fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7F).ok(),
        0x143 => Some(0xAD),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_spells_each_byte_once_and_reads_it_back() {
        assert_eq!(
            [b' ', b'\n', b'a', 0x7F, 0xA0, 0xAD].map(char_of),
            ['Ġ', 'Ċ', 'a', 'ġ', 'ł', 'Ń']
        );
        for byte in 0..=u8::MAX {
            assert_eq!(byte_of(char_of(byte)), Some(byte));
        }
        let n_spelled = (0..0x3000).filter_map(char::from_u32).filter_map(byte_of).count();
        assert_eq!(n_spelled, 256);
    }
}
