//! The objects that are loaded into this process, read as the dynamic linker reads them: which functions each defines, and
//! the tables through which it calls those of others.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn dl_iterate_phdr(see: See, data: *mut c_void) -> c_int;
}

type See = unsafe extern "C" fn(*const ObjectInfo, usize, *mut c_void) -> c_int;

/// `struct dl_phdr_info`.
#[repr(C)]
struct ObjectInfo {
    base: usize,
    name: *const c_char,
    headers: *const Header,
    n_headers: u16,
    adds: u64,
    subs: u64,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    in_file: u64,
    size: u64,
    align: u64,
}

/// `Elf64_Ehdr`, from its begin to the number of program headers.
#[repr(C)]
struct FileHeader {
    magic: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: u64,
    headers_at: u64,
    sections_at: u64,
    flags: u32,
    size: u16,
    header_size: u16,
    n_headers: u16,
}

/// `Elf64_Dyn`.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

/// `struct link_map`: its public fields.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
}

/// `struct r_debug_extended`: one for each namespace, of which `dlmopen` makes more.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const LinkMap,
    called: usize,
    state: c_int,
    linker: usize,
    next: *const Debug,
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const RELRO: u32 = 0x6474_e552;

mod tag {
    pub(super) const NEEDED: i64 = 1;
    pub(super) const PLT_SIZE: i64 = 2;
    pub(super) const STRINGS: i64 = 5;
    pub(super) const SYMBOLS: i64 = 6;
    pub(super) const RELOCATIONS: i64 = 7;
    pub(super) const RELOCATIONS_SIZE: i64 = 8;
    pub(super) const SONAME: i64 = 14;
    pub(super) const PLT: i64 = 23;
    pub(super) const OLD_HASH: i64 = 4;
    pub(super) const HASH: i64 = 0x6fff_fef5;
}

/// The kinds of relocations that fill a table of functions, `GLOB_DAT` and `JUMP_SLOT`.
const OF_FUNCTIONS: [u32; 2] = if cfg!(target_arch = "x86_64") { [6, 7] } else { [1025, 1026] };

/// What the dynamic linker has loaded, or is loading, while it can't add or remove any.
pub(crate) struct Objects(Vec<Object>);

/// An object: a program or a library.
pub(crate) struct Object {
    /// What is added to each address in it.
    pub(crate) base: usize,
    /// Its file; empty for the program.
    pub(crate) file: CString,
    /// 0, or the number of a namespace that `dlmopen` has made.
    pub(crate) space: usize,
    range: [usize; 2],
    /// What the linker makes read-only when it has filled it.
    relro: [usize; 2],
    symbols: *const Symbol,
    strings: *const c_char,
    hash: *const u32,
    /// The table of DT_HASH.
    old_hash: *const u32,
    relocations: [(*const Relocation, usize); 2],
    soname: Option<*const c_char>,
    needed: Vec<*const c_char>,
}

/// A place in an object's table, through which it calls the function of this name.
pub(crate) struct Slot<'o> {
    pub(crate) name: &'o CStr,
    pub(crate) at: *mut usize,
}

/// What of the process's memory is mapped, and how: read before the linker's lock is taken.
pub(crate) struct Maps(Vec<([usize; 2], c_int)>);

impl Maps {
    pub(crate) fn read() -> Self {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let of_line = |line: &str| {
            let (range, rest) = line.split_once(' ')?;
            let (begin, end) = range.split_once('-')?;
            let [begin, end] = [begin, end].map(|of| usize::from_str_radix(of, 16));
            let bits = rest.bytes().zip([(b'r', 1), (b'w', 2), (b'x', 4)]);
            let protection = bits.map(|(has, (of, bit))| if has == of { bit } else { 0 }).sum();
            Some(([begin.ok()?, end.ok()?], protection))
        };
        Self(text.lines().filter_map(of_line).collect())
    }

    /// How an address is mapped, as `mprotect` has it.
    pub(crate) fn protection(&self, address: usize) -> Option<c_int> {
        let is_there = |(range, _): &&([usize; 2], c_int)| (range[0]..range[1]).contains(&address);
        self.0.iter().find(is_there).map(|(_, protection)| *protection)
    }

    fn is_readable(&self, from: usize, to: usize) -> bool {
        let is_there = |(range, protection): &([usize; 2], c_int)| {
            range[0] <= from && to <= range[1] && protection & 1 == 1
        };
        from < to && self.0.iter().any(is_there)
    }
}

/// How many objects have been loaded and unloaded so far.
pub(crate) fn changes() -> [u64; 2] {
    unsafe extern "C" fn see(info: *const ObjectInfo, size: usize, found: *mut c_void) -> c_int {
        // SAFETY: the linker passes a valid structure of so many bytes, and our array.
        unsafe {
            if size >= std::mem::size_of::<ObjectInfo>() {
                *found.cast::<[u64; 2]>() = [(*info).adds, (*info).subs];
            }
        }
        1
    }
    let mut found = [0; 2];
    // SAFETY: the function is called before this one returns, with the array.
    unsafe { dl_iterate_phdr(see, (&raw mut found).cast()) };
    found
}

