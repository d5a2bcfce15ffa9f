//! Which kernel, with which boxes: pure arithmetic.

use std::fmt;

use kernels_gpu::permute::Boxes;

use super::boxes::{Boxed, Joins, Way};
use super::simplify::{PACK, Simple, simplify, widen};
use super::takes::{Walk, chain_of_x, takes};
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
    /// Boxes through shared memory.
    Boxes(Box<Boxed>),
    /// Rounded to another type by the operation for that, which takes any strides.
    Cast,
}

/// Bytes of the runs that boxes are tried with.
const RUNS: [usize; 11] = [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768];

impl Plan {
    pub fn new(request: Request) -> Plan {
        let (simple, mut boxes) = candidates(&request);
        let cast = request.from != request.to;
        // Packs that stay together are fetched and stored as they are; so is what has no run in x.
        let kept = !cast && simple.size == PACK && simple.dims.last().is_none_or(|dim| dim.x == 1);
        boxes.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        let kernel = match boxes.into_iter().next() {
            Some(boxed) if !kept => Choice::Boxes(Box::new(boxed)),
            _ if cast => Choice::Cast,
            _ => Choice::Gather,
        };
        Plan { request, simple, kernel }
    }

    /// The best plan, and others of its kind, by what they are thought to cost.
    pub fn sweep(request: Request, most: usize) -> Vec<Plan> {
        let (simple, mut boxes) = candidates(&request);
        boxes.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        let plan = |kernel| Plan { request: request.clone(), simple: simple.clone(), kernel };
        let first = Plan::new(request.clone());
        let gathers = matches!(first.kernel, Choice::Gather);
        let others =
            boxes.into_iter().skip(usize::from(!gathers)).map(|boxed| plan(Choice::Boxes(Box::new(boxed))));
        std::iter::once(first).chain(others).take(most).collect()
    }
}

/// The simplified problem, and every box that it could be done with.
fn candidates(request: &Request) -> (Simple, Vec<Boxed>) {
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
                let boxed = |words| Boxed::new(&walk, &chain, take.clone(), words);
                // Words are turned as they are: a cast goes by elements.
                let words: &[bool] = if from == to { &[false, true] } else { &[false] };
                boxes.extend(words.iter().copied().filter_map(boxed));
                tried.push(take);
            }
        }
    }
    (simple, boxes)
}

/// What a box costs, in the time that a copy of the same bytes takes. The figures were fitted to what boxes of many
/// sizes took on an H200.
fn cost(boxed: &Boxed) -> f64 {
    let Boxes { run_count, .. } = boxed.params;
    let elements = boxed.run_bytes as f64 * run_count.size as f64;
    let (run, out) = (boxed.run_bytes as f64, boxed.out_bytes as f64);
    // Bytes that the end of a run of y costs memory: sectors that two blocks write in part are worst.
    let ends = match boxed.joins {
        Joins::Sectors => 8.0,
        Joins::Packs => 40.0,
        Joins::Beyond => 60.0,
        Joins::Nowhere => 130.0,
    };
    let memory = 1.0 + 0.9 * (boxed.fetched - 1.0) + 0.5 * (12.0 / run + ends / out);
    // Instructions of a thread for a pack of y; 230 of them take as long as memory.
    let instructions = match boxed.way {
        Way::Turned => 10.0 + boxed.per_pack as f64,
        Way::Packs { levels } => boxed.per_pack as f64 * (9.0 + 6.0 * (levels - 1) as f64),
    };
    let issue = (instructions / boxed.busy + 10.0 * (boxed.fetched - 1.0)) / 230.0;
    // Bank conflicts hide behind all that, but for a part.
    let shared = boxed.cycles / boxed.busy / 600.0;
    // Blocks of a multiprocessor hide one another's latency; too small ones do not pay for their beginning.
    let resident = (((227 << 10) / (boxed.shared_bytes + 1024)) as f64).min(8.0);
    let waiting = 3.0 / (resident * resident) + (16_000.0 / (resident * elements)).powi(2);
    let begin = if boxed.way == Way::Turned { 300.0 } else { 1100.0 } / elements;
    // A launch of few blocks leaves multiprocessors idle.
    let spread = 132.0 / boxed.blocks as f64;
    (memory + issue + shared) * boxed.room.sqrt() * (1.0 + waiting) * (1.0 + begin) * (1.0 + spread)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kernel {
            Choice::Gather => write!(f, "gather of {} bytes", self.simple.size),
            Choice::Cast => write!(f, "cast of any strides"),
            Choice::Boxes(boxed) => {
                match boxed.way {
                    Way::Turned => write!(f, "turned")?,
                    Way::Packs { levels } => write!(f, "packs by {levels}")?,
                }
                write!(
                    f,
                    " {:?} run {} out {} shared {} lanes {} {:?} fetched {:.2} cycles {:.0} busy {:.2} cost {:.3}",
                    boxed.take,
                    boxed.run_bytes,
                    boxed.out_bytes,
                    boxed.shared_bytes,
                    1 << boxed.params.log_lanes,
                    boxed.joins,
                    boxed.fetched,
                    boxed.cycles,
                    boxed.busy,
                    cost(boxed),
                )
            }
        }
    }
}
