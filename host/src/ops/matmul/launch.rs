//! From problem to launches.

use cuda_std::global::RawView;
use cuda_std::kernel::Kernel;
use cuda_std::tma::TensorMap;
use cuda_std::{Float, Global, GlobalMut, Half};
use kernels_gpu::matmul::{self as kernels, Epilogue, Matrix, Product, Scales, activation, flag};

use super::blocks::{blocks, divisor};
use super::choice::{Choice, instance};
use super::copies::{Ready, prepare};
use super::counted::Counted;
use super::epilogue::{Beside, epilogue};
use super::layout::{LINE, Layout};
use super::leaving::{Leaving, beside_of, map_of_heads};
use super::maps;
use super::parted::{Parts, Whole};
use super::plan::Plan;
use super::problem::Problem;
use super::request::{Request, Target};
use super::tuned::tuned;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::permute::dense;
use crate::ops::views::read;
use crate::tensor::Tensor;

/// The tensors of an epilogue, of the shape of y except for the bias `[n]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Behind<'a> {
    pub bias: Option<&'a Tensor>,
    /// Of any strides.
    pub addend: Option<&'a Tensor>,
    /// Where the activation's operand is kept, contiguous, or where its slope is taken, of any strides.
    pub aux: Option<&'a Tensor>,
}

/// Computes y, which matches the problem, on its stream; the operands are those that the problem was made of.
pub fn run(problem: &Problem, a: &Tensor, b: &Tensor, behind: &Behind, y: &Tensor) -> Result<()> {
    if y.is_empty() {
        return Ok(());
    }
    let tuned = tuned(problem, a, b, behind, y)?;
    run_by_plan(tuned.as_ref().unwrap_or(problem), a, b, behind, y, true)
}

/// [`run`] by the problem's kernel or the model's; where there is no memory for that, by `others`, if these may serve.
pub fn run_by_plan(
    problem: &Problem,
    a: &Tensor,
    b: &Tensor,
    behind: &Behind,
    y: &Tensor,
    others: bool,
) -> Result<()> {
    let device = y.device();
    let adopt = |tensor: &Tensor, arg| tensor.adopted(device, problem.op, arg);
    let (a, b) = (adopt(a, "a")?, adopt(b, "b")?);
    let bias = behind.bias.map(|bias| dense(&adopt(bias, "bias")?)).transpose()?;
    // Read as the result is written, and where it is kept it is a result.
    let aux = behind.aux.map(|aux| adopt(aux, "aux")).transpose()?;
    let aux = if problem.epilogue.slope { aux.as_ref().map(dense).transpose()? } else { aux };
    let addend = behind.addend.map(|addend| adopt(addend, "c")).transpose()?;
    if let Some(layout) = Layout::new(problem) {
        return dispatch(problem, &layout, [&a, &b], [&bias, &addend, &aux], y, others);
    }
    let counted = Counted::new(problem);
    let ([a, b], addend) = (counted.operands([&a, &b])?, counted.addend(addend)?);
    dispatch(&counted.problem, &counted.layout, [&a, &b], [&bias, &addend, &aux], y, others)
}

type Behinds<'a> = [&'a Option<Tensor>; 3];

/// The result, the tensors of what is done with the sums, and how.
struct End<'a> {
    y: &'a Tensor,
    /// The bias, the addend and the activation's operand.
    behind: Behinds<'a>,
    epilogue: Epilogue,
}

fn dispatch(
    problem: &Problem,
    layout: &Layout,
    operands: [&Tensor; 2],
    behind: Behinds,
    y: &Tensor,
    others: bool,
) -> Result<()> {
    let beside = Beside::given(behind.map(Option::as_ref), y);
    let end = End { y, behind, epilogue: epilogue(problem, layout, beside)? };
    let request = Request::new(problem, layout, operands.map(phase), &end.epilogue);
    let target = Target::of(y.device());
    let plan = Plan::new(&request, target, problem.wanted);
    let others = || if others { plan.with_less_memory(&request, target, problem.wanted) } else { Vec::new() };
    first_that_fits(plan, others, |plan| match problem.factors.dtype {
        DType::F16 => halves::<half::f16>(plan, problem, layout, operands, &end),
        DType::BF16 => halves::<half::bf16>(plan, problem, layout, operands, &end),
        _ => floats(plan, problem, layout, operands, &end),
    })
}

