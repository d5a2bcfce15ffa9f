//! The model of the time that a product takes.
//!
//! A kernel's blocks run in waves. A full wave takes as long as a multiprocessor's blocks take at the instance's
//! rate; the last one as long as its fullest multiprocessor takes, but not less than a single block alone, which waits
//! for its own latencies. No product takes less than its bytes take. Splitting k makes more blocks of less work, and
//! costs a second launch that reads the partial sums. Blocks that stay for several tiles take rounds instead of waves,
//! and fill their pipelines once. Rates are measured, on an H200.
//!
//! On Hopper 16-bit products take the sum of what their blocks take, of what their bytes take and of what L2 takes to look up the lines of
//! 128 bytes that tiles are made of: two for a row of a stage that lies across lines, as all may where rows begin anywhere. It looks up no more than
//! so many in a time; where that is what a product waits for, operands are worth a copy whose lines begin at lines of L2.

mod blocks;
mod copies;
mod lines;

use super::choice::Choice;
use super::pace::Pace;
use super::plan::Plan;
use super::request::{Request, Target};
use super::tiles::Tile;
use crate::cuda::shared::{blocks_that_fit, least_share};
use crate::dtype::DType;

pub(super) use copies::H100_MEMORY;

/// Terms of a split are a multiple of every kernel's depth; this is that of the kernels for 16 bits and for parts.
const DEPTH: usize = 64;
/// Most bytes of partial sums.
const MOST_PARTIALS: f64 = (64 << 20) as f64;
/// Microseconds that a launch takes by itself.
const LAUNCH: f64 = 2.0;
/// Bytes in a nanosecond from memory, for a whole GPU.
const MEMORY: f64 = 3800.0;
/// What clusters wait for until there is room for all of their blocks beside those of copies.
const OF_ROOM: f64 = 0.35;
/// Longer kernels, but those that do little but read, are not started early: it gains 0.3 µs, and takes more than that where blocks come to lie unevenly.
const EARLY: f64 = 20.0;
/// Stages of all blocks up to which a launch asks for lines of b ahead of time, and tiles that always do. It gains 0.1 to 0.5 µs where the
/// first bytes are what is waited for; where many blocks have many stages it loses as much.
const ASKING: f64 = 512.0;
const ALWAYS_ASKING: [u32; 2] = [128, 64];

/// The launch of a kernel for a request, with so many splits of k.
struct Launch<'a> {
    tile: &'a Tile,
    request: &'a Request,
    target: Target,
    splits: usize,
    k_of_split: usize,
    /// Of a product, down and across.
    tiles: [usize; 2],
    /// Bytes of partial sums in memory.
    partials: f64,
    blocks: f64,
    /// Blocks of a multiprocessor, at most.
    resident: f64,
}

impl Tile {
    /// Of a product, down and across.
    fn tiles(&self, request: &Request) -> [usize; 2] {
        [request.m.div_ceil(self.rows as usize), request.n.div_ceil(self.cols as usize)]
    }

    /// Whether a block has its shared memory.
    pub(super) fn fits(&self, target: Target) -> bool {
        blocks_that_fit(target.shared_bytes, self.shared_bytes) > 0
    }

    /// `None` for splits without terms, and for partial sums that take too much memory.
    pub(super) fn plan(&self, request: &Request, target: Target, splits: usize) -> Option<Plan> {
        Launch::new(self, request, target, splits).map(|launch| launch.plan())
    }
}

impl<'a> Launch<'a> {
    fn new(tile: &'a Tile, request: &'a Request, target: Target, splits: usize) -> Option<Launch<'a>> {
        let Request { m, n, k, batch, .. } = *request;
        let k_of_split = k.div_ceil(splits).next_multiple_of(DEPTH).max(DEPTH);
        let clustered = tile.choice.is_clustered();
        let partials = if splits > 1 && !clustered {
            let [rows, cols] = if request.by_columns { [n, m] } else { [m, n] };
            product([splits, batch, rows, cols.next_multiple_of(4), size_of::<f32>()])
        } else {
            0.0
        };
        if k.div_ceil(k_of_split).max(1) != splits || partials > MOST_PARTIALS {
            return None;
        }
        if clustered && !splits.is_power_of_two() {
            return None;
        }
        let tiles = tile.tiles(request);
        let blocks = product([tiles[0], tiles[1], splits, batch]);
        let fitting = blocks_that_fit(target.shared_bytes, tile.shared_bytes);
        let resident = f64::from(tile.resident.min(fitting).max(1));
        Some(Launch { tile, request, target, splits, k_of_split, tiles, partials, blocks, resident })
    }

    fn sms(&self) -> f64 {
        f64::from(self.target.sms)
    }

    fn is_rounded(&self) -> bool {
        matches!(self.tile.choice, Choice::Tf32Pipelined { .. })
    }

    fn plan(&self) -> Plan {
        let Launch { tile, request, target, splits, .. } = *self;
        let copies = self.copies();
        let waits = tile.choice.is_clustered() && splits > 1 && copies.right_ahead;
        let of_room = if waits { OF_ROOM } else { 0.0 };
        let microseconds = self.of_blocks() + self.reduce() + copies.microseconds + of_room;
        let spread = self.spread(copies.right_ahead);
        let stays = matches!(
            tile.pace,
            Pace::Staying(_) | Pace::Alternating(_) | Pace::Parted(_) | Pace::Sweeping(_) | Pace::Alone(_)
        );
        let streams = matches!(tile.pace, Pace::Streaming(_));
        let few = self.blocks * self.turns() <= ASKING || [tile.rows, tile.cols] == ALWAYS_ASKING;
        Plan {
            choice: tile.choice,
            sides: copies.sides,
            by_columns: request.by_columns,
            tile: [tile.rows, tile.cols],
            tiles: self.tiles,
            splits,
            k_of_split: self.k_of_split,
            shared_bytes: spread.map_or(tile.shared_bytes, |of_each| {
                tile.shared_bytes.max(least_share(target.shared_bytes, of_each))
            }),
            most_blocks: if stays { u64::from(target.sms) * self.resident as u64 } else { u64::MAX },
            abreast: tile.abreast(),
            early: if streams { self.comes_evenly() } else { microseconds < EARLY },
            beside_copies: request.dtype != DType::F32 || spread.is_some(),
            asks: microseconds < EARLY && !streams && few,
            microseconds,
            measured: false,
        }
    }

    /// How many blocks a multiprocessor is to have room for, where fewer than fit. Those that begin while the blocks ahead of them end come to lie several on one
    /// multiprocessor and none on others, if they can. But what follows a launch of the same kind begins earlier where its blocks find room beside those.
    fn spread(&self, behind_copies: bool) -> Option<u32> {
        let part = if behind_copies { 1.0 } else { 0.5 };
        let of_each = self.blocks / self.sms();
        match self.tile.pace {
            Pace::Clusters(_) => (self.waves_of_clusters(1.0) <= 1.0).then_some(1),
            Pace::Streaming(_) => (self.waves_of_clusters(1.0) <= part).then_some(1),
            Pace::Staying(_) | Pace::Alternating(_) | Pace::Reading(_) => (of_each <= part).then_some(1),
            Pace::Waves(_) => {
                Some(of_each.ceil().max(1.0) as u32).filter(|&of_each| of_each < self.tile.resident)
            }
            Pace::Parted(_) | Pace::Sweeping(_) | Pace::Alone(_) => None,
        }
    }
}

/// Of extents, which may be more than an integer holds.
fn product<const N: usize>(extents: [usize; N]) -> f64 {
    extents.iter().map(|&extent| extent as f64).product()
}
