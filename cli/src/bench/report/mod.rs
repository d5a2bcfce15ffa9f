//! One self-contained page of a run: a roofline, a bar for each case's share of the copy rate, and the figures. No
//! scripts and nothing loaded from elsewhere; light or dark as the reader's browser is.

mod bars;
mod paint;
mod roofline;
mod tables;

use std::path::Path;

use warpwright::Device;

use super::print::{begun_text, ended_text};
use super::row::Row;
use super::{Begun, Ended};
use crate::error::CliError;
use crate::output;

const STYLE: &str = include_str!("style.css");

/// What a run came to.
pub struct Report<'a> {
    pub begun: &'a Begun,
    pub ended: &'a Ended,
    pub machine: Machine,
    pub rows: &'a [Row],
}

/// What the roofline needs of the GPU beside the measured copy rate.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// f32 operations a second that the driver's facts come to, in billions; nothing measures it here.
    pub peak_gflops: Option<f64>,
}

impl Machine {
    pub fn of(device: &Device) -> Machine {
        let peak_gflops = device.info().map(|info| {
            // f32 lanes of a multiprocessor; a fused multiply-add counts as two operations.
            let lanes = if info.arch == (8, 0) { 64.0 } else { 128.0 };
            2.0 * lanes * f64::from(info.sm_count) * f64::from(info.clock_khz) / 1e6
        });
        Machine { peak_gflops }
    }
}

impl Report<'_> {
    /// Writes the page: all of it, or nothing.
    pub fn write(&self, path: &Path) -> Result<(), CliError> {
        output::write_file(path, &self.page()?)
    }

    /// The better of the two measurements of the yardstick: what nothing here may pass for long.
    fn copy_gbps(&self) -> f64 {
        self.ended.copy.as_ref().map_or(self.begun.copy.gbps, |copy| copy.gbps.max(self.begun.copy.gbps))
    }

    fn page(&self) -> Result<String, CliError> {
        let copy = self.copy_gbps();
        let name = escape(&self.begun.name);
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>Warpwright on {name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <h1>Warpwright on {name}</h1>\n"
        );
        let (major, minor) = self.begun.driver_cuda;
        let facts = format!(
            "{}\n{}\nwarpwright {}, driver for CUDA {major}.{minor}",
            begun_text(self.begun),
            ended_text(self.ended),
            env!("CARGO_PKG_VERSION"),
        );
        page.push_str("<ul>\n");
        facts.lines().for_each(|line| page.push_str(&format!("<li>{}</li>\n", escape(line))));
        page.push_str("</ul>\n");
        page.push_str(&format!(
            "<p>A share of 1.00 means: as fast as copying the same bytes, at {copy:.0} GB/s, the better of the copies \
             measured before and after. A bandwidth from a data sheet is not used.</p>\n"
        ));
        page.push_str("<h2>Roofline</h2>\n");
        page.push_str(&roofline::draw(self.rows, copy, self.machine)?);
        let mut ops: Vec<&str> = Vec::new();
        for row in self.rows {
            if !ops.contains(&row.op.as_str()) {
                ops.push(&row.op);
            }
        }
        for op in ops {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.op == op).collect();
            page.push_str(&format!("<h2>{}</h2>\n", escape(op)));
            page.push_str(&bars::draw(&rows, copy)?);
            page.push_str(&tables::table(&rows, copy));
        }
        page.push_str("</body>\n</html>\n");
        Ok(page)
    }
}

/// Text as HTML shows it.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::samples as rows;
    use crate::bench::samples as runs;

    #[test]
    fn a_page_needs_nothing_else() {
        let (rows, begun, ended) = (rows::rows(), runs::begun(), runs::ended());
        let machine = Machine { peak_gflops: Some(60_000.0) };
        let report = Report { begun: &begun, ended: &ended, machine, rows: &rows };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        report.write(&path).unwrap();
        let page = std::fs::read_to_string(&path).unwrap();
        // Where somebody wants to look at it.
        if let Some(kept) = std::env::var_os("WARPWRIGHT_SAMPLE_REPORT") {
            std::fs::write(kept, &page).unwrap();
        }
        for outside in ["http:", "https:", "src=", "href=", "@import", "url(", "<script"] {
            let found = page.replace("http://www.w3.org/2000/svg", "").contains(outside);
            assert!(!found, "{outside}");
        }
        assert_eq!(page.matches("<svg").count(), 3, "a roofline, and bars for two operations");
        assert_eq!(page.matches("<table").count(), 2);
        assert!(page.contains("out of memory &lt;allocating&gt; 9 bytes"));
        assert!(!page.contains(paint::INK_TEXT), "all ink has the page's colour");
        // 0.99 of 4000 GB/s, over the 4010 of the second copy.
        assert!(page.contains("<td>0.988</td>"));
    }

    #[test]
    fn a_run_without_figures_has_a_page_too() {
        let (begun, ended) = (runs::begun(), runs::ended());
        let failed = [rows::rows().pop().unwrap()];
        let report =
            Report { begun: &begun, ended: &ended, machine: Machine { peak_gflops: None }, rows: &failed };
        assert!(report.page().unwrap().contains("FAILED"));
    }
}
