//! Tiles of two dimensions for the kernel that has them in fixed shapes.

use kernels_gpu::permute::{MAX_INNER, RUN, Tiles};

use super::boxes::{digit, filled};
use super::order::x_goes_first;
use super::simplify::PACK;
use super::takes::{SECTOR, Walk, gcd};
use crate::launch::Grid;

/// Tiles, ready to be launched.
#[derive(Clone, Debug)]
pub struct Tiled {
    pub params: Tiles,
    /// Rows of x in a tile: what instances differ in.
    pub rows: usize,
    /// Blocks along y's fastest dimension, x's fastest, or the other way round, and the others.
    pub blocks: [u64; 3],
    pub shared_bytes: usize,
    /// Bytes of an element.
    pub size: usize,
    /// Bytes of a row of y in a tile.
    pub out_bytes: usize,
    /// Elements that tiles have room for, of each that there is.
    pub room: f64,
    /// Whether rows of y begin in the middle of a sector.
    halves: bool,
    /// What a tile takes of each dimension.
    pub take: Vec<usize>,
}

/// Rows of x in a tile, of each instance.
const ROWS: [usize; 2] = [32, 64];

impl Tiled {
    /// All tiles that the kernel can have.
    pub fn all(walk: &Walk) -> Vec<Tiled> {
        ROWS.iter().filter_map(|&rows| Tiled::new(walk, rows)).collect()
    }

    /// Tiles with so many rows; `None` where the kernel cannot have them.
    fn new(walk: &Walk, rows: usize) -> Option<Tiled> {
        let (dims, size) = (walk.dims, walk.x_size);
        let out = dims.len().checked_sub(1)?;
        let run = (0..dims.len()).find(|&dim| dims[dim].x == 1)?;
        let is_whole = |elements: usize| (elements * size).is_multiple_of(PACK);
        // Strides are positive.
        let aligned = (0..dims.len()).all(|dim| {
            (dim == run || is_whole(dims[dim].x as usize)) && (dim == out || is_whole(dims[dim].y as usize))
        });
        let from_packs = (walk.x_phase | walk.y_phase).is_multiple_of(PACK);
        let whole_runs = is_whole(dims[run].extent) && is_whole(dims[out].extent);
        if run == out || walk.y_size != size || !aligned || !from_packs || !whole_runs {
            return None;
        }
        let mut take = vec![1; dims.len()];
        (take[out], take[run]) = (rows, RUN / size);
        let tiles = |dim: usize| dims[dim].extent.div_ceil(take[dim]);
        let bytes = |steps: isize| i64::try_from(steps as usize * size).ok();
        // The outermost last.
        let mut others = (0..dims.len()).rev().filter(|&dim| dim != out && dim != run);
        let outermost = others.next_back();
        let inner: Vec<usize> = others.collect();
        let rest = inner.iter().chain(&outermost).map(|&dim| dims[dim].extent as u64).product();
        let along_x = x_goes_first(tiles(out), tiles(run)) && tiles(out) as u64 <= Grid::MAX_YZ;
        let [first, second] = if along_x { [run, out] } else { [out, run] };
        let blocks = [tiles(first) as u64, tiles(second) as u64, rest];
        if inner.len() > MAX_INNER || blocks[0] >= 1 << 31 || blocks[1].max(rest) > Grid::MAX_YZ {
            return None;
        }
        let of_inner =
            |&dim: &usize| digit(dims[dim].extent, dims[dim].x as usize * size, dims[dim].y as usize * size);
        let digits = inner.iter().map(of_inner).collect::<Option<Vec<_>>>()?;
        let outermost = match outermost {
            Some(dim) => [bytes(dims[dim].x)?, bytes(dims[dim].y)?],
            None => [0; 2],
        };
        let steps_of_y = (0..dims.len()).filter(|&dim| dim != out).map(|dim| dims[dim].y as usize * size);
        let begins = steps_of_y.fold(walk.y_phase, gcd);
        let room = |dim: usize| (tiles(dim) * take[dim]) as f64 / dims[dim].extent as f64;
        Some(Tiled {
            params: Tiles {
                inner_count: digits.len() as u32,
                inner: filled(&digits, digit(1, 0, 0)?),
                rows: u32::try_from(dims[out].extent).ok()?,
                chunks: u32::try_from(dims[run].extent * size / PACK).ok()?,
                along_x: u32::from(along_x),
                outermost,
                x_row: bytes(dims[out].x)?,
                y_row: bytes(dims[run].y)?,
            },
            rows,
            blocks,
            shared_bytes: rows * RUN,
            size,
            out_bytes: rows.min(dims[out].extent) * size,
            room: room(out) * room(run),
            halves: !begins.is_multiple_of(SECTOR),
            take,
        })
    }

    /// Blocks that are to share a multiprocessor at most, where that is fewer than fit: those whose rows meet. 8192×8192 has 0.964 in f16
    /// instead of 0.953, and 0.960 in i8 instead of 0.952. Others lose up to 0.1 with L1, which has what blocks do not ask for.
    pub fn limit(&self) -> Option<usize> {
        self.meet((self.size as i64) << 13).then_some(12)
    }

    /// Whether rows of x, and of y, are such powers of two apart, so that they meet the same channels of memory.
    fn meet(&self, far: i64) -> bool {
        [self.params.x_row, self.params.y_row].iter().all(|step| step % far == 0)
    }

    /// What they cost, in the time that a copy of the same bytes takes.
    pub fn cost(&self) -> f64 {
        // Runs of y that are short are two sectors or one at a time.
        let stores = if self.out_bytes < 64 { 0.2 } else { 0.0 };
        // In f16 rows of 64 bytes are 1 to 2 % faster than those of 128 (13 problems). 8192×8192 has 0.97 in f32 with boxes of 256 bytes a row
        // instead of 0.95.
        let channels = match self.size {
            4.. if self.meet(32 << 10) => 0.35,
            2 if self.rows == ROWS[1] => 0.015,
            _ => 0.0,
        };
        // Boxes are faster than their weights say since L2 keeps what they read. Where boxes of words cost less than tiles with this they are
        // 2.2 % faster in f32 (14 problems, at worst 0.8 % slower), 3.7 % in i8 (10, none slower); in f16 as fast, one 4 % faster.
        let beside_boxes = match self.size {
            1 => 0.08,
            2 => 0.055,
            4 => 0.06,
            _ => 0.0,
        };
        // Where rows of y begin in the middle of a sector, two tiles write a part each. 4092×6×2652 by (2,1,0) in f32 has 0.69, and 0.91 with
        // boxes that end at sectors.
        let halves = if self.halves { 0.35 } else { 0.0 };
        // As of boxes.
        let spread = 132.0 / self.blocks.iter().product::<u64>() as f64;
        (1.0 + stores + channels + halves + beside_boxes) * self.room * (1.0 + spread)
    }
}
