//! What a file says about itself: its events, the format of their records, and where the records are.

use std::collections::HashMap;
use std::env::consts::ARCH;
use std::path::PathBuf;

use crate::perf_data::bytes::{Cursor, path};
use crate::perf_data::{PerfDataFault, record};

/// Bits of the flags of `perf_event_attr`.
pub(super) mod flag {
    pub(in super::super) const EXCLUDE_USER: u64 = 1 << 4;
    pub(in super::super) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(in super::super) const FREQ: u64 = 1 << 10;
    pub(in super::super) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(in super::super) const USE_CLOCKID: u64 = 1 << 25;
}

/// Features: sections after the data, or records in a stream.
mod feature {
    pub(super) const BUILD_ID: u64 = 2;
    pub(super) const ARCH: u64 = 6;
    pub(super) const EVENT_DESC: u64 = 12;
}

/// The size of the header of a file.
const FILE_HEADER: u64 = 104;

/// The size of the header of a stream.
const STREAM_HEADER: u64 = 16;

/// The size of the first version of `perf_event_attr`, with which all later versions begin.
const FIRST_ATTR: u64 = 64;

/// What a file says about itself.
#[derive(Default)]
pub(super) struct Layout {
    /// The events.
    pub(super) events: Vec<Event>,
    /// The event of each of the kernel's ids.
    pub(super) by_id: HashMap<u64, usize>,
    /// The relevant records, in file order.
    pub(super) records: Vec<Record>,
    /// The build ids of the recorded files.
    pub(super) build_ids: Vec<(PathBuf, Vec<u8>)>,
}

/// An event, as described by `perf_event_attr`.
#[derive(Debug, Clone, Default)]
pub(super) struct Event {
    pub(super) name: Option<String>,
    pub(super) kind: u32,
    pub(super) config: u64,
    /// A period or, with [`flag::FREQ`], a frequency.
    pub(super) period: u64,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) flags: u64,
    pub(super) branch_sample_type: u64,
    pub(super) user_regs: u64,
    pub(super) clock: i32,
    pub(super) max_stack: u16,
}

/// A record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) kind: u32,
    pub(super) misc: u16,
    /// The offset of its body.
    pub(super) offset: u64,
    /// The size of its body.
    pub(super) size: u64,
}

impl Layout {
    pub(super) fn parse(file: &[u8]) -> Result<Self, PerfDataFault> {
        let magic = file.get(..8).unwrap_or(file);
        match magic {
            // The magic number is in the byte order of the machine.
            b"PERFILE2" if cfg!(target_endian = "little") => {}
            b"2ELIFREP" if cfg!(target_endian = "big") => {}
            b"PERFILE2" | b"2ELIFREP" => return Err(PerfDataFault::ByteOrder),
            other => {
                return Err(PerfDataFault::NotPerfData(other.escape_ascii().to_string()));
            }
        }
        let size = Cursor::new(file, 8, 8, "the header's size")?.u64()?;
        let mut layout = Self::default();
        if size == STREAM_HEADER {
            let len = file.len() as u64 - STREAM_HEADER;
            layout.scan(file, STREAM_HEADER, len)?;
        } else {
            layout.file(file)?;
        }
        if layout.events.is_empty() {
            return Err(PerfDataFault::Damaged { what: "no event", offset: 0 });
        }
        Ok(layout)
    }

    /// Reads a file that was written in place: header, events, data, features.
    fn file(&mut self, file: &[u8]) -> Result<(), PerfDataFault> {
        let mut header = Cursor::new(file, 16, FILE_HEADER - 16, "the header")?;
        let attr_size = header.u64()?;
        let (attrs_at, attrs_size) = (header.u64()?, header.u64()?);
        let (data_at, data_size) = (header.u64()?, header.u64()?);
        header.skip(16)?;
        let features = [header.u64()?, header.u64()?, header.u64()?, header.u64()?];
        if data_size == 0 {
            return Err(PerfDataFault::Unfinished);
        }

        let mut attrs = Cursor::new(file, attrs_at, attrs_size, "the events")?;
        // Each entry is a `perf_event_attr`, followed by where the event's ids are.
        let Some(event_size) = attr_size.checked_sub(16).filter(|&size| size >= FIRST_ATTR) else {
            return Err(PerfDataFault::Damaged { what: "the size of an event", offset: 16 });
        };
        while attrs.left() > 0 {
            let mut attr = attrs.part(event_size)?;
            self.events.push(Event::read(&mut attr)?);
            let (ids_at, ids_size) = (attrs.u64()?, attrs.u64()?);
            self.ids(Cursor::new(file, ids_at, ids_size, "the ids of an event")?)?;
        }

        // The table of feature sections follows the data, with one entry per set bit.
        let table_at = data_at.saturating_add(data_size);
        let set = (0..256u64).filter(|bit| features[(bit / 64) as usize] >> (bit % 64) & 1 == 1);
        for (index, bit) in (0u64..).zip(set) {
            let at = table_at.saturating_add(16 * index);
            let mut entry = Cursor::new(file, at, 16, "the table of features")?;
            let (at, size) = (entry.u64()?, entry.u64()?);
            if matches!(bit, feature::BUILD_ID | feature::ARCH | feature::EVENT_DESC) {
                self.feature(bit, Cursor::new(file, at, size, "a feature")?)?;
            }
        }
        self.scan(file, data_at, data_size)
    }

    fn ids(&mut self, mut ids: Cursor<'_>) -> Result<(), PerfDataFault> {
        let event = self.events.len() - 1;
        while ids.left() >= 8 {
            self.by_id.insert(ids.u64()?, event);
        }
        Ok(())
    }

