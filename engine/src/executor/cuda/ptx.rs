//! Reads the parameters of kernels from PTX.

use std::collections::BTreeMap;

/// The kernels of a PTX text, each with the sizes of its parameters as `.entry` declares them. Entries that can't be
/// parsed are left out, so launching them is refused.
pub(super) fn entries(ptx: &str) -> BTreeMap<String, Vec<usize>> {
    let mut entries = BTreeMap::new();
    for part in ptx.split(".entry").skip(1) {
        let Some((name, rest)) = part.split_once('(') else { continue };
        let Some((list, _)) = rest.split_once(')') else { continue };
        let sizes: Option<Vec<usize>> = list
            .split(',')
            .filter(|parameter| !parameter.trim().is_empty())
            .map(parameter_bytes)
            .collect();
        if let Some(sizes) = sizes {
            entries.insert(name.trim().to_owned(), sizes);
        }
    }
    entries
}

/// `.param .u64 .ptr .align 1 name` or `.param .align 8 .b8 name[16]`.
fn parameter_bytes(parameter: &str) -> Option<usize> {
    let words = || parameter.split_whitespace();
    if words().next() != Some(".param") {
        return None;
    }
    let each = words().find_map(|word| match word {
        ".u8" | ".s8" | ".b8" => Some(1),
        ".u16" | ".s16" | ".b16" | ".f16" => Some(2),
        ".u32" | ".s32" | ".b32" | ".f32" => Some(4),
        ".u64" | ".s64" | ".b64" | ".f64" => Some(8),
        _ => None,
    })?;
    let name = words().last()?;
    match name.split_once('[') {
        Some((_, count)) => count.strip_suffix(']')?.parse::<usize>().ok()?.checked_mul(each),
        None => Some(each),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_each_kernel_are_found() {
        let ptx = ".version 8.0\n.target sm_75\n.address_size 64\n\n\
            .visible .entry add(\n\t.param .u64 add_param_0,\n\t.param .u64 .ptr .align 1 add_param_1,\n\t.param .u32 add_param_2\n)\n{\n\tret;\n}\n\
            .visible .entry none()\n{ ret; }\n\
            .visible .entry by_value(.param .align 8 .b8 by_value_param_0[16], .param .f32 x)\n{ ret; }\n";
        let found = entries(ptx);
        assert_eq!(found["add"], [8, 8, 4]);
        assert_eq!(found["none"], [0; 0]);
        assert_eq!(found["by_value"], [16, 4]);
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        assert!(entries(".visible .entry odd(.param .v9 x)").is_empty());
        assert!(entries(".visible .entry odd(.param .b8 x[seven])").is_empty());
        assert!(entries(".visible .entry odd(.param").is_empty());
        assert!(entries("").is_empty());
    }
}
