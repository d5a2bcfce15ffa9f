//! From plan to launches.

use std::sync::Arc;

use cuda_std::divide::{Quotient, ShortDivisor};
use cuda_std::kernel::Kernel;
use cuda_std::{Global, GlobalMut};
use kernels_gpu::permute::{self as kernels, Boxes, Dim, Gather, MAX_DIMS, Tiles};

use super::boxes::{Boxed, Way};
use super::plan::{Choice, Plan, Request};
use super::resident::reserved;
use super::simplify::{self, PACK, Simple};
use super::tiles::Tiled;
use crate::dtype::DType;
use crate::error::Result;
use crate::launch::Grid;
use crate::memo::Memo;
use crate::tensor::Tensor;

/// Units of one launch at most: kernels count in 31 bits.
pub const MOST_UNITS: usize = 1 << 30;

type TileKernel = Kernel<(Global<u8>, GlobalMut<u8>, Tiles)>;
type BoxKernel = Kernel<(Global<u8>, GlobalMut<u8>, Boxes)>;
type GatherKernel = Kernel<(Global<u8>, GlobalMut<u8>, Gather)>;

/// The plan of a request, which is made once.
pub fn planned(request: Request) -> Arc<Plan> {
    static PLANS: Memo<Request, Arc<Plan>> = Memo::new();
    PLANS.get(&request).unwrap_or_else(|| {
        let plan = Arc::new(Plan::new(request.clone()));
        PLANS.keep(request, plan.clone());
        plan
    })
}

/// Does what the plan says, which is one of x and y.
pub fn run(plan: &Plan, x: &Tensor, y: &Tensor) -> Result<()> {
    match &plan.kernel {
        Choice::Gather => gather(&plan.simple, x, y),
        Choice::Rows => rows(&plan.simple, x, y),
        Choice::Tiles(tiled) => tiles(tiled, plan.simple.size, x, y),
        Choice::Boxes(boxed) => boxes(boxed, plan, x, y),
        Choice::Cast => crate::ops::cast::cast_into(x, y),
    }
}

/// x and y as bytes.
fn bytes(x: &Tensor, y: &Tensor) -> Result<(Global<u8>, GlobalMut<u8>)> {
    // SAFETY: bytes have no alignment.
    Ok(unsafe { (Global::from_raw(x.raw_view()?), GlobalMut::from_raw(y.raw_view()?)) })
}

fn tiles(tiled: &Tiled, size: usize, x: &Tensor, y: &Tensor) -> Result<()> {
    let (from, to) = bytes(x, y)?;
    let [along, across, others] = tiled.blocks;
    let grid = Grid::xyz(along, across, others)?
        .shared(reserved(x.device(), tiled.shared_bytes, tiled.limit()))
        .spread(x.device());
    let kernels: &'static [TileKernel] = match size {
        1 => kernels::tiled::kernels::<u8>(),
        2 => kernels::tiled::kernels::<u16>(),
        4 => kernels::tiled::kernels::<u32>(),
        8 => kernels::tiled::kernels::<u64>(),
        _ => kernels::tiled::kernels::<cuda_std::Pack>(),
    };
    let kernel = kernels.iter().find(|kernel| kernel.constant("ROWS") == tiled.rows);
    let kernel = kernel.expect("each number of rows has an instance");
    // SAFETY: as of boxes; the plan sees that everything is aligned.
    unsafe { x.device().launch(kernel, grid, (from, to, tiled.params)) }
}

fn boxes(boxed: &Boxed, plan: &Plan, x: &Tensor, y: &Tensor) -> Result<()> {
    let (from, to) = bytes(x, y)?;
    let grid = Grid::new(boxed.blocks)?
        .shared(reserved(x.device(), boxed.shared_bytes, boxed.limit))
        .spread(x.device());
    let kernel = box_kernel(boxed.way, plan);
    // SAFETY: x and y are what the plan was made of, with a block for each box. Memory is freed in the order of the
    // stream.
    unsafe { x.device().launch(kernel, grid, (from, to, boxed.params)) }
}

