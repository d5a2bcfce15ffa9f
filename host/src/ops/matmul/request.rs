//! What a plan depends on: the GPU, and the product.

use kernels_gpu::matmul::{self as kernels, activation, flag};

use super::choice::Choice;
use super::layout::{Layout, begins, lines};
use super::leaving::Leaving;
use super::maps::mappable;
use super::model::H100_MEMORY;
use super::problem::Problem;
use crate::device::Device;
use crate::dtype::DType;

/// The GPU that a plan is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Target {
    /// Multiprocessors.
    pub sms: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_bytes: u32,
    /// Hopper's instructions.
    pub warpgroups: bool,
    /// Tensor cores that multiply tf32 more than three times as fast as the others multiply f32.
    pub fast_tf32: bool,
    /// Bytes in a nanosecond from memory, at most.
    pub memory: f64,
}

/// What plans for the CPU are for: an H100.
const HOPPER: Target =
    Target { sms: 132, shared_bytes: 228 << 10, warpgroups: true, fast_tf32: true, memory: H100_MEMORY };

impl Target {
    /// The target of tensors on `device`.
    pub fn of(device: &Device) -> Target {
        let Some(info) = device.info() else { return HOPPER };
        // Two transfers a clock.
        let memory = f64::from(info.memory_clock_khz) * f64::from(info.memory_bus_bits) / 4e6;
        Target {
            sms: info.sm_count,
            shared_bytes: info.max_shared_per_sm,
            warpgroups: info.arch == (9, 0),
            fast_tf32: is_of_data_centres(info.arch),
            memory: if memory > 0.0 { memory } else { HOPPER.memory },
        }
    }
}

/// Whether GPUs of a compute capability are made for data centres; those for graphics have as much f32 as tf32.
fn is_of_data_centres(arch: (u32, u32)) -> bool {
    matches!(arch, (8 | 9, 0) | (10 | 11, _))
}

/// How an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its columns, along k, are neighbours in memory; else its rows are.
    pub along_k: bool,
    /// It is copied first, into rows or columns that start at multiples of 16 bytes, long ones at lines of L2.
    pub copied: bool,
}

/// What a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Products.
    pub batch: usize,
    pub dtype: DType,
    /// Operands in f32 may be rounded to tf32.
    pub tf32: bool,
    pub sides: [Side; 2],
    /// The part of a line of L2, in bytes, at multiples of which each operand's lines begin, as they are.
    pub begins: [usize; 2],
    /// Each operand, as it is or copied, can be read through a tensor map.
    pub mappable: [bool; 2],
    /// Both operands, as they are, have neighbours in memory along k or across it.
    pub neighbours: bool,
    /// The result of `turned` can leave as it lies in shared memory, in boxes or by threads.
    pub boxed: bool,
    /// So can that of `alternating`.
    pub in_turn: bool,
    /// Something beside the sums is read: an addend, or where slopes are taken.
    pub beside: bool,
    /// GELU is applied to it, or its slopes are.
    pub gelu: bool,
    /// Nothing is done with the sums but what [`small`](kernels::small) does.
    pub simple: bool,
    /// a and b, and m and n, have changed places, for kernels of few rows: see [`Request::of_few`].
    pub by_columns: bool,
}

impl Request {
    /// `phases` are the addresses of a and b modulo [`LINE`](super::layout::LINE).
    pub(crate) fn new(
        problem: &Problem,
        layout: &Layout,
        phases: [usize; 2],
        epilogue: &kernels::Epilogue,
    ) -> Request {
        let dtype = problem.factors.dtype;
        let wide = dtype == DType::F32;
        let leaves = |choice| !wide && Leaving::of(choice, epilogue).is_some();
        let side = |matrix: &kernels::Matrix, rows: usize, phase: usize| {
            let aligned = phase.is_multiple_of(16);
            let lines = lines(matrix, rows, layout.k, 16 / dtype.size()).filter(|lines| {
                // Kernels for f32 read whole packs.
                let length = if lines.along_k { layout.k } else { rows };
                aligned && (!wide || length.is_multiple_of(4))
            });
            match lines {
                Some(lines) => Side { along_k: lines.along_k, copied: false },
                None => Side { along_k: matrix.col <= matrix.row, copied: true },
            }
        };
        let mappable = |matrix, side: &Side, rows: usize| {
            let lines = if side.along_k { rows } else { layout.k };
            side.copied || mappable(matrix, dtype.size(), lines, side.along_k)
        };
        let sides = [side(&layout.a, layout.m, phases[0]), side(&layout.b, layout.n, phases[1])];
        let of_matrix = |i: usize, matrix| begins(matrix, sides[i].along_k, dtype, phases[i]);
        let neighbours = |matrix: &kernels::Matrix, side: &Side, rows: usize| {
            let (step, extent) = if side.along_k { (matrix.col, layout.k) } else { (matrix.row, rows) };
            step == 1 || extent <= 1
        };
        Request {
            // What kernels that fetch by themselves ask.
            neighbours: !wide
                && neighbours(&layout.a, &sides[0], layout.m)
                && neighbours(&layout.b, &sides[1], layout.n),
            tf32: problem.factors.tf32,
            mappable: [mappable(&layout.a, &sides[0], layout.m), mappable(&layout.b, &sides[1], layout.n)],
            m: layout.m,
            n: layout.n,
            k: layout.k,
            batch: layout.products(),
            dtype,
            boxed: leaves(Choice::Turned { shape: 0 }),
            in_turn: leaves(Choice::Alternating { shape: 0 }),
            beside: epilogue.flags & (flag::ADDEND | flag::SLOPE) != 0,
            simple: problem.is_simple(),
            gelu: matches!(problem.epilogue.activation, activation::GELU_TANH | activation::GELU_ERF),
            sides,
            begins: [of_matrix(0, &layout.a), of_matrix(1, &layout.b)],
            by_columns: false,
        }
    }

    /// Whether both operands can be read through tensor maps.
    pub(super) fn is_mappable(&self) -> bool {
        self.mappable == [true; 2]
    }

    /// What kernels of few rows are asked for: with fewer columns than rows the columns of the result are their rows. The operand of few lies along k, which
    /// takes a copy where it does not.
    pub(super) fn of_few(&self) -> Request {
        let mut few = *self;
        if self.n < self.m {
            (few.m, few.n, few.by_columns) = (self.n, self.m, true);
            few.sides.swap(0, 1);
            few.begins.swap(0, 1);
            few.mappable.swap(0, 1);
        }
        if !few.sides[0].along_k {
            (few.sides[0], few.mappable[0]) = (Side { along_k: true, copied: true }, true);
        }
        few
    }
}
