//! The table of kernels of rocprofv3 (`*_kernel_trace.csv`): a line for each kernel, and nothing of the host.

use crate::import::kineto::{EventKind, Link};
use crate::import::trace::{MOST_EVENTS, Timed, Trace};
use crate::import::{At, ImportError};

/// The most cells of a row.
const MOST_CELLS: usize = 256;

/// Whether the first line names the columns of kernels and their times.
pub(super) fn is_it(text: &str) -> bool {
    let head = text.lines().next().unwrap_or_default();
    head.contains("Kernel_Name") && head.contains("Start_Timestamp") && head.contains(',')
}

/// Where columns are.
struct Columns(Vec<String>);

impl Columns {
    fn at(&self, names: &[&str]) -> Option<usize> {
        names.iter().find_map(|name| self.0.iter().position(|column| column == name))
    }
}

/// Reads the kernels of a table.
pub(super) fn read(text: &str, at: &At<'_>, trace: &mut Trace) -> Result<(), ImportError> {
    let mut rest = text.trim_start();
    let columns = Columns(next_row(&mut rest).map_err(|fault| at.place("line 1", fault))?);
    if columns.at(&["Counter_Name"]).is_some() {
        let why = "has counters of kernels, a line for each: give the table of the kernels themselves, \
                   `*_kernel_trace.csv`";
        return Err(at.whole(why));
    }
    let needed = |name: &str| {
        let missing = || at.place("line 1", format!("there is no column `{name}`"));
        columns.at(&[name]).ok_or_else(missing)
    };
    let (name, start, end) =
        (needed("Kernel_Name")?, needed("Start_Timestamp")?, needed("End_Timestamp")?);
    let agent = columns.at(&["Agent_Id"]);
    let mut queues = Queues::default();
    let (stream, queue) = (columns.at(&["Stream_Id"]), columns.at(&["Queue_Id"]));
    let sizes =
        |what: &str| ["X", "Y", "Z"].map(|of| columns.at(&[format!("{what}_Size_{of}").as_str()]));
    let (grid, block) = (sizes("Grid"), sizes("Workgroup"));
    let shared = columns.at(&["Group_Segment_Size", "LDS_Block_Size"]);
    let lane = trace.track("", "devices");
    let mut row_number = 1;
    while !rest.is_empty() {
        row_number += 1;
        let row = next_row(&mut rest);
        // A line with nothing in it, as the last one may be.
        if row.as_ref().is_ok_and(|row| matches!(&row[..], [cell] if cell.trim().is_empty())) {
            continue;
        }
        let row = row.and_then(|row| match row.len() == columns.0.len() {
            true => Ok(row),
            false => Err(format!("it has {} cells of {}", row.len(), columns.0.len())),
        });
        let kernel = row.and_then(|row| {
            let cell = |column: Option<usize>| column.and_then(|column| row.get(column));
            let time = |column: usize| {
                let text = cell(Some(column)).map_or("", String::as_str);
                let fault = || format!("`{text}` is no number of nanoseconds");
                text.parse::<i64>().map_err(|_| fault())
            };
            let sizes = |columns: [Option<usize>; 3]| {
                let size = |at: usize| cell(columns[at])?.parse::<u32>().ok();
                Some((size(0)?, size(1)?, size(2)?))
            };
            let number = |column: Option<usize>| cell(column).map(|cell| number_of(cell));
            let (stream, queue) = (number(stream), number(queue));
            let device = number(agent).unwrap_or_default();
            let mut link = Link::on(device, stream.or(queue).unwrap_or_default());
            if let (Some(grid), Some(block)) = (sizes(grid), sizes(block))
                && block.0 > 0
                && block.1 > 0
                && block.2 > 0
            {
                // The grid is in threads.
                let blocks =
                    (grid.0.div_ceil(block.0), grid.1.div_ceil(block.1), grid.2.div_ceil(block.2));
                let shared = cell(shared).and_then(|cell| cell.parse().ok()).unwrap_or_default();
                link = link.launched(blocks, block, shared);
            }
            let name = cell(Some(name)).cloned().unwrap_or_default();
            Ok((name, time(start)?, time(end)?, link, queue.filter(|_| stream == Some(0))))
        });
        match kernel {
            Ok((name, start, end, link, queue)) => {
                let (name, link) = (trace.name(&name), trace.link(link));
                queues.note(link, queue);
                let link = Some(link);
                let kind = EventKind::Work;
                trace.span(Timed { lane, name, start, end, kind, passes: 0, link });
            }
            Err(fault) => {
                trace.left_out.odd += 1;
                trace.fault.get_or_insert((row_number, fault));
            }
        }
        if trace.timed.len() > MOST_EVENTS {
            return Err(at.whole(format!("there are more than {MOST_EVENTS} kernels")));
        }
    }
    queues.tell_apart(trace);
    Ok(())
}

