//! How the rows of a warp are written where they begin and end inside packs.
//!
//! Such a pack belongs to two rows, which follow one another in y and, but for the first and the last, are the same warp's: the
//! lane that has the pack at the end of one takes the other row's columns of it, and writes the whole. Memory then gets few
//! parts of packs, each of which would cost it as much as a whole.

use super::Params;
use super::ending::{Part, Sink};
use super::held::{Held, Normaliser, column};
use super::locate::Row;
use cuda_std::prelude::*;

/// Whether the rows of this warp are written so: where packs are shared, by no more than two rows, of which none is NaN.
#[inline(always)]
pub(super) fn joins<T: Float>(p: &Params, is_nan: bool) -> bool {
    p.ragged != 0 && p.cols >= T::PER_PACK as u32 && !warp::warp_vote_any(u32::MAX, is_nan)
}

/// Writes rows of which each has `LANES` lanes. Their columns that are not kept, and those of other rows, have 0 for a
/// result.
///
/// # Safety
/// All lanes of the warp call; `row`, of this number, came from `locate`; rows follow one another in y, and the sink takes
/// them. The operation does nothing else with a row.
#[inline(always)]
pub(super) unsafe fn store_joined<
    T: Float,
    H: Held<T>,
    S: Sink<T>,
    const LANES: usize,
    const PACKS: usize,
>(
    sink: S,
    p: &Params,
    row: &Row,
    number: u32,
    held: [H; PACKS],
    end: &Normaliser,
) {
    let per_pack = T::PER_PACK as i32;
    let (lane, in_row) = (warp::lane_id(), warp::lane_id() % LANES as u32);
    let column = |i: usize| column::<T, LANES>(in_row, i);
    let results = results::<T, H, PACKS>(p, &held, end);
    let next = lane - in_row + LANES as u32;
    let has_next = next < warp::SIZE && number + 1 < p.rows;
    let mut of_next = [0; 4];
    for w in 0..4 {
        of_next[w] = warp::warp_shuffle_idx(u32::MAX, results[0][w], next % warp::SIZE, warp::SIZE).0;
    }
    // What no row of the warp completes: the pack at the first one's begin, and at the last one's end.
    let begins = in_row == 0 && row.first > 0;
    let (mut part, mut part_at, mut ends) = (results[0], 0, false);
    // SAFETY: the caller's contract.
    unsafe {
        for i in 0..PACKS {
            let shared = column(i) < row.end && column(i) + per_pack > row.end;
            let (mut pack, mine) = (results[i], column(i) < row.stop && !(i == 0 && begins));
            if shared && !has_next {
                (part, part_at, ends) = (pack, column(i), true);
            }
            for w in 0..4 {
                pack[w] |= if shared { of_next[w] } else { 0 };
            }
            let at = (row.y + column(i) as i64) as usize;
            sink.set_pack(mine && (!shared || has_next), at, pack, Part::WHOLE);
        }
        let begins = begins && lane == 0;
        let set = |pack: Pack, column: i32| {
            let of_row = Part { whole: false, low: row.first - column, high: row.end - column };
            sink.set_pack(true, (row.y + column as i64) as usize, pack, of_row);
        };
        if begins || ends {
            set(part, part_at);
            if begins && ends {
                set(results[0], 0);
            }
        }
    }
}

/// What the held scores come to.
#[inline(always)]
fn results<T: Float, H: Held<T>, const PACKS: usize>(
    p: &Params,
    held: &[H; PACKS],
    end: &Normaliser,
) -> [Pack; PACKS] {
    let mut results = [[0; 4]; PACKS];
    if const { H::RECOMPUTES }
        && let Some(shift) = p.exponent.shift(end.maximum)
    {
        for i in 0..PACKS {
            results[i] = held[i].normalise_by(p.exponent, shift + end.log2_sum);
        }
    } else {
        for i in 0..PACKS {
            results[i] = held[i].normalise(p.exponent, end);
        }
    }
    results
}
