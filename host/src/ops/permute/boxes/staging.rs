//! Where a box's elements are in shared memory.

use kernels_gpu::permute::{Level, MAX_LEVELS, MAX_WITHIN};

use super::super::simplify::PACK;
use super::super::takes::SECTOR;
use super::Layout;
use super::numbers::level;
use super::runs::{AROUND, Runs};

/// A dimension that takes part, with its place in shared memory.
#[derive(Clone, Copy, Debug)]
struct Part {
    dim: usize,
    /// Elements in the box, with those of the next tile.
    count: usize,
    /// Bytes of shared memory from one to the next.
    staged: usize,
}

/// The runs of x one behind the other, in the order of y.
pub struct Staging {
    /// Bytes of a run of x, with those of the next tile, and of the box.
    pub run_bytes: usize,
    pub bytes: usize,
    /// Dimensions of the numbers of runs of x, and their levels.
    pub run_dims: Vec<usize>,
    pub runs: Vec<Level>,
    /// Counts and bytes of shared memory of the elements of a run of y, and of the runs of y, level by level.
    pub within: Vec<(usize, usize)>,
    pub across: Vec<(usize, usize)>,
    /// Bytes between as many of the innermost level of `within` as a pack has elements, where that level is not two.
    pub skew: usize,
    /// Whether the places of some runs are others modulo 32 than in x.
    pub by_halves: bool,
    /// Whether they are where they would be modulo 16.
    pub as_dense: bool,
}

impl Staging {
    /// `None` where a skew has nothing to part, or there are more levels than the kernel has.
    pub fn new(of: &Runs, Layout { words, skew, rows, sectors }: Layout) -> Option<Staging> {
        let (walk, innermost, per_pack) = (of.walk, of.innermost(), of.per_pack);
        let crossing: Vec<usize> = of.y.iter().copied().filter(|dim| !of.x.contains(dim)).collect();
        // A skew needs what it parts: more runs than a pack has elements, which are neighbours in y. Levels part them, of which all but the
        // last are whole; or the table, where no level follows.
        let by_levels = of.in_packs();
        let by_table = rows && crossing.len() == 1;
        if skew > 0 && !(of.count(innermost) > per_pack && (by_levels || by_table)) {
            return None;
        }
        let skewed = |dim: usize| skew > 0 && dim == innermost;
        let unit = if sectors { SECTOR } else { PACK };
        let (mut by_halves, mut as_dense) = (false, true);
        let run_bytes = of.x.iter().map(|&dim| of.count(dim)).product::<usize>() * walk.x_size;
        let mut span = run_bytes;
        let part = |dim: usize, staged: usize| Part { dim, count: of.count(dim), staged };
        let mut parts: Vec<Part> = of.x.iter().map(|&dim| part(dim, walk.x_step(dim))).collect();
        let mut runs = Vec::new();
        for &dim in &crossing {
            // Neither run's first or last 16 bytes are another's.
            let least = if of.x_aligned { span } else { span + AROUND };
            let modulo = |unit: usize| least + (walk.x_step(dim) % unit + unit - least % unit) % unit;
            let staged = modulo(unit);
            as_dense &= staged == modulo(PACK);
            by_halves |= !staged.abs_diff(walk.x_step(dim)).is_multiple_of(SECTOR);
            let part = part(dim, staged);
            span += (part.count - 1) * staged;
            let step = walk.x_step(dim);
            if skewed(dim) {
                span += (part.count - 1) / per_pack * skew;
                by_halves |= !skew.is_multiple_of(SECTOR);
                runs.push(level(per_pack, staged, step as i64)?);
                let (count, staged) = (part.count.div_ceil(per_pack), per_pack * staged + skew);
                runs.push(level(count, staged, (per_pack * step) as i64)?);
            } else {
                runs.push(level(part.count, staged, step as i64)?);
            }
            parts.push(part);
        }
        let staged = |dim: usize| parts.iter().find(|part| part.dim == dim).map_or(0, |part| part.staged);

        // Neighbours that go on in shared memory are one.
        let mut within: Vec<(usize, usize)> = Vec::new();
        for &dim in &of.y {
            let (mut count, mut staged) = (of.take[dim], staged(dim));
            if skewed(dim) && by_levels {
                within.push((per_pack, staged));
                (count, staged) = (count.div_ceil(per_pack), per_pack * staged + skew);
            }
            match within.last_mut() {
                Some((inner, step)) if *inner * *step == staged => *inner *= count,
                _ => within.push((count, staged)),
            }
        }
        if rows && (words || within.len() == 1)
            || runs.len() > MAX_LEVELS
            || of.outs.len() > MAX_LEVELS
            || within.len() > MAX_WITHIN
        {
            return None;
        }
        let per = |i: usize| if i == 0 { of.per_word } else { 1 };
        let across =
            of.outs.iter().enumerate().map(|(i, &dim)| (of.take[dim] / per(i), staged(dim) * per(i)));
        Some(Staging {
            run_bytes,
            bytes: (span + SECTOR + PACK).next_multiple_of(PACK),
            run_dims: crossing,
            runs,
            within,
            across: across.collect(),
            skew: if by_levels { 0 } else { skew },
            by_halves,
            as_dense,
        })
    }
}
