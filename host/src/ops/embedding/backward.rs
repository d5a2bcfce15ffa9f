//! The gradients of the tables. See [`embedding_backward`].

use super::launch::{divisor, launch_keys, token_params, token_slot};
use super::positions::Groups;
use super::problem::Problem;
use super::sort::{MERGED, Sorted};
use super::sums::strips_of_rows;
use super::{BACKWARD, Positions};
use crate::aside::Aside;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::cast::cast;
use crate::ops::masked_softmax::Described;
use crate::ops::pointwise::{check_output, same, with_float};
use crate::ops::views::read;
use crate::tensor::{Desc, Tensor};
use cuda_std::{Float, Global, warp};
use kernels_gpu::embedding::{self as kernels, FEW, FEW_ELEMENTS, FewSums};

/// Bytes of dy and of dwte from which on the positions' sums and the zeros take longer than another stream costs.
const BESIDE_BYTES: usize = 4 << 20;

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

macro_rules! kernels_of_both_gradients {
    ($($kernel:ident)*) => {
        /// The types that all these kernels have.
        pub trait Kernels: $(kernels::$kernel::Instances +)* {}

        impl<T: $(kernels::$kernel::Instances +)*> Kernels for T {}
    };
}
kernels_of_both_gradients! {
    zero_rows_packs
    zero_rows_elements
    sum_positions_packs
    sum_positions_elements
    sum_pieces_packs
    sum_pieces_elements
    sum_together
    finish_runs_packs
    finish_runs_elements
}

/// A checked request.
pub struct Gradients {
    pub problem: Problem,
    dwte: Desc,
    dwpe: Option<Desc>,
    /// The first step's position.
    pub offset: usize,
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
            let groups = groups.as_ref();
            if (1..=MERGED).contains(&self.problem.token_count()) && !dwte.is_empty() {
                return self.sum_in_turn::<T>(tokens, starts.as_ref(), &dy, dwte, dwpe.zip(groups));
            }
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
            if let Some((dwpe, groups)) = dwpe.zip(groups) {
                self.sum_positions::<T>(there, starts.as_ref(), &dy, dwpe, groups)?;
            }
            let sorted = Sorted::by_digits(&self.problem, keys)?;
            if dwte.is_empty() || self.problem.token_count() == 0 {
                if late {
                    self.zero_rows::<T>(device, &marks, dwte)?;
                }
                return beside.map_or(Ok(()), Aside::join);
            }
            let pieces = self.pieces(&sorted)?;
            self.sum_pieces::<T>(&pieces, &dy, dwte)?;
            if late {
                sorted.mark_runs(&marks)?;
                self.zero_rows::<T>(device, &marks, dwte)?;
            }
            self.finish_runs::<T>(&pieces, dwte, beside)
        })
    }

    /// Both gradients of tokens that are merged, one launch behind the other.
    fn sum_in_turn<T>(
        &self,
        tokens: &Tensor,
        starts: Option<&Tensor>,
        dy: &Tensor,
        dwte: &Tensor,
        positions: Option<(&Tensor, &Groups)>,
    ) -> Result<()>
    where
        T: Element + Float + Kernels,
    {
        let marks = Tensor::uninit(tokens.device(), DType::U32, &[self.problem.vocabulary])?;
        let sorted = Sorted::by_merging(&self.problem, tokens, &marks)?;
        let pieces = self.pieces(&sorted)?;
        let packs = positions.is_none_or(|(_, groups)| groups.packs && groups.count == 1);
        if packs && self.packs::<T>(&[dy, dwte]) {
            self.sum_together::<T>(&pieces, &marks, starts, dy, dwte, positions)?;
        } else {
            if let Some((dwpe, groups)) = positions {
                self.sum_positions::<T>(dy.device(), starts, dy, dwpe, groups)?;
            }
            self.sum_pieces::<T>(&pieces, dy, dwte)?;
            self.zero_rows::<T>(dy.device(), &marks, dwte)?;
        }
        self.finish_runs::<T>(&pieces, dwte, None)
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

    /// Whether rows of these contiguous tensors are whole aligned packs.
    pub fn packs<T: Float>(&self, tensors: &[&Tensor]) -> bool {
        let aligned = |tensor: &&Tensor| tensor.address().is_multiple_of(16);
        self.problem.cols.is_multiple_of(T::PER_PACK) && tensors.iter().all(aligned)
    }
}
