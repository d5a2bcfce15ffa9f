//! What boxes are thought to cost.
//!
//! What a block does is counted; what the counts weigh was fitted to what some 12200 boxes of 645 problems took on an H100 (three
//! element sizes, two to eight boxes on a multiprocessor), and then tuned so that those chosen are near the fastest that was measured: f32
//! 1.0 %, f16 1.5 % and i8 2.9 % from it on average.

use super::boxes::{Boxed, Joins, THREADS, Way};
use super::resident::{LIMITS, fitting};
use super::simplify::PACK;
use super::takes::SECTOR;

/// Boxes with the number of blocks on a multiprocessor that costs least, and that cost.
pub fn with_best_limit(boxed: Boxed) -> (f64, Boxed) {
    let fit = fitting(boxed.shared_bytes);
    let limits = LIMITS.into_iter().filter(|&limit| limit < fit).map(Some);
    let costs = std::iter::once(None).chain(limits).map(|limit| (cost(&boxed, limit), limit));
    let (cost, limit) = costs.min_by(|(a, _), (b, _)| a.total_cmp(b)).expect("there is one without a limit");
    (cost, Boxed { limit, ..boxed })
}

/// What boxes cost in the time that a copy of the same bytes takes, with so many blocks on a multiprocessor at most.
pub fn cost(boxed: &Boxed, limit: Option<usize>) -> f64 {
    match (limit, fitting(boxed.shared_bytes)) {
        (Some(limit), _) => cost_of(boxed, limit),
        // Of single bytes the fourth costs nothing where no more fit: of 200 random problems on an H100 that changes, 23 take 0.6 to 6.5 % less and
        // one 4.4 % more. Fourths of boxes that are smaller, and of larger elements, cost something.
        (None, 4) if boxed.per_pack == PACK => cost_of(boxed, 4).min(cost_of(boxed, 3)),
        (None, fit) => cost_of(boxed, fit),
    }
}

/// What they cost with so many blocks on a multiprocessor.
fn cost_of(boxed: &Boxed, resident: usize) -> f64 {
    let resident = resident as f64;
    // What a multiprocessor has under way, in units of 128 KiB: eight boxes of 16.
    let under_way = resident * boxed.bytes as f64 / 131_072.0;
    let memory = memory(boxed, under_way);
    // A multiprocessor has 224 instructions of threads for each pack of 16 bytes while memory copies it, and 56 / 32 cycles.
    let per_pack = 32.0 * 16.0 / boxed.bytes as f64;
    // Fewer blocks hide less of one another's latency.
    let issue = 0.89 * instructions(boxed) * per_pack / 224.0 * (1.0 + 0.28 * (8.0 / resident - 1.0));
    let shared = 0.45 * cycles(boxed) * per_pack / 56.0;
    // What it takes to keep memory busy: 30 KiB of each multiprocessor.
    let latency = 0.234 / under_way;
    // They go on at the same time, but not quite.
    const TOGETHER: f64 = 6.3;
    let parts = [memory, issue, shared, latency].map(|part| part.powf(TOGETHER));
    // Few blocks leave multiprocessors idle.
    let spread = 132.0 / boxed.blocks as f64;
    parts.iter().sum::<f64>().powf(1.0 / TOGETHER) * boxed.room.sqrt() * (1.0 + spread)
}

/// What rows that stay whole cost, of so many bytes each, where those next to one another in x are `apart` bytes of y apart: the sectors that
/// two have in common are read twice, unless L2 still has them. Of 67 problems with rows of 19 bytes to 600 KB on an H100 (three element sizes)
/// what this chooses takes 0.2 % longer than the faster of rows and boxes; of 20 since L2 keeps what boxes are copied from, none.
pub fn of_rows(bytes: usize, apart: usize) -> f64 {
    let far = apart as f64 / (apart as f64 + 1e6);
    1.0 + (0.05 + 1.2 * far) * SECTOR as f64 / bytes as f64
}

/// Time of memory: bytes that it is asked for beyond those that are needed, of x, and of y where runs end; sectors that blocks write in
/// part are worst. Lines that blocks share are there the longer the more is under way.
fn memory(boxed: &Boxed, under_way: f64) -> f64 {
    let under_way = under_way.powi(2);
    let (run, out) = (boxed.run_bytes as f64, boxed.out_bytes as f64);
    let cut = match boxed.x_aligned {
        _ if boxed.has_runs_of_sectors() => 0.0,
        true => 0.5,
        false => 1.0,
    };
    let read = boxed.params.run_count.size as f64 * (run / 32.0 + cut) * 32.0 / boxed.bytes as f64 - 1.0;
    let ends = match boxed.joins {
        Joins::Sectors => 0.072,
        // 4092×6×2652 by (2,1,0) in f32 took 1.40 turned, and 1.10 by packs that end at sectors.
        Joins::Packs if boxed.way == Way::Turned => 2.4,
        Joins::Packs => 0.8,
        Joins::Beyond => 0.16,
        Joins::Nowhere => 1.4,
    };
    let stores = match boxed.lanes.log {
        0 => 1.1,
        // Not where whole words are turned.
        1 | 2 if boxed.way == Way::Turned && boxed.per_word == 1 => 0.0,
        1 => 0.036,
        2 => 0.0034,
        _ => 0.0,
    };
    // Half of a skewed box's sectors.
    let halves = match boxed.by_halves {
        true if boxed.skew => 0.01,
        true => 0.02,
        false => 0.0,
    };
    let of_x = (0.055 * read + 32.0 * 0.12 / run) * (1.0 + 0.2 * under_way) + halves;
    let of_y = 32.0 * ends / out * (1.0 + 1.5 * under_way);
    1.0 + of_x + of_y + stores + 0.011 * under_way + 0.024 * (64.0 / run - 1.0).max(0.0)
}

