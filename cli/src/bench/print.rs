//! Results on the standard output, each as soon as it is there: a run may be cut off.

use serde::Serialize;
use serde_json::json;

use super::case::{Case, shape_name};
use super::row::Row;
use super::{Begun, Ended};
use crate::error::CliError;
use crate::output;

/// Prints lines of JSON, or of a table whose columns are as wide as the list of cases needs.
pub enum Printer {
    Json,
    Table(Widths),
}

/// Of operation, shape and variant, in characters.
pub struct Widths {
    op: usize,
    shape: usize,
    variant: usize,
}

impl Printer {
    pub fn new(json: bool, cases: &[Case]) -> Printer {
        if json {
            return Printer::Json;
        }
        let widest = |header: &str, cell: &dyn Fn(&Case) -> usize| {
            cases.iter().map(cell).max().unwrap_or(0).max(header.len())
        };
        Printer::Table(Widths {
            op: widest("op", &|case| case.op.len()),
            shape: widest("shape", &|case| shape_name(&case.shape).len()),
            variant: widest("variant", &|case| case.variant.len()),
        })
    }

    /// The machine, and the yardstick.
    pub fn begin(&self, begun: &Begun) -> Result<(), CliError> {
        match self {
            Printer::Json => json_line(begun),
            Printer::Table(widths) => output::print(&format!("{}\n\n{}", begun_text(begun), widths.header())),
        }
    }

    pub fn row(&self, row: &Row) -> Result<(), CliError> {
        match self {
            Printer::Json => json_line(row),
            Printer::Table(widths) => output::print(&widths.row(row)),
        }
    }

    /// The yardstick once more, and what failed.
    pub fn end(&self, ended: &Ended) -> Result<(), CliError> {
        match self {
            Printer::Json => json_line(&json!({ "ended": ended })),
            Printer::Table(_) => output::print(&format!("\n{}", ended_text(ended))),
        }
    }
}

fn json_line(object: &impl Serialize) -> Result<(), CliError> {
    output::print(&serde_json::to_string(object).map_err(|source| CliError::Json { source })?)
}

/// What the table and the report say of the machine.
pub fn begun_text(begun: &Begun) -> String {
    let all = |copies: &[super::copy::Contender]| {
        let each = copies.iter().map(|copy| format!("{} {:.0}", copy.name, copy.gbps));
        each.collect::<Vec<_>>().join(", ")
    };
    let torch = begun.torch.as_ref().map_or_else(String::new, |torch| {
        let rate = torch.copy_gbps.map_or_else(String::new, |rate| format!("; its copy: {rate:.0} GB/s"));
        format!("\nPyTorch {}{rate}; figures of it are its time over ours", torch.version)
    });
    format!(
        "{}, {}\na copy of {} MiB moves {:.0} GB/s at best, by {}: shares are of that ({})\n\
         the device is open after {:.0} ms, a first small result is there {:.0} ms later{torch}",
        begun.device,
        begun.name,
        begun.size_mib,
        begun.copy.gbps,
        begun.copy.by,
        all(&begun.copy.all),
        begun.cold_start.open_ms,
        begun.cold_start.first_result_ms,
    )
}

pub fn ended_text(ended: &Ended) -> String {
    let copy = match &ended.copy {
        Some(copy) => format!("the copy at the end: {:.0} GB/s by {}; ", copy.gbps, copy.by),
        None => String::new(),
    };
    let skipped = match ended.skipped {
        0 => String::new(),
        skipped => format!(", {skipped} left out since the budget was spent"),
    };
    let cases = if ended.cases == 1 { "case" } else { "cases" };
    format!("{copy}{} {cases} in {:.0} s, {} failed{skipped}", ended.cases, ended.seconds, ended.failed)
}

impl Widths {
    fn line(&self, text: [&str; 4], numbers: [&str; 4], rest: [&str; 2]) -> String {
        let ([op, shape, dtype, variant], [us, spread, gbps, share], [plan, torch]) = (text, numbers, rest);
        let line = format!(
            "{op:<0$}  {shape:<1$}  {dtype:<5}  {variant:<2$}  {us:>9}  {spread:>6}  {gbps:>6}  {share:>5}  {plan:<18}  {torch}",
            self.op, self.shape, self.variant
        );
        line.trim_end().to_owned()
    }

    fn header(&self) -> String {
        let numbers = ["µs", "spread", "GB/s", "share"];
        self.line(["op", "shape", "dtype", "variant"], numbers, ["plan", "PyTorch"])
    }

    fn row(&self, row: &Row) -> String {
        let shape = row.shape_name();
        let text = [row.op.as_str(), &shape, &row.dtype, &row.variant];
        let error = row.error.as_deref().unwrap_or_default();
        let Some(figures) = row.figures else {
            return self.line(text, ["–"; 4], [&row.plan, &format!("FAILED: {error}")]);
        };
        let numbers = [
            format!("{:.2}", figures.us),
            format!("{:.1} %", figures.spread * 100.0),
            format!("{:.0}", figures.gbps),
            format!("{:.3}", figures.share),
        ];
        let failed = if error.is_empty() { String::new() } else { format!("  FAILED: {error}") };
        let like_copy = figures.share_of_like_copy.map(|share| format!("like copy {share:.2}  "));
        let torch = format!("{}{}{failed}", like_copy.unwrap_or_default(), row.ratio_text());
        self.line(text, numbers.each_ref().map(String::as_str), [&row.plan, &torch])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::samples;
    use crate::bench::samples as runs;

    #[test]
    fn lines_have_their_columns_below_one_another() {
        let widths = Widths { op: 14, shape: 13, variant: 9 };
        let rows = samples::rows();
        let column = |line: &str, what: &str| line.split(what).next().unwrap().chars().count();
        let (header, first) = (widths.header(), widths.row(&rows[0]));
        assert_eq!(column(&header, "plan"), column(&first, "row 3"), "{header}\n{first}");
        let mut beside_copy = rows[0].clone();
        beside_copy.figures.as_mut().unwrap().share_of_like_copy = Some(0.942);
        assert_eq!(column(&header, "PyTorch"), column(&widths.row(&beside_copy), "like copy 0.94  "));
        assert!(first.starts_with("masked_softmax  524288x128     f32    mask=none     "), "{first}");
        assert!(
            first.ends_with(
                "135.57   1.0 %    3960  0.990  row 3               compile 1.20  eager 3.10  softmax 1.02"
            ),
            "{first}"
        );
        let failed = widths.row(rows.last().unwrap());
        assert!(failed.ends_with("FAILED: cuda:0: out of memory <allocating> 9 bytes"), "{failed}");
    }

    #[test]
    fn the_yardstick_is_told_at_the_beginning_and_at_the_end() {
        let text = begun_text(&runs::begun());
        assert!(text.contains("256 MiB moves 4000 GB/s at best, by copy_8: shares are of that"), "{text}");
        assert!(text.contains("PyTorch 2.11; "), "{text}");
        let text = ended_text(&runs::ended());
        assert_eq!(
            text,
            "the copy at the end: 4010 GB/s by copy_8; 19 cases in 61 s, 1 failed, 2 left out since the budget was spent"
        );
    }
}
