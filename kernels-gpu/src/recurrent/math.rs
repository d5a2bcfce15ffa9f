//! One unit's step, and its gradient.

use super::GRU;
use cuda_std::float;

/// 1/(1 + e^−x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    float::rcp(1.0 + float::exp2(-x * float::LOG2_E))
}

/// tanh x, relative error below 2^-18, for what is rounded to 16 bits: of all x at once, where [`float::tanh`] takes one of two longer ways.
#[inline(always)]
fn tanh_of_half(x: f32) -> f32 {
    let a = x.abs();
    let square = a * a;
    let small = float::fma(a * square, float::fma(square, 2.0 / 15.0, -1.0 / 3.0), a);
    let large = 1.0 - 2.0 * float::rcp(float::exp2(a * (2.0 * float::LOG2_E)) + 1.0);
    (if a < 0.125 { small } else { large }).copysign(x)
}

/// (h', c') of a unit, from its gates' inputs, h and c; of a GRU c' is c.
#[inline(always)]
pub fn step<const GATES: usize>(gx: [f32; GATES], gh: [f32; GATES], h: f32, c: f32) -> (f32, f32) {
    step_with::<GATES>(float::tanh, |last, _| last, gx, gh, (h, c))
}

/// As [`step`], for an h' that is rounded to 16 bits and waited for.
#[inline(always)]
pub fn step_of_half<const GATES: usize>(gx: [f32; GATES], gh: [f32; GATES], h: f32, c: f32) -> (f32, f32) {
    // Assemblers put the other gate behind the longest way to h', unless that needs it.
    let behind = |last: f32, other: f32| float::fma(other, 0.0, last);
    step_with::<GATES>(tanh_of_half, behind, gx, gh, (h, c))
}

/// With `behind(x, gate)`, which is x: what the last tanh is taken of, and a gate that is multiplied by the tanh.
#[inline(always)]
fn step_with<const GATES: usize>(
    tanh: impl Fn(f32) -> f32,
    behind: impl Fn(f32, f32) -> f32,
    gx: [f32; GATES],
    gh: [f32; GATES],
    (h, c): (f32, f32),
) -> (f32, f32) {
    if const { GATES == GRU } {
        let (r, z) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
        let n = tanh(behind(float::fma(r, gh[2], gx[2]), z));
        (float::fma(z, h - n, n), c)
    } else {
        let (i, f) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
        let (g, o) = (tanh(gx[2] + gh[2]), sigmoid(gx[GATES - 1] + gh[GATES - 1]));
        let next = float::fma(f, c, i * g);
        (o * tanh(behind(next, o)), next)
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

/// What the gradients of a unit's step are multiples of: all of them known before dh and dc are.
#[derive(Clone, Copy)]
pub struct Factors(pub [f32; FACTORS]);

/// The most factors of a unit; of a GRU the last is not used.
pub const FACTORS: usize = 6;

impl Factors {
    /// Of what the gates were given, h and c.
    #[inline(always)]
    pub fn new<const GATES: usize>(gx: [f32; GATES], gh: [f32; GATES], (h, c): (f32, f32)) -> Factors {
        if const { GATES == GRU } {
            let (r, z) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
            let n = float::tanh(float::fma(r, gh[2], gx[2]));
            let to_n = (1.0 - z) * float::fma(-n, n, 1.0);
            Factors([to_n * gh[2] * r * (1.0 - r), (h - n) * z * (1.0 - z), to_n, r, z, 0.0])
        } else {
            let (i, f) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
            let (g, o) = (float::tanh(gx[2] + gh[2]), sigmoid(gx[GATES - 1] + gh[GATES - 1]));
            let t = float::tanh(float::fma(f, c, i * g));
            let of_c = [g * i * (1.0 - i), c * f * (1.0 - f), i * float::fma(-g, g, 1.0)];
            Factors([of_c[0], of_c[1], of_c[2], t * o * (1.0 - o), o * float::fma(-t, t, 1.0), f])
        }
    }

    /// The gradients for h' = `dh` and c' = `dc`.
    #[inline(always)]
    pub fn slopes<const GATES: usize>(self, (dh, dc): (f32, f32)) -> Slopes<GATES> {
        let [first, second, third, fourth, fifth, sixth] = self.0;
        let mut dgx = [0.0; GATES];
        if const { GATES == GRU } {
            (dgx[0], dgx[1], dgx[2]) = (dh * first, dh * second, dh * third);
            let mut dgh = dgx;
            dgh[2] = dgx[2] * fourth;
            Slopes { dgx, dgh, dh: dh * fifth, dc: 0.0 }
        } else {
            let of_c = float::fma(dh, fifth, dc);
            (dgx[0], dgx[1], dgx[2]) = (of_c * first, of_c * second, of_c * third);
            dgx[GATES - 1] = dh * fourth;
            Slopes { dgx, dgh: dgx, dh: 0.0, dc: of_c * sixth }
        }
    }
}
