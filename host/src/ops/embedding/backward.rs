//! The gradients of the tables. See [`embedding_backward`].

use super::launch::{divisor, launch_keys, token_params, token_slot};
use super::problem::Problem;
use super::{BACKWARD, Positions};
use crate::aside::Aside;
use crate::cuda::shared::share as share_of_shared;
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::cast::cast;
use crate::ops::column_sums::column_sums_on;
use crate::ops::masked_softmax::Described;
use crate::ops::pointwise::{check_output, same, with_float};
use crate::ops::views::read;
use crate::tensor::{Desc, Tensor};
use cuda_std::{Float, Global, warp};
use kernels_gpu::embedding::{
    self as kernels, DIGIT_BITS, DIGITS, FEW, FEW_ELEMENTS, FewSums, PIECE, Pass, PositionSums, SUM_ELEMENTS,
    Sums, TILE, ZERO_STRIPS,
};

/// Threads that are wanted for the sums of positions. A constant, since the order of additions depends on it.
const POSITION_THREADS: usize = 1 << 18;
/// Bytes of dy and of dwte from which on the positions' sums and the zeros take longer than another stream costs.
const BESIDE_BYTES: usize = 4 << 20;
/// Blocks of the positions' sums on a multiprocessor beside the sort. More would leave no registers to the sort's blocks; and
/// all of them run from the start, since a GPU begins no other kernel's blocks before it has begun those of the one ahead.
const BLOCKS_BESIDE: usize = 6;
/// Shared memory that they leave to the sort. Together they take the rest, and do not use it: a multiprocessor that runs only
/// kernels without shared memory has none to give, and the sort's blocks would wait until it is idle.
const SHARED_OF_SORT: u32 = 12 << 10;
/// Blocks that write zeros beside the sort, of so many multiprocessors: each has one of its own, and the sort the others, as loads wait behind
/// all the stores of their multiprocessor.
const ZEROING: u32 = 72;
const MULTIPROCESSORS: u32 = 132;
/// Sequences of a group at least, so that partial sums are few beside what is read.
const LEAST_SEQUENCES: usize = 16;

/// (dwte, dwpe): the gradients of the tables of [`embedding`](super::embedding()), in their shapes and type, contiguous;
/// dwpe where there are positions.
///
/// dy has the shape of embedding's result. Of the tables the shapes matter, not the elements. A row of dwte is the sum of
/// dy over the tokens that chose it, a row of dwpe that over the sequences, in f32, rounded once; rows that nothing
/// chose are zeros. The order of additions depends on shapes and tokens alone: the same input gives the same bits.
/// Allocates room for the sorted tokens, 16 bytes each, for a mark of 4 bytes for each row, and for partial sums, an eighth of dy's
/// elements in f32 at most.
///
/// ```
/// use warpwright::{DType, Device, Tensor, ops};
///
/// let device = Device::cpu();
/// let tokens = Tensor::from_slice(&device, &[3], &[2u32, 0, 2])?;
/// let dy = Tensor::from_slice(&device, &[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let wte = Tensor::zeros(&device, DType::F32, &[3, 2])?;
/// let (dwte, _) = ops::embedding_backward(&tokens, &dy, &wte, None)?;
/// assert_eq!(dwte.to_vec::<f32>()?, [3.0, 4.0, 0.0, 0.0, 6.0, 8.0]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// As [`embedding`](super::embedding()).
pub fn embedding_backward(
    tokens: &Tensor,
    dy: &Tensor,
    wte: &Tensor,
    positions: Option<Positions>,
) -> Result<(Tensor, Option<Tensor>)> {
    let gradients = checked(tokens, dy, wte, positions)?;
    let make = |desc: &Desc| Tensor::uninit(desc.device(), desc.dtype(), desc.shape());
    let (dwte, dwpe) = (make(&gradients.dwte)?, gradients.dwpe.as_ref().map(make).transpose()?);
    gradients.run(tokens, dy, positions, &dwte, dwpe.as_ref())?;
    Ok((dwte, dwpe))
}

