//! The files of whisper.cpp's models, which have names for weights that have none in its graphs.
//!
//! The format is that of `whisper_model_load` in whisper.cpp 1.8: numbers of 32 bits, then the mel filters, the
//! vocabulary, and one tensor after the other until the file ends.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

/// `ggml`, as a number.
const MAGIC: u32 = 0x6767_6d6c;
/// More than any model has; its name is shorter than this, too.
const MOST_TENSORS: usize = 100_000;
const MOST_BYTES_OF_NAME: u32 = 256;
const MOST_WORDS: u32 = 1 << 20;

/// The formats of numbers that whisper.cpp's models have, by ggml's number: the name, and how many take how many bytes.
const FORMATS: [(u32, &str, u64, u64); 12] = [
    (0, "f32", 1, 4),
    (1, "f16", 1, 2),
    (2, "q4_0", 32, 18),
    (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22),
    (7, "q5_1", 32, 24),
    (8, "q8_0", 32, 34),
    (10, "q2_K", 256, 84),
    (11, "q3_K", 256, 110),
    (12, "q4_K", 256, 144),
    (13, "q5_K", 256, 176),
    (14, "q6_K", 256, 210),
];

/// What a file says of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Whisper {
    /// Layers of the encoder and of the decoder.
    pub layers: [u32; 2],
    /// The width of the decoder's residual stream.
    pub width: u32,
    /// Its weights, in order.
    pub weights: Vec<Weight>,
}

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// `encoder.blocks.0.attn.query.weight`.
    pub name: String,
    /// The format of its numbers: `f16`.
    pub kind: &'static str,
    /// Whether it has rows and columns.
    pub is_matrix: bool,
    /// How many numbers it has.
    pub elements: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What tells its numbers from others', as [`numbers`] has it.
    pub numbers: u64,
}

impl Whisper {
    /// Reads a file of a model; `None` if it is another kind of file.
    ///
    /// # Errors
    ///
    /// If it can't be read, or breaks off, or has what no model has: the text names the place.
    pub fn read(mut file: impl Read + Seek) -> io::Result<Option<Self>> {
        let mut magic = [0; 4];
        match file.read_exact(&mut magic) {
            Ok(()) if u32::from_le_bytes(magic) == MAGIC => {}
            Ok(()) => return Ok(None),
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(why) => return Err(why),
        }
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(4))?;
        let mut file = File { file, at: 4, end };
        let [.., encoder, _, width, _, decoder, _, _] = {
            let mut numbers = [0; 11];
            for number in &mut numbers {
                *number = file.number("the model's sizes")?;
            }
            numbers
        };
        let (bands, columns) = (file.number("mel filters")?, file.number("mel filters")?);
        file.skip(u64::from(bands).saturating_mul(columns.into()).saturating_mul(4))?;
        let words = file.number("the vocabulary's size")?;
        if words > MOST_WORDS {
            return Err(file.bad(format!("a vocabulary of {words} words")));
        }
        for _ in 0..words {
            let len = file.number("a word's length")?;
            file.skip(u64::from(len))?;
        }
        let mut weights = Vec::new();
        while file.at < file.end {
            if weights.len() == MOST_TENSORS {
                return Err(file.bad(format!("more than {MOST_TENSORS} tensors")));
            }
            weights.push(file.weight()?);
        }
        Ok(Some(Self { layers: [encoder, decoder], width, weights }))
    }
}

