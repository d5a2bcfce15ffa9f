//! Colours, and what the charts have in common.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::CliError;

/// Stands for the colour of the page's text, which the drawing library cannot know.
pub const INK: RGBColor = RGBColor(1, 2, 3);
/// [`INK`] as the drawing library writes it.
pub const INK_TEXT: &str = "#010203";
pub const FONT: &str = "system-ui, sans-serif";

/// Legible on white and on black.
const PALETTE: [RGBColor; 8] = [
    RGBColor(47, 129, 247),
    RGBColor(217, 115, 13),
    RGBColor(45, 164, 78),
    RGBColor(163, 113, 247),
    RGBColor(214, 51, 108),
    RGBColor(13, 159, 159),
    RGBColor(176, 136, 0),
    RGBColor(110, 119, 129),
];

pub fn colour(index: usize) -> RGBColor {
    PALETTE[index % PALETTE.len()]
}

/// Text of this size in the page's colour.
pub fn ink(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// The same, anchored at a point to its side, in the middle of its height.
pub fn anchored(size: u32, side: HPos) -> TextStyle<'static> {
    ink(size).pos(Pos::new(side, VPos::Center))
}

/// An SVG element of this size, for the page.
pub fn svg(
    chart: &'static str,
    title: &str,
    size: (u32, u32),
    paint: impl FnOnce(&DrawingArea<SVGBackend, plotters::coord::Shift>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<String, CliError> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    let painted = paint(&area).and_then(|()| Ok(area.present()?));
    drop(area);
    painted.map_err(|error| CliError::Chart { chart, reason: error.to_string() })?;
    let (width, height) = size;
    let fixed = format!("<svg width=\"{width}\" height=\"{height}\"");
    let free = format!("<svg role=\"img\" aria-label=\"{}\"", super::escape(title));
    // As wide as the page, and in its colours.
    Ok(text.replacen(&fixed, &free, 1).replace(INK_TEXT, "currentColor"))
}
