//! Stacks of what ran on a device, of all of its streams.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use brickscope_profile::{Absent, DeviceProfile, Phase, Profile};

use super::spans::{By, MOST_FRAMES, OUTSIDE, SpanKind, block, kind_of, name_of};
use super::{Class, Frame, Level, Stacks, Unit};

/// The most names of what ran at once; of further ones only the number is told.
const MOST_AT_ONCE: usize = 3;

impl Stacks {
    /// The stacks of what ran on a device, in nanoseconds, without the time in which nothing did: those of a phase add up to
    /// [`DeviceProfile::busy`] of it, to the nanosecond. So each nanosecond counts once, also where several streams ran at a
    /// time. Such time isn't divided among them: it is below what their stacks have in common, in a frame that names them
    /// all.
    ///
    /// Only passes whose bricks were timed and all kept are included, without those that were
    /// [left out](brickscope_profile::Pass::is_left_out). If the device has no passes, the stacks are of all that it ran, and
    /// add up to [`DeviceProfile::busy_overall`].
    ///
    /// The passes of each phase are cut into `blocks` as by [`Stacks::of_spans`]; without passes, time is in no block.
    ///
    /// # Errors
    ///
    /// If there is no such device or no such pass, or bricks' times include waits.
    pub fn of_device(
        profile: &Profile,
        device: usize,
        by: By,
        blocks: usize,
    ) -> Result<Self, Absent> {
        let absent = |reason: &str| Absent { reason: reason.to_owned() };
        let of = profile.devices.get(device).ok_or_else(|| absent("there is no such device"))?;
        let mut groups = groups(profile, of, blocks)?;
        add_pieces(profile, of, &mut groups);
        let stacks = Self::new(Unit::Nanoseconds, blocks);
        let mut drawing = Drawing { profile, device: of, by, stacks };
        for group in &groups.all {
            drawing.add(group);
        }
        Ok(drawing.stacks)
    }
}

/// A pass, or all that ran if there are no passes.
struct Group {
    phase: Option<Phase>,
    start_ns: u64,
    block: usize,
    pieces: Vec<Piece>,
}

/// The time of a brick, or of a kernel in it.
struct Piece {
    begin: u64,
    end: u64,
    /// The piece around it.
    owner: Option<usize>,
    stream: usize,
    row: u32,
}

struct Groups {
    all: Vec<Group>,
    /// By the serial of their pass; `None` if there are no passes.
    of_pass: Option<HashMap<u32, usize>>,
}

fn groups(profile: &Profile, device: &DeviceProfile, blocks: usize) -> Result<Groups, Absent> {
    let passes = || device.streams.iter().flat_map(|stream| &stream.passes);
    if passes().next().is_none() && profile.passes.is_empty() {
        let reason = "nothing ran there, or not all of it was kept";
        device.busy_overall().ok_or_else(|| Absent { reason: reason.to_owned() })?;
        let group = Group { phase: None, start_ns: 0, block: 0, pieces: Vec::new() };
        return Ok(Groups { all: vec![group], of_pass: None });
    }
    device.busy(None)?;
    let mut starts: BTreeMap<u32, (Phase, u64)> = BTreeMap::new();
    let known = device.busy_by_pass(None);
    for pass in passes().filter(|pass| known.contains_key(&pass.serial)) {
        let start = &mut starts.entry(pass.serial).or_insert((pass.phase, pass.start_ns)).1;
        *start = (*start).min(pass.start_ns);
    }
    for pass in passes().filter(|pass| pass.is_left_out) {
        starts.remove(&pass.serial);
    }
    let mut by_phase: HashMap<Phase, Vec<(u64, u32)>> = HashMap::new();
    for (&serial, &(phase, start)) in &starts {
        by_phase.entry(phase).or_default().push((start, serial));
    }
    let mut block_of: HashMap<u32, usize> = HashMap::new();
    for of_phase in by_phase.values_mut() {
        of_phase.sort_unstable();
        for (rank, &(_, serial)) in of_phase.iter().enumerate() {
            block_of.insert(serial, block(rank, of_phase.len(), blocks));
        }
    }
    let of_pass = starts.keys().enumerate().map(|(nth, &serial)| (serial, nth)).collect();
    let all = starts.iter().map(|(serial, &(phase, start_ns))| Group {
        phase: Some(phase),
        start_ns,
        block: block_of.get(serial).copied().unwrap_or(0),
        pieces: Vec::new(),
    });
    Ok(Groups { all: all.collect(), of_pass: Some(of_pass) })
}

