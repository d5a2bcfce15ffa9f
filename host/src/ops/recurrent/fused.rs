//! A cell in one launch, both products included; of 16 bits and many units see `cell_clusters`.

use super::plan::Target;
use super::{Kind, RecurrentWeights, cell_clusters};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::Float;
use cuda_std::kernel::Kernel;
use kernels_gpu::recurrent::{
    self as kernels, COLUMNS, Cell, FEW_UNITS, cell_shared_bytes, has, staged_cell_shared_bytes,
};

/// Rows of the batch beyond which products on their own use the weights better: each block reads all rows of its group.
const MOST_ROWS: usize = 128;

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
            DType::F32 => {
                let choose = |packs| staged(kind, of, packs).unwrap_or_else(|| direct::<f32>(kind, of));
                launch(of, choose, &h, c.as_ref())?
            }
            DType::F16 => launch(of, |_| direct::<half::f16>(kind, of), &h, c.as_ref())?,
            _ => launch(of, |_| direct::<half::bf16>(kind, of), &h, c.as_ref())?,
        }
    }
    Ok((h, c))
}

/// A kernel for the operands, and what a block of it has.
struct Choice<T: 'static> {
    kernel: &'static Kernel<kernels::cell::Args<T>>,
    units: usize,
    rows: usize,
    shared_bytes: u32,
}

impl<T: 'static> Choice<T> {
    /// Blocks along the units and along the rows, of so many rows and units.
    fn blocks(&self, [batch, hidden]: [usize; 2]) -> [usize; 2] {
        [hidden.div_ceil(self.units), batch.div_ceil(self.rows)]
    }
}

/// The direct kernel that takes all rows at once with the fewest to spare, or as many as can be.
fn direct<T: kernels::cell::Instances>(kind: Kind, of: &Operands) -> Choice<T> {
    let choice = |kernel: &'static Kernel<kernels::cell::Args<T>>| {
        let fragments = kernel.constant("FRAGMENTS");
        let (rows, shared_bytes) = (fragments * COLUMNS as usize, cell_shared_bytes(fragments));
        Choice { kernel, units: FEW_UNITS, rows, shared_bytes }
    };
    let kernels = kernels::cell::kernels::<T>().iter();
    let of_kind = kernels.filter(|kernel| kernel.constant("GATES") == kind.gates()).map(choice);
    let extents = [of.h.shape()[0], of.h.shape()[1]];
    let best = of_kind.min_by_key(|choice| (choice.blocks(extents)[1], choice.rows));
    best.expect("each number of gates has instances")
}

/// The kernel of f32 whose operands come through shared memory, where rows are whole packs and there is one whose blocks, one a multiprocessor,
/// find room and keep the GPU busy: of these that with the most units and rows. Of more rows than 16 only: for fewer the direct way is shorter.
fn staged(kind: Kind, of: &Operands, packs: u32) -> Option<Choice<f32>> {
    let [batch, hidden] = [of.h.shape()[0], of.h.shape()[1]];
    let serves = packs == 3 && batch > 2 * COLUMNS as usize;
    serves.then(|| staged_on(kind, [batch, hidden], Target::of(of.x.device()))).flatten()
}

/// That of so many rows and units.
fn staged_on(kind: Kind, extents: [usize; 2], target: Target) -> Option<Choice<f32>> {
    let choice = |kernel: &'static Kernel<kernels::cell::Args<f32>>| {
        let fragments = kernel.constant("GROUPS") * kernel.constant("FRAGMENTS");
        let (units, rows) = (kernel.constant("UNITS"), fragments * COLUMNS as usize);
        let shared_bytes = staged_cell_shared_bytes(kind.gates(), units, fragments);
        Choice { kernel, units, rows, shared_bytes }
    };
    let pays = |choice: &Choice<f32>| {
        let [of_units, of_rows] = choice.blocks(extents);
        let (blocks, multiprocessors) = (of_units * of_rows, target.multiprocessors);
        if choice.units == FEW_UNITS { blocks <= multiprocessors } else { blocks * 8 >= multiprocessors * 7 }
    };
    let kernels = kernels::staged_cell::kernels::<f32>().iter();
    let of_kind = kernels.filter(|kernel| kernel.constant("GATES") == kind.gates()).map(choice);
    let fits = |choice: &Choice<f32>| choice.shared_bytes <= target.shared_bytes;
    of_kind.filter(|choice| fits(choice) && pays(choice)).max_by_key(|choice| (choice.units, choice.rows))
}

fn launch<T: Element + Float>(
    of: &Operands,
    choose: impl FnOnce(u32) -> Choice<T>,
    h_next: &Tensor,
    c_next: Option<&Tensor>,
) -> Result<()> {
    let [batch, hidden] = [of.h.shape()[0], of.h.shape()[1]];
    let RecurrentWeights { w_ih, w_hh, b_ih, b_hh } = of.weights;
    let packs = |x, weight| rows_of(x, 16) && rows_of(weight, 16);
    let p = Cell {
        batch: batch as u32,
        input: of.x.shape()[1] as u32,
        hidden: hidden as u32,
        has: biases(&of.weights),
        packs: u32::from(packs(of.x, w_ih)) | u32::from(packs(of.h, w_hh)) << 1,
    };
    let choice = choose(p.packs);
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
    let [of_units, of_rows] = choice.blocks([batch, hidden]);
    let grid = Grid::xyz(of_units as u64, of_rows as u64, 1)?.shared(choice.shared_bytes);
    // SAFETY: the operands are `serves`'s: contiguous tensors of these extents with rows of whole words, of the staged kernel of whole packs; the
    // grid covers units and rows.
    unsafe { of.x.device().launch(choice.kernel, grid, args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of the largest kernels have more shared memory than most GPUs.
    #[test]
    fn cells_are_staged_where_their_blocks_find_room() {
        // Of GPUs with compute capabilities 8.6 to 12.0, 8.0 and 9.0: multiprocessors, and bytes of a block.
        for (multiprocessors, shared_bytes) in
            [(128, 101_376), (68, 101_376), (170, 101_376), (108, 166_912), (132, 232_448)]
        {
            let target = Target { multiprocessors, shared_bytes, warpgroups: false };
            for kind in [Kind::Gru, Kind::Lstm] {
                for extents in [[64, 1024], [32, 1024], [64, 2048], [32, 512], [128, 650], [17, 64]] {
                    if let Some(choice) = staged_on(kind, extents, target) {
                        assert!(choice.shared_bytes <= shared_bytes, "{extents:?} {shared_bytes}");
                    }
                }
            }
        }
        let hopper = Target { multiprocessors: 132, shared_bytes: 232_448, warpgroups: true };
        let of = |target| staged_on(Kind::Lstm, [64, 1024], target).map(|choice| (choice.units, choice.rows));
        assert_eq!(of(hopper), Some((16, 32)));
        assert_eq!(of(Target { multiprocessors: 128, shared_bytes: 101_376, ..hopper }), None);
        assert_eq!(of(Target { multiprocessors: 512, shared_bytes: 101_376, ..hopper }), Some((8, 32)));
    }
}
