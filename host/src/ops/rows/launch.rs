//! From problem and plan to launches.

use super::plan::{Choice, Cut, Instances, RowShape};
use super::problem::Problem;
use super::walk::{Walk, WalkShape};
use crate::dtype::Element;
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::divide::Divisor;
use cuda_std::kernel::Kernel;
use cuda_std::{Float, Global, GlobalMut};
use kernels_gpu::dropping::Dropping;
use kernels_gpu::rows::{MAX_INPUTS, MAX_ROW_DIMS, MOST_WALKING, Params, RowDim, given, rows_per_block};

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

/// What kernels that walk take: the same, and what they add up along columns.
pub type WalkedArgs<T> = (
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
    /// By ascending capacity of each cut; may be none.
    pub walked: &'static [Kernel<WalkedArgs<T>>],
    /// By ascending capacity; may be none.
    pub walked_clusters: &'static [Kernel<WalkedArgs<T>>],
    /// Whether few blocks are spread over all multiprocessors, which pays where each has much to do.
    pub spread: bool,
}

/// The kernels of this name, for elements of type `$T`.
macro_rules! row_kernels {
    ($T:ty, $registers:ident, $streamed:ident, $strided:ident $(, $clusters:ident)? $(; $walked:ident $(, $in_clusters:ident)?)?) => {
        crate::ops::rows::Kernels::<$T> {
            registers: kernels_gpu::rows::$registers::kernels::<$T>(),
            clusters: [$(kernels_gpu::rows::$clusters::kernels::<$T>(),)? &[]][0],
            streamed: &kernels_gpu::rows::$streamed::kernels::<$T>()[0],
            strided: &kernels_gpu::rows::$strided::kernels::<$T>()[0],
            walked: [$(kernels_gpu::rows::$walked::kernels::<$T>(),)? &[]][0],
            walked_clusters: [$($(kernels_gpu::rows::$in_clusters::kernels::<$T>(),)?)? &[]][0],
            spread: false,
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

/// Operands on the problem's stream, as kernels take them.
pub struct Prepared {
    inputs: [Option<Tensor>; MAX_INPUTS],
    /// Weight, bias and input bias.
    vectors: [Option<Tensor>; 3],
    mean: Option<Tensor>,
    rstd: Option<Tensor>,
    cut: Cut,
    params: Params,
}

impl Prepared {
    /// Those of a problem that was made of them, with rows.
    pub fn new<T: Element + Float>(problem: &Problem, operands: &Operands) -> Result<Prepared> {
        let (op, device) = (problem.op, problem.y.device());
        let mut inputs: [Option<Tensor>; MAX_INPUTS] = [None, None, None];
        for (here, operand) in inputs.iter_mut().zip(operands.inputs) {
            *here = operand.map(|(arg, tensor)| tensor.adopted(device, op, arg)).transpose()?;
        }
        let dense =
            |operand: Option<&Tensor>, arg| operand.map(|tensor| dense(problem, tensor, arg)).transpose();
        let vectors = [
            dense(operands.weight, "weight")?,
            dense(operands.bias, "bias")?,
            dense(operands.input_bias, "input_bias")?,
        ];
        let (mean, rstd) = (dense(operands.mean, "mean")?, dense(operands.rstd, "rstd")?);

        let cut = cut_of::<T>(problem, inputs.iter().flatten().chain(operands.y).chain(operands.joined));
        let cut = match (cut, operands.dropping) {
            // Packs must be whole groups of four random words.
            (Cut::Ragged { phase }, Some(_)) if !phase.is_multiple_of(4) => Cut::Strided,
            (cut, _) => cut,
        };
        let is_given = [
            (given::WEIGHT, vectors[0].is_some()),
            (given::BIAS, vectors[1].is_some()),
            (given::INPUT_BIAS, vectors[2].is_some()),
            (given::THIRD, inputs[2].is_some()),
        ];
        let mut of_vectors = vectors.iter().flatten();
        let params = Params {
            packed_vectors: u32::from(cut == Cut::Packs && of_vectors.all(|vector| phase::<T>(vector) == 0)),
            number: operands.number,
            dropping: operands.dropping.unwrap_or(Dropping::NOTHING),
            ..params(problem, cut, &is_given)
        };
        Ok(Prepared { inputs, vectors, mean, rstd, cut, params })
    }

    /// What a choice to walk them depends on, for an operation with so many sums along columns.
    pub fn walk<T: Float>(&self, problem: &Problem, sums: usize) -> Walk {
        let rows = &problem.rows;
        Walk {
            cut: self.cut,
            in_line: rows.shape.len() <= 1,
            packed_vectors: self.params.packed_vectors != 0,
            rows: problem.row_count(),
            cols: problem.cols,
            per_pack: T::PER_PACK,
            inputs: self.inputs.iter().flatten().count(),
            sums,
        }
    }

    fn args<T: Element + Float>(&self, operands: &Operands) -> Result<Args<T>> {
        let ([a, b, c], [weight, bias, input_bias]) = (&self.inputs, &self.vectors);
        Ok((
            read(a.as_ref())?,
            read(b.as_ref())?,
            read(c.as_ref())?,
            read(weight.as_ref())?,
            read(bias.as_ref())?,
            read(input_bias.as_ref())?,
            write(operands.y)?,
            write(operands.joined)?,
            write(self.mean.as_ref())?,
            write(self.rstd.as_ref())?,
            self.params,
        ))
    }

    /// Launches an instance that [`Walk::instance`] chose, with as many blocks or clusters as [`Walk::blocks`] says; `sums` has a row
    /// for each of them and each sum.
    pub fn launch_walk<T: Element + Float>(
        &self,
        problem: &Problem,
        operands: &Operands,
        (kernel, shape): Walking<T>,
        walk: Walk,
        sums: Option<&Tensor>,
    ) -> Result<()> {
        let (a, b, c, weight, bias, input_bias, y, joined, mean, rstd, params) = self.args(operands)?;
        let blocks = walk.blocks(shape);
        let params = Params { log_bundle: walk.log_bundle(shape, blocks), ..params };
        let args = (a, b, c, weight, bias, input_bias, y, joined, mean, rstd, write(sums)?, params);
        let blocks = blocks as u64 * u64::from(shape.cluster);
        let cluster = (shape.cluster > 1).then_some(shape.cluster);
        let grid = Grid { cluster, ..Grid::new(blocks)?.shared(shape.shared_bytes(walk.inputs)) }
            .spread(problem.y.device());
        // SAFETY: the operands match the problem, of which the walk and the parameters are. Tensors are freed in the order of
        // their streams, which `adopted` has made wait for one another.
        unsafe { problem.y.device().launch(kernel, grid, args) }
    }
}

/// An instance of a kernel that walks, and its launch.
pub type Walking<T> = (&'static Kernel<WalkedArgs<T>>, WalkShape);

/// The instance that walks best, where rows are walked.
pub fn walked<T>(problem: &Problem, walk: &Walk, kernels: &Kernels<T>) -> Option<Walking<T>> {
    let device = problem.y.device();
    let shared = match device.info() {
        Some(info) => info.max_shared_per_block,
        None => simt::Limits::default().max_shared_per_block,
    };
    let clusters = if device.has_clusters() { kernels.walked_clusters } else { &[] };
    let of = |kernels: &'static [_], cluster| {
        kernels.iter().map(move |kernel| (kernel, walk_shape(kernel, cluster)))
    };
    let in_clusters = [2, MOST_WALKING].into_iter().flat_map(|cluster| of(clusters, cluster));
    walk.instance(of(kernels.walked, 1), in_clusters, shared)
}

/// What an instance is made for, in clusters of so many blocks.
fn walk_shape<T>(kernel: &Kernel<WalkedArgs<T>>, cluster: u32) -> WalkShape {
    WalkShape {
        packed: kernel.constant("PACKED") > 0,
        shape: RowShape { lanes: kernel.constant("LANES"), packs: kernel.constant("PACKS") },
        depth: kernel.constant("DEPTH"),
        threads: kernel.bounds.threads,
        min_blocks: kernel.bounds.min_blocks,
        cluster,
    }
}

/// Computes the results of an operation without sums along columns; they match the problem, and the operands are those that it
/// was made of.
pub fn run<T: Element + Float>(problem: &Problem, kernels: Kernels<T>, operands: Operands) -> Result<()> {
    if problem.row_count() == 0 {
        return Ok(());
    }
    let (device, prepared) = (problem.y.device(), Prepared::new::<T>(problem, &operands)?);
    let walk = prepared.walk::<T>(problem, 0);
    if let Some(walking) = walked(problem, &walk, &kernels) {
        return prepared.launch_walk(problem, &operands, walking, walk, None);
    }
    let clusters = if device.has_clusters() { kernels.clusters } else { &[] };
    let instances = Instances {
        registers: kernels.registers.iter().map(shape_of),
        clusters: clusters.iter().map(shape_of),
    };
    let mut cluster = None;
    let (kernel, per_block) = match Choice::of(prepared.cut, problem.cols, T::PER_PACK, instances) {
        Choice::Registers { index } => {
            let kernel = &kernels.registers[index];
            (kernel, rows_per_block(shape_of(kernel).lanes, kernel.bounds.threads))
        }
        Choice::Cluster { index, blocks } => {
            cluster = Some(blocks);
            (&kernels.clusters[index], 1)
        }
        Choice::Streamed => (kernels.streamed, 1),
        Choice::Strided => (kernels.strided, kernels.strided.bounds.threads / cuda_std::warp::SIZE),
    };
    let blocks = u64::from(prepared.params.rows.div_ceil(per_block)) * u64::from(cluster.unwrap_or(1));
    let grid = Grid { cluster, ..Grid::new(blocks)? };
    let grid = if kernels.spread { grid.spread(device) } else { grid };
    // SAFETY: the operands match the problem, of which the plan and the parameters are; the grid covers the rows.
    // Tensors are freed in the order of their streams, which `adopted` has made wait for one another.
    unsafe { device.launch(kernel, grid, prepared.args(&operands)?) }
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
        log_bundle: 0,
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