fn box_kernel(way: Way, plan: &Plan) -> &'static BoxKernel {
    let (from, to) = (plan.request.from, plan.request.to);
    let (levels, rows) = match way {
        Way::Turned => (0, false),
        Way::Packs { levels, rows } => (levels, rows),
    };
    if from != to {
        let kernels: &'static [BoxKernel] = match (from, to) {
            (DType::F32, DType::F16) => kernels::staged_f32_to_f16::ALL,
            (DType::F32, _) => kernels::staged_f32_to_bf16::ALL,
            (DType::F16, DType::F32) => kernels::staged_f16_to_f32::ALL,
            (DType::F16, _) => kernels::staged_f16_to_bf16::ALL,
            (_, DType::F32) => kernels::staged_bf16_to_f32::ALL,
            (_, _) => kernels::staged_bf16_to_f16::ALL,
        };
        return with_levels(kernels, levels);
    }
    macro_rules! of {
        ($($size:literal => $ty:ty),*; _ => $rest:ty) => {
            match (plan.simple.size, levels) {
                $(
                    ($size, 0) => &kernels::turned::kernels::<$ty>()[0],
                    ($size, _) => staged(kernels::staged::kernels::<$ty>(), levels, rows),
                )*
                (_, 0) => &kernels::turned::kernels::<$rest>()[0],
                (_, _) => staged(kernels::staged::kernels::<$rest>(), levels, rows),
            }
        };
    }
    of!(1 => u8, 2 => u16, 4 => u32, 8 => u64; _ => cuda_std::Pack)
}

/// The first kernel with so many levels whose table has rows or not.
fn staged(kernels: &'static [BoxKernel], levels: usize, rows: bool) -> &'static BoxKernel {
    let fits = |kernel: &&BoxKernel| {
        kernel.constant("LEVELS") >= levels && kernel.constant("ROWS") == usize::from(rows)
    };
    kernels.iter().find(fits).expect("there is one with all levels of either kind")
}

/// The first kernel with so many levels; they come by ascending levels, and the last has the most.
fn with_levels(kernels: &'static [BoxKernel], levels: usize) -> &'static BoxKernel {
    kernels.iter().find(|kernel| kernel.constant("LEVELS") >= levels).unwrap_or(&kernels[kernels.len() - 1])
}

fn gather(simple: &Simple, x: &Tensor, y: &Tensor) -> Result<()> {
    let (from, to) = bytes(x, y)?;
    cut(&without_bias(simple), Numbers::Units, simple.size, MOST_UNITS, &mut |params| {
        let kernel = gather_kernel(simple.size, params.dim_count as usize, params.units.into());
        // SAFETY: x holds the elements of these dimensions, y is of their shape; the grid covers the units.
        unsafe { x.device().launch(kernel, gather_grid(kernel, &params)?, (from, to, params)) }
    })
}

fn rows(simple: &Simple, x: &Tensor, y: &Tensor) -> Result<()> {
    let (from, to) = bytes(x, y)?;
    let size = simple.size;
    let kernel = rows_kernel(size);
    // Places within a launch are bytes, in 31 bits.
    cut(&without_bias(simple), Numbers::Rows, size, MOST_UNITS / size, &mut |params| {
        // The launch's first and last pack may be in part.
        let packs = (params.units as u64 * size as u64 + 2 * (PACK as u64 - 1)) / PACK as u64;
        // A table of where the rows begin that a block has something of, and of the row behind each.
        let row = params.row.value() as usize * size;
        let table = size_of::<u64>() * (per_block(kernel) as usize * PACK / row + 3);
        let grid = Grid::covering(packs, per_block(kernel))?.shared(table as u32);
        // SAFETY: as of a gather; the plan has no shorter rows than the kernel.
        unsafe { x.device().launch(kernel, grid, (from, to, params)) }
    })
}

/// The kernel for rows of elements of so many bytes.
pub fn rows_kernel(size: usize) -> &'static GatherKernel {
    match size {
        1 => &kernels::rows::kernels::<u8>()[0],
        2 => &kernels::rows::kernels::<u16>()[0],
        4 => &kernels::rows::kernels::<u32>()[0],
        _ => &kernels::rows::kernels::<u64>()[0],
    }
}

/// Units below which each has a thread of its own on an H100, even of a launch of one to a thread.
const FEW: u64 = 132 * 2048;

/// The kernel for so many units of so many bytes in so many dimensions.
pub fn gather_kernel(size: usize, dims: usize, units: u64) -> &'static GatherKernel {
    let kernels: &'static [GatherKernel] = match size {
        1 => kernels::gather::kernels::<u8>(),
        2 => kernels::gather::kernels::<u16>(),
        4 => kernels::gather::kernels::<u32>(),
        8 => kernels::gather::kernels::<u64>(),
        _ => kernels::gather::kernels::<cuda_std::Pack>(),
    };
    // What is smaller than a pack has more under way by two to a thread, if there are enough.
    let least = if size == PACK || units <= FEW { dims } else { MAX_DIMS };
    kernels.iter().find(|kernel| kernel.constant("DIMS") >= least).unwrap_or(&kernels[kernels.len() - 1])
}

