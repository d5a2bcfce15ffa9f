//! From problem and plan to launches.

use super::plan::{Choice, Cut, Instances, RowShape};
use super::problem::Problem;
use crate::dtype::Element;
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::divide::Divisor;
use cuda_std::kernel::Kernel;
use cuda_std::{Float, Global, GlobalMut};
use kernels_gpu::dropping::Dropping;
use kernels_gpu::rows::{MAX_INPUTS, MAX_ROW_DIMS, Params, RowDim, given, rows_per_block};

/// What every kernel takes.
type Args<T> = (
    Global<T>,
    Global<T>,
    Global<T>,
    Global<T>,
    Global<T>,
    Global<T>,
    GlobalMut<T>,
    GlobalMut<T>,
    GlobalMut<f32>,
    GlobalMut<f32>,
    Params,
);

/// The kernels of an operation.
pub struct Kernels<T: 'static> {
    /// By ascending capacity.
    pub registers: &'static [Kernel<Args<T>>],
    /// By ascending capacity; may be none.
    pub clusters: &'static [Kernel<Args<T>>],
    pub streamed: &'static Kernel<Args<T>>,
    pub strided: &'static Kernel<Args<T>>,
}

/// The kernels of this name, for elements of type `$T`.
macro_rules! row_kernels {
    ($T:ty, $registers:ident, $streamed:ident, $strided:ident $(, $clusters:ident)?) => {
        crate::ops::rows::Kernels::<$T> {
            registers: kernels_gpu::rows::$registers::kernels::<$T>(),
            clusters: [$(kernels_gpu::rows::$clusters::kernels::<$T>(),)? &[]][0],
            streamed: &kernels_gpu::rows::$streamed::kernels::<$T>()[0],
            strided: &kernels_gpu::rows::$strided::kernels::<$T>()[0],
        }
    };
}
pub(in crate::ops) use row_kernels;

/// The tensors of a problem, with names for the messages; those that an operation has not are absent.
#[derive(Clone, Copy, Default)]
pub struct Operands<'a> {
    pub inputs: [Option<(&'static str, &'a Tensor)>; MAX_INPUTS],
    pub weight: Option<&'a Tensor>,
    pub bias: Option<&'a Tensor>,
    pub input_bias: Option<&'a Tensor>,
    /// The result, always there.
    pub y: Option<&'a Tensor>,
    pub joined: Option<&'a Tensor>,
    /// Results forward, inputs backward.
    pub mean: Option<&'a Tensor>,
    pub rstd: Option<&'a Tensor>,
    /// ε, or a scale.
    pub number: f32,
    /// For operations that drop.
    pub dropping: Option<Dropping>,
}

/// Computes the results, which match the problem; the operands are those that it was made of.
pub fn run<T: Element + Float>(problem: &Problem, kernels: Kernels<T>, operands: Operands) -> Result<()> {
    if problem.row_count() == 0 {
        return Ok(());
    }
    let (op, device) = (problem.op, problem.y.device());
    let mut inputs: [Option<Tensor>; MAX_INPUTS] = [None, None, None];
    for (here, operand) in inputs.iter_mut().zip(operands.inputs) {
        *here = operand.map(|(arg, tensor)| tensor.adopted(device, op, arg)).transpose()?;
    }
    let dense = |operand: Option<&Tensor>, arg| operand.map(|tensor| dense(problem, tensor, arg)).transpose();
    let weight = dense(operands.weight, "weight")?;
    let bias = dense(operands.bias, "bias")?;
    let input_bias = dense(operands.input_bias, "input_bias")?;
    let (mean, rstd) = (dense(operands.mean, "mean")?, dense(operands.rstd, "rstd")?);

    let cut = cut_of::<T>(problem, inputs.iter().flatten().chain(operands.y).chain(operands.joined));
    let cut = match (cut, operands.dropping) {
        // Packs must be whole groups of four random words.
        (Cut::Ragged { phase }, Some(_)) if !phase.is_multiple_of(4) => Cut::Strided,
        (cut, _) => cut,
    };
    let mut vectors = [&weight, &bias, &input_bias].into_iter().flatten();
    let is_given = [
        (given::WEIGHT, weight.is_some()),
        (given::BIAS, bias.is_some()),
        (given::INPUT_BIAS, input_bias.is_some()),
        (given::THIRD, inputs[2].is_some()),
    ];
    let params = Params {
        packed_vectors: u32::from(cut == Cut::Packs && vectors.all(|vector| phase::<T>(vector) == 0)),
        number: operands.number,
        dropping: operands.dropping.unwrap_or(Dropping::NOTHING),
        ..params(problem, cut, &is_given)
    };
    let clusters = if device.has_clusters() { kernels.clusters } else { &[] };
    let instances = Instances {
        registers: kernels.registers.iter().map(shape_of),
        clusters: clusters.iter().map(shape_of),
    };
    let mut cluster = 1;
    let (kernel, per_block) = match Choice::of(cut, problem.cols, T::PER_PACK, instances) {
        Choice::Registers { index } => {
            let kernel = &kernels.registers[index];
            (kernel, rows_per_block(shape_of(kernel).lanes, kernel.bounds.threads))
        }
        Choice::Cluster { index, blocks } => {
            cluster = blocks;
            (&kernels.clusters[index], 1)
        }
        Choice::Streamed => (kernels.streamed, 1),
        Choice::Strided => (kernels.strided, kernels.strided.bounds.threads / cuda_std::warp::SIZE),
    };
    let [a, b, c] = &inputs;
    let args: Args<T> = (
        read(a.as_ref())?,
        read(b.as_ref())?,
        read(c.as_ref())?,
        read(weight.as_ref())?,
        read(bias.as_ref())?,
        read(input_bias.as_ref())?,
        write(operands.y)?,
        write(operands.joined)?,
        write(mean.as_ref())?,
        write(rstd.as_ref())?,
        params,
    );
    let blocks = u64::from(params.rows.div_ceil(per_block)) * u64::from(cluster);
    let grid = Grid::new(blocks)?.cluster(cluster);
    // SAFETY: the operands match the problem, of which the plan and the parameters are; the grid covers the rows.
    // Tensors are freed in the order of their streams, which `adopted` has made wait for one another.
    unsafe { device.launch(kernel, grid, args) }
}

