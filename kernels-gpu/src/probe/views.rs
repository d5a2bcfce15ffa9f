//! Views of global memory: elements, packs, halves and quarters of packs, for each element size.

use cuda_std::prelude::*;

/// y[i] = x[i] through views that start `shift` further on and go back; where i is divisible by 3, by a
/// predicated store. `again` is `y`, read back; `steps` the bytes from x[0] to x[1] and from y[0] to y[1].
///
/// # Safety
/// `count` elements each, at least `shift` and 2.
#[kernel(
    family = "probe",
    types = [u8, i8, bool, u16, f16, bf16, u32, f32, u64, f64],
    instances = [{ ; threads: 64 }],
)]
pub unsafe fn copy_elements<T: Copy>(
    x: Global<T>,
    y: GlobalMut<T>,
    again: GlobalMut<T>,
    steps: GlobalMut<u64>,
    shift: i64,
    count: u32,
) {
    let i = thread::index_1d() as usize;
    if i >= count as usize {
        return;
    }
    // SAFETY: below `count`; each thread has its own element.
    unsafe {
        let (later, there_and_back) = (x.offset(shift), y.offset(shift).offset(-shift));
        let value = if i >= shift as usize { later.get(i - shift as usize) } else { x.get(i) };
        if !i.is_multiple_of(3) {
            there_and_back.set(i, value);
        }
        y.set_if(i.is_multiple_of(3), i, value);
        y.set_if(false, count as usize + i, value);
        again.set(i, y.get(i));
        if i == 0 {
            steps.set(0, x.offset(1).address() - x.address());
            steps.set(1, y.offset(1).address() - y.address());
        }
    }
}

/// Packs that [`load_packs()`](fn@load_packs) stores for each that it loads.
pub const LOADS: usize = 4;

/// For each of `packs` packs of `x`, if it is below `loaded`, else for what stands in for it: what
/// `get_pack_if`, `get_pack_or`, two `get_8_if` and four `get_4_if` give. Where a pack is not below
/// `stored`, its first result is not stored.
///
/// # Safety
/// `x` has `loaded` packs, `out` [`LOADS`] times `packs`.
#[kernel(family = "probe", types = [u8, u16, u32, u64, f16, bf16, f32, f64], instances = [{ ; threads: 64 }])]
pub unsafe fn load_packs<T: Copy>(
    x: Global<T>,
    out: GlobalMut<T>,
    packs: u32,
    loaded: u32,
    stored: u32,
    otherwise: u32,
) {
    let per_pack = 16 / size_of::<T>();
    let i = thread::index_1d() as usize;
    if i >= packs as usize {
        return;
    }
    let when = i < loaded as usize;
    let stand_in = [otherwise, otherwise + 1, otherwise + 2, otherwise + 3];
    // SAFETY: below `packs`, and `loaded` by the predicates.
    unsafe {
        let pack = x.get_pack_if(when, i * per_pack, otherwise);
        let streamed = x.get_pack_or(when, i * per_pack, stand_in);
        let [a, b] = x.get_8_if(when, i * per_pack, otherwise);
        let [c, d] = x.get_8_if(when, i * per_pack + per_pack / 2, otherwise);
        // An element of eight bytes holds two quarters: the second is reached by a view of words.
        let words = Global::<u32>::from_raw(x.raw());
        let quarter = |q: usize| match size_of::<T>() {
            8 => words.get_4_if(when, 4 * i + q, otherwise + q as u32),
            _ => x.get_4_if(when, i * per_pack + q * per_pack / 4, otherwise + q as u32),
        };
        let quarters = [quarter(0), quarter(1), quarter(2), quarter(3)];
        let at = |result: usize| (LOADS * i + result) * per_pack;
        out.set_pack_if(i < stored as usize, at(0), pack);
        out.set_pack_if(true, at(1), streamed);
        out.set_pack_if(true, at(2), [a, b, c, d]);
        out.set_pack_if(true, at(3), quarters);
    }
}
