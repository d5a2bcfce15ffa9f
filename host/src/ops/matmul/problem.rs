//! What is asked: the checked operands, as extents and strides.

use kernels_gpu::matmul::activation;

use super::blocks::tiles_of_launch;
use super::broadcast;
use super::choice::Choice;
use super::counted::Counted;
use super::epilogue::{Beside, epilogue};
use super::layout::{Layout, within_limit};
use super::plan::{Plan, Wanted};
use super::request::{Request, Target};
use super::tuned;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::pointwise::{on_device, reach};
use crate::shape::{self, Dims};
use crate::tensor::Desc;

/// The two operands: a with rows along m and b with rows along n, both with columns along k.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors {
    pub dtype: DType,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// The dimensions in front, of the result.
    pub front: Dims<usize>,
    /// Strides of the dimensions in front, of the rows and of the columns, of a and b.
    pub strides: [(Dims<isize>, isize, isize); 2],
    /// Whether the last dimension of a and b is that of the rows.
    pub swapped: [bool; 2],
    /// Operands in f32 may be rounded to tf32.
    pub tf32: bool,
}

/// Those of an operand with all dimensions in front.
fn strides(desc: &Desc, swapped: bool) -> (Dims<isize>, isize, isize) {
    let (front, last) = desc.strides().split_at(desc.rank() - 2);
    let (rows, cols) = if swapped { (last[1], last[0]) } else { (last[0], last[1]) };
    let mut steps = Dims::new();
    // Without elements there is nowhere to step to, and all dimensions merge.
    front.iter().for_each(|&step| steps.push(if desc.is_empty() { 0 } else { step }));
    (steps, rows, cols)
}

impl Factors {
    /// Of `[.., rows, columns]` or, where `swapped`, `[.., columns, rows]`.
    pub fn new(
        op: &'static str,
        (a_arg, a, a_swapped): (&'static str, &Desc, bool),
        (b_arg, b, b_swapped): (&'static str, &Desc, bool),
    ) -> Result<Factors> {
        if b.dtype() != a.dtype() {
            let required = a.dtype().to_string();
            return Err(Error::DType { op, arg: b_arg, required, got: b.dtype() });
        }
        on_device(op, b_arg, b, a)?;
        let of = |arg, desc: &Desc, swapped: bool, required: &str| {
            let rank = desc.rank();
            if rank < 2 {
                let (required, got) = (required.to_owned(), desc.shape().to_vec());
                return Err(Error::Shape { op, arg, required, got });
            }
            reach(op, arg, desc)?;
            let (rows, cols) = if swapped { (rank - 1, rank - 2) } else { (rank - 2, rank - 1) };
            Ok((desc.shape()[rows], desc.shape()[cols]))
        };
        let (m, k) = of(a_arg, a, a_swapped, if a_swapped { "[.., K, M]" } else { "[.., M, K]" })?;
        let (n, b_k) = of(b_arg, b, b_swapped, if b_swapped { "[.., K, N]" } else { "[.., N, K]" })?;
        if b_k != k {
            let required = if b_swapped { format!("[.., {k}, N]") } else { format!("[.., N, {k}]") };
            return Err(Error::Shape { op, arg: b_arg, required, got: b.shape().to_vec() });
        }
        let front = front(op, b_arg, a, b)?;
        let steps = |arg, desc: &Desc, swapped| {
            let (steps, row, col) = strides(desc, swapped);
            let front = shape::broadcast_strides(op, arg, &desc.shape()[..steps.len()], &steps, &front)?;
            Ok((front, row, col))
        };
        let strides = [steps(a_arg, a, a_swapped)?, steps(b_arg, b, b_swapped)?];
        for (what, extent) in [("rows of the result", m), ("columns of the result", n), ("terms of a sum", k)]
        {
            within_limit(op, what, extent)?;
        }
        let swapped = [a_swapped, b_swapped];
        Ok(Factors { dtype: a.dtype(), m, n, k, front, strides, swapped, tf32: false })
    }

    /// With operands that may be rounded to tf32: f32 alone.
    pub fn rounded(self, op: &'static str, tf32: bool) -> Result<Factors> {
        if tf32 && self.dtype != DType::F32 {
            let required = format!("false for operands in {}", self.dtype);
            return Err(Error::Parameter { op, arg: "tf32", required, got: "true".to_owned() });
        }
        Ok(Factors { tf32, ..self })
    }
}

/// The dimensions in front of both, broadcast.
fn front(op: &'static str, b_arg: &'static str, a: &Desc, b: &Desc) -> Result<Dims<usize>> {
    let (of_a, of_b) = (&a.shape()[..a.rank() - 2], &b.shape()[..b.rank() - 2]);
    let rank = of_a.len().max(of_b.len());
    let mut front = Dims::zeros(rank);
    for (back, extent) in front.iter_mut().rev().enumerate() {
        let at = |of: &[usize]| of.len().checked_sub(back + 1).map_or(1, |dim| of[dim]);
        *extent = match (at(of_a), at(of_b)) {
            (1, other) => other,
            (same, 1) => same,
            (same, other) if same == other => same,
            _ => {
                let required = format!("[.., _, _] whose leading dimensions broadcast with {of_a:?}");
                return Err(Error::Shape { op, arg: b_arg, required, got: b.shape().to_vec() });
            }
        };
    }
    Ok(front)
}

/// What is done with the sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epilogue {
    pub alpha: f32,
    pub beta: f32,
    /// One of [`activation`].
    pub activation: u32,
    /// Multiply by slopes at the auxiliary tensor instead.
    pub slope: bool,
}

impl Default for Epilogue {
    fn default() -> Self {
        Epilogue { alpha: 1.0, beta: 1.0, activation: activation::NONE, slope: false }
    }
}

/// How a result `[sequences, length, parts·count·width]` is split on its way out: into `[parts, sequences, count, length, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub parts: usize,
    pub sequences: usize,
    pub count: usize,
    pub length: usize,
    pub width: usize,
}

