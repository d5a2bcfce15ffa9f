//! Wrong kernels: races. Each asserts the lines of both accesses.
// Every access of these kernels is checked by the launch: that is what is tested.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::*;
use simt::Ordering::{AcqRel, Acquire, Relaxed, Release};
use simt::*;

static ARRAY: StaticShared = StaticShared::new(256 * 4, 16);

fn array() -> SharedView<u32> {
    static_array(&ARRAY, 256)
}

#[test]
fn a_missing_barrier_between_write_and_read() {
    let at = lines();
    let r = race(&one("missing", 1, 64), &at, &|| unsafe {
        at.a.set(line!() + 1);
        array().store(tid(), 1);
        at.b.set(line!() + 1);
        array().load(63 - tid());
    });
    assert!(r.detail.contains("shared memory"), "{r}");
}

#[test]
fn a_missing_barrier_between_read_and_overwrite() {
    let at = lines();
    race(&one("reuse", 1, 64), &at, &|| unsafe {
        array().store(tid(), 1);
        sync_block();
        at.a.set(line!() + 1);
        array().load((tid() + 32) % 64);
        at.b.set(line!() + 1);
        array().store(tid(), 2);
    });
}

#[test]
fn all_read_and_one_overwrites_its_own_reading() {
    let at = lines();
    race(&one("broadcast", 1, 32), &at, &|| unsafe {
        if tid() == 0 {
            array().store(0, 1);
        }
        sync_block();
        at.a.set(line!() + 1);
        let v = array().load(0);
        sum(u32::MAX, v as u64);
        if tid() == 0 {
            at.b.set(line!() + 1);
            array().store(0, 2);
        }
    });
}

#[test]
fn lanes_exchange_through_shared_memory_without_sync_warp() {
    let at = lines();
    race(&one("warp", 1, 32), &at, &|| unsafe {
        at.a.set(line!() + 1);
        array().store(tid(), 1);
        at.b.set(line!() + 1);
        array().load(tid() ^ 1);
    });
}

#[test]
fn a_shuffle_does_not_order_memory() {
    let at = lines();
    let r = race(&one("shuffle", 1, 32), &at, &|| unsafe {
        at.a.set(line!() + 1);
        array().store(tid(), 1);
        shuffle(u32::MAX, 1, 0);
        at.b.set(line!() + 1);
        array().load(tid() ^ 1);
    });
    assert_eq!(r.block, [0; 3]);
}

#[test]
fn a_sync_warp_of_half_a_warp_does_not_order_the_other_half() {
    let at = lines();
    race(&one("halves", 1, 32), &at, &|| unsafe {
        at.a.set(line!() + 1);
        array().store(tid(), 1);
        let half = if tid() < 16 { 0xffff } else { 0xffff_0000 };
        sync_warp(half);
        at.b.set(line!() + 1);
        array().load((tid() + 16) % 32);
    });
}

#[test]
fn lanes_store_different_values_to_one_place() {
    let at = lines();
    let (_m, x) = uninit::<u32>(1);
    race(&one("winner", 1, 32), &at, &|| unsafe {
        at.a.set(line!() + 2);
        at.b.set(line!() + 1);
        x.store(0, tid() as u32);
    });
}

#[test]
fn warps_store_the_same_value_to_one_place() {
    let at = lines();
    let (_m, x) = uninit::<u32>(1);
    race(&one("warps", 1, 64), &at, &|| unsafe {
        at.a.set(line!() + 2);
        at.b.set(line!() + 1);
        x.store(0, 7);
    });
}

#[test]
fn two_blocks_overlap_in_one_cell() {
    // Many times and on all cores: the detection does not depend on timing.
    for _ in 0..50 {
        let at = lines();
        let (m, y) = uninit::<u32>(64 * 128);
        m.set_name("y");
        let r = race(&one("overlap", 64, 128), &at, &|| unsafe {
            let first = bid() * 128;
            at.a.set(line!() + 3);
            at.b.set(line!() + 2);
            let i = first + tid() + (bid() == 20 && tid() == 127) as usize;
            y.store(i, tid() as u32);
        });
        let mut blocks = [r.block[0], r.other.clone().expect("both").block[0]];
        blocks.sort_unstable();
        assert_eq!(blocks, [20, 21], "{r}");
        assert!(r.detail.contains("byte 10752 of `y`"), "{r}");
    }
}

#[test]
fn a_block_reads_what_another_writes() {
    let at = lines();
    let (_m, x) = of(&[0u32; 256]);
    race(&one("neighbour", 2, 128), &at, &|| unsafe {
        at.a.set(line!() + 1);
        x.store(bid() * 128 + tid(), 1);
        at.b.set(line!() + 1);
        x.load((bid() * 128 + tid() + 128) % 256);
    });
}

