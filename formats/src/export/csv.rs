//! Tables as comma-separated values ([RFC 4180](https://www.rfc-editor.org/rfc/rfc4180)), in UTF-8, for
//! spreadsheets and scripts.
//!
//! Absent values are empty cells. Text that a spreadsheet would take for a formula, since it begins with
//! `=`, `+`, `-`, `@`, a tab or a carriage return, has a `'` before it
//! (<https://owasp.org/www-community/attacks/CSV_Injection>); so has text that begins with `'`, so that
//! readers can tell the two apart. Numbers are never negative.

use std::io::{self, Write};

use brickscope_profile::{Profile, Total};

use super::rows::{Table, rows, tables};
use super::timeline::{has_begins, told_tokens};

const SPANS: &str = "device,stream,row,parent,lane,track,tid,pass,phase,layer,kind,name,source,\
     start_ns,duration_ns,exclusive_ns,elements,flops,bytes,shape,threads,grid_x,grid_y,grid_z,\
     block_x,block_y,block_z,shared_mem,ptx,registers,spill_bytes,src,dst,direction";

const PASSES: &str = "device,stream,pass,phase,lane,tokens,position,start_ns,wall_ns,attributed_ns,\
     unattributed_ns,is_disturbed,is_left_out";

const TOTALS: &str = "device,stream,phase,kind,name,category,source,count,total_ns,exclusive_ns,min_ns,\
     max_ns,std_dev_ns,p50_ns,p90_ns,p95_ns,p99_ns,elements,flops,bytes,shape,threads,grid_x,grid_y,\
     grid_z,block_x,block_y,block_z,shared_mem,ptx,counted_spans,cycles,instructions,llc_misses,\
     branch_misses";

/// Spans between two calls of `progress`.
const SPANS_BETWEEN: u64 = 1 << 14;

/// Writes the names of the columns, then a line for each span that was kept. `progress` is called now and
/// then with the number of spans written so far.
///
/// # Errors
///
/// If writing to `out` fails.
pub fn spans(
    profile: &Profile,
    out: &mut (impl Write + ?Sized),
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    write!(out, "{SPANS}\r\n")?;
    let mut line = Line::default();
    for (nth, row) in (1..).zip(rows(profile)) {
        line.count(row.device);
        line.count(row.stream);
        line.count(Some(row.row));
        line.count(row.parent);
        line.count(Some(row.lane));
        line.text(row.track);
        line.count(row.tid);
        line.count(row.pass);
        line.text(row.phase.map(|phase| phase.name()));
        line.count(row.layer);
        line.text(Some(row.kind));
        line.text(row.name.as_deref());
        line.text(Some(row.source.name()));
        line.count(Some(row.start_ns));
        line.count(Some(row.duration_ns));
        line.count(Some(row.exclusive_ns));
        line.count(row.elements);
        line.count(row.flops);
        line.count(row.bytes);
        line.text(row.shape());
        line.count(row.host.map(|host| host.threads));
        line.launch(row.launch);
        line.count(row.launch.and_then(|launch| launch.registers));
        line.count(row.launch.and_then(|launch| launch.spill_bytes));
        line.text(row.transfer.map(|route| route.src.as_str()));
        line.text(row.transfer.map(|route| route.dst.as_str()));
        line.text(row.transfer.map(|route| route.direction.name()));
        line.end(out)?;
        if u64::is_multiple_of(nth, SPANS_BETWEEN) {
            progress(nth);
        }
    }
    out.flush()
}

/// Writes a line for each pass that was kept: the host's, then those of each stream.
///
/// # Errors
///
/// If writing to `out` fails.
pub fn passes(profile: &Profile, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    write!(out, "{PASSES}\r\n")?;
    let has_begins = has_begins(profile);
    let mut line = Line::default();
    for table in tables(profile) {
        for pass in table.passes {
            line.stream(&table);
            line.count(Some(pass.serial));
            line.text(Some(pass.phase.name()));
            line.count(Some(pass.lane));
            let [tokens, position] = told_tokens(profile, pass);
            line.count(tokens);
            line.count(position);
            line.count(has_begins.then_some(pass.start_ns));
            line.count(Some(pass.wall_ns));
            line.count(Some(pass.attributed_ns));
            line.count(Some(pass.unattributed_ns));
            line.text(pass.disturbance.map(|_| if pass.is_disturbed() { "true" } else { "false" }));
            line.text(Some(if pass.is_left_out { "true" } else { "false" }));
            line.end(out)?;
        }
    }
    out.flush()
}