/// As many blocks as the units of a launch need.
pub fn gather_grid<Args>(kernel: &Kernel<Args>, params: &Gather) -> Result<Grid> {
    Grid::covering(params.units.into(), per_block(kernel))
}

/// Units, or packs, that a block of a gather has.
pub fn per_block<Args>(kernel: &Kernel<Args>) -> u64 {
    u64::from(kernel.bounds.threads) * kernel.constant("UNITS") as u64
}

/// A dimension of a gather, with the step along it in a bias.
#[derive(Clone, Copy)]
pub struct GatherDim {
    pub dim: simplify::Dim,
    pub bias: isize,
}

fn without_bias(simple: &Simple) -> Vec<GatherDim> {
    simple.dims.iter().map(|&dim| GatherDim { dim, bias: 0 }).collect()
}

/// What the numbers of a launch count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    Units,
    /// Rows of the innermost dimension.
    Rows,
}

/// Cuts a walk along its outermost dimensions into launches of at most `most` units of `size` bytes.
pub fn cut(
    dims: &[GatherDim],
    numbers: Numbers,
    size: usize,
    most: usize,
    launch: &mut dyn FnMut(Gather) -> Result<()>,
) -> Result<()> {
    let inner: usize = dims.iter().skip(1).map(|dim| dim.dim.extent).product();
    let Some((outer, rest)) = dims.split_first() else {
        return launch(params(&[], numbers, 1, size));
    };
    let at = |mut params: Gather, index: usize| {
        params.x += index as i64 * outer.dim.x as i64 * size as i64;
        params.bias += index as i64 * outer.bias as i64;
        params.y += (index * inner) as u64;
        params
    };
    let step = (most / inner).min(outer.dim.extent);
    if step == 0 {
        let each = |index| cut(rest, numbers, size, most, &mut |params| launch(at(params, index)));
        return (0..outer.dim.extent).try_for_each(each);
    }
    (0..outer.dim.extent).step_by(step).try_for_each(|index| {
        launch(at(params(dims, numbers, step.min(outer.dim.extent - index), size), index))
    })
}

/// A launch of all of these dimensions, but `outer` of the outermost.
fn params(dims: &[GatherDim], numbers: Numbers, outer: usize, size: usize) -> Gather {
    // Extents of a launch are below 2^31, and none is 0.
    let divisor = |extent: usize| ShortDivisor::new(extent as u32).unwrap_or(ShortDivisor::ONE);
    let extent = |i: usize| if i == 0 { outer } else { dims[i].dim.extent };
    let units: usize = (0..dims.len()).map(extent).product();
    let (counted, row) = match (numbers, dims.len().checked_sub(1)) {
        (Numbers::Rows, Some(last)) => (last, extent(last)),
        _ => (dims.len(), 1),
    };
    let (mut slots, mut biases) = ([Dim::NONE; MAX_DIMS], [0; MAX_DIMS]);
    // Units within a dimension, and what all of the one before takes in x and in the bias.
    let (mut within, mut before) = (1, (0, 0));
    for ((slot, of_bias), i) in slots.iter_mut().zip(&mut biases).zip((0..counted).rev()) {
        let (x, bias) = ((dims[i].dim.x * size as isize) as i64, dims[i].bias as i64);
        // Products of a launch's extents are below 2^31, too.
        *slot = Dim { within: Quotient::new(within as u32).unwrap_or(Quotient::ONE), x: x - before.0 };
        *of_bias = bias - before.1;
        before = (x * extent(i) as i64, bias * extent(i) as i64);
        within *= extent(i);
    }
    Gather {
        dims: slots,
        biases,
        x: 0,
        bias: 0,
        y: 0,
        units: units as u32,
        dim_count: counted as u32,
        row: divisor(row),
        unused: 0,
    }
}
