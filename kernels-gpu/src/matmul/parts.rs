//! f32 numbers as sums of bf16 numbers, which tensor cores multiply: the operands of [`parted()`](fn@super::parted).
//!
//! The first part of x is x rounded to bf16, the second what that leaves, rounded, and so on. A part has 8 bits and f32's
//! exponents, and what is left of x has at most half the last of them: three parts are off by 2^-27 of x at most,
//! and exact but where x has bits below 2^-133, the least bf16. NaN, infinities and what rounds to infinity leave NaN.
//!
//! Of `[outer, inner, lines, length]` in any strides comes `[outer, parts, inner, lines, pitch]`, contiguous, lines in whole packs with
//! zeros at their ends: what a tensor map can have.
//!
//! Launch: 1-D grid; a thread writes a pack of each part.
//!
//! Floor: 4 bytes of a number read and 2 of each part written, at the copy rate.

use super::Matrix;
use cuda_std::dependent;
use cuda_std::divide::Divisor;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Parts of a number.
pub const PARTS: usize = 3;
/// Numbers of a pack of parts.
const PACK: usize = 8;

/// The parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Parting {
    /// Where the numbers are: rows are lines.
    pub source: Matrix,
    /// Packs of a line of a part.
    pub packs_of_line: Divisor,
    /// Lines of a matrix.
    pub lines: Divisor,
    /// Matrices of the batch's inner dimension.
    pub inner: Divisor,
    /// Numbers of a line.
    pub length: u32,
    /// Packs of a part of one of the batch's outer dimension.
    pub packs_of_part: u32,
    /// Packs of a part of them all.
    pub packs: u32,
    /// Whether lines are neighbours in memory and start at multiples of 16 bytes.
    pub aligned: u32,
}
plain_parameter!(Parting);

/// Takes numbers apart.
///
/// # Safety
/// `source` has the elements that `p` names, `out` the packs of all parts; the grid has a thread for each pack of a part.
#[kernel(family = "matmul_hopper", requires = "sm_90a", instances = [{ ; threads: 256 }])]
pub unsafe fn part_numbers(source: Global<f32>, out: GlobalMut<bf16>, p: Parting) {
    let index = thread::index_1d();
    dependent::wait();
    dependent::allow_next();
    if index >= p.packs as u64 {
        return;
    }
    let (rest, pack) = p.packs_of_line.div_rem(index as u32);
    let (rest, line) = p.lines.div_rem(rest);
    let (outer, inner) = p.inner.div_rem(rest);
    let first = pack * PACK as u32;
    let start = outer as i64 * p.source.outer
        + inner as i64 * p.source.inner
        + line as i64 * p.source.row
        + first as i64 * p.source.col;
    let mut numbers = [0.0f32; PACK];
    // SAFETY: numbers are below their count; the rest is the caller's contract.
    unsafe {
        if p.aligned != 0 && first + PACK as u32 <= p.length {
            let [a, b, c, d] = source.get_pack_if(true, start as usize, 0);
            let [e, f, g, h] = source.get_pack_if(true, start as usize + 4, 0);
            numbers = [a, b, c, d, e, f, g, h].map(f32::from_bits);
        } else {
            for i in 0..PACK {
                if first + (i as u32) < p.length {
                    numbers[i] = source.get((start + i as i64 * p.source.col) as usize);
                }
            }
        }
        let within = index as u32 - outer * p.packs_of_part;
        for part in 0..PARTS {
            let mut packed = [0; 4];
            for i in 0..PACK / 2 {
                bf16::set_pair(&mut packed, i, [numbers[2 * i], numbers[2 * i + 1]]);
                let [left, right] = bf16::pair(packed, i);
                numbers[2 * i] -= left;
                numbers[2 * i + 1] -= right;
            }
            let at = (outer as usize * PARTS + part) * p.packs_of_part as usize + within as usize;
            out.set_pack_if(true, at * PACK, packed);
        }
    }
}