/// [`embedding_backward`] into contiguous tensors of the shapes and type of wte and wpe on the tokens' device, which must
/// not overlap the inputs or one another. `dwpe` is there where there are positions.
pub fn embedding_backward_into(
    tokens: &Tensor,
    dy: &Tensor,
    wte: &Tensor,
    positions: Option<Positions>,
    dwte: &Tensor,
    dwpe: Option<&Tensor>,
) -> Result<()> {
    let gradients = checked(tokens, dy, wte, positions)?;
    check_output(BACKWARD, "dwte", dwte, &gradients.dwte, &[tokens, dy])?;
    match (dwpe, &gradients.dwpe) {
        (Some(dwpe), Some(wanted)) => check_output(BACKWARD, "dwpe", dwpe, wanted, &[tokens, dy, dwte])?,
        (None, None) => {}
        (None, Some(_)) => {
            let required = "positions have a gradient";
            return Err(Error::Missing { op: BACKWARD, arg: "dwpe".to_owned(), required });
        }
        (Some(_), None) => {
            let required = "`dwpe` is the gradient of its table";
            return Err(Error::Missing { op: BACKWARD, arg: "wpe".to_owned(), required });
        }
    }
    let device = tokens.device();
    let here = |tensor: &Tensor, arg| tensor.adopted(device, BACKWARD, arg);
    let dwpe_here = dwpe.map(|dwpe| here(dwpe, "dwpe")).transpose()?;
    gradients.run(tokens, dy, positions, &here(dwte, "dwte")?, dwpe_here.as_ref())?;
    [Some(dwte), dwpe].into_iter().flatten().try_for_each(|tensor| tensor.device().wait_for(device, BACKWARD))
}

/// Checks the arguments of [`embedding_backward`] without computing; gives dwte and dwpe.
pub fn embedding_backward_shape<D: Described>(
    tokens: &D,
    dy: &D,
    wte: &D,
    positions: Option<Positions<D>>,
) -> Result<(Desc, Option<Desc>)> {
    let gradients = checked(tokens, dy, wte, positions)?;
    Ok((gradients.dwte, gradients.dwpe))
}

/// A checked request.
struct Gradients {
    problem: Problem,
    dwte: Desc,
    dwpe: Option<Desc>,
    /// The first step's position.
    offset: usize,
}

fn checked<D: Described>(tokens: &D, dy: &D, wte: &D, positions: Option<Positions<D>>) -> Result<Gradients> {
    let (device, wte) = (tokens.described().device(), wte.described());
    let problem = Problem::new(BACKWARD, tokens.described(), wte, positions)?;
    same(BACKWARD, "dy", dy.described(), &problem.y)?;
    let of = |table: &Desc| Desc::contiguous(BACKWARD, device, table.dtype(), table.shape());
    let dwpe = positions.map(|positions| of(positions.wpe.described())).transpose()?;
    // Without steps any offset will do, and it may be too large to reckon with.
    let offset = positions.filter(|_| problem.steps() > 0).map_or(0, |positions| positions.offset);
    Ok(Gradients { problem, dwte: of(wte)?, dwpe, offset })
}

impl Gradients {
    fn run(
        &self,
        tokens: &Tensor,
        dy: &Tensor,
        positions: Option<Positions>,
        dwte: &Tensor,
        dwpe: Option<&Tensor>,
    ) -> Result<()> {
        let starts = self.problem.boundaries(BACKWARD, tokens, positions)?;
        let dy = dy.adopted(tokens.device(), BACKWARD, "dy")?;
        let dy = if dy.is_contiguous() { dy } else { cast(&dy, dy.dtype())? };
        with_float!(self.problem.dtype, T => {
            if self.are_few(dwte, dwpe) {
                return self.sum_few::<T>(tokens, starts.as_ref(), &dy, dwte, dwpe);
            }
            let dwpe = dwpe.filter(|dwpe| !dwpe.is_empty());
            let groups = dwpe.map(|dwpe| self.position_groups::<T>(starts.is_some(), &dy, dwpe)).transpose()?;
            let device = tokens.device();
            let marks = Tensor::zeros(device, DType::U32, &[self.problem.vocabulary])?;
            let [of_dy, of_dwte] = [&dy, dwte].map(|tensor| tensor.len() * tensor.dtype().size());
            // Where the positions take longer than the zeros, they have the other stream for themselves.
            let late = groups.is_some() && of_dy >= of_dwte;
            let keys = launch_keys(BACKWARD, &self.problem, tokens, (!late).then_some(&marks))?;
            // The sort is many short launches, one behind the other: beside it there is room for the positions, and for zeros.
            let worth_it = of_dwte >= BESIDE_BYTES || groups.is_some() && of_dy >= BESIDE_BYTES;
            let beside = if worth_it && of_dwte > 0 { device.aside()? } else { None };
            let there = beside.as_ref().map_or(device, |beside| beside.device());
            if !late {
                self.zero_rows::<T>(there, &marks, dwte)?;
            }
            if let (Some(dwpe), Some(groups)) = (dwpe, &groups) {
                self.sum_positions::<T>(there, starts.as_ref(), &dy, dwpe, groups)?;
            }
            self.sum_rows::<T>(keys, &dy, dwte, late.then_some(&marks), beside)
        })
    }

