//! `explain attention_scores`.

use warpwright::ops::attention_scores::explain;

use super::mask::Form;
use super::{float_type, operand};
use crate::bench::args::Type;
use crate::device::DeviceArgs;
use crate::error::CliError;

#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Args {
    /// Queries of a head
    queries: usize,
    /// Its keys
    keys: usize,
    /// Numbers of a query
    width: usize,
    /// Heads of all of the batch
    #[arg(long, default_value_t = 1)]
    heads: usize,
    /// The operands' type
    #[arg(long, value_parser = float_type(), default_value = "bf16")]
    dtype: Type,
    /// The mask
    #[arg(long, value_enum, default_value = "none")]
    mask: Form,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let opened = args.device.open()?;
    let Args { queries, keys, width, heads, dtype, mask, .. } = *args;
    let dtype = dtype.dtype();
    let of = |shape: &[usize]| operand("attention_scores", &opened.device, dtype, shape);
    let (q, k) = (of(&[heads, queries, width])?, of(&[heads, keys, width])?);
    let of_mask = mask.tensor(&opened.device, dtype, [queries, keys])?;
    let plan = explain(&q, &k, &mask.request(of_mask.as_ref()))?;
    opened.print(&format!("attention_scores {heads} times {queries}x{keys}x{width} {dtype}: {plan}"))
}
