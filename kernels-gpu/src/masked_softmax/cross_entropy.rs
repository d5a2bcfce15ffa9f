//! Cross entropy of rows of logits with a target class each, and its gradient, from one reading of the logits.
//!
//! loss[r] = log Σ exp(x[r, j]) − x[r, t[r]], and dx[r, j] = g[r]·(softmax(x[r])[j] − [j = t[r]]). A row whose target is
//! the ignored one is not read: its loss and gradient are 0. A row with a NaN or +∞, or with nothing but −∞, has NaN for
//! both. A target that is no class counts as ignored, and is recorded for the host.
//!
//! Rows go through the kernels of the masked softmax; what differs is their [`Ending`]: the thread that wrote the
//! target's column writes it again, and the loss.
//!
//! Floor: x once and, with the gradient, dx once.

use super::ending::{End, Ending, Share, Sink};
use super::held::Normaliser;
use super::locate::Row;
use super::packed_scores::Packed;
use super::{Operands, Params, cluster_rows, mask_kind, register_rows, streamed_rows, strided_rows};
use cuda_std::atomic::{Ordering, Scope};
use cuda_std::prelude::*;

/// Bits of the value in the record of a bad target; above them stands its row.
pub const FAULT_BITS: u32 = 32;

/// How targets and gradients of losses lie.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Targets {
    /// The target of rows that do not count.
    pub ignored: i64,
    /// 1 for targets of 64 bits, 0 for 32.
    pub wide: u32,
    /// Gradients of losses from row to row: 1, or 0 for one that is all rows'.
    pub gradient_stride: u32,
    /// 1 where dx is written.
    pub gradient: u32,
    /// Fills the struct, which has no padding.
    pub unused: u32,
}
cuda_std::plain_parameter!(Targets);
const _: () = assert!(size_of::<Targets>() == 8 + 4 * 4);

impl Targets {
    /// The target of a row.
    ///
    /// # Safety
    /// `targets` are as these parameters say, seen as words, and have one of this number.
    #[inline(always)]
    unsafe fn read(&self, targets: Global<u32>, number: u32) -> i64 {
        // SAFETY: the caller's contract.
        unsafe {
            if self.wide != 0 {
                let [low, high] = targets.get_8_if(true, 2 * number as usize, 0);
                ((high as u64) << 32 | low as u64) as i64
            } else {
                targets.get(number as usize) as i32 as i64
            }
        }
    }
}

/// The operands beside logits and their gradient.
#[derive(Clone, Copy)]
struct CrossEntropy {
    targets: Global<u32>,
    /// Of the losses.
    gradients: Global<f32>,
    losses: GlobalMut<f32>,
    fault: GlobalMut<u64>,
    t: Targets,
}

/// What is known of a row.
#[derive(Clone, Copy)]
struct Known {
    number: u32,
    /// The target's window column; none for a row that does not count.
    column: Option<i32>,
    /// g.
    gradient: f32,
}

impl<T: Float> Ending<T> for CrossEntropy {
    type Known = Known;
    const ZEROS: bool = false;

    #[inline(always)]
    unsafe fn begin(&self, p: &Params, number: u32, row: Row) -> (Known, Row) {
        // SAFETY: the caller's contract.
        unsafe {
            let target = self.t.read(self.targets, number);
            let at = (number * self.t.gradient_stride) as usize;
            let gradient = if self.t.gradient != 0 { self.gradients.get(at) } else { 0.0 };
            let is_class = target >= 0 && target < p.cols as i64;
            if target == self.t.ignored || !is_class {
                if target != self.t.ignored {
                    record(self.fault, number, target);
                }
                return (Known { number, column: None, gradient: 0.0 }, row.emptied());
            }
            (Known { number, column: Some(row.first + target as i32), gradient }, row)
        }
    }

    #[inline(always)]
    fn is_nan(known: Known, sum: f32) -> bool {
        known.column.is_some() && (sum.is_nan() || sum == 0.0)
    }

    #[inline(always)]
    fn normaliser(known: Known, end: Normaliser) -> Normaliser {
        end.times::<T>(known.gradient)
    }

    #[inline(always)]
    fn stores(&self) -> bool {
        self.t.gradient != 0
    }

    #[inline(always)]
    fn sink(&self, operands: &Operands<T>) -> impl Sink<T> {
        operands.y
    }

    #[inline(always)]
    unsafe fn finish(&self, operands: &Operands<T>, p: &Params, known: Known, share: &Share, end: End) {
        let number = known.number as usize;
        // SAFETY: the caller's contract; one thread of the row has a column, and one is the first.
        unsafe {
            let Some(column) = known.column else {
                self.losses.set_if(share.is_first(), number, 0.0);
                return;
            };
            if !share.has(column) {
                return;
            }
            let End::Number(end) = end else {
                self.losses.set(number, f32::NAN);
                return;
            };
            let x = operands.x.get((share.row.x + column as i64 * p.x_stride) as usize).to_f32();
            let below = x - end.maximum;
            self.losses.set(number, float::fma(end.log2_sum, core::f32::consts::LN_2, -below));
            if self.t.gradient != 0 {
                let power = p.exponent.exp(below) * end.inverse_sum;
                let at = (share.row.y + column as i64) as usize;
                operands.y.set(at, T::from_f32((power - 1.0) * known.gradient));
            }
        }
    }
}

/// Records a target that is no class for the host, which learns of that of the first row.
///
/// # Safety
/// `fault` is one word.
#[inline(always)]
unsafe fn record(fault: GlobalMut<u64>, number: u32, target: i64) {
    let value = target.max(i32::MIN as i64).min(i32::MAX as i64) as u32; // not `clamp`, which can panic
    // SAFETY: the caller's contract.
    unsafe {
        fault.atomic_min(0, (number as u64) << FAULT_BITS | value as u64, Ordering::Relaxed, Scope::Device)
    };
}