    /// Whether there are so few tokens that every row may look at all of them.
    fn are_few(&self, dwte: &Tensor, dwpe: Option<&Tensor>) -> bool {
        let strips = strips_of_rows(&self.problem, self.rows_of(dwpe), 1);
        (1..=FEW as usize).contains(&self.problem.token_count()) && !dwte.is_empty() && strips < 1 << 31
    }

    /// Rows of both gradients.
    fn rows_of(&self, dwpe: Option<&Tensor>) -> usize {
        self.problem.vocabulary + dwpe.map_or(0, |dwpe| dwpe.shape()[0])
    }

    /// dwte, dwpe, and the check of the tokens, of few tokens.
    fn sum_few<T>(
        &self,
        tokens: &Tensor,
        starts: Option<&Tensor>,
        dy: &Tensor,
        dwte: &Tensor,
        dwpe: Option<&Tensor>,
    ) -> Result<()>
    where
        T: Element + Float + kernels::sum_few_packs::Instances + kernels::sum_few_elements::Instances,
    {
        let (problem, device) = (&self.problem, tokens.device());
        let packs = self.packs::<T>(&[dy, dwte]) && dwpe.is_none_or(|dwpe| self.packs::<T>(&[dwpe]));
        let unit = if packs { T::PER_PACK } else { FEW_ELEMENTS };
        let kernels = [kernels::sum_few_elements::kernels::<T>(), kernels::sum_few_packs::kernels::<T>()];
        let kernel = &kernels[usize::from(packs)][0];
        let strips = strips_of_rows(problem, self.rows_of(dwpe), unit);
        let params = FewSums {
            tokens: token_params(problem),
            count: problem.token_count() as u32,
            rows: problem.vocabulary as u32,
            offset: self.offset as u32,
            cols: problem.cols as u32,
            strips: strips as u32,
            sequences: problem.packed.map_or(0, |packed| packed.sequences as u32),
            per_row: divisor(strips_of_rows(problem, 1, unit)),
            unused: 0,
        };
        let grid = Grid::covering(strips as u64, u64::from(kernel.bounds.threads / warp::SIZE))?;
        let slot = token_slot(BACKWARD, problem, device)?;
        // SAFETY: words of tokens, of one or two each; the tensors have the sizes of the problem, and the grid covers
        // the strips, those of dwpe where it is there.
        unsafe {
            let words = Global::from_raw(tokens.raw_view()?);
            let dwpe = dwpe.unwrap_or(dwte).view_mut::<T>()?;
            let (dy, dwte) = (dy.view::<T>()?, dwte.view_mut::<T>()?);
            let args = (words, read::<u32>(starts)?, dy, dwte, dwpe, slot.view(), params);
            device.launch(kernel, grid, args)?;
        }
        slot.finish()
    }

