//! The roofline as text: a table, and a plot in characters.

use std::fmt::Write;

use brickscope_profile::text::{
    MOST_ROWS, micros, percent, printable, printable_text, screened_lines, shortened,
};
use brickscope_profile::{Absent, Ceilings, Phase, Profile, ReadingTime};

use crate::roofline::{
    AT, MEMORY, MOST, NEAR, Note, Reach, Roofline, RooflineBrick, SWINGS, ShownBy, Standing,
};
use crate::text::wrap;
use crate::words::short;

/// The plot and the table of each phase that has a roofline; for the others, why there is none. At
/// most 80 columns wide.
#[must_use]
pub fn roofline(profile: &Profile) -> String {
    let mut text = String::new();
    for phase in phases(profile) {
        let gap = if text.is_empty() { "" } else { "\n" };
        let name = phase.heading();
        match Roofline::of(profile, phase) {
            Ok(roofline) => {
                let _ = writeln!(text, "{gap}{name}\n");
                plot(&roofline, &mut text);
                text.push('\n');
                table(&roofline, &mut text);
            }
            Err(Absent { reason }) => {
                text.push_str(gap);
                for line in wrap(&format!("{name}: no roofline: {}", printable_text(&reason)), 78) {
                    let _ = writeln!(text, "{line}");
                }
            }
        }
    }
    if let Some(ceilings) = &profile.ceilings {
        let basis = format!("ceilings: {}", printable_text(&ceilings.basis));
        for line in wrap(&basis, 78) {
            let _ = writeln!(text, "{line}");
        }
        text.push_str(&memory_readings(ceilings));
    }
    if text.is_empty() {
        text.push_str("No pass was recorded, so there is no roofline.\n");
    }
    screened_lines(text)
}

/// Each measurement of memory's bandwidth that the ceilings carry, in a sentence: what memory gave around the run, the
/// spread of what it gave earlier and since when, and its two states, where it has two. Empty without any; at most 78
/// columns wide.
#[must_use]
pub fn memory_readings(ceilings: &Ceilings) -> String {
    let gigabytes = |rate: f64| format!("{} GB/s", short(rate / 1e9));
    let at =
        |when: ReadingTime| ceilings.readings.iter().filter(move |reading| reading.when == when);
    let mut parts: Vec<String> = Vec::new();
    let after = match at(ReadingTime::Before).next() {
        Some(_) => "after it",
        None => "after the run",
    };
    for (when, name) in [(ReadingTime::Before, "before the run"), (ReadingTime::After, after)] {
        let rates = at(when).map(|reading| gigabytes(reading.read_bytes_per_second));
        parts.extend(rates.map(|rate| format!("{rate} {name}")));
    }
    let kept: Vec<f64> =
        at(ReadingTime::Kept).map(|reading| reading.read_bytes_per_second).collect();
    if let Some(oldest) = at(ReadingTime::Kept).next() {
        let least = kept.iter().copied().fold(f64::INFINITY, f64::min);
        let most = kept.iter().copied().fold(0.0, f64::max);
        let rates = if kept.len() == 1 {
            gigabytes(most)
        } else {
            format!("{} to {}", short(least / 1e9), gigabytes(most))
        };
        let since = printable(&oldest.measured);
        let times = if kept.len() == 1 { "time" } else { "times" };
        parts.push(format!("{rates} at {} earlier {times} since {since}", kept.len()));
    }
    if parts.is_empty() {
        return String::new();
    }
    let mut text = format!("memory gave {}", parts.join(", "));
    if let Some([slow, fast]) = ceilings.memory_states() {
        let (slow, fast) = (short(slow / 1e9), gigabytes(fast));
        text += &format!("; this machine has two states, {slow} and {fast}");
    }
    wrap(&text, 78).into_iter().map(|line| line + "\n").collect()
}

/// The phases that were recorded, decode first.
pub(super) fn phases(profile: &Profile) -> impl Iterator<Item = Phase> {
    Phase::SHOWN.into_iter().filter(|&phase| profile.phase(phase).is_some())
}

/// The table of one phase, for the report.
pub(super) fn in_report(profile: &Profile, phase: Phase, text: &mut String) {
    text.push('\n');
    match Roofline::of(profile, phase) {
        Ok(roofline) => table(&roofline, text),
        Err(Absent { reason }) => {
            for line in wrap(&format!("no roofline: {}", printable_text(&reason)), 78) {
                let _ = writeln!(text, "{line}");
            }
        }
    }
}

/// A letter for each of the first bricks.
pub(super) fn letter(index: usize) -> char {
    let letters = ('A'..='Z').chain('a'..='z');
    letters.chain(['?']).nth(index.min(52)).unwrap_or('?')
}

