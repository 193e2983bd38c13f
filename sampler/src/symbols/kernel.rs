//! The kernel's functions, if their addresses are readable.

use std::fs;

/// The functions of the running kernel.
#[derive(Default)]
pub(super) struct KernelSymbols {
    /// By address.
    functions: Vec<(u64, String)>,
}

/// Reads the kernel's symbols. They are hidden from users if `kernel.kptr_restrict` is set, as is usual, and useless if
/// the recording is from another boot, when the code was at other addresses. `recorded_text` is where it began then.
pub(super) fn symbols(recorded_text: Option<u64>) -> KernelSymbols {
    let symbols = fs::read_to_string("/proc/kallsyms").map(|text| parse(&text)).unwrap_or_default();
    let here = |text: u64| symbols.functions.iter().any(|(at, name)| *at == text && is_text(name));
    if recorded_text.is_some_and(|text| !here(text)) {
        return KernelSymbols::default();
    }
    symbols
}

fn is_text(name: &str) -> bool {
    matches!(name, "_text" | "_stext")
}

/// Parses lines such as `ffffffff81000000 T _stext`; those of a module end with `\t[module]`.
fn parse(text: &str) -> KernelSymbols {
    let mut functions = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else { continue };
        // Unprivileged readers see zeros.
        if address != 0 && matches!(kind, "t" | "T" | "w" | "W") {
            functions.push((address, name.to_owned()));
        }
    }
    functions.sort_by_key(|(address, _)| *address);
    KernelSymbols { functions }
}

impl KernelSymbols {
    pub(super) fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(start, _)| *start <= address);
        Some(&self.functions[after.checked_sub(1)?].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_addresses_name_nothing() {
        let symbols = parse("0000000000000000 T _stext\n0000000000000000 t do_idle\n");
        assert_eq!(symbols.name(0xffff_ffff_8100_0000), None);
    }

    #[test]
    fn an_address_is_in_the_function_that_began_last() {
        let symbols = parse(
            "ffffffff81000000 T _stext\nffffffff81000200 D data\nffffffff81000100 t do_idle\n\
             ffffffffc0000000 t ext4_read\t[ext4]\n",
        );
        assert_eq!(symbols.name(0xffff_ffff_8100_0050), Some("_stext"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0300), Some("do_idle"));
        assert_eq!(symbols.name(0xffff_ffff_c000_0000), Some("ext4_read"));
        assert_eq!(symbols.name(0x1000), None);
    }
}
