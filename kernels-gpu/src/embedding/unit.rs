//! What a lane has of a row of gradients, a pack or single elements, and its sums in f32.

use cuda_std::prelude::*;

/// Sums of a lane's elements; those beyond [`Unit::COUNT`] are not used.
pub(crate) type Sums = [f32; 8];

/// What a lane has of a strip: of the columns that a warp has of a row. Places are those of its first element, behind which the
/// row goes on for `left` more; nothing is accessed where that is 0.
pub(crate) trait Unit<T: Float> {
    /// Elements of a lane, at most 8; a strip has those of 32.
    const COUNT: usize;
    /// As loaded.
    type Raw: Copy;
    /// Zeros.
    const NOTHING: Self::Raw;

    /// The first column of a lane in strip number `strip` of a row.
    fn column(strip: u32, lane: u32) -> u32;

    /// Loads; of what is not there zeros.
    ///
    /// # Safety
    /// The elements exist, packs aligned.
    unsafe fn load(x: Global<T>, left: u32, at: usize) -> Self::Raw;

    /// Adds what was loaded.
    fn add(sums: &mut Sums, raw: Self::Raw);

    /// Writes sums, rounded.
    ///
    /// # Safety
    /// As [`Unit::load`].
    unsafe fn store(y: GlobalMut<T>, left: u32, at: usize, sums: Sums);

    /// Partial sums.
    ///
    /// # Safety
    /// As [`Unit::load`].
    unsafe fn load_partials(partials: Global<f32>, left: u32, at: usize) -> Sums;

    /// Writes partial sums.
    ///
    /// # Safety
    /// As [`Unit::load`].
    unsafe fn store_partials(partials: GlobalMut<f32>, left: u32, at: usize, sums: Sums);
}

/// A pack; rows are whole aligned packs.
pub(crate) struct Packs;

impl<T: Float> Unit<T> for Packs {
    const COUNT: usize = T::PER_PACK;
    type Raw = Pack;
    const NOTHING: Pack = [0; 4];

    #[inline(always)]
    fn column(strip: u32, lane: u32) -> u32 {
        (strip * warp::SIZE + lane) * T::PER_PACK as u32
    }

    #[inline(always)]
    unsafe fn load(x: Global<T>, left: u32, at: usize) -> Pack {
        // SAFETY: the caller's contract.
        unsafe { x.get_pack_if(left > 0, at, 0) }
    }

    #[inline(always)]
    fn add(sums: &mut Sums, raw: Pack) {
        for pair in 0..const { T::PER_PACK / 2 } {
            let values = T::pair(raw, pair);
            for half in 0..2 {
                sums[2 * pair + half] += values[half];
            }
        }
    }

    #[inline(always)]
    unsafe fn store(y: GlobalMut<T>, left: u32, at: usize, sums: Sums) {
        let mut pack = [0; 4];
        for pair in 0..const { T::PER_PACK / 2 } {
            T::set_pair(&mut pack, pair, [sums[2 * pair], sums[2 * pair + 1]]);
        }
        // SAFETY: the caller's contract.
        unsafe { y.set_pack_if(left > 0, at, pack) }
    }

    #[inline(always)]
    unsafe fn load_partials(partials: Global<f32>, left: u32, at: usize) -> Sums {
        let mut sums = [0.0; 8];
        for i in 0..const { T::PER_PACK / 4 } {
            // SAFETY: the caller's contract.
            let pack = unsafe { partials.get_pack_if(left > 0, at + 4 * i, 0) };
            for j in 0..4 {
                sums[4 * i + j] = f32::from_bits(pack[j]);
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn store_partials(partials: GlobalMut<f32>, left: u32, at: usize, sums: Sums) {
        for i in 0..const { T::PER_PACK / 4 } {
            let mut pack = [0; 4];
            for j in 0..4 {
                pack[j] = sums[4 * i + j].to_bits();
            }
            // SAFETY: the caller's contract.
            unsafe { partials.set_pack_if(left > 0, at + 4 * i, pack) };
        }
    }
}

/// `N` single elements, a warp's width apart: neighbouring lanes have neighbours, wherever the row begins.
pub(crate) struct Elements<const N: usize>;

impl<const N: usize> Elements<N> {
    /// Whether element `i` is there.
    #[inline(always)]
    fn has(left: u32, i: usize) -> bool {
        left > i as u32 * warp::SIZE
    }

    /// How far it is from the first.
    const fn from_first(i: usize) -> usize {
        i * warp::SIZE as usize
    }
}

impl<T: Float, const N: usize> Unit<T> for Elements<N> {
    const COUNT: usize = N;
    /// Their bits.
    type Raw = [u32; N];
    const NOTHING: [u32; N] = [0; N];

    #[inline(always)]
    fn column(strip: u32, lane: u32) -> u32 {
        strip * (N as u32 * warp::SIZE) + lane
    }

    #[inline(always)]
    unsafe fn load(x: Global<T>, left: u32, at: usize) -> [u32; N] {
        let mut raw = [0; N];
        for i in 0..N {
            // SAFETY: the caller's contract.
            raw[i] = unsafe { x.get_bits_if(Self::has(left, i), at + Self::from_first(i), 0) };
        }
        raw
    }

    #[inline(always)]
    fn add(sums: &mut Sums, raw: [u32; N]) {
        for i in 0..N {
            sums[i] += T::from_bits(raw[i]).to_f32();
        }
    }

    #[inline(always)]
    unsafe fn store(y: GlobalMut<T>, left: u32, at: usize, sums: Sums) {
        for i in 0..N {
            // SAFETY: the caller's contract.
            unsafe { y.set_if(Self::has(left, i), at + Self::from_first(i), T::from_f32(sums[i])) };
        }
    }

    #[inline(always)]
    unsafe fn load_partials(partials: Global<f32>, left: u32, at: usize) -> Sums {
        let mut sums = [0.0; 8];
        for i in 0..N {
            // SAFETY: the caller's contract.
            let bits = unsafe { partials.get_4_if(Self::has(left, i), at + Self::from_first(i), 0) };
            sums[i] = f32::from_bits(bits);
        }
        sums
    }

    #[inline(always)]
    unsafe fn store_partials(partials: GlobalMut<f32>, left: u32, at: usize, sums: Sums) {
        for i in 0..N {
            // SAFETY: the caller's contract.
            unsafe { partials.set_if(Self::has(left, i), at + Self::from_first(i), sums[i]) };
        }
    }
}
