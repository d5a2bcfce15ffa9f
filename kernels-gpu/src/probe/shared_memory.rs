//! Shared memory: an array of each element type, declared and dynamic.

use cuda_std::prelude::*;

/// Elements of each array.
pub const SHARED_ELEMENTS: usize = 64;

/// Bytes of each array's part of the input and output of [`static_arrays()`](fn@static_arrays).
pub const STATIC_BYTES: usize = SHARED_ELEMENTS * 8;

/// Reverses `x` into `y` through `array`, thread by thread.
///
/// # Safety
/// [`SHARED_ELEMENTS`] elements and threads; every thread of the block calls.
#[inline(always)]
#[track_caller]
unsafe fn reverse<T: Copy>(array: Shared<T>, x: Global<T>, y: GlobalMut<T>) {
    let thread = thread::thread_idx_x();
    // SAFETY: a barrier lies between the writes and the reads.
    unsafe {
        array.set(thread, x.get(thread as usize));
        thread::sync_threads();
        y.set(thread as usize, array.get(SHARED_ELEMENTS as u32 - 1 - thread));
    }
}

/// Reverses [`SHARED_ELEMENTS`] elements of each type, through an array declared for it: f32, u32, i32, u64,
/// i64, f64, f16, bf16, u16, u8, each in its part of [`STATIC_BYTES`].
///
/// # Safety
/// One block; `x` and `y` hold ten parts.
#[kernel(family = "probe", instances = [{ ; threads: 64 }])]
pub unsafe fn static_arrays(x: Global<u64>, y: GlobalMut<u64>) {
    macro_rules! parts {
        ($($part:literal: $name:ident, $ty:ident;)*) => {$(
            let start = $part * STATIC_BYTES / size_of::<$ty>();
            let x_part = Global::<$ty>::from_raw(x.raw()).offset(start as i64);
            let y_part = GlobalMut::<$ty>::from_raw(y.raw()).offset(start as i64);
            reverse(shared_array!($name: [$ty; 64]), x_part, y_part);
        )*};
    }
    // SAFETY: each part is large enough, and aligned to eight bytes.
    unsafe {
        parts! {
            0: probe_static_f32, f32;
            1: probe_static_u32, u32;
            2: probe_static_i32, i32;
            3: probe_static_u64, u64;
            4: probe_static_i64, i64;
            5: probe_static_f64, f64;
            6: probe_static_f16, f16;
            7: probe_static_bf16, bf16;
            8: probe_static_u16, u16;
            9: probe_static_u8, u8;
        }
    }
}

/// Reverses [`SHARED_ELEMENTS`] elements through dynamic shared memory from byte `offset` on; then the packs
/// of the result, through the memory behind, into `packs`.
///
/// # Safety
/// One block with `offset` plus the elements twice over of shared memory; `offset` is a multiple of 16.
#[kernel(family = "probe", types = [u8, u16, u32, u64, f16, bf16, f32, f64], instances = [{ ; threads: 64 }])]
pub unsafe fn dynamic_array<T: Copy>(x: Global<T>, y: GlobalMut<T>, packs: GlobalMut<T>, offset: u32) {
    let thread = thread::thread_idx_x();
    let elements = SHARED_ELEMENTS as u32;
    let per_pack = 16 / size_of::<T>() as u32;
    let count = elements / per_pack;
    // SAFETY: barriers lie between writes and reads of the shared arrays.
    unsafe {
        let first = Shared::<T>::dynamic(offset, elements);
        let second = Shared::<T>::dynamic(offset + elements * size_of::<T>() as u32, elements);
        first.set(thread, x.get(thread as usize));
        thread::sync_threads();
        let reversed = first.get(elements - 1 - thread);
        y.set(thread as usize, reversed);
        thread::sync_threads();
        first.set(thread, reversed);
        thread::sync_threads();
        if thread < count {
            second.set_pack(thread * per_pack, first.get_pack((count - 1 - thread) * per_pack));
        }
        thread::sync_threads();
        packs.set(thread as usize, second.get(thread));
    }
}

/// y = x by asynchronous copies: each thread has a pack in each of two groups, and writes each out once it has
/// waited for its group. Of the last pack only `count` elements are read; zeros stand for the others.
///
/// # Safety
/// One block, with 32 bytes of shared memory a thread; `y` holds two packs a thread, `x` as much but for what
/// `count` leaves out.
#[kernel(family = "probe", types = [u8, f16, u32, f64], instances = [{ ; threads: 64 }])]
pub unsafe fn async_packs<T: Copy>(x: Global<T>, y: GlobalMut<T>, count: u32) {
    let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let pack = 16 / size_of::<T>() as u32;
    let (first, second) = (pack * thread, pack * (threads + thread));
    // SAFETY: a thread has its own packs, and waits for them.
    unsafe {
        let slots = Shared::<T>::dynamic(0, 2 * threads * pack);
        slots.copy_pack_async(first, x, first as usize, pack);
        async_copy::commit();
        let last = thread == threads - 1;
        slots.copy_pack_async(second, x, second as usize, if last { count } else { pack });
        async_copy::commit();
        async_copy::wait::<1>();
        y.set_pack_if(true, first as usize, slots.get_pack(first));
        async_copy::wait::<0>();
        y.set_pack_if(true, second as usize, slots.get_pack(second));
    }
}
