//! A bar for each case: its share of the copy rate.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::paint::{INK, anchored, colour, svg};
use crate::bench::row::Row;
use crate::error::CliError;

const WIDTH: u32 = 960;
const LINE: i32 = 18;
const TOP: i32 = 26;
/// Where bars begin, and how long a share of 1 is.
const LEFT: i32 = 330;
const UNIT: f64 = 480.0;
/// Longer bars are cut.
const MOST: f64 = 1.15;
/// Where numbers end.
const NUMBERS: i32 = WIDTH as i32 - 20;

/// The cases of one operation.
pub fn draw(rows: &[&Row], copy_gbps: f64) -> Result<String, CliError> {
    let rows: Vec<(&Row, f64)> =
        rows.iter().filter_map(|row| Some((*row, row.figures?.gbps / copy_gbps))).collect();
    let Some((first, _)) = rows.first() else { return Ok(String::new()) };
    let mut dtypes: Vec<&str> = Vec::new();
    for (row, _) in &rows {
        if !dtypes.contains(&row.dtype.as_str()) {
            dtypes.push(&row.dtype);
        }
    }
    let height = TOP + LINE * rows.len() as i32 + 8;
    let title = format!("Share of the copy rate: {}", first.op);
    svg("bars", &title, (WIDTH, height as u32), |area| {
        for tenth in [0, 2, 4, 6, 8, 10] {
            let (share, strength) = (f64::from(tenth) / 10.0, if tenth == 10 { 0.8 } else { 0.15 });
            let x = LEFT + (share * UNIT) as i32;
            area.draw(&PathElement::new([(x, TOP - 4), (x, height - 8)], INK.mix(strength)))?;
            area.draw(&Text::new(format!("{share:.1}"), (x, 10), anchored(12, HPos::Center)))?;
        }
        for (line, (row, share)) in rows.iter().enumerate() {
            let middle = TOP + LINE * line as i32 + LINE / 2;
            let colour = colour(dtypes.iter().position(|name| *name == row.dtype).unwrap_or_default());
            let name = format!("{} {} {}", row.shape_name(), row.dtype, row.variant);
            area.draw(&Text::new(name, (LEFT - 8, middle), anchored(12, HPos::Right)))?;
            let end = LEFT + (share.clamp(0.0, MOST) * UNIT) as i32;
            area.draw(&Rectangle::new([(LEFT, middle - 6), (end, middle + 6)], colour.mix(0.75).filled()))?;
            area.draw(&Text::new(format!("{share:.2}"), (NUMBERS, middle), anchored(12, HPos::Right)))?;
        }
        Ok(())
    })
}