    fn feature(&mut self, bit: u64, mut feature: Cursor<'_>) -> Result<(), PerfDataFault> {
        match bit {
            feature::ARCH => {
                let recorded = String::from_utf8_lossy(feature.text()?).into_owned();
                if recorded != ARCH {
                    return Err(PerfDataFault::Architecture { recorded, here: ARCH });
                }
            }
            feature::EVENT_DESC => {
                let (count, attr_size) = (feature.u32()?, feature.u32()?);
                for index in 0..count as usize {
                    feature.skip(u64::from(attr_size))?;
                    let ids = feature.u32()?;
                    let name = String::from_utf8_lossy(feature.text()?).into_owned();
                    feature.skip(8 * u64::from(ids))?;
                    // In a stream, events may come later; names without an event are ignored.
                    let Some(event) = self.events.get_mut(index) else { break };
                    event.name = Some(name);
                }
            }
            feature::BUILD_ID => {
                while feature.left() >= 8 {
                    let at = feature.offset();
                    let _kind = feature.u32()?;
                    let misc = feature.u16()?;
                    let size = u64::from(feature.u16()?);
                    let damaged = PerfDataFault::Damaged { what: "a build id", offset: at };
                    let mut entry = feature.part(size.checked_sub(8).ok_or(damaged)?)?;
                    entry.skip(4)?;
                    let mut id = entry.bytes(20)?;
                    let rest = entry.bytes(4)?;
                    // Newer versions state its length; older ones pad it with zeros.
                    if misc & record::BUILD_ID_SIZE != 0 {
                        id = id.get(..usize::from(rest[0])).unwrap_or(id);
                    }
                    self.build_ids.push((path(entry.rest()), id.to_vec()));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Collects the relevant records.
    fn scan(&mut self, file: &[u8], start: u64, size: u64) -> Result<(), PerfDataFault> {
        let mut data = Cursor::new(file, start, size, "the data")?;
        while data.left() > 0 {
            let at = data.offset();
            let mut header = Cursor::new(file, at, 8, "a record")?;
            let (kind, misc) = (header.u32()?, header.u16()?);
            let size = u64::from(header.u16()?);
            let damaged = PerfDataFault::Damaged { what: "the size of a record", offset: at };
            let body_size = size.checked_sub(8).ok_or(damaged)?;
            let body = Cursor::new(file, at + 8, body_size, "a record")?;
            data.skip(size)?;
            match kind {
                record::MMAP
                | record::MMAP2
                | record::LOST
                | record::LOST_SAMPLES
                | record::COMM
                | record::FORK
                | record::SAMPLE => {
                    self.records.push(Record { kind, misc, offset: at + 8, size: body_size });
                }
                record::HEADER_ATTR => {
                    let mut attr = body;
                    let event_size = u64::from(attr.peek_size()?);
                    self.events.push(Event::read(&mut attr.part(event_size)?)?);
                    self.ids(attr)?;
                }
                record::HEADER_FEATURE => {
                    let mut feature = body;
                    let bit = feature.u64()?;
                    self.feature(bit, feature)?;
                }
                record::EVENT_UPDATE => self.update(body)?,
                // Their payload follows them.
                record::AUXTRACE => data.skip({ body }.u64()?)?,
                record::HEADER_TRACING_DATA => {
                    data.skip(u64::from({ body }.u32()?).next_multiple_of(8))?;
                }
                record::COMPRESSED | record::COMPRESSED2 => {
                    return Err(PerfDataFault::Compressed(at));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the name of an event in a stream.
    fn update(&mut self, mut update: Cursor<'_>) -> Result<(), PerfDataFault> {
        const NAME: u64 = 2;
        let (what, id) = (update.u64()?, update.u64()?);
        if what == NAME
            && let Some(&event) = self.by_id.get(&id)
        {
            self.events[event].name = Some(String::from_utf8_lossy(update.rest()).into_owned());
        }
        Ok(())
    }
}

impl Event {
    /// Reads a `perf_event_attr`; fields that an older version lacks are 0.
    fn read(attr: &mut Cursor<'_>) -> Result<Self, PerfDataFault> {
        let kind = attr.u32()?;
        attr.skip(4)?;
        let mut event = Self {
            kind,
            config: attr.u64()?,
            period: attr.u64()?,
            sample_type: attr.u64()?,
            read_format: attr.u64()?,
            flags: attr.u64()?,
            ..Self::default()
        };
        // wakeup_events, bp_type, config1
        attr.skip(16)?;
        let mut later = || -> Result<(), PerfDataFault> {
            attr.skip(8)?;
            event.branch_sample_type = attr.u64()?;
            event.user_regs = attr.u64()?;
            attr.skip(4)?;
            event.clock = attr.i32()?;
            // sample_regs_intr, aux_watermark
            attr.skip(12)?;
            event.max_stack = attr.u16()?;
            Ok(())
        };
        // Older versions end somewhere in here.
        let _ = later();
        Ok(event)
    }

    /// Its name, as `perf` prints it.
    pub(super) fn name(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        // The first events of PERF_TYPE_HARDWARE and PERF_TYPE_SOFTWARE.
        let name = match (self.kind, self.config) {
            (0, 0) => "cycles".to_owned(),
            (0, 1) => "instructions".to_owned(),
            (1, 0) => "cpu-clock".to_owned(),
            (1, 1) => "task-clock".to_owned(),
            (kind, config) => format!("type {kind} config {config:#x}"),
        };
        let user = self.flags & (flag::EXCLUDE_KERNEL | flag::EXCLUDE_USER) == flag::EXCLUDE_KERNEL;
        if user { name + ":u" } else { name }
    }
}