fn table(roofline: &Roofline, text: &mut String) {
    for line in wrap(&heading(roofline), 80) {
        let _ = writeln!(text, "{line}");
    }
    for line in roofline_notes(roofline).iter().flat_map(|note| wrap(note, 78)) {
        let _ = writeln!(text, "{line}");
    }
    let row = |letter: char, name: &str, cells: [&str; 8]| {
        let [intensity, flops, bytes, roof, part, limit, reach, rest] = cells;
        let row = format!(
            "{letter} {name:16}{intensity:>7}{flops:>8}{bytes:>7}{roof:>8}{part:>8} {limit:7} \
             {reach:7}{rest:>8}"
        );
        row.trim_end().to_owned() + "\n"
    };
    text.push_str(&row(
        ' ',
        "Brick",
        ["FLOP/B", "GFLOP/s", "GB/s", "roof", "of roof", "bound", "reach", "µs above"],
    ));
    let _ = writeln!(text, "{}", "-".repeat(79));
    let mut notes: Vec<String> = Vec::new();
    // What is the same of several bricks is said once.
    let mut own: Vec<(String, Vec<String>)> = Vec::new();
    let (mut any_far, mut any_unsettled, mut any_without_flops) = (false, false, false);
    let (mut any_unexplained, mut any_paced) = (false, false);
    let mut unknown = 0;
    for (index, brick) in roofline.bricks.iter().take(MOST_ROWS).enumerate() {
        let name = shortened(&brick.name, 16, "");
        let Some(place) = &brick.place else {
            let why = brick.absent.as_ref().map_or("", |absent| &absent.reason);
            let _ = writeln!(text, "{} {name:16} absent: {}", letter(index), printable_text(why));
            continue;
        };
        let Standing { intensity, flops_per_second, roof_flops_per_second, .. } = *place;
        // Without a FLOP count there is nothing to show.
        let stated = |value: f64| brick.flops.map_or("-".to_owned(), |_| short(value));
        any_without_flops |= brick.flops.is_none();
        unknown += usize::from(brick.notes.contains(&Note::IdleUnknown));
        any_far |= place.reach == Reach::Far;
        any_unexplained |= place.reach == Reach::Far && place.pace.is_none();
        any_paced |= place.reach == Reach::Kernel;
        any_unsettled |= place.reach == Reach::Unsettled;
        text.push_str(&row(
            letter(index),
            &name,
            [
                &stated(intensity),
                &stated(flops_per_second / 1e9),
                &short(place.bytes_per_second / 1e9),
                &stated(roof_flops_per_second / 1e9),
                &percent(place.of_roof, 1.0),
                &shortened(place.limit(), 7, ""),
                place.reach.name(),
                &micros(place.us_to_roof * 1e3),
            ],
        ));
        for note in own_notes(brick).map(ToString::to_string) {
            match own.iter_mut().find(|(of, _)| *of == note) {
                Some((_, names)) => names.push(name.clone()),
                None => own.push((note, vec![name.clone()])),
            }
        }
    }
    notes.extend(own.into_iter().map(|(note, names)| format!("{}: {note}", names.join(", "))));
    let more = roofline.bricks.len().saturating_sub(MOST_ROWS);
    if more > 0 {
        let _ = writeln!(text, "({more} more)");
    }
    if any_without_flops {
        notes.push("- no FLOP count; bandwidth only".to_owned());
    }
    if unknown > 0 {
        let of = if unknown == roofline.bricks.len() { "all bricks" } else { "some bricks" };
        notes.push(format!(
            "for {of} the number of spans without stated work is unknown: no span was kept"
        ));
    }
    if any_far {
        let likely = match any_unexplained {
            true => "; likely latency, synchronisation or idle threads",
            // What its code reaches is above.
            false => "",
        };
        notes.push(format!("far: under {:.0} % of the roof{likely}", 100.0 * NEAR));
    }
    if any_paced {
        notes.push(format!(
            "kernel: at least {:.0} % of what its code reaches with weights in a cache, and the machine gives more",
            100.0 / SWINGS
        ));
    }
    notes.extend(roofline.pace_absent.as_ref().map(|absent| printable_text(&absent.reason)));
    if any_unsettled {
        notes.push(swings_in_words());
    }
    for note in notes {
        for line in wrap(&note, 78) {
            let _ = writeln!(text, "{line}");
        }
    }
}

/// What `swings` means beside a brick.
#[must_use]
pub fn swings_in_words() -> String {
    format!(
        "swings: its limit was measured to be {:.0} % lower or more, or beside other programs, so near or far can't be told",
        100.0 * (1.0 - 1.0 / SWINGS)
    )
}

