//! `explain gru` and `explain lstm`.

use warpwright::ops::recurrent::Choice;
use warpwright::ops::{Recurrent, RecurrentKind, RecurrentWeights, gru_explain, lstm_explain};

use super::{float_type, operand};
use crate::bench::args::Type;
use crate::device::DeviceArgs;
use crate::error::CliError;

#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Args {
    /// Steps
    t: usize,
    /// Rows of the batch
    b: usize,
    /// Columns of x
    i: usize,
    /// Hidden units
    h: usize,
    /// The tensors' type
    #[arg(long, value_parser = float_type(), default_value = "bf16")]
    dtype: Type,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(kind: RecurrentKind, args: &Args) -> Result<(), CliError> {
    let opened = args.device.open()?;
    // What is too many is refused with the tensors.
    let (dtype, rows) = (args.dtype.dtype(), kind.gates().saturating_mul(args.h));
    let op = match kind {
        RecurrentKind::Gru => "gru",
        RecurrentKind::Lstm => "lstm",
    };
    let of = |shape: &[usize]| operand(op, &opened.device, dtype, shape);
    let (x, w_ih, w_hh) = (of(&[args.t, args.b, args.i])?, of(&[rows, args.i])?, of(&[rows, args.h])?);
    let weights = [RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih: None, b_hh: None }];
    let parameters = Recurrent::new(&weights);
    let plan = match kind {
        RecurrentKind::Gru => gru_explain(&x, &parameters)?,
        RecurrentKind::Lstm => lstm_explain(&x, &parameters)?,
    };
    let Args { t, b, i, h, .. } = args;
    let first = if plan.choice == Choice::Fused { "" } else { "the input's product of all steps, then " };
    opened.print(&format!("{kind} {t}x{b}x{i}x{h} {dtype}: {first}{plan}"))
}
