//! Boxes for the staged kernels: what a block takes of each dimension, and with that every number that the kernel needs.

mod blocks;
mod fill;
mod numbers;
mod runs;
mod staging;
#[cfg(test)]
mod tests;

use kernels_gpu::permute::{Boxes, DIRECT_LEVELS, ENTRY, Level, OUT_ENTRY, RUN_ENTRY, Span, along_row};

use super::lanes::{Lanes, Shared};
use super::resident::fitting;
use super::simplify::PACK;
use super::takes::{SECTOR, Walk};
use blocks::Blocks;
pub use numbers::{digit, filled};
use numbers::{divisor, level, span_of, steps_of};
use runs::{AROUND, Runs};
use staging::Staging;

/// How the way out goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Words turned in registers.
    Turned,
    /// Packs gathered element by element, on this many levels; whether the table of places along a run has rows.
    Packs { levels: usize, rows: bool },
}

/// What boxes can have besides their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Words, to be turned.
    pub words: bool,
    /// Bytes of shared memory between as many runs of x as a pack of y has elements: the lanes of a warp, a pack
    /// apart, then read different banks.
    pub skew: usize,
    /// Runs of x keep their places modulo 32 bytes, so that no sector is fetched by halves, and not just modulo 16, which takes less room and
    /// may be one level where that takes two.
    pub sectors: bool,
    /// Rows in the table of places along a run of y, of packs: see [`along_row`].
    pub rows: bool,
}

impl Layout {
    /// By elements, one behind the other.
    pub const PLAIN: Layout = Layout { words: false, skew: 0, rows: false, sectors: true };
}

/// Where runs of y meet those of the next block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// At multiples of 32 bytes.
    Sectors,
    /// At multiples of 16.
    Packs,
    /// Anywhere; each block has some elements of the next one's, to end at such a place.
    Beyond,
    /// Anywhere.
    Nowhere,
}

/// Boxes, ready to be launched.
#[derive(Clone, Debug)]
pub struct Boxed {
    pub params: Boxes,
    pub way: Way,
    /// Whether runs of x lie apart.
    pub skew: bool,
    /// Whether some sectors of x are fetched by halves.
    pub by_halves: bool,
    /// Whether places modulo 16 bytes would be the same.
    pub as_dense: bool,
    pub blocks: u64,
    pub shared_bytes: usize,
    /// Blocks that are to share a multiprocessor at most, where that is fewer than fit.
    pub limit: Option<usize>,
    pub joins: Joins,
    /// Elements that boxes have room for, of each that there is.
    pub room: f64,
    /// Elements of a pack of y, and of a word.
    pub per_pack: usize,
    pub per_word: usize,
    /// Bytes that a box writes.
    pub bytes: usize,
    /// What a box takes of each dimension.
    pub take: Vec<usize>,
    /// Bytes of a run of x, with those of the next tile, and of a run of y.
    pub run_bytes: usize,
    pub out_bytes: usize,
    /// Whether runs of x begin at multiples of 16 bytes.
    pub x_aligned: bool,
    /// How a warp's lanes share the packs of y.
    pub lanes: Shared,
    /// Whether a warp's turns that follow one another find their elements at the same distances.
    pub repeats: bool,
    /// Whether they are smaller than what the model chose, or fewer at a time: see [`Boxed::filled`] and [`Boxed::unshared`].
    pub is_filled: bool,
}

impl Boxed {
    /// Whether runs of x begin at packs and have the bytes of whole sectors.
    pub fn has_runs_of_sectors(&self) -> bool {
        self.x_aligned && self.run_bytes.is_multiple_of(SECTOR)
    }

    /// As [`Self::new`], with places modulo 16 bytes where that has fewer levels than `plain`, which has the rest of the layout, or lets more
    /// boxes share a multiprocessor.
    pub fn denser(
        walk: &Walk,
        chain: &[usize],
        take: &[usize],
        layout: Layout,
        plain: Option<&Boxed>,
    ) -> Option<Boxed> {
        // Where all places are the same anyway there is nothing to weigh.
        if plain.is_some_and(|plain| plain.as_dense) {
            return None;
        }
        let denser = Boxed::new(walk, chain, take.to_vec(), Layout { sectors: false, ..layout })?;
        let better = |plain: &Boxed| {
            denser.params.within_levels < plain.params.within_levels
                || fitting(denser.shared_bytes) > fitting(plain.shared_bytes)
        };
        plain.is_none_or(better).then_some(denser)
    }

