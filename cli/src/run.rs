//! `warpwright run`: one operation on tensors of files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use warpwright::io;

use crate::device::DeviceArgs;
use crate::error::CliError;
use crate::ops;
use crate::ops::parameters::Parameters;
use crate::ops::tensors::Tensors;
use crate::output;

#[derive(clap::Args)]
pub struct Args {
    /// The operation: see below
    #[arg(value_name = "NAME")]
    op: String,
    /// A safetensors file with input tensors; several files are read as one
    #[arg(long = "in", value_name = "FILE", required = true)]
    inputs: Vec<PathBuf>,
    /// The safetensors file to write; it appears complete or not at all
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Parameters of the operation
    #[arg(long = "set", value_name = "KEY=VALUE", num_args = 1..)]
    set: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let op = ops::find(&args.op)?;
    let parameters = Parameters::parse(op.name, op.parameters, &args.set)?;
    output::expect_place(&args.out)?;
    let opened = args.device.open()?;
    let tensors = Tensors::load(op, &args.inputs, &opened.device)?;
    let outputs = (op.run)(&tensors, &parameters)?;
    // Reads the results back, and with them what a kernel found to be out of range.
    io::save(&args.out, outputs.iter().map(|(name, tensor)| (*name, tensor)), &BTreeMap::new())?;
    opened.say();
    Ok(())
}
