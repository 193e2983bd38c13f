//! The SVG file: `inferno`'s page and script, with our header and our frames.
//!
//! `inferno` could draw the frames as well, but it splits names at `;` and at the last space, has one
//! unit for all weights, and can't colour a single frame. So it gets stacks of the right height only,
//! and its frames are replaced by ours. This way names need no escaping for it.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use brickscope_analysis::stacks::Unit;
use brickscope_analysis::text::xml;
use inferno::flamegraph::color::{BackgroundColor, Color};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

use crate::flame::captions::of_hidden;
use crate::flame::summary::{Frames, Hidden};
use crate::text::{broken, columns, cut, printable_text};

/// The contents of a page.
pub(super) struct Page<'l> {
    pub(super) title: &'l str,
    /// Lines below the title.
    pub(super) lines: &'l [String],
    /// The legend of colours.
    pub(super) legend: &'l [(Color, String)],
    /// In pixels; `None` is as wide as the window.
    pub(super) width: Option<u32>,
    /// What weights count, and their total.
    pub(super) unit: Unit,
    pub(super) total: u64,
    /// The root first, and callers before their callees.
    pub(super) frames: Vec<Drawn>,
    /// The frames that are too narrow to be among them.
    pub(super) left_out: Frames,
}

/// A picture that was drawn.
#[derive(Debug)]
pub(crate) struct Picture {
    /// The SVG file.
    pub(crate) text: String,
    pub(crate) hidden: Hidden,
}

/// A frame to draw.
pub(super) struct Drawn {
    pub(super) depth: usize,
    /// Its position from the left, in weight.
    pub(super) start: u64,
    pub(super) weight: u64,
    pub(super) colour: Color,
    pub(super) name: String,
    /// The text of the tooltip after the name. It must not contain a parenthesis, since for the script the
    /// name ends at the last one.
    pub(super) figures: String,
}

/// The width if no script fits the page to the window.
const WIDTH: u32 = 1200;
/// On a narrower page the buttons would overlap the title.
const LEAST_WIDTH: u32 = 400;
/// The measures of `inferno`: the font size, the width of a letter relative to it (of DejaVu Sans Mono, which is the
/// widest of the usual ones), the height of a frame,
/// and the margins: left and right, above the frames without a subtitle, and below.
const FONT_SIZE: usize = 12;
const FONT_WIDTH: f64 = 0.602;
const ROW: usize = 16;
const SIDE: usize = 10;
const ABOVE: usize = 3 * FONT_SIZE;
const BELOW: usize = 2 * FONT_SIZE + 10;
/// The position of the first line below the title; each further one is a row lower.
const FIRST_LINE: usize = 42;
/// The title's font is this much larger, and its row has a button on both sides.
const TITLE_SIZE: usize = FONT_SIZE + 5;
const BUTTON: f64 = 100.0;

/// The place where `inferno`'s frames begin. Everything after it is ours.
const FRAMES: &str = "<svg id=\"frames\"";

/// How `inferno`'s script cuts a name, and how ours does: at its end, with an ellipsis, and not to a letter.
const CUT: [(&str, &str); 2] = [
    (
        "txt.substring(0, substringLength) + \"..\"",
        "substringLength > 1 ? txt.substring(0, substringLength) + \"…\" : \"\"",
    ),
    ("txt.substring(0, x) + \"..\"", "x > 1 ? txt.substring(0, x) + \"…\" : \"\""),
];

/// A thin line separates frames of one colour, and hovering highlights a frame.
const STYLE: &str = "<style type=\"text/css\">\n\
    #frames rect { stroke: rgb(252,252,252); stroke-width: 0.4; }\n\
    #frames > *:hover > rect { stroke: black; stroke-width: 0.8; }\n\
    #search { opacity: 0.6; }\n\
    </style>\n";

