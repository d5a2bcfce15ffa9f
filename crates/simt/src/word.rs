//! A shadow word: who touched a granule last, when and where, in 64 bits.
//!
//! ```text
//! 63..46 block (mod 2^18) | 45..26 clock | 25..16 thread | 15..12 flags | 11..0 site
//! ```
//! Clocks grow over launches: a word whose clock is below the launch's first is simply old.

pub(crate) const SITE_BITS: u32 = 12;
pub(crate) const THREAD_SHIFT: u32 = 16;
pub(crate) const CLOCK_SHIFT: u32 = 26;
pub(crate) const BLOCK_SHIFT: u32 = 46;
pub(crate) const CLOCK_MAX: u32 = (1 << 20) - 1;
pub(crate) const BLOCK_MASK: u64 = (1 << 18) - 1;

/// The access was atomic.
pub(crate) const ATOMIC: u64 = 1 << 12;
/// In a writer's word: an atomic of block scope.
pub(crate) const BLOCK_SCOPE: u64 = 1 << 13;
/// In a writer's word: an atomic of cluster scope.
pub(crate) const CLUSTER_SCOPE: u64 = 1 << 14;
/// In a writer's word: a bulk copy wrote, which needs no proxy fence before what reads like it.
pub(crate) const BULK: u64 = 1 << 15;
/// In a reader's word: other lanes of the warp read it as well, unordered with the reader named.
pub(crate) const ALSO_LANES: u64 = 1 << 13;
/// In a reader's word: other warps of the block read it as well.
pub(crate) const ALSO_WARPS: u64 = 1 << 14;
/// In a reader's word: other blocks read it as well.
pub(crate) const ALSO_BLOCKS: u64 = 1 << 15;

#[inline]
pub(crate) fn clock(w: u64) -> u32 {
    (w >> CLOCK_SHIFT) as u32 & CLOCK_MAX
}
#[inline]
pub(crate) fn block(w: u64) -> u32 {
    (w >> BLOCK_SHIFT) as u32
}
#[inline]
pub(crate) fn thread(w: u64) -> u32 {
    (w >> THREAD_SHIFT) as u32 & 1023
}
#[inline]
pub(crate) fn site(w: u64) -> u64 {
    w & ((1 << SITE_BITS) - 1)
}
/// Same thread of the same block.
#[inline]
pub(crate) fn same_thread(a: u64, b: u64) -> bool {
    let x = a ^ b;
    x >> BLOCK_SHIFT == 0 && thread(x) == 0
}
#[inline]
pub(crate) fn pack(block: u32, clock: u32, thread: u32) -> u64 {
    (block as u64) << BLOCK_SHIFT | (clock as u64) << CLOCK_SHIFT | (thread as u64) << THREAD_SHIFT
}
/// Any of these marks.
pub(crate) const ALSO: u64 = ALSO_LANES | ALSO_WARPS | ALSO_BLOCKS;
