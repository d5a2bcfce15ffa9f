//! `explain masked_softmax`.

use warpwright::ops::masked_softmax::explain;

use super::mask::Form;
use super::{float_type, operand};
use crate::bench::args::Type;
use crate::device::DeviceArgs;
use crate::error::CliError;

#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Args {
    /// Rows
    rows: usize,
    /// Numbers of a row
    cols: usize,
    /// The scores' type
    #[arg(long, value_parser = float_type(), default_value = "f32")]
    dtype: Type,
    /// The mask
    #[arg(long, value_enum, default_value = "none")]
    mask: Form,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let opened = args.device.open()?;
    let Args { rows, cols, mask, .. } = *args;
    let dtype = args.dtype.dtype();
    let x = operand("masked_softmax", &opened.device, dtype, &[rows, cols])?;
    let of_mask = mask.tensor(&opened.device, dtype, [rows, cols])?;
    let plan = explain(&x, &mask.request(of_mask.as_ref()))?;
    opened.print(&format!("masked_softmax {rows}x{cols} {dtype}: {plan}"))
}
