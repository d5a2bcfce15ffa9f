//! dx = scale·y·(dy − Σ dy·y): the gradient of a softmax with a scale and masks.
//!
//! Inputs: y, dy. Where y is 0, as at masked columns, dx is 0 and dy does not count, whatever it is. With dropout behind
//! the softmax, dy is that of its result: what was dropped becomes 0 first, the rest is scaled. Floor: 3·bytes.

use super::statistic::Sums;
use super::{Elements, MAX_INPUTS, Operands, Params, RowOp, row_kernels};
use cuda_std::prelude::*;

/// With `DROPS` behind dropout.
struct Backward<const DROPS: bool>;

type SoftmaxBackward = Backward<false>;
type SoftmaxDropoutBackward = Backward<true>;

/// What turns y and dy into dx.
#[derive(Clone, Copy)]
struct Scale {
    scale: f32,
    /// Σ dy·y.
    sum: f32,
}

impl<T: Float, const DROPS: bool> RowOp<T> for Backward<DROPS> {
    const INPUTS: usize = 2;
    const VECTORS: usize = 0;
    const JOINS: bool = DROPS;
    const JOINED: usize = 1;
    const KEEPS_JOINED: bool = false;
    const DROPS: bool = DROPS;
    type Statistic = Sums<1>;
    type Row = ();
    type Total = Scale;

    #[inline(always)]
    unsafe fn begin(_: &Operands<T>, _: u32) {}

    #[inline(always)]
    fn join(x: [f32; MAX_INPUTS], _: f32, drop: impl Fn(f32) -> f32) -> f32 {
        drop(x[1])
    }

    #[inline(always)]
    fn statistic<E: Elements>(_: (), elements: &E) -> Sums<1> {
        Sums(elements.sums(0, |[sum], [y, dy, _], _| [float::fma(y, if y == 0.0 { 0.0 } else { dy }, sum)]))
    }

    #[inline(always)]
    unsafe fn finish(_: &Operands<T>, p: &Params, _: u32, _: bool, _: (), Sums([sum]): Sums<1>) -> Scale {
        Scale { scale: p.number, sum }
    }

    #[inline(always)]
    fn result(Scale { scale, sum }: Scale, [y, dy, _]: [f32; MAX_INPUTS], _: [f32; 2]) -> f32 {
        let dx = scale * y * (dy - sum);
        if y == 0.0 { 0.0 } else { dx }
    }
}

row_kernels!(
    SoftmaxBackward,
    softmax_backward_rows,
    softmax_backward_streamed,
    softmax_backward_strided,
    [
        { LANES: 1, PACKS: 1; threads: 128, min_blocks: 4 },
        { LANES: 2, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 8, PACKS: 1; threads: 128, min_blocks: 4 },
        { LANES: 8, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 16, PACKS: 2; threads: 128 },
        { LANES: 16, PACKS: 3; threads: 128 },
        { LANES: 32, PACKS: 2; threads: 128 },
        { LANES: 32, PACKS: 3; threads: 128 },
        { LANES: 64, PACKS: 2; threads: 64 },
        { LANES: 64, PACKS: 3; threads: 64 },
        { LANES: 128, PACKS: 2; threads: 128 },
        { LANES: 128, PACKS: 3; threads: 128 },
        { LANES: 256, PACKS: 2; threads: 256 },
        { LANES: 256, PACKS: 3; threads: 256 },
        { LANES: 512, PACKS: 2; threads: 512 },
        { LANES: 512, PACKS: 4; threads: 512 },
        { LANES: 1024, PACKS: 4; threads: 1024 },
    ],
    [{ LANES: 512, PACKS: 3; threads: 512 }],
    softmax_backward_cluster,
    [
        { LANES: 256, PACKS: 4; threads: 256, min_blocks: 5 },
        { LANES: 512, PACKS: 4; threads: 512 },
        { LANES: 512, PACKS: 8; threads: 512 },
    ]
);
row_kernels!(
    SoftmaxDropoutBackward,
    softmax_dropout_backward_rows,
    softmax_dropout_backward_streamed,
    softmax_dropout_backward_strided,
    [
        { LANES: 1, PACKS: 1; threads: 128, min_blocks: 4 },
        { LANES: 8, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 32, PACKS: 2; threads: 128 },
        { LANES: 64, PACKS: 2; threads: 64 },
        { LANES: 128, PACKS: 2; threads: 128 },
        { LANES: 256, PACKS: 2; threads: 256 },
        { LANES: 256, PACKS: 4; threads: 256 },
        { LANES: 512, PACKS: 4; threads: 512 },
    ],
    [{ LANES: 512, PACKS: 3; threads: 512 }]
);