/// The limits: first that of the level from which weights come, by which bricks are judged.
fn heading(roofline: &Roofline) -> String {
    let memory = short(roofline.peak_bytes_per_second / 1e9);
    let peak = short(roofline.peak_flops_per_second / 1e9);
    let ridge = short(roofline.ridge);
    let is_cached = roofline.pass_bytes > 0 && roofline.pass_level != MEMORY;
    let level = is_cached.then_some(&roofline.pass_level);
    match level.and_then(|level| Some((level, roofline.limit_of(level)?))) {
        Some((level, [_, limit])) => format!(
            "Roofline: {} GB/s ({}), {peak} GFLOP/s; memory {memory}, ridge at {ridge} FLOP/byte",
            short(limit / 1e9),
            printable(level)
        ),
        None => format!("Roofline: {memory} GB/s, {peak} GFLOP/s, ridge at {ridge} FLOP/byte"),
    }
}

/// Where weights come from, and what is to be known of memory's bandwidth.
fn roofline_notes(roofline: &Roofline) -> Vec<String> {
    let gigabytes = |rate: f64| short(rate / 1e9);
    let mut notes = Vec::new();
    if roofline.is_stated {
        notes.push("These limits are stated, not measured.".to_owned());
    }
    if let Some(known) = roofline.known {
        notes.push(format!(
            "Of {} of the device's time the work is known: products, by the shapes in the file. All rates are of that.",
            known.share()
        ));
        if !roofline.is_stated {
            let peak = "The peak is that of floats without matrix units: products are held to memory alone.";
            notes.push(peak.to_owned());
        }
    }
    notes.extend(roofline.says_source());
    let [least, most] = [roofline.least_bytes_per_second, roofline.peak_bytes_per_second];
    for shown in &roofline.shown_by {
        let ShownBy { of, name, phase, per_second, measured_per_second, .. } = shown;
        if *per_second > MOST * shown.highest_measured_per_second {
            let (did, unit) = match of.as_str() {
                "f32" => ("computed", "GFLOP/s"),
                "int8" => ("computed", "Gop/s"),
                _ => ("read", "GB/s"),
            };
            notes.push(format!(
                "The limit of {} was measured too low, {} {unit}: {} of {phase} {did} {} {unit}.",
                printable(of),
                gigabytes(*measured_per_second),
                printable(name),
                gigabytes(*per_second)
            ));
        }
    }
    if least < AT * most {
        notes.push(format!(
            "Around the run, or at two earlier times, memory gave as little as {} GB/s.",
            gigabytes(least)
        ));
    }
    if let Some(machine) = roofline.machine_bytes_per_second {
        notes.push(format!("All CPUs of the machine read {} GB/s.", gigabytes(machine)));
    }
    notes
}

/// The notes that no column of the table shows.
fn own_notes(brick: &RooflineBrick) -> impl Iterator<Item = &Note> {
    let told = |note: &&Note| !matches!(note, Note::NoFlops | Note::IdleUnknown);
    brick.notes.iter().filter(told)
}

/// The range of a plot in powers of ten: FLOP/byte on x, FLOP/s on y.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axes {
    pub(super) x: [i32; 2],
    pub(super) y: [i32; 2],
}

impl Axes {
    pub(super) fn of(roofline: &Roofline) -> Self {
        let points = points(roofline).map(|(_, _, place)| place);
        let (mut x, mut y) = (vec![roofline.ridge], vec![roofline.peak_flops_per_second]);
        for place in points {
            x.push(place.intensity);
            y.extend([place.flops_per_second, place.roof_flops_per_second]);
        }
        Self { x: decades(&x), y: decades(&y) }
    }

    /// Where a point is, 0 to 1 on both axes.
    pub(super) fn place(&self, intensity: f64, flops_per_second: f64) -> [f64; 2] {
        [(self.x, intensity), (self.y, flops_per_second)].map(|([least, most], value)| {
            (value.log10() - f64::from(least)) / f64::from(most - least)
        })
    }

    /// The intensity at a place on the x axis.
    pub(super) fn intensity(&self, x: f64) -> f64 {
        let [least, most] = self.x;
        10f64.powf(f64::from(least) + x * f64::from(most - least))
    }
}

/// The powers of ten around some numbers.
fn decades(values: &[f64]) -> [i32; 2] {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min).log10().floor() as i32;
    let most = values.iter().copied().fold(0.0, f64::max).log10().ceil() as i32;
    [least, most.max(least + 1)]
}

/// The bricks that have a point: an intensity above 0.
pub(super) fn points(
    roofline: &Roofline,
) -> impl Iterator<Item = (usize, &RooflineBrick, &Standing)> {
    let bricks = roofline.bricks.iter().take(MOST_ROWS).enumerate();
    bricks.filter_map(|(index, brick)| {
        let place = brick.place.as_ref().filter(|place| place.intensity > 0.0)?;
        Some((index, brick, place))
    })
}

/// A power of ten in a few characters.
pub(super) fn decade(exponent: i32) -> String {
    match exponent {
        0..=4 => format!("{}", 10u32.pow(exponent as u32)),
        -3..0 => format!("{:.*}", -exponent as usize, 10f64.powi(exponent)),
        _ => format!("1e{exponent}"),
    }
}