/// Calls `look` while the dynamic linker can neither add nor remove an object; one that it has added may not be ready. It
/// must not call the linker: it would wait for itself.
pub(crate) fn with<R>(maps: &Maps, look: impl FnOnce(&Objects) -> R) -> Option<R> {
    struct Ask<'m, F, R> {
        maps: &'m Maps,
        look: Option<F>,
        debug: *const Debug,
        result: Option<R>,
    }
    unsafe extern "C" fn see<F: FnOnce(&Objects) -> R, R>(
        _: *const ObjectInfo,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes our structure, and nobody else has it now.
        let ask = unsafe { &mut *data.cast::<Ask<'_, F, R>>() };
        if let Some(look) = ask.look.take() {
            // SAFETY: the linker is in this call, so nothing is unloaded.
            ask.result = Some(look(&unsafe { Objects::all(ask.maps, ask.debug) }));
        }
        1
    }
    fn of<F: FnOnce(&Objects) -> R, R>(_: &Ask<'_, F, R>) -> See {
        see::<F, R>
    }
    // SAFETY: the name ends with a zero byte.
    let debug = unsafe { dlsym(ptr::null_mut(), c"_r_debug".as_ptr()) };
    let mut ask = Ask { maps, look: Some(look), debug: debug.cast_const().cast(), result: None };
    let see = of(&ask);
    // SAFETY: the function is called before this one returns, with the structure. The lock of the linker that it holds is
    // one that the same thread may take again.
    unsafe { dl_iterate_phdr(see, (&raw mut ask).cast()) };
    ask.result
}

/// The function that the program and all that is loaded with it would get by this name.
pub(crate) fn global(name: &CStr) -> usize {
    // SAFETY: the name ends with a zero byte. The handle is RTLD_DEFAULT.
    unsafe { dlsym(ptr::null_mut(), name.as_ptr()) as usize }
}

