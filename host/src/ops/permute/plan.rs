//! Which kernel, with which boxes: pure arithmetic.

use std::fmt;

use super::boxes::{Boxed, Layout, Way};
use super::cost::{cost, of_rows, with_best_limit};
use super::simplify::{Dim, PACK, Simple, simplify, widen};
use super::small::{goes_directly, might_go_directly};
use super::takes::{SECTOR, Walk, chain_of_x, takes};
use super::tiles::Tiled;
use crate::dtype::DType;

/// What is asked of the planner: everything that the choice depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// y's shape, which is not empty, and x's strides along it, in elements.
    pub shape: Vec<usize>,
    pub strides: Vec<isize>,
    /// The elements' types in x and in y.
    pub from: DType,
    pub to: DType,
    /// The addresses modulo 32.
    pub x_phase: usize,
    pub y_phase: usize,
}

#[cfg(test)]
impl Request {
    /// `shape` by `order`, with x contiguous and at the beginning of a sector.
    pub fn of_order(shape: &[usize], order: &[usize], dtype: DType) -> Request {
        let strides = crate::shape::contiguous_strides(shape);
        let (shape, strides) = order.iter().map(|&dim| (shape[dim], strides[dim])).unzip();
        Request { shape, strides, from: dtype, to: dtype, x_phase: 0, y_phase: 0 }
    }
}

/// How a permutation is done.
#[derive(Clone, Debug)]
pub struct Plan {
    pub request: Request,
    /// What is left of it.
    pub simple: Simple,
    pub kernel: Choice,
}

/// A kernel with what it needs.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Each thread fetches what it stores, elements of the simplified problem.
    Gather,
    /// Rows of the last dimension as they are, at any alignment.
    Rows,
    /// Tiles of two dimensions through shared memory.
    Tiles(Box<Tiled>),
    /// Boxes of any through shared memory.
    Boxes(Box<Boxed>),
    /// Rounded to another type by the operation for that, which takes any strides.
    Cast,
}

/// Bytes of the runs that boxes are tried with.
const RUNS: [usize; 11] = [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768];

/// Bytes that memory reads at once: shorter runs that stay whole are read with others, in boxes. Rows of 48 bytes of
/// 24×25841×6×12 by (2,0,1,3) take 0.62 of a copy's rate as they are, and 0.95 as a part of boxes.
const LEAST_KEPT: usize = 64;

/// Bytes of shared memory to lie between as many runs as a pack has elements: those of a pack part the most banks, those of a sector leave
/// sectors whole.
const SKEWS: [usize; 3] = [0, PACK, SECTOR];

/// Cycles of a load from the table of places along a run from which on a table with rows is tried.
const LEAST_ENTRIES: usize = 4;

impl Plan {
    pub fn new(request: Request) -> Plan {
        Plan::sweep(request, 1).swap_remove(0)
    }

    /// The best plan, and others, by what they are thought to cost; `most` is at least 1.
    pub fn sweep(request: Request, most: usize) -> Vec<Plan> {
        let (simple, mut choices) = candidates(&request);
        let cast = request.from != request.to;
        // Packs that stay together are fetched and stored as they are, but for so few that memory reads neighbours with them;
        // so is what has no run in x.
        let stays = |dim: &Dim| dim.x == 1 && dim.extent * PACK >= LEAST_KEPT;
        let kept = simple.size == PACK && simple.dims.last().is_none_or(stays);
        match choices.first() {
            None if cast => choices.push(Choice::Cast),
            None => choices.push(Choice::Gather),
            Some(_) if cast => {}
            Some(staged) if kept || goes_directly(&simple, request.x_phase, staged) => {
                choices.insert(0, Choice::Gather);
            }
            Some(_) if might_go_directly(&simple) => choices.insert(1, Choice::Gather),
            Some(_) => {}
        }
        let plan = |kernel| Plan { request: request.clone(), simple: simple.clone(), kernel };
        choices.into_iter().take(most).map(plan).collect()
    }
}

