//! `warpwright explain`: how an operation would go about a request, without running it. One file an operation.

mod attention_scores;
mod mask;
mod masked_softmax;
mod permute;
mod products;
mod recurrent;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use warpwright::ops::RecurrentKind;
use warpwright::{DType, Desc, Device, Error};

use crate::bench::args::Type;
use crate::error::CliError;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    op: Op,
}

#[derive(clap::Subcommand)]
enum Op {
    /// The kernel, tiles and splits of a product of matrices
    Matmul(products::MatmulArgs),
    /// The kernel, tiles and splits of a linear layer
    Linear(products::LinearArgs),
    /// Whether the probabilities of attention are one kernel, and its tiles
    #[command(name = "attention_scores")]
    AttentionScores(attention_scores::Args),
    /// Where the rows of a softmax are held
    #[command(name = "masked_softmax")]
    MaskedSoftmax(masked_softmax::Args),
    /// The plan of a permutation
    Permute(permute::Args),
    /// How the steps of a GRU are run
    Gru(recurrent::Args),
    /// How the steps of an LSTM are run
    Lstm(recurrent::Args),
}

/// A type of floating-point numbers, which is what most operations take.
fn float_type() -> impl TypedValueParser<Value = Type> {
    PossibleValuesParser::new(["f32", "f16", "bf16"]).try_map(|name| Type::from_str(&name, false))
}

/// A tensor of the operation, of which one that cannot be speaks.
fn operand(op: &'static str, device: &Device, dtype: DType, shape: &[usize]) -> Result<Desc, Error> {
    Desc::new(device, dtype, shape).map_err(|error| match error {
        Error::TooLarge { what, limit, got, .. } => Error::TooLarge { op, what, limit, got },
        other => other,
    })
}

pub fn run(args: &Args) -> Result<(), CliError> {
    match &args.op {
        Op::Matmul(args) => products::matmul(args),
        Op::Linear(args) => products::linear(args),
        Op::AttentionScores(args) => attention_scores::run(args),
        Op::MaskedSoftmax(args) => masked_softmax::run(args),
        Op::Permute(args) => permute::run(args),
        Op::Gru(args) => recurrent::run(RecurrentKind::Gru, args),
        Op::Lstm(args) => recurrent::run(RecurrentKind::Lstm, args),
    }
}
