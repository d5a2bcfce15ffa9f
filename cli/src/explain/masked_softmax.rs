//! `explain masked_softmax`.

use warpwright::ops::masked_softmax::{Causal, explain};
use warpwright::ops::{Mask, MaskedSoftmax};
use warpwright::{DType, Desc};

use crate::bench::args::Type;
use crate::device::DeviceArgs;
use crate::error::CliError;
use crate::output;

#[derive(clap::Args)]
pub struct Args {
    /// Rows
    rows: usize,
    /// Numbers of a row
    cols: usize,
    /// The scores' type
    #[arg(long, value_enum, default_value = "f32")]
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
    /// A byte for each number
    Keep,
    /// A number for each number
    Bias,
    /// A length for each row
    Lengths,
    Causal,
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let device = args.device.open()?;
    let Args { rows, cols, mask, .. } = *args;
    let dtype = args.dtype.dtype();
    let of = |dtype: DType, shape: &[usize]| Desc::new(&device, dtype, shape);
    let x = of(dtype, &[rows, cols])?;
    let (bytes, bias, lengths) =
        (of(DType::U8, &[rows, cols])?, of(dtype, &[rows, cols])?, of(DType::I32, &[rows])?);
    let parameters = MaskedSoftmax {
        mask: match mask {
            Form::Keep => Mask::Keep(&bytes),
            Form::Bias => Mask::Bias(&bias),
            Form::Lengths => Mask::Range { starts: None, lengths: Some(&lengths) },
            Form::None | Form::Causal => Mask::None,
        },
        causal: (mask == Form::Causal).then_some(Causal::BottomRight),
        ..MaskedSoftmax::default()
    };
    output::print(&format!("masked_softmax {rows}x{cols} {dtype}: {}", explain(&x, &parameters)?))
}