#[test]
fn all_blocks_read_and_one_writes_behind_its_barrier() {
    let at = lines();
    let (_m, x) = of(&[0u32; 1]);
    race(&one("late", 4, 32), &at, &|| unsafe {
        at.a.set(line!() + 1);
        x.load(0);
        sync_block();
        if bid() == 3 && tid() == 0 {
            at.b.set(line!() + 1);
            x.store(0, 1);
        }
    });
}

#[test]
fn a_byte_store_in_a_word_that_another_thread_reads() {
    let at = lines();
    let (m, x) = of(&[0u32; 8]);
    let bytes: View<u8> = m.view(0, 32);
    race(&one("bytes", 1, 64), &at, &|| unsafe {
        if tid() < 8 {
            at.a.set(line!() + 1);
            x.load(tid());
        }
        if tid() == 40 {
            at.b.set(line!() + 1);
            bytes.store(13, 1);
        }
    });
}

#[test]
fn a_vector_overlaps_a_scalar() {
    let at = lines();
    let (_m, x) = uninit::<f32>(8);
    race(&one("mixed", 1, 64), &at, &|| unsafe {
        if tid() == 0 {
            at.a.set(line!() + 1);
            x.store_vector(4, [1f32; 4]);
        }
        if tid() == 33 {
            at.b.set(line!() + 1);
            x.store(6, 1.0);
        }
    });
}

#[test]
fn a_plain_read_of_an_atomic_counter() {
    let at = lines();
    let (_m, n) = of(&[0u32; 1]);
    race(&one("counter", 1, 64), &at, &|| unsafe {
        at.a.set(line!() + 1);
        n.atomic_rmw(0, AcqRel, Scope::Device, |v| v + 1);
        if tid() == 5 {
            at.b.set(line!() + 1);
            n.load(0);
        }
        sync_block();
    });
}

/// A block of three counts twice, in place of another that is late: the natural order gives no sign of it.
#[test]
fn a_block_that_runs_ahead() {
    let run = |seed: u64, twice: bool| {
        let (_d, data) = of(&[0u32; 1]);
        let (_c, counter) = of(&[0u32; 1]);
        let l = Launch { cooperative: true, seed, ..one("ahead", 3, 1) };
        launch(&l, &|| unsafe {
            let arrive = || counter.atomic_rmw(0, Release, Scope::Device, |n| n + 1);
            match bid() {
                0 => {
                    while counter.atomic_load(0, Acquire, Scope::Device) < 2 {}
                    data.load(0);
                }
                1 => {
                    data.store(0, 42);
                    arrive();
                }
                _ => {
                    arrive();
                    if twice {
                        arrive();
                    }
                }
            }
        })
    };
    for seed in 0..16 {
        run(seed, false).expect("both are waited for");
    }
    run(0, true).expect("the late block is not late");
    let found = (1..16).filter(|&seed| run(seed, true).is_err_and(|report| report.kind == Kind::Race));
    assert!(found.count() > 2);
}

/// Block 0 publishes, block 1 waits for the flag and reads.
fn flag_kernel(
    at: &Lines,
    order: (simt::Ordering, simt::Ordering),
    scope: Scope,
) -> Result<Stats, Box<Report>> {
    let (_d, data) = of(&[0u32; 1]);
    let (_f, flag) = of(&[0u32; 1]);
    let l = Launch { cooperative: true, ..one("flag", 2, 1) };
    launch(&l, &|| unsafe {
        if bid() == 0 {
            at.a.set(line!() + 1);
            data.store(0, 42);
            flag.atomic_store(0, 1, order.0, scope);
        } else {
            while flag.atomic_load(0, order.1, scope) == 0 {}
            at.b.set(line!() + 1);
            assert_eq!(data.load(0), 42);
        }
    })
}

#[test]
fn a_relaxed_flag() {
    for order in [(Relaxed, Relaxed), (Release, Relaxed), (Relaxed, Acquire)] {
        let at = lines();
        let r = flag_kernel(&at, order, Scope::Device).expect_err("relaxed");
        assert_eq!(r.kind, Kind::Race, "{r}");
        assert_eq!((r.site.line, r.other.clone().expect("both").site.line), (at.b.get(), at.a.get()), "{r}");
    }
    flag_kernel(&lines(), (Release, Acquire), Scope::Device).expect("release and acquire order");
    flag_kernel(&lines(), (AcqRel, AcqRel), Scope::System).expect("so do stronger ones");
}

#[test]
fn a_flag_of_block_scope_between_blocks() {
    let r = flag_kernel(&lines(), (Release, Acquire), Scope::Block).expect_err("block scope");
    assert_eq!(r.kind, Kind::Race, "{r}");
    assert!(r.detail.contains("scopes"), "{r}");
}

