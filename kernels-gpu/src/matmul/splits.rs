//! The sums of the splits of k, and the epilogue that the splits left out.
//!
//! sum[m,n] = Σ over s of partials[s,b,m,n], in the order of s. `partials` is [splits, batch, m, pitch], f32, with
//! rows of whole packs.
//!
//! Launch: 1-D grid; a thread takes a pack's worth of columns.
//!
//! Floor: the partial sums, which lie in L2.

use super::Matrix;
use super::epilogue::Epilogue;
use super::finish::{Finish, PACK, Tensors};
use super::place::Blocks;
use cuda_std::divide::Divisor;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// The parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Partials {
    /// Who does what: only the batch is read.
    pub blocks: Blocks,
    /// The epilogue.
    pub epilogue: Epilogue,
    /// The partial sums of the first split.
    pub partials: Matrix,
    /// Elements from a split to the next.
    pub step: i64,
    /// Packs of a row of the result.
    pub packs_of_row: Divisor,
    /// Rows of a product.
    pub rows: Divisor,
    /// Packs of all rows of the batch.
    pub packs: u32,
    /// Splits.
    pub splits: u32,
}
plain_parameter!(Partials);

/// Parts whose loads are in flight together.
const AT_ONCE: usize = 4;

/// Adds up and finishes.
///
/// # Safety
/// The tensors are as `p` says; the grid has a thread for each pack.
#[kernel(family = "matmul", types = [f32, f16, bf16], instances = [{ ; threads: 128, min_blocks: 8 }])]
pub unsafe fn reduce<T: Float>(
    partials: Global<f32>,
    bias: Global<T>,
    addend: Global<T>,
    aux: GlobalMut<T>,
    out: GlobalMut<T>,
    p: Partials,
) {
    let index = thread::index_1d();
    if index >= p.packs as u64 {
        return;
    }
    let (row, pack) = p.packs_of_row.div_rem(index as u32);
    let (batch, row) = p.rows.div_rem(row);
    let (place, col) = (p.blocks.of_batch(batch), pack * T::PER_PACK as u32);
    let start = place.of(p.partials) + row as i64 * p.partials.row + col as i64;
    let of_split = |split: u32| (start + split as i64 * p.step) as usize;
    // SAFETY: the caller's contract.
    unsafe {
        let all = || {
            let mut sums = [0.0f32; PACK];
            let mut first = 0;
            while first < p.splits {
                let mut parts = [[[0; 4]; PACK / 4]; AT_ONCE];
                for i in 0..AT_ONCE {
                    let split = first + i as u32;
                    for half in 0..T::PER_PACK / 4 {
                        let exists = split < p.splits;
                        parts[i][half] = partials.get_pack_plain_if(exists, of_split(split) + half * 4, 0);
                    }
                }
                // What does not exist is 0, and no sum is -0.
                for i in 0..AT_ONCE {
                    for half in 0..T::PER_PACK / 4 {
                        for j in 0..4 {
                            sums[half * 4 + j] += f32::from_bits(parts[i][half][j]);
                        }
                    }
                }
                first += AT_ONCE as u32;
            }
            sums
        };
        let one = |i: u32| {
            let (mut sum, mut first) = (0.0, 0);
            while first < p.splits {
                let mut parts = [0; AT_ONCE];
                for j in 0..AT_ONCE {
                    let split = first + j as u32;
                    parts[j] = partials.get_4_if(split < p.splits, of_split(split) + i as usize, 0);
                }
                for j in 0..AT_ONCE {
                    sum += f32::from_bits(parts[j]);
                }
                first += AT_ONCE as u32;
            }
            sum
        };
        let finish = Finish::new(Tensors { bias, addend, aux, out }, &p.epilogue, place);
        finish.pack(row, col, all, |i| (row, col + i), one);
    }
}
