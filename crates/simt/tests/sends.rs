//! Bytes copied to other blocks of a cluster and counted at their barriers: what is right is silent, and each mistake is reported.

mod common;

use common::{one, read, right, tid, uninit, wrong};
use simt::{Kind, Launch, SharedView, View, bulk, cluster_rank, cluster_size, dynamic, mbarrier};
use simt::{sync_block, sync_cluster};

const BLOCKS: u32 = 4;
const THREADS: u32 = 32;
/// Bytes of a block's words, of which the other half are of the block before it.
const BYTES: u32 = THREADS * 8;

fn own() -> SharedView<u64> {
    dynamic(0, THREADS)
}

fn others() -> SharedView<u64> {
    dynamic(BYTES, THREADS)
}

fn barrier() -> SharedView<u64> {
    dynamic(2 * BYTES, 1)
}

/// What a kernel does wrong.
#[derive(Clone, Copy, Default)]
struct Wrong {
    no_fence: bool,
    no_init_fence: bool,
    no_barrier_of_the_block: bool,
    no_wait: bool,
    overwrites: bool,
    ends_early: bool,
    odd_place: bool,
    too_few: bool,
}

/// Each block sends its words to the next of the cluster, and writes what has come.
fn pass_on(y: View<u64>, wrong: Wrong) {
    let (rank, me) = (cluster_rank(), tid());
    // SAFETY: checked by the launch.
    unsafe {
        if me == 0 {
            mbarrier::init(barrier(), 0, 1);
            if !wrong.no_init_fence {
                mbarrier::fence_init();
            }
            mbarrier::arrive(barrier(), 0, BYTES);
        }
        sync_cluster();
        own().store(me, u64::from(rank) << 32 | me as u64);
        if !wrong.no_fence {
            bulk::fence_proxy();
        }
        if !wrong.no_barrier_of_the_block {
            sync_block();
        }
        // Not one of the warp that wrote first, so that the barrier counts.
        if me == THREADS as usize - 1 {
            let next = (rank + 1) % cluster_size();
            let to = others().cast::<u8>().offset(if wrong.odd_place { 8 } else { 0 });
            let bytes = if wrong.too_few { BYTES - 16 } else { BYTES };
            bulk::send(own().cast(), to, bytes, next, barrier(), 0);
        }
        if wrong.overwrites {
            sync_block();
            own().store(me, 0);
        }
        if wrong.ends_early && rank == 0 {
            return;
        }
        if !wrong.no_wait {
            mbarrier::wait(barrier(), 0, 0);
        }
        y.store(simt::block_idx()[0] as usize * THREADS as usize + me, others().load(me));
        if !wrong.ends_early {
            // What a block sends has come before it ends.
            sync_cluster();
        }
    }
}

fn launch(name: &'static str) -> Launch<'static> {
    Launch { cluster: BLOCKS / 2, shared_bytes: 2 * BYTES + 8, ..one(name, BLOCKS, THREADS) }
}

fn mistake(what: Wrong, kind: Kind) -> simt::Report {
    let (_y, y) = uninit::<u64>((BLOCKS * THREADS) as usize);
    wrong(&launch("sends"), kind, &|| pass_on(y, what))
}

#[test]
fn what_is_sent_and_waited_for_is_there() {
    let (memory, y) = uninit::<u64>((BLOCKS * THREADS) as usize);
    right(&launch("sends"), &|| pass_on(y, Wrong::default()));
    for (i, word) in read::<u64>(&memory).into_iter().enumerate() {
        let (block, thread) = (i as u32 / THREADS, i as u64 % u64::from(THREADS));
        assert_eq!(word, u64::from(1 - block % 2) << 32 | thread, "block {block}, thread {thread}");
    }
}

#[test]
fn what_is_not_waited_for_is_not_there() {
    mistake(Wrong { no_wait: true, ..Default::default() }, Kind::Uninitialized);
}

#[test]
fn what_is_sent_has_a_fence_behind_it() {
    let r = mistake(Wrong { no_fence: true, ..Default::default() }, Kind::InvalidAccess);
    assert!(r.detail.contains("proxy fence"), "{r}");
    let r = mistake(Wrong { no_init_fence: true, ..Default::default() }, Kind::InvalidAccess);
    assert!(r.detail.contains("fence_init"), "{r}");
}

#[test]
fn what_is_sent_stays_until_it_has_come() {
    let r = mistake(Wrong { overwrites: true, ..Default::default() }, Kind::Race);
    assert!(r.detail.contains("overwritten"), "{r}");
    mistake(Wrong { ends_early: true, ..Default::default() }, Kind::InvalidAccess);
}

#[test]
fn bytes_come_in_sixteens_and_all_of_them() {
    mistake(Wrong { odd_place: true, ..Default::default() }, Kind::Misaligned);
    let (_y, y) = uninit::<u64>((BLOCKS * THREADS) as usize);
    let few = Wrong { too_few: true, ..Default::default() };
    assert!(simt::launch(&launch("sends"), &|| pass_on(y, few)).is_err());
}