impl Page<'_> {
    /// # Errors
    ///
    /// If the width is too small, or `inferno` writes a different page than this code expects.
    pub(super) fn svg(&self) -> Result<Picture> {
        let width = self.width.unwrap_or(WIDTH);
        if width < LEAST_WIDTH {
            bail!("a flamegraph is at least {LEAST_WIDTH} pixels wide, not {width}");
        }
        let depth = self.frames.iter().map(|frame| frame.depth).max().unwrap_or(0);
        // The header's lines take the place of rows of frames, which moves everything else down.
        let labels = self.labels(width);
        let hidden = self.hidden(width, &labels);
        let lines = self.lines(width, &hidden);
        let rows = depth + lines.len() + usize::from(!self.legend.is_empty());
        let mut svg = self.frame_of_page(width, rows)?;
        self.header(&mut svg, &lines);
        self.frames(&mut svg, width, rows, &labels);
        svg.push_str("</svg></svg>\n");
        Ok(Picture { text: svg, hidden })
    }

    /// What is written in each frame: its name, as far as it fits.
    fn labels(&self, width: u32) -> Vec<Label> {
        let pixels = f64::from(width) - 2.0 * SIDE as f64;
        let label = |frame: &Drawn| {
            let wide = frame.weight as f64 / self.total as f64 * pixels;
            let name = printable_text(&frame.name);
            // As `inferno`'s script does it in a browser, with our ellipsis: a blank follows each name. Of fewer than
            // two letters nobody knows a name.
            let room = (wide - 3.0) / (FONT_SIZE as f64 * FONT_WIDTH);
            match room as usize {
                _ if ((columns(&name) + 1) as f64) < room => Label::Whole(name),
                0..=3 => Label::None,
                fits => Label::Shortened(cut(&name, fits - 1)),
            }
        };
        self.frames.iter().map(label).collect()
    }

    fn hidden(&self, width: u32, labels: &[Label]) -> Hidden {
        let sum = |is_counted: fn(&Label) -> bool| {
            let mut sum = Frames::default();
            // The depth of the counted frame around the next ones, whose weight is counted already.
            let mut around = None;
            for (frame, _) in self.frames.iter().zip(labels).filter(|(_, l)| is_counted(l)) {
                sum.frames += 1;
                if around.is_none_or(|(depth, end)| frame.depth <= depth || frame.start >= end) {
                    sum.weight = sum.weight.saturating_add(frame.weight);
                    around = Some((frame.depth, frame.start.saturating_add(frame.weight)));
                }
            }
            sum
        };
        Hidden {
            width,
            left_out: self.left_out,
            unnamed: sum(|label| matches!(label, Label::None)),
            shortened: sum(|label| matches!(label, Label::Shortened(_))),
        }
    }

    /// The lines below the title, wrapped: the whole title if it doesn't fit, the given lines, and what
    /// isn't shown in full.
    fn lines(&self, width: u32, hidden: &Hidden) -> Vec<String> {
        let room = (f64::from(width) - 2.0 * SIDE as f64) / (0.6 * FONT_SIZE as f64);
        let title = printable_text(self.title);
        let is_cut = cut(&title, room_of_title(width)) != title;
        let title = is_cut.then_some(title);
        let lines = self.lines.iter().map(|line| printable_text(line));
        let of_hidden = of_hidden(hidden, self.unit, self.total);
        let lines = title.into_iter().chain(lines).chain(of_hidden);
        lines.flat_map(|line| broken(&line, room as usize)).collect()
    }

    /// The page up to the frames, with room for `rows` above the root.
    fn frame_of_page(&self, width: u32, rows: usize) -> Result<String> {
        let mut options = Options::default();
        options.title = cut(&printable_text(self.title), room_of_title(width));
        options.name_type = String::new();
        options.image_width = self.width.map(|width| width as usize);
        options.frame_height = ROW;
        options.font_size = FONT_SIZE;
        options.font_width = FONT_WIDTH;
        options.bgcolors = Some(BackgroundColor::Flat(Color { r: 252, g: 252, b: 252 }));
        // Otherwise `inferno` draws random colours, which we replace anyway.
        options.deterministic = true;
        options.text_truncate_direction = TextTruncateDirection::Right;
        let line = vec!["x"; rows.max(1)].join(";") + " 1";
        let mut page = Vec::new();
        from_lines(&mut options, [line.as_str()], &mut page).context("inferno")?;
        let mut page = String::from_utf8(page).context("inferno")?;
        let height = ABOVE + (rows.max(1) + 1) * ROW + BELOW;
        let Some(at) =
            page.find(FRAMES).filter(|_| page.contains(&format!(" height=\"{height}\"")))
        else {
            bail!("inferno writes a different page than brickscope expects");
        };
        page.truncate(at);
        for (dots, ellipsis) in CUT {
            if !page.contains(dots) {
                bail!("inferno's script cuts names in another way than brickscope expects");
            }
            page = page.replace(dots, ellipsis);
        }
        Ok(page)
    }

    fn header(&self, svg: &mut String, lines: &[String]) {
        svg.push_str(STYLE);
        let mut y = FIRST_LINE;
        for line in lines {
            let line = xml(line);
            let _ = writeln!(
                svg,
                "<text class=\"subtitle\" text-anchor=\"middle\" x=\"50%\" y=\"{y}\" fill=\"#555\">{line}</text>"
            );
            y += ROW;
        }
        if self.legend.is_empty() {
            return;
        }
        let _ = write!(svg, "<text id=\"legend\" text-anchor=\"middle\" x=\"50%\" y=\"{y}\">");
        for (nth, (colour, text)) in self.legend.iter().enumerate() {
            // Consecutive spaces would become one.
            let gap = if nth > 0 { "\u{a0}\u{a0} " } else { "" };
            let Color { r, g, b } = *colour;
            let _ = write!(
                svg,
                "{gap}<tspan fill=\"rgb({r},{g},{b})\">■</tspan>\u{a0}{}",
                xml(&printable_text(text)).replace(' ', "\u{a0}")
            );
        }
        svg.push_str("</text>\n");
    }

    fn frames(&self, svg: &mut String, width: u32, rows: usize, labels: &[Label]) {
        let pixels = f64::from(width) - 2.0 * SIDE as f64;
        let total = self.total as f64;
        let root = ABOVE + (rows.max(1) + 1) * ROW;
        let _ = writeln!(
            svg,
            "{FRAMES} x=\"{SIDE}\" width=\"{pixels}\" total_samples=\"{}\">",
            self.total
        );
        for (frame, label) in self.frames.iter().zip(labels) {
            let x = 100.0 * frame.start as f64 / total;
            let wide = 100.0 * frame.weight as f64 / total;
            let bottom = root - frame.depth * ROW;
            let top = bottom - ROW + 1;
            let name = printable_text(&frame.name);
            let label = match label {
                Label::None => "",
                Label::Whole(label) | Label::Shortened(label) => label,
            };
            let Color { r, g, b } = frame.colour;
            let _ = writeln!(
                svg,
                "<g><title>{} ({})</title><rect x=\"{x:.4}%\" y=\"{top}\" width=\"{wide:.4}%\" \
                 height=\"{}\" fill=\"rgb({r},{g},{b})\" fg:x=\"{}\" fg:w=\"{}\"/>\
                 <text x=\"{:.4}%\" y=\"{:.2}\">{}</text></g>",
                xml(&name),
                xml(&frame.figures),
                ROW - 1,
                frame.start,
                frame.weight,
                x + 100.0 * 3.0 / pixels,
                3.0 + (top + bottom) as f64 / 2.0,
                xml(label),
            );
        }
    }
}

/// What is written in a frame.
enum Label {
    None,
    Whole(String),
    Shortened(String),
}

/// The letters of a title between the buttons.
fn room_of_title(width: u32) -> usize {
    ((f64::from(width) - 2.0 * BUTTON) / (0.6 * TITLE_SIZE as f64)) as usize
}
