//! Scores in registers: the sums of products of 16 queries and 32 keys, as the lanes of a warp hold them.

use cuda_std::bits;
use cuda_std::prelude::*;

/// Keys of a group.
pub(super) const KEYS: u32 = 32;

/// Scores of a row that a lane holds in a group: neighbours, 16 bytes of y.
pub(super) const RUN: usize = 8;

/// The fragments of four products of 16×8. Lane 4·g + t holds, of rows g and g + 8, columns 2t and 2t + 1 of each; the rows of
/// k are so [`order`]ed in their tile that these are the keys 8t..8t + 8 of the group.
pub(super) type Group = [[f32; 4]; 4];

/// Where key `key` lies among the rows of its tile.
#[inline(always)]
pub(super) const fn order(key: u32) -> u32 {
    // Bits 4 and 3 are the lane's number in its quad, 2 and 1 the product's, 0 the column's.
    (key & !31) | (key & 6) << 2 | (key >> 3 & 3) << 1 | (key & 1)
}

/// The lane's scores of row g + 8·`half`.
#[inline(always)]
pub(super) fn run(group: &Group, half: usize) -> [f32; RUN] {
    let mut scores = [0.0; RUN];
    for i in 0..RUN {
        scores[i] = group[i / 2][2 * half + i % 2];
    }
    scores
}

/// Replaces them.
#[inline(always)]
pub(super) fn set_run(group: &mut Group, half: usize, scores: [f32; RUN]) {
    for i in 0..RUN {
        group[i / 2][2 * half + i % 2] = scores[i];
    }
}

/// Where byte i of `bytes` has its sign bit set the score, else −∞.
#[inline(always)]
pub(super) fn keep_signs(mut scores: [f32; RUN], bytes: [u32; 2]) -> [f32; RUN] {
    for i in 0..RUN {
        let kept = f32::byte_mask([bytes[i / 4], 0], i % 4);
        scores[i] = f32::from_bits(bits::select(kept, scores[i].to_bits(), f32::NEG_INFINITY_WORD));
    }
    scores
}

/// Where i is in `low..high` the score, else −∞.
#[inline(always)]
pub(super) fn keep_range(mut scores: [f32; RUN], low: i32, high: i32) -> [f32; RUN] {
    for i in 0..RUN {
        let kept = low <= i as i32 && (i as i32) < high;
        scores[i] = if kept { scores[i] } else { f32::NEG_INFINITY };
    }
    scores
}

// A lane holds neighbouring keys.
const _: () = {
    let mut key = 0;
    while key < 64 {
        let (product, column) = (order(key) % 32 / 8, order(key) % 8);
        let (lane, first) = (column / 2, column % 2);
        assert!(key == key / 32 * 32 + 8 * lane + 2 * product + first);
        assert!(order(key + 32) == order(key) + 32);
        key += 1;
    }
};