/// A tensor's address modulo a line of L2.
pub(super) fn phase(tensor: &Tensor) -> usize {
    (tensor.address() % LINE as u64) as usize
}

/// By the plan or, where there is no memory for its parts, sums of parts and copies of operands, or a launch cannot make them, by the
/// first of others for which there is.
fn first_that_fits(
    plan: Plan,
    others: impl FnOnce() -> Vec<Plan>,
    by: impl Fn(Plan) -> Result<()>,
) -> Result<()> {
    let is_too_much =
        |done: &Result<()>| matches!(done, Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }));
    let mut done = by(plan);
    if is_too_much(&done) {
        for other in others() {
            done = by(other);
            if !is_too_much(&done) {
                break;
            }
        }
    }
    done
}

fn floats(plan: Plan, problem: &Problem, layout: &Layout, operands: [&Tensor; 2], end: &End) -> Result<()> {
    let Ready { layout: at, operands: held } = prepare::<f32>(&plan, problem, layout, operands)?;
    let extents = [at.m, at.n];
    // Parts are held until the product is launched; their memory is freed in the order of the stream.
    let mut parts = Vec::new();
    let code = match plan.choice {
        Choice::CudaCores { index } => Code::Plain(&kernels::cuda_cores::ALL[index]),
        Choice::ThinF32 { index } => Code::Plain(&kernels::thin_f32::ALL[index]),
        Choice::Short { index } => Code::Plain(&kernels::short::kernels::<f32>()[index]),
        Choice::SmallF32 { index } => Code::Plain(&kernels::small_f32::ALL[index]),
        Choice::Tf32Cores { shape } => Code::Plain(&kernels::tf32_cores::ALL[instance(shape, plan.sides)]),
        Choice::Parted { shape } => {
            let kernel = &kernels::parted::ALL[instance(shape, plan.sides)];
            for (i, matrix) in [at.a, at.b].into_iter().enumerate() {
                let (tensor, along_k) = (&held[i], plan.sides[i].along_k);
                let whole = Whole { tensor, matrix, rows: extents[i], cols: at.k, batch: at.batch, along_k };
                parts.push(whole.take_apart(problem.op, plan.tile[i], &plan)?);
            }
            Code::Parted(kernel, [OfParts::new(&parts[0])?, OfParts::new(&parts[1])?])
        }
        Choice::Tf32Pipelined { shape } => {
            let map = |i: usize, matrix: &Matrix| {
                maps::rounded_operand(&held[i], matrix, [extents[i], at.k], at.batch, plan.tile[i])
            };
            Code::Tf32Piped(&kernels::tf32_pipelined::ALL[shape], [map(0, &at.a)?, map(1, &at.b)?])
        }
        Choice::NarrowF32 { index } => {
            let map = |i: usize, matrix: &Matrix| {
                let along_k = plan.sides[i].along_k;
                maps::operand(&held[i], matrix, [extents[i], at.k], at.batch, along_k, plan.tile[i])
            };
            Code::NarrowF32(&kernels::narrow_f32::ALL[index], [map(0, &at.a)?, map(1, &at.b)?])
        }
        _ => unreachable!("the other kernels are for 16-bit types"),
    };
    product::<f32>(problem, &at, plan, code, held.each_ref(), end)
}