/// How many elements a tensor begins behind a multiple of 16 bytes.
pub fn phase<T: Float>(tensor: &Tensor) -> usize {
    (tensor.address() as usize / size_of::<T>()) % T::PER_PACK
}

/// How the rows of these tensors of a problem are cut.
pub fn cut_of<'a, T: Float>(problem: &Problem, tensors: impl Iterator<Item = &'a Tensor>) -> Cut {
    Cut::of(problem, T::PER_PACK, tensors.map(phase::<T>))
}

/// A vector that is read by its columns, or the rows' numbers by their own: without gaps, on the problem's stream.
pub fn dense(problem: &Problem, tensor: &Tensor, arg: &'static str) -> Result<Tensor> {
    let tensor = tensor.adopted(problem.y.device(), problem.op, arg)?;
    if tensor.is_contiguous() { Ok(tensor) } else { crate::ops::cast(&tensor, tensor.dtype()) }
}

/// What the problem alone says, and which operands are there.
pub fn params(problem: &Problem, cut: Cut, is_given: &[(u32, bool)]) -> Params {
    Params {
        dims: dims(problem),
        steps: problem.steps.map(|step| step as i64),
        dim_count: problem.rows.shape.len() as u32,
        rows: problem.row_count() as u32,
        cols: problem.cols as u32,
        // Of no columns the mean is 0.
        inverse_cols: if problem.cols == 0 { 0.0 } else { (1.0 / problem.cols as f64) as f32 },
        phase: if let Cut::Ragged { phase } = cut { phase as u32 } else { 0 },
        ragged: u32::from(cut != Cut::Packs),
        packed_vectors: 0,
        given: is_given.iter().map(|&(bit, is)| if is { bit } else { 0 }).sum(),
        number: 0.0,
        dropping: Dropping::NOTHING,
        zeros: [0; 2],
        unused: 0,
    }
}

fn shape_of<T>(kernel: &Kernel<Args<T>>) -> RowShape {
    RowShape { lanes: kernel.constant("LANES"), packs: kernel.constant("PACKS") }
}

/// The dimensions of the rows, innermost first.
fn dims(problem: &Problem) -> [RowDim; MAX_ROW_DIMS] {
    let one = Divisor::new(1).expect("1 divides");
    let mut dims = [RowDim { inputs: [0; MAX_INPUTS], extent: one, unused: 0 }; MAX_ROW_DIMS];
    let rows = &problem.rows;
    for (slot, dim) in dims.iter_mut().zip((0..rows.shape.len()).rev()) {
        let extent = u32::try_from(rows.shape[dim]).ok().and_then(Divisor::new).unwrap_or(one);
        let inputs = rows.strides.map(|strides| strides[dim] as i64);
        *slot = RowDim { inputs, extent, unused: 0 };
    }
    dims
}