/// Adds what counts as [`DeviceProfile::busy`] has it, spans with time of their own, and the kernels inside of these.
fn add_pieces(profile: &Profile, device: &DeviceProfile, groups: &mut Groups) {
    let Groups { all, of_pass } = groups;
    for (stream, of) in device.streams.iter().enumerate() {
        // For each span the innermost piece that it is, or is in.
        let mut inside: Vec<Option<(usize, usize)>> = Vec::with_capacity(of.spans.len());
        for (row, span) in (0_u32..).zip(&of.spans) {
            let parent = span.parent.filter(|&parent| parent < row);
            let around = parent.and_then(|parent| inside[parent as usize]);
            let end = span.start_ns.saturating_add(span.duration_ns);
            let piece = if span.exclusive_ns > 0 {
                let group = match &*of_pass {
                    Some(of_pass) => span.pass.and_then(|pass| of_pass.get(&pass).copied()),
                    None => Some(0),
                };
                group.map(|group| (group, span.start_ns, end))
            } else if kind_of(profile, span) == SpanKind::Kernel {
                // A kernel has no time outside of its brick.
                around.map(|(group, piece)| {
                    let outer = &all[group].pieces[piece];
                    (group, span.start_ns.max(outer.begin), end.min(outer.end))
                })
            } else {
                None
            };
            inside.push(match piece {
                Some((group, begin, end)) if begin < end => {
                    let owner = around.filter(|(of, _)| *of == group).map(|(_, piece)| piece);
                    let pieces = &mut all[group].pieces;
                    pieces.push(Piece { begin, end, owner, stream, row });
                    Some((group, pieces.len() - 1))
                }
                _ => around,
            });
        }
    }
}

struct Drawing<'p> {
    profile: &'p Profile,
    device: &'p DeviceProfile,
    by: By,
    stacks: Stacks,
}

