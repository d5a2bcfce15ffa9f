//! y = x/√(mean of x² + ε)·weight.
//!
//! Inputs: x. Vectors: weight, optional. Results: y; rstd = 1/√(mean of x² + ε), f32 [rows]. A NaN in a row makes the
//! row NaN; an infinity makes it zeros, but for NaN where the infinity is. Floor: 2·bytes.

use super::statistic::Sums;
use super::{Elements, MAX_INPUTS, Operands, Params, RowOp, row_kernels};
use cuda_std::prelude::*;

struct RmsNorm;

impl<T: Float> RowOp<T> for RmsNorm {
    const INPUTS: usize = 1;
    const VECTORS: usize = 1;
    const IGNORES_ZEROS: bool = true;
    type Statistic = Sums<1>;
    type Row = ();
    /// rstd.
    type Total = f32;

    #[inline(always)]
    unsafe fn begin(_: &Operands<T>, _: u32) {}

    #[inline(always)]
    fn statistic<E: Elements>(_: (), elements: &E) -> Sums<1> {
        Sums(elements.sums(0, |[sum], x, _| [float::fma(x[0], x[0], sum)]))
    }

    #[inline(always)]
    unsafe fn finish(
        operands: &Operands<T>,
        p: &Params,
        row: u32,
        leader: bool,
        _: (),
        Sums([squares]): Sums<1>,
    ) -> f32 {
        let rstd = float::rsqrt(float::fma(squares, p.inverse_cols, p.number));
        // SAFETY: the caller's contract.
        unsafe { operands.rstd.set_if(leader, row as usize, rstd) };
        rstd
    }

    #[inline(always)]
    fn result(rstd: f32, x: [f32; MAX_INPUTS], [weight, _]: [f32; 2]) -> f32 {
        x[0] * rstd * weight
    }
}

row_kernels!(
    RmsNorm,
    rms_norm_rows,
    rms_norm_streamed,
    rms_norm_strided,
    [
        { LANES: 1, PACKS: 1; threads: 128, min_blocks: 4 },
        { LANES: 2, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 4, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 8, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 8, PACKS: 4; threads: 128, min_blocks: 4 },
        { LANES: 16, PACKS: 3; threads: 128 },
        { LANES: 16, PACKS: 4; threads: 128 },
        { LANES: 32, PACKS: 3; threads: 128 },
        { LANES: 32, PACKS: 4; threads: 128 },
        { LANES: 64, PACKS: 3; threads: 64 },
        { LANES: 64, PACKS: 4; threads: 64 },
        { LANES: 128, PACKS: 3; threads: 128 },
        { LANES: 128, PACKS: 4; threads: 128 },
        { LANES: 256, PACKS: 4; threads: 256 },
        { LANES: 512, PACKS: 4; threads: 512 },
        { LANES: 1024, PACKS: 4; threads: 1024 },
    ],
    [{ LANES: 512, PACKS: 4; threads: 512 }],
    rms_norm_cluster,
    [{ LANES: 256, PACKS: 4; threads: 256 }, { LANES: 512, PACKS: 4; threads: 512 }]
);
