//! The rows of the tables: the bricks of a phase, layers by bricks, the tree of them.

use std::collections::{BTreeMap, HashMap};

use brickscope_analysis::roofline::Roofline;
use brickscope_analysis::typical;
use brickscope_profile::{Absent, BrickKernel};

use super::{App, Sort};
use crate::numbers::layers_absent;

/// A row of the table of bricks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BrickRow {
    pub(crate) name: String,
    pub(crate) exclusive_ns: u64,
    pub(crate) total_ns: u64,
    pub(crate) count: u64,
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    /// The share of the roofline that is reached, and the limit.
    pub(crate) roof: Option<(f64, String)>,
}

/// A place in the tree: a layer, or a brick in one.
pub(crate) type Place = (Option<u16>, Option<String>);

/// A line of the tree.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Branch {
    pub(crate) depth: usize,
    pub(crate) name: String,
    /// The place, if it can be folded, and whether it is open.
    pub(crate) place: Option<(Place, bool)>,
    pub(crate) ns: u64,
    pub(crate) count: u64,
    /// Whether it is a kernel, whose sums are over its brick in all layers.
    pub(crate) is_of_all_layers: bool,
}

impl App {
    /// The bricks of the phase, filtered and sorted.
    pub(crate) fn rows(&self) -> Vec<BrickRow> {
        let Some(seen) = self.seen() else { return Vec::new() };
        let Ok(profile) = self.shown(&seen) else { return Vec::new() };
        // One stall doesn't decide the order.
        let judged = typical::judged(profile, self.phase);
        let profile = &*judged;
        let roofline = Roofline::of_sums(profile, self.phase).ok();
        let filter = self.filter.to_lowercase();
        let bricks = profile.bricks(Some(self.phase));
        let mut rows: Vec<BrickRow> = bricks
            .into_iter()
            .enumerate()
            .filter(|(_, brick)| brick.stats.name.to_lowercase().contains(&filter))
            .map(|(at, brick)| {
                let stats = &brick.stats;
                // Percentiles are of whole spans, and so is the average if no brick lies inside.
                let is_whole = stats.exclusive_ns == stats.total_ns;
                let place = roofline.as_ref().and_then(|roofline| {
                    // In the same order.
                    roofline.bricks.get(at).filter(|row| row.name == stats.name)?.place.as_ref()
                });
                BrickRow {
                    name: stats.name.clone(),
                    exclusive_ns: stats.exclusive_ns,
                    total_ns: stats.total_ns,
                    count: stats.count,
                    p50_ns: brick.percentiles.p50_ns.filter(|_| is_whole),
                    p99_ns: brick.percentiles.p99_ns.filter(|_| is_whole),
                    roof: place.map(|place| (place.of_roof, place.limit().to_owned())),
                }
            })
            .collect();
        let average = |row: &BrickRow| row.exclusive_ns as f64 / row.count.max(1) as f64;
        match self.sort {
            Sort::Share => rows.sort_by_key(|row| std::cmp::Reverse(row.exclusive_ns)),
            Sort::Average => rows.sort_by(|a, b| average(b).total_cmp(&average(a))),
            Sort::Count => rows.sort_by_key(|row| std::cmp::Reverse(row.count)),
            // The farthest from its roofline first, unknown ones last.
            Sort::Roof => rows.sort_by(|a, b| {
                let part =
                    |row: &BrickRow| row.roof.as_ref().map_or(f64::INFINITY, |(part, _)| *part);
                part(a).total_cmp(&part(b))
            }),
            Sort::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    /// The heat map of the phase.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(crate) fn heat(&self) -> Result<Heat, Absent> {
        let nothing = || Absent { reason: "no frame has come yet".to_owned() };
        let seen = self.seen().ok_or_else(nothing)?;
        let profile = self.shown(&seen)?;
        let mut heat = Heat::default();
        // Maps, since a frame may contain very many names.
        let (mut bricks, mut layers) = (HashMap::new(), BTreeMap::new());
        let rows = profile.layers.iter().filter(|row| row.phase == Some(self.phase));
        // In the order of the profile: the longest brick first.
        let by_time = profile.bricks(Some(self.phase)).into_iter().map(|brick| &brick.stats.name);
        for name in by_time.chain(rows.clone().map(|row| &row.name)) {
            bricks.entry(name).or_insert_with(|| {
                heat.bricks.push(name.clone());
                heat.bricks.len() - 1
            });
        }
        for row in rows {
            // Bricks outside of layers come last.
            let place = row.layer.map_or(u32::MAX, u32::from);
            let (_, cells) = layers.entry(place).or_insert((row.layer, BTreeMap::new()));
            if let Some(&brick) = bricks.get(&row.name) {
                cells.insert(brick, (row.exclusive_ns, row.count));
            }
        }
        if layers.is_empty() {
            let is_known = !seen.snapshot.profile.layers.is_empty();
            let reason = match is_known && self.is_recent {
                true => "no brick in a layer has ended in the last 2 s",
                false => layers_absent(&seen.snapshot),
            };
            return Err(Absent { reason: reason.to_owned() });
        }
        (heat.layers, heat.cells) = layers.into_values().unzip();
        Ok(heat)
    }

    /// The kernels of each brick, the longest first.
    pub(crate) fn kernels(&self) -> HashMap<String, Vec<BrickKernel>> {
        let Some(seen) = self.seen() else { return HashMap::new() };
        let Ok(profile) = self.shown(&seen) else { return HashMap::new() };
        // Kernels with the same name are one line, even if launched differently.
        let mut sums: HashMap<(&str, &str), BrickKernel> = HashMap::new();
        for row in profile.brick_kernels.iter().filter(|row| row.phase == Some(self.phase)) {
            let key = (row.brick.as_str(), row.kernel.as_str());
            let sum =
                sums.entry(key).or_insert(BrickKernel { count: 0, total_ns: 0, ..row.clone() });
            sum.count = sum.count.saturating_add(row.count);
            sum.total_ns = sum.total_ns.saturating_add(row.total_ns);
        }
        let mut kernels: HashMap<String, Vec<BrickKernel>> = HashMap::new();
        for ((brick, _), sum) in sums {
            kernels.entry(brick.to_owned()).or_default().push(sum);
        }
        for kernels in kernels.values_mut() {
            kernels.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then(a.kernel.cmp(&b.kernel)));
        }
        kernels
    }

