//! y = (x − mean)/√(variance + ε)·weight + bias, with mean and variance (of n, not n − 1) of the row.
//!
//! Inputs: x. Vectors: weight and bias, both optional. Results: y; mean and rstd = 1/√(variance + ε), f32 [rows].
//! The variance comes from differences: those of a thread's elements from one of them, then of the means of the parts. A NaN
//! or an infinity in a row makes the row NaN. Floor: 2·bytes.

use super::statistic::Moments;
use super::{Elements, MAX_INPUTS, Operands, Params, RowOp, row_kernels, walked_kernel};
use cuda_std::prelude::*;

/// Layer norm; with `JOINS` of the sum of two inputs and a bias, with `DROPS` after dropout of the first and the bias.
pub(super) struct Normalise<const JOINS: bool, const DROPS: bool>;

type LayerNorm = Normalise<false, false>;

/// What turns x into y.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    mean: f32,
    rstd: f32,
}

impl<T: Float, const JOINS: bool, const DROPS: bool> RowOp<T> for Normalise<JOINS, DROPS> {
    const INPUTS: usize = if JOINS { 2 } else { 1 };
    const VECTORS: usize = 2;
    const JOINS: bool = JOINS;
    const DROPS: bool = DROPS;
    type Statistic = Moments;
    type Row = ();
    type Total = Scale;

    #[inline(always)]
    unsafe fn begin(_: &Operands<T>, _: u32) {}

    #[inline(always)]
    fn join(x: [f32; MAX_INPUTS], input_bias: f32, drop: impl Fn(f32) -> f32) -> f32 {
        let of_x = x[0] + input_bias;
        if const { DROPS } { drop(of_x) + x[1] } else { of_x + x[1] }
    }

    #[inline(always)]
    fn statistic<E: Elements>(_: (), elements: &E) -> Moments {
        // Differences from one of the elements: their mean is off from it by √(n − 1) standard deviations at most, and so little
        // is lost by a single pass.
        let from = elements.sample();
        let [sum, squares] = elements.sums(0, |[sum, squares], x, _| {
            let off = x[0] - from;
            [sum + off, float::fma(off, off, squares)]
        });
        let count = elements.count();
        let off = sum * float::rcp(count.max(1.0));
        let (mean, squares) = (from + off, float::fma(-sum, off, squares));
        Moments { count, mean, squares }
    }

    #[inline(always)]
    unsafe fn finish(
        operands: &Operands<T>,
        p: &Params,
        row: u32,
        leader: bool,
        _: (),
        statistic: Moments,
    ) -> Scale {
        let mean = statistic.mean;
        let rstd = float::rsqrt(float::fma(statistic.squares, p.inverse_cols, p.number));
        // SAFETY: the caller's contract.
        unsafe {
            operands.mean.set_if(leader, row as usize, mean);
            operands.rstd.set_if(leader, row as usize, rstd);
        }
        Scale { mean, rstd }
    }

    #[inline(always)]
    fn result(Scale { mean, rstd }: Scale, x: [f32; MAX_INPUTS], [weight, bias]: [f32; 2]) -> f32 {
        float::fma((x[0] - mean) * rstd, weight, bias)
    }
}

row_kernels!(
    LayerNorm,
    layer_norm_rows,
    layer_norm_streamed,
    layer_norm_strided,
    [
        { LANES: 1, PACKS: 1; threads: 128, min_blocks: 4 },
        { LANES: 2, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 4, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 8, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 8, PACKS: 3; threads: 128, min_blocks: 4 },
        { LANES: 16, PACKS: 2; threads: 128, min_blocks: 8 },
        { LANES: 16, PACKS: 3; threads: 128, min_blocks: 6 },
        { LANES: 16, PACKS: 4; threads: 128, min_blocks: 6 },
        { LANES: 32, PACKS: 3; threads: 128 },
        { LANES: 32, PACKS: 4; threads: 128 },
        { LANES: 64, PACKS: 3; threads: 64 },
        { LANES: 64, PACKS: 4; threads: 64 },
        { LANES: 128, PACKS: 3; threads: 128 },
        { LANES: 128, PACKS: 4; threads: 128 },
        { LANES: 256, PACKS: 4; threads: 256 },
        { LANES: 512, PACKS: 4; threads: 512, min_blocks: 2 },
        { LANES: 1024, PACKS: 4; threads: 1024 },
    ],
    [{ LANES: 512, PACKS: 4; threads: 512 }],
    layer_norm_cluster,
    [{ LANES: 256, PACKS: 4; threads: 256, min_blocks: 4 }, { LANES: 512, PACKS: 4; threads: 512, min_blocks: 2 }]
);

walked_kernel!(
    LayerNorm,
    layer_norm_walked,
    [
        { PACKED: 1, LANES: 16, PACKS: 2, DEPTH: 4; threads: 128, min_blocks: 6 },
        { PACKED: 0, LANES: 32, PACKS: 3, DEPTH: 6; threads: 128, min_blocks: 6 },
        { PACKED: 0, LANES: 32, PACKS: 4, DEPTH: 8; threads: 128, min_blocks: 4 },
        { PACKED: 0, LANES: 64, PACKS: 4, DEPTH: 8; threads: 64, min_blocks: 8 },
        { PACKED: 0, LANES: 96, PACKS: 4, DEPTH: 8; threads: 96, min_blocks: 5 },
        { PACKED: 0, LANES: 128, PACKS: 4, DEPTH: 8; threads: 128, min_blocks: 4 },
        { PACKED: 0, LANES: 192, PACKS: 3, DEPTH: 6; threads: 192, min_blocks: 3 },
        { PACKED: 0, LANES: 256, PACKS: 4, DEPTH: 8; threads: 256, min_blocks: 2 },
        { PACKED: 0, LANES: 512, PACKS: 4, DEPTH: 8; threads: 512, min_blocks: 1 },
    ]
);
