//! Requests of a server: a track each, with a slice for each stretch between tokens, and arrows from the passes that were for it.

use std::collections::HashMap;
use std::io::{self, Write};

use brickscope_analysis::requests::{Interval, Piece, Requests, Until};
use brickscope_profile::{Part, Pass, Profile};

use super::{
    BEFORE, DebugAnnotation, FIRST_TOKEN, FOR_A_REQUEST, File, INSTANT, OF_A_PASS, QUEUE,
    SIBLINGS_STAY_APART, SLICE_BEGIN, SLICE_END, TO_THE_END, TOKEN, TrackDescriptor, category, key,
};

/// Tracks of requests are numbered from here, above all others.
const TRACKS: u64 = 1 << 40;
/// Arrows are numbered from here: one for each part of a pass.
const FLOWS: u64 = 1 << 63;
/// What a token takes in a file at most, in bytes: a slice, and an arrow.
const TOKEN_BYTES: u64 = 250;

/// A pass that was for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Own {
    end_ns: u64,
    serial: u32,
    flow: u64,
}

/// The requests of a profile, of which those before a time are written.
#[derive(Debug)]
pub(super) struct OfRequests<'p> {
    profile: &'p Profile,
    requests: Requests<'p>,
    /// By request: the passes for it, in the order in which they end.
    passes: Vec<Vec<Own>>,
    /// What ends before is written.
    written_ns: u64,
}

impl<'p> OfRequests<'p> {
    pub(super) fn new(profile: &'p Profile) -> Self {
        let mut passes = vec![Vec::new(); profile.requests.len()];
        let end = |pass: &Pass| pass.start_ns.saturating_add(pass.wall_ns);
        let ends: HashMap<u32, u64> = match profile.parts.is_empty() {
            true => HashMap::new(),
            false => profile.passes.iter().map(|pass| (pass.serial, end(pass))).collect(),
        };
        for (flow, of) in (FLOWS..).zip(&profile.parts) {
            let of_request = passes.get_mut(of.part.request as usize);
            let of_request = of_request.filter(|_| of.part.request != Part::NOBODY);
            if let (Some(passes), Some(&end_ns)) = (of_request, ends.get(&of.pass)) {
                passes.push(Own { end_ns, serial: of.pass, flow });
            }
        }
        passes.iter_mut().for_each(|passes| passes.sort_unstable());
        Self { profile, requests: Requests::of(profile), passes, written_ns: 0 }
    }

    /// What they take at most in all parts.
    pub(super) fn bytes(&self) -> u64 {
        let tokens = self.profile.requests.iter().map(|of| of.tokens_ns.len() as u64 + 4);
        tokens.sum::<u64>().saturating_mul(TOKEN_BYTES)
    }

    /// Writes what ended since the last part, and before a time; with arrows from passes that are in this part.
    pub(super) fn write<W: Write + ?Sized>(
        &mut self,
        file: &mut File<'_, W>,
        until_ns: u64,
    ) -> io::Result<()> {
        let since_ns = self.written_ns;
        self.written_ns = until_ns.max(since_ns);
        let is_now = |at: u64| since_ns <= at && (at < until_ns || until_ns == u64::MAX);
        let mut has_group = false;
        for (number, of) in (0..).zip(&self.profile.requests) {
            let track = TRACKS + 1 + u64::from(number);
            let mut is_told = false;
            let mut passes = self.passes[number as usize].iter().peekable();
            for interval in self.requests.intervals_to(number, is_now) {
                let mut own = Vec::new();
                while let Some(pass) = passes.next_if(|pass| pass.end_ns <= interval.to_ns) {
                    // Of tokens before these, which are in an earlier part.
                    if pass.end_ns > interval.from_ns {
                        own.push(*pass);
                    }
                }
                if !has_group {
                    has_group = true;
                    let parent = file.group(0)?;
                    describe(file, TRACKS, "requests", parent)?;
                }
                if !is_told {
                    is_told = true;
                    describe(file, track, &of.id, TRACKS)?;
                }
                self.slices(file, track, &interval)?;
                arrows(file, track, interval.to_ns, &own)?;
            }
        }
        Ok(())
    }

