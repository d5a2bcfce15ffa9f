//! One or four neighbouring elements of a row at a time.

use cuda_std::prelude::*;

/// Elements from `at` on, widened; zeros where `when` does not hold.
///
/// # Safety
/// Where `when` holds, they exist, and four start at a multiple of their size.
#[inline(always)]
pub unsafe fn load<T: Float, const WIDTH: usize>(from: Global<T>, when: bool, at: usize) -> [f32; WIDTH] {
    let mut values = [0.0; WIDTH];
    // SAFETY: the caller's contract.
    unsafe {
        if const { WIDTH == 1 } {
            values[0] = T::from_bits(from.get_bits_if(when, at, 0)).to_f32();
        } else if const { T::PER_WORD == 1 } {
            let pack = from.get_pack_if(when, at, 0);
            for i in 0..WIDTH {
                values[i] = f32::from_bits(pack[i]);
            }
        } else {
            let [a, b] = from.get_8_if(when, at, 0);
            for i in 0..2 {
                let pair = T::pair([a, b, 0, 0], i);
                values[2 * i] = pair[0];
                values[2 * i + 1] = pair[1];
            }
        }
    }
    values
}

/// Writes elements from `at` on where `when` holds, rounded.
///
/// # Safety
/// As [`load`].
#[inline(always)]
pub unsafe fn store<T: Float, const WIDTH: usize>(
    to: GlobalMut<T>,
    when: bool,
    at: usize,
    values: [f32; WIDTH],
) {
    // SAFETY: the caller's contract.
    unsafe {
        if const { WIDTH == 1 } {
            to.set_if(when, at, T::from_f32(values[0]));
        } else if const { T::PER_WORD == 1 } {
            let mut pack = [0; 4];
            for i in 0..WIDTH {
                pack[i] = values[i].to_bits();
            }
            to.set_pack_if(when, at, pack);
        } else {
            let mut pack = [0; 4];
            for i in 0..2 {
                T::set_pair(&mut pack, i, [values[2 * i], values[2 * i + 1]]);
            }
            to.set_8_if(when, at, [pack[0], pack[1]]);
        }
    }
}