/// Writes a line with the sums of each brick and kernel in each phase.
///
/// # Errors
///
/// If writing to `out` fails.
pub fn totals(profile: &Profile, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    write!(out, "{TOTALS}\r\n")?;
    let mut line = Line::default();
    for table in tables(profile) {
        for total in table.totals {
            line.stream(&table);
            line.total(total);
            line.end(out)?;
        }
    }
    out.flush()
}

pub use brickscope_analysis::text::{csv_cell as cell, csv_guarded as guarded};

/// A line that is being written.
#[derive(Default)]
struct Line {
    text: String,
    is_begun: bool,
}

impl Line {
    fn comma(&mut self) {
        if std::mem::replace(&mut self.is_begun, true) {
            self.text.push(',');
        }
    }

    fn count(&mut self, count: Option<impl Into<u64>>) {
        self.comma();
        if let Some(count) = count {
            let count: u64 = count.into();
            self.text.push_str(&count.to_string());
        }
    }

    fn number(&mut self, number: Option<f64>) {
        self.comma();
        if let Some(number) = number.filter(|number| number.is_finite()) {
            self.text.push_str(&number.to_string());
        }
    }

    fn text(&mut self, text: Option<&str>) {
        self.comma();
        let Some(text) = text else { return };
        self.text.push_str(&cell(text));
    }

    fn stream(&mut self, table: &Table<'_>) {
        self.count(table.stream.map(|(device, _)| device));
        self.count(table.stream.map(|(_, stream)| stream));
    }

    /// Grid, block, shared memory and PTX.
    fn launch(&mut self, launch: Option<&brickscope_profile::graph::DeviceLaunch>) {
        let (grid, block) = launch.map(|launch| (launch.grid, launch.block)).unzip();
        for dims in [grid, block] {
            self.count(dims.map(|(x, _, _)| x));
            self.count(dims.map(|(_, y, _)| y));
            self.count(dims.map(|(_, _, z)| z));
        }
        self.count(launch.map(|launch| launch.shared_mem));
        let hash = launch.map(|launch| launch.ptx_hash).filter(|&hash| hash != 0);
        self.text(hash.map(|hash| format!("{hash:016x}")).as_deref());
    }

    fn total(&mut self, total: &Total) {
        let stats = &total.stats;
        // Imported sums have neither, and some not even a count.
        let has_ends = stats.min_ns <= stats.max_ns;
        let stated = |count: u64| (count > 0).then_some(count);
        self.text(total.phase.map(|phase| phase.name()));
        self.text(Some(match total.kind {
            brickscope_profile::name::NameKind::Brick => "brick",
            brickscope_profile::name::NameKind::Kernel => "kernel",
        }));
        self.text(Some(&stats.name));
        self.text(total.category.map(|category| category.name()));
        self.text(Some(total.source.name()));
        self.count(stated(stats.count));
        self.count(Some(stats.total_ns));
        self.count(Some(stats.exclusive_ns));
        self.count(has_ends.then_some(stats.min_ns));
        self.count(has_ends.then_some(stats.max_ns));
        self.number(total.std_dev_ns);
        let percentiles = &total.percentiles;
        for percentile in
            [percentiles.p50_ns, percentiles.p90_ns, percentiles.p95_ns, percentiles.p99_ns]
        {
            self.count(percentile);
        }
        self.count(stated(stats.total_elements));
        self.count(stated(stats.total_flops));
        self.count(stated(stats.total_bytes));
        let of_host = total.host.as_ref().map(|host| host.shape.as_str());
        let shape = of_host.or_else(|| total.device.as_ref().map(|device| device.shape.as_str()));
        self.text(shape.filter(|shape| !shape.is_empty()));
        self.count(total.host.as_ref().map(|host| host.threads));
        self.launch(total.device.as_ref());
        let counters = total.counters.as_ref();
        self.count(counters.map(|counters| counters.spans));
        self.count(counters.and_then(|counters| counters.sums.cycles));
        self.count(counters.and_then(|counters| counters.sums.instructions));
        self.count(counters.and_then(|counters| counters.sums.llc_misses));
        self.count(counters.and_then(|counters| counters.sums.branch_misses));
    }

    fn end(&mut self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.text.push_str("\r\n");
        out.write_all(self.text.as_bytes())?;
        self.text.clear();
        self.is_begun = false;
        Ok(())
    }
}