impl Objects {
    /// # Safety
    ///
    /// Nothing is unloaded while the result is used. `debug` is null, or the linker's.
    unsafe fn all(maps: &Maps, debug: *const Debug) -> Self {
        unsafe extern "C" fn see(info: *const ObjectInfo, _: usize, found: *mut c_void) -> c_int {
            // SAFETY: the linker passes a valid structure with the headers of an object that is loaded, and our vector.
            unsafe {
                let info = &*info;
                let headers = std::slice::from_raw_parts(info.headers, usize::from(info.n_headers));
                let objects = &mut *found.cast::<Vec<Object>>();
                objects.extend(Object::read(info.base, info.name, headers, 0));
            }
            0
        }
        let mut objects: Vec<Object> = Vec::new();
        // SAFETY: the function is called before this one returns, with the vector.
        unsafe { dl_iterate_phdr(see, (&raw mut objects).cast()) };
        // SAFETY: the linker's own structures, as `<link.h>` has them.
        unsafe {
            let mut space = 1;
            let mut next = debug.as_ref().filter(|debug| debug.version >= 2).map(|of| of.next);
            while let Some(debug) = next.and_then(|next| next.as_ref()) {
                let mut map = debug.first;
                while let Some(of) = map.as_ref() {
                    objects.extend(Object::mapped(maps, of, space));
                    map = of.next;
                }
                next = Some(debug.next);
                space += 1;
            }
        }
        Self(objects)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Object> {
        self.0.iter()
    }

    /// The object that an address is in.
    pub(crate) fn at(&self, address: usize) -> Option<&Object> {
        self.0.iter().find(|object| object.has(address))
    }

    /// An object and all that it needs, the nearest first.
    fn closure<'o>(&'o self, object: &'o Object) -> Vec<&'o Object> {
        let mut order = vec![object];
        let mut nth = 0;
        while let Some(&of) = order.get(nth) {
            for needed in &of.needed {
                // SAFETY: it is a text of the object, which is loaded.
                let needed = unsafe { CStr::from_ptr(*needed) };
                let is_it = |other: &&Object| other.space == of.space && other.is_called(needed);
                if let Some(other) = self.0.iter().find(is_it)
                    && !order.iter().any(|known| ptr::eq(*known, other))
                {
                    order.push(other);
                }
            }
            nth += 1;
        }
        order
    }

    /// A function of an object, or of those that it needs: the nearest one.
    pub(crate) fn near(&self, object: &Object, name: &CStr) -> Option<usize> {
        self.closure(object).iter().find_map(|of| of.function(name))
    }

    /// What an object calls by this name, if it gets the same whatever it was loaded for: the linker looks in what that
    /// needs, and any object that needs this one may have been it.
    pub(crate) fn near_for_all(&self, object: &Object, name: &CStr) -> Option<usize> {
        let near = self.near(object, name)?;
        let is_same = |root: &Object| {
            let needs = || self.closure(root).iter().any(|of| ptr::eq(*of, object));
            root.space != object.space || !needs() || self.near(root, name) == Some(near)
        };
        self.0.iter().all(is_same).then_some(near)
    }

    /// The function of this name of a namespace, if only one of its objects has it.
    pub(crate) fn only(&self, space: usize, name: &CStr) -> Option<usize> {
        let mut found =
            self.0.iter().filter(|of| of.space == space).filter_map(|of| of.function(name));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }
}

impl Object {
    /// # Safety
    ///
    /// The object is loaded at `base`, and its name ends with a zero byte or is null.
    unsafe fn read(
        base: usize,
        name: *const c_char,
        headers: &[Header],
        space: usize,
    ) -> Option<Self> {
        let mut range = [usize::MAX, 0];
        let mut relro = [0; 2];
        let mut dynamic = ptr::null::<Dynamic>();
        for header in headers {
            let begin = base.wrapping_add(header.address as usize);
            match header.kind {
                LOAD => {
                    let end = begin.wrapping_add(header.size as usize);
                    range = [range[0].min(begin), range[1].max(end)];
                }
                DYNAMIC => dynamic = begin as *const Dynamic,
                RELRO => relro = [begin, begin.wrapping_add(header.size as usize)],
                _ => {}
            }
        }
        let file = if name.is_null() {
            CString::default()
        } else {
            // SAFETY: the caller says so.
            unsafe { CStr::from_ptr(name) }.to_owned()
        };
        let mut object = Self {
            base,
            file,
            space,
            range,
            relro,
            symbols: ptr::null(),
            strings: ptr::null(),
            hash: ptr::null(),
            old_hash: ptr::null(),
            relocations: [(ptr::null(), 0); 2],
            soname: None,
            needed: Vec::new(),
        };
        let (mut sizes, mut needed, mut soname) = ([0; 2], Vec::new(), None);
        // Most linkers have added the base to what are addresses; not to those of the kernel's own object, for one.
        let is_in = |at: usize| (range[0]..range[1]).contains(&at);
        let address = |value: usize| {
            let moved = base.wrapping_add(value);
            if is_in(value) {
                value
            } else if is_in(moved) {
                moved
            } else {
                0
            }
        };
        // SAFETY: the table of an object that is loaded ends with an entry of tag 0.
        unsafe {
            while let Some(&Dynamic { tag, value }) = dynamic.as_ref().filter(|of| of.tag != 0) {
                match tag {
                    tag::NEEDED => needed.push(value),
                    tag::SONAME => soname = Some(value),
                    tag::STRINGS => object.strings = address(value) as *const c_char,
                    tag::SYMBOLS => object.symbols = address(value) as *const Symbol,
                    tag::OLD_HASH => object.old_hash = address(value) as *const u32,
                    tag::HASH => object.hash = address(value) as *const u32,
                    tag::RELOCATIONS => {
                        object.relocations[0].0 = address(value) as *const Relocation
                    }
                    tag::PLT => object.relocations[1].0 = address(value) as *const Relocation,
                    tag::RELOCATIONS_SIZE => sizes[0] = value,
                    tag::PLT_SIZE => sizes[1] = value,
                    _ => {}
                }
                dynamic = dynamic.add(1);
            }
        }
        if object.strings.is_null() || object.symbols.is_null() {
            return None;
        }
        for (of, bytes) in object.relocations.iter_mut().zip(sizes) {
            if !of.0.is_null() {
                of.1 = bytes / std::mem::size_of::<Relocation>();
            }
        }
        // SAFETY: they are places in its table of texts.
        unsafe {
            object.soname = soname.map(|at| object.strings.add(at));
            object.needed = needed.iter().map(|at| object.strings.add(*at)).collect();
        }
        Some(object)
    }

    /// # Safety
    ///
    /// The map is the linker's, of an object that is loaded.
    unsafe fn mapped(maps: &Maps, map: &LinkMap, space: usize) -> Option<Self> {
        let size = std::mem::size_of::<FileHeader>();
        if !maps.is_readable(map.base, map.base.checked_add(size)?) {
            return None;
        }
        let header = map.base as *const FileHeader;
        // SAFETY: a library's first page is its file's, with this header.
        unsafe {
            let header = header.as_ref().filter(|of| of.magic.starts_with(b"\x7fELF"))?;
            let at = map.base.checked_add(header.headers_at as usize)?;
            let size = usize::from(header.n_headers) * std::mem::size_of::<Header>();
            if !maps.is_readable(at, at.checked_add(size)?) {
                return None;
            }
            let headers = at as *const Header;
            let headers = std::slice::from_raw_parts(headers, usize::from(header.n_headers));
            Self::read(map.base, map.name, headers, space)
        }
    }

