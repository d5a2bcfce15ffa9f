//! Batches of more dimensions than kernels count in: which tensors are copied first, so that two are left.

use super::layout::Layout;
use super::problem::Problem;
use crate::error::Result;
use crate::ops::permute::dense;
use crate::shape::{self, Dims};
use crate::tensor::Tensor;

/// How an operand is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    No,
    /// What repeats in the batch once.
    Once,
    /// As often as it repeats.
    Repeated,
}

/// The problem of contiguous copies that kernels count in.
#[derive(Debug)]
pub(super) struct Counted {
    pub problem: Problem,
    pub layout: Layout,
    operands: [Copied; 2],
    addend: bool,
}

impl Counted {
    /// That with the fewest elements in its copies. A weight is one for all rows of x, and stays so where x alone is copied.
    pub fn new(problem: &Problem) -> Counted {
        let ways = [Copied::No, Copied::Once, Copied::Repeated];
        let addends = if problem.addend.is_some() { &[false, true][..] } else { &[false] };
        let mut best: Option<(u128, Counted)> = None;
        for operands in ways.into_iter().flat_map(|a| ways.map(|b| [a, b])) {
            for &addend in addends {
                let elements = elements(problem, operands, addend);
                if best.as_ref().is_some_and(|(least, _)| *least <= elements) {
                    continue;
                }
                let problem = of_copies(problem, operands, addend);
                if let Some(layout) = Layout::new(&problem) {
                    best = Some((elements, Counted { problem, layout, operands, addend }));
                }
            }
        }
        best.expect("dimensions of contiguous tensors become one").1
    }

    /// The operands, copied.
    pub fn operands(&self, tensors: [&Tensor; 2]) -> Result<[Tensor; 2]> {
        let front = &self.problem.factors.front;
        let of = |i: usize| {
            let tensor = tensors[i];
            if self.operands[i] == Copied::No {
                return Ok(tensor.clone());
            }
            let mut shape = front.to_vec();
            shape.extend(&tensor.shape()[tensor.rank() - 2..]);
            let mut whole = tensor.expand(&shape)?;
            for dim in (0..front.len()).filter(|_| self.operands[i] == Copied::Once) {
                if whole.strides()[dim] == 0 {
                    whole = whole.narrow(dim as isize, 0, 1)?;
                }
            }
            dense(&whole)
        };
        Ok([of(0)?, of(1)?])
    }

    /// What is added, copied where it has to be.
    pub fn addend(&self, addend: Option<Tensor>) -> Result<Option<Tensor>> {
        let copied = |tensor: Tensor| dense(&tensor.expand(self.problem.y.shape())?);
        if self.addend { addend.map(copied).transpose() } else { Ok(addend) }
    }
}

/// The extents in front of a copy of operand `i`.
fn front(problem: &Problem, i: usize, copied: Copied) -> Dims<usize> {
    let (steps, ..) = problem.factors.strides[i];
    let mut front = problem.factors.front;
    for (extent, &step) in front.iter_mut().zip(steps.iter()) {
        if copied == Copied::Once && step == 0 {
            *extent = 1;
        }
    }
    front
}

/// Elements of the copies.
fn elements(problem: &Problem, operands: [Copied; 2], addend: bool) -> u128 {
    let product = |extents: &[usize]| extents.iter().map(|&extent| extent as u128).product::<u128>();
    let factors = &problem.factors;
    let of = |i: usize, rows: usize| match operands[i] {
        Copied::No => 0,
        copied => product(&front(problem, i, copied)) * product(&[rows, factors.k]),
    };
    of(0, factors.m) + of(1, factors.n) + if addend { product(problem.y.shape()) } else { 0 }
}

/// The problem of these copies.
fn of_copies(problem: &Problem, operands: [Copied; 2], addend: bool) -> Problem {
    let mut factors = problem.factors;
    for (i, rows) in [factors.m, factors.n].into_iter().enumerate() {
        if operands[i] == Copied::No {
            continue;
        }
        let mut shape = front(problem, i, operands[i]);
        let rank = shape.len();
        let last = if factors.swapped[i] { [factors.k, rows] } else { [rows, factors.k] };
        last.into_iter().for_each(|extent| shape.push(extent));
        let strides = shape::contiguous_strides(&shape);
        let mut steps = Dims::new();
        for dim in 0..rank {
            steps.push(if shape[dim] == factors.front[dim] { strides[dim] } else { 0 });
        }
        let [row, col] = if factors.swapped[i] {
            [strides[rank + 1], strides[rank]]
        } else {
            [strides[rank], strides[rank + 1]]
        };
        factors.strides[i] = (steps, row, col);
    }
    let contiguous = || Some(shape::contiguous_strides(problem.y.shape()));
    let addend = if addend { contiguous() } else { problem.addend };
    Problem { factors, addend, ..problem.clone() }
}
