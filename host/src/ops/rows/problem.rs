//! What is asked: the checked operands, as extents and strides.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::pointwise::{check_output, float, on_device, reach, same, typed};
use crate::shape::{self, Merged};
use crate::tensor::{Desc, Tensor};
use kernels_gpu::rows::MAX_INPUTS;

/// Most columns, and most rows: both are 31-bit numbers, columns with room for a block's packs.
const MAX_COLS: usize = (1 << 31) - (1 << 17);
const MAX_ROWS: usize = (1 << 31) - 1;

/// A checked request on inputs `[.., N]` of one shape and type.
#[derive(Debug)]
pub struct Problem {
    pub op: &'static str,
    /// The type of all operands but the rows' numbers.
    pub dtype: DType,
    /// Each result of the inputs' shape.
    pub y: Desc,
    /// The f32 numbers of the rows, and results of that kind.
    pub of_rows: Desc,
    /// The rows of the inputs, those that are not there as the first.
    pub rows: Merged<MAX_INPUTS>,
    /// The elements from column to column in each input.
    pub steps: [isize; MAX_INPUTS],
    pub cols: usize,
}

impl Problem {
    /// Checks the inputs: the first one's type, shape and device are the others'.
    pub fn new(op: &'static str, inputs: &[(&'static str, &Desc)]) -> Result<Problem> {
        let (x_arg, x) = inputs[0];
        float(op, x_arg, x)?;
        reach(op, x_arg, x)?;
        for (arg, input) in &inputs[1..] {
            same(op, arg, input, x)?;
        }
        let Some((&cols, outer)) = x.shape().split_last() else {
            return Err(Error::Shape { op, arg: x_arg, required: "[.., N]".to_owned(), got: vec![] });
        };
        let rank = outer.len();
        let of = |input: usize| inputs.get(input).unwrap_or(&inputs[0]).1.strides();
        let rows = shape::merge(outer, [&of(0)[..rank], &of(1)[..rank], &of(2)[..rank]]);
        let row_count = shape::count(&rows.shape);
        for (what, limit, got) in
            [("columns of the first input", MAX_COLS, cols), ("rows of the first input", MAX_ROWS, row_count)]
        {
            if got > limit {
                return Err(Error::TooLarge { op, what, limit: limit as u64, got: got.to_string() });
            }
        }
        Ok(Problem {
            op,
            dtype: x.dtype(),
            y: Desc::contiguous(op, x.device(), x.dtype(), x.shape())?,
            of_rows: Desc::contiguous(op, x.device(), DType::F32, outer)?,
            rows,
            // With a single column there are no steps.
            steps: [0, 1, 2].map(|input| if cols == 1 { 1 } else { of(input)[rank] }),
            cols,
        })
    }

    /// Checks a vector with an element for each column.
    pub fn check_vector(&self, arg: &'static str, vector: Option<&Desc>) -> Result<()> {
        let Some(vector) = vector else { return Ok(()) };
        typed(self.op, arg, vector, self.dtype, &self.of_columns()?)?;
        reach(self.op, arg, vector)
    }

    /// Checks an operand with a number for each row.
    pub fn check_row_numbers(&self, arg: &'static str, numbers: &Desc) -> Result<()> {
        typed(self.op, arg, numbers, DType::F32, &self.of_rows)?;
        reach(self.op, arg, numbers)
    }

    /// A vector with an element for each column.
    pub fn of_columns(&self) -> Result<Desc> {
        Desc::contiguous(self.op, self.y.device(), self.dtype, &[self.cols])
    }

    /// Rows.
    pub fn row_count(&self) -> usize {
        shape::count(&self.rows.shape)
    }
}

/// A tensor as described.
pub fn uninit(desc: &Desc) -> Result<Tensor> {
    Tensor::uninit(desc.device(), desc.dtype(), desc.shape())
}

/// Wants an ε that keeps 1/√(0 + ε) finite.
pub fn check_eps(op: &'static str, eps: f32) -> Result<()> {
    if eps.is_finite() && eps >= f32::MIN_POSITIVE {
        return Ok(());
    }
    let (required, got) = ("positive, finite and at least 2^-126".to_owned(), eps.to_string());
    Err(Error::Parameter { op, arg: "eps", required, got })
}

/// Runs `launch` on outputs that the caller brings, each with its name and what it must be: after checks, and with
/// their own streams waiting afterwards.
pub fn into<const N: usize>(
    op: &'static str,
    inputs: &[&Tensor],
    outputs: [(&'static str, &Tensor, &Desc); N],
    launch: impl FnOnce([Tensor; N]) -> Result<()>,
) -> Result<()> {
    into_all(op, inputs, &outputs, |here| launch(here.try_into().expect("as many as outputs")))
}

/// [`into`] for any number of outputs.
pub fn into_all(
    op: &'static str,
    inputs: &[&Tensor],
    outputs: &[(&'static str, &Tensor, &Desc)],
    launch: impl FnOnce(Vec<Tensor>) -> Result<()>,
) -> Result<()> {
    let device = inputs[0].device();
    let mut apart = inputs.to_vec();
    for &(arg, output, wanted) in outputs {
        on_device(op, arg, output.desc(), wanted)?;
        check_output(op, arg, output, wanted, &apart)?;
        apart.push(output);
    }
    let mut here = Vec::with_capacity(outputs.len());
    for &(arg, output, _) in outputs {
        here.push(output.adopted(device, op, arg)?);
    }
    launch(here)?;
    for &(_, output, _) in outputs {
        output.device().wait_for(device, op)?;
    }
    Ok(())
}
