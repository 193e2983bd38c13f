//! Folded stacks, as Brendan Gregg's FlameGraph, inferno and speedscope read them: a line for each
//! stack, its frames from the outermost on with `;` between them, a blank, and its weight.
//!
//! ```text
//! decode;layer 7;DownProjection;gemv_q4_k_avx2 184023
//! ```
//!
//! The format can't represent a `;` or a line break in a name, nor blanks around it. These are
//! percent-encoded as in URLs: `%` and two upper-case hexadecimal digits for each byte of UTF-8. So are
//! control characters, and a `%` that such digits follow; an empty name is `%`, and the name `%` is `%25`.
//! Reading decodes this, and leaves alone other uses of `%`, as in names that other programs wrote (Go's
//! have `%2e`).
//!
//! Levels, classes and units are lost: stacks that are read have functions, and count samples.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};

use super::refused;
use brickscope_analysis::stacks::{Class, Frame, Level, Stacks, Unit};

/// The most bytes of a line.
const MOST_BYTES: usize = 1 << 20;
/// The most frames of a stack.
const MOST_FRAMES: usize = 1 << 14;
/// The most different names of frames.
const MOST_NAMES: usize = 1 << 20;

/// Writes stacks in their order. Stacks with the same names become one line.
///
/// # Errors
///
/// If writing to `out` fails, if there is no stack, or if a stack has no frames: the format can represent
/// neither.
pub fn write(stacks: &Stacks, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if stacks.is_empty() {
        return Err(refused(
            "there is no stack: the folded format can't represent an empty profile",
        ));
    }
    // Frames of the same name are one here, and so may stacks be.
    let mut names: Vec<String> = Vec::new();
    let mut of_name: HashMap<String, u32> = HashMap::new();
    let of_frame: Vec<u32> = stacks
        .frames
        .iter()
        .map(|frame| {
            *of_name.entry(escaped(&frame.name)).or_insert_with_key(|name| {
                names.push(name.clone());
                names.len() as u32 - 1
            })
        })
        .collect();
    let merged = (names.len() < stacks.frames.len()).then(|| {
        let mut merged = Stacks::new(stacks.unit, 0);
        for name in &names {
            let (name, level, class) = (name.clone(), Level::Function, Class::Other);
            merged.frame(Frame { name, level, class });
        }
        let mut frames = Vec::new();
        for stack in stacks.iter() {
            frames.clear();
            frames.extend(stack.frames.iter().map(|&frame| of_frame[frame as usize]));
            merged.add(&frames, stack.weight, 0);
        }
        merged
    });
    let is_merged = merged.is_some();
    let mut line = String::new();
    for stack in merged.as_ref().unwrap_or(stacks).iter() {
        if stack.frames.is_empty() {
            return Err(refused("a stack has no frames, which the folded format can't represent"));
        }
        line.clear();
        for &frame in stack.frames {
            let name = if is_merged { frame } else { of_frame[frame as usize] };
            line += &names[name as usize];
            line.push(';');
        }
        line.pop();
        // A number at the end would look like a second count.
        if let Some((before, last)) = line.rsplit_once(' ')
            && !last.is_empty()
            && last.bytes().all(|of| b"0123456789.".contains(&of))
        {
            line = format!("{before}%20{last}");
        }
        writeln!(out, "{line} {}", stack.weight)?;
    }
    Ok(())
}

/// Reads stacks that this crate or others wrote: FlameGraph's and inferno's `collapse` programs, `py-spy`,
/// `async-profiler`. `path` is only for messages. Empty lines are skipped.
///
/// A function that `collapse` marked as part of the operating system's kernel (`_[k]`) is classed as
/// such.
///
/// # Errors
///
/// With the line number: if the line has no number at its end or no stack before it, if its number has a fraction
/// (samples are whole), if it is too long, has too many frames or with it there are too many names, or if the weights up
/// to it add up to more than 64 bits hold. Without one: if there is no stack at all, or if all lines have two counts, as
/// [`FoldedError::TwoCounts`] says.
pub fn read(text: &str, path: &Path) -> Result<Stacks, FoldedError> {
    read_from(text.as_bytes(), path)
}

/// Like [`read`], line by line, so that the text isn't in memory.
///
/// # Errors
///
/// As for [`read`]; if reading fails, or a line isn't UTF-8.
pub fn read_from(reader: impl BufRead, path: &Path) -> Result<Stacks, FoldedError> {
    let mut stacks = Stacks::new(Unit::Samples, 0);
    each(reader, path, 0, &mut stacks, |stacks, frames, weight| stacks.add(frames, weight, 0))?;
    Ok(stacks)
}

/// Whether a word is the weight of a stack: a number, which may have a fraction.
pub(crate) fn is_weight(word: &str) -> bool {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !whole.is_empty() && are_digits(whole) && are_digits(fraction)
}

