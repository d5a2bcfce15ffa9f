//! `warpwright demo`: every operation on real and on random input, compared with the float64 reference and
//! timed against what the machine allows.

mod case;
pub mod cross_entropy;
mod data;
mod deviation;
pub mod embedding;
mod language;
pub mod masked_softmax;
mod measure;
mod operands;
pub mod permute;
pub mod pointwise;
pub mod products;
pub mod random;
pub mod recurrent;
mod report;
pub mod rows;

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};

use crate::device::DeviceArgs;
use crate::error::CliError;
use crate::ops::OPS;
use crate::output;
pub use case::{Bench, Case, Label, Prepared, Setting};
use measure::Meter;
pub use operands::Operands;
use report::{Report, Row};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    device: DeviceArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The folder with the tensors of a real model [default: tests/data, or data beside the program]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let data = data::find(args.data.as_deref())?;
    let opened = args.device.open()?;
    opened.say();
    let device = opened.device;
    let setting = Setting { gpu: device.is_cuda(), data };
    let cases: Vec<(&str, Box<dyn Case>)> =
        OPS.iter().flat_map(|op| (op.cases)(&setting).into_iter().map(|case| (op.name, case))).collect();

    let progress = ProgressBar::new(cases.len() as u64); // on stderr, and only on a terminal
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        progress.set_style(style);
    }
    let meter = if setting.gpu { Some(Meter::new(&device)?) } else { None };
    let mut bench = Bench::new(&device);
    let mut report = Report::new(&device, meter.as_ref().map(Meter::copy_rate));
    for (op, case) in &cases {
        let label = case.label();
        progress.set_message(format!("{op} {label}"));
        match bench.room_for(case.as_ref()) {
            true => report.rows.push(run_case(op, label, case.as_ref(), &mut bench, meter.as_ref())?),
            false => output::note(&format!("note: skipped {op} {label}: the GPU has too little memory")),
        }
        progress.inc(1);
    }
    progress.set_message("a language model learns");
    report.language = Some(language::train(&device, &setting.data)?);
    progress.finish_and_clear();

    if args.json {
        output::print_json(&report)?
    } else {
        output::print(&report.render())?
    }
    match report.failed() {
        0 => Ok(()),
        failed => Err(CliError::Inaccurate { failed, all: report.rows.len() }),
    }
}

/// Checks first, times afterwards; on the CPU the one run is both.
fn run_case(
    op: &'static str,
    label: Label,
    case: &dyn Case,
    bench: &mut Bench,
    meter: Option<&Meter>,
) -> Result<Row, CliError> {
    let prepared = case.prepare(bench)?;
    let start = std::time::Instant::now();
    prepared.launch(0)?;
    bench.device().synchronize()?;
    let first_ms = start.elapsed().as_secs_f64() * 1e3;
    let deviation = prepared.compare(0)?;
    let time_ms = match meter {
        Some(meter) => meter.median_ms(prepared.sets(), |set| prepared.launch(set))?,
        None => first_ms,
    };
    Ok(Row::new(op, label, deviation, time_ms, prepared.floor_bytes(), meter.map(Meter::copy_rate)))
}
