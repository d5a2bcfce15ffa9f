//! From problem and layout to launches.

use super::Problem;
use super::layout::{Layout, MAX_LAUNCH, Phases};
use crate::dtype::Element;
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::views::read;
use crate::tensor::Tensor;
use cuda_std::divide::Divisor;
use cuda_std::kernel::Kernel;
use cuda_std::{Float, Global, GlobalMut};
use kernels_gpu::dropping::Dropping;
use kernels_gpu::pointwise::{Dense, Dim, MAX_DIMS, Strided, unit};

/// From this many blocks of the largest instance on, it is the one: some four for each multiprocessor of the
/// largest GPUs. Below it more, smaller blocks fill the GPU better.
const MANY_BLOCKS: usize = 512;

/// What the kernels of one function take.
type DenseArgs<A, B> = (Global<A>, Global<A>, Global<A>, GlobalMut<B>, Dense);
type StridedArgs<A, B> = (Global<A>, Global<A>, Global<A>, GlobalMut<B>, Strided);

/// The kernels of one function.
pub struct Kernels<A: 'static, B: 'static> {
    /// By ascending PACKS.
    pub dense: &'static [Kernel<DenseArgs<A, B>>],
    pub strided: &'static Kernel<StridedArgs<A, B>>,
}

/// The tensors of a problem.
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    pub a: &'a Tensor,
    pub b: Option<(&'static str, &'a Tensor)>,
    pub bias: Option<&'a Tensor>,
}

/// Computes y, which matches the problem; the operands are those that it was made of.
pub fn run<A: Element + Float, B: Element + Float>(
    problem: &Problem,
    kernels: Kernels<A, B>,
    operands: Operands,
    dropping: Dropping,
    y: &Tensor,
) -> Result<()> {
    if y.is_empty() {
        return Ok(());
    }
    let device = operands.a.device();
    let b = operands.b.map(|(arg, b)| b.adopted(device, problem.op, arg)).transpose()?;
    let bias = operands.bias.map(|bias| bias.adopted(device, problem.op, "bias")).transpose()?;
    let (a_view, b_view, bias_view) = (operands.a.view::<A>()?, read(b.as_ref())?, read(bias.as_ref())?);
    let y_view = y.view_mut::<B>()?;
    let unit = const { unit::<A, B>() };
    let phase = |tensor: &Tensor| (tensor.address() as usize / tensor.dtype().size()) % unit;
    let (a_phase, y_phase) = (phase(operands.a), phase(y));
    let phases = Phases {
        operands: &[a_phase, b.as_ref().map_or(a_phase, phase), y_phase],
        bias: bias.as_ref().map_or(0, phase),
    };
    let launch_dense = |piece: DensePiece| {
        let (kernel, blocks) = instance(kernels.dense, |packs| piece.threads(packs, problem.bias.is_some()));
        let args = (a_view, b_view, bias_view, y_view, piece.params(dropping, problem));
        // SAFETY: the operands match the problem, of which the layout is, and y does; the grid covers the
        // units. Tensors are freed in the order of their streams, which `adopted` has made wait for one another.
        unsafe { device.launch(kernel, Grid::new(blocks)?, args) }
    };
    match Layout::of(problem, unit, phases) {
        Layout::Run { head } => runs(y.len(), problem.bias).try_for_each(|(first, count)| {
            let head = head_from(head, first, unit);
            launch_dense(DensePiece { unit, first, count, head, rows: None })
        }),
        Layout::Rows { rows, cols, a, b } => {
            let step = (MAX_LAUNCH / cols).max(1);
            (0..rows).step_by(step).try_for_each(|row| {
                let count = step.min(rows - row) * cols;
                let rows = Some(RowsPiece { row, cols, a, b });
                launch_dense(DensePiece { unit, first: row * cols, count, head: 0, rows })
            })
        }
        Layout::Strided => {
            let dims: Vec<Dimension> = (0..problem.walk.shape.len())
                .map(|dim| Dimension {
                    extent: problem.walk.shape[dim],
                    steps: problem.walk.strides.map(|strides| strides[dim] as i64),
                })
                .collect();
            cut(&dims, MAX_LAUNCH, Base::default(), &mut |piece| {
                let blocks = Strided::blocks(piece.count() as u64, kernels.strided.bounds.threads);
                let args = (a_view, b_view, bias_view, y_view, piece.params(dropping));
                // SAFETY: as above.
                unsafe { device.launch(kernels.strided, Grid::new(blocks)?, args) }
            })
        }
    }
}

