//! Gradients of norms: dx by rows, those of weight and bias as sums of columns.

use super::launch::{Kernels, Operands, Prepared, cut_of, dense, params, run, walked};
use super::plan::Cut;
use super::problem::Problem;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::column_sums::column_sums;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::{Float, warp};
use kernels_gpu::rows::{column_partials, given};

/// Blocks of the kernel for sums of columns alone, a constant since the order of additions depends on it, and the rows of one at
/// least.
const BLOCKS: usize = 2048;
const ROWS_OF_A_BLOCK: usize = 16;

/// An element type that has the kernels for sums of columns.
pub trait Summed: Element + Float + column_partials::Instances {}
impl<T: Element + Float + column_partials::Instances> Summed for T {}

/// What gradients are computed from. A norm without mean is RMS norm.
#[derive(Clone, Copy)]
pub struct Backward<'a> {
    pub x: (&'static str, &'a Tensor),
    pub dy: &'a Tensor,
    pub dsum: Option<&'a Tensor>,
    pub weight: Option<&'a Tensor>,
    pub mean: Option<&'a Tensor>,
    pub rstd: &'a Tensor,
}

/// The gradients; of RMS norm without dbias.
#[derive(Clone, Copy)]
pub struct Gradients<'a> {
    pub dx: &'a Tensor,
    pub dweight: &'a Tensor,
    pub dbias: Option<&'a Tensor>,
}

/// Computes the gradients, which match the problem. `kernels` give dx alone, but for those that walk, which give all.
pub fn run_backward<T: Summed>(
    problem: &Problem,
    kernels: Kernels<T>,
    of: Backward,
    gradients: Gradients,
) -> Result<()> {
    let (op, device) = (problem.op, problem.y.device());
    let adopted = |tensor: &Tensor, arg| tensor.adopted(device, op, arg);
    let (x, dy) = (adopted(of.x.1, of.x.0)?, adopted(of.dy, "dy")?);
    let dsum = of.dsum.map(|dsum| adopted(dsum, "dsum")).transpose()?;
    let weight = of.weight.map(|weight| dense(problem, weight, "weight")).transpose()?;
    let mean = of.mean.map(|mean| dense(problem, mean, "mean")).transpose()?;
    let rstd = dense(problem, of.rstd, "rstd")?;
    let of = Backward {
        x: (of.x.0, &x),
        dy: &dy,
        dsum: dsum.as_ref(),
        weight: weight.as_ref(),
        mean: mean.as_ref(),
        rstd: &rstd,
    };
    if problem.row_count() > 0 {
        let operands = operands_of(&of, gradients.dx);
        let prepared = Prepared::new::<T>(problem, &operands)?;
        let walk = prepared.walk::<T>(problem, if gradients.dbias.is_some() { 2 } else { 1 });
        if let Some(walking @ (_, shape)) = walked(problem, &walk, &kernels) {
            let partials = Partials::new(problem, walk.blocks(shape), gradients)?;
            prepared.launch_walk(problem, &operands, walking, walk, Some(&partials.sums))?;
            return partials.sum(gradients);
        }
    }
    run(problem, Kernels { walked: &[], walked_clusters: &[], ..kernels }, operands_of(&of, gradients.dx))?;
    run_partials::<T>(problem, of, gradients)
}

fn operands_of<'a>(of: &Backward<'a>, dx: &'a Tensor) -> Operands<'a> {
    Operands {
        inputs: [Some(of.x), Some(("dy", of.dy)), of.dsum.map(|dsum| ("dsum", dsum))],
        weight: of.weight,
        y: Some(dx),
        mean: of.mean,
        rstd: Some(of.rstd),
        ..Default::default()
    }
}

/// The sums of the columns of dx, which has the problem's shape and is contiguous: what dbias is of dy. `of` gives the rows'
/// numbers, which do not matter.
pub fn run_column_sums<T: Summed>(problem: &Problem, of: Backward, dx: &Tensor, sums: &Tensor) -> Result<()> {
    let problem = Problem::new(problem.op, &[("dx", dx.desc())])?;
    let mean = of.mean.map(|mean| dense(&problem, mean, "mean")).transpose()?;
    let rstd = dense(&problem, of.rstd, "rstd")?;
    let unused = Tensor::uninit(dx.device(), problem.dtype, &[problem.cols])?;
    let of = Backward { x: ("dx", dx), dy: dx, dsum: None, weight: None, mean: mean.as_ref(), rstd: &rstd };
    run_partials::<T>(&problem, of, Gradients { dx, dweight: &unused, dbias: Some(sums) })
}

/// The gradients of weight and bias alone.
fn run_partials<T: Summed>(problem: &Problem, of: Backward, gradients: Gradients) -> Result<()> {
    let cut = cut_of::<T>(problem, [of.x.1, of.dy].into_iter());
    let packed = cut == Cut::Packs;
    let kernels = column_partials::kernels::<T>();
    let kernel =
        kernels.iter().find(|kernel| (kernel.constant("PACKED") == 1) == packed).unwrap_or(&kernels[0]);
    let rows = problem.row_count();
    let width = warp::SIZE as usize * if packed { T::PER_PACK } else { 1 };
    let strips = problem.cols.div_ceil(width);
    let groups = (BLOCKS / strips.max(1)).clamp(1, rows.div_ceil(ROWS_OF_A_BLOCK).max(1));
    let rows_per_group = rows.div_ceil(groups).max(1);
    let groups = rows.div_ceil(rows_per_group);
    let partials = Partials::new(problem, groups, gradients)?;
    let args: column_partials::Args<T> = (
        of.x.1.view()?,
        of.dy.view()?,
        read(of.mean)?,
        of.rstd.view()?,
        partials.dweight()?.view_mut()?,
        write(partials.dbias()?.as_ref())?,
        rows_per_group as u32,
        params(problem, cut, &[(given::MEAN, of.mean.is_some())]),
    );
    // SAFETY: the operands match the problem; the grid covers columns and rows, and there is a row of partials for each group.
    // Tensors are freed in the order of their streams, which `adopted` has made wait for one another.
    unsafe { problem.y.device().launch(kernel, Grid::xyz(strips as u64, groups as u64, 1)?, args)? };
    partials.sum(gradients)
}

/// Sums of the columns of groups of rows: f32 [groups, cols] for dweight, and behind it for dbias.
struct Partials {
    sums: Tensor,
    groups: usize,
    has_dbias: bool,
}

impl Partials {
    fn new(problem: &Problem, groups: usize, gradients: Gradients) -> Result<Partials> {
        let has_dbias = gradients.dbias.is_some();
        let rows = groups * if has_dbias { 2 } else { 1 };
        let sums = Tensor::uninit(problem.y.device(), DType::F32, &[rows, problem.cols])?;
        Ok(Partials { sums, groups, has_dbias })
    }

    fn dweight(&self) -> Result<Tensor> {
        self.sums.narrow(0, 0, self.groups)
    }

    fn dbias(&self) -> Result<Option<Tensor>> {
        self.has_dbias.then(|| self.sums.narrow(0, self.groups, self.groups)).transpose()
    }

    fn sum(&self, gradients: Gradients) -> Result<()> {
        column_sums(&self.dweight()?, gradients.dweight)?;
        match (self.dbias()?, gradients.dbias) {
            (Some(partials), Some(dbias)) => column_sums(&partials, dbias),
            _ => Ok(()),
        }
    }
}
