//! dx of layer norm and of RMS norm: rstd·(g − mean of g − x̂·mean of g·x̂) + dsum, with g = dy·weight and
//! x̂ = (x − mean)·rstd; for RMS norm without the means of x and of g.
//!
//! Inputs: x, dy, and optionally dsum, a gradient that x gets from elsewhere. Vectors: weight, optional. Of the rows: mean
//! and rstd, as forward wrote them. Floor: 3·bytes, 4 with dsum.
//!
//! The kernels that walk add up the gradients of weight and bias as well, a row for each block; the others leave these to
//! [`column_partials`](fn@super::column_partials).

use super::statistic::Sums;
use super::{Elements, MAX_INPUTS, Operands, Params, RowOp, row_kernels, walked_kernel};
use cuda_std::prelude::*;

/// dx of layer norm, or without the mean of RMS norm.
struct Backward<const CENTRED: bool>;

type LayerNormBackward = Backward<true>;
type RmsNormBackward = Backward<false>;

/// What is known of a row from the forward pass.
#[derive(Clone, Copy)]
pub(super) struct Normal {
    pub mean: f32,
    pub rstd: f32,
}

impl Normal {
    /// x̂.
    #[inline(always)]
    pub fn of(self, x: f32) -> f32 {
        (x - self.mean) * self.rstd
    }

    /// Adds an element to Σ g and Σ g·(x − mean).
    #[inline(always)]
    pub fn add<const CENTRED: bool>(self, [g_sum, product]: [f32; 2], x: f32, g: f32) -> [f32; 2] {
        [if CENTRED { g_sum + g } else { 0.0 }, float::fma(g, x - self.mean, product)]
    }
}

/// What turns x and g into dx.
#[derive(Clone, Copy)]
pub(super) struct Slope {
    normal: Normal,
    /// The means of g and of g·x̂, times −rstd.
    means: [f32; 2],
}

impl Slope {
    #[inline(always)]
    pub fn new(normal: Normal, sums: [f32; 2], inverse_cols: f32) -> Slope {
        let factor = -normal.rstd * inverse_cols;
        Slope { normal, means: [sums[0] * factor, sums[1] * normal.rstd * factor] }
    }

    /// dx.
    #[inline(always)]
    pub fn of<const CENTRED: bool>(self, x: f32, g: f32, dsum: f32) -> f32 {
        let [of_g, of_product] = self.means;
        let less = if CENTRED {
            float::fma(self.normal.of(x), of_product, of_g)
        } else {
            self.normal.of(x) * of_product
        };
        float::fma(g, self.normal.rstd, less) + dsum
    }
}

impl<T: Float, const CENTRED: bool> RowOp<T> for Backward<CENTRED> {
    const INPUTS: usize = if CENTRED { 3 } else { 2 };
    const VECTORS: usize = 1;
    const WEIGHS: bool = true;
    const STATISTIC_INPUTS: usize = 2;
    const IGNORES_ZEROS: bool = true;
    const SUMS: usize = if CENTRED { 2 } else { 1 };
    type Statistic = Sums<2>;
    type Row = Normal;
    type Total = Slope;

    #[inline(always)]
    unsafe fn begin(operands: &Operands<T>, row: u32) -> Normal {
        // SAFETY: the caller's contract.
        unsafe {
            let mean = if const { CENTRED } { operands.mean.get(row as usize) } else { 0.0 };
            Normal { mean, rstd: operands.rstd.get(row as usize) }
        }
    }

    #[inline(always)]
    fn statistic<E: Elements>(normal: Normal, elements: &E) -> Sums<2> {
        Sums(elements.sums(0, |sums, [x, dy, _], [weight, _]| normal.add::<CENTRED>(sums, x, dy * weight)))
    }

    #[inline(always)]
    unsafe fn finish(
        _: &Operands<T>,
        p: &Params,
        _: u32,
        _: bool,
        normal: Normal,
        Sums(sums): Sums<2>,
    ) -> Slope {
        Slope::new(normal, sums, p.inverse_cols)
    }

    #[inline(always)]
    fn add_to_columns(normal: Normal, [weight, bias]: [f32; 2], [x, dy, _]: [f32; MAX_INPUTS]) -> [f32; 2] {
        [float::fma(dy, normal.of(x), weight), bias + dy]
    }

    #[inline(always)]
    fn result(slope: Slope, [x, dy, dsum]: [f32; MAX_INPUTS], [weight, _]: [f32; 2]) -> f32 {
        slope.of::<CENTRED>(x, dy * weight, dsum)
    }
}

row_kernels!(
    LayerNormBackward,
    layer_norm_backward_rows,
    layer_norm_backward_streamed,
    layer_norm_backward_strided,
    [
        { LANES: 1, PACKS: 1; threads: 128, min_blocks: 2 },
        { LANES: 8, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 32, PACKS: 2; threads: 128 },
        { LANES: 64, PACKS: 3; threads: 64 },
        { LANES: 128, PACKS: 3; threads: 128 },
        { LANES: 256, PACKS: 3; threads: 256 },
        { LANES: 512, PACKS: 3; threads: 512 },
    ],
    [{ LANES: 512, PACKS: 2; threads: 512 }]
);

row_kernels!(
    RmsNormBackward,
    rms_norm_backward_rows,
    rms_norm_backward_streamed,
    rms_norm_backward_strided,
    [
        { LANES: 1, PACKS: 1; threads: 128, min_blocks: 2 },
        { LANES: 8, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 32, PACKS: 2; threads: 128 },
        { LANES: 64, PACKS: 3; threads: 64 },
        { LANES: 128, PACKS: 3; threads: 128 },
        { LANES: 256, PACKS: 3; threads: 256 },
        { LANES: 512, PACKS: 3; threads: 512 },
    ],
    [{ LANES: 512, PACKS: 2; threads: 512 }]
);

