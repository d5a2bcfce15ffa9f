//! A cell in one launch, both products included; of 16 bits and many units see `cell_clusters`.

use std::cmp::Reverse;

use super::plan::Target;
use super::{Kind, RecurrentWeights, cell_clusters};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::Float;
use cuda_std::kernel::Kernel;
use kernels_gpu::recurrent::{self as kernels, COLUMNS, Cell, cell_shared_bytes, has};

/// Rows of the batch beyond which products on their own use the weights better: each block reads all rows of its group.
const MOST_ROWS: usize = 128;
/// Units of a block of which there is a kernel for each number of rows.
const FEW_UNITS: usize = 8;

/// The operands of a cell, on one stream.
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    pub x: &'a Tensor,
    pub h: &'a Tensor,
    pub c: Option<&'a Tensor>,
    pub weights: RecurrentWeights<'a>,
}

/// Whether the kernel takes the operands: few rows, and rows of whole words.
pub fn serves(of: &Operands) -> bool {
    let RecurrentWeights { w_ih, w_hh, b_ih, b_hh } = of.weights;
    let dense = [of.c, b_ih, b_hh];
    let both = [of.x, of.h, w_ih, w_hh];
    of.x.shape()[0] <= MOST_ROWS
        && both.into_iter().all(|tensor| tensor.is_contiguous() && rows_of(tensor, 4))
        && dense.iter().flatten().all(|tensor| tensor.is_contiguous())
}

/// Which biases there are, as both kernels want to know it.
pub fn biases(of: &RecurrentWeights) -> u32 {
    let given = [(of.b_ih, has::BIAS), (of.b_hh, has::PRODUCT)];
    given.iter().filter(|(bias, _)| bias.is_some()).fold(0, |bits, (_, bit)| bits | bit)
}

/// Whether each row starts at a multiple of so many bytes.
pub fn rows_of(tensor: &Tensor, bytes: u64) -> bool {
    let row = tensor.shape()[1] * tensor.dtype().size();
    tensor.address().is_multiple_of(bytes) && (row as u64).is_multiple_of(bytes)
}

/// h' and, of an LSTM, c'.
pub fn run(kind: Kind, of: &Operands) -> Result<(Tensor, Option<Tensor>)> {
    let uninit = || Tensor::uninit(of.x.device(), of.h.dtype(), of.h.shape());
    let (h, c) = (uninit()?, of.c.map(|_| uninit()).transpose()?);
    if !h.is_empty() {
        let by_clusters = cell_clusters::serves(of);
        match of.x.dtype() {
            DType::F16 if by_clusters => cell_clusters::launch::<half::f16>(kind, of, &h, c.as_ref())?,
            DType::BF16 if by_clusters => cell_clusters::launch::<half::bf16>(kind, of, &h, c.as_ref())?,
            DType::F32 => launch::<f32>(kind, of, &h, c.as_ref())?,
            DType::F16 => launch::<half::f16>(kind, of, &h, c.as_ref())?,
            _ => launch::<half::bf16>(kind, of, &h, c.as_ref())?,
        }
    }
    Ok((h, c))
}

fn launch<T: Element + Float + kernels::cell::Instances>(
    kind: Kind,
    of: &Operands,
    h_next: &Tensor,
    c_next: Option<&Tensor>,
) -> Result<()> {
    let (batch, hidden) = (of.h.shape()[0], of.h.shape()[1]);
    let kernels: &[Kernel<kernels::cell::Args<T>>] = kernels::cell::kernels::<T>();
    let units = |kernel: &&Kernel<kernels::cell::Args<T>>| kernel.constant("UNITS");
    let fragments = |kernel: &Kernel<_>| kernel.constant("GROUPS") * kernel.constant("FRAGMENTS");
    let rows = |kernel: &&Kernel<kernels::cell::Args<T>>| fragments(kernel) * COLUMNS as usize;
    let blocks = |kernel: &&Kernel<_>| (hidden.div_ceil(units(kernel)), batch.div_ceil(rows(kernel)));
    // More units a block read x and h less often: where there are still as many blocks as keep the GPU busy.
    let multiprocessors = Target::of(of.x.device()).multiprocessors;
    let serves = |kernel: &&Kernel<kernels::cell::Args<T>>| {
        let (of_units, of_rows) = blocks(kernel);
        kernel.constant("GATES") == kind.gates()
            && (units(kernel) == FEW_UNITS || of_units * of_rows * 8 >= multiprocessors * 7)
    };
    // Of those that take all rows at once, or as many as can be, the one with the fewest.
    let kernel = kernels.iter().filter(serves).min_by_key(|kernel| {
        let of_rows = blocks(kernel).1;
        (of_rows, rows(kernel), Reverse(units(kernel)))
    });
    let kernel = kernel.expect("each number of gates has instances");
    let RecurrentWeights { w_ih, w_hh, b_ih, b_hh } = of.weights;
    let packs = |x, weight| rows_of(x, 16) && rows_of(weight, 16);
    let p = Cell {
        batch: batch as u32,
        input: of.x.shape()[1] as u32,
        hidden: hidden as u32,
        has: biases(&of.weights),
        packs: u32::from(packs(of.x, w_ih)) | u32::from(packs(of.h, w_hh)) << 1,
    };
    let args = (
        of.x.view()?,
        of.h.view()?,
        read(of.c)?,
        w_ih.view()?,
        w_hh.view()?,
        read(b_ih)?,
        read(b_hh)?,
        h_next.view_mut()?,
        write(c_next)?,
        p,
    );
    let (of_units, of_rows) = blocks(&kernel);
    let grid = Grid::xyz(of_units as u64, of_rows as u64, 1)?.shared(cell_shared_bytes(
        kind.gates(),
        fragments(kernel),
        units(&kernel),
    ));
    // SAFETY: the operands are `serves`'s: contiguous tensors of these extents with rows of whole words; the grid covers units and rows.
    unsafe { of.x.device().launch(kernel, grid, args) }
}