/// A checked request.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub op: &'static str,
    pub factors: Factors,
    pub epilogue: Epilogue,
    /// The result, `[front.., m, n]`, contiguous.
    pub y: Desc,
    /// The order in which it is written, if another: of three dimensions, with nothing beside them.
    pub heads: Option<Heads>,
    /// The strides of what is added, as those of y.
    pub addend: Option<Dims<isize>>,
    /// The kernel that the caller wants, or that was measured.
    pub wanted: Option<Wanted>,
}

impl Problem {
    /// The result has type `out` and shape `[front.., m, n]`.
    pub fn new(
        op: &'static str,
        factors: Factors,
        epilogue: Epilogue,
        out: DType,
        device: &crate::Device,
    ) -> Result<Problem> {
        let mut shape = factors.front.to_vec();
        shape.extend([factors.m, factors.n]);
        let y = Desc::contiguous(op, device, out, &shape)?;
        Ok(Problem { op, factors, epilogue, y, heads: None, addend: None, wanted: None })
    }

    /// With something added.
    pub fn with_addend(self, arg: &'static str, addend: &Desc) -> Result<Problem> {
        if addend.dtype() != self.factors.dtype {
            let required = self.factors.dtype.to_string();
            return Err(Error::DType { op: self.op, arg, required, got: addend.dtype() });
        }
        on_device(self.op, arg, addend, &self.y)?;
        reach(self.op, arg, addend)?;
        let strides = broadcast(self.op, arg, addend, self.y.shape())?;
        Ok(Problem { addend: Some(strides), ..self })
    }

    /// By a kernel of the caller's choice, in as many parts and with such copies as the model takes.
    pub fn by(self, choice: Choice) -> Problem {
        Problem { wanted: Some(Wanted { choice, splits: None, sides: None }), ..self }
    }

    /// Terms that are summed: none where alpha is 0.
    pub fn k(&self) -> usize {
        if self.epilogue.alpha == 0.0 { 0 } else { self.factors.k }
    }

    /// Whether nothing is done with the sums but what a kernel with few registers to spare does. What is kept and heads do not count: with them and without
    /// the numbers are the same bits.
    pub fn is_simple(&self) -> bool {
        let Problem { factors, epilogue, y, .. } = self;
        let simple = [activation::NONE, activation::RELU].contains(&epilogue.activation);
        simple && !epilogue.slope && y.dtype() == factors.dtype
    }

    /// What a plan depends on; `phases` are the addresses of a and b modulo a line of L2.
    pub(super) fn request(&self, phases: [usize; 2], beside: Beside) -> Result<Request> {
        let of = |problem: &Problem, layout: &Layout| {
            Ok(Request::new(problem, layout, phases, &epilogue(problem, layout, beside)?))
        };
        match Layout::new(self) {
            Some(layout) => of(self, &layout),
            None => {
                let counted = Counted::new(self);
                of(&counted.problem, &counted.layout)
            }
        }
    }

    /// That of operands that start at lines of L2.
    pub fn request_of_lines(&self) -> Result<Request> {
        self.request([0; 2], Beside::of(self))
    }

    /// The plan for operands that start at lines of L2.
    pub fn plan(&self) -> Result<Plan> {
        let request = self.request_of_lines()?;
        let target = Target::of(self.y.device());
        Ok(match tuned::known(self, &request, target) {
            Some(plan) => plan,
            None => Plan::new(&request, target, self.wanted),
        })
    }

    /// The plan of each kernel that can serve, the fastest first.
    pub fn plans(&self) -> Result<Vec<Plan>> {
        Ok(Plan::of_each_kernel(&self.request_of_lines()?, Target::of(self.y.device())))
    }

    /// The plan, if its launch can have as many tiles.
    pub fn launchable_plan(&self) -> Result<Plan> {
        let plan = self.plan()?;
        let products = self.factors.front.iter().fold(1, |all: usize, &of| all.saturating_mul(of));
        tiles_of_launch(self.op, &plan, products)?;
        Ok(plan)
    }
}
