//! Boxes for the staged kernels: what a block takes of each dimension, and with that every number that the kernel needs.

use cuda_std::divide::Divisor;
use kernels_gpu::permute::{
    Boxes, DIRECT_LEVELS, Digit, ENTRY, Level, MAX_DIGITS, MAX_LEVELS, MAX_WITHIN, OUT_ENTRY, RUN_ENTRY,
    Span, Step, along_row,
};

use super::lanes::{Lanes, Shared};
use super::order::{FAR, NEAR, x_goes_first};
use super::simplify::PACK;
use super::takes::{SECTOR, Walk, gcd};

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
    /// 16 bytes of shared memory between as many runs of x as a pack of y has elements: the lanes of a warp, a pack
    /// apart, then read different banks.
    pub skew: bool,
    /// Rows in the table of places along a run of y, of packs: see [`along_row`].
    pub rows: bool,
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
}

/// A dimension that takes part, with its place in shared memory.
#[derive(Clone, Copy, Debug)]
struct Part {
    dim: usize,
    /// Elements in the box, with those of the next tile.
    count: usize,
    /// Bytes of shared memory from one to the next.
    staged: usize,
}

impl Boxed {
    /// Boxes of these sizes, by words or by elements, with or without a skew; `None` where the kernels cannot have them.
    pub fn new(
        walk: &Walk,
        chain: &[usize],
        take: Vec<usize>,
        Layout { words, skew, rows }: Layout,
    ) -> Option<Boxed> {
        let dims = walk.dims;
        // Runs end with the first dimension that is not taken whole.
        let run_of = |order: &mut dyn Iterator<Item = usize>| {
            let (mut run, mut cut) = (Vec::new(), None);
            for dim in order {
                if take[dim] == 1 {
                    break;
                }
                run.push(dim);
                if take[dim] < dims[dim].extent {
                    cut = Some(dim);
                    break;
                }
            }
            (run, cut)
        };
        let (y_run, w) = run_of(&mut (0..dims.len()).rev());
        let innermost = *y_run.first()?;
        // What is to lie apart ends a run of x.
        let together = |&dim: &usize| !(skew && dim == innermost);
        let (x_run, u) = run_of(&mut chain.iter().copied().take_while(together));
        if x_run.is_empty() {
            return None;
        }
        let one_tile = u.is_some() && u == w;
        let stray = |&dim: &usize| take[dim] > 1 && !x_run.contains(&dim) && !y_run.contains(&dim);
        if (0..dims.len()).any(|dim| stray(&dim)) {
            return None;
        }
        let y_step = |dim: usize| dims[dim].y as usize * walk.y_size;
        let x_step = |dim: usize| dims[dim].x as usize * walk.x_size;
        let cut_step = |dim: Option<usize>| dim.map_or(0, |dim| take[dim]);

        // Where runs of y begin, and what a box needs of the next tile so that no pack has two blocks.
        let steps_of_y = (0..dims.len())
            .filter(|dim| take[*dim] < dims[*dim].extent || !y_run.contains(dim))
            .map(|dim| y_step(dim) * if y_run.contains(&dim) { take[dim] } else { 1 });
        let begins = steps_of_y.fold(walk.y_phase, gcd);
        let begins = if begins == 0 { SECTOR } else { gcd(begins, SECTOR) };
        // Words that are turned go as whole packs. Others end at sectors, so that no two blocks write halves of one: 4092×6×2652 by (2,1,0) in
        // f32 has 0.91 so, and 0.74 at the best of 24 boxes that end at packs.
        let grain = if words && begins >= PACK { begins } else { SECTOR };
        let beyond = match w {
            Some(w) if begins < grain => {
                ((grain - begins.max(walk.y_size)) / walk.y_size).div_ceil(dims[w].y as usize)
            }
            _ => 0,
        };

        // Where runs of x begin.
        let steps_of_x = (0..dims.len())
            .filter(|dim| take[*dim] < dims[*dim].extent || !x_run.contains(dim))
            .map(|dim| x_step(dim) * if x_run.contains(&dim) { take[dim] } else { 1 });
        let x_begins = steps_of_x.fold(walk.x_phase, gcd);
        let x_aligned = x_begins.is_multiple_of(PACK);

        // Words of x can be turned where they cross runs of y, and need not be shifted where everything is whole.
        let per_pack = PACK / walk.y_size;
        let outs: Vec<usize> = x_run.iter().copied().filter(|dim| !y_run.contains(dim)).collect();
        let word = walk.x_size.max(4);
        let per_word = if words { word / walk.x_size } else { 1 };
        if words
            && (walk.x_size != walk.y_size || outs.first() != chain.first() || x_run.contains(&innermost))
        {
            return None;
        }
        let groups = y_run.len() == 1 || take[innermost].is_multiple_of(per_pack);
        let whole_runs = |run: &[usize], size: usize| {
            let bytes =
                |of: &dyn Fn(usize) -> usize| run.iter().map(|&dim| of(dim)).product::<usize>() * size;
            bytes(&|dim| take[dim]).is_multiple_of(PACK)
                && bytes(&|dim| dims[dim].extent).is_multiple_of(PACK)
        };
        let turned = words
            && x_aligned
            && begins >= PACK
            && groups
            && whole_runs(&x_run, walk.x_size)
            && whole_runs(&y_run, walk.y_size)
            && take[chain[0]].is_multiple_of(per_word)
            && dims[chain[0]].extent.is_multiple_of(per_word);
        if words && !turned {
            return None;
        }

        // Shared memory: the runs of x one behind the other, in the order of y.
        let count = |dim: usize| match w {
            Some(w) if w == dim => (take[dim] + beyond).min(dims[dim].extent),
            _ => take[dim],
        };
        let run_bytes = x_run.iter().map(|&dim| count(dim)).product::<usize>() * walk.x_size;
        let mut span = run_bytes;
        let mut parts: Vec<Part> =
            x_run.iter().map(|&dim| Part { dim, count: count(dim), staged: x_step(dim) }).collect();
        // A skew needs what it parts: more runs than a pack has elements, which are neighbours in y.
        let skewed = |dim: usize| skew && dim == innermost;
        // Levels part them, of which all but the last are whole; or the table, where no level follows.
        let by_levels = y_run.len() == 1 || take[innermost].is_multiple_of(per_pack);
        let by_table = rows && y_run.iter().filter(|dim| !x_run.contains(dim)).count() == 1;
        if skew && !(count(innermost) > per_pack && (by_levels || by_table)) {
            return None;
        }
        let mut runs: Vec<Part> = Vec::new();
        for &dim in y_run.iter().filter(|dim| !x_run.contains(dim)) {
            let staged = match x_aligned {
                true => span.next_multiple_of(PACK),
                // Neither run's first or last 16 bytes are another's.
                false => {
                    let least = span + 2 * (PACK - 1);
                    least + (x_step(dim) % PACK + PACK - least % PACK) % PACK
                }
            };
            let part = Part { dim, count: count(dim), staged };
            span += (part.count - 1) * staged;
            if skewed(dim) {
                span += (part.count - 1) / per_pack * PACK;
            }
            runs.push(part);
            parts.push(part);
        }
        let staged = |dim: usize| parts.iter().find(|part| part.dim == dim).map_or(0, |part| part.staged);
        let box_bytes = (span + 2 * PACK).next_multiple_of(PACK);

        // The levels of the runs of x.
        let mut run_levels: Vec<Level> = Vec::new();
        for part in &runs {
            let step = x_step(part.dim);
            if skewed(part.dim) {
                run_levels.push(level(per_pack, part.staged, step as i64)?);
                let (count, staged) = (part.count.div_ceil(per_pack), per_pack * part.staged + PACK);
                run_levels.push(level(count, staged, (per_pack * step) as i64)?);
            } else {
                run_levels.push(level(part.count, part.staged, step as i64)?);
            }
        }
        // Those of the elements of a run of y; neighbours that go on in shared memory are one.
        let mut within: Vec<(usize, usize)> = Vec::new();
        for &dim in &y_run {
            let (mut count, mut staged) = (take[dim], staged(dim));
            if skewed(dim) && by_levels {
                within.push((per_pack, staged));
                (count, staged) = (count.div_ceil(per_pack), per_pack * staged + PACK);
            }
            match within.last_mut() {
                Some((inner, step)) if *inner * *step == staged => *inner *= count,
                _ => within.push((count, staged)),
            }
        }
        if rows && (words || within.len() == 1) {
            return None;
        }
        if run_levels.len() > MAX_LEVELS || outs.len() > MAX_LEVELS || within.len() > MAX_WITHIN {
            return None;
        }

        // Sizes by tile.
        let product = |dims_of: &[usize], of: &dyn Fn(usize) -> usize| {
            dims_of.iter().map(|&dim| of(dim)).product::<usize>()
        };
        let spans = |all: &[usize], cut: Option<usize>, unit: usize, with: &dyn Fn(usize) -> usize| {
            let inner = product(all, &|dim| if Some(dim) == cut { 1 } else { take[dim] }) * unit;
            match cut.filter(|cut| all.contains(cut)) {
                None => span_of(inner, 0, inner),
                Some(cut) => span_of(inner * dims[cut].extent, inner * take[cut], inner * with(cut)),
            }
        };
        let run_dims: Vec<usize> = runs.iter().map(|part| part.dim).collect();
        let own = |dim: usize| take[dim];
        let run_span = spans(&x_run, u, walk.x_size, &count);
        let count_span = spans(&run_dims, w, 1, &count);
        let out_span = spans(&y_run, w, walk.y_size, &own);
        let outs_span = spans(&outs, u, 1, &own);
        let out_bytes = out_span.size as usize;

        // What a step of a level counts: words or elements; so do the runs of y.
        let unit = if words { word } else { walk.x_size };
        let across: Vec<(usize, usize)> = (outs.iter().enumerate())
            .map(|(i, &dim)| {
                let per = if i == 0 { per_word } else { 1 };
                (take[dim] / per, staged(dim) * per)
            })
            .collect();
        let mut out_levels = Vec::new();
        for (i, (&dim, &(count, staged))) in outs.iter().zip(&across).enumerate() {
            let per = if i == 0 { per_word } else { 1 };
            out_levels.push(level(count, staged / unit, (y_step(dim) * per) as i64)?);
        }
        let mut digits = vec![digit(
            w.map_or(1, |w| dims[w].extent.div_ceil(take[w])),
            w.map_or(0, |w| x_step(w) * take[w]),
            w.map_or(0, |w| y_step(w) * take[w]),
        )?];
        let u_alone = u.filter(|_| !one_tile);
        let tiles_of_u = u_alone.map_or(1, |u| dims[u].extent.div_ceil(take[u]));
        let step = |bytes: &dyn Fn(usize) -> usize| u_alone.map_or(0, |u| bytes(u) * cut_step(u_alone));
        digits.push(digit(tiles_of_u, step(&x_step), step(&y_step))?);
        let u_first = x_goes_first(digits[0].count.value() as usize, tiles_of_u);
        if u_first {
            digits.swap(0, 1);
        }
        // What is written stays in L2 until all of a line is there, which blocks mostly share, unless lines of x would have to leave.
        let box_bytes_of_y = take.iter().product::<usize>() * walk.y_size;
        let between = digits[0].count.value() as usize * box_bytes_of_y;
        let keep = tiles_of_u < 2 || u_first || between < NEAR;
        // In the order of y, whose runs then go on; where these are of whole sectors anyway, far steps of x come last.
        let mut others: Vec<usize> = (0..dims.len()).rev().filter(|&dim| take[dim] == 1).collect();
        if begins == SECTOR {
            others.sort_by_key(|&dim| x_step(dim).is_multiple_of(FAR));
        }
        for dim in others {
            digits.push(digit(dims[dim].extent, x_step(dim), y_step(dim))?);
        }
        let digit_count = digits.len();
        let blocks =
            digits.iter().try_fold(1u64, |blocks, digit| blocks.checked_mul(digit.count.value().into()))?;
        if digit_count > MAX_DIGITS || blocks >= 1 << 31 {
            return None;
        }

        let packs = match begins >= grain {
            true => out_bytes.div_ceil(PACK),
            // The first and the last may be in part, and up to a grain is from the next tile.
            false => (out_bytes + grain + 2 * (PACK - 1)) / PACK,
        };
        let copies = if x_aligned { run_bytes.div_ceil(PACK) } else { (run_bytes + 2 * (PACK - 1)) / PACK };
        let steps: Vec<usize> = out_levels.iter().map(|level: &Level| level.global as usize).collect();
        let lanes_of = Lanes {
            within: &within,
            outs: &across,
            steps: &steps,
            grain,
            size: walk.y_size,
            unit,
            per_word,
            per_pack,
            packs,
            rows,
            skew: if skew && !by_levels { PACK } else { 0 },
        };
        let lanes = lanes_of.best();
        let strides = packs.div_ceil(1 << lanes.log);
        // Tables have places within a box in 32 bits, as packs.
        let far = |levels: &[Level]| -> u64 {
            levels.iter().map(|level| u64::from(level.count.value()) * level.global as u64).sum()
        };
        if far(&run_levels).max(far(&out_levels)) >> 35 != 0 {
            return None;
        }
        let unit_of = |bytes: usize| bytes / unit;
        let outs_span = Span {
            total: outs_span.total / per_word as u64,
            step: outs_span.step / per_word as u64,
            size: outs_span.size / per_word as u64,
        };
        let (period, period_step) = match within.split_last() {
            Some((last, inner)) => (inner.iter().map(|level| level.0).product(), unit_of(last.1)),
            None => (1, 0),
        };
        let (along, along_entries, along_step) = match within.len() {
            _ if words => (packs, packs, per_pack),
            1 => (0, 0, 1),
            _ if rows => {
                // One more than packs begin in: for what they have behind the last.
                let rows = period.div_ceil(per_pack) + 1;
                (rows * per_pack, rows * along_row(per_pack), 1)
            }
            _ => (period + per_pack - 1, period + per_pack - 1, 1),
        };
        let runs_at_once = (THREADS / copies).max(1);
        let groups = (outs_span.size as usize).div_ceil(32 >> lanes.log);
        let tabled_runs = match run_levels.len() > DIRECT_LEVELS as usize {
            true => count_span.size as usize,
            false => 0,
        };
        let tables = OUT_ENTRY * outs_span.size as usize + RUN_ENTRY * tabled_runs + ENTRY * along_entries;
        let shared_bytes = (box_bytes + tables).next_multiple_of(PACK);
        if shared_bytes > MOST_SHARED {
            return None;
        }
        // The last level has no end: a box has elements of the next tile, and kernels may have levels to spare.
        let endless = |i: usize, count: usize| if i + 1 < within.len() { count } else { 1 << 30 };
        let within: Vec<Level> = (within.iter().enumerate())
            .map(|(i, &(count, staged))| level(endless(i, count), unit_of(staged), 0))
            .collect::<Option<_>>()?;
        let warps = THREADS / 32;
        let further = (warps * (32 >> lanes.log)) << u32::from(lanes.apart);
        let repeats = !rows
            && groups > warps
            && steps.first().is_none_or(|step| (further * step).is_multiple_of(grain));
        Some(Boxed {
            skew,
            way: if words { Way::Turned } else { Way::Packs { levels: within.len(), rows } },
            params: Boxes {
                digits: filled(&digits, digit(1, 0, 0)?),
                runs: filled(&run_levels, level(1, 0, 0)?),
                outs: filled(&out_levels, level(1, 0, 0)?),
                within: filled(&within, level(1, 0, 0)?),
                further: steps_of(&run_levels, runs_at_once)?,
                run_bytes: run_span,
                run_count: count_span,
                out_bytes: out_span,
                out_count: outs_span,
                copies: divisor(copies)?,
                inner: divisor(if words || within.len() == 1 { strides } else { groups })?,
                period: divisor(period)?,
                period_step: u32::try_from(period_step).ok()?,
                digit_count: digit_count as u32,
                one_tile: u32::from(one_tile),
                log_lanes: lanes.log,
                turns: u32::try_from(strides * groups).ok()?,
                grain: grain as u32,
                x_phase: walk.x_phase as u32,
                y_phase: walk.y_phase as u32,
                run_levels: run_levels.len() as u32,
                out_levels: out_levels.len() as u32,
                within_levels: within.len() as u32,
                runs_at_once: runs_at_once as u32,
                copies_at_once: copies.min(THREADS) as u32,
                tables: box_bytes as u32,
                along: along as u32,
                along_entries: along_entries as u32,
                along_step: along_step as u32,
                skew: unit_of(lanes_of.skew) as u32,
                apart: u32::from(lanes.apart),
                u_first: u32::from(u_first),
                keep: u32::from(keep),
                unused: 0,
                neighbour: outs.first().map_or(0, |&dim| y_step(dim) as i64),
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
            take,
            run_bytes,
            out_bytes,
            x_aligned,
            lanes,
            repeats,
        })
    }
}

/// Shared memory of a block at most: two blocks of these share a multiprocessor of 227 KiB. That is slow, but not as slow
/// as short runs.
const MOST_SHARED: usize = 96 << 10;

/// Threads of a block.
pub const THREADS: usize = 256;

pub(super) fn divisor(value: usize) -> Option<Divisor> {
    Divisor::new(u32::try_from(value).ok()?)
}

fn level(count: usize, staged: usize, global: i64) -> Option<Level> {
    Some(Level { count: divisor(count)?, staged: u32::try_from(staged).ok()?, global })
}

pub(super) fn digit(count: usize, x: usize, y: usize) -> Option<Digit> {
    Some(Digit { count: divisor(count)?, unused: 0, x: i64::try_from(x).ok()?, y: i64::try_from(y).ok()? })
}

/// The steps from run to run, `at_once` further each, of boxes with at most two levels of runs.
fn steps_of(levels: &[Level], at_once: usize) -> Option<[Step; 2]> {
    let none = level(1, 0, 0)?;
    let (inner, outer) = (levels.first().unwrap_or(&none), levels.get(1).unwrap_or(&none));
    let count = inner.count.value();
    let (of_outer, of_inner) = (at_once as u32 / count, at_once as u32 % count);
    let staged = |level: &Level, steps: u32| level.staged.wrapping_mul(steps);
    let global = |level: &Level, steps: u32| level.global.checked_mul(steps.into());
    let step = Step {
        global: global(inner, of_inner)?.checked_add(global(outer, of_outer)?)?,
        staged: staged(inner, of_inner).wrapping_add(staged(outer, of_outer)),
        runs: of_inner,
    };
    let again = Step {
        global: outer.global - global(inner, count)?,
        staged: outer.staged.wrapping_sub(staged(inner, count)),
        runs: count.wrapping_neg(),
    };
    Some([step, again])
}

fn span_of(total: usize, step: usize, size: usize) -> Span {
    Span { total: total as u64, step: step as u64, size: size as u64 }
}

pub(super) fn filled<T: Copy, const N: usize>(values: &[T], rest: T) -> [T; N] {
    let mut all = [rest; N];
    all.iter_mut().zip(values).for_each(|(slot, value)| *slot = *value);
    all
}

#[cfg(test)]
mod tests {
    use super::super::simplify::{Dim, simplify};
    use super::super::takes::{chain_of_x, takes};
    use super::*;
    use crate::shape;