    pub(crate) fn has(&self, address: usize) -> bool {
        (self.range[0]..self.range[1]).contains(&address)
    }

    /// Whether others need it by this name: its own, or that of its file.
    fn is_called(&self, name: &CStr) -> bool {
        // SAFETY: it is a text of the object, which is loaded.
        let soname = self.soname.map(|soname| unsafe { CStr::from_ptr(soname) });
        let file = self.file.to_bytes();
        let file = file.rsplit(|&c| c == b'/').next().unwrap_or_default();
        soname == Some(name) || file == name.to_bytes()
    }

    /// The address of a function that this object defines for others.
    pub(crate) fn function(&self, name: &CStr) -> Option<usize> {
        // The table of DT_GNU_HASH: numbers of buckets, of the first symbol, of words of a filter and its shift; the filter;
        // for each bucket its first symbol; for each symbol its hash, the last one of a bucket with the lowest bit set.
        if self.hash.is_null() {
            return self.function_of_old(name);
        }
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, &c| hash.wrapping_mul(33).wrapping_add(u32::from(c)));
        // SAFETY: the linker uses the same table in this way.
        unsafe {
            let [buckets, first, words] = [0, 1, 2].map(|at| *self.hash.add(at) as usize);
            if buckets == 0 {
                return None;
            }
            let of_buckets = self.hash.add(4 + 2 * words);
            let chains = of_buckets.add(buckets);
            let mut nth = *of_buckets.add(hash as usize % buckets) as usize;
            if nth < first {
                return None;
            }
            loop {
                let chain = *chains.add(nth - first);
                let symbol = &*self.symbols.add(nth);
                if chain | 1 == hash | 1 && self.is_function(symbol, name) {
                    return Some(self.base.wrapping_add(symbol.value));
                }
                if chain & 1 == 1 {
                    return None;
                }
                nth += 1;
            }
        }
    }

    /// Whether a symbol is a function of this name that is defined, be it a weak one.
    ///
    /// # Safety
    ///
    /// It is one of this object's.
    unsafe fn is_function(&self, symbol: &Symbol, name: &CStr) -> bool {
        // SAFETY: the caller says so, so its name is in the object's table of texts.
        let is_it = unsafe { CStr::from_ptr(self.strings.add(symbol.name as usize)) } == name;
        is_it && symbol.section != 0 && symbol.info & 15 == 2
    }

    /// The same in an object that has the older table only: numbers of buckets and of symbols, buckets, chains.
    fn function_of_old(&self, name: &CStr) -> Option<usize> {
        if self.old_hash.is_null() {
            return None;
        }
        // SAFETY: the table states how many symbols there are.
        unsafe {
            let symbols = std::slice::from_raw_parts(self.symbols, *self.old_hash.add(1) as usize);
            let found = symbols.iter().find(|symbol| self.is_function(symbol, name))?;
            Some(self.base.wrapping_add(found.value))
        }
    }

    /// Whether the linker is still to fill a place, or to move what is in it.
    pub(crate) fn is_unready(&self, maps: &Maps, at: usize, page: usize) -> bool {
        // Whole pages are made read-only.
        let [from, to] = self.relro.map(|of| of & !(page - 1));
        (from..to).contains(&at) && maps.protection(at).is_none_or(|protection| protection & 2 != 0)
    }

    /// Whether a number is an address of this object before it was moved to where it lies.
    pub(crate) fn is_unmoved(&self, value: usize) -> bool {
        self.base != 0 && !self.has(value) && self.has(self.base.wrapping_add(value))
    }

    /// The slots of functions whose names begin as `is_begin` likes.
    pub(crate) fn slots(&self, is_begin: impl Fn(&[u8; 2]) -> bool) -> Vec<Slot<'_>> {
        let mut found = Vec::new();
        for (first, n) in self.relocations {
            for nth in 0..n {
                // SAFETY: the table has so many entries, and each names a symbol, and that a text.
                unsafe {
                    let of = &*first.add(nth);
                    if !OF_FUNCTIONS.contains(&(of.info as u32)) {
                        continue;
                    }
                    let symbol = &*self.symbols.add((of.info >> 32) as usize);
                    let name = self.strings.add(symbol.name as usize);
                    // A name that has one byte has a zero as its second.
                    if symbol.name == 0 || !is_begin(&*name.cast::<[u8; 2]>()) {
                        continue;
                    }
                    let at = self.base.wrapping_add(of.offset) as *mut usize;
                    found.push(Slot { name: CStr::from_ptr(name), at });
                }
            }
        }
        found
    }
}
