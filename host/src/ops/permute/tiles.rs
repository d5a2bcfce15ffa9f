//! Tiles of two dimensions for the kernel that has them in fixed shapes.

use kernels_gpu::permute::{MAX_INNER, MOST_JOINED, Tiles};

use super::boxes::{digit, filled};
use super::simplify::{Dim, PACK};
use super::takes::Walk;
use crate::launch::Grid;

/// Tiles, ready to be launched.
#[derive(Clone, Debug)]
pub struct Tiled {
    pub params: Tiles,
    /// Which instance.
    pub shape: Shape,
    /// Blocks along y's fastest dimension, x's fastest, and the others.
    pub blocks: [u64; 3],
    pub shared_bytes: usize,
    /// Bytes of a row of y in a tile.
    pub out_bytes: usize,
    /// Elements that tiles have room for, of each that there is.
    pub room: f64,
    /// What a tile takes of each dimension.
    pub take: Vec<usize>,
}

/// What the kernel's instances differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows of x in a tile.
    pub rows: usize,
    /// Bytes of each.
    pub run: usize,
}

const SHAPES: [Shape; 3] =
    [Shape { rows: 32, run: 128 }, Shape { rows: 64, run: 128 }, Shape { rows: 128, run: 64 }];
/// The least run.
const LEAST_RUN: usize = 64;

/// The fastest dimension of x or of y, perhaps as one with what follows it in memory.
#[derive(Clone, Copy, Debug)]
struct Side {
    fastest: usize,
    next: Option<usize>,
    /// Elements of both.
    extent: usize,
    /// Those of the fastest as a power of two, where there is a next.
    log: u32,
}

impl Side {
    fn alone(dims: &[Dim], fastest: usize) -> Side {
        Side { fastest, next: None, extent: dims[fastest].extent, log: 0 }
    }

    /// The dimension and the next, if its extent is a power of two between `least` and `most`.
    fn with(self, dims: &[Dim], next: usize, [least, most]: [usize; 2]) -> Option<Side> {
        let joins = self.extent.is_power_of_two() && (least..=most).contains(&self.extent);
        let extent = self.extent * dims[next].extent;
        joins.then_some(Side { next: Some(next), extent, log: self.extent.ilog2(), ..self })
    }

    fn has(&self, dim: usize) -> bool {
        dim == self.fastest || Some(dim) == self.next
    }

    /// The dimension that tiles are along.
    fn outer(&self) -> usize {
        self.next.unwrap_or(self.fastest)
    }

    /// What a tile with so many elements takes of each dimension.
    fn take(&self, elements: usize, take: &mut [usize]) {
        take[self.fastest] = 1 << self.log;
        take[self.outer()] = elements >> self.log;
    }
}

impl Tiled {
    /// All tiles that the kernel can have.
    pub fn all(walk: &Walk) -> Vec<Tiled> {
        let dims = walk.dims;
        let Some(first) = (0..dims.len()).find(|&dim| dims[dim].x == 1) else { return Vec::new() };
        let last = dims.len() - 1;
        let (run, out) = (Side::alone(dims, first), Side::alone(dims, last));
        // A word of shared memory has elements of one dimension, and a block loads rows of whole dimensions at once.
        let following = (0..dims.len()).find(|&dim| dims[dim].x as usize == dims[first].extent);
        let longer_run =
            following.and_then(|dim| run.with(dims, dim, [4 / walk.x_size.min(4), LEAST_RUN / walk.x_size]));
        let longer_out = last.checked_sub(1).and_then(|dim| out.with(dims, dim, [2, MOST_JOINED]));
        let runs = [Some(run), longer_run].into_iter().flatten();
        let both =
            runs.flat_map(|run| [Some(out), longer_out].into_iter().flatten().map(move |out| (run, out)));
        let each = both.flat_map(|(run, out)| SHAPES.map(|shape| Tiled::new(walk, run, out, shape)));
        each.flatten().collect()
    }

    /// Tiles of a shape; `None` where the kernel cannot have them.
    fn new(walk: &Walk, run: Side, out: Side, shape: Shape) -> Option<Tiled> {
        let Shape { rows, run: run_bytes } = shape;
        let (dims, size) = (walk.dims, walk.x_size);
        if walk.y_size != size || (0..dims.len()).any(|dim| run.has(dim) && out.has(dim)) {
            return None;
        }
        let is_whole = |elements: usize| (elements * size).is_multiple_of(PACK);
        let aligned = (0..dims.len()).all(|dim| {
            (run.has(dim) || is_whole(dims[dim].x as usize))
                && (out.has(dim) || is_whole(dims[dim].y as usize))
        });
        let from_packs = (walk.x_phase | walk.y_phase).is_multiple_of(PACK);
        if !aligned || !from_packs || !is_whole(run.extent) || !is_whole(out.extent) {
            return None;
        }
        let mut take = vec![1; dims.len()];
        out.take(rows, &mut take);
        run.take(run_bytes / size, &mut take);
        let bytes = |steps: isize| i64::try_from(steps as usize * size).ok();
        // The outermost last.
        let mut others = (0..dims.len()).rev().filter(|&dim| !out.has(dim) && !run.has(dim));
        let outermost = others.next_back();
        let inner: Vec<usize> = others.collect();
        let rest = inner.iter().chain(&outermost).map(|&dim| dims[dim].extent as u64).product();
        let [along, across] = [out.extent.div_ceil(rows), (run.extent * size).div_ceil(run_bytes)];
        let blocks = [along as u64, across as u64, rest];
        if inner.len() > MAX_INNER || blocks[0] >= 1 << 31 || blocks[1].max(rest) > Grid::MAX_YZ.into() {
            return None;
        }
        let of_inner =
            |&dim: &usize| digit(dims[dim].extent, dims[dim].x as usize * size, dims[dim].y as usize * size);
        let digits = inner.iter().map(of_inner).collect::<Option<Vec<_>>>()?;
        let outermost = match outermost {
            Some(dim) => [bytes(dims[dim].x)?, bytes(dims[dim].y)?],
            None => [0; 2],
        };
        let room = (along * rows) as f64 / out.extent as f64;
        Some(Tiled {
            params: Tiles {
                inner_count: digits.len() as u32,
                inner: filled(&digits, digit(1, 0, 0)?),
                rows: u32::try_from(out.extent).ok()?,
                chunks: u32::try_from(run.extent * size / PACK).ok()?,
                log_rows: out.log,
                log_elements: run.log,
                unused: 0,
                outermost,
                x_inner: bytes(dims[out.fastest].x)?,
                x_row: bytes(dims[out.outer()].x)?,
                y_inner: bytes(dims[run.fastest].y)?,
                y_row: bytes(dims[run.outer()].y)?,
            },
            shape,
            blocks,
            shared_bytes: rows * run_bytes,
            out_bytes: rows * size,
            room: room * (across * run_bytes) as f64 / (run.extent * size) as f64,
            take,
        })
    }

    /// What they cost, in the time that a copy of the same bytes takes.
    pub fn cost(&self) -> f64 {
        // Runs of y that are short are two sectors or one at a time.
        let stores = match self.out_bytes {
            ..64 => 0.2,
            64..128 => 0.01,
            _ => 0.0,
        };
        let loads = if self.shape.run < 128 { 0.015 } else { 0.0 };
        // As of boxes.
        let spread = 132.0 / self.blocks.iter().product::<u64>() as f64;
        (1.0 + stores + loads) * self.room.sqrt() * (1.0 + spread)
    }
}