/// What tells the numbers of a tensor from those of others: a hash of 64 bytes at its begin, in its middle, and at its end.
/// `read` fills a buffer with those at a place. FNV-1a, as the library in `llama/preload/` has it.
///
/// # Errors
///
/// Those of `read`.
pub fn numbers<E>(
    bytes: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<u64, E> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut some = [0; 64];
    let some = &mut some[..bytes.min(64) as usize];
    for at in [0, (bytes - some.len() as u64) / 2, bytes - some.len() as u64] {
        read(at, some)?;
        for byte in &*some {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    Ok(hash)
}

struct File<F> {
    file: F,
    at: u64,
    end: u64,
}

impl<F: Read + Seek> File<F> {
    fn bad(&self, what: String) -> io::Error {
        io::Error::new(ErrorKind::InvalidData, format!("byte {}: {what}", self.at))
    }

    fn number(&mut self, of: &str) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.exact(&mut bytes, of)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn exact(&mut self, bytes: &mut [u8], of: &str) -> io::Result<()> {
        self.file.read_exact(bytes).map_err(|why| match why.kind() {
            ErrorKind::UnexpectedEof => self.bad(format!("it breaks off within {of}")),
            _ => why,
        })?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Goes on after so many bytes.
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let to = self.at.checked_add(bytes).filter(|to| *to <= self.end);
        let (Some(to), Ok(by)) = (to, i64::try_from(bytes)) else {
            return Err(self.bad(format!("it breaks off within {bytes} bytes")));
        };
        self.at = to;
        // What a reader has in its buffer stays there.
        self.file.seek_relative(by)
    }

    fn weight(&mut self) -> io::Result<Weight> {
        let (dimensions, len, format) = (
            self.number("a tensor's dimensions")?,
            self.number("a tensor's name")?,
            self.number("a tensor's format")?,
        );
        if !(1..=4).contains(&dimensions) || len > MOST_BYTES_OF_NAME {
            return Err(self
                .bad(format!("a tensor of {dimensions} dimensions, with a name of {len} bytes")));
        }
        let (mut elements, mut sizes) = (1_u64, 0);
        for _ in 0..dimensions {
            let size = self.number("a tensor's shape")?;
            elements = elements.saturating_mul(size.into());
            sizes += u32::from(size > 1);
        }
        let mut name = vec![0; len as usize];
        self.exact(&mut name, "a tensor's name")?;
        let name = String::from_utf8_lossy(&name).into_owned();
        let known = FORMATS.iter().find(|(number, ..)| *number == format);
        let Some((_, kind, of, take)) = known.filter(|(.., of, _)| elements.is_multiple_of(*of))
        else {
            return Err(self.bad(format!("{elements} numbers of format {format}")));
        };
        let begin = self.at;
        let bytes = (elements / of).saturating_mul(*take);
        self.skip(bytes)?;
        let numbers = numbers(bytes, |at, some| {
            self.file.seek(SeekFrom::Start(begin + at))?;
            self.file.read_exact(some)
        })?;
        self.file.seek(SeekFrom::Start(self.at))?;
        Ok(Weight { name, kind, is_matrix: sizes > 1, elements, bytes, numbers })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A model of two tensors.
    fn file() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut numbers = |of: &[u32], more: &[u8]| {
            of.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
            bytes.extend(more);
        };
        numbers(&[MAGIC, 9, 1500, 384, 6, 4, 448, 512, 6, 2, 80, 1], &[]);
        numbers(&[2, 1], &[7; 8]);
        numbers(&[2, 1], b"a");
        numbers(&[3], b"bcd");
        let name = b"encoder.blocks.0.attn.query.weight";
        numbers(&[2, name.len() as u32, 1, 20, 30], name);
        numbers(&[], &(0..1200).map(|n| (n % 251) as u8).collect::<Vec<_>>());
        let name = b"decoder.ln.bias";
        numbers(&[1, name.len() as u32, 0, 3], name);
        numbers(&[], &[1; 12]);
        bytes
    }

    #[test]
    fn each_tensor_has_its_name_and_what_tells_its_numbers() {
        let of = Whisper::read(Cursor::new(file())).expect("a file").expect("a model");
        assert_eq!((of.layers, of.width), ([4, 2], 512));
        let [query, bias] = &of.weights[..] else { panic!("{of:?}") };
        assert_eq!(query.name, "encoder.blocks.0.attn.query.weight");
        assert_eq!((query.kind, query.elements, query.bytes), ("f16", 600, 1200));
        assert_eq!((&*bias.name, bias.kind, bias.elements), ("decoder.ln.bias", "f32", 3));
        let own: Vec<u8> = (0..1200).map(|n| (n % 251) as u8).collect();
        let read = |at: u64, some: &mut [u8]| {
            some.copy_from_slice(&own[at as usize..][..some.len()]);
            Ok::<_, ()>(())
        };
        assert_eq!(numbers(1200, read), Ok(query.numbers));
        assert_ne!(bias.numbers, query.numbers);
    }

    #[test]
    fn what_is_cut_off_or_changed_is_an_error_that_names_the_place() {
        let whole = file();
        let tensors = whole.len() - 1200 - 12 - 2 * 12 - 3 * 4 - 34 - 15;
        for len in 0..whole.len() {
            let read = Whisper::read(Cursor::new(&whole[..len]));
            match len {
                0..4 => assert_eq!(read.expect("another file"), None),
                _ if len == tensors || len == whole.len() - 12 - 12 - 4 - 15 => {
                    assert!(read.is_ok(), "{len}: it ends where a tensor does");
                }
                _ => {
                    let why = read.expect_err("cut off").to_string();
                    assert!(why.starts_with("byte "), "{len}: {why}");
                }
            }
        }
        let huge = [&whole[..48], &[0xff; 8], &whole[56..]].concat();
        let why = Whisper::read(Cursor::new(huge)).expect_err("filters of 2⁶⁶ bytes").to_string();
        assert!(why.starts_with("byte 56: it breaks off"), "{why}");
        for at in 4..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                if let Err(why) = Whisper::read(Cursor::new(changed)) {
                    assert!(why.to_string().starts_with("byte "), "{at}: {why}");
                }
            }
        }
    }
}
