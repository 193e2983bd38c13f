//! Kernel sources, found by the hash in a kernel node, by name or by file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::checksum::fnv1a;
use crate::graph::ExecutionNode;

/// PTX sources by hash, name and path. Registered sources are never replaced.
///
/// ```
/// use std::path::Path;
///
/// use brickscope::PtxRegistry;
///
/// let ptx = ".version 7.0\n.target sm_70\n";
/// let mut registry = PtxRegistry::new();
/// registry.register("noop", ptx, Some(Path::new("src/noop.ptx")));
/// let hash = PtxRegistry::hash_ptx(ptx);
/// assert_eq!(registry.lookup(hash), Some(ptx));
/// assert_eq!(registry.lookup_name(hash), Some("noop"));
/// assert_eq!(registry.lookup_by_name("noop").count(), 1);
/// assert_eq!(registry.lookup_by_path(Path::new("src/noop.ptx")).count(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PtxRegistry {
    sources: Vec<PtxSource>,
    // Indices into `sources`, in the order of registration.
    by_hash: BTreeMap<u64, Vec<usize>>,
    by_name: BTreeMap<String, BTreeSet<usize>>,
    by_path: BTreeMap<PathBuf, BTreeSet<usize>>,
}

/// A registered source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PtxSource {
    /// Its [`PtxRegistry::hash_ptx`].
    pub hash: u64,
    /// The source.
    pub ptx: String,
    /// The names that it was registered under, the first one first. Only empty in files by others.
    pub names: Vec<PtxName>,
}

/// A name that a source was registered under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtxName {
    /// The kernel's name.
    pub name: String,
    /// The file that the source came from. In a profile's file, bytes that aren't UTF-8 become `�`.
    #[serde(default, serialize_with = "lossy")]
    pub path: Option<PathBuf>,
}

/// The result of a registration. It can be ignored: collisions stay in
/// [`PtxRegistry::collisions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registered {
    /// The source is new, and has this hash.
    New(u64),
    /// The same source was registered already; the name finds it too.
    Known(u64),
    /// A different source with this hash was registered before. Both are kept: the hash finds the first,
    /// each name finds its own.
    Collision(u64),
}

impl Registered {
    /// The hash of the source.
    #[must_use]
    pub fn hash(self) -> u64 {
        match self {
            Self::New(hash) | Self::Known(hash) | Self::Collision(hash) => hash,
        }
    }
}

impl PtxRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a source under its hash, a kernel's name and, if it came from a file, that path.
    ///
    /// The same source may have several names, and a name several sources.
    pub fn register(&mut self, name: &str, ptx: &str, path: Option<&Path>) -> Registered {
        let hash = Self::hash_ptx(ptx);
        let (index, registered) = self.add(hash, ptx);
        let is_new_name = self.by_name.entry(name.to_owned()).or_default().insert(index);
        let is_new_path = path
            .is_some_and(|path| self.by_path.entry(path.to_path_buf()).or_default().insert(index));
        if is_new_name || is_new_path {
            let (name, path) = (name.to_owned(), path.map(Path::to_path_buf));
            self.sources[index].names.push(PtxName { name, path });
        }
        registered
    }

    /// The index of a source, which may be new.
    fn add(&mut self, hash: u64, ptx: &str) -> (usize, Registered) {
        let same_hash = self.by_hash.entry(hash).or_default();
        if let Some(&index) = same_hash.iter().find(|&&index| self.sources[index].ptx == ptx) {
            return (index, Registered::Known(hash));
        }
        let index = self.sources.len();
        same_hash.push(index);
        self.sources.push(PtxSource { hash, ptx: ptx.to_owned(), names: Vec::new() });
        let is_first = same_hash.len() == 1;
        (index, if is_first { Registered::New(hash) } else { Registered::Collision(hash) })
    }

    /// The 64-bit FNV-1a hash of a source.
    ///
    /// Formula: Fowler, Noll and Vo, <http://www.isthe.com/chongo/tech/comp/fnv/>. It is fast, and not safe
    /// against deliberate collisions, so sources with equal hashes are compared.
    #[must_use]
    pub fn hash_ptx(ptx: &str) -> u64 {
        fnv1a(ptx.bytes())
    }

    /// The source of this hash; the first of several.
    #[must_use]
    pub fn lookup(&self, hash: u64) -> Option<&str> {
        self.first(hash).map(|source| source.ptx.as_str())
    }

    /// The kernel of this hash, by the first name of its source.
    #[must_use]
    pub fn lookup_name(&self, hash: u64) -> Option<&str> {
        Some(self.first(hash)?.names.first()?.name.as_str())
    }

    /// The file that the source of this hash came from.
    #[must_use]
    pub fn lookup_path(&self, hash: u64) -> Option<&Path> {
        self.first(hash)?.names.iter().find_map(|name| name.path.as_deref())
    }

    /// The sources of this name, in the order in which they were registered.
    pub fn lookup_by_name(&self, name: &str) -> impl Iterator<Item = &PtxSource> {
        self.by_name.get(name).into_iter().flatten().map(|&index| &self.sources[index])
    }

    /// The sources that came from this file, in the order in which they were registered.
    pub fn lookup_by_path(&self, path: &Path) -> impl Iterator<Item = &PtxSource> {
        self.by_path.get(path).into_iter().flatten().map(|&index| &self.sources[index])
    }

    /// All sources of this hash: one, or those that collide.
    pub fn lookup_all(&self, hash: u64) -> impl Iterator<Item = &PtxSource> {
        self.by_hash.get(&hash).into_iter().flatten().map(|&index| &self.sources[index])
    }

    /// The source of a kernel node: by its hash or, if it has none (0), the only one of its name. Of sources
    /// whose hashes collide, the one of its name.
    ///
    /// `None` for other nodes, for routines of the CPU, and if the source is ambiguous or unknown.
    #[must_use]
    pub fn resolve(&self, node: &ExecutionNode) -> Option<&PtxSource> {
        let ExecutionNode::Kernel { name, ptx_hash, .. } = node else { return None };
        if *ptx_hash == 0 {
            return only(self.lookup_by_name(name));
        }
        only(self.lookup_all(*ptx_hash))
            .or_else(|| only(self.lookup_by_name(name).filter(|source| source.hash == *ptx_hash)))
    }

    /// Hashes shared by several different sources, with these sources.
    pub fn collisions(&self) -> impl Iterator<Item = (u64, Vec<&PtxSource>)> {
        let collide = self.by_hash.iter().filter(|(_, sources)| sources.len() > 1);
        collide.map(|(&hash, _)| (hash, self.lookup_all(hash).collect()))
    }

    /// All sources, in the order in which they were registered.
    #[must_use]
    pub fn sources(&self) -> &[PtxSource] {
        &self.sources
    }

    /// All hashes, in order.
    pub fn hashes(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_hash.keys().copied()
    }

    /// The number of sources.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    fn first(&self, hash: u64) -> Option<&PtxSource> {
        self.lookup_all(hash).next()
    }
}