walked_kernel!(
    LayerNormBackward,
    layer_norm_backward_walked,
    [
        { PACKED: 1, LANES: 4, PACKS: 1, DEPTH: 2; threads: 128, min_blocks: 6 },
        { PACKED: 1, LANES: 16, PACKS: 1, DEPTH: 2; threads: 128, min_blocks: 6 },
        { PACKED: 1, LANES: 32, PACKS: 1, DEPTH: 2; threads: 128, min_blocks: 6 },
        { PACKED: 1, LANES: 32, PACKS: 2, DEPTH: 4; threads: 128, min_blocks: 4 },
        { PACKED: 1, LANES: 64, PACKS: 2, DEPTH: 4; threads: 64, min_blocks: 8 },
        { PACKED: 1, LANES: 128, PACKS: 2, DEPTH: 6; threads: 128, min_blocks: 4 },
        { PACKED: 1, LANES: 256, PACKS: 2, DEPTH: 4; threads: 256, min_blocks: 2 },
        { PACKED: 1, LANES: 512, PACKS: 2, DEPTH: 4; threads: 512, min_blocks: 1 },
        { PACKED: 1, LANES: 512, PACKS: 4, DEPTH: 8; threads: 512, min_blocks: 1 },
        { PACKED: 1, LANES: 512, PACKS: 8, DEPTH: 8; threads: 512, min_blocks: 1 },
        { PACKED: 0, LANES: 32, PACKS: 1, DEPTH: 2; threads: 128, min_blocks: 6 },
        { PACKED: 0, LANES: 32, PACKS: 2, DEPTH: 4; threads: 128, min_blocks: 4 },
        { PACKED: 0, LANES: 64, PACKS: 2, DEPTH: 4; threads: 64, min_blocks: 8 },
        { PACKED: 0, LANES: 96, PACKS: 2, DEPTH: 4; threads: 96, min_blocks: 5 },
        { PACKED: 0, LANES: 128, PACKS: 2, DEPTH: 4; threads: 128, min_blocks: 4 },
        { PACKED: 0, LANES: 192, PACKS: 2, DEPTH: 4; threads: 192, min_blocks: 2 },
        { PACKED: 0, LANES: 192, PACKS: 3, DEPTH: 6; threads: 192, min_blocks: 2 },
        { PACKED: 0, LANES: 512, PACKS: 2, DEPTH: 4; threads: 512, min_blocks: 1 },
    ],
    layer_norm_backward_walked_cluster,
    [
        { PACKED: 2, LANES: 512, PACKS: 2, DEPTH: 8; threads: 512, min_blocks: 1 },
        { PACKED: 2, LANES: 512, PACKS: 4, DEPTH: 8; threads: 512, min_blocks: 1 },
    ]
);

walked_kernel!(
    RmsNormBackward,
    rms_norm_backward_walked,
    [
        { PACKED: 1, LANES: 4, PACKS: 1, DEPTH: 2; threads: 128, min_blocks: 6 },
        { PACKED: 1, LANES: 16, PACKS: 1, DEPTH: 2; threads: 128, min_blocks: 6 },
        { PACKED: 1, LANES: 32, PACKS: 1, DEPTH: 2; threads: 128, min_blocks: 6 },
        { PACKED: 1, LANES: 32, PACKS: 2, DEPTH: 4; threads: 128, min_blocks: 4 },
        { PACKED: 1, LANES: 64, PACKS: 2, DEPTH: 4; threads: 64, min_blocks: 8 },
        { PACKED: 1, LANES: 128, PACKS: 2, DEPTH: 6; threads: 128, min_blocks: 4 },
        { PACKED: 1, LANES: 256, PACKS: 2, DEPTH: 4; threads: 256, min_blocks: 2 },
        { PACKED: 1, LANES: 512, PACKS: 2, DEPTH: 4; threads: 512, min_blocks: 1 },
        { PACKED: 1, LANES: 512, PACKS: 4, DEPTH: 8; threads: 512, min_blocks: 1 },
        { PACKED: 1, LANES: 512, PACKS: 8, DEPTH: 9; threads: 512, min_blocks: 1 },
        { PACKED: 0, LANES: 32, PACKS: 1, DEPTH: 2; threads: 128, min_blocks: 6 },
        { PACKED: 0, LANES: 32, PACKS: 2, DEPTH: 4; threads: 128, min_blocks: 4 },
        { PACKED: 0, LANES: 64, PACKS: 2, DEPTH: 4; threads: 64, min_blocks: 8 },
        { PACKED: 0, LANES: 96, PACKS: 2, DEPTH: 4; threads: 96, min_blocks: 5 },
        { PACKED: 0, LANES: 128, PACKS: 2, DEPTH: 4; threads: 128, min_blocks: 4 },
        { PACKED: 0, LANES: 192, PACKS: 2, DEPTH: 4; threads: 192, min_blocks: 2 },
        { PACKED: 0, LANES: 192, PACKS: 3, DEPTH: 6; threads: 192, min_blocks: 2 },
        { PACKED: 0, LANES: 512, PACKS: 2, DEPTH: 4; threads: 512, min_blocks: 1 },
    ],
    rms_norm_backward_walked_cluster,
    [{ PACKED: 2, LANES: 512, PACKS: 4, DEPTH: 8; threads: 512, min_blocks: 1 }]
);
