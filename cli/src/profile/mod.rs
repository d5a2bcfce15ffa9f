//! `warpwright profile`: what the kernels of an operation cost, each for itself: a table in the manner of PyTorch's
//! profiler, JSON, and a trace for chrome://tracing and Perfetto. The cases are those of `bench`.

mod report;

use std::path::PathBuf;

use warpwright::profile::{self, Profile};
use warpwright::{DType, Device, Result};

use crate::bench::case::{Case, Prepared, Setting};
use crate::bench::data::Data;
use crate::bench::{self, Type};
use crate::device::DeviceArgs;
use crate::error::CliError;
use crate::ops;
use crate::output;
use report::Report;

/// The size of a GPU's cases in MiB, and of the copies ahead of the work.
const GPU_SIZE: u32 = 256;
/// What the host may need for a recorded launch, in microseconds, and what such a copy takes at least.
const LAUNCH_US: usize = 40;
const COPY_US: usize = 60;

#[derive(clap::Args)]
pub struct Args {
    /// The operation
    #[arg(value_name = "OP")]
    op: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a trace for chrome://tracing or ui.perfetto.dev; it appears complete or not at all
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// The type
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: Type,
    /// The size of the case's largest input, where its shape leaves a choice [default: 256, on the CPU as small as can be]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    size: Option<u32>,
    /// The case of `bench` whose line has this in it, such as x1024: of several the first, on the CPU the smallest
    #[arg(long, value_name = "SUBSTRING")]
    only: Option<String>,
    /// How often the operation is called
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    calls: u32,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let op = ops::find(&args.op)?;
    if let Some(file) = &args.trace {
        output::expect_place(file)?;
    }
    let opened = args.device.open()?;
    let device = &opened.device;
    let case = choose((op.bench)(&setting(args, device)), args.only.as_deref(), device.is_cuda())?;
    let data = if device.is_cuda() { Data::new(device) } else { Data::small(device) };
    let calls = args.calls as usize;
    let sets = case.sets().min(calls);
    let prepared = case.prepare(&data, sets)?;
    let copy = match device.is_cuda() {
        true => Some(bench::copy::measure(device, &data, (GPU_SIZE as usize) << 20)?.gbps),
        false => None,
    };
    let profile = record(device, &data, &case, &prepared, calls)?;
    if let Some(file) = &args.trace {
        output::write_file(file, &profile.trace())?;
    }
    let report = Report::new(device, &case, prepared.floor, calls, copy, &profile);
    opened.say();
    if args.json { output::print_json(&report) } else { output::print(&report.text()) }
}

fn setting(args: &Args, device: &Device) -> Setting {
    let bytes = match args.size {
        Some(size) => (size as usize) << 20,
        None if device.is_cuda() => (GPU_SIZE as usize) << 20,
        None => 1,
    };
    Setting { dtypes: vec![args.dtype.dtype()], bytes, quick: false }
}

fn choose(cases: Vec<Case>, only: Option<&str>, first: bool) -> Result<Case, CliError> {
    let mut cases = cases.into_iter().filter(|case| only.is_none_or(|only| case.to_string().contains(only)));
    let chosen = match first {
        true => cases.next(),
        false => cases.min_by_key(|case| case.shape.iter().product::<usize>()),
    };
    chosen.ok_or(CliError::NoCases)
}

/// Calls the operation so often, with its sets in turn.
fn record(device: &Device, data: &Data, case: &Case, prepared: &Prepared, calls: usize) -> Result<Profile> {
    let launch = |call: usize| (prepared.ways[0].launch)(call % case.sets().min(calls));
    // Loads the kernels, and tells how many there are.
    let (first, ()) = profile::record(device, || launch(0))?;
    let ahead = if device.is_cuda() { calls * first.launches().len() * LAUNCH_US / COPY_US + 1 } else { 0 };
    let words = ((GPU_SIZE as usize) << 20) / DType::U32.size();
    let copies =
        if ahead > 0 { data.words(1, &[words])?.pop().zip(data.words(1, &[words])?.pop()) } else { None };
    let (profile, ()) = profile::record(device, || {
        // The GPU is busy until the host has launched everything, so that no kernel waits for the host.
        if let Some((x, y)) = &copies {
            (0..ahead).try_for_each(|_| y.copy_from(x))?;
        }
        (0..calls).try_for_each(|call| profile::range(&format!("{case}, call {call}"), || launch(call)))
    })?;
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_chosen_by_its_line() {
        let cases = || {
            let case = |shape: &[usize], variant: &str| {
                Case::new("op", shape, DType::F32, variant, 1, |_, _| Ok(Prepared::new(1, "", |_| Ok(()))))
            };
            vec![case(&[9, 9], "a"), case(&[2, 3], "b"), case(&[4, 3], "b")]
        };
        let shape = |only, first| choose(cases(), only, first).map(|case| case.shape);
        assert_eq!(shape(None, true).unwrap(), [9, 9]);
        assert_eq!(shape(None, false).unwrap(), [2, 3]);
        assert_eq!(shape(Some("x3"), true).unwrap(), [2, 3]);
        assert_eq!(shape(Some("4x3"), false).unwrap(), [4, 3]);
        assert!(matches!(shape(Some("c"), true), Err(CliError::NoCases)));
    }
}
