//! Demangles names.

use std::fmt::{self, Write};

use cpp_demangle::DemangleOptions;

/// The longest name that is demangled; a mangled name can stand for a far longer one.
const MAX_NAME: usize = 64 * 1024;

/// A symbol's name as in the source, without the hash that Rust adds. Names that aren't mangled are returned unchanged.
pub(super) fn demangle(name: &[u8]) -> String {
    let raw = || String::from_utf8_lossy(name).into_owned();
    let Ok(text) = std::str::from_utf8(name) else { return raw() };
    if let Ok(rust) = rustc_demangle::try_demangle(text) {
        return bounded(|out| write!(out, "{rust:#}")).unwrap_or_else(raw);
    }
    // C++ by the Itanium ABI. Suffixes that GCC adds for parts of a function don't belong to the name.
    if text.starts_with("_Z") {
        let mangled = text.split_once('.').map_or(text, |(mangled, _)| mangled);
        if let Ok(symbol) = cpp_demangle::Symbol::new(mangled.as_bytes()) {
            let options = DemangleOptions::default();
            let cpp =
                bounded(|out| symbol.structured_demangle(out, &options).map_err(|_| fmt::Error));
            return cpp.unwrap_or_else(raw);
        }
    }
    raw()
}

/// What `write` writes, unless it is too long.
fn bounded(write: impl FnOnce(&mut Bounded) -> fmt::Result) -> Option<String> {
    let mut out = Bounded(String::new());
    write(&mut out).is_ok().then_some(out.0)
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_the_source() {
        let check = |mangled: &str, name: &str| assert_eq!(demangle(mangled.as_bytes()), name);
        check("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt");
        check("_RNvCs1234_7mycrate4main", "mycrate::main");
        check(
            "_ZNSt6vectorIiSaIiEE9push_backEOi",
            "std::vector<int, std::allocator<int> >::push_back(int&&)",
        );
        check("_ZN3foo3barEi.constprop.0", "foo::bar(int)");
        check("memcpy", "memcpy");
        check("_Zonk", "_Zonk");
        check("a;b c", "a;b c");
    }

    #[test]
    fn a_name_that_unfolds_without_end_stays_as_it_is() {
        // Each pair contains the previous one twice: 2^40 in total.
        let mut name = "_Z1fIiE".to_owned();
        let mut pair = "St4pairIiiE".to_owned();
        for _ in 0..12 {
            pair = format!("St4pairI{pair}{pair}E");
        }
        name.push_str(&pair);
        assert!(demangle(name.as_bytes()).len() <= MAX_NAME.max(name.len()));
    }
}
