//! Kernel sources, found again by the hash that a kernel node carries.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::checksum::fnv1a;

/// PTX sources by hash.
///
/// ```
/// use brickscope::PtxRegistry;
///
/// let ptx = ".version 7.0\n.target sm_70\n";
/// let mut registry = PtxRegistry::new();
/// registry.register("noop", ptx, None);
/// let hash = PtxRegistry::hash_ptx(ptx);
/// assert_eq!(registry.lookup(hash), Some(ptx));
/// assert_eq!(registry.lookup_name(hash), Some("noop"));
/// ```
#[derive(Debug, Clone, Default)]
pub struct PtxRegistry {
    sources: BTreeMap<u64, Source>,
}

#[derive(Debug, Clone)]
struct Source {
    name: String,
    ptx: String,
    path: Option<PathBuf>,
}

impl PtxRegistry {
    /// A registry of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a source under its hash. The first source of a hash stays.
    pub fn register(&mut self, name: &str, ptx: &str, path: Option<&Path>) {
        self.sources.entry(Self::hash_ptx(ptx)).or_insert_with(|| Source {
            name: name.to_owned(),
            ptx: ptx.to_owned(),
            path: path.map(Path::to_path_buf),
        });
    }

    /// The 64-bit FNV-1a hash of a source.
    #[must_use]
    pub fn hash_ptx(ptx: &str) -> u64 {
        fnv1a(ptx.bytes())
    }

    /// The source of this hash.
    #[must_use]
    pub fn lookup(&self, hash: u64) -> Option<&str> {
        self.sources.get(&hash).map(|source| source.ptx.as_str())
    }

    /// The kernel of this hash.
    #[must_use]
    pub fn lookup_name(&self, hash: u64) -> Option<&str> {
        self.sources.get(&hash).map(|source| source.name.as_str())
    }

    /// The file that the source of this hash came from.
    #[must_use]
    pub fn lookup_path(&self, hash: u64) -> Option<&Path> {
        self.sources.get(&hash)?.path.as_deref()
    }

    /// All hashes, in order.
    pub fn hashes(&self) -> impl Iterator<Item = u64> + '_ {
        self.sources.keys().copied()
    }

    /// How many sources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_found_by_its_hash_with_its_name_and_path() {
        let mut registry = PtxRegistry::new();
        assert!(registry.is_empty());
        registry.register("gemv", "ptx a", Some(Path::new("src/gemv.ptx")));
        registry.register("norm", "ptx b", None);
        let hash = PtxRegistry::hash_ptx("ptx a");
        assert_eq!(registry.lookup(hash), Some("ptx a"));
        assert_eq!(registry.lookup_path(hash), Some(Path::new("src/gemv.ptx")));
        assert_eq!(registry.lookup(hash ^ 1), None);
        assert_eq!((registry.len(), registry.hashes().count()), (2, 2));
    }
}
