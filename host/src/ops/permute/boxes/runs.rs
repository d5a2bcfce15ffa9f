//! What a box's runs are of, and where they begin.

use super::super::simplify::PACK;
use super::super::takes::{SECTOR, Walk, gcd};
use super::{Layout, THREADS};

/// Bytes in front of a run that begins anywhere and behind it, in its first and its last pack, at most.
pub const AROUND: usize = 2 * (PACK - 1);

/// The dimensions of a box's runs of x and of y, and where those begin. The sizes of a box are `take`.
pub struct Runs<'a> {
    pub walk: &'a Walk<'a>,
    pub take: &'a [usize],
    /// Dimensions of a run of x and of y, the innermost first.
    pub x: Vec<usize>,
    pub y: Vec<usize>,
    /// Which of them are cut into tiles: the last of y's run, and of x's.
    pub w: Option<usize>,
    pub u: Option<usize>,
    /// Dimensions of x's runs that are not of y's: those of the numbers of runs of y.
    pub outs: Vec<usize>,
    /// What all runs of y begin at multiples of, up to a sector, and what they are cut at multiples of.
    pub begins: usize,
    pub grain: usize,
    /// Whether runs of x begin at multiples of 16 bytes.
    pub x_aligned: bool,
    /// Elements of a pack of y, and of a word that is turned.
    pub per_pack: usize,
    pub per_word: usize,
}

impl<'a> Runs<'a> {
    /// `None` where something would be taken that no run has, or words that cannot be turned.
    pub fn new(
        walk: &'a Walk<'a>,
        chain: &[usize],
        take: &'a [usize],
        Layout { words, skew, .. }: Layout,
    ) -> Option<Runs<'a>> {
        let dims = walk.dims;
        let (y, w) = run_of(walk, take, (0..dims.len()).rev());
        let innermost = *y.first()?;
        // What is to lie apart ends a run of x.
        let together = |&dim: &usize| !(skew > 0 && dim == innermost);
        let (x, u) = run_of(walk, take, chain.iter().copied().take_while(together));
        let stray = |dim: usize| take[dim] > 1 && !x.contains(&dim) && !y.contains(&dim);
        if x.is_empty() || (0..dims.len()).any(stray) {
            return None;
        }
        let outs = x.iter().copied().filter(|dim| !y.contains(dim)).collect();
        let begins = begins(walk.y_phase, take, walk, &y, |dim| walk.y_step(dim));
        let begins = if begins == 0 { SECTOR } else { gcd(begins, SECTOR) };
        // Words that are turned go as whole packs. Others end at sectors, so that no two blocks write halves of one: 4092×6×2652 by (2,1,0) in
        // f32 has 0.91 so, and 0.74 at the best of 24 boxes that end at packs.
        let grain = if words && begins >= PACK { begins } else { SECTOR };
        let x_begins = self::begins(walk.x_phase, take, walk, &x, |dim| walk.x_step(dim));
        let per_word = if words { walk.word() / walk.x_size } else { 1 };
        let (x_aligned, per_pack) = (x_begins.is_multiple_of(PACK), PACK / walk.y_size);
        let runs = Runs { walk, take, x, y, w, u, outs, begins, grain, x_aligned, per_pack, per_word };
        (!words || runs.turn(chain)).then_some(runs)
    }

    /// Words of x can be turned where they cross runs of y, and need not be shifted where everything is whole.
    fn turn(&self, chain: &[usize]) -> bool {
        let Runs { walk, take, .. } = *self;
        let whole_runs = |run: &[usize], size: usize| {
            let bytes =
                |of: &dyn Fn(usize) -> usize| run.iter().map(|&dim| of(dim)).product::<usize>() * size;
            bytes(&|dim| take[dim]).is_multiple_of(PACK)
                && bytes(&|dim| walk.dims[dim].extent).is_multiple_of(PACK)
        };
        walk.x_size == walk.y_size
            && self.outs.first() == chain.first()
            && !self.x.contains(&self.innermost())
            && self.x_aligned
            && self.begins >= PACK
            && self.in_packs()
            && whole_runs(&self.x, walk.x_size)
            && whole_runs(&self.y, walk.y_size)
            && take[chain[0]].is_multiple_of(self.per_word)
            && walk.dims[chain[0]].extent.is_multiple_of(self.per_word)
    }

    /// The innermost dimension of y.
    pub fn innermost(&self) -> usize {
        self.y[0]
    }

    /// Whether a run of y has whole packs of its innermost dimension, but for the last.
    pub fn in_packs(&self) -> bool {
        self.y.len() == 1 || self.take[self.innermost()].is_multiple_of(self.per_pack)
    }

    /// Whether one dimension is cut into tiles for both.
    pub fn one_tile(&self) -> bool {
        self.u.is_some() && self.u == self.w
    }

    /// Copies of 16 bytes that a run of x of so many bytes takes, at most.
    pub fn copies(&self, run_bytes: usize) -> usize {
        if self.x_aligned { run_bytes.div_ceil(PACK) } else { (run_bytes + AROUND) / PACK }
    }

    /// Runs that a block's threads copy at once, with so many copies each.
    pub fn at_once(copies: usize) -> usize {
        (THREADS / copies).max(1)
    }

    /// Elements of a dimension in the box, with those of the next tile, which a box needs so that no pack has two blocks.
    pub fn count(&self, dim: usize) -> usize {
        let Walk { dims, y_size, .. } = *self.walk;
        let beyond = match self.w {
            Some(w) if w == dim && self.begins < self.grain => {
                ((self.grain - self.begins.max(y_size)) / y_size).div_ceil(dims[w].y as usize)
            }
            _ => 0,
        };
        (self.take[dim] + beyond).min(dims[dim].extent)
    }
}

/// The dimensions of a run, which ends with the first that is not taken whole; and that one.
fn run_of(walk: &Walk, take: &[usize], order: impl Iterator<Item = usize>) -> (Vec<usize>, Option<usize>) {
    let mut run = Vec::new();
    for dim in order {
        if take[dim] == 1 {
            break;
        }
        run.push(dim);
        if take[dim] < walk.dims[dim].extent {
            return (run, Some(dim));
        }
    }
    (run, None)
}

/// What all runs begin at multiples of.
fn begins(phase: usize, take: &[usize], walk: &Walk, run: &[usize], step: impl Fn(usize) -> usize) -> usize {
    (0..take.len())
        .filter(|dim| take[*dim] < walk.dims[*dim].extent || !run.contains(dim))
        .map(|dim| step(dim) * if run.contains(&dim) { take[dim] } else { 1 })
        .fold(phase, gcd)
}
