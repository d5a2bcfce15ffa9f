//! Boxes whose runs begin and end at multiples of 16 bytes, in x and in y: each thread reads words of as many elements
//! along y as a pack has, turns them in registers, and stores a pack for each element of a word.
//!
//! Launch: a block for each box. `staged` counts words of x: 4 bytes, or an element that is longer; of the runs of y the
//! first level counts words, too. A pack lies on the innermost level of `within`.

use super::boxes::Boxes;
use super::unit::Unit;
use cuda_std::bits::prmt;
use cuda_std::prelude::*;

/// Elements that are turned by words.
pub trait Turned: Unit {
    /// A word of shared memory.
    type Word: Unit;

    /// Pack `i`, of element `i` of each word.
    fn turn(words: &[Self::Word; 16]) -> [Pack; 4];
}

impl Turned for u8 {
    type Word = u32;

    #[inline(always)]
    fn turn(words: &[u32; 16]) -> [Pack; 4] {
        let mut packs = [[0; 4]; 4];
        for i in 0..4 {
            let [a, b, c, d] = [words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]];
            let (ab, cd) = (prmt(a, b, 0x5140), prmt(c, d, 0x5140));
            packs[0][i] = prmt(ab, cd, 0x5410);
            packs[1][i] = prmt(ab, cd, 0x7632);
            let (ab, cd) = (prmt(a, b, 0x7362), prmt(c, d, 0x7362));
            packs[2][i] = prmt(ab, cd, 0x5410);
            packs[3][i] = prmt(ab, cd, 0x7632);
        }
        packs
    }
}

impl Turned for u16 {
    type Word = u32;

    #[inline(always)]
    fn turn(words: &[u32; 16]) -> [Pack; 4] {
        let mut packs = [[0; 4]; 4];
        for i in 0..4 {
            packs[0][i] = prmt(words[2 * i], words[2 * i + 1], 0x5410);
            packs[1][i] = prmt(words[2 * i], words[2 * i + 1], 0x7632);
        }
        packs
    }
}

macro_rules! whole_word {
    ($($ty:ty),*) => {$(
        impl Turned for $ty {
            type Word = $ty;

            #[inline(always)]
            fn turn(words: &[$ty; 16]) -> [Pack; 4] {
                [<$ty>::pack(words), [0; 4], [0; 4], [0; 4]]
            }
        }
    )*};
}
whole_word!(u32, u64, Pack);

/// y = x permuted.
///
/// # Safety
/// As [`staged()`](fn@super::staged), for boxes as this module has them.
#[kernel(family = "permute", types = [u8, u16, u32, u64, Pack], instances = [{ ; threads: 256 }])]
pub unsafe fn turned<T: Turned>(x: Global<u8>, y: GlobalMut<u8>, p: Boxes) {
    let place = p.place();
    // SAFETY: the caller's contract; every pack of y has one thread.
    unsafe {
        let first = place.staged() / T::Word::BYTES as u32;
        p.stage::<true, 128, 0>(x, place, first, const { T::BYTES.trailing_zeros() });
        let (tables, y) = (p.tables(), p.origin(y, place));
        let outs = p.out_count.of(place.u);
        let (lane, side_by_side) = (thread::thread_idx_x() % warp::SIZE, 1 << p.log_lanes);
        let at_once = warp::SIZE >> p.log_lanes;
        let mut turn = thread::thread_idx_x() / warp::SIZE;
        while turn < p.turns {
            let (group, stride) = p.inner.div_rem(turn);
            let out = group * at_once + (lane >> p.log_lanes);
            let pack = stride * side_by_side + (lane & (side_by_side - 1));
            if out < outs {
                let [begin, staged, end, _] = tables.outs.get_pack(4 * out);
                if 16 * pack < end {
                    let along = staged + tables.along.get(pack);
                    let mut words = [T::Word::ZERO; 16];
                    for i in 0..const { T::PER_PACK } {
                        words[i] = T::Word::staged(along + i as u32 * p.within[0].staged);
                    }
                    let packs = T::turn(&words);
                    for i in 0..const { T::Word::BYTES / T::BYTES } {
                        let at = (begin + pack) as i64 * 16 + i as i64 * p.neighbour;
                        y.set_pack_if(true, at as usize, packs[i]);
                    }
                }
            }
            turn += thread::block_dim_x() / warp::SIZE;
        }
    }
}