    fn simple(shape: &[usize], order: &[usize], size: usize) -> super::super::simplify::Simple {
        let strides = shape::contiguous_strides(shape);
        let (shape, strides): (Vec<_>, Vec<_>) = order.iter().map(|&i| (shape[i], strides[i])).unzip();
        simplify(&shape, &strides, size)
    }

    /// The kernel's `offsets`.
    fn at(levels: &[Level], number: u64) -> (i64, u64) {
        let (mut global, mut staged, mut rest) = (0, 0, number);
        for (i, level) in levels.iter().enumerate() {
            let count = u64::from(level.count.value());
            let digit = if i + 1 < levels.len() { rest % count } else { rest };
            rest /= count;
            global += level.global * digit as i64;
            staged += u64::from(level.staged) * digit;
        }
        (global, staged)
    }

    /// Checks some blocks of boxes by the kernel's arithmetic: that every element of their runs of y is staged from where
    /// the index formula has it.
    fn check(dims: &[Dim], size: usize, boxed: &Boxed) {
        let p = &boxed.params;
        let total: u64 = dims.iter().map(|dim| dim.extent as u64).product();
        for block in [0, 1, boxed.blocks / 2, boxed.blocks - 2, boxed.blocks - 1] {
            let (mut x, mut y, mut rest) = (0i64, 0i64, block);
            let mut tiles = [0, 0];
            for (i, digit) in p.digits[..p.digit_count as usize].iter().enumerate() {
                let count = u64::from(digit.count.value());
                x += digit.x * (rest % count) as i64;
                y += digit.y * (rest % count) as i64;
                if let Some(tile) = tiles.get_mut(i) {
                    *tile = rest % count;
                }
                rest /= count;
            }
            if p.u_first != 0 {
                tiles.swap(0, 1);
            }
            let w = tiles[0];
            let u = if p.one_tile != 0 { w } else { tiles[1] };
            let of = |span: &Span, tile: u64| (span.total - span.step * tile).min(span.size);
            // Where each byte of x is staged.
            let mut staged = std::collections::HashMap::new();
            for run in 0..of(&p.run_count, w) {
                let (global, place) = at(&p.runs[..p.run_levels as usize], run);
                for byte in (0..of(&p.run_bytes, u)).step_by(size) {
                    let from = x + global + byte as i64;
                    assert!(from >= 0 && (from as u64) < total * size as u64, "{boxed:?}");
                    assert!(staged.insert(place + byte, from).is_none(), "staged twice: {boxed:?}");
                }
            }
            let outs = of(&p.out_count, u);
            for out in [0, outs / 2, outs - 1] {
                let (global, place) = at(&p.outs[..p.out_levels as usize], out);
                for number in 0..of(&p.out_bytes, w) / size as u64 {
                    let element = (y + global) as u64 / size as u64 + number;
                    let from: i64 = dims
                        .iter()
                        .map(|dim| (element / dim.y as u64 % dim.extent as u64) as i64 * dim.x as i64)
                        .sum();
                    let innermost = number % u64::from(p.within[0].count.value());
                    let skew = innermost / boxed.per_pack as u64 * u64::from(p.skew);
                    let along = at(&p.within[..p.within_levels as usize], number).1 + skew;
                    let got = staged.get(&((place + along) * size as u64));
                    assert_eq!(got, Some(&(from * size as i64)), "element {element} of {boxed:?}");
                }
            }
        }
    }

