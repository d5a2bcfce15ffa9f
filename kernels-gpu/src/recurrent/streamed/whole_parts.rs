//! What is multiplied at each step, made once: the weights, and the initial state.
//!
//! `source` is `[gates, lines, hidden]`, contiguous; its parts are `[PARTS, chunks, lines, TERMS]`, of lines of all gates' units with zeros
//! behind those of each gate. So the lines of a chunk are neighbours: a block's share of weights, 128 bytes of each of many lines, would come from
//! memory at half its speed if the lines lay behind one another.
//!
//! Launch: 1-D grid, a thread for each four terms.
//!
//! Floor: the source and the parts once at the copy rate.

use super::four::{FOUR, To, load_four, store_parts};
use super::{Streamed, TERMS};
use cuda_std::divide::Divisor;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// What is to be taken apart.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TakeApart {
    /// Fours of a gate's padded units.
    pub fours: Divisor,
    /// Gates of a line.
    pub gates: Divisor,
    /// Lines.
    pub lines: u32,
    /// Units.
    pub hidden: u32,
}
plain_parameter!(TakeApart);

/// Takes numbers apart.
///
/// # Safety
/// The tensors are as the module says, with a scale for each line of a chunk if there are two parts; with `WIDE` lines are
/// whole packs. The grid has a thread for each four terms, fewer than 2³¹.
#[kernel(
    family = "recurrent_hopper",
    requires = "sm_90a",
    types = [f32, f16, bf16],
    instances = [{ WIDE: 0; threads: 256 }, { WIDE: 1; threads: 256 }],
)]
pub unsafe fn take_apart<T: Streamed, const WIDE: usize>(
    source: Global<T>,
    parts: GlobalMut<u32>,
    scales: GlobalMut<f32>,
    p: TakeApart,
) {
    let (fours, gates) = (p.fours.value(), p.gates.value());
    let fours_of_line = fours as usize * gates as usize;
    let all = fours_of_line * p.lines as usize;
    let index = thread::index_1d();
    let inside = index < all as u64;
    let (rest, four) = p.fours.div_rem(if inside { index as u32 } else { 0 });
    let (line, gate) = p.gates.div_rem(rest);
    let unit = four * FOUR;
    let left = if inside && unit < p.hidden { (p.hidden - unit).min(FOUR) } else { 0 };
    let from = (gate as usize * p.lines as usize + line as usize) * p.hidden as usize + unit as usize;
    let term = gate * fours * FOUR + unit;
    let chunks = fours * gates / (TERMS / FOUR);
    // SAFETY: the caller's contract; fours of a line are whole multiples of those that share a scale.
    unsafe {
        let values = load_four::<T, WIDE>(source, left, from);
        store_parts::<T>(To { parts, scales, lines: p.lines, chunks }, inside, (line, term), values);
    }
}
