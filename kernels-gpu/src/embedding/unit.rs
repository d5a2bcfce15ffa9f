//! Units of a row of gradients, a pack or an element, and their sums in f32.

use cuda_std::prelude::*;

/// A pack, or an element in the low bits of its first word; where `when` does not hold, zeros.
///
/// # Safety
/// The unit exists, a pack aligned, where `when` holds.
#[inline(always)]
pub(crate) unsafe fn load<T: Float, const UNIT: usize>(x: Global<T>, when: bool, at: usize) -> Pack {
    // SAFETY: the caller's contract.
    unsafe {
        if const { UNIT == 1 } {
            [if when { x.get(at).bits() } else { 0 }, 0, 0, 0]
        } else {
            x.get_pack_if(when, at, 0)
        }
    }
}

/// Adds a unit to sums.
#[inline(always)]
pub(crate) fn add<T: Float, const UNIT: usize>(sums: &mut [f32; UNIT], unit: Pack) {
    for pair in 0..const { UNIT.div_ceil(2) } {
        let values = T::pair(unit, pair);
        for half in 0..const { if UNIT == 1 { 1 } else { 2 } } {
            sums[2 * pair + half] += values[half];
        }
    }
}

/// Writes sums, rounded.
///
/// # Safety
/// As [`load`].
#[inline(always)]
pub(crate) unsafe fn store<T: Float, const UNIT: usize>(
    y: GlobalMut<T>,
    when: bool,
    at: usize,
    sums: [f32; UNIT],
) {
    let mut unit = [0; 4];
    for pair in 0..const { UNIT.div_ceil(2) } {
        let second = if const { UNIT == 1 } { 0.0 } else { sums[2 * pair + const { (UNIT > 1) as usize }] };
        T::set_pair(&mut unit, pair, [sums[2 * pair], second]);
    }
    // SAFETY: the caller's contract.
    unsafe {
        if const { UNIT == 1 } {
            y.set_if(when, at, T::from_bits(unit[0]));
        } else {
            y.set_pack_if(when, at, unit);
        }
    }
}

/// The partial sums, of which there are UNIT from element `at` on; where `when` does not hold, zeros.
///
/// # Safety
/// They exist, aligned to 16 bytes unless UNIT is 1, where `when` holds.
#[inline(always)]
pub(crate) unsafe fn load_partials<const UNIT: usize>(
    partials: Global<f32>,
    when: bool,
    at: usize,
) -> [f32; UNIT] {
    let mut sums = [0.0; UNIT];
    // SAFETY: the caller's contract.
    unsafe {
        if const { UNIT == 1 } {
            sums[0] = f32::from_bits(partials.get_4_if(when, at, 0));
        } else {
            for i in 0..const { UNIT / 4 } {
                let pack = partials.get_pack_if(when, at + 4 * i, 0);
                for j in 0..4 {
                    sums[4 * i + j] = f32::from_bits(pack[j]);
                }
            }
        }
    }
    sums
}

/// Writes partial sums.
///
/// # Safety
/// As [`load_partials`].
#[inline(always)]
pub(crate) unsafe fn store_partials<const UNIT: usize>(
    partials: GlobalMut<f32>,
    when: bool,
    at: usize,
    sums: [f32; UNIT],
) {
    // SAFETY: the caller's contract.
    unsafe {
        if const { UNIT == 1 } {
            partials.set_if(when, at, sums[0]);
        } else {
            for i in 0..const { UNIT / 4 } {
                let mut pack = [0; 4];
                for j in 0..4 {
                    pack[j] = sums[4 * i + j].to_bits();
                }
                partials.set_pack_if(when, at + 4 * i, pack);
            }
        }
    }
}

/// `$function::<T, UNIT>` of these arguments, with UNIT the elements of a pack of `$T`; perhaps with a constant between.
macro_rules! with_packs {
    ($function:ident::<$T:ident $(, $constant:ident)?>($($argument:expr),*)) => {
        if const { $T::PER_PACK == 8 } {
            $function::<$T $(, $constant)?, 8>($($argument),*)
        } else {
            $function::<$T $(, $constant)?, 4>($($argument),*)
        }
    };
}
pub(crate) use with_packs;