/// Letters under a roof, on logarithmic axes.
fn plot(roofline: &Roofline, text: &mut String) {
    const WIDTH: usize = 68;
    const HEIGHT: usize = 18;
    let axes = Axes::of(roofline);
    let mut cells = [[' '; WIDTH]; HEIGHT];
    let cell = |[x, y]: [f64; 2]| {
        let column = (x * (WIDTH - 1) as f64).round();
        let row = ((1.0 - y) * (HEIGHT - 1) as f64).round();
        let is_inside = |v: f64, n: usize| v >= 0.0 && v < n as f64;
        (is_inside(column, WIDTH) && is_inside(row, HEIGHT))
            .then_some((row as usize, column as usize))
    };
    for column in 0..WIDTH {
        let intensity = axes.intensity(column as f64 / (WIDTH - 1) as f64);
        let by_memory = intensity * roofline.peak_bytes_per_second;
        let roof = by_memory.min(roofline.peak_flops_per_second);
        if let Some((row, column)) = cell(axes.place(intensity, roof)) {
            let is_slope = by_memory < roofline.peak_flops_per_second;
            cells[row][column] = if is_slope { '/' } else { '-' };
        }
    }
    let mut any_shared = false;
    for (index, _, place) in points(roofline) {
        if let Some((row, column)) = cell(axes.place(place.intensity, place.flops_per_second)) {
            let cell = &mut cells[row][column];
            let is_taken = cell.is_alphabetic() || *cell == '*';
            any_shared |= is_taken;
            *cell = if is_taken { '*' } else { letter(index) };
        }
    }
    text.push_str("GFLOP/s\n");
    let mut labels = vec![String::new(); HEIGHT];
    for exponent in axes.y[0]..=axes.y[1] {
        let at = f64::from(exponent - axes.y[0]) / f64::from(axes.y[1] - axes.y[0]);
        let row = ((1.0 - at) * (HEIGHT - 1) as f64).round() as usize;
        labels[row] = decade(exponent - 9);
    }
    for (label, row) in labels.iter().zip(cells) {
        let line = format!("{label:>7} |{}", row.iter().collect::<String>());
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let mut ruler = ['-'; WIDTH];
    let mut ticks = vec![' '; WIDTH + 12];
    for exponent in axes.x[0]..=axes.x[1] {
        let at = f64::from(exponent - axes.x[0]) / f64::from(axes.x[1] - axes.x[0]);
        let column = (at * (WIDTH - 1) as f64).round() as usize;
        ruler[column] = '+';
        let label = decade(exponent);
        // The last one ends at the edge.
        let start = column.min(WIDTH - label.len());
        ticks.splice(start..start + label.len(), label.chars());
    }
    let _ = writeln!(text, "{:>7} +{}", "", ruler.iter().collect::<String>());
    let ticks: String = ticks.iter().collect();
    let _ = writeln!(text, "{:>9}{}", "", ticks.trim_end());
    let _ = writeln!(text, "{:>9}{:>WIDTH$}", "", "FLOP/byte");
    if any_shared {
        text.push_str("* several bricks\n");
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::CeilingReading;

    use super::*;

    #[test]
    fn each_measurement_of_memory_is_told() {
        let reading = |when, day: u32, gigabytes: f64| CeilingReading {
            when,
            measured: format!("2026-11-{day}"),
            read_bytes_per_second: gigabytes * 1e9,
            disturbed: false,
        };
        let mut ceilings = Ceilings::default();
        assert_eq!(memory_readings(&ceilings), "");
        // Added to a run that was made before.
        ceilings.readings.push(reading(ReadingTime::After, 24, 29.4));
        assert_eq!(memory_readings(&ceilings), "memory gave 29.4 GB/s after the run\n");
        ceilings.readings.clear();
        ceilings.readings.push(reading(ReadingTime::Kept, 20, 36.1));
        assert_eq!(
            memory_readings(&ceilings),
            "memory gave 36.1 GB/s at 1 earlier time since 2026-11-20\n"
        );
        for (day, gigabytes) in [(21, 35.8), (22, 62.4)] {
            ceilings.readings.push(reading(ReadingTime::Kept, day, gigabytes));
        }
        ceilings.readings.push(reading(ReadingTime::Before, 23, 63.0));
        ceilings.readings.push(reading(ReadingTime::After, 23, 35.2));
        assert_eq!(
            memory_readings(&ceilings),
            "memory gave 63.0 GB/s before the run, 35.2 GB/s after it, 35.8 to 62.4 GB/s at\n\
             3 earlier times since 2026-11-20; this machine has two states, 35.8 and 63.0\nGB/s\n"
        );
    }
}