    /// Zeros in the rows of dwte that are not marked, by a stream that sees the tensors.
    fn zero_rows<T>(&self, device: &Device, marks: &Tensor, dwte: &Tensor) -> Result<()>
    where
        T: Element + Float + kernels::zero_rows_packs::Instances + kernels::zero_rows_elements::Instances,
    {
        if dwte.is_empty() {
            return Ok(());
        }
        let packs = self.packs::<T>(&[dwte]);
        let kernels = [kernels::zero_rows_elements::kernels::<T>(), kernels::zero_rows_packs::kernels::<T>()];
        let kernel = &kernels[usize::from(packs)][0];
        let unit = if packs { T::PER_PACK } else { SUM_ELEMENTS };
        let params = strips(&self.problem, self.problem.vocabulary, unit)?;
        let of_block = kernel.bounds.threads / warp::SIZE * ZERO_STRIPS;
        let gpu = device.info().filter(|_| !device.same_stream(dwte.device()));
        let most = gpu.map_or(u32::MAX, |gpu| (gpu.sm_count * ZEROING / MULTIPROCESSORS).max(1));
        let grid = Grid::new(params.strips.div_ceil(of_block).min(most).into())?.early_if(false);
        // SAFETY: the tensors have the sizes of the problem, and each strip has its turn.
        unsafe { device.launch(kernel, grid, (marks.view::<u32>()?, dwte.view_mut::<T>()?, params)) }
    }

    /// The rows of dwte that tokens chose, which have these keys; and zeros in the others, where `marks` are given, zeros for each row. The
    /// last launch waits for the work beside.
    fn sum_rows<T>(
        &self,
        keys: Tensor,
        dy: &Tensor,
        dwte: &Tensor,
        marks: Option<&Tensor>,
        beside: Option<Aside<'_>>,
    ) -> Result<()>
    where
        T: Element
            + Float
            + kernels::zero_rows_packs::Instances
            + kernels::zero_rows_elements::Instances
            + kernels::sum_pieces_packs::Instances
            + kernels::sum_pieces_elements::Instances
            + kernels::finish_runs_packs::Instances
            + kernels::finish_runs_elements::Instances,
    {
        let (device, count, cols) = (dy.device(), self.problem.token_count(), self.problem.cols);
        let packs = self.packs::<T>(&[dy, dwte]);
        let unit = if packs { T::PER_PACK } else { SUM_ELEMENTS };
        let Sorted { keys, indices } = sort(&self.problem, keys)?;
        if dwte.is_empty() || count == 0 {
            marks.map_or(Ok(()), |marks| self.zero_rows::<T>(device, marks, dwte))?;
            return beside.map_or(Ok(()), Aside::join);
        }

        let pieces = count.div_ceil(PIECE as usize);
        let partials = Tensor::uninit(device, DType::F32, &[pieces, 2, cols])?;
        let kernels =
            [kernels::sum_pieces_elements::kernels::<T>(), kernels::sum_pieces_packs::kernels::<T>()];
        let kernel = &kernels[usize::from(packs)][0];
        let params = strips(&self.problem, pieces, unit)?;
        let (dy, rows) = (dy.view::<T>()?, dwte.view_mut::<T>()?);
        let (keys, sums) = (keys.view::<u32>()?, partials.view_mut::<f32>()?);
        let args = (keys, indices.view::<u32>()?, dy, rows, sums, params);
        let grid = Grid::covering(params.strips.into(), u64::from(kernel.bounds.threads / warp::SIZE))?;
        // SAFETY: the tensors have the sizes of the problem, and the grid covers the strips. Here and below tensors are freed in
        // the order of the stream.
        unsafe { device.launch(kernel, grid, args)? };
        if let Some(marks) = marks {
            let kernel = &kernels::mark_runs::ALL[0];
            let grid = Grid::covering(count as u64, u64::from(kernel.bounds.threads))?;
            let args = (keys, marks.view_mut::<u32>()?, count as u32, self.problem.vocabulary as u32);
            // SAFETY: the tensors have these sizes, and the grid covers the keys.
            unsafe { device.launch(kernel, grid, args)? };
            self.zero_rows::<T>(device, marks, dwte)?;
        }
        let kernels =
            [kernels::finish_runs_elements::kernels::<T>(), kernels::finish_runs_packs::kernels::<T>()];
        let kernel = &kernels[usize::from(packs)][0];
        let grid = Grid::covering(params.strips.into(), u64::from(kernel.bounds.threads / warp::SIZE))?;
        let grid = grid.early_if(beside.is_none());
        let args = (keys, partials.view::<f32>()?, rows, params);
        beside.map_or(Ok(()), Aside::join)?;
        // SAFETY: as above.
        unsafe { device.launch(kernel, grid, args) }
    }