    /// Boxes of these sizes, by words or by elements, with or without a skew; `None` where the kernels cannot have them.
    pub fn new(walk: &Walk, chain: &[usize], take: Vec<usize>, layout: Layout) -> Option<Boxed> {
        let Layout { words, rows, .. } = layout;
        let dims = walk.dims;
        let of = Runs::new(walk, chain, &take, layout)?;
        let staging = Staging::new(&of, layout)?;
        let Blocks { digits, count: blocks, u_first, keep } = Blocks::new(&of)?;
        let &Runs { w, u, begins, grain, x_aligned, per_pack, per_word, .. } = &of;

        // Sizes by tile.
        let spans = |all: &[usize], cut: Option<usize>, unit: usize, with: &dyn Fn(usize) -> usize| {
            let taken = |&dim: &usize| if Some(dim) == cut { 1 } else { take[dim] };
            let inner = all.iter().map(taken).product::<usize>() * unit;
            match cut.filter(|cut| all.contains(cut)) {
                None => span_of(inner, 0, inner),
                Some(cut) => span_of(inner * dims[cut].extent, inner * take[cut], inner * with(cut)),
            }
        };
        let own = |dim: usize| take[dim];
        let count = |dim: usize| of.count(dim);
        let run_count = spans(&staging.run_dims, w, 1, &count);
        let out_span = spans(&of.y, w, walk.y_size, &own);
        let out_bytes = out_span.size as usize;
        let of_words = |span: u64| span / per_word as u64;
        let Span { total, step, size } = spans(&of.outs, u, 1, &own);
        let out_count = Span { total: of_words(total), step: of_words(step), size: of_words(size) };

        // What a step of a level counts: words or elements; so do the runs of y.
        let unit = if words { walk.word() } else { walk.x_size };
        let outs: Vec<Level> = (of.outs.iter().zip(&staging.across).enumerate())
            .map(|(i, (&dim, &(count, staged)))| {
                let per = if i == 0 { per_word } else { 1 };
                level(count, staged / unit, (walk.y_step(dim) * per) as i64)
            })
            .collect::<Option<_>>()?;
        // Tables have places within a box in 32 bits, as packs.
        let far = |levels: &[Level]| -> u64 {
            levels.iter().map(|level| u64::from(level.count.value()) * level.global as u64).sum()
        };
        if far(&staging.runs).max(far(&outs)) >> 35 != 0 {
            return None;
        }

        let packs = match begins >= grain {
            true => out_bytes.div_ceil(PACK),
            // The first and the last may be in part, and up to a grain is from the next tile.
            false => (out_bytes + grain + AROUND) / PACK,
        };
        let run_bytes = staging.run_bytes;
        let copies = of.copies(run_bytes);
        let steps: Vec<usize> = outs.iter().map(|level| level.global as usize).collect();
        let lanes = Lanes {
            within: &staging.within,
            outs: &staging.across,
            steps: &steps,
            grain,
            size: walk.y_size,
            unit,
            per_word,
            per_pack,
            packs,
            rows,
            skew: staging.skew,
        };
        let lanes = lanes.best();
        let strides = packs.div_ceil(1 << lanes.log);
        let (period, period_step) = match staging.within.split_last() {
            Some((last, inner)) => (inner.iter().map(|level| level.0).product(), last.1 / unit),
            None => (1, 0),
        };
        let (along, along_entries, along_step) = match staging.within.len() {
            _ if words => (packs, packs, per_pack),
            1 => (0, 0, 1),
            _ if rows => {
                // One more than packs begin in: for what they have behind the last.
                let rows = period.div_ceil(per_pack) + 1;
                (rows * per_pack, rows * along_row(per_pack), 1)
            }
            _ => (period + per_pack - 1, period + per_pack - 1, 1),
        };
        let runs_at_once = Runs::at_once(copies);
        let groups = (out_count.size as usize).div_ceil(32 >> lanes.log);
        let tabled_runs = match staging.runs.len() > DIRECT_LEVELS as usize {
            true => run_count.size as usize,
            false => 0,
        };
        let tables = OUT_ENTRY * out_count.size as usize + RUN_ENTRY * tabled_runs + ENTRY * along_entries;
        let shared_bytes = (staging.bytes + tables).next_multiple_of(PACK);
        if shared_bytes > MOST_SHARED {
            return None;
        }
        // The last level has no end: a box has elements of the next tile, and kernels may have levels to spare.
        let endless = |i: usize, count: usize| if i + 1 < staging.within.len() { count } else { 1 << 30 };
        let within: Vec<Level> = (staging.within.iter().enumerate())
            .map(|(i, &(count, staged))| level(endless(i, count), staged / unit, 0))
            .collect::<Option<_>>()?;
        let warps = THREADS / 32;
        let further = (warps * (32 >> lanes.log)) << u32::from(lanes.apart);
        let repeats = !rows
            && groups > warps
            && steps.first().is_none_or(|step| (further * step).is_multiple_of(grain));
        Some(Boxed {
            skew: layout.skew > 0,
            by_halves: staging.by_halves,
            as_dense: staging.as_dense,
            way: if words { Way::Turned } else { Way::Packs { levels: within.len(), rows } },
            params: Boxes {
                digits: filled(&digits, digit(1, 0, 0)?),
                runs: filled(&staging.runs, level(1, 0, 0)?),
                outs: filled(&outs, level(1, 0, 0)?),
                within: filled(&within, level(1, 0, 0)?),
                further: steps_of(&staging.runs, runs_at_once)?,
                run_bytes: spans(&of.x, u, walk.x_size, &count),
                run_count,
                out_bytes: out_span,
                out_count,
                copies: divisor(copies)?,
                inner: divisor(if words || within.len() == 1 { strides } else { groups })?,
                period: divisor(period)?,
                period_step: u32::try_from(period_step).ok()?,
                digit_count: digits.len() as u32,
                one_tile: u32::from(of.one_tile()),
                log_lanes: lanes.log,
                turns: u32::try_from(strides * groups).ok()?,
                grain: grain as u32,
                x_phase: walk.x_phase as u32,
                y_phase: walk.y_phase as u32,
                run_levels: staging.runs.len() as u32,
                out_levels: outs.len() as u32,
                within_levels: within.len() as u32,
                runs_at_once: runs_at_once as u32,
                copies_at_once: copies.min(THREADS) as u32,
                tables: staging.bytes as u32,
                along: along as u32,
                along_entries: along_entries as u32,
                along_step: along_step as u32,
                skew: (staging.skew / unit) as u32,
                apart: u32::from(lanes.apart),
                u_first: u32::from(u_first),
                keep: u32::from(keep),
                zero: 0,
                neighbour: of.outs.first().map_or(0, |&dim| walk.y_step(dim) as i64),
            },
            blocks,
            shared_bytes,
            limit: None,
            joins: match begins {
                SECTOR => Joins::Sectors,
                _ if w.is_some() && grain > begins => Joins::Beyond,
                PACK => Joins::Packs,
                _ => Joins::Nowhere,
            },
            room: (dims.iter().zip(&take))
                .map(|(dim, &take)| (dim.extent.div_ceil(take) * take) as f64 / dim.extent as f64)
                .product(),
            per_pack,
            per_word,
            bytes: take.iter().product::<usize>() * walk.y_size,
            run_bytes,
            out_bytes,
            x_aligned,
            take,
            lanes,
            repeats,
            is_filled: false,
        })
    }
}

/// Shared memory of a block at most: two blocks of these share a multiprocessor of 227 KiB. That is slow, but not as slow
/// as short runs.
const MOST_SHARED: usize = 96 << 10;

/// Threads of a block.
pub const THREADS: usize = 256;
