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
#[command(override_usage = "warpwright run [OPTIONS] --in <FILE> --out <FILE> <NAME>")]
pub struct Args {
    /// The operation: see below
    #[arg(value_name = "NAME", required_unless_present = "set")]
    op: Option<String>,
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

impl Args {
    /// The operation's name, and what is set. A name behind `--set` counts as one of its values, but has no `=`.
    fn op_and_set(&self) -> Result<(&str, Vec<&str>), CliError> {
        let mut set: Vec<&str> = self.set.iter().map(String::as_str).collect();
        if let Some(op) = &self.op {
            return Ok((op, set));
        }
        let name = set.iter().position(|value| !value.contains('='));
        let none = || {
            CliError::CommandLine("`NAME`, the operation, is required (see `warpwright run --help`)".into())
        };
        let name = set.remove(name.ok_or_else(none)?);
        Ok((name, set))
    }
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let (name, set) = args.op_and_set()?;
    let op = ops::find(name)?;
    let parameters = Parameters::parse(op.name, op.parameters, &set)?;
    output::expect_place(&args.out)?;
    let opened = args.device.open()?;
    let tensors = Tensors::load(op, &args.inputs, &opened.device)?;
    let outputs = (op.run)(&tensors, &parameters)?;
    // Reads the results back, and with them what a kernel found to be out of range.
    io::save(&args.out, outputs.iter().map(|(name, tensor)| (*name, tensor)), &BTreeMap::new())?;
    opened.say();
    Ok(())
}