/// The simplified problem, and all tiles and boxes that it could be done with, by what they are thought to cost.
fn candidates(request: &Request) -> (Simple, Vec<Choice>) {
    let Request { shape, strides, from, to, x_phase, y_phase } = request;
    let simple = simplify(shape, strides, from.size());
    let alignment = |phase: usize| if phase == 0 { PACK } else { 1 << phase.trailing_zeros() };
    let simple = match from == to {
        true => widen(simple, alignment(*x_phase).min(alignment(*y_phase))),
        false => simple,
    };
    let rows = if from == to { row_bytes(&simple) } else { None };
    let rows = rows.map(|bytes| (of_rows(bytes, apart(&simple)), Choice::Rows));
    let chain = chain_of_x(&simple.dims);
    // Boxes are of elements that are there once.
    if chain.is_empty() || simple.dims.iter().any(|dim| dim.x <= 0) {
        return (simple, rows.map(|(_, rows)| rows).into_iter().collect());
    }
    let y_size = if from == to { simple.size } else { to.size() };
    let walk = Walk { dims: &simple.dims, x_size: simple.size, y_size, x_phase: *x_phase, y_phase: *y_phase };
    let mut tried: Vec<Vec<usize>> = Vec::new();
    let mut boxes = Vec::new();
    for x_bytes in RUNS {
        for y_bytes in RUNS {
            let take = takes(&walk, &chain, x_bytes, y_bytes);
            if !tried.contains(&take) {
                let boxed = |layout| Boxed::new(&walk, &chain, take.clone(), layout);
                // Words are turned as they are: a cast goes by elements.
                let words: &[bool] = if from == to { &[false, true] } else { &[false] };
                let layouts =
                    words.iter().flat_map(|&words| SKEWS.map(|skew| Layout { words, skew, ..Layout::PLAIN }));
                for layout in layouts {
                    // Rows cost more than few conflicts, and casts have no kernels for them.
                    let plain = boxed(layout);
                    let conflicts = plain.as_ref().is_none_or(|plain| plain.lanes.entries >= LEAST_ENTRIES);
                    if from == to && conflicts {
                        boxes.extend(boxed(Layout { rows: true, ..layout }));
                    }
                    boxes.extend(Boxed::denser(&walk, &chain, &take, layout, plain.as_ref()));
                    boxes.extend(plain);
                }
                tried.push(take);
            }
        }
    }
    // Where elements of two bytes and more can be turned, a skew costs more than the conflicts that it avoids: 16×16×64×64×64 by (4,2,0,3,1) has
    // 0.958 in f16 without, and 0.948 with it.
    if simple.size >= 2 && boxes.iter().any(|boxed| boxed.way == Way::Turned) {
        boxes.retain(|boxed| !boxed.skew);
    }
    let tiles = if from == to { Tiled::all(&walk) } else { Vec::new() };
    let tiles = tiles.into_iter().map(|tiled| (tiled.cost(), Choice::Tiles(Box::new(tiled))));
    let boxes =
        boxes.into_iter().map(with_best_limit).map(|(cost, boxed)| (cost, Choice::Boxes(Box::new(boxed))));
    let mut staged: Vec<(f64, Choice)> = tiles.chain(boxes).chain(rows).collect();
    staged.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut staged: Vec<Choice> = staged.into_iter().map(|(_, choice)| choice).collect();
    if let Some(Choice::Boxes(first)) = staged.first() {
        let filled = || {
            let filled = first.filled(&walk, &chain)?;
            Some((usize::from(!gains_filled(&walk, first)), filled))
        };
        let unshared = first.unshared(&walk, &chain).map(|boxed| (0, boxed));
        if let Some((place, boxed)) = unshared.or_else(filled) {
            staged.insert(place, Choice::Boxes(Box::new(boxed)));
        }
    }
    (simple, staged)
}

/// Whether boxes are faster where they are a little smaller and leave no lanes idle, of which the model knows nothing: in f32 by 0.2 to 1.3 % of nine of
/// ten problems that had boxes of about 64×64, four on a multiprocessor; of larger boxes as many gain as lose. In f16 and i8 some gain 1 to
/// 2 % and others lose as much: autotuning finds out.
fn gains_filled(walk: &Walk, boxed: &Boxed) -> bool {
    (walk.x_size, walk.y_size) == (4, 4) && boxed.limit.is_some_and(|limit| limit >= 4)
}

/// Bytes of the rows that stay whole, where the kernel can have them: it makes a pack of at most two, and has no use for what is aligned.
pub fn row_bytes(simple: &Simple) -> Option<usize> {
    let row = simple.dims.last().filter(|row| row.x == 1 && simple.size < PACK)?;
    Some(row.extent * simple.size).filter(|&bytes| bytes >= PACK)
}

/// Bytes of y between rows that are neighbours in x, if any are.
fn apart(simple: &Simple) -> usize {
    let row = simple.dims.last().map_or(0, |row| row.extent as isize);
    simple.dims.iter().find(|dim| dim.x == row).map_or(0, |dim| dim.y as usize * simple.size)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kernel {
            Choice::Gather => write!(f, "gather of {} bytes", self.simple.size),
            Choice::Rows => write!(f, "rows of {} bytes", row_bytes(&self.simple).unwrap_or(0)),
            Choice::Cast => write!(f, "cast of any strides"),
            Choice::Tiles(tiled) => {
                let Tiled { take, out_bytes, .. } = &**tiled;
                write!(f, "tiles {take:?} out {out_bytes} cost {:.3}", tiled.cost())
            }
            Choice::Boxes(boxed) => {
                match boxed.way {
                    Way::Turned => write!(f, "turned")?,
                    Way::Packs { levels, rows } => {
                        write!(f, "packs by {levels}{}", if rows { " in rows" } else { "" })?;
                    }
                }
                let skewed = if boxed.skew { " skewed" } else { "" };
                let filled = if boxed.is_filled { " filled" } else { "" };
                let across = if boxed.lanes.apart { " apart" } else { "" };
                let limit = boxed.limit.map(|limit| format!(" at most {limit}")).unwrap_or_default();
                write!(
                    f,
                    "{skewed}{filled} {:?} run {} out {} shared {}{limit} lanes {}{across} {:?} conflicts {} busy {:.2} cost {:.3}",
                    boxed.take,
                    boxed.run_bytes,
                    boxed.out_bytes,
                    boxed.shared_bytes,
                    1 << boxed.lanes.log,
                    boxed.joins,
                    boxed.lanes.conflicts,
                    boxed.lanes.busy,
                    cost(boxed, boxed.limit),
                )
            }
        }
    }
}
