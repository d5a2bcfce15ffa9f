//! One unit's step, and its gradient.

use super::GRU;
use cuda_std::float;

/// 1/(1 + e^−x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    float::rcp(1.0 + float::exp2(-x * float::LOG2_E))
}

/// (h', c') of a unit, from its gates' inputs, h and c; of a GRU c' is c.
#[inline(always)]
pub fn step<const GATES: usize>(gx: [f32; GATES], gh: [f32; GATES], h: f32, c: f32) -> (f32, f32) {
    if const { GATES == GRU } {
        let (r, z) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
        let n = float::tanh(float::fma(r, gh[2], gx[2]));
        (float::fma(z, h - n, n), c)
    } else {
        let (i, f) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
        let (g, o) = (float::tanh(gx[2] + gh[2]), sigmoid(gx[GATES - 1] + gh[GATES - 1]));
        let next = float::fma(f, c, i * g);
        (o * float::tanh(next), next)
    }
}

/// What a unit's gradient step gives.
pub struct Slopes<const GATES: usize> {
    /// Of gx.
    pub dgx: [f32; GATES],
    /// Of gh.
    pub dgh: [f32; GATES],
    /// Of h, but for what comes through gh.
    pub dh: f32,
    /// Of c.
    pub dc: f32,
}

/// The gradients for h' = `dh` and c' = `dc`.
#[inline(always)]
pub fn slopes<const GATES: usize>(
    gx: [f32; GATES],
    gh: [f32; GATES],
    (h, c): (f32, f32),
    (dh, dc): (f32, f32),
) -> Slopes<GATES> {
    let mut dgx = [0.0; GATES];
    if const { GATES == GRU } {
        let (r, z) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
        let n = float::tanh(float::fma(r, gh[2], gx[2]));
        let dn = dh * (1.0 - z) * float::fma(-n, n, 1.0);
        dgx[0] = dn * gh[2] * r * (1.0 - r);
        dgx[1] = dh * (h - n) * z * (1.0 - z);
        dgx[2] = dn;
        let mut dgh = dgx;
        dgh[2] = dn * r;
        Slopes { dgx, dgh, dh: dh * z, dc: 0.0 }
    } else {
        let (i, f) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
        let (g, o) = (float::tanh(gx[2] + gh[2]), sigmoid(gx[GATES - 1] + gh[GATES - 1]));
        let t = float::tanh(float::fma(f, c, i * g));
        let of_c = float::fma(dh * o, float::fma(-t, t, 1.0), dc);
        dgx[0] = of_c * g * i * (1.0 - i);
        dgx[1] = of_c * c * f * (1.0 - f);
        dgx[2] = of_c * i * float::fma(-g, g, 1.0);
        dgx[GATES - 1] = dh * t * o * (1.0 - o);
        Slopes { dgx, dgh: dgx, dh: 0.0, dc: of_c * f }
    }
}