/// The instance for work that takes so many threads of some packs each, and its blocks.
fn instance<Args>(
    kernels: &'static [Kernel<Args>],
    threads: impl Fn(usize) -> usize,
) -> (&'static Kernel<Args>, u64) {
    let blocks = |kernel: &Kernel<Args>| {
        threads(kernel.constant("PACKS")).div_ceil(kernel.bounds.threads as usize).max(1)
    };
    let large = kernels.iter().rev().find(|kernel| blocks(kernel) >= MANY_BLOCKS);
    let kernel = large.unwrap_or(&kernels[0]);
    (kernel, blocks(kernel) as u64)
}

/// The launches of a run of `len` elements: the first element and the number of each. With a bias each
/// begins with a row.
fn runs(len: usize, bias: Option<usize>) -> impl Iterator<Item = (usize, usize)> {
    let step = bias.map_or(MAX_LAUNCH, |cols| MAX_LAUNCH / cols * cols);
    (0..len).step_by(step).map(move |first| (first, step.min(len - first)))
}

/// Elements before the first unit of a launch that begins with element `first` of a run with `head` of them.
fn head_from(head: u32, first: usize, unit: usize) -> u32 {
    ((head as usize + unit - first % unit) % unit) as u32
}

/// A launch on dense operands.
struct DensePiece {
    unit: usize,
    first: usize,
    count: usize,
    head: u32,
    rows: Option<RowsPiece>,
}

struct RowsPiece {
    row: usize,
    cols: usize,
    a: isize,
    b: isize,
}

impl DensePiece {
    fn units(&self) -> usize {
        self.count.saturating_sub(self.head as usize) / self.unit
    }

    /// Threads that have so many packs each; those of rows with a bias have the same columns of neighbouring rows.
    fn threads(&self, packs: usize, bias: bool) -> usize {
        match &self.rows {
            Some(rows) if bias => (self.count / rows.cols).div_ceil(packs) * (rows.cols / self.unit),
            _ => self.units().div_ceil(packs),
        }
    }

    fn params(&self, dropping: Dropping, problem: &Problem) -> Dense {
        let first = self.first as i64;
        let (divisor, [a_base, b_base], [a_row, b_row]) = match &self.rows {
            None => (problem.bias.unwrap_or(1), [first; 2], [0; 2]),
            Some(rows) => {
                let (row, steps) = (rows.row as i64, [rows.a as i64, rows.b as i64]);
                (rows.cols / self.unit, steps.map(|step| row * step), steps)
            }
        };
        Dense {
            a_base,
            b_base,
            y_base: first,
            a_row,
            b_row,
            first: self.first as u64,
            dropping,
            units: self.units() as u32,
            // Of a launch that ends before its first unit, all.
            head: self.head.min(self.count as u32),
            count: self.count as u32,
            rows: u32::from(self.rows.is_some()),
            per_row: divisor_of(divisor),
            row_count: self.rows.as_ref().map_or(0, |rows| (self.count / rows.cols) as u32),
        }
    }
}

/// The divisor, of an extent that a launch has or, of a single step, 1.
fn divisor_of(extent: usize) -> Divisor {
    let one = Divisor::new(1).expect("1 divides");
    u32::try_from(extent).ok().and_then(Divisor::new).unwrap_or(one)
}

/// One dimension of a strided walk, with the step along it in a, b and the bias.
#[derive(Clone, Copy)]
pub struct Dimension {
    pub extent: usize,
    pub steps: [i64; 3],
}

/// Where a launch begins in a, b, the bias and y.
#[derive(Clone, Copy, Default)]
struct Base {
    inputs: [i64; 3],
    y: u64,
}

/// Elements that one launch takes.
struct StridedPiece<'a> {
    /// Outermost first.
    dims: &'a [Dimension],
    /// How many of the outermost dimension.
    outer: usize,
    base: Base,
}

/// Cuts a walk along its outermost dimensions into pieces of at most `most` elements.
fn cut(
    dims: &[Dimension],
    most: usize,
    base: Base,
    launch: &mut impl FnMut(StridedPiece) -> Result<()>,
) -> Result<()> {
    let Some((outer, inner)) = dims.split_first() else {
        return launch(StridedPiece { dims, outer: 1, base });
    };
    let inner_count: usize = inner.iter().map(|dim| dim.extent).product();
    let step = (most / inner_count).min(outer.extent);
    let at = |index: usize| {
        let mut inputs = base.inputs;
        inputs.iter_mut().zip(outer.steps).for_each(|(at, step)| *at += index as i64 * step);
        Base { inputs, y: base.y + (index * inner_count) as u64 }
    };
    if step == 0 {
        return (0..outer.extent).try_for_each(|index| cut(inner, most, at(index), launch));
    }
    (0..outer.extent).step_by(step).try_for_each(|index| {
        launch(StridedPiece { dims, outer: step.min(outer.extent - index), base: at(index) })
    })
}

