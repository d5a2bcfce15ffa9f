//! `explain attention_scores`.

use warpwright::ops::attention_scores::explain;
use warpwright::ops::masked_softmax::Causal;
use warpwright::ops::{Mask, MaskedSoftmax};
use warpwright::{DType, Desc};

use crate::bench::args::Type;
use crate::device::DeviceArgs;
use crate::error::CliError;
use crate::output;

#[derive(clap::Args)]
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
    #[arg(long, value_enum, default_value = "bf16")]
    dtype: Type,
    /// The mask
    #[arg(long, value_enum, default_value = "none")]
    mask: Form,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    None,
    /// Bytes for queries and keys
    Keep,
    /// Numbers for queries and keys
    Bias,
    Causal,
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let device = args.device.open()?;
    let Args { queries, keys, width, heads, dtype, mask, .. } = *args;
    let of = |dtype: DType, shape: &[usize]| Desc::new(&device, dtype, shape);
    let dtype = dtype.dtype();
    let (q, k) = (of(dtype, &[heads, queries, width])?, of(dtype, &[heads, keys, width])?);
    let (bytes, bias) = (of(DType::U8, &[queries, keys])?, of(dtype, &[queries, keys])?);
    let parameters = MaskedSoftmax {
        mask: match mask {
            Form::Keep => Mask::Keep(&bytes),
            Form::Bias => Mask::Bias(&bias),
            Form::None | Form::Causal => Mask::None,
        },
        causal: (mask == Form::Causal).then_some(Causal::BottomRight),
        ..MaskedSoftmax::default()
    };
    let plan = explain(&q, &k, &parameters)?;
    output::print(&format!("attention_scores {heads} times {queries}x{keys}x{width} {dtype}: {plan}"))
}