/// Instructions of a block's warps: a turn of a warp, the places of its elements, copies, what tables have, ends of runs.
fn instructions(boxed: &Boxed) -> f64 {
    let (warps, threads) = ((THREADS / 32) as f64, THREADS as f64);
    let (runs, outs) = (boxed.params.run_count.size as f64, boxed.params.out_count.size as f64);
    let copies = boxed.params.copies.value() as f64;
    let loads = boxed.per_pack as f64;
    let turn = match boxed.way {
        Way::Turned => 47.0 + 1.4 * loads + 5.8 * boxed.per_word as f64,
        Way::Packs { .. } => 30.0 + if loads > 8.0 { 1.1 } else { 0.68 } * loads,
    };
    let copying = match copies <= threads {
        true => (runs / (threads / copies).floor()).ceil() * warps,
        false => runs * (copies / threads).ceil() * warps,
    };
    let rounds = (outs / threads).ceil() * (outs / 32.0).ceil().min(warps);
    // A table of places along a run that has rows is of a long one; its levels are divided one after the other.
    let entries = match boxed.way {
        Way::Packs { rows: true, .. } => {
            let each = 12.0 + 12.0 * boxed.params.within_levels as f64;
            (boxed.params.along as f64 / threads).ceil() * warps * each
        }
        _ => 0.0,
    };
    let parts = match boxed.joins {
        Joins::Nowhere => 5.7 + 0.95 * loads,
        Joins::Beyond => 14.0,
        Joins::Sectors | Joins::Packs => 0.0,
    };
    boxed.params.turns as f64 * (turn + 2.0 * places(boxed))
        + copying * if boxed.way == Way::Turned { 8.8 } else { 22.0 }
        + rounds * 50.0
        + entries
        + (2.0 * outs / threads).ceil() * warps * parts
        + 190.0 * warps
}

/// Cycles of shared memory.
fn cycles(boxed: &Boxed) -> f64 {
    let (conflicts, entries) = (boxed.lanes.conflicts as f64, boxed.lanes.entries as f64);
    let (runs, copies) = (boxed.params.run_count.size as f64, boxed.params.copies.value() as f64);
    let turn = boxed.per_pack as f64 * conflicts + 4.0 + places(boxed) * entries;
    boxed.params.turns as f64 * turn + runs * (copies / 8.0 + 0.5)
}

/// Instructions of a turn that find where its elements are.
fn places(boxed: &Boxed) -> f64 {
    match boxed.way {
        Way::Packs { levels, .. } if levels > 1 => {
            (boxed.per_pack as f64 + 6.8) * if boxed.repeats { 0.35 } else { 1.0 }
        }
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::ops::permute::plan::{Choice, Plan, Request};

    fn boxes(shape: &[usize], strides: &[isize], dtype: DType) -> Vec<Boxed> {
        let (shape, strides) = (shape.to_vec(), strides.to_vec());
        let request = Request { shape, strides, from: dtype, to: dtype, x_phase: 0, y_phase: 0 };
        let boxed = |plan: Plan| match plan.kernel {
            // Filled ones have the limit of others.
            Choice::Boxes(boxed) if !boxed.is_filled => Some(*boxed),
            _ => None,
        };
        Plan::sweep(request, usize::MAX).into_iter().filter_map(boxed).collect()
    }

    #[test]
    fn a_limit_is_below_what_fits_and_costs_least() {
        let (mut limited, mut free) = (0, 0);
        for (shape, strides) in
            [([8192, 8192], [1, 8192]), ([8193, 8191], [1, 8193]), ([255, 71712], [1, 255])]
        {
            for dtype in [DType::F32, DType::F16, DType::I8] {
                for boxed in boxes(&shape, &strides, dtype) {
                    let fit = fitting(boxed.shared_bytes);
                    let least = cost(&boxed, boxed.limit);
                    assert!(boxed.limit.is_none_or(|limit| limit < fit), "{boxed:?}");
                    let others = LIMITS.into_iter().filter(|&limit| limit < fit).map(Some).chain([None]);
                    assert!(others.into_iter().all(|limit| least <= cost(&boxed, limit)), "{boxed:?}");
                    *if boxed.limit.is_some() { &mut limited } else { &mut free } += 1;
                }
            }
        }
        assert!(limited > 10 && free > 10, "{limited} {free}");
    }

    #[test]
    fn the_fourth_box_of_bytes_is_not_held_off() {
        let of_four = |dtype| {
            let boxes = boxes(&[8193, 8191], &[1, 8193], dtype).into_iter();
            let limits = boxes.filter(|boxed| fitting(boxed.shared_bytes) == 4).map(|boxed| boxed.limit);
            limits.collect::<Vec<_>>()
        };
        let bytes = of_four(DType::I8);
        assert!(bytes.contains(&None) && !bytes.contains(&Some(3)), "{bytes:?}");
        assert!(of_four(DType::F16).contains(&Some(3)));
    }

    #[test]
    fn more_bytes_than_memory_needs_under_way_cost_where_runs_end_inside_sectors() {
        // 64×64 boxes of 16 KiB: of eight, lines in part are there too long, two do not keep memory busy.
        let odd = boxes(&[8193, 8191], &[1, 8193], DType::F32);
        let boxed = odd.iter().find(|boxed| (14_000..18_000).contains(&boxed.bytes)).unwrap();
        let [all, three, two] = [None, Some(3), Some(2)].map(|limit| cost(boxed, limit));
        assert!(three < all && three < two, "{all} {three} {two}");
    }
}