fn halves<T>(plan: Plan, problem: &Problem, layout: &Layout, operands: [&Tensor; 2], end: &End) -> Result<()>
where
    T: Element
        + Half
        + kernels::tensor_cores::Instances
        + kernels::thin::Instances
        + kernels::short::Instances
        + kernels::small::Instances
        + kernels::narrow::Instances
        + kernels::pipelined::Instances
        + kernels::turned::Instances
        + kernels::alternating::Instances
        + kernels::clustered::Instances
        + kernels::loose::Instances
        + kernels::repack::Instances
        + kernels::reduce::Instances,
{
    let Ready { layout, operands } = prepare::<T>(&plan, problem, layout, operands)?;
    let operands = operands.each_ref();
    let extents = [(layout.m, layout.k), (layout.n, layout.k)];
    let code = match plan.choice {
        Choice::Thin { index } => Code::Plain(&kernels::thin::kernels::<T>()[index]),
        Choice::Short { index } => Code::Plain(&kernels::short::kernels::<T>()[index]),
        Choice::Small { index } => Code::Plain(&kernels::small::kernels::<T>()[index]),
        Choice::TensorCores { shape } => {
            Code::Plain(&kernels::tensor_cores::kernels::<T>()[instance(shape, plan.sides)])
        }
        Choice::Loose { shape } => Code::Plain(&kernels::loose::kernels::<T>()[instance(shape, plan.sides)]),
        Choice::Pipelined { .. }
        | Choice::Turned { .. }
        | Choice::Alternating { .. }
        | Choice::Clustered { .. }
        | Choice::Narrow { .. } => {
            let map = |i: usize, matrix: &Matrix| {
                let (lines, terms) = extents[i];
                let along_k = plan.sides[i].along_k;
                maps::operand(operands[i], matrix, [lines, terms], layout.batch, along_k, plan.tile[i])
            };
            let kernel = match plan.choice {
                Choice::Clustered { shape } => {
                    &kernels::clustered::kernels::<T>()[instance(shape, plan.sides)]
                }
                Choice::Narrow { index } => &kernels::narrow::kernels::<T>()[index],
                Choice::Turned { shape } => &kernels::turned::kernels::<T>()[instance(shape, plan.sides)],
                Choice::Alternating { shape } => {
                    &kernels::alternating::kernels::<T>()[instance(shape, plan.sides)]
                }
                Choice::Pipelined { shape } => {
                    &kernels::pipelined::kernels::<T>()[instance(shape, plan.sides)]
                }
                _ => unreachable!("the others have no maps"),
            };
            Code::Piped(kernel, [map(0, &layout.a)?, map(1, &layout.b)?])
        }
        Choice::Tf32Cores { .. }
        | Choice::Parted { .. }
        | Choice::Tf32Pipelined { .. }
        | Choice::NarrowF32 { .. }
        | Choice::ThinF32 { .. }
        | Choice::SmallF32 { .. }
        | Choice::CudaCores { .. } => unreachable!("these kernels are for f32"),
    };
    product::<T>(problem, &layout, plan, code, operands, end)
}

