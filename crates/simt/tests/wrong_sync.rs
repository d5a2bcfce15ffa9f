//! Wrong kernels: barriers, masks, deadlocks, spins.
// Every access of these kernels is checked by the launch: that is what is tested.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::*;
use simt::Ordering::{Acquire, Relaxed};
use simt::*;
use std::time::{Duration, Instant};

#[test]
fn a_barrier_in_a_branch() {
    let line = Line::new();
    let r = wrong(&one("branch", 1, 64), Kind::BarrierDivergence, &|| {
        if tid() < 48 {
            line.set(line!() + 1);
            sync_block();
        }
    });
    assert_eq!(r.site.line, line.get());
    assert!(r.detail.contains("48 wait") && r.detail.contains("16 have exited"), "{r}");
    assert_eq!(r.other.expect("who is absent").thread, [48, 0, 0]);
}

#[test]
fn one_thread_exits_before_the_barrier() {
    let r = wrong(&one("exit", 2, 100), Kind::BarrierDivergence, &|| {
        if tid() == 99 {
            return;
        }
        sync_block();
    });
    assert_eq!(r.other.expect("who is absent").thread, [99, 0, 0]);
}

#[test]
fn lanes_of_one_warp_at_two_barriers() {
    let at = lines();
    let r = wrong(&one("two", 1, 32), Kind::BarrierDivergence, &|| {
        if tid() < 16 {
            at.a.set(line!() + 1);
            sync_block();
        } else {
            at.b.set(line!() + 1);
            sync_block();
        }
    });
    assert_eq!((r.other.expect("both").site.line, r.site.line), (at.a.get(), at.b.get()));
}

#[test]
fn part_of_the_block_in_a_shuffle_part_at_a_barrier() {
    wrong(&one("mixed", 1, 32), Kind::WarpMask, &|| {
        if tid() < 16 {
            shuffle(u32::MAX, 0, 0);
        } else {
            sync_block();
        }
    });
}

#[test]
fn a_shuffle_under_divergence() {
    let line = Line::new();
    let r = wrong(&one("diverged", 1, 32), Kind::WarpMask, &|| {
        if tid().is_multiple_of(2) {
            line.set(line!() + 1);
            shuffle(u32::MAX, 0, 0);
        }
    });
    assert_eq!(r.site.line, line.get());
}

#[test]
fn the_same_mask_at_two_places() {
    let at = lines();
    let r = wrong(&one("places", 1, 32), Kind::WarpMask, &|| {
        if tid() < 16 {
            at.a.set(line!() + 1);
            shuffle(u32::MAX, 0, 0);
        } else {
            at.b.set(line!() + 1);
            shuffle(u32::MAX, 0, 0);
        }
    });
    assert_eq!((r.other.expect("both").site.line, r.site.line), (at.a.get(), at.b.get()));
}

#[test]
fn masks_that_differ() {
    wrong(&one("masks", 1, 32), Kind::WarpMask, &|| {
        shuffle(if tid() == 7 { 0xff } else { u32::MAX }, 0, 0);
    });
}

#[test]
fn a_mask_without_the_caller() {
    let r = wrong(&one("caller", 1, 32), Kind::WarpMask, &|| {
        shuffle(0xffff, 0, 0);
    });
    assert_eq!(r.thread, [16, 0, 0], "{r}");
}

#[test]
fn a_full_mask_in_a_partial_warp() {
    let r = wrong(&one("partial", 1, 33), Kind::WarpMask, &|| {
        sum(u32::MAX, 1);
    });
    assert_eq!(r.thread, [32, 0, 0]);
    assert!(r.detail.contains("partial warp of 1"), "{r}");
}

#[test]
fn a_lane_exits_before_the_shuffle() {
    for early in [0, 31] {
        wrong(&one("gone", 1, 32), Kind::WarpMask, &|| {
            if tid() == early {
                return;
            }
            sum(u32::MAX, 1);
        });
    }
}

#[test]
fn a_named_barrier_that_waits_for_too_many() {
    let r = wrong(&one("named", 1, 128), Kind::Deadlock, &|| {
        if tid() < 64 {
            sync_named(3, 96);
        }
    });
    assert!(r.detail.contains("named barrier 3"), "{r}");
}

#[test]
fn two_groups_wait_for_each_other() {
    let r = wrong(&one("crossed", 1, 64), Kind::Deadlock, &|| {
        let (mine, theirs) = if tid() < 32 { (1, 2) } else { (2, 1) };
        sync_named(mine, 64);
        arrive_named(theirs, 64);
    });
    assert!(r.detail.contains("barrier 1") && r.detail.contains("barrier 2"), "{r}");
}

