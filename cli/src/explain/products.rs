//! `explain matmul` and `explain linear`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use warpwright::ops::matmul::{Matmul, Plan, explain};
use warpwright::ops::{Activation, Linear, linear_explain, linear_shape};

use warpwright::{Desc, Device, Result};

use super::{float_type, operand};
use crate::bench::args::Type;
use crate::device::{DeviceArgs, Opened};
use crate::error::CliError;
use crate::ops::linear::{ACTIVATIONS, activation_of, heads_of};

/// What both have.
#[derive(clap::Args)]
struct Product {
    /// Rows of the result
    m: usize,
    /// Columns of the result
    n: usize,
    /// Terms of each sum
    k: usize,
    /// Products of a batch
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// The operands' type
    #[arg(long, value_parser = float_type(), default_value = "bf16")]
    dtype: Type,
    /// f32 operands may be rounded to tf32
    #[arg(long)]
    tf32: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct MatmulArgs {
    #[command(flatten)]
    product: Product,
    /// The first operand is [K, M] in memory
    #[arg(long)]
    transpose_a: bool,
    /// The second operand is [N, K] in memory
    #[arg(long)]
    transpose_b: bool,
}

#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct LinearArgs {
    #[command(flatten)]
    product: Product,
    /// What is applied behind the bias
    #[arg(long, value_parser = PossibleValuesParser::new(ACTIVATIONS).map(|name| activation_of(&name)), default_value = "none")]
    activation: Activation,
    /// Something is added to the result
    #[arg(long)]
    residual: bool,
    /// Parts that the result's heads are of, 3 for queries, keys and values; a sequence has M rows
    #[arg(long)]
    parts: Option<usize>,
    /// Heads of a part that the result is split into
    #[arg(long)]
    heads: Option<usize>,
}

impl Product {
    fn matrix(&self, op: &'static str, device: &Device, rows: usize, cols: usize) -> Result<Desc> {
        operand(op, device, self.dtype.dtype(), &[self.batch, rows, cols])
    }

    /// `more` is a line of its own.
    fn print(&self, opened: &Opened, name: &str, plan: &Plan, more: &str) -> Result<(), CliError> {
        let Product { m, n, k, batch, dtype, .. } = self;
        let batch = if *batch == 1 { String::new() } else { format!("{batch} times ") };
        let dtype = dtype.dtype();
        opened.print(&format!(
            "{name} {batch}{m}x{n}x{k} {dtype}: {plan}\n{more}by the model {:.1} µs",
            plan.microseconds
        ))
    }
}

pub fn matmul(args: &MatmulArgs) -> Result<(), CliError> {
    let &MatmulArgs { product: ref args, transpose_a, transpose_b } = args;
    let opened = args.device.open()?;
    let (m, n, k) = (args.m, args.n, args.k);
    let matrix = |turned: bool, rows: usize, cols: usize| match turned {
        true => args.matrix("matmul", &opened.device, cols, rows),
        false => args.matrix("matmul", &opened.device, rows, cols),
    };
    let (a, b) = (matrix(transpose_a, m, k)?, matrix(transpose_b, k, n)?);
    let parameters = Matmul { transpose_a, transpose_b, tf32: args.tf32, ..Matmul::default() };
    args.print(&opened, "matmul", &explain(&a, &b, &parameters)?, "")
}

pub fn linear(args: &LinearArgs) -> Result<(), CliError> {
    let &LinearArgs { product: ref args, activation, residual, parts, heads } = args;
    let opened = args.device.open()?;
    let x = args.matrix("linear", &opened.device, args.m, args.k)?;
    let weight = operand("linear", &opened.device, args.dtype.dtype(), &[args.n, args.k])?;
    let residual = match residual {
        true => Some(args.matrix("linear", &opened.device, args.m, args.n)?),
        false => None,
    };
    let heads = heads_of(parts, heads);
    let layer =
        Linear { activation, residual: residual.as_ref(), tf32: args.tf32, heads, ..Linear::default() };
    let more = match heads {
        Some(_) => {
            format!("heads split in the epilogue, y {:?}\n", linear_shape(&x, &weight, &layer)?.shape())
        }
        None => String::new(),
    };
    args.print(&opened, "linear", &linear_explain(&x, &weight, &layer)?, &more)
}