/// The kernel of a product.
#[allow(clippy::large_enum_variant)] // there is one at a time, on the stack of its launch
enum Code<T: 'static> {
    /// One that reads operands by their addresses.
    Plain(&'static Kernel<kernels::tensor_cores::Args<T>>),
    /// One that reads them through maps.
    Piped(&'static Kernel<kernels::pipelined::Args<T>>, [TensorMap; 2]),
    /// One of f32 that reads them as they are through maps, and by their addresses where sums are not finite.
    NarrowF32(&'static Kernel<OfNarrowF32<T>>, [TensorMap; 2]),
    /// One that reads their parts through maps.
    Parted(&'static Kernel<PartedArgs<T>>, [OfParts; 2]),
    /// One that reads them rounded through maps.
    Tf32Piped(&'static Kernel<OfTf32<T>>, [TensorMap; 2]),
}

/// What `parted` gets of an operand's parts.
#[derive(Clone, Copy)]
struct OfParts {
    map: TensorMap,
    scales: Global<u32>,
    places: Scales,
}

impl OfParts {
    fn new(parts: &Parts) -> Result<OfParts> {
        Ok(OfParts { map: parts.map, scales: parts.scales()?, places: parts.places })
    }
}

/// The arguments of `parted`.
type PartedArgs<T> = (
    TensorMap,
    TensorMap,
    TensorMap,
    Global<T>,
    Global<T>,
    Global<T>,
    Global<T>,
    GlobalMut<T>,
    GlobalMut<T>,
    Global<u32>,
    Global<u32>,
    Scales,
    Scales,
    Product,
);

/// The arguments of `narrow_f32`.
type OfNarrowF32<T> =
    (TensorMap, TensorMap, Global<T>, Global<T>, Global<T>, Global<T>, GlobalMut<T>, GlobalMut<T>, Product);

/// The arguments of `tf32_pipelined`.
type OfTf32<T> = (TensorMap, TensorMap, TensorMap, Global<T>, Global<T>, GlobalMut<T>, GlobalMut<T>, Product);

impl<T: Element> Code<T> {
    /// # Safety
    /// As [`crate::Device::launch`]; the maps are of the result where the epilogue has [`flag::STORED`] without [`flag::SCATTERED`], and of what is
    /// read or kept beside it.
    unsafe fn launch(
        &self,
        device: &crate::Device,
        grid: Grid,
        [result, beside]: [Option<TensorMap>; 2],
        args: kernels::tensor_cores::Args<T>,
    ) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe {
            match self {
                Code::Plain(kernel) => device.launch(kernel, grid, args),
                Code::Piped(kernel, [map_a, map_b]) => {
                    let (_, b, bias, addend, aux, out, p) = args;
                    let [result, beside] = [result, beside].map(|map| map.unwrap_or_else(TensorMap::none));
                    let args = (*map_a, *map_b, result, beside, b, bias, addend, aux, out, p);
                    device.launch(kernel, grid, args)
                }
                Code::NarrowF32(kernel, [map_a, map_b]) => {
                    let (a, b, bias, addend, aux, out, p) = args;
                    device.launch(kernel, grid, (*map_a, *map_b, a, b, bias, addend, aux, out, p))
                }
                Code::Parted(kernel, [of_a, of_b]) => {
                    let (a, b, bias, addend, aux, out, p) = args;
                    let (map_a, map_b) = (of_a.map, of_b.map);
                    let result = result.unwrap_or_else(TensorMap::none);
                    let (scales_a, scales_b) = (of_a.scales, of_b.scales);
                    let (in_a, in_b) = (of_a.places, of_b.places);
                    let args = (
                        map_a, map_b, result, a, b, bias, addend, aux, out, scales_a, scales_b, in_a, in_b, p,
                    );
                    device.launch(kernel, grid, args)
                }
                Code::Tf32Piped(kernel, [map_a, map_b]) => {
                    let (_, _, bias, addend, aux, out, p) = args;
                    let result = result.unwrap_or_else(TensorMap::none);
                    device.launch(kernel, grid, (*map_a, *map_b, result, bias, addend, aux, out, p))
                }
            }
        }
    }
}

/// Tells a kernel that finishes whole sums how the result leaves; gives the maps of the result and of what lies beside it.
fn leave(
    problem: &Problem,
    layout: &Layout,
    plan: &Plan,
    &End { y, behind: [_, addend, aux], .. }: &End,
    extents: [usize; 2],
    epilogue: &mut Epilogue,
) -> Result<[Option<TensorMap>; 2]> {
    let leaving = Leaving::of(plan.choice, epilogue);
    let needs_it = matches!(plan.choice, Choice::Turned { .. } | Choice::Alternating { .. });
    debug_assert!(leaving.is_some() || !needs_it, "{plan}");
    let mut maps = [None; 2];
    match leaving {
        Some(Leaving::Boxes(boxed)) => {
            let map = |of: &Tensor, matrix| maps::result(of, matrix, extents, layout.batch, boxed);
            epilogue.flags |= flag::STORED;
            maps[0] = Some(match &problem.heads {
                None => map(y, &epilogue.out)?,
                Some(heads) => map_of_heads(y, heads, epilogue, boxed)?,
            });
            let beside = if epilogue.flags & flag::ADDEND != 0 { addend } else { aux };
            if let (Some(beside), Some(matrix)) = (beside, beside_of(epilogue)) {
                epilogue.flags |= if epilogue.flags & flag::KEEP == 0 { flag::BESIDE } else { 0 };
                maps[1] = Some(map(beside, &matrix)?);
            }
        }
        Some(Leaving::ByThreads) => epilogue.flags |= flag::STORED | flag::SCATTERED,
        None => {}
    }
    Ok(maps)
}

/// Launches the product and, of splits, the sum of the parts.
fn product<T: Element + Float + kernels::reduce::Instances>(
    problem: &Problem,
    layout: &Layout,
    plan: Plan,
    code: Code<T>,
    [a, b]: [&Tensor; 2],
    end: &End,
) -> Result<()> {
    let End { y, behind: [bias, addend, aux], mut epilogue } = *end;
    let (op, device) = (problem.op, y.device());
    // Of the result.
    let [m, n] = if plan.by_columns { [layout.n, layout.m] } else { [layout.m, layout.n] };
    epilogue.flags |= if plan.by_columns { flag::BY_COLUMNS } else { 0 };
    let blocks = blocks(op, layout, &plan)?;
    let grid = Grid::new(plan.blocks(layout.products()))?.shared(plan.shared_bytes).early_if(plan.early);
    let grid = if plan.is_clustered() { grid.cluster(plan.splits as u32) } else { grid };
    let (bias, addend) = (read::<T>(bias.as_ref())?, read::<T>(addend.as_ref())?);
    // SAFETY: elements of this type, or no memory for a tensor that no flag asks for.
    let aux = unsafe { GlobalMut::<T>::from_raw(read::<T>(aux.as_ref())?.raw()) };
    // SAFETY: as above; an f32 result is reached through the raw view again.
    let out = unsafe { GlobalMut::<T>::from_raw(y.raw_view()?) };
    let p = |epilogue| Product {
        a: layout.a,
        b: layout.b,
        blocks,
        epilogue,
        k: layout.k as u32,
        k_of_split: plan.k_of_split as u32,
        asks: plan.asks.into(),
    };
    let (a, b) = (a.view::<T>()?, b.view::<T>()?);
    if plan.splits == 1 || plan.is_clustered() {
        let maps = leave(problem, layout, &plan, end, [m, n], &mut epilogue)?;
        let args = (a, b, bias, addend, aux, out, p(epilogue));
        // SAFETY: layout and plan are those of the tensors, of which `Problem` has checked the extents. Memory is
        // freed in the order of the stream.
        return unsafe { code.launch(device, grid, maps, args) };
    }
    let pitch = n.next_multiple_of(4);
    let [outer, inner] = layout.batch;
    let parts = Tensor::uninit(device, DType::F32, &[plan.splits, outer, inner, m, pitch])?;
    let steps = parts.strides();
    let of_parts = Matrix { row: pitch as i64, col: 1, outer: steps[1] as i64, inner: steps[2] as i64 };
    let mut alone = Epilogue {
        out: of_parts,
        split: steps[0] as i64,
        alpha: 1.0,
        flags: flag::WIDE | flag::PACKED | epilogue.flags & flag::BY_COLUMNS,
        activation: activation::NONE,
        heads: kernels::Heads::default(),
        ..epilogue
    };
    // SAFETY: f32, which the kernel knows from the flag.
    let (none, out_of_parts) =
        unsafe { (Global::<T>::from_raw(RawView::none()), GlobalMut::<T>::from_raw(parts.raw_view()?)) };
    // SAFETY: as above.
    let no_aux = unsafe { GlobalMut::<T>::from_raw(RawView::none()) };
    let mut result = None;
    if let Some(Leaving::Boxes(boxed)) = Leaving::of(plan.choice, &alone).filter(|_| outer == 1) {
        alone.flags |= flag::STORED;
        // The splits are the batch's outer dimension, in which there is but one product.
        let of_parts = Matrix { outer: alone.split, ..of_parts };
        result = Some(maps::result(&parts, &of_parts, [m, n], [plan.splits, inner], boxed)?);
    }
    // SAFETY: as for one part; `parts` has room for all.
    unsafe { code.launch(device, grid, [result, None], (a, b, none, none, no_aux, out_of_parts, p(alone)))? };
    let packs_of_row = n.div_ceil(T::PER_PACK);
    let packs = packs_of_row * m * layout.products();
    let sums = kernels::Partials {
        blocks,
        epilogue,
        partials: of_parts,
        step: steps[0] as i64,
        packs_of_row: divisor(op, packs_of_row)?,
        rows: divisor(op, m)?,
        packs: packs as u32,
        splits: plan.splits as u32,
    };
    let reduce: &Kernel<kernels::reduce::Args<T>> = &kernels::reduce::kernels::<T>()[0];
    // Behind a long product, which lets it in when that starts, it would be in the way.
    let grid = Grid::covering(packs as u64, reduce.bounds.threads.into())?.early_if(plan.early);
    // SAFETY: the partial sums are those of this layout; a plan with splits has few of them.
    unsafe { device.launch(reduce, grid, (parts.view::<f32>()?, bias, addend, aux, out, sums)) }
}