/// The queues of kernels, until it is known whether their streams tell more. Versions that don't know streams
/// state 0 for all.
#[derive(Default)]
struct Queues {
    of_link: Vec<(u32, u64)>,
    states_streams: bool,
}

impl Queues {
    /// Notes the queue of a kernel of stream 0; `None` for any other kernel.
    fn note(&mut self, link: u32, queue: Option<u64>) {
        self.states_streams |= queue.is_none();
        match queue.filter(|_| !self.states_streams) {
            Some(queue) => self.of_link.push((link, queue)),
            None => self.of_link = Vec::new(),
        }
    }

    /// Tells kernels apart by their queues, if nothing else does.
    fn tell_apart(&self, trace: &mut Trace) {
        let Some(&(_, first)) = self.of_link.first() else { return };
        if self.of_link.iter().all(|&(_, queue)| queue == first) {
            return;
        }
        for &(link, queue) in &self.of_link {
            if let Some(link) = trace.links.get_mut(link as usize) {
                link.stream = queue;
            }
        }
    }
}

/// The number of an agent, a queue or a stream: 2 of `2` and of `Agent 2`.
fn number_of(text: &str) -> u64 {
    text.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or_default()
}

/// Takes a row off a text. Cells in quotes may have commas, new lines and doubled quotes.
fn next_row(text: &mut &str) -> Result<Vec<String>, String> {
    let mut cells = Vec::new();
    let mut fault = None;
    loop {
        let mut cell = String::new();
        if let Some(mut quoted) = text.strip_prefix('"') {
            loop {
                let Some((part, rest)) = quoted.split_once('"') else {
                    *text = "";
                    return Err("a quote is not closed".to_owned());
                };
                cell.push_str(part);
                quoted = rest;
                let Some(rest) = quoted.strip_prefix('"') else { break };
                cell.push('"');
                quoted = rest;
            }
            *text = quoted;
        }
        let end = text.find([',', '\n']).unwrap_or(text.len());
        let (bare, rest) = text.split_at(end);
        cell.push_str(bare.trim_end_matches('\r'));
        *text = rest;
        match cells.len() < MOST_CELLS {
            true => cells.push(cell),
            false => fault = Some(format!("it has more than {MOST_CELLS} cells")),
        }
        let Some(rest) = text.strip_prefix(',') else { break };
        *text = rest;
    }
    *text = text.strip_prefix('\n').unwrap_or(text);
    fault.map_or(Ok(cells), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_what_is_in_quotes_whole() {
        let mut text = "a,\"f<1, 2>(\"\"x\"\")\",\r\n\"new\nline\",3\n\nlast";
        let mut row = || next_row(&mut text);
        assert_eq!(row(), Ok(vec!["a".to_owned(), "f<1, 2>(\"x\")".to_owned(), String::new()]));
        assert_eq!(row(), Ok(vec!["new\nline".to_owned(), "3".to_owned()]));
        assert_eq!(row(), Ok(vec![String::new()]));
        assert_eq!(row(), Ok(vec!["last".to_owned()]));
        assert_eq!(text, "");
        let mut text = "1,\"open\n2,3\n";
        assert!(next_row(&mut text).is_err_and(|fault| fault.contains("not closed")));
        assert_eq!(text, "");
        let commas = ",".repeat(1_000) + "\nx";
        let mut text = &*commas;
        assert!(next_row(&mut text).is_err_and(|fault| fault.contains("more than 256")));
        assert_eq!(text, "x");
    }

    #[test]
    fn agents_have_numbers() {
        assert_eq!((number_of("2"), number_of("Agent 12"), number_of("none")), (2, 12, 0));
    }
}