    /// The visible lines of the tree: layers, their bricks, and their kernels.
    pub(crate) fn branches(&self) -> Vec<Branch> {
        let Ok(heat) = self.heat() else { return Vec::new() };
        let kernels = self.kernels();
        let mut branches = Vec::new();
        for (layer, cells) in heat.layers.iter().zip(&heat.cells) {
            let bricks =
                cells.iter().map(|(&brick, &(ns, count))| (&heat.bricks[brick], ns, count));
            let mut bricks: Vec<_> = bricks.collect();
            bricks.sort_by_key(|&(_, ns, _)| std::cmp::Reverse(ns));
            let place = (*layer, None);
            let is_open = self.open.contains(&place);
            branches.push(Branch {
                depth: 0,
                name: match layer {
                    Some(layer) => format!("layer {layer}"),
                    None => "outside of layers".to_owned(),
                },
                place: Some((place, is_open)),
                ns: bricks.iter().fold(0, |sum, &(_, ns, _)| u64::saturating_add(sum, ns)),
                count: bricks.iter().fold(0, |sum, &(.., count)| u64::saturating_add(sum, count)),
                is_of_all_layers: false,
            });
            if !is_open {
                continue;
            }
            for (name, ns, count) in bricks {
                let inside = kernels.get(name).map(Vec::as_slice).unwrap_or_default();
                let place = (*layer, Some(name.clone()));
                let is_open = self.open.contains(&place);
                branches.push(Branch {
                    depth: 1,
                    name: name.clone(),
                    place: (!inside.is_empty()).then_some((place, is_open)),
                    ns,
                    count,
                    is_of_all_layers: false,
                });
                if is_open {
                    branches.extend(inside.iter().map(|kernel| Branch {
                        depth: 2,
                        name: kernel.kernel.clone(),
                        place: None,
                        ns: kernel.total_ns,
                        count: kernel.count,
                        is_of_all_layers: true,
                    }));
                }
            }
        }
        branches
    }
}

/// Bricks by layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Heat {
    pub(crate) layers: Vec<Option<u16>>,
    pub(crate) bricks: Vec<String>,
    /// By layer, then by brick: nanoseconds and spans of the bricks that ran.
    pub(crate) cells: Vec<BTreeMap<usize, (u64, u64)>>,
}

impl Heat {
    /// The sum of all cells. It stands in for the wall time, since layers are summed only while somebody
    /// watches.
    pub(crate) fn total(&self) -> u64 {
        let cells = self.cells.iter().flat_map(BTreeMap::values);
        cells.fold(0, |sum, &(ns, _)| sum.saturating_add(ns))
    }

    /// The largest cell.
    pub(crate) fn most(&self) -> u64 {
        self.cells.iter().flat_map(BTreeMap::values).map(|&(ns, _)| ns).max().unwrap_or_default()
    }
}
