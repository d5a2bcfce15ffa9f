//! The demo's table.

use serde::Serialize;
use warpwright::Device;

use super::case::{Label, shape_name};
use super::deviation::Deviation;
use super::language::Trained;
use crate::table::Table;

/// What a low share means for sizes that take only some microseconds.
const SMALL: &str = "\nof limit: below some 0.02 ms the launch takes the time, not the memory";
const NO_FIGURE: &str = "–";

#[derive(Serialize)]
pub struct Report {
    device: String,
    name: String,
    /// GB/s of a copy, read and written, in the same run; none on the CPU.
    copy_gb_per_s: Option<f64>,
    pub rows: Vec<Row>,
    pub language: Option<Trained>,
}

#[derive(Serialize)]
pub struct Row {
    op: &'static str,
    shape: Vec<usize>,
    dtype: &'static str,
    mask: String,
    data: String,
    compared: u64,
    max_error: f64,
    /// Of the element that comes closest to its tolerance.
    error: f64,
    tolerance: f64,
    passed: bool,
    time_ms: f64,
    /// The least bytes that the operation must move, over the time.
    gb_per_s: Option<f64>,
    /// Of the copy's.
    share: Option<f64>,
}

impl Row {
    pub fn new(
        op: &'static str,
        label: Label,
        deviation: Deviation,
        time_ms: f64,
        floor_bytes: u64,
        copy_rate: Option<f64>,
    ) -> Row {
        let rate = floor_bytes as f64 / (time_ms / 1e3);
        Row {
            op,
            shape: label.shape,
            dtype: label.dtype.name(),
            mask: label.mask,
            data: label.data,
            compared: deviation.compared,
            max_error: deviation.max_error,
            error: deviation.error,
            tolerance: deviation.tolerance,
            passed: deviation.passed(),
            time_ms,
            gb_per_s: copy_rate.map(|_| rate / 1e9),
            share: copy_rate.map(|limit| rate / limit),
        }
    }
}

impl Report {
    pub fn new(device: &Device, copy_rate: Option<f64>) -> Report {
        let copy_gb_per_s = copy_rate.map(|rate| rate / 1e9);
        Report {
            device: device.to_string(),
            name: device.name().to_owned(),
            copy_gb_per_s,
            rows: Vec::new(),
            language: None,
        }
    }

    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|row| !row.passed).count()
    }

    pub fn render(&self) -> String {
        let header = [
            "op",
            "shape",
            "dtype",
            "mask",
            "input",
            "",
            "max error",
            "error",
            "tolerance",
            "ms",
            "GB/s",
            "of limit",
        ];
        let mut table = Table::new(&header, 6);
        for row in &self.rows {
            table.row(vec![
                row.op.to_owned(),
                shape_name(&row.shape),
                row.dtype.to_owned(),
                row.mask.clone(),
                row.data.clone(),
                if row.passed { "ok" } else { "WRONG" }.to_owned(),
                format!("{:.1e}", row.max_error),
                format!("{:.1e}", row.error),
                format!("{:.1e}", row.tolerance),
                format!("{:.3}", row.time_ms),
                row.gb_per_s.map_or(NO_FIGURE.into(), |rate| format!("{rate:.0}")),
                row.share.map_or(NO_FIGURE.into(), |share| format!("{:.0} %", share * 100.0)),
            ]);
        }
        let verdict = match self.failed() {
            0 => "all within tolerance".to_owned(),
            failed => format!("{failed} OUT OF TOLERANCE"),
        };
        let compared: u64 = self.rows.iter().map(|row| row.compared).sum();
        format!(
            "{}\n\n{}\n{} results, {compared} elements compared with the float64 reference: {verdict}\n\
             error, tolerance: of the element that comes closest to its tolerance{}\n\n{}",
            self.headline(),
            table.render(),
            self.rows.len(),
            if self.copy_gb_per_s.is_some() { SMALL } else { "" },
            self.language.as_ref().map_or_else(String::new, Trained::render),
        )
    }

    fn headline(&self) -> String {
        match self.copy_gb_per_s {
            Some(rate) => format!(
                "{}, {}; a copy of 1 GiB in this run moves {rate:.0} GB/s: the limit of operations bound by memory",
                self.device, self.name
            ),
            None => {
                "cpu: the GPU's kernels under the checker; times are the checker's, not a GPU's".to_owned()
            }
        }
    }
}
