//! The names of the functions in one file.

use std::collections::HashMap;
use std::path::Path;

use addr2line::Loader;
use addr2line::fallible_iterator::FallibleIterator;
use object::{Object, ObjectSymbol, SymbolKind};

use crate::code_file::{CodeFile, VDSO};
use crate::sampled::{Frame, FrameKind};
use crate::symbols::demangle::demangle;
use crate::symbols::{debug_file, locations, unknown};

/// The sources of names for the functions in a file.
pub(super) struct FileNames {
    module: String,
    code: Option<CodeFile>,
    debug: Option<Loader>,
    /// The functions in the symbol table, by address; at most one per address.
    symbols: Vec<Symbol>,
    /// The source file of the function that begins at each address.
    sources: HashMap<u64, Option<String>>,
}

struct Symbol {
    address: u64,
    /// 0 if the table doesn't state it.
    size: u64,
    name: String,
    /// Decides between names of the same address: the lowest wins.
    rank: (bool, bool, usize),
}

impl FileNames {
    /// Opens a file; if that fails, adds the reason to `unreadable`.
    pub(super) fn open(path: &Path, unreadable: &mut Vec<String>, notes: &mut Vec<String>) -> Self {
        let module = locations::module(path);
        let none =
            Self { module, code: None, debug: None, symbols: Vec::new(), sources: HashMap::new() };
        // Memory without a file, such as `[heap]` or `//anon`, has no names, and that isn't an error.
        let is_file = path.is_absolute() && path.as_os_str() != "//anon";
        if !is_file && path != Path::new(VDSO) {
            return none;
        }
        let code = match CodeFile::open(path) {
            Ok(code) => code,
            Err(error) => {
                unreadable.push(format!("{} ({error})", path.display()));
                return none;
            }
        };
        let debug_path = debug_file::find(path, &code);
        let debug = debug_path.as_ref().and_then(|path| {
            Loader::new(path)
                .map_err(|error| {
                    let path = path.display();
                    notes.push(format!("The debug information of {path} can't be read: {error}."));
                })
                .ok()
        });
        let mut symbols = symbols(&code);
        if let Some(other) = debug_path.filter(|debug| debug != path) {
            // The symbols of a stripped file are there, too.
            if let Ok(other) = CodeFile::open(&other) {
                symbols.extend(self::symbols(&other));
            }
        }
        symbols.sort_by(|a, b| (a.address, a.rank, &a.name).cmp(&(b.address, b.rank, &b.name)));
        symbols.dedup_by_key(|symbol| symbol.address);
        Self { code: Some(code), debug, symbols, ..none }
    }

    /// The functions at an offset in the file, outermost first; the inner ones were inlined.
    pub(super) fn frames(&mut self, offset: u64) -> Vec<Frame> {
        let Some(address) = self.code.as_ref().and_then(|code| code.stated_address(offset)) else {
            return vec![unknown(self.module.clone())];
        };
        let mut frames = self.by_debug(address);
        let symbol = self.symbol(address).map(|symbol| (symbol.address, symbol.name.clone()));
        let (debug_name, debug_source) = frames.pop().unwrap_or_default();
        let (source, name) = match symbol {
            // A mangled name includes a function's module, which line-only debug information doesn't. In C, the symbol
            // table has suffixes such as `.constprop.0`.
            Some((start, name)) => {
                let name = if is_mangled(&name) { name } else { debug_name.unwrap_or(name) };
                (self.source(start), name)
            }
            None => (debug_source, debug_name.unwrap_or_default()),
        };
        let outer = if name.is_empty() {
            unknown(self.module.clone())
        } else {
            self.frame(&name, source, FrameKind::User)
        };
        let inlined = frames
            .into_iter()
            .rev()
            .filter_map(|(name, source)| Some(self.frame(&name?, source, FrameKind::Inlined)));
        std::iter::once(outer).chain(inlined).collect()
    }

    fn frame(&self, name: &str, file: Option<String>, kind: FrameKind) -> Frame {
        Frame { function: demangle(name.as_bytes()), module: self.module.clone(), file, kind }
    }

    /// The names and source files from the debug information, innermost first.
    fn by_debug(&self, address: u64) -> Vec<(Option<String>, Option<String>)> {
        let Some(Ok(mut frames)) = self.debug.as_ref().map(|debug| debug.find_frames(address))
        else {
            return Vec::new();
        };
        let mut found = Vec::new();
        while let Ok(Some(frame)) = FallibleIterator::next(&mut frames) {
            let name = (frame.function.as_ref())
                .and_then(|function| Some(function.raw_name().ok()?.into_owned()));
            let source = frame.location.and_then(|location| location.file.map(str::to_owned));
            found.push((name, source));
        }
        found
    }

    /// The source file of the function that begins at `start`: that of its first line. The line of an address inside it
    /// may belong to another file, where code was inlined.
    fn source(&mut self, start: u64) -> Option<String> {
        let debug = self.debug.as_ref()?;
        (self.sources.entry(start))
            .or_insert_with(|| {
                let location = debug.find_location(start).ok().flatten()?;
                location.file.map(str::to_owned)
            })
            .clone()
    }

    fn symbol(&self, address: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = &self.symbols[after.checked_sub(1)?];
        // Assembly often doesn't state a function's size: then it ends where the next one begins.
        (symbol.size == 0 || address - symbol.address < symbol.size).then_some(symbol)
    }
}

fn symbols(code: &CodeFile) -> Vec<Symbol> {
    let object = code.object();
    (object.symbols().chain(object.dynamic_symbols()))
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| !name.is_empty())?.to_owned();
            let underscores = name.len() - name.trim_start_matches('_').len();
            let rank = (symbol.is_weak(), symbol.is_local(), underscores);
            Some(Symbol { address: symbol.address(), size: symbol.size(), name, rank })
        })
        .collect()
}

/// By the scheme of C++ and older Rust, or by Rust's v0 scheme.
fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}
