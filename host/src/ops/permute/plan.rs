//! Which kernel, with which boxes: pure arithmetic.

use std::fmt;

use kernels_gpu::permute::Boxes;

use super::boxes::{Boxed, Joins, Layout, THREADS, Way};
use super::simplify::{Dim, PACK, Simple, simplify, widen};
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
    /// x's address modulo 16, y's modulo 32.
    pub x_phase: usize,
    pub y_phase: usize,
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

impl Plan {
    pub fn new(request: Request) -> Plan {
        let (simple, staged) = candidates(&request);
        let cast = request.from != request.to;
        // Packs that stay together are fetched and stored as they are, but for so few that memory reads neighbours with them;
        // so is what has no run in x.
        let stays = |dim: &Dim| dim.x == 1 && dim.extent * PACK >= LEAST_KEPT;
        let kept = !cast && simple.size == PACK && simple.dims.last().is_none_or(stays);
        let kernel = match staged.into_iter().next() {
            Some(kernel) if !kept => kernel,
            _ if cast => Choice::Cast,
            _ => Choice::Gather,
        };
        Plan { request, simple, kernel }
    }

    /// The best plan, and others of its kind, by what they are thought to cost.
    pub fn sweep(request: Request, most: usize) -> Vec<Plan> {
        let (simple, staged) = candidates(&request);
        let plan = |kernel| Plan { request: request.clone(), simple: simple.clone(), kernel };
        let first = Plan::new(request.clone());
        let gathers = matches!(first.kernel, Choice::Gather);
        let others = staged.into_iter().skip(usize::from(!gathers)).map(plan);
        std::iter::once(first).chain(others).take(most).collect()
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
    let chain = chain_of_x(&simple.dims);
    // Boxes are of elements that are there once.
    if chain.is_empty() || simple.dims.iter().any(|dim| dim.x <= 0) {
        return (simple, Vec::new());
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
                    words.iter().flat_map(|&words| [false, true].map(|skew| Layout { words, skew }));
                boxes.extend(layouts.filter_map(boxed));
                tried.push(take);
            }
        }
    }
    // Where words of four bytes and more can be turned, a skew costs more than the conflicts that it avoids.
    if simple.size >= 4 && boxes.iter().any(|boxed| boxed.way == Way::Turned) {
        boxes.retain(|boxed| !boxed.skew);
    }
    let tiles = if from == to { Tiled::all(&walk) } else { Vec::new() };
    let tiles = tiles.into_iter().map(|tiled| (tiled.cost(), Choice::Tiles(Box::new(tiled))));
    let boxes = boxes.into_iter().map(|boxed| (cost(&boxed), Choice::Boxes(Box::new(boxed))));
    let mut staged: Vec<(f64, Choice)> = tiles.chain(boxes).collect();
    staged.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let staged = staged.into_iter().map(|(_, choice)| choice).collect();
    (simple, staged)
}

