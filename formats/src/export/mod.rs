//! Profiles as bytes for other programs: flamegraphs, timelines, tables and metrics, one file for each
//! format. [`TraceFile`] is what timelines say of each file that they wrote.

pub mod chrome;
pub mod csv;
mod facts;
pub mod folded;
mod metrics;
pub mod otlp;
pub mod perfetto;
pub mod pprof;
pub mod prometheus;
pub mod rows;
pub mod speedscope;
pub(crate) mod timeline;

use std::io::{self, Write};

use brickscope_profile::Name;

pub use self::timeline::{TraceFile, has_begins};

/// An error for what a format can't represent.
fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// A writer that counts the bytes written to it.
struct Counted<'w, W: ?Sized> {
    out: &'w mut W,
    bytes: u64,
}

impl<'w, W: Write + ?Sized> Counted<'w, W> {
    fn new(out: &'w mut W) -> Self {
        Self { out, bytes: 0 }
    }
}

impl<W: Write + ?Sized> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A fact about how a kernel runs, or about what is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Count(u64),
    Text(String),
}

/// What is known of how the bricks and kernels of a name are launched, and what they copy.
fn launch(name: &Name) -> Vec<(&'static str, Value)> {
    let mut told = Vec::new();
    let shape = |shape: &String| (!shape.is_empty()).then(|| ("shape", Value::Text(shape.clone())));
    if let Some(host) = &name.host {
        told.extend(shape(&host.shape));
        // On a device there are none.
        let threads = (host.threads > 0).then(|| Value::Count(host.threads.into()));
        told.extend(threads.map(|threads| ("threads", threads)));
    }
    if let Some(device) = &name.device {
        let by = |(x, y, z): (u32, u32, u32)| Value::Text(format!("{x}×{y}×{z}"));
        told.extend(shape(&device.shape));
        told.push(("grid", by(device.grid)));
        told.push(("block", by(device.block)));
        told.push(("shared_mem", Value::Count(device.shared_mem.into())));
        if device.ptx_hash != 0 {
            told.push(("ptx", Value::Text(format!("{:016x}", device.ptx_hash))));
        }
        for (what, count) in [("registers", device.registers), ("spill_bytes", device.spill_bytes)]
        {
            told.extend(count.map(|count| (what, Value::Count(count.into()))));
        }
    }
    if let Some(route) = &name.transfer {
        told.push(("src", Value::Text(route.src.clone())));
        told.push(("dst", Value::Text(route.dst.clone())));
        told.push(("direction", Value::Text(route.direction.name().to_owned())));
    }
    told
}
