//! Runs a CUDA grid on the CPU and checks it.
//!
//! A kernel is a closure that calls the device functions of this crate. [`launch()`] runs it once a thread: each
//! CUDA thread is a stackful coroutine, the blocks of a plain launch run in parallel on rayon's threads, the
//! blocks of a cluster or of a cooperative grid are live together on one of them. The first mistake stops the
//! launch and comes back as a [`Report`]: kernel, block, thread, source line, and the other party.
//!
//! ```
//! use simt::{Kind, Launch, Memory, View, launch, thread_idx};
//!
//! let (x, y) = (Memory::from_bytes(&[1; 400]), Memory::uninit(400));
//! let (xv, yv): (View<u32>, View<u32>) = (x.view(0, 100), y.view(0, 100));
//! let report = launch(&Launch::new("copy", [1, 1, 1], [128, 1, 1]), &|| {
//!     let i = thread_idx()[0] as usize;
//!     // SAFETY: checked by the launch.
//!     unsafe { yv.store(i, xv.load(i)) }
//! });
//! let report = report.unwrap_err(); // the bounds check is missing
//! assert_eq!((report.kind, report.thread), (Kind::OutOfBounds, [100, 0, 0]));
//! ```
//!
//! # What is found
//!
//! - Always: launch shapes and shared memory beyond the [`Limits`], barriers that part of a block (cluster, grid)
//!   misses, lanes of one warp at different barriers, collectives whose mask does not fit the lanes that come,
//!   deadlocks, polling without end, panics, used-up stacks.
//! - Also: barriers that count ([`mbarrier`]) which nobody made, or which more arrive at than they have; boxes that are
//!   stored ([`bulk`]) without a fence behind their writes, or not waited for; the same of bytes that are sent to another block, which
//!   are to stay, and with them the block, until they have come.
//! - Also: matrix fragments ([`matrix`]) and products of a warpgroup ([`warpgroup`]) whose lanes do not agree. A
//!   product reads its tiles through their descriptors while it is waited for, so that a tile which is overwritten
//!   too early is a race; with [`Checks::Full`] what threads wrote there wants a proxy fence behind it.
//! - From [`Checks::Bounds`] on: accesses out of bounds or misaligned, null and foreign views.
//! - With [`Checks::Full`]: reads of memory that nothing wrote (shared memory: that the block did not write), and
//!   races. Accesses are ordered by barriers, `sync_warp`, release and acquire at scopes that include both
//!   threads, and fences beside relaxed atomics; collectives other than `sync_warp` order nothing. Lanes of a warp
//!   may store one value to one place in one instruction; any other unordered write is a race, whatever it writes.
//!   A race does not depend on which thread happens to run first.
//!
//! # What is not
//!
//! - Clocks are a warp's, not a lane's: what one lane acquires counts for its warp, what one lane releases covers
//!   what its warp did before, and a named barrier that part of a warp passes counts for the warp.
//! - A granule keeps one writer and one reader (and whether there were others). A thread that reads plainly what
//!   it updated atomically itself, after updates by others, goes unnoticed unless another update follows.
//! - While a table is split because the first smaller access came, accesses of other OS threads may be missed.
//! - Blocks 2^18 apart share a number; a launch whose blocks pass half a million barriers is no longer checked
//!   for races; beyond 4096 access sites a report's other line may be unknown.
//! - A loop without any access or barrier hangs. Memory that `SIMT_STACK_KB` (64) cannot hold is found by guard
//!   pages for the first 8192 lanes of a process, and by a canary, perhaps too late, for those beyond.
//! - An asynchronous copy reads its source when it is issued, so a source that changes on its way goes unnoticed
//!   unless the change races with the issue.
//! - Sums of fragments are added in the order of their terms, which is not hardware's. The warps of a warpgroup are not
//!   compared with one another.
//! - Weak memory: values are sequentially consistent, so a wrong order shows as a race, never as a stale value.
#![deny(missing_docs)]

mod access;
mod arena;
pub mod async_copy;
pub mod atomic;
pub mod barrier;
pub mod bulk;
mod check;
mod clock;
mod ctx;
mod fault;
mod lane;
pub mod launch;
pub mod matrix;
pub mod mbarrier;
pub mod memory;
mod pages;
mod race;
pub mod report;
mod sched;
mod shadow;
pub mod shared;
mod signal;
mod site;
mod stack;
pub mod thread;
pub mod warp;
pub mod warpgroup;
mod word;

pub use async_copy::{commit_copies, copy_async, copy_part_async, wait_copies};
pub use atomic::{Ordering, Scope, fence, spin_wait};
pub use barrier::{
    arrive_named, sync_block, sync_block_and, sync_block_count, sync_block_or, sync_cluster, sync_grid,
    sync_named,
};
pub use launch::{Checks, Launch, Limits, Stats, launch};
pub use memory::{ALIGNMENT, Memory, POISON, View};
pub use report::{Kind, Other, Report};
pub use shared::{SharedView, StaticShared, dynamic, from_address, static_array};
pub use site::Site;
pub use thread::{
    block_dim, block_idx, cluster_rank, cluster_size, dynamic_shared_bytes, grid_dim, lane_id, thread_idx,
    warp_id,
};
pub use warp::{Compute, active_mask, collective, sync_warp};
