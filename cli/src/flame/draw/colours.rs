//! The colours of frames.

use brickscope_analysis::stacks::{Class, Frame, Level};
use inferno::flamegraph::color::Color;

/// The colour of a class.
pub(super) fn of_class(class: Class) -> Color {
    let [r, g, b] = class.rgb();
    rgb(r, g, b)
}

/// The colour of a frame. Its class decides the hue, its level how dark a grey is, and its name a small
/// shift, so that neighbours differ. The same name has the same colour in every flamegraph.
pub(super) fn of_frame(frame: Option<&Frame>) -> Color {
    let Some(frame) = frame else { return rgb(178, 178, 178) };
    let base = match (frame.class, frame.level) {
        (Class::Other, Level::Thread) => rgb(184, 184, 184),
        (Class::Other, Level::Phase) => rgb(192, 192, 192),
        (Class::Other, Level::Layer) => rgb(202, 202, 202),
        (Class::Other, Level::Brick) => rgb(212, 212, 212),
        (Class::Other, Level::Kernel | Level::Tile | Level::Function) => rgb(224, 224, 224),
        (class, _) => of_class(class),
    };
    // A shifted grey would look like another level.
    let most = if frame.class == Class::Other { 4 } else { 11 };
    let shift = (fnv1a(&frame.name) % (2 * most + 1)) as i16 - most as i16;
    let shifted = |channel: u8| (i16::from(channel) + shift).clamp(0, 255) as u8;
    rgb(shifted(base.r), shifted(base.g), shifted(base.b))
}

/// The colour of a share that grew.
pub(super) const MORE: Color = rgb(214, 40, 40);
/// The colour of a share that shrank.
pub(super) const LESS: Color = rgb(38, 92, 196);

/// A colour between white and the full colour, by the size of `change` relative to `most`.
pub(super) fn of_change(change: f64, most: f64) -> Color {
    let strength = if most > 0.0 { (change.abs() / most).clamp(0.0, 1.0) } else { 0.0 };
    let full = if change < 0.0 { LESS } else { MORE };
    // Never quite full, so that black text stays readable on it.
    let mixed =
        |channel: u8| (255.0 - 0.75 * strength * (255.0 - f64::from(channel))).round() as u8;
    rgb(mixed(full.r), mixed(full.g), mixed(full.b))
}

const fn rgb(r: u8, g: u8, b: u8) -> Color {
    Color { r, g, b }
}

/// The 64-bit FNV-1a hash.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flame::draw::tests::function;

    /// The relative luminance of WCAG 2.1.
    fn luminance(colour: Color) -> f64 {
        let linear = |channel: u8| {
            let c = f64::from(channel) / 255.0;
            if c <= 0.03928 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(colour.r) + 0.7152 * linear(colour.g) + 0.0722 * linear(colour.b)
    }

    #[test]
    fn black_text_is_readable_on_every_colour() {
        let mut colours = vec![of_change(1.0, 1.0), of_change(-1.0, 1.0), of_frame(None)];
        for class in Class::ALL {
            for level in [Level::Thread, Level::Brick, Level::Function] {
                for n in 0..100 {
                    let frame = Frame { class, level, ..function(&format!("f{n}")) };
                    colours.push(of_frame(Some(&frame)));
                }
            }
        }
        for colour in colours {
            // The least contrast that WCAG 2.1 asks for is 4.5.
            assert!((luminance(colour) + 0.05) / 0.05 >= 4.5, "{colour:?}");
        }
    }

    #[test]
    fn changes_go_from_white_to_red_or_blue() {
        assert_eq!(of_change(0.0, 5.0), rgb(255, 255, 255));
        let (more, most) = (of_change(1.0, 5.0), of_change(5.0, 5.0));
        assert!(more.r > more.b && most.r > most.b && most.b < more.b, "{more:?} {most:?}");
        let less = of_change(-5.0, 5.0);
        assert!(less.b > less.r, "{less:?}");
    }
}
