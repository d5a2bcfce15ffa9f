use crate::warp::Reduce;
use core::arch::asm;

/// An operation that a warp reduces by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Add,
    Max,
    Min,
}

impl Op {
    #[inline(always)]
    pub fn apply<T: Reduce>(self, a: T, b: T) -> T {
        match self {
            Op::Add => a.plus(b),
            Op::Max => a.larger(b),
            Op::Min => a.smaller(b),
        }
    }
}

unsafe extern "C" {
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    fn llvm_up(mask: u32, word: u32, delta: u32, control: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    fn llvm_down(mask: u32, word: u32, delta: u32, control: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn llvm_idx(mask: u32, word: u32, index: u32, control: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn llvm_bfly(mask: u32, word: u32, lane_mask: u32, control: u32) -> u32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn llvm_ballot(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.match.any.sync.i32"]
    fn llvm_match_32(mask: u32, value: u32) -> u32;
    #[link_name = "llvm.nvvm.match.any.sync.i64"]
    fn llvm_match_64(mask: u32, value: u64) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.and"]
    fn llvm_redux_and(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.or"]
    fn llvm_redux_or(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.xor"]
    fn llvm_redux_xor(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn llvm_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.activemask"]
    fn llvm_activemask() -> u32;
}

#[inline(always)]
pub fn lane_id() -> u32 {
    let lane;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {}, %laneid;", out(reg32) lane, options(pure, nomem, nostack)) };
    lane
}

macro_rules! wrap {
    ($($name:ident($($x:ident: $ty:ty),*) -> $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        pub fn $name($($x: $ty),*) -> $result {
            // SAFETY: the caller's contract: every lane of the mask makes the same call.
            unsafe { $body }
        }
    )*};
}
wrap! {
    activemask() -> u32 = llvm_activemask();
    sync_warp(mask: u32) -> () = llvm_warp_sync(mask);
    ballot(mask: u32, predicate: bool) -> u32 = llvm_ballot(mask, predicate);
    match_any_32(mask: u32, value: u32) -> u32 = llvm_match_32(mask, value);
    match_any_64(mask: u32, value: u64) -> u32 = llvm_match_64(mask, value);
    shuffle_up(mask: u32, word: u32, delta: u32, control: u32) -> u32 = llvm_up(mask, word, delta, control);
    shuffle_down(mask: u32, word: u32, delta: u32, control: u32) -> u32 = llvm_down(mask, word, delta, control);
    shuffle_idx(mask: u32, word: u32, index: u32, control: u32) -> u32 = llvm_idx(mask, word, index, control);
    shuffle_xor(mask: u32, word: u32, lane_mask: u32, control: u32) -> u32 =
        llvm_bfly(mask, word, lane_mask, control);
    reduce_and(mask: u32, value: u32) -> u32 = llvm_redux_and(value, mask);
    reduce_or(mask: u32, value: u32) -> u32 = llvm_redux_or(value, mask);
    reduce_xor(mask: u32, value: u32) -> u32 = llvm_redux_xor(value, mask);
}

#[inline(always)]
pub fn butterfly<T: Reduce, const WIDTH: usize>(value: T, op: Op) -> T {
    let step = |value: T, distance: u32| {
        op.apply(value, value.through(|word| shuffle_xor(crate::warp::FULL, word, distance, 31)))
    };
    let mut value = value;
    if const { WIDTH > 16 } {
        value = step(value, 16);
    }
    if const { WIDTH > 8 } {
        value = step(value, 8);
    }
    if const { WIDTH > 4 } {
        value = step(value, 4);
    }
    if const { WIDTH > 2 } {
        value = step(value, 2);
    }
    if const { WIDTH > 1 } {
        value = step(value, 1);
    }
    value
}