#[test]
fn atomics_of_block_scope_in_two_blocks() {
    let at = lines();
    let (_m, n) = of(&[0u32; 1]);
    race(&one("scope", 8, 32), &at, &|| unsafe {
        at.a.set(line!() + 2);
        at.b.set(line!() + 1);
        n.atomic_rmw(0, Relaxed, Scope::Block, |v| v + 1);
    });
}

/// Blocks add partial results; the last one reads them all.
fn split(order: simt::Ordering, barrier: bool) -> Result<Stats, Box<Report>> {
    let (_p, partial) = uninit::<u32>(4 * 64);
    let (_n, count) = of(&[0u32; 1]);
    static LAST: StaticShared = StaticShared::new(4, 4);
    launch(&one("split", 4, 64), &|| unsafe {
        partial.store(bid() * 64 + tid(), 1);
        if barrier {
            sync_block();
        }
        let last = static_array::<u32>(&LAST, 1);
        if tid() == 0 {
            last.store(0, count.atomic_rmw(0, order, Scope::Device, |v| v + 1));
        }
        sync_block();
        if last.load(0) == 3 {
            (0..4).for_each(|b| assert_eq!(partial.load(b * 64 + tid()), 1));
        }
    })
}

#[test]
fn split_k_with_relaxed_counter_or_without_barrier() {
    assert_eq!(split(Relaxed, true).expect_err("relaxed").kind, Kind::Race);
    assert_eq!(split(Release, true).expect_err("no acquire").kind, Kind::Race);
    assert_eq!(split(AcqRel, false).expect_err("no barrier").kind, Kind::Race);
    split(AcqRel, true).expect("acq_rel and a barrier order");
}

#[test]
fn a_fence_on_one_side_only() {
    for (release, acquire) in [(true, false), (false, true), (true, true)] {
        let (_d, data) = of(&[0u32; 1]);
        let (_f, flag) = of(&[0u32; 1]);
        let l = Launch { cooperative: true, ..one("fence", 2, 1) };
        let result = launch(&l, &|| unsafe {
            if bid() == 0 {
                data.store(0, 42);
                if release {
                    fence(AcqRel, Scope::Device);
                }
                flag.atomic_store(0, 1, Relaxed, Scope::Device);
            } else {
                while flag.atomic_load(0, Relaxed, Scope::Device) == 0 {}
                if acquire {
                    fence(AcqRel, Scope::Device);
                }
                assert_eq!(data.load(0), 42);
            }
        });
        assert_eq!(result.map_err(|r| r.kind).err(), (!(release && acquire)).then_some(Kind::Race));
    }
}

#[test]
fn cluster_shared_memory_without_a_cluster_barrier() {
    let at = lines();
    let l = Launch { cluster: 2, ..one("dsmem", 2, 32) };
    race(&l, &at, &|| unsafe {
        array().store(tid(), 0);
        sync_cluster();
        at.a.set(line!() + 1);
        array().store_remote(1 - cluster_rank(), tid(), 1);
        sync_block();
        at.b.set(line!() + 1);
        array().load(tid());
        sync_cluster();
    });
}

#[test]
fn a_named_barrier_that_leaves_out_the_writer() {
    let at = lines();
    race(&one("named", 1, 96), &at, &|| unsafe {
        if tid() >= 64 {
            at.a.set(line!() + 1);
            array().store(tid() - 64, 1);
        } else {
            sync_named(1, 64);
            if tid() < 32 {
                at.b.set(line!() + 1);
                array().store(tid(), 2);
            }
        }
    });
}

#[test]
fn a_grid_without_grid_barrier() {
    let at = lines();
    let (_m, x) = of(&[0u32; 64]);
    let l = Launch { cooperative: true, ..one("grid", 2, 32) };
    race(&l, &at, &|| unsafe {
        at.a.set(line!() + 1);
        x.store(bid() * 32 + tid(), 1);
        sync_block();
        at.b.set(line!() + 1);
        x.load(63 - bid() * 32 - tid());
    });
}

#[test]
fn a_copy_into_what_another_thread_reads() {
    let l = Launch { shared_bytes: 64, ..one("copies", 1, 64) };
    wrong(&l, Kind::Race, &|| unsafe {
        let slots = dynamic::<u8>(0, 64);
        if tid() == 0 {
            copy_async(slots, 0, [1; 16]);
            commit_copies();
            wait_copies(0);
        }
        sync_block();
        if tid() == 63 {
            slots.load_vector::<16>(0);
        }
        if tid() == 0 {
            copy_async(slots, 0, [2; 16]);
        }
    });
}