/// The parameters without what a row of logits has not, which the compiler then leaves out.
#[inline(always)]
fn plain(p: Params) -> Params {
    Params { mask_kind: mask_kind::NONE, has_lengths: 0, has_starts: 0, causal: 0, flip: 0, scale: 1.0, ..p }
}

/// A kernel over rows of logits.
macro_rules! cross_entropy_kernel {
    ($(#[$doc:meta])* $family:literal $name:ident [$($const:ident)*] $instances:tt $($requires:literal)?, $run:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The operands match `p` and `t`: `targets` and `losses` have an element for each row, `gradients` too or one
        /// element; the launch is as for the softmax's kernel of the same form.
        #[kernel(family = $family, types = [f32, f16, bf16], $(requires = $requires,)? instances = $instances)]
        pub unsafe fn $name<T: Float $(, const $const: usize)*>(
            x: Global<T>,
            targets: Global<u32>,
            gradients: Global<f32>,
            dx: GlobalMut<T>,
            losses: GlobalMut<f32>,
            fault: GlobalMut<u64>,
            t: Targets,
            p: Params,
        ) {
            let ending = CrossEntropy { targets, gradients, losses, fault, t };
            // SAFETY: the caller's contract; a row without mask and bounds reads none.
            unsafe {
                let (mask, none) = (Global::from_raw(x.raw()), Global::from_raw(x.raw()));
                let operands = Operands {
                    x, mask, lengths: none, starts: none, y: dx, lengths_fault: fault, starts_fault: fault,
                };
                $run(&operands, &plain(p), &ending)
            }
        }
    };
}

cross_entropy_kernel!(
    /// Rows held in registers.
    "masked_softmax" cross_entropy_row [LANES PACKS] [
        { LANES: 1, PACKS: 2; threads: 128 },
        { LANES: 8, PACKS: 4; threads: 128 },
        { LANES: 32, PACKS: 4; threads: 128 },
        { LANES: 64, PACKS: 4; threads: 64 },
        { LANES: 128, PACKS: 4; threads: 128 },
        { LANES: 256, PACKS: 4; threads: 256 },
        { LANES: 512, PACKS: 4; threads: 512, min_blocks: 2 },
    ],
    register_rows::rows::<T, Packed, _, LANES, PACKS>
);
cross_entropy_kernel!(
    /// Rows held by a cluster.
    "masked_softmax_hopper" cross_entropy_cluster [LANES PACKS STAGED] [
        { LANES: 512, PACKS: 4, STAGED: 12; threads: 512, min_blocks: 2 },
        { LANES: 256, PACKS: 4, STAGED: 12; threads: 256, min_blocks: 4 },
        { LANES: 1024, PACKS: 4, STAGED: 12; threads: 1024, min_blocks: 1 },
    ] "sm_90a",
    cluster_rows::cluster::<T, Packed, _, LANES, PACKS, STAGED>
);
cross_entropy_kernel!(
    /// Rows of any length.
    "masked_softmax" cross_entropy_streamed [LANES PACKS] [{ LANES: 512, PACKS: 4; threads: 512, min_blocks: 1 }],
    streamed_rows::stream::<T, Packed, _, LANES, PACKS>
);
cross_entropy_kernel!(
    /// Rows of any layout.
    "masked_softmax" cross_entropy_strided [] [{ ; threads: 128 }],
    strided_rows::stride::<T, _>
);

/// Writes what losses of rows are weighted with: `factors` are g, which is all rows', and what the sum of the losses is
/// multiplied by. Both are over the number of rows that count where `mean` is 1. g is `gradient`, or 1 where
/// `t.gradient_stride` is not 1.
///
/// # Safety
/// `targets` are `rows` of them as `t` says, `gradient` one number where it is read; the grid is one block.
#[kernel(family = "masked_softmax", instances = [{ ; threads: 1024 }])]
pub unsafe fn cross_entropy_factors(
    targets: Global<u32>,
    gradient: Global<f32>,
    factors: GlobalMut<f32>,
    rows: u32,
    cols: u32,
    mean: u32,
    t: Targets,
) {
    let mut row = thread::thread_idx_x();
    let mut count = 0;
    // SAFETY: the caller's contract.
    unsafe {
        while row < rows && mean != 0 {
            let target = t.read(targets, row);
            count += (target != t.ignored && target >= 0 && target < cols as i64) as u32;
            row += thread::block_dim_x();
        }
        let count = block::sum_u32(count);
        if thread::thread_idx_x() == 0 {
            let share = if mean != 0 { 1.0 / count as f32 } else { 1.0 };
            let gradient = if t.gradient_stride == 1 { gradient.get(0) } else { 1.0 };
            factors.set(0, gradient * share);
            factors.set(1, share);
        }
    }
}

/// The sum of the losses, times `factors[1]`; in an order that `rows` alone determines.
///
/// # Safety
/// `losses` has `rows` elements; the grid is one block.
#[kernel(family = "masked_softmax", instances = [{ ; threads: 1024 }])]
pub unsafe fn cross_entropy_total(losses: Global<f32>, factors: Global<f32>, out: GlobalMut<f32>, rows: u32) {
    let mut row = thread::thread_idx_x();
    let mut sum = 0.0;
    // SAFETY: the caller's contract.
    unsafe {
        while row < rows {
            sum += losses.get(row as usize);
            row += thread::block_dim_x();
        }
        let sum = block::sum_f32(sum);
        if thread::thread_idx_x() == 0 {
            out.set(0, sum * factors.get(1));
        }
    }
}