#[test]
fn named_barriers_of_odd_counts_or_ids() {
    wrong(&one("count", 1, 64), Kind::LaunchLimit, &|| sync_named(1, 33));
    wrong(&one("id", 1, 64), Kind::LaunchLimit, &|| sync_named(16, 64));
    wrong(&one("counts", 1, 64), Kind::BarrierDivergence, &|| {
        sync_named(1, if tid() < 32 { 64 } else { 32 })
    });
}

#[test]
fn a_block_misses_the_grid_barrier() {
    let l = Launch { cooperative: true, ..one("grid", 4, 32) };
    let r = wrong(&l, Kind::BarrierDivergence, &|| {
        if bid() != 2 {
            sync_grid();
        }
    });
    assert_eq!(r.other.expect("who is absent").block, [2, 0, 0]);
}

#[test]
fn a_block_misses_the_cluster_barrier() {
    let l = Launch { cluster: 2, ..one("cluster", 4, 32) };
    let r = wrong(&l, Kind::BarrierDivergence, &|| {
        if bid() != 3 {
            sync_cluster();
        }
    });
    assert_eq!((r.block, r.other.expect("who is absent").block), ([2, 0, 0], [3, 0, 0]));
}

#[test]
fn shared_memory_of_a_block_that_has_exited() {
    static CELL: StaticShared = StaticShared::new(4, 4);
    let l = Launch { cluster: 2, ..one("exited", 2, 32) };
    wrong(&l, Kind::InvalidAccess, &|| unsafe {
        let cell = static_array::<u32>(&CELL, 1);
        if tid() == 0 {
            cell.store(0, 1);
        }
        sync_cluster();
        if cluster_rank() == 1 {
            sync_block();
            cell.load_remote(0, 0);
        }
    });
    wrong(&l, Kind::InvalidAccess, &|| unsafe {
        static_array::<u32>(&CELL, 1).store_remote(2, 0, 1);
    });
}

#[test]
fn a_block_that_may_exit_before_another_has_read() {
    static CELL: StaticShared = StaticShared::new(4, 4);
    let l = Launch { cluster: 2, ..one("early", 2, 64) };
    let r = wrong(&l, Kind::InvalidAccess, &|| unsafe {
        let cell = static_array::<u32>(&CELL, 1);
        if tid() == 0 {
            cell.store(0, 1);
        }
        sync_cluster();
        if cluster_rank() == 0 {
            // What the block does with its own memory later does not hide what the other has done before.
            sync_block();
            sync_block();
        }
        cell.load_remote(0, 0);
    });
    assert!(r.detail.contains("may exit"), "{r}");
}

#[test]
fn a_flag_that_nobody_sets() {
    let (_m, flag) = of(&[0u32; 1]);
    for cooperative in [false, true] {
        let start = Instant::now();
        let line = Line::new();
        let r = wrong(&Launch { cooperative, ..one("endless", 4, 64) }, Kind::Spin, &|| unsafe {
            line.set(line!() + 1);
            while flag.atomic_load(0, Acquire, Scope::Device) == 0 {}
        });
        assert_eq!(r.site.line, line.get());
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}

#[test]
fn a_lock_that_its_holder_never_releases() {
    let (_m, lock) = of(&[0u32; 1]);
    wrong(&one("lock", 1, 2), Kind::Spin, &|| unsafe {
        while lock.compare_exchange(0, 0, 1, Acquire, Scope::Device).is_err() {}
    });
}

#[test]
fn blocks_that_wait_for_a_later_one() {
    // Enough blocks for all cores: each OS thread ends up waiting for a block that has not begun.
    let (_m, flag) = of(&[0u32; 1]);
    let start = Instant::now();
    wrong(&one("later", 512, 32), Kind::Spin, &|| unsafe {
        if bid() == 511 {
            flag.atomic_store(0, 1, Relaxed, Scope::Device);
        }
        while flag.atomic_load(0, Acquire, Scope::Device) == 0 {}
    });
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_loop_over_plain_loads_that_never_ends() {
    let (_m, x) = of(&[0u32; 1]);
    let limits = Limits { watchdog: Duration::from_millis(200), ..Limits::default() };
    wrong(&Launch { limits, ..one("plain", 1, 1) }, Kind::Spin, &|| unsafe { while x.load(0) == 0 {} });
}

#[test]
fn every_order_finds_the_missing_barrier() {
    static ARRAY: StaticShared = StaticShared::new(64 * 4, 4);
    for seed in 0..50 {
        wrong(&Launch { seed, ..one("orders", 1, 64) }, Kind::Race, &|| unsafe {
            let s = static_array::<u32>(&ARRAY, 64);
            s.store(tid(), 1);
            s.store(tid() ^ 32, 2);
        });
    }
}
