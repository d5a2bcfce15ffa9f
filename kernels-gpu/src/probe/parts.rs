//! Accesses narrower than a pack, predicated ones, polls of packs, and copies of parts from global to shared memory.

use cuda_std::prelude::*;

/// `bits` holds what `get_bits_if` gives for each element below `loaded`, and for the others, of which nothing is read; all that is
/// read was asked of L2 before.
///
/// # Safety
/// `x` has `loaded` elements, `bits` `count`.
#[kernel(
    family = "probe",
    types = [u8, i8, u16, i16, f16, bf16, u32, i32, f32],
    instances = [{ ; threads: 64 }],
)]
pub unsafe fn load_bits<T: Copy>(
    x: Global<T>,
    bits: GlobalMut<u32>,
    count: u32,
    loaded: u32,
    otherwise: u32,
) {
    let i = thread::index_1d() as usize;
    let when = i < loaded as usize;
    x.prefetch_if(when, i);
    if i < count as usize {
        // SAFETY: below `count`, and `loaded` by the predicate.
        unsafe { bits.set(i, x.get_bits_if(when, i, otherwise)) }
    }
}

/// Eight rows of `count` packs of `x`, of which is written: of the first row the packs whose number i is odd, of the second the halves h of
/// which i + h is odd, of the third the quarter i modulo 4; of the others, by stores that L2 is to keep where i is odd, all packs, the
/// half i modulo 2, the quarter i modulo 4, the eighth i modulo 8, the byte i modulo 16.
///
/// # Safety
/// `x` has `count` packs, `y` eight times as many.
#[kernel(family = "probe", types = [u8, u16, u32, f16, bf16, f32], instances = [{ ; threads: 64 }])]
pub unsafe fn store_parts<T: Copy>(x: Global<T>, y: GlobalMut<T>, count: u32) {
    let (number, count, per_pack) = (thread::index_1d() as usize, count as usize, 16 / size_of::<T>());
    if number >= count {
        return;
    }
    let start = number * per_pack;
    let at = |row: usize| row * count * per_pack + start;
    // SAFETY: below `count`.
    unsafe {
        let odd = number % 2 == 1;
        y.set_pack_if(odd, at(0), x.get_pack_plain_if(odd, start, 0));
        for half in 0..2 {
            let (first, when) = (half * per_pack / 2, (number + half) % 2 == 1);
            y.set_8_if(when, at(1) + first, x.get_8_if(when, start + first, 0));
        }
        for quarter in 0..4 {
            let (first, when) = (quarter * per_pack / 4, number % 4 == quarter);
            y.set_4_if(when, at(2) + first, x.get_4_if(when, start + first, 0));
        }
        let (keep, pack) = (Keep::when(odd), x.get_pack_if(true, start, 0));
        y.set_pack_keeping(keep, at(3), pack);
        for half in 0..2 {
            let when = number % 2 == half;
            y.set_piece_keeping::<8>(
                keep,
                when,
                at(4) + half * per_pack / 2,
                [pack[2 * half], pack[2 * half + 1]],
            );
        }
        for (quarter, word) in pack.into_iter().enumerate() {
            let when = number % 4 == quarter;
            y.set_piece_keeping::<4>(keep, when, at(5) + quarter * per_pack / 4, [word, 0]);
        }
        // Elements of fewer bytes than a piece are one.
        let bytes = GlobalMut::<u8>::from_raw(y.raw());
        let byte = |row: usize, at: usize| 16 * (row * count + number) + at;
        for eighth in 0..8 {
            let (when, half) = (number % 8 == eighth, pack[eighth / 2] >> (16 * (eighth % 2)));
            bytes.set_piece_keeping::<2>(keep, when, byte(6, 2 * eighth), [half, 0]);
        }
        for at in 0..16 {
            let (when, low) = (number % 16 == at, pack[at / 4] >> (8 * (at % 4)));
            bytes.set_piece_keeping::<1>(keep, when, byte(7, at), [low, 0]);
        }
    }
}

/// Writes elements `low..high` of pack `i` of `x` to pack `i` of `y`, where `low` and `high` are numbers 2·i and 2·i + 1 of `ranges`.
///
/// # Safety
/// `count` packs and pairs.
#[kernel(family = "probe", types = [f16, bf16, f32], instances = [{ ; threads: 64 }])]
pub unsafe fn store_ranges<T: Float>(x: Global<T>, y: GlobalMut<T>, ranges: Global<i32>, count: u32) {
    let i = thread::index_1d() as usize;
    if i < count as usize {
        // SAFETY: below `count`.
        unsafe {
            let pack = x.get_pack_if(true, i * T::PER_PACK, 0);
            y.set_pack_part(i * T::PER_PACK, pack, ranges.get(2 * i), ranges.get(2 * i + 1));
        }
    }
}

