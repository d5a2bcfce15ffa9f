//! Words posted to other blocks of a cluster and counted at their barriers: what is right is silent, and each mistake is
//! reported.

mod common;

use common::{one, read, right, tid, uninit, wrong};
use simt::{Kind, Launch, SharedView, View, cluster_rank, cluster_size, dynamic, mbarrier, sync_cluster};

const BLOCKS: u32 = 4;
const THREADS: u32 = 32;
const WORDS: u32 = THREADS * 8;

fn words() -> SharedView<u64> {
    dynamic(0, THREADS)
}

fn barrier() -> SharedView<u64> {
    dynamic(WORDS, 1)
}

/// What a kernel may leave out.
#[derive(Clone, Copy, Default)]
struct Without {
    barrier: bool,
    init_fence: bool,
    cluster_barrier: bool,
    wait: bool,
    reading: bool,
}

/// Each thread posts a word to the next block of the cluster, and writes what has come.
fn pass_on(y: View<u64>, without: Without) {
    // SAFETY: checked by the launch.
    unsafe {
        if tid() == 0 && !without.barrier {
            mbarrier::init(barrier(), 0, 1);
            if !without.init_fence {
                mbarrier::fence_init();
            }
            mbarrier::arrive(barrier(), 0, WORDS);
        }
        if !without.cluster_barrier {
            sync_cluster();
        }
        let next = (cluster_rank() + 1) % cluster_size();
        mbarrier::post(words(), next, tid(), u64::from(cluster_rank()) << 32 | tid() as u64, barrier(), 0);
        if without.wait {
            sync_cluster(); // all have posted before a block ends
        } else {
            mbarrier::wait(barrier(), 0, 0);
        }
        if !without.reading {
            y.store(simt::block_idx()[0] as usize * THREADS as usize + tid(), words().load(tid()));
        }
    }
}

fn launch(name: &'static str) -> Launch<'static> {
    Launch { cluster: BLOCKS / 2, shared_bytes: WORDS + 8, ..one(name, BLOCKS, THREADS) }
}

fn mistake(without: Without, kind: Kind) -> simt::Report {
    let (_y, y) = uninit::<u64>((BLOCKS * THREADS) as usize);
    wrong(&launch("posts"), kind, &|| pass_on(y, without))
}

#[test]
fn what_is_posted_and_waited_for_is_there() {
    let (memory, y) = uninit::<u64>((BLOCKS * THREADS) as usize);
    right(&launch("posts"), &|| pass_on(y, Without::default()));
    for (i, word) in read::<u64>(&memory).into_iter().enumerate() {
        let (block, thread) = (i as u32 / THREADS, i as u64 % u64::from(THREADS));
        assert_eq!(word, u64::from(1 - block % 2) << 32 | thread, "block {block}, thread {thread}");
    }
}

#[test]
fn what_is_not_waited_for_is_not_there() {
    mistake(Without { wait: true, ..Default::default() }, Kind::Uninitialized);
    let r = mistake(Without { wait: true, reading: true, ..Default::default() }, Kind::InvalidAccess);
    assert!(r.detail.contains("posted"), "{r}");
}

#[test]
fn posts_want_barriers_that_are_known_to_the_cluster() {
    mistake(Without { barrier: true, ..Default::default() }, Kind::Uninitialized);
    let r = mistake(Without { init_fence: true, ..Default::default() }, Kind::InvalidAccess);
    assert!(r.detail.contains("fence_init"), "{r}");
    let (_y, y) = uninit::<u64>((BLOCKS * THREADS) as usize);
    let without = Without { cluster_barrier: true, ..Default::default() };
    let report = simt::launch(&launch("unsynchronised"), &|| pass_on(y, without)).unwrap_err();
    assert!(matches!(report.kind, Kind::Race | Kind::Uninitialized), "{report}");
}