    /// How the sequences are cut into groups for the positions' sums, and room for these, if there are several.
    fn position_groups<T: Float>(&self, packed: bool, dy: &Tensor, dwpe: &Tensor) -> Result<PositionGroups> {
        let (cols, steps) = (self.problem.cols, self.problem.steps());
        // Sequences of one length are rows of their own, of T·C columns.
        let whole =
            [steps * cols, self.offset * cols, dwpe.len()].iter().all(|len| len.is_multiple_of(T::PER_PACK));
        let aligned = [dy, dwpe].iter().all(|tensor| tensor.address().is_multiple_of(16));
        let packs = if packed { self.packs::<T>(&[dy, dwpe]) } else { whole && aligned };
        let unit = if packs { T::PER_PACK } else { 1 };
        let sequences = if steps > 0 { self.problem.sequences() } else { 0 };
        let per_group = sequences_of_a_group(sequences, steps * cols / unit);
        let count = sequences.div_ceil(per_group).max(1);
        let shape = [if count > 1 { count } else { 0 }, steps * cols];
        let partials = Tensor::uninit(dwpe.device(), DType::F32, &shape)?;
        Ok(PositionGroups { packs, unit, sequences, per_group, count, partials })
    }

    /// dwpe, which is not empty, by a stream that sees the tensors.
    fn sum_positions<T>(
        &self,
        device: &Device,
        starts: Option<&Tensor>,
        dy: &Tensor,
        dwpe: &Tensor,
        groups: &PositionGroups,
    ) -> Result<()>
    where
        T: Element
            + Float
            + kernels::sum_positions_packs::Instances
            + kernels::sum_positions_elements::Instances,
    {
        let (cols, steps) = (self.problem.cols, self.problem.steps());
        let kernels =
            [kernels::sum_positions_elements::kernels::<T>(), kernels::sum_positions_packs::kernels::<T>()];
        let kernel = &kernels[usize::from(groups.packs)][usize::from(starts.is_some())];
        let blocks = (dwpe.len() / groups.unit).div_ceil(kernel.bounds.threads as usize);
        let params = PositionSums {
            first: (self.offset * cols) as u64,
            sequence: (steps * cols) as u64,
            sequences: groups.sequences as u64,
            per_group: groups.per_group as u64,
            len: dwpe.len() as u64,
            cols: cols as u64,
        };
        let (starts, partials) = (read::<u32>(starts)?, &groups.partials);
        let args = (starts, dy.view::<T>()?, dwpe.view_mut::<T>()?, partials.view_mut::<f32>()?, params);
        let beside = device.info().filter(|_| !device.same_stream(dwpe.device()));
        let most = beside.map(|gpu| (BLOCKS_BESIDE * gpu.sm_count as usize / groups.count).max(1));
        let blocks = most.map_or(blocks, |most| blocks.min(most));
        let shared = beside
            .map_or(0, |gpu| share_of_shared(gpu.max_shared_per_sm - SHARED_OF_SORT, BLOCKS_BESIDE as u32));
        let grid = Grid::xyz(blocks as u64, groups.count as u64, 1)?.early_if(false).shared(shared);
        // SAFETY: the tensors have the sizes of the problem; the grid has blocks for dwpe's units and the groups.
        unsafe { device.launch(kernel, grid, args)? };
        if groups.count == 1 {
            return Ok(());
        }
        let dwpe = dwpe.narrow(0, self.offset, steps)?.reshape(&[steps * cols])?;
        column_sums_on(device, partials, &dwpe)
    }

    /// Whether rows of these contiguous tensors are whole aligned packs.
    fn packs<T: Float>(&self, tensors: &[&Tensor]) -> bool {
        let aligned = |tensor: &&Tensor| tensor.address().is_multiple_of(16);
        self.problem.cols.is_multiple_of(T::PER_PACK) && tensors.iter().all(aligned)
    }
}

/// How the gradient of positions is summed up.
struct PositionGroups {
    /// Whether threads have packs; else elements.
    packs: bool,
    /// Elements of a thread.
    unit: usize,
    sequences: usize,
    /// Sequences of a group.
    per_group: usize,
    count: usize,
    /// The sums of each group, if there are several.
    partials: Tensor,
}

/// Sequences that a thread sums, of a sequence of so many units.
fn sequences_of_a_group(sequences: usize, units: usize) -> usize {
    let groups = (POSITION_THREADS / units.max(1)).clamp(1, sequences.div_ceil(LEAST_SEQUENCES).max(1));
    sequences.div_ceil(groups.min(Grid::MAX_YZ as usize)).max(1)
}

