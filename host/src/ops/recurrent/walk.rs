//! Launches of the kernels of one step.

use super::Kind;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::Float;
use cuda_std::divide::Divisor;
use cuda_std::kernel::Kernel;
use kernels_gpu::recurrent::{self as kernels, Step, has};

/// A type with all kernels.
pub trait Number:
    Element
    + Float
    + kernels::gates::Instances
    + kernels::gates_backward::Instances
    + kernels::cells::Instances
    + kernels::previous::Instances
    + kernels::within_lengths::Instances
{
}
impl<T> Number for T where
    T: Element
        + Float
        + kernels::gates::Instances
        + kernels::gates_backward::Instances
        + kernels::cells::Instances
        + kernels::previous::Instances
        + kernels::within_lengths::Instances
{
}

/// A step's operands. All are `[B, ..]` and contiguous but y, whose rows may lie apart.
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    /// For messages.
    pub op: &'static str,
    pub gx: &'a Tensor,
    pub gh: &'a Tensor,
    pub h: &'a Tensor,
    pub c: Option<&'a Tensor>,
    pub lengths: Option<&'a Tensor>,
    /// y, or its gradient.
    pub y: Option<&'a Tensor>,
    pub time: usize,
}

/// Whether four elements of each row lie together.
pub fn wide(hidden: usize, y: Option<&Tensor>, dense: &[Option<&Tensor>]) -> bool {
    let aligned = |tensor: &Tensor| tensor.address().is_multiple_of(4 * tensor.dtype().size() as u64);
    let rows = |y: &Tensor| y.strides()[0].unsigned_abs().is_multiple_of(4);
    hidden.is_multiple_of(4)
        && dense.iter().flatten().all(|tensor| aligned(tensor))
        && y.is_none_or(|y| aligned(y) && rows(y))
}

/// The instance for so many gates, four units of a thread or one.
pub fn instance<A>(kernels: &'static [Kernel<A>], kind: Kind, wide: bool) -> &'static Kernel<A> {
    let width = if wide { 4 } else { 1 };
    let is =
        |kernel: &&Kernel<A>| kernel.constant("GATES") == kind.gates() && kernel.constant("WIDTH") == width;
    kernels.iter().find(is).expect("each number of gates has both widths")
}

/// The most threads whose numbers a [`Divisor`] takes apart.
const MOST_THREADS: u64 = (1 << 31) - 1;

/// Blocks of so many threads, with one for each of so many groups of units of each row.
pub fn blocks_of(op: &'static str, [rows, groups]: [usize; 2], threads: u32) -> Result<u64> {
    let count = rows as u128 * groups as u128;
    if count > MOST_THREADS.into() {
        let (limit, got) = (MOST_THREADS, count.to_string());
        return Err(Error::TooLarge { op, what: "threads for the units of all rows", limit, got });
    }
    Ok((count as u64).div_ceil(threads.into()))
}

impl Operands<'_> {
    /// A thread for each `width` units of each row.
    fn grid(&self, width: usize, threads: u32) -> Result<Grid> {
        Grid::new(blocks_of(self.op, [self.h.shape()[0], self.h.shape()[1] / width], threads)?)
    }
}

fn parameters(of: &Operands, width: usize, has: u32) -> Step {
    let (batch, hidden) = (of.h.shape()[0], of.h.shape()[1]);
    let bits = [(of.lengths, has::LENGTHS), (of.y, has::Y)];
    Step {
        groups: Divisor::new((hidden / width) as u32).expect("units are between 1 and 2^30"),
        batch: batch as u32,
        hidden: hidden as u32,
        time: of.time as u32,
        has: bits.iter().filter(|(tensor, _)| tensor.is_some()).fold(has, |has, (_, bit)| has | bit),
        y_row: of.y.map_or(0, |y| y.strides()[0] as i64),
    }
}

/// Takes a step: h and c into `h_next` and `c_next`, which are other tensors; y as well, where there is one.
pub fn step<T: Number>(kind: Kind, of: &Operands, h_next: &Tensor, c_next: Option<&Tensor>) -> Result<()> {
    if of.h.is_empty() {
        return Ok(());
    }
    let dense = [Some(of.gx), Some(of.gh), Some(of.h), of.c, Some(h_next), c_next];
    let kernel: &Kernel<kernels::gates::Args<T>> =
        instance(kernels::gates::kernels::<T>(), kind, wide(of.h.shape()[1], of.y, &dense));
    let width = kernel.constant("WIDTH");
    let args = (
        of.gx.view()?,
        of.gh.view()?,
        of.h.view()?,
        read(of.c)?,
        read(of.lengths)?,
        h_next.view_mut()?,
        write(c_next)?,
        write(of.y)?,
        parameters(of, width, 0),
    );
    let grid = of.grid(width, kernel.bounds.threads)?;
    // SAFETY: tensors of one batch and so many units, contiguous, and aligned where four go together; the grid covers them.
    unsafe { of.h.device().launch(kernel, grid, args) }
}

/// The gradients that a step passes on, all f32 `[B, H]`.
#[derive(Clone, Copy)]
pub struct Carried<'a> {
    pub dh: &'a Tensor,
    pub dc: Option<&'a Tensor>,
    /// What came to h through gh.
    pub product: Option<&'a Tensor>,
    /// Whether dh holds anything yet.
    pub begun: bool,
    /// Whether dc does.
    pub dc_begun: bool,
}

/// Takes a step back: dgx and, of a GRU, dgh; dh and dc are replaced.
pub fn step_back<T: Number>(
    kind: Kind,
    of: &Operands,
    carried: Carried,
    dgx: &Tensor,
    dgh: Option<&Tensor>,
) -> Result<()> {
    if of.h.is_empty() {
        return Ok(());
    }
    let dense = [
        Some(of.gx),
        Some(of.gh),
        Some(of.h),
        of.c,
        Some(carried.dh),
        carried.dc,
        carried.product,
        Some(dgx),
        dgh,
    ];
    let kernel: &Kernel<kernels::gates_backward::Args<T>> =
        instance(kernels::gates_backward::kernels::<T>(), kind, wide(of.h.shape()[1], of.y, &dense));
    let width = kernel.constant("WIDTH");
    let given =
        [(carried.begun, has::H), (carried.dc_begun, has::C), (carried.product.is_some(), has::PRODUCT)];
    let given = given.iter().filter(|(is, _)| *is).fold(0, |bits, (_, bit)| bits | bit);
    let args = (
        of.gx.view()?,
        of.gh.view()?,
        of.h.view()?,
        read(of.c)?,
        read(of.y)?,
        read(carried.product)?,
        read(of.lengths)?,
        dgx.view_mut()?,
        write(dgh)?,
        carried.dh.view_mut()?,
        write(carried.dc)?,
        parameters(of, width, given),
    );
    let grid = of.grid(width, kernel.bounds.threads)?;
    // SAFETY: as in `step`.
    unsafe { of.h.device().launch(kernel, grid, args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_as_many_as_can_be_divided() {
        assert_eq!(blocks_of("gru", [0, 5], 128).unwrap(), 0);
        assert_eq!(blocks_of("gru", [3, 50], 128).unwrap(), 2);
        assert_eq!(blocks_of("gru", [1 << 21, 1023], 128).unwrap(), (1 << 14) * 1023);
        let error = blocks_of("gru_cell", [2_200_000, 1023], 256).unwrap_err().to_string();
        let want = "gru_cell: threads for the units of all rows must be at most 2147483647, got 2250600000";
        assert_eq!(error, want);
    }
}