impl StridedPiece<'_> {
    fn count(&self) -> usize {
        self.outer * self.dims.iter().skip(1).map(|dim| dim.extent).product::<usize>()
    }

    fn params(&self, dropping: Dropping) -> Strided {
        let [a_base, b_base, bias_base] = self.base.inputs;
        Strided {
            dims: dims(self.dims, self.outer),
            a_base,
            b_base,
            bias_base,
            y_base: self.base.y,
            dropping,
            count: self.count() as u32,
            dim_count: self.dims.len() as u32,
        }
    }
}

/// The kernel's form of dimensions, outermost first, of which the outermost has `outer` steps.
pub fn dims(dimensions: &[Dimension], outer: usize) -> [Dim; MAX_DIMS] {
    let mut dims = [Dim { a: 0, b: 0, bias: 0, extent: divisor_of(1), unused: 0 }; MAX_DIMS];
    let outermost = dimensions.len().saturating_sub(1);
    for (slot, (i, dim)) in dims.iter_mut().zip(dimensions.iter().rev().enumerate()) {
        let [a, b, bias] = dim.steps;
        let extent = divisor_of(if i == outermost { outer } else { dim.extent });
        *slot = Dim { a, b, bias, extent, unused: 0 };
    }
    dims
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element's place in a, b, the bias and y, from pieces of at most `most` elements, by the arithmetic of
    /// the kernel.
    fn places(dimensions: &[Dimension], most: usize) -> Vec<([i64; 3], u64)> {
        let mut places = Vec::new();
        cut(dimensions, most, Base::default(), &mut |piece| {
            let p = piece.params(Dropping::NOTHING);
            assert!(piece.count() <= most && p.count as usize == piece.count());
            for number in 0..p.count {
                let (a, b, bias) = kernels_gpu::pointwise::offsets(&p.dims, p.dim_count, number);
                let inputs = [p.a_base + a, p.b_base + b, p.bias_base + bias];
                places.push((inputs, p.y_base + u64::from(number)));
            }
            Ok(())
        })
        .expect("the closure does not fail");
        places
    }

    fn dim(extent: usize, steps: [i64; 3]) -> Dimension {
        Dimension { extent, steps }
    }

    #[test]
    fn pieces_of_any_size_are_the_same_elements_in_the_same_order() {
        let dims = [dim(3, [1 << 33, 7, 0]), dim(5, [70, 1 << 40, 0]), dim(4, [9, 3, 1])];
        let whole = places(&dims, 60);
        assert_eq!(whole.len(), 60);
        assert_eq!(whole[59], ([(2 << 33) + 4 * 70 + 3 * 9, 14 + (4 << 40) + 9, 3], 59));
        for most in [1, 2, 3, 4, 5, 7, 19, 20, 21, 39, 40, 59, 61] {
            assert_eq!(places(&dims, most), whole, "{most}");
        }
        assert_eq!(places(&[], 1), [([0; 3], 0)]);
    }

    #[test]
    fn long_runs_are_cut_at_rows_and_start_beyond_32_bits() {
        let len = (1usize << 34) + (1 << 33) + 12_345;
        for bias in [None, Some(1000), Some(MAX_LAUNCH)] {
            let pieces: Vec<(usize, usize)> = runs(len, bias).collect();
            let mut next = 0;
            for (first, count) in pieces {
                assert_eq!((first, first % bias.unwrap_or(1)), (next, 0));
                assert!(count <= MAX_LAUNCH && count > 0);
                // What dropout counts on.
                assert!(bias.is_some() || first >> 34 == (first + count - 1) >> 34);
                next += count;
            }
            assert_eq!(next, len);
        }
    }

    #[test]
    fn each_launch_of_a_run_finds_the_next_unit() {
        for (head, unit) in [(0, 8), (3, 8), (7, 8), (0, 4), (2, 4)] {
            for first in [0, 1, 5, 8, 1009, (1 << 30) - 5, 1 << 30] {
                let next = first + head_from(head, first, unit) as usize;
                assert!((next - first) < unit && (next + unit - head as usize).is_multiple_of(unit));
            }
        }
    }

    #[test]
    fn rows_begin_where_their_strides_lead_past_2_to_the_31() {
        let problem = {
            let x = crate::Desc::new(&crate::Device::cpu(), crate::DType::F32, &[1 << 20, 1 << 14]).unwrap();
            Problem::new("op", ("x", &x), None, None, crate::DType::F32).unwrap()
        };
        let rows = Some(RowsPiece { row: 1 << 18, cols: 1 << 14, a: 1 << 15, b: 0 });
        let piece = DensePiece { unit: 4, first: 1 << 32, count: 1 << 30, head: 0, rows };
        let p = piece.params(Dropping::NOTHING, &problem);
        assert_eq!((p.a_base, p.b_base, p.y_base, p.first), (1 << 33, 0, 1 << 32, 1 << 32));
        assert_eq!((p.units, p.per_row.value(), p.rows), (1 << 28, 1 << 12, 1));
    }
}