/// A weight in units of 10^-`places`.
fn weight_of(word: &str, places: usize) -> Result<u64, LineFault> {
    if !is_weight(word) {
        return Err(LineFault::NoWeight);
    }
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > places && places == 0 {
        return Err(LineFault::Fraction);
    }
    // What is beyond is less than a nanosecond.
    let kept = &fraction[..fraction.len().min(places)];
    format!("{whole}{kept:0<places$}").parse().map_err(|_| LineFault::Large)
}

/// What is before another count at the end of a stack, as tools for differences write it: `main;gemm` of
/// `main;gemm 10 30`. A layer or a thread has a number, too.
fn before_a_count(stack: &str) -> Option<&str> {
    const NUMBERED: [&str; 10] =
        ["layer", "thread", "stream", "device", "rank", "worker", "step", "stage", "block", "core"];
    let (before, word) = stack.rsplit_once([' ', '\t'])?;
    let before = before.trim_end();
    let name = before.rsplit([' ', '\t', ';']).next().unwrap_or_default();
    let is_count = is_weight(word) && !NUMBERED.contains(&name.to_ascii_lowercase().as_str());
    is_count.then_some(before)
}

/// As many stacks are held against each other.
const MOST_LOOKED_AT: usize = 4096;

/// Whether all lines so far look as if they had two counts. Names end in numbers, too, so this takes several lines, and
/// stacks that differ without the first count: tools for differences write each stack once, and of `expert 5` and
/// `expert 6` the numbers are the names. So they are where frames with others in them have such names.
struct TwoCounts {
    /// Of the first stacks, a hash each: there may be millions.
    stacks: HashSet<u64>,
    /// Of these, hashes of what is before a number: in the last frame, and in the others.
    last: HashSet<u64>,
    others: HashSet<u64>,
    are_all: bool,
}

impl TwoCounts {
    fn new() -> Self {
        let none = HashSet::new;
        Self { stacks: none(), last: none(), others: none(), are_all: true }
    }

    fn add(&mut self, stack: &str) {
        let hash = |text: &str| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish()
        };
        if !self.are_all {
            return;
        }
        let Some(before) = before_a_count(stack) else {
            *self = Self { are_all: false, ..Self::new() };
            return;
        };
        if self.stacks.len() >= MOST_LOOKED_AT {
            return;
        }
        self.are_all = self.stacks.insert(hash(before));
        let (outer, last) = before.rsplit_once(';').unwrap_or(("", before));
        self.last.insert(hash(last));
        let numbered = outer.split(';').filter_map(before_a_count);
        self.others.extend(numbered.take(MOST_FRAMES).map(hash));
    }

    fn are_there(&self) -> bool {
        self.are_all && self.stacks.len() > 1 && self.last.is_disjoint(&self.others)
    }
}

/// Calls `take` with the frames and the weight of each line, in units of 10^-`places` of the file's. The frames are added
/// to `stacks`, and nothing else is.
pub(crate) fn each(
    mut reader: impl BufRead,
    path: &Path,
    places: usize,
    stacks: &mut Stacks,
    mut take: impl FnMut(&mut Stacks, &[u32], u64),
) -> Result<(), FoldedError> {
    let mut of_name: HashMap<String, u32> = HashMap::new();
    let mut frames: Vec<u32> = Vec::new();
    let mut total = 0_u64;
    let mut two_counts = TwoCounts::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        let fault = |fault| FoldedError::Line { path: path.to_owned(), line, fault };
        bytes.clear();
        // With its line break, and one byte that says that it is too long.
        let most = MOST_BYTES as u64 + 2;
        let read = reader.by_ref().take(most).read_until(b'\n', &mut bytes);
        if read
            .map_err(|error| FoldedError::Io { path: path.to_owned(), why: error.to_string() })?
            == 0
        {
            break;
        }
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        if bytes.len() > MOST_BYTES {
            return Err(fault(LineFault::Long));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| fault(LineFault::NotText))?.trim_end();
        let text = if line == 1 { text.trim_start_matches('\u{feff}') } else { text };
        if text.is_empty() {
            continue;
        }
        let (stack, weight) = text.rsplit_once([' ', '\t']).ok_or(fault(LineFault::NoWeight))?;
        if stack.is_empty() {
            return Err(fault(LineFault::NoStack));
        }
        let weight = weight_of(weight, places).map_err(fault)?;
        two_counts.add(stack);
        total = total.checked_add(weight).ok_or(fault(LineFault::Large))?;
        frames.clear();
        for name in stack.split(';') {
            if frames.len() == MOST_FRAMES {
                return Err(fault(LineFault::Deep));
            }
            let frame = match of_name.get(name) {
                Some(&frame) => frame,
                None if of_name.len() == MOST_NAMES => return Err(fault(LineFault::Names)),
                None => {
                    let frame = stacks.frame(function(name));
                    of_name.insert(name.to_owned(), frame);
                    frame
                }
            };
            frames.push(frame);
        }
        take(stacks, &frames, weight);
    }
    if two_counts.are_there() {
        return Err(FoldedError::TwoCounts { path: path.to_owned() });
    }
    // A stack of no weight is none.
    if total == 0 { Err(FoldedError::Empty { path: path.to_owned() }) } else { Ok(()) }
}

