//! Reductions over a whole block.

use crate::imp::warp::Op;
use crate::thread::sync_threads;
use crate::warp::{self, Reduce};
use crate::{Shared, shared_array};

/// Most warps a block can have.
pub const MAX_WARPS: u32 = 32;

/// Combines one value of each warp over the block; lane 0 of each warp brings it. Two barriers: one
/// before the values are read, one before the scratch may be written again.
#[inline(always)]
#[track_caller]
fn combine<T: Reduce>(scratch: Shared<T>, value: T, identity: T, op: Op) -> T {
    let warps = crate::thread::block_dim_x().div_ceil(warp::SIZE);
    // SAFETY: `scratch` has MAX_WARPS elements; each is written by one thread before the barrier.
    unsafe {
        if warp::lane_id() == 0 {
            scratch.set(warp::warp_id(), value);
        }
        sync_threads();
        let lane = warp::lane_id();
        let mine = if lane < warps { scratch.get(lane) } else { identity };
        let total = crate::imp::warp::butterfly::<T, 32>(mine, op);
        sync_threads();
        total
    }
}

macro_rules! reductions {
    ($($ty:ident: $sum:ident $sum_scratch:ident, $max:ident $max_scratch:ident, $min:ident $min_scratch:ident, $zero:expr, $lowest:expr, $highest:expr;)*) => {$(
        /// The sum over a one-dimensional block whose size is a multiple of 32; every thread gets it.
        #[inline(always)]
        #[track_caller]
        pub fn $sum(value: $ty) -> $ty {
            // SAFETY: the array is used between the barriers of `combine` only.
            let scratch = unsafe { shared_array!($sum_scratch: [$ty; 32]) };
            combine(scratch, warp::sum::<$ty, 32>(value), $zero, Op::Add)
        }

        /// The maximum over a one-dimensional block whose size is a multiple of 32; NaN if any is.
        #[inline(always)]
        #[track_caller]
        pub fn $max(value: $ty) -> $ty {
            // SAFETY: as above.
            let scratch = unsafe { shared_array!($max_scratch: [$ty; 32]) };
            combine(scratch, warp::max::<$ty, 32>(value), $lowest, Op::Max)
        }

        /// The minimum over a one-dimensional block whose size is a multiple of 32; NaN if any is.
        #[inline(always)]
        #[track_caller]
        pub fn $min(value: $ty) -> $ty {
            // SAFETY: as above.
            let scratch = unsafe { shared_array!($min_scratch: [$ty; 32]) };
            combine(scratch, warp::min::<$ty, 32>(value), $highest, Op::Min)
        }
    )*};
}

reductions! {
    f32: sum_f32 block_sum_f32, max_f32 block_max_f32, min_f32 block_min_f32, 0.0, f32::NEG_INFINITY, f32::INFINITY;
    u32: sum_u32 block_sum_u32, max_u32 block_max_u32, min_u32 block_min_u32, 0, u32::MIN, u32::MAX;
    i32: sum_i32 block_sum_i32, max_i32 block_max_i32, min_i32 block_min_i32, 0, i32::MIN, i32::MAX;
}
