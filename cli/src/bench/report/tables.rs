//! The figures of an operation.

use std::collections::BTreeSet;

use super::escape;
use crate::bench::row::Row;

pub fn table(rows: &[&Row], copy_gbps: f64) -> String {
    // What PyTorch's side was timed at, in any of the cases.
    let others: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.torch_us.keys().map(String::as_str)).collect();
    let mut text = String::from("<table>\n<tr>");
    for name in ["shape", "dtype", "variant", "plan"] {
        text.push_str(&format!("<th class=\"text\">{name}</th>"));
    }
    for name in ["µs", "spread", "GB/s", "share"] {
        text.push_str(&format!("<th>{name}</th>"));
    }
    for name in &others {
        text.push_str(&format!("<th>PyTorch<br>{} / ours</th>", escape(name)));
    }
    text.push_str("</tr>\n");
    for row in rows {
        text.push_str("<tr>");
        for cell in [&row.shape_name(), &row.dtype, &row.variant, &row.plan] {
            text.push_str(&format!("<td class=\"text\">{}</td>", escape(cell)));
        }
        if let Some(figures) = &row.figures {
            let (us, spread, gbps) = (figures.us, figures.spread * 100.0, figures.gbps);
            let share = gbps / copy_gbps;
            text.push_str(&format!(
                "<td>{us:.2}</td><td>{spread:.1} %</td><td>{gbps:.0}</td><td>{share:.3}</td>"
            ));
            for name in &others {
                let ratio = row.ratios().find(|(timed, _)| timed == name);
                text.push_str(
                    &ratio.map_or("<td></td>".to_owned(), |(_, ratio)| format!("<td>{ratio:.2}</td>")),
                );
            }
        }
        if let Some(error) = &row.error {
            let columns = if row.figures.is_some() { 1 } else { 4 + others.len() };
            text.push_str(&format!(
                "<td class=\"text failed\" colspan=\"{columns}\">FAILED: {}</td>",
                escape(error)
            ));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</table>\n");
    text
}