/// What a box costs, in the time that a copy of the same bytes takes. What a block does is counted. The figures that weigh it were
/// fitted to what 2274 boxes took on an H200, to 9 %; those of whole parts were then tuned on an H100, by what boxes took that were
/// chosen for 202 problems, of some 20 for each: 2.1 % more than the fastest on average, where the fit alone had 3.2. An H100's memory is
/// slower for as many instructions, so that these weigh half.
fn cost(boxed: &Boxed) -> f64 {
    let Boxes { run_count, out_count, copies, turns, .. } = boxed.params;
    let bytes = boxed.bytes as f64;
    let (runs, outs, copies, turns) =
        (run_count.size as f64, out_count.size as f64, copies.value() as f64, turns as f64);
    let (run, out, warps, threads) = (boxed.run_bytes as f64, boxed.out_bytes as f64, 8.0, THREADS as f64);
    let words = boxed.way == Way::Turned;

    // Bytes that memory is asked for, of x beyond those that are needed, and of y where runs end: sectors that blocks write
    // in part are worst.
    let whole = boxed.x_aligned && boxed.run_bytes.is_multiple_of(SECTOR);
    let sectors = run / 32.0
        + if whole {
            0.0
        } else if boxed.x_aligned {
            0.5
        } else {
            1.0
        };
    let read = runs * sectors * 32.0 / bytes - 1.0;
    let ends = match boxed.joins {
        Joins::Sectors => 0.11,
        Joins::Packs => 5.0,
        Joins::Beyond => 1.15,
        Joins::Nowhere => 6.5,
    };
    let stores = match boxed.lanes.log {
        0 => 1.07,
        // Not where whole words are turned.
        1 | 2 if words && boxed.per_word == 1 => 0.0,
        1 => 0.19,
        2 => 0.02,
        _ => 0.0,
    };
    let memory = 1.0 + 0.21 * read + 32.0 * (0.21 / run + ends / out) + stores;

    // Instructions of a block's warps: a turn of a warp, the places of its elements, copies, what tables have, ends of runs.
    let loads = boxed.per_pack as f64;
    let (turn, places) = match boxed.way {
        Way::Turned => (22.0 + 1.5 * loads + 6.0 * boxed.per_word as f64, 0.0),
        Way::Packs { levels } => {
            let packing = if loads > 8.0 { 2.75 } else { 2.5 };
            let repeated = if boxed.repeats { 0.3 } else { 1.0 };
            (24.0 + packing * loads, if levels > 1 { (loads + 8.0) * repeated } else { 0.0 })
        }
    };
    let copying = match copies <= threads {
        true => (runs / (threads / copies).floor()).ceil() * warps,
        false => runs * (copies / threads).ceil() * warps,
    };
    let rounds = (outs / threads).ceil() * (outs / 32.0).ceil().min(warps);
    let parts = match boxed.joins {
        Joins::Nowhere => 14.0 + 10.0 * loads,
        Joins::Beyond => 14.0,
        Joins::Sectors | Joins::Packs => 0.0,
    };
    let instructions = turns * (turn + 2.0 * places)
        + copying * if words { 22.0 } else { 30.0 }
        + rounds * 60.0
        + (2.0 * outs / threads).ceil() * warps * parts
        + 184.0 * warps;
    // Cycles of shared memory.
    let (conflicts, entries) = (boxed.lanes.conflicts as f64, boxed.lanes.entries as f64);
    let cycles = turns * (loads * conflicts + 4.0 + places * entries) + runs * (copies / 8.0 + 0.5);
    // A multiprocessor has 224 instructions of threads for each pack of 16 bytes while memory copies it, and 56 / 32 cycles.
    let per_pack = 32.0 * 16.0 / bytes;
    let (issue, shared) = (0.615 * instructions * per_pack / 224.0, 0.355 * cycles * per_pack / 56.0);
    // They go on at the same time, but not quite.
    let together =
        [memory, issue, shared].map(|part: f64| part.powf(3.13)).iter().sum::<f64>().powf(1.0 / 3.13);

    // Blocks of a multiprocessor hide one another's latency; large ones come and go in lumps, few leave multiprocessors idle.
    let resident = (((227 << 10) / (boxed.shared_bytes + 1024)) as f64).min(8.0);
    let waiting = 0.14 * (16_384.0 / (resident * bytes)) + 0.144 * (bytes / 16_384.0).sqrt();
    let spread = 132.0 / boxed.blocks as f64;
    together * boxed.room.sqrt() * (1.0 + waiting) * (1.0 + spread)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kernel {
            Choice::Gather => write!(f, "gather of {} bytes", self.simple.size),
            Choice::Cast => write!(f, "cast of any strides"),
            Choice::Tiles(tiled) => {
                let Tiled { take, out_bytes, .. } = &**tiled;
                write!(f, "tiles {take:?} out {out_bytes} cost {:.3}", tiled.cost())
            }
            Choice::Boxes(boxed) => {
                match boxed.way {
                    Way::Turned => write!(f, "turned")?,
                    Way::Packs { levels } => write!(f, "packs by {levels}")?,
                }
                if boxed.skew {
                    write!(f, " skewed")?;
                }
                let across = if boxed.lanes.apart { " apart" } else { "" };
                write!(
                    f,
                    " {:?} run {} out {} shared {} lanes {}{across} {:?} conflicts {} busy {:.2} cost {:.3}",
                    boxed.take,
                    boxed.run_bytes,
                    boxed.out_bytes,
                    boxed.shared_bytes,
                    1 << boxed.lanes.log,
                    boxed.joins,
                    boxed.lanes.conflicts,
                    boxed.lanes.busy,
                    cost(boxed),
                )
            }
        }
    }
}