/// Copies of each five words of `x`, thread by thread, the elements `low..high`, where `low` and `high` are numbers 2·i and 2·i + 1 of `ranges`, to
/// the same places of `y`.
///
/// # Safety
/// `count` times five words and pairs; `x` has those elements.
#[kernel(family = "probe", types = [u8, f16, f32], instances = [{ ; threads: 64 }])]
pub unsafe fn words_around<T: Copy>(x: Global<T>, y: GlobalMut<u8>, ranges: Global<u32>, count: u32) {
    let i = thread::index_1d() as usize;
    if i < count as usize {
        let size = const { size_of::<T>() };
        // SAFETY: below `count`.
        unsafe {
            let (low, high) = (ranges.get(2 * i), ranges.get(2 * i + 1));
            let words = x.get_words_around::<5>(i * (20 / size), low, high);
            for byte in 0..20 {
                let element = byte / size;
                if low <= element as u32 && (element as u32) < high {
                    y.set(20 * i + byte, (words[byte / 4] >> (8 * (byte % 4))) as u8);
                }
            }
        }
    }
}

/// Polls packs of `x`: those below `polled` by `load_pack_relaxed`, again and (for all) by `load_pack_relaxed_or`, whose packs lie behind
/// those of the first in `out`.
///
/// # Safety
/// `x` has `polled` packs, `out` twice `count`.
#[kernel(family = "probe", instances = [{ ; threads: 64 }])]
pub unsafe fn poll_packs(x: GlobalMut<u32>, out: GlobalMut<u32>, count: u32, polled: u32) {
    let i = thread::index_1d() as usize;
    if i >= count as usize {
        return;
    }
    let when = i < polled as usize;
    let number = i as u32;
    // SAFETY: below `count`, and `polled` by the predicate.
    unsafe {
        if when {
            out.set_pack_if(true, 4 * i, x.load_pack_relaxed(4 * i));
        }
        let otherwise = [number, number + 1, number + 2, number + 3];
        let pack = x.load_pack_relaxed_or(when, 4 * i, otherwise);
        out.set_pack_if(true, 4 * (count as usize + i), pack);
    }
}

/// Copies packs to shared memory by every form of asynchronous copy, and from there to `y`, five rows of a pack for each thread, whose number is
/// t: whole packs where t is even (else what was there before, t in each word); the same with zeros instead; of words those whose number is at
/// most t modulo 4, else zeros; the elements `low..high` of the pack, where t modulo a pack's elements is `low` and what is left is
/// rounded up to `high`, and nothing else; then whole packs again, kept by L2. `zero` is 0.
///
/// # Safety
/// One block of 80 bytes of shared memory a thread; `x` has a pack for each, `y` five.
#[kernel(family = "probe", types = [u8, f16, u32], instances = [{ ; threads: 64 }])]
pub unsafe fn async_parts<T: Copy>(x: Global<T>, y: GlobalMut<T>, zero: u32) {
    let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let per_pack = 16 / size_of::<T>() as u32;
    let at = |row: u32| (row * threads + thread) * per_pack;
    let from = (thread * per_pack) as usize;
    let even = thread.is_multiple_of(2);
    let low = thread % per_pack;
    let high = low + (per_pack - low).div_ceil(2);
    // SAFETY: a thread has its own packs, and waits for them.
    unsafe {
        let slots = Shared::<T>::dynamic(0, 5 * threads * per_pack);
        slots.set_pack(at(0), [thread; 4]);
        slots.copy_pack_async_if(at(0), x, from, even);
        slots.copy_16_async(at(1), x, from, even);
        for word in 0..4 {
            let first = word * per_pack / 4;
            slots.copy_4_async(at(2) + first, x, from + first as usize, word <= thread % 4);
        }
        slots.copy_part_async::<256>(at(3), x, from, low, high, zero);
        slots.copy_pack_kept_async(at(4), x, from, zero);
        async_copy::commit();
        async_copy::wait::<0>();
        for row in [0, 1, 2, 4] {
            y.set_pack_if(true, at(row) as usize, slots.get_pack(at(row)));
        }
        for element in low..high {
            y.set((at(3) + element) as usize, slots.get(at(3) + element));
        }
    }
}

/// Turns `x` round by eights of bytes: each thread writes its own to shared memory, and reads that of the thread opposite.
///
/// # Safety
/// One block, with 8 bytes of shared memory, of `x` and of `y` a thread.
#[kernel(family = "probe", types = [u8, f16, f32], instances = [{ ; threads: 64 }])]
pub unsafe fn shared_eights<T: Copy>(x: Global<T>, y: GlobalMut<T>) {
    let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let count = 8 / size_of::<T>() as u32;
    let (mine, opposite) = (thread * count, (threads - 1 - thread) * count);
    // SAFETY: a barrier lies between the writes and the reads.
    unsafe {
        let slots = Shared::<T>::dynamic(0, threads * count);
        slots.set_8(mine, x.get_8_if(true, mine as usize, 0));
        thread::sync_threads();
        y.set_8_if(true, mine as usize, slots.get_8(opposite));
    }
}