    /// An interval: what was before the engine, the queue, then the rest.
    fn slices<W: Write + ?Sized>(
        &self,
        file: &mut File<'_, W>,
        track: u64,
        interval: &Interval,
    ) -> io::Result<()> {
        let mut begin_ns = interval.from_ns;
        for (piece, name) in [(Piece::Receiving, BEFORE), (Piece::Queue, QUEUE)] {
            let end_ns = begin_ns.saturating_add(interval.of(piece));
            if end_ns > begin_ns {
                slice(file, track, name, [begin_ns, end_ns])?;
                begin_ns = end_ns;
            }
        }
        if begin_ns > interval.from_ns && begin_ns == interval.to_ns {
            return Ok(());
        }
        let (name, token) = match interval.until {
            Until::FirstToken => (FIRST_TOKEN, Some(1)),
            Until::Token(before) => (TOKEN, Some(u64::from(before) + 1)),
            Until::End => (TO_THE_END, None),
        };
        file.count("token", token);
        if interval.until == Until::End {
            let ending = self.profile.requests[interval.request as usize].ending;
            file.event.debug_annotations.extend(ending.map(|ending| DebugAnnotation {
                name_iid: key("ending"),
                string_value: Some(ending.to_string()),
                ..Default::default()
            }));
        }
        let is_drawn = |piece: &Piece| matches!(piece, Piece::Receiving | Piece::Queue);
        for piece in Piece::ALL.into_iter().filter(|piece| !is_drawn(piece)) {
            file.count(piece.name(), Some(interval.of(piece)).filter(|ns| *ns > 0));
        }
        slice(file, track, name, [begin_ns, interval.to_ns])
    }
}

fn describe<W: Write + ?Sized>(
    file: &mut File<'_, W>,
    uuid: u64,
    name: &str,
    parent: u64,
) -> io::Result<()> {
    file.descriptor(TrackDescriptor {
        uuid: Some(uuid),
        name: Some(name.to_owned()),
        parent_uuid: Some(parent),
        sibling_merge_behavior: Some(SIBLINGS_STAY_APART),
        ..Default::default()
    })
}

/// Writes a slice with the annotations that the event has.
fn slice<W: Write + ?Sized>(
    file: &mut File<'_, W>,
    track: u64,
    name: u64,
    [from_ns, to_ns]: [u64; 2],
) -> io::Result<()> {
    file.event.r#type = Some(SLICE_BEGIN);
    file.event.track_uuid = Some(track);
    file.event.name_iid = Some(name);
    file.event.category_iids.push(category("request"));
    file.event(from_ns, None)?;
    file.event.r#type = Some(SLICE_END);
    file.event.track_uuid = Some(track);
    file.event(to_ns, None)
}

/// Arrows from the begin of passes to the token that they made.
fn arrows<W: Write + ?Sized>(
    file: &mut File<'_, W>,
    track: u64,
    token_ns: u64,
    own: &[Own],
) -> io::Result<()> {
    let mut flows = Vec::new();
    for Own { serial, flow, .. } in own {
        let Some(&(of_pass, begin_ns)) = file.passes.get(serial) else { continue };
        flows.push(*flow);
        file.event.flow_ids.push(*flow);
        instant(file, of_pass, FOR_A_REQUEST, begin_ns)?;
    }
    if flows.is_empty() {
        return Ok(());
    }
    file.event.terminating_flow_ids = flows;
    instant(file, track, OF_A_PASS, token_ns)
}

fn instant<W: Write + ?Sized>(
    file: &mut File<'_, W>,
    track: u64,
    name: u64,
    at_ns: u64,
) -> io::Result<()> {
    file.event.r#type = Some(INSTANT);
    file.event.track_uuid = Some(track);
    file.event.name_iid = Some(name);
    file.event.category_iids.push(category("request"));
    file.event(at_ns, None)
}