/// The only item; `None` if there is none or more than one.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}

// Serde refuses paths that aren't UTF-8, and then the whole profile couldn't be written.
fn lossy<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(to)
}

/// A source in a file. The hash is in hexadecimal, since many JSON readers round numbers above 2⁵³.
#[derive(Serialize, Deserialize)]
struct Stored {
    hash: String,
    names: Vec<PtxName>,
    ptx: String,
}

/// As a list of sources.
impl Serialize for PtxRegistry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.sources.iter().map(|PtxSource { hash, ptx, names }| Stored {
            hash: format!("0x{hash:016x}"),
            names: names.clone(),
            ptx: ptx.clone(),
        }))
    }
}

impl<'de> Deserialize<'de> for PtxRegistry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut registry = Self::new();
        for (n, Stored { hash, names, ptx }) in
            Vec::<Stored>::deserialize(from)?.into_iter().enumerate()
        {
            let actual = Self::hash_ptx(&ptx);
            if hash != format!("0x{actual:016x}") {
                return Err(serde::de::Error::custom(format!(
                    "PTX source {n} is said to have the hash {hash:?}, but has 0x{actual:016x}"
                )));
            }
            registry.add(actual, &ptx);
            for PtxName { name, path } in names {
                registry.register(&name, &ptx, path.as_deref());
            }
        }
        Ok(registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{HostLaunch, gpu_kernel};

    /// Two texts with the same 64-bit FNV-1a hash, found by others by brute force.
    const COLLIDING: [&str; 2] = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"];

    fn ptx_of<'a>(sources: impl Iterator<Item = &'a PtxSource>) -> Vec<&'a str> {
        sources.map(|source| source.ptx.as_str()).collect()
    }

    fn kernel(name: &str, hash: u64) -> ExecutionNode {
        gpu_kernel(name, hash, (1, 1, 1), (32, 1, 1), 0)
    }

    #[test]
    fn a_source_is_found_by_its_hash_with_its_name_and_path() {
        let mut registry = PtxRegistry::new();
        assert!(registry.is_empty());
        registry.register("gemv", "ptx a", Some(Path::new("src/gemv.ptx")));
        registry.register("norm", "ptx b", None);
        let hash = PtxRegistry::hash_ptx("ptx a");
        assert_eq!(registry.lookup(hash), Some("ptx a"));
        assert_eq!(registry.lookup_name(hash), Some("gemv"));
        assert_eq!(registry.lookup_path(hash), Some(Path::new("src/gemv.ptx")));
        assert_eq!(registry.lookup(hash ^ 1), None);
        assert_eq!((registry.len(), registry.hashes().count()), (2, 2));
        assert_eq!(ptx_of(registry.lookup_by_path(Path::new("src/gemv.ptx"))), ["ptx a"]);
        assert_eq!(ptx_of(registry.lookup_by_path(Path::new("gemv.ptx"))), [""; 0]);
    }

    #[test]
    fn a_source_of_two_names_and_a_name_of_two_sources() {
        let mut registry = PtxRegistry::new();
        let hash = PtxRegistry::hash_ptx("ptx a");
        assert_eq!(registry.register("gemv", "ptx a", None), Registered::New(hash));
        assert_eq!(registry.register("matvec", "ptx a", None), Registered::Known(hash));
        assert_eq!(registry.register("gemv", "ptx a", None), Registered::Known(hash));
        let other = registry.register("gemv", "ptx b", None).hash();
        assert_eq!(ptx_of(registry.lookup_by_name("gemv")), ["ptx a", "ptx b"]);
        assert_eq!(ptx_of(registry.lookup_by_name("matvec")), ["ptx a"]);
        assert_eq!(registry.lookup_name(hash), Some("gemv"));
        assert_eq!((registry.len(), registry.collisions().count()), (2, 0));
        assert_eq!(registry.sources()[0].names.len(), 2);

        // The hash decides; without one, the name does where it can.
        let resolved = |node: &ExecutionNode| registry.resolve(node).map(|s| s.ptx.as_str());
        assert_eq!(resolved(&kernel("any name", hash)), Some("ptx a"));
        assert_eq!(resolved(&kernel("gemv", other)), Some("ptx b"));
        assert_eq!(resolved(&kernel("matvec", 0)), Some("ptx a"));
        assert_eq!(resolved(&kernel("gemv", 0)), None, "it could be either");
        assert_eq!(resolved(&kernel("matvec", 7)), None, "it is of another version");
        assert_eq!(resolved(&ExecutionNode::Layer { index: 0 }), None);
        let on_cpu = ExecutionNode::Routine {
            name: "matvec".to_owned(),
            launch: HostLaunch { shape: String::new(), threads: 1 },
            timing_ns: None,
            arithmetic_intensity: None,
            achieved_tflops: None,
        };
        assert_eq!(resolved(&on_cpu), None);
    }

    #[test]
    fn a_collision_is_reported_and_overwrites_nothing() {
        let [first, second] = COLLIDING;
        let hash = PtxRegistry::hash_ptx(first);
        assert_eq!(hash, PtxRegistry::hash_ptx(second), "they would not collide otherwise");
        let mut registry = PtxRegistry::new();
        assert_eq!(registry.register("a", first, None), Registered::New(hash));
        assert_eq!(registry.register("b", second, None), Registered::Collision(hash));
        assert_eq!(registry.register("b", second, None), Registered::Known(hash));
        assert_eq!((registry.lookup(hash), registry.lookup_name(hash)), (Some(first), Some("a")));
        let collisions: Vec<_> = registry.collisions().collect();
        assert_eq!(collisions.len(), 1);
        assert_eq!(
            (collisions[0].0, ptx_of(collisions[0].1.iter().copied())),
            (hash, COLLIDING.to_vec())
        );
        let resolved = |name| registry.resolve(&kernel(name, hash)).map(|s| s.ptx.as_str());
        assert_eq!(
            (resolved("a"), resolved("b"), resolved("c")),
            (Some(first), Some(second), None)
        );
        let json = serde_json::to_string(&registry).expect("it can be written");
        assert_eq!(serde_json::from_str::<PtxRegistry>(&json).expect("it was written"), registry);
    }

    #[test]
    fn a_registry_is_written_as_a_list_and_held_to_its_hashes() {
        let mut registry = PtxRegistry::new();
        registry.register("k", "a", Some(Path::new("k.ptx")));
        let json = serde_json::to_string(&registry).expect("it can be written");
        assert_eq!(
            json,
            r#"[{"hash":"0xaf63dc4c8601ec8c","names":[{"name":"k","path":"k.ptx"}],"ptx":"a"}]"#
        );
        assert_eq!(serde_json::from_str::<PtxRegistry>(&json).expect("it was written"), registry);
        let wrong = serde_json::from_str::<PtxRegistry>(&json.replace("8c\"", "8d\""));
        assert_eq!(
            wrong.expect_err("the hash is wrong").to_string(),
            "PTX source 0 is said to have the hash \"0xaf63dc4c8601ec8d\", but has \
             0xaf63dc4c8601ec8c"
        );
        let nameless = r#"[{"hash":"0xaf63dc4c8601ec8c","names":[],"ptx":"a"}]"#;
        let registry: PtxRegistry = serde_json::from_str(nameless).expect("that is no fault");
        assert_eq!((registry.len(), registry.lookup_name(0xaf63_dc4c_8601_ec8c)), (1, None));
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_no_utf_8_does_not_keep_a_profile_from_being_written() {
        use std::os::unix::ffi::OsStrExt;
        let mut registry = PtxRegistry::new();
        let path = Path::new(std::ffi::OsStr::from_bytes(b"k\xff.ptx"));
        registry.register("k", "a", Some(path));
        assert_eq!(registry.lookup_by_path(path).count(), 1);
        let json = serde_json::to_string(&registry).expect("it can be written");
        assert!(json.contains("k\u{fffd}.ptx"), "{json}");
    }
}