fn function(name: &str) -> Frame {
    let name = unescaped(name);
    let of_os = name.strip_suffix("_[k]");
    // `collapse` also marks functions that were compiled at run time, and inlined ones.
    let marked = ["_[j]", "_[i]"].into_iter().find_map(|mark| name.strip_suffix(mark));
    let function = of_os.or(marked).unwrap_or(&name);
    let class = Class::of_function(function, None, of_os.is_some());
    Frame { name, level: Level::Function, class }
}

fn escaped(name: &str) -> String {
    match name {
        "" => return "%".to_owned(),
        "%" => return "%25".to_owned(),
        _ => {}
    }
    let mut text = String::with_capacity(name.len());
    let begins_at = name.len() - name.trim_start().len();
    let ends_at = name.trim_end().len();
    for (at, letter) in name.char_indices() {
        let is_around = at < begins_at || at >= ends_at;
        let is_code = letter == '%' && code(&name.as_bytes()[at..]).is_some();
        // Some readers end a line at any of Unicode's separators.
        let is_separator = matches!(letter, ';' | '\u{2028}' | '\u{2029}') || letter.is_control();
        if is_around || is_code || is_separator {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                text.push_str(&format!("%{byte:02X}"));
            }
        } else {
            text.push(letter);
        }
    }
    text
}

fn unescaped(text: &str) -> String {
    if text == "%" {
        return String::new();
    }
    if !text.contains('%') {
        return text.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        match code(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[3..];
            }
            None => {
                bytes.push(first);
                rest = others;
            }
        }
    }
    // Codes that don't decode to UTF-8 are another program's.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// The byte that `%` and two upper-case hexadecimal digits stand for.
fn code(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = *text else { return None };
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    Some(digit(high)? << 4 | digit(low)?)
}

/// A file of folded stacks that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FoldedError {
    /// There is no stack.
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It can't be read to its end.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// Each line has two counts, before and after: there are several lines, all stacks end in a number, and without it
    /// no two are the same.
    TwoCounts {
        /// The file.
        path: PathBuf,
    },
    /// A line isn't a stack with its weight.
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1 on.
        line: usize,
        /// What is wrong.
        fault: LineFault,
    },
}

/// What can be wrong with a line of folded stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineFault {
    /// It doesn't end with a blank and a number.
    NoWeight,
    /// Its number has a fraction, and counts samples.
    Fraction,
    /// There is nothing before the number.
    NoStack,
    /// The number, or the sum up to it, is beyond 64 bits.
    Large,
    /// It is too long.
    Long,
    /// It has too many frames.
    Deep,
    /// It isn't UTF-8.
    NotText,
    /// With it, frames have too many different names.
    Names,
}

impl fmt::Display for FoldedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, line, fault) = match self {
            Self::Empty { path } => {
                return write!(
                    f,
                    "{} has no stack: each line should be frames with `;` between them, a blank \
                     and a count",
                    path.display()
                );
            }
            Self::TwoCounts { path } => {
                return write!(
                    f,
                    "{} has two counts a line, before and after, as difffolded.pl and inferno-diff-folded write them: \
                     give the two files that it was made of, `brickscope flamegraph AFTER --diff BEFORE`. If the first is \
                     the end of a name, write the blank before it as `%20`",
                    path.display()
                );
            }
            Self::Io { path, why } => return write!(f, "{}: {why}", path.display()),
            Self::Line { path, line, fault } => (path.display(), line, fault),
        };
        write!(f, "{path}, line {line}: ")?;
        match fault {
            LineFault::NoWeight => {
                f.write_str("does not end with a blank and a number, the weight of its stack")
            }
            LineFault::Fraction => f.write_str(
                "its weight has a fraction, and samples are whole: `import --unit ns`, `us` or `ms` reads times",
            ),
            LineFault::NoStack => f.write_str("has a weight, but no stack before it"),
            LineFault::Large => {
                write!(f, "its weight, or the sum of all up to it, is more than {}", u64::MAX)
            }
            LineFault::Long => write!(f, "is longer than {MOST_BYTES} bytes"),
            LineFault::Deep => write!(f, "has more than {MOST_FRAMES} frames"),
            LineFault::NotText => f.write_str("is not UTF-8"),
            LineFault::Names => write!(
                f,
                "with it, frames have more than {MOST_NAMES} names: name functions instead of addresses, or leave out \
                 rare stacks"
            ),
        }
    }
}

impl std::error::Error for FoldedError {}
