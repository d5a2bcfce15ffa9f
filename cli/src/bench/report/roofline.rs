//! Rate of arithmetic over arithmetic for each byte, with the two limits: memory's slope, as measured by the
//! copy, and the flat roof that the number of multiprocessors and their clock come to.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::Machine;
use super::paint::{INK, anchored, colour, ink, svg};
use crate::bench::row::{Figures, Row};
use crate::error::CliError;

const SIZE: (u32, u32) = (960, 480);
const TYPES: [&str; 3] = ["f32", "bf16", "f16"];

pub fn draw(rows: &[Row], copy_gbps: f64, machine: Machine) -> Result<String, CliError> {
    let mut points: Vec<(&str, &str, f64, f64)> = Vec::new();
    for row in rows {
        if let Some((intensity, gflops)) = row.figures.and_then(|figures| point(&figures)) {
            points.push((&row.op, &row.dtype, intensity, gflops));
        }
    }
    if points.is_empty() {
        return Ok("<p>No case was timed.</p>\n".to_owned());
    }
    let mut ops: Vec<&str> = points.iter().map(|point| point.0).collect();
    ops.dedup();
    ops.sort_unstable();
    ops.dedup();
    let peak = machine.peak_gflops;
    // From well below the points to past the ridge.
    let ridge = peak.map_or(10.0, |peak| peak / copy_gbps);
    let lowest = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min) / 3.0;
    let x = lowest(&mut points.iter().map(|point| point.2))..ridge * 10.0;
    let bottom = lowest(&mut points.iter().map(|point| point.3)).min(copy_gbps * x.start);
    let y = bottom..peak.unwrap_or(copy_gbps * x.end) * 3.0;
    let roof = |x: f64| (copy_gbps * x).min(peak.unwrap_or(f64::MAX));

    svg("roofline", "Roofline of all cases", SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(72)
            .build_cartesian_2d(x.clone().log_scale(), y.clone().log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(INK.mix(0.0))
            .bold_line_style(INK.mix(0.15))
            .axis_style(INK.mix(0.6))
            .label_style(ink(13))
            .axis_desc_style(ink(14))
            .x_desc("operations a byte")
            .y_desc("GFLOP/s")
            .x_label_formatter(&|x| number(*x))
            .y_label_formatter(&|y| number(*y))
            .draw()?;
        let corners = [x.start, ridge.min(x.end), x.end].map(|x| (x, roof(x)));
        chart.draw_series(LineSeries::new(corners, INK.mix(0.8).stroke_width(2)))?;
        let label = |text: String, at: (f64, f64), side| Text::new(text, at, anchored(13, side));
        let middle = (x.start * ridge.min(x.end)).sqrt();
        let on_slope = (middle / 1.15, roof(middle) * 1.1);
        chart.draw_series([label(format!("copy, measured: {copy_gbps:.0} GB/s"), on_slope, HPos::Right)])?;
        if let Some(peak) = peak {
            let text = format!("f32 by lanes and clock, not measured: {:.0} TFLOP/s", peak / 1e3);
            chart.draw_series([label(text, (x.end * 0.9, peak * 1.6), HPos::Right)])?;
        }
        for (op, dtype, x, y) in &points {
            let colour = colour(ops.iter().position(|name| name == op).unwrap_or_default());
            mark(&mut chart, dtype, (*x, *y), colour)?;
        }
        // The legend, in the corner that the roof leaves free.
        let place = |row: usize| (620, 300 - 18 * (ops.len() as i32 - 3).max(0) + 18 * row as i32);
        for (row, op) in ops.iter().enumerate() {
            let at = place(row);
            area.draw(&Circle::new(at, 5, colour(row).filled()))?;
            area.draw(&Text::new((*op).to_owned(), (at.0 + 14, at.1), anchored(14, HPos::Left)))?;
        }
        let at = place(ops.len());
        let text = "● f32   ▲ bf16   ✕ f16";
        area.draw(&Text::new(text, (at.0 - 5, at.1), anchored(14, HPos::Left)))?;
        Ok(())
    })
}

/// Operations a byte, and billions of them a second; `None` for what only moves bytes.
fn point(figures: &Figures) -> Option<(f64, f64)> {
    let (flops, bytes) = (figures.flops as f64, figures.bytes as f64);
    (flops > 0.0 && bytes > 0.0).then_some((flops / bytes, flops / figures.us / 1e3))
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::combinators::LogCoord<f64>, plotters::coord::combinators::LogCoord<f64>>,
>;

/// A point whose form tells the type.
fn mark(
    chart: &mut Chart,
    dtype: &str,
    at: (f64, f64),
    colour: RGBColor,
) -> Result<(), Box<dyn std::error::Error>> {
    let style = colour.mix(0.8).filled();
    match TYPES.iter().position(|name| *name == dtype) {
        Some(1) => chart.draw_series([TriangleMarker::new(at, 5, style)]).map(drop)?,
        Some(2) => chart.draw_series([Cross::new(at, 4, colour.stroke_width(2))]).map(drop)?,
        _ => chart.draw_series([Circle::new(at, 4, style)]).map(drop)?,
    }
    Ok(())
}

/// `0.1`, `10`, `10 k`.
fn number(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} M", value / 1e6),
        value if value >= 1e3 => format!("{} k", value / 1e3),
        value => format!("{}", (value * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_where_the_figures_put_it() {
        let figures = Figures {
            us: 100.0,
            spread: 0.0,
            bytes: 400,
            flops: 200,
            gbps: 1.0,
            share: 1.0,
            share_of_like_copy: None,
        };
        assert_eq!(point(&figures), Some((0.5, 0.002)));
        assert_eq!(point(&Figures { flops: 0, ..figures }), None);
        assert_eq!(["0.1", "10", "10 k", "1 M"], [0.1, 10.0, 1e4, 1e6].map(number));
    }
}