    #[test]
    fn neighbours_along_x_follow_soon_or_find_their_lines() {
        for (shape, order, bytes, u_first, keep) in [
            (&[8191, 8193][..], &[1, 0][..], (256, 512), 0, 0), // 64 tiles of y's runs are 2 MB
            (&[1000, 8193], &[1, 0], (256, 512), 0, 1),         // 8 tiles
            (&[24, 15, 61, 65, 45], &[4, 2, 0, 3, 1], (1024, 256), 0, 1), // no tiles of their own along x's
            (&[40_050, 977], &[1, 0], (256, 512), 1, 1),
        ] {
            let simple = simple(shape, order, 4);
            let walk = Walk { dims: &simple.dims, x_size: 4, y_size: 4, x_phase: 0, y_phase: 0 };
            let chain = chain_of_x(&simple.dims);
            let take = takes(&walk, &chain, bytes.0, bytes.1);
            let boxed =
                Boxed::new(&walk, &chain, take, Layout { words: false, skew: false, rows: false }).unwrap();
            assert_eq!((boxed.params.u_first, boxed.params.keep), (u_first, keep), "{shape:?}");
        }
    }

    #[test]
    fn boxes_hold_what_they_write_also_past_2_to_the_31_elements() {
        let (mut skewed, mut by_table, mut u_first) = (0, 0, 0);
        for (shape, order, size) in [
            (&[100, 70][..], &[1, 0][..], 4),
            (&[7, 64, 33], &[0, 2, 1], 2),
            (&[6, 5, 11, 13, 15], &[4, 2, 0, 3, 1], 1),
            (&[300, 3, 5], &[0, 2, 1], 1),
            (&[60_001, 70_003], &[1, 0], 1),
            (&[3, 50_000, 40_000], &[2, 0, 1], 8),
            (&[24, 15, 610, 650, 450], &[4, 2, 0, 3, 1], 4),
            (&[1_000_000_000, 3, 5], &[0, 2, 1], 2),
            (&[531_220, 99], &[1, 0], 4),
            (&[73, 8192], &[1, 0], 1),
        ] {
            let simple = simple(shape, order, size);
            let chain = chain_of_x(&simple.dims);
            let walk = Walk { dims: &simple.dims, x_size: size, y_size: size, x_phase: 0, y_phase: 0 };
            let mut checked = 0;
            for (x_bytes, y_bytes) in [(64, 64), (256, 256), (512, 128), (2048, 2048), (64, 1024)] {
                let take = takes(&walk, &chain, x_bytes, y_bytes);
                for (skew, rows) in [(false, false), (true, false), (false, true), (true, true)] {
                    let layout = Layout { words: false, skew, rows };
                    if let Some(boxed) = Boxed::new(&walk, &chain, take.clone(), layout) {
                        check(&simple.dims, size, &boxed);
                        checked += 1;
                        skewed += usize::from(skew);
                        by_table += usize::from(boxed.params.skew > 0);
                        u_first += boxed.params.u_first;
                    }
                }
            }
            assert!(checked > 0, "{shape:?} has no boxes");
        }
        assert!(skewed > 0 && by_table > 0 && u_first > 0);
    }
}