/// Strips of so many pieces or rows: 32 lanes of `unit` elements each.
fn strips_of_rows(problem: &Problem, rows: usize, unit: usize) -> usize {
    rows * problem.cols.div_ceil(unit * warp::SIZE as usize)
}

/// The strips of so many pieces or rows.
fn strips(problem: &Problem, rows: usize, unit: usize) -> Result<Sums> {
    let strips = strips_of_rows(problem, rows, unit);
    if strips >= 1 << 31 {
        let what = "strips of 32 columns of `wte`";
        return Err(Error::TooLarge { op: BACKWARD, what, limit: (1 << 31) - 1, got: strips.to_string() });
    }
    Ok(Sums {
        tokens: problem.token_count() as u32,
        rows: problem.vocabulary as u32,
        cols: problem.cols as u32,
        strips: strips as u32,
        per_row: divisor(strips_of_rows(problem, 1, unit)),
    })
}

/// The tokens in ascending order.
struct Sorted {
    keys: Tensor,
    indices: Tensor,
}

/// Sorts the tokens by their keys, which lie in their order.
fn sort(problem: &Problem, keys: Tensor) -> Result<Sorted> {
    let (device, count) = (&keys.device().clone(), problem.token_count());
    let words = |count: usize| Tensor::uninit(device, DType::U32, &[count]);
    let mut from = Sorted { keys, indices: words(count)? };
    if count == 0 {
        return Ok(from);
    }
    let mut to = Sorted { keys: words(count)?, indices: words(count)? };
    let tiles = count.div_ceil(TILE as usize);
    let (counts, totals) = (words(DIGITS as usize * tiles)?, words(DIGITS as usize)?);
    for shift in shifts(problem.vocabulary as u32) {
        let pass = Pass { count: count as u32, shift, first: u32::from(shift == 0) };
        let (keys, indices) = (from.keys.view::<u32>()?, from.indices.view::<u32>()?);
        let grid = Grid::new(tiles as u64)?;
        // SAFETY: the tensors have the sizes that the kernels want; a block for each tile, or for each digit.
        unsafe {
            device.launch(&kernels::count_digits::ALL[0], grid, (keys, counts.view_mut()?, pass))?;
            let args = (counts.view_mut()?, totals.view_mut()?, tiles as u32);
            device.launch(&kernels::scan_digits::ALL[0], Grid::new(u64::from(DIGITS))?, args)?;
            let (to_keys, to_indices) = (to.keys.view_mut()?, to.indices.view_mut()?);
            let args = (keys, indices, counts.view()?, totals.view()?, to_keys, to_indices, pass);
            device.launch(&kernels::scatter::ALL[0], grid, args)?;
        }
        std::mem::swap(&mut from, &mut to);
    }
    Ok(from)
}

/// The digits of keys up to `last`, from the lowest: one at least, which also makes the indices.
fn shifts(last: u32) -> impl Iterator<Item = u32> {
    let bits = u32::BITS - last.leading_zeros();
    (0..bits.max(1)).step_by(DIGIT_BITS as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_key_is_in_a_digit() {
        for (last, want) in [(0, 1), (1, 1), (255, 1), (256, 2), (50_257, 2), (65_536, 3), ((1 << 31) - 2, 4)]
        {
            assert_eq!(shifts(last).count(), want, "{last}");
        }
    }

    #[test]
    fn groups_of_sequences_fill_a_gpu_and_are_not_empty() {
        for (sequences, units) in [(256, 1024 * 192), (1 << 18, 1), (1 << 18, 192), (5, 3), (0, 8), (1, 1)] {
            let per_group = sequences_of_a_group(sequences, units);
            let groups = sequences.div_ceil(per_group);
            assert!(groups * per_group >= sequences && groups as u64 <= Grid::MAX_YZ, "{sequences} {units}");
            assert!(groups == 0 || (groups - 1) * per_group < sequences, "{sequences} {units}");
        }
        assert_eq!(sequences_of_a_group(256, 1024 * 192), 256);
        assert_eq!(sequences_of_a_group(1 << 18, 192), 193);
    }
}