impl Drawing<'_> {
    /// Adds the time of a pass, from edge to edge of what ran in it.
    fn add(&mut self, group: &Group) {
        let Group { pieces, .. } = group;
        let begins = pieces.iter().enumerate().map(|(nth, piece)| (piece.begin, true, nth));
        let ends = pieces.iter().enumerate().map(|(nth, piece)| (piece.end, false, nth));
        let mut edges: Vec<(u64, bool, usize)> = begins.chain(ends).collect();
        edges.sort_unstable();
        let mut is_open = vec![false; pieces.len()];
        // How many pieces directly inside are open.
        let mut inner = vec![0_usize; pieces.len()];
        // What is open and has nothing open inside.
        let mut innermost: BTreeSet<usize> = BTreeSet::new();
        let mut since = group.start_ns;
        for (at, begins, nth) in edges {
            let nanos = at.saturating_sub(since);
            if nanos > 0 && !innermost.is_empty() {
                let frames = self.frames(group, &innermost);
                match group.phase {
                    Some(_) => self.stacks.add(&frames, nanos, group.block),
                    None => self.stacks.add_in_no_block(&frames, nanos),
                }
            }
            since = since.max(at);
            is_open[nth] = begins;
            if !begins {
                innermost.remove(&nth);
            } else if inner[nth] == 0 {
                innermost.insert(nth);
            }
            let Some(owner) = pieces[nth].owner else { continue };
            if begins {
                inner[owner] += 1;
                innermost.remove(&owner);
            } else {
                inner[owner] -= 1;
                if inner[owner] == 0 && is_open[owner] {
                    innermost.insert(owner);
                }
            }
        }
    }

    /// What is open: the frames that all have, and one for what else they have.
    fn frames(&mut self, group: &Group, open: &BTreeSet<usize>) -> Vec<u32> {
        let phase = group.phase.map_or(OUTSIDE, Phase::name);
        let mut frames = Vec::new();
        if self.by == By::Thread {
            let streams: BTreeSet<&str> = open
                .iter()
                .map(|&nth| &*self.device.streams[group.pieces[nth].stream].name)
                .collect();
            let name = at_once(streams);
            frames.push(self.frame(&name, Level::Thread, Class::Other));
        }
        frames.push(self.frame(phase, Level::Phase, Class::Other));
        let stacks: Vec<Vec<u32>> =
            open.iter().map(|&nth| self.frames_of_piece(&group.pieces[nth])).collect();
        let Some((first, others)) = stacks.split_first() else { return frames };
        let is_common = |at: &usize| others.iter().all(|of| of.get(*at) == first.get(*at));
        let common = (0..first.len()).take_while(is_common).count();
        frames.extend(&first[..common]);
        let apart: BTreeSet<u32> =
            stacks.iter().filter_map(|frames| frames.get(common).copied()).collect();
        // What is around all others, as a brick around its kernels is, has no name to add.
        if apart.len() > 1 && stacks.iter().all(|frames| frames.len() > common) {
            let of = |&frame: &u32| &self.stacks.frames[frame as usize];
            let level = of(apart.first().unwrap_or(&0)).level;
            let is_same = apart.iter().all(|frame| of(frame).level == level);
            let level = if is_same { level } else { Level::Brick };
            let name = at_once(apart.iter().map(|frame| &*of(frame).name).collect());
            frames.push(self.frame(&name, level, Class::Other));
        }
        frames
    }

    /// The frames of a piece within its phase.
    fn frames_of_piece(&mut self, piece: &Piece) -> Vec<u32> {
        let (profile, device) = (self.profile, self.device);
        let spans = &device.streams[piece.stream].spans;
        let mut rows = Vec::new();
        let mut next = Some(piece.row);
        while let Some(row) = next.filter(|_| rows.len() < MOST_FRAMES as usize) {
            rows.push(row as usize);
            next = spans[row as usize].parent.filter(|&parent| parent < row);
        }
        let mut frames = Vec::new();
        let mut is_in_kernel = false;
        let mut of_brick = Class::Other;
        for (nth, &row) in rows.iter().rev().enumerate() {
            let span = &spans[row];
            let kind = kind_of(profile, span);
            // A layer that wasn't measured is known by what ran in it.
            let has_layer = self.by != By::Brick && (nth == 0 || kind == SpanKind::Layer);
            if let Some(layer) = span.layer.filter(|_| has_layer) {
                let name = format!("layer {layer}");
                frames.push(self.frame(&name, Level::Layer, Class::Other));
            }
            let Some(name) = span.name else { continue };
            let name = name_of(profile, name);
            let of_kernel = |name| match Class::of_kernel(name) {
                // The brick is known, perhaps by a kernel before or by its call.
                Class::Other => of_brick,
                class => class,
            };
            let is_last = nth + 1 == rows.len();
            let (level, class) = match kind {
                SpanKind::Kernel if is_in_kernel => (Level::Tile, of_kernel(&name)),
                SpanKind::Kernel => (Level::Kernel, of_kernel(&name)),
                SpanKind::Brick | SpanKind::Layer => {
                    of_brick = Class::of_brick(&name);
                    (Level::Brick, if is_last { of_brick } else { Class::Other })
                }
            };
            is_in_kernel = kind == SpanKind::Kernel;
            frames.push(self.frame(&name, level, class));
        }
        frames
    }

    fn frame(&mut self, name: &str, level: Level, class: Class) -> u32 {
        self.stacks.frame(Frame { name: name.to_owned(), level, class })
    }
}

/// Names of what ran at the same time: `AllReduce and MatMul at once`.
fn at_once(names: BTreeSet<&str>) -> String {
    let shown: Vec<&str> = names.iter().copied().take(MOST_AT_ONCE).collect();
    let more = names.len() - shown.len();
    match (&shown[..], more) {
        ([one], 0) => (*one).to_owned(),
        (_, 0) => format!("{} at once", shown.join(" and ")),
        _ => format!("{} and {more} more at once", shown.join(" and ")),
    }
}
