//! Which blocks there are, and which come first.

use kernels_gpu::permute::{Digit, MAX_DIGITS};

use super::super::order::{FAR, NEAR, x_goes_first};
use super::super::takes::SECTOR;
use super::numbers::digit;
use super::runs::Runs;

/// A block for each box.
pub struct Blocks {
    pub digits: Vec<Digit>,
    pub count: u64,
    /// Whether tiles of U come before those of W.
    pub u_first: bool,
    /// Whether L2 is to keep what is written.
    pub keep: bool,
}

impl Blocks {
    /// `None` where they are more than a launch has.
    pub fn new(of: &Runs) -> Option<Blocks> {
        let (walk, take, dims) = (of.walk, of.take, of.walk.dims);
        let tiles = |dim: Option<usize>| {
            let step = |bytes: usize, dim: usize| bytes * take[dim];
            digit(
                dim.map_or(1, |dim| dims[dim].extent.div_ceil(take[dim])),
                dim.map_or(0, |dim| step(walk.x_step(dim), dim)),
                dim.map_or(0, |dim| step(walk.y_step(dim), dim)),
            )
        };
        let (tiles_of_w, tiles_of_u) = (tiles(of.w)?, tiles(of.u.filter(|_| !of.one_tile()))?);
        let mut digits = vec![tiles_of_w, tiles_of_u];
        let tiles_of_u = tiles_of_u.count.value() as usize;
        let u_first = x_goes_first(tiles_of_w.count.value() as usize, tiles_of_u);
        if u_first {
            digits.swap(0, 1);
        }
        // What is written stays in L2 until all of a line is there, which blocks mostly share, unless lines of x would have to leave.
        let bytes_of_y = take.iter().product::<usize>() * walk.y_size;
        let between = digits[0].count.value() as usize * bytes_of_y;
        let keep = tiles_of_u < 2 || u_first || between < NEAR;
        // In the order of y, whose runs then go on; where these are of whole sectors anyway, far steps of x come last.
        let mut others: Vec<usize> = (0..dims.len()).rev().filter(|&dim| take[dim] == 1).collect();
        if of.begins == SECTOR {
            others.sort_by_key(|&dim| walk.x_step(dim).is_multiple_of(FAR));
        }
        for dim in others {
            digits.push(digit(dims[dim].extent, walk.x_step(dim), walk.y_step(dim))?);
        }
        let count =
            digits.iter().try_fold(1u64, |blocks, digit| blocks.checked_mul(digit.count.value().into()))?;
        (digits.len() <= MAX_DIGITS && count < 1 << 31).then_some(Blocks { digits, count, u_first, keep })
    }
}
