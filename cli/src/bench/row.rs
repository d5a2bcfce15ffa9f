//! What came of a case: a line of the table, an object of `--json`, a row of the report.

use serde::Serialize;

use super::against::Times;
use super::case::{Case, Way, shape_name};
use super::harness::Timing;

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub op: String,
    pub shape: Vec<usize>,
    pub dtype: String,
    pub variant: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub plan: String,
    #[serde(flatten)]
    pub figures: Option<Figures>,
    /// PyTorch's times, in microseconds.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub torch_us: Times,
    /// Why there are no figures, or none of PyTorch's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    pub us: f64,
    pub spread: f64,
    /// The least that must be moved.
    pub bytes: u64,
    pub flops: u64,
    pub gbps: f64,
    /// Of the yardstick.
    pub share: f64,
    /// Of a copy of as many bytes, where the case is compared with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_of_like_copy: Option<f64>,
}

impl Row {
    fn new(case: &Case, plan: &str) -> Row {
        Row {
            op: case.op.to_owned(),
            shape: case.shape.clone(),
            dtype: case.dtype.name().to_owned(),
            variant: case.variant.clone(),
            plan: plan.to_owned(),
            figures: None,
            torch_us: Times::new(),
            error: None,
        }
    }

    /// A case that was timed; `yardstick` and the rate of a copy of as many bytes are in GB/s.
    pub fn timed(
        case: &Case,
        way: &Way,
        bytes: u64,
        timing: Timing,
        yardstick: f64,
        like_copy: Option<f64>,
    ) -> Row {
        let gbps = timing.gbps(bytes);
        let Timing { us, spread } = timing;
        let share_of_like_copy = like_copy.map(|rate| gbps / rate);
        let share = gbps / yardstick;
        let figures = Figures { us, spread, bytes, flops: case.flops, gbps, share, share_of_like_copy };
        Row { figures: Some(figures), ..Row::new(case, &way.plan) }
    }

    /// A case that failed.
    pub fn failed(case: &Case, plan: &str, error: String) -> Row {
        Row { error: Some(error), ..Row::new(case, plan) }
    }

    /// `64x16x512x128`.
    pub fn shape_name(&self) -> String {
        shape_name(&self.shape)
    }

    /// PyTorch's times over ours, by what was timed.
    pub fn ratios(&self) -> impl Iterator<Item = (&str, f64)> {
        let ours = self.figures.map(|figures| figures.us);
        self.torch_us.iter().filter_map(move |(name, us)| Some((name.as_str(), us / ours?)))
    }

    /// [`Row::ratios`], in words.
    pub fn ratio_text(&self) -> String {
        self.ratios().map(|(name, ratio)| format!("{name} {ratio:.2}")).collect::<Vec<_>>().join("  ")
    }
}

#[cfg(test)]
pub mod samples {
    use super::*;

    /// Made-up results of two operations, for tests of what is printed.
    pub fn rows() -> Vec<Row> {
        let row = |op: &str, k: usize, dtype: &str, variant: &str, share: f64, torch: &[(&str, f64)]| {
            let bytes = 2u64 << 28;
            let (gbps, us) = (4000.0 * share, bytes as f64 / (4000.0 * share) / 1e3);
            Row {
                op: op.to_owned(),
                shape: vec![(1 << 26) / k, k],
                dtype: dtype.to_owned(),
                variant: variant.to_owned(),
                plan: "row 3".to_owned(),
                figures: Some(Figures {
                    us,
                    spread: 0.01,
                    bytes,
                    flops: bytes / 2,
                    gbps,
                    share,
                    share_of_like_copy: None,
                }),
                torch_us: torch.iter().map(|&(name, ratio)| (name.to_owned(), ratio * us)).collect(),
                error: None,
            }
        };
        let mut rows = Vec::new();
        for dtype in ["f32", "bf16"] {
            for (i, k) in [128, 1024, 4096, 65536].into_iter().enumerate() {
                let share = 0.99 - 0.03 * i as f64;
                let torch = [("eager", 3.1), ("compile", 1.2), ("softmax", 1.02)];
                rows.push(row("masked_softmax", k, dtype, "mask=none", share, &torch));
                rows.push(row("masked_softmax", k, dtype, "mask=keep", share - 0.02, &torch[..1]));
            }
            rows.push(row("gelu", 4096, dtype, "", 0.97, &[("eager", 1.01)]));
        }
        let error = Some("cuda:0: out of memory <allocating> 9 bytes".to_owned());
        rows.push(Row { figures: None, torch_us: Times::new(), error, ..rows[0].clone() });
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_serializes_flat_and_without_what_it_has_not() {
        let rows = samples::rows();
        let json = serde_json::to_value(&rows[0]).unwrap();
        assert!(json["us"].is_f64() && json["torch_us"]["eager"].is_f64(), "{json}");
        assert_eq!((&json["op"], &json["shape"][1]), (&"masked_softmax".into(), &128.into()));
        assert!(json.get("error").is_none());
        let failed = serde_json::to_value(rows.last().unwrap()).unwrap();
        assert!(failed.get("us").is_none() && failed["error"].is_string(), "{failed}");
        assert_eq!(rows[0].ratio_text(), "compile 1.20  eager 3.10  softmax 1.02");
    }
}
