//! Right kernels: silence in every order, and the right numbers.
// Every access of these kernels is checked by the launch: that is what is tested.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::*;
use simt::Ordering::{AcqRel, Acquire, Relaxed, Release};
use simt::*;

static ARRAY: StaticShared = StaticShared::new(2048 * 4, 16);
static OTHER: StaticShared = StaticShared::new(64 * 4, 16);

fn array() -> SharedView<u32> {
    static_array(&ARRAY, 2048)
}

fn numbers(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i * 7919 % 1009).collect()
}

#[test]
fn block_reduction() {
    let data = numbers(8 * 256);
    let ((_x, x), (y, yv)) = (of(&data), uninit::<u32>(8));
    right(&one("reduce", 8, 256), &|| unsafe {
        let s = array();
        s.store(tid(), x.load(bid() * 256 + tid()));
        sync_block();
        let mut step = 128;
        while step > 0 {
            if tid() < step {
                s.store(tid(), s.load(tid()) + s.load(tid() + step));
            }
            sync_block();
            step /= 2;
        }
        if tid() == 0 {
            yv.store(bid(), s.load(0));
        }
    });
    let want: Vec<u32> = data.chunks(256).map(|c| c.iter().sum()).collect();
    assert_eq!(read::<u32>(&y), want);
}

#[test]
fn warp_reduction_and_shuffles() {
    let data = numbers(96);
    let ((_x, x), (y, yv)) = (of(&data), uninit::<u32>(96));
    right(&one("shuffles", 1, 96), &|| unsafe {
        let v = x.load(tid());
        let s = sum(u32::MAX, v as u64) as u32;
        let next = shuffle(u32::MAX, v as u64, lane_id() + 1) as u32;
        yv.store(tid(), s.wrapping_mul(1000) + next);
    });
    for (i, v) in read::<u32>(&y).into_iter().enumerate() {
        let warp = &data[i / 32 * 32..][..32];
        assert_eq!(v, warp.iter().sum::<u32>() * 1000 + warp[(i + 1) % 32]);
    }
}

#[test]
fn scan_with_double_buffering() {
    let data = numbers(512);
    let ((_x, x), (y, yv)) = (of(&data), uninit::<u32>(512));
    right(&one("scan", 1, 512), &|| unsafe {
        let s = array();
        let (mut from, mut to) = (0, 512);
        s.store(from + tid(), x.load(tid()));
        sync_block();
        let mut step = 1;
        while step < 512 {
            let v = s.load(from + tid()) + if tid() >= step { s.load(from + tid() - step) } else { 0 };
            s.store(to + tid(), v);
            sync_block();
            (from, to) = (to, from);
            step *= 2;
        }
        yv.store(tid(), s.load(from + tid()));
    });
    let mut total = 0;
    let want: Vec<u32> = data
        .iter()
        .map(|v| {
            total += v;
            total
        })
        .collect();
    assert_eq!(read::<u32>(&y), want);
}

#[test]
fn transpose_of_an_odd_matrix() {
    let (rows, cols) = (70, 45);
    let data = numbers(rows * cols);
    let ((_x, x), (y, yv)) = (of(&data), uninit::<u32>(rows * cols));
    right(&Launch::new("transpose", [2, 3, 1], [32, 8, 1]), &|| unsafe {
        let ([tx, ty, _], [bx, by, _]) = (thread_idx().map(|v| v as usize), block_idx().map(|v| v as usize));
        for j in (ty..32).step_by(8) {
            if by * 32 + j < rows && bx * 32 + tx < cols {
                array().store(j * 33 + tx, x.load((by * 32 + j) * cols + bx * 32 + tx));
            }
        }
        sync_block();
        for j in (ty..32).step_by(8) {
            if bx * 32 + j < cols && by * 32 + tx < rows {
                yv.store((bx * 32 + j) * rows + by * 32 + tx, array().load(tx * 33 + j));
            }
        }
    });
    let out = read::<u32>(&y);
    assert!((0..rows * cols).all(|i| out[i % cols * rows + i / cols] == data[i]));
    assert_eq!(y.first_uninitialized(), None);
}

#[test]
fn histogram_in_shared_then_global_memory() {
    let data = numbers(16 * 1024);
    let ((_x, x), (h, hv)) = (of(&data), of(&[0u32; 64]));
    let body = || unsafe {
        let bins = static_array::<u32>(&OTHER, 64);
        if tid() < 64 {
            bins.store(tid(), 0);
        }
        sync_block();
        for i in (0..1024).step_by(128) {
            let v = x.load(bid() * 1024 + i + tid()) as usize % 64;
            bins.atomic_rmw(v, Relaxed, Scope::Block, |n| n + 1);
        }
        sync_block();
        if tid() < 64 {
            let n = bins.load(tid());
            hv.atomic_rmw(tid(), Relaxed, Scope::Device, |v| v + n);
        }
    };
    right_then(&one("histogram", 16, 128), &body, || h.write(0, &[0; 256]));
    let mut want = vec![0u32; 64];
    data.iter().for_each(|&v| want[v as usize % 64] += 1);
    assert_eq!(read::<u32>(&h), want);
}

#[test]
fn split_k_where_the_last_block_adds() {
    let (_p, partial) = uninit::<u32>(16 * 64);
    let ((c, count), (y, yv)) = (of(&[0u32; 1]), uninit::<u32>(64));
    let body = || unsafe {
        partial.store(bid() * 64 + tid(), (bid() * tid()) as u32);
        sync_block();
        let last = static_array::<u32>(&OTHER, 1);
        if tid() == 0 {
            last.store(0, count.atomic_rmw(0, AcqRel, Scope::Device, |v| v + 1));
        }
        sync_block();
        if last.load(0) == 15 {
            yv.store(tid(), (0..16).map(|b| partial.load(b * 64 + tid())).sum());
        }
    };
    right_then(&one("split-k", 16, 64), &body, || c.write(0, &[0; 4]));
    assert_eq!(read::<u32>(&y), (0..64).map(|t| 120 * t).collect::<Vec<u32>>());
}

#[test]
fn split_k_with_fences() {
    let (_p, partial) = uninit::<u32>(16);
    let ((c, count), (y, yv)) = (of(&[0u32; 1]), uninit::<u32>(1));
    let body = || unsafe {
        if tid() == 0 {
            partial.store(bid(), bid() as u32);
            fence(AcqRel, Scope::Device);
            let arrived = count.atomic_rmw(0, Relaxed, Scope::Device, |v| v + 1);
            if arrived == 15 {
                fence(AcqRel, Scope::Device);
                yv.store(0, (0..16).map(|b| partial.load(b)).sum());
            }
        }
    };
    right_then(&one("fences", 16, 32), &body, || c.write(0, &[0; 4]));
    assert_eq!(read::<u32>(&y), [120]);
}

#[test]
fn a_grid_barrier_made_of_atomics() {
    let ((c, count), (x, xv)) = (of(&[0u32; 1]), of(&numbers(8 * 64)));
    let l = Launch { cooperative: true, ..one("barrier", 8, 64) };
    let body = || unsafe {
        for round in 1..=5u32 {
            let i = (bid() * 64 + tid() + 64 * round as usize) % 512;
            let v = xv.load(i);
            xv.store(i, v + 1);
            sync_block();
            if tid() == 0 {
                count.atomic_rmw(0, AcqRel, Scope::Device, |v| v + 1);
                while count.atomic_load(0, Acquire, Scope::Device) < 8 * round {}
            }
            sync_block();
        }
    };
    let before = || {
        c.write(0, &[0; 4]);
        let bytes: Vec<u8> = numbers(512).iter().flat_map(|v| v.to_le_bytes()).collect();
        x.write(0, &bytes);
    };
    right_then(&l, &body, before);
    assert_eq!(read::<u32>(&x), numbers(512).iter().map(|v| v + 5).collect::<Vec<_>>());
}

#[test]
fn cooperative_grid_sync() {
    let (x, xv) = of(&vec![1u32; 12 * 96]);
    let l = Launch { cooperative: true, ..one("grid sync", 12, 96) };
    let body = || unsafe {
        let i = bid() * 96 + tid();
        for _ in 0..4 {
            let v = xv.load((i + 97) % 1152);
            sync_grid();
            xv.store(i, v + 1);
            sync_grid();
        }
    };
    right_then(&l, &body, || x.write(0, &[1u32; 1152].map(u32::to_le_bytes).concat()));
    assert_eq!(read::<u32>(&x), vec![5; 1152]);
}

#[test]
fn cluster_exchange_through_shared_memory() {
    let (y, yv) = uninit::<u32>(8 * 32);
    let l = Launch { cluster: 4, ..one("cluster", 8, 32) };
    right(&l, &|| unsafe {
        let s = array();
        s.store(tid(), 1000 * bid() as u32 + tid() as u32);
        sync_cluster();
        let next = (cluster_rank() + 1) % cluster_size();
        let v = s.load_remote(next, 31 - tid());
        sync_cluster();
        s.store_remote(next, tid(), v);
        sync_cluster();
        yv.store(bid() * 32 + tid(), s.load(tid()));
    });
    let out = read::<u32>(&y);
    for (i, v) in out.into_iter().enumerate() {
        // The block before wrote here what it had read here.
        assert_eq!(v as usize, 1000 * (i / 32) + 31 - i % 32);
    }
}

#[test]
fn remote_atomics_in_a_cluster() {
    let (y, yv) = uninit::<u32>(4);
    let l = Launch { cluster: 2, ..one("remote", 4, 64) };
    right(&l, &|| unsafe {
        let s = static_array::<u32>(&OTHER, 1);
        if tid() == 0 {
            s.store(0, 0);
        }
        sync_cluster();
        s.atomic_rmw_remote(1 - cluster_rank(), 0, Relaxed, Scope::Cluster, |v| v + cluster_rank() + 1);
        sync_cluster();
        if tid() == 0 {
            yv.store(bid(), s.load(0));
        }
    });
    assert_eq!(read::<u32>(&y), [128, 64, 128, 64]);
}

#[test]
fn a_word_that_another_block_stores_is_its_own_flag() {
    let (y, yv) = uninit::<u32>(64);
    let l = Launch { cluster: 2, ..one("remote", 2, 32) };
    right(&l, &|| unsafe {
        let s = static_array::<u32>(&OTHER, 32);
        s.atomic_store(tid(), 0, Relaxed, Scope::Cluster);
        sync_cluster();
        s.atomic_store_remote(1 - cluster_rank(), tid(), 100 * cluster_rank() + 1, Relaxed, Scope::Cluster);
        let mut word = 0;
        while word == 0 {
            word = s.atomic_load(tid(), Relaxed, Scope::Cluster);
            spin_wait();
        }
        sync_cluster();
        yv.store(bid() * 32 + tid(), word);
    });
    let want: Vec<u32> = (0..64).map(|i| if i < 32 { 101 } else { 1 }).collect();
    assert_eq!(read::<u32>(&y), want);
}

#[test]
fn partial_warps_of_33_threads() {
    let (y, yv) = uninit::<u32>(33);
    right(&one("33", 1, 33), &|| unsafe {
        let mask = active_mask();
        let v = sum(mask, 1) as u32;
        sync_block();
        yv.store(tid(), v);
    });
    assert_eq!(read::<u32>(&y), [[32; 32].as_slice(), &[1]].concat());
}

#[test]
fn whole_warps_that_exit_early() {
    let rows = 13;
    let (y, yv) = uninit::<u32>(rows);
    right(&one("rows", 4, 128), &|| unsafe {
        let row = bid() * 4 + warp_id() as usize;
        if row >= rows {
            return;
        }
        let v = sum(u32::MAX, (row * 32 + lane_id() as usize) as u64);
        if lane_id() == 0 {
            yv.store(row, v as u32);
        }
    });
    assert_eq!(read::<u32>(&y), (0..13).map(|r| r * 1024 + 496).collect::<Vec<u32>>());
}

#[test]
fn a_warp_exchanges_through_shared_memory_with_sync_warp() {
    let (y, yv) = uninit::<u32>(128);
    right(&one("sync_warp", 1, 128), &|| unsafe {
        let base = warp_id() as usize * 32;
        for round in 0..4u32 {
            array().store(tid(), round * 100 + lane_id());
            sync_warp(u32::MAX);
            let v = array().load(base + 31 - lane_id() as usize);
            sync_warp(u32::MAX);
            yv.store(tid(), v);
        }
    });
    assert!(read::<u32>(&y).iter().enumerate().all(|(i, &v)| v == 331 - i as u32 % 32));
}

#[test]
fn halves_of_a_warp_on_their_own() {
    let (y, yv) = uninit::<u32>(32);
    right(&one("halves", 1, 32), &|| unsafe {
        let (mask, base) = if tid() < 16 { (0xffff, 0) } else { (0xffff_0000, 16) };
        let s = array();
        for round in 0..3 {
            s.store(tid(), round);
            sync_warp(mask);
            let v = s.load(base + (tid() + 1) % 16) as u64;
            sync_warp(mask);
            if tid() < 16 {
                assert_eq!(sum(mask, v), 16 * round as u64);
            } else {
                assert_eq!(sum(mask, v + 1), 16 * (round as u64 + 1));
            }
        }
        sync_warp(u32::MAX);
        yv.store(tid(), s.load(31 - tid()));
    });
    assert_eq!(read::<u32>(&y), [2; 32]);
}

#[test]
fn a_small_group_first_then_the_warp() {
    right(&one("groups", 1, 32), &|| {
        if tid() < 4 {
            assert_eq!(sum(0xf, 1), 4);
        }
        if tid() % 2 == 1 {
            assert_eq!(sum(0xaaaa_aaaa, 1), 16);
        }
        assert_eq!(sum(u32::MAX, 1), 32);
    });
}

#[test]
fn producers_and_consumers_at_named_barriers() {
    let (y, yv) = uninit::<u32>(8 * 32);
    right(&one("pipeline", 1, 64), &|| unsafe {
        let s = array();
        let lane = lane_id() as usize;
        for k in 0..8usize {
            let stage = k % 2;
            let (full, empty) = (1 + stage as u32, 3 + stage as u32);
            if warp_id() == 0 {
                if k >= 2 {
                    sync_named(empty, 64);
                }
                s.store(stage * 32 + lane, (k * 32 + lane) as u32);
                arrive_named(full, 64);
            } else {
                sync_named(full, 64);
                yv.store(k * 32 + lane, s.load(stage * 32 + 31 - lane));
                if k < 6 {
                    arrive_named(empty, 64);
                }
            }
        }
    });
    assert!(read::<u32>(&y).iter().enumerate().all(|(i, &v)| v as usize == i / 32 * 32 + 31 - i % 32));
}

#[test]
fn counts_at_a_barrier() {
    right(&one("count", 3, 100), &|| {
        for k in 0..5 {
            assert_eq!(sync_block_count(tid().is_multiple_of(k + 1)), 99 / (k as u32 + 1) + 1);
            assert!(sync_block_and(tid() < 100) && !sync_block_and(tid() < 99));
            assert!(sync_block_or(tid() == 57) && !sync_block_or(false));
        }
    });
}

#[test]
fn whole_warps_at_different_barriers_of_the_source() {
    right(&one("roles", 1, 64), &|| unsafe {
        if warp_id() == 0 {
            array().store(tid(), 1);
            sync_block();
        } else {
            sync_block();
            assert_eq!(array().load(tid() - 32), 1);
        }
    });
}

#[test]
fn dynamic_shared_memory_in_two_parts() {
    let l = Launch { shared_bytes: 64 * 4 + 64 * 8, ..one("dynamic", 2, 64) };
    right(&l, &|| unsafe {
        assert_eq!(dynamic_shared_bytes(), 768);
        let (a, b) = (dynamic::<u32>(0, 64), dynamic::<u64>(256, 64));
        a.store(tid(), 1);
        b.store(tid(), 2);
        sync_block();
        assert_eq!(a.load(63 - tid()) as u64 + b.load(63 - tid()), 3);
        assert_eq!((b.offset(60).len(), b.byte_offset(), a.cast::<u8>().len()), (4, 256, 256));
    });
}

#[test]
fn a_lock_with_acquire_and_release() {
    let ((_l, lock), (n, nv)) = (of(&[0u32; 1]), of(&[0u32; 1]));
    let body = || unsafe {
        while lock.compare_exchange(0, 0, 1, Acquire, Scope::Device).is_err() {}
        nv.store(0, nv.load(0) + 1);
        lock.atomic_store(0, 0, Release, Scope::Device);
    };
    right_then(&one("lock", 64, 1), &body, || n.write(0, &[0; 4]));
    assert_eq!(read::<u32>(&n), [64]);
}

#[test]
fn blocks_in_a_chain_by_ticket() {
    // Decoupled look-back: a block waits for the one that took the ticket before.
    let ((t, ticket), (p, prefix)) = (of(&[0u32; 1]), of(&[0u32; 201]));
    let body = || unsafe {
        let mine = ticket.atomic_rmw(0, Relaxed, Scope::Device, |v| v + 1) as usize;
        let mut before = 1;
        while mine > 0 && {
            before = prefix.atomic_load(mine, Acquire, Scope::Device);
            before == 0
        } {}
        prefix.atomic_store(mine + 1, before + mine as u32, Release, Scope::Device);
    };
    right_then(&one("chain", 200, 1), &body, || {
        t.write(0, &[0; 4]);
        p.write(0, &[0; 804]);
    });
    assert_eq!(read::<u32>(&p)[200], 1 + 199 * 200 / 2);
}

#[test]
fn lanes_store_the_same_value() {
    let (y, yv) = uninit::<u32>(1);
    right(&one("same", 1, 32), &|| unsafe { yv.store(0, 9) });
    assert_eq!(read::<u32>(&y), [9]);
}

#[test]
fn all_read_then_one_writes_behind_the_barrier() {
    let (x, xv) = of(&[5u32; 1]);
    let body = || unsafe {
        assert_eq!(xv.load(0), 5);
        sync_block();
        if tid() == 77 {
            xv.store(0, 6);
        }
        sync_block();
        assert_eq!(xv.load(0), 6);
    };
    right_then(&one("broadcast", 1, 128), &body, || x.write(0, &5u32.to_le_bytes()));
}

#[test]
fn a_poll_of_one_address_that_is_no_spin() {
    let (_x, xv) = of(&[5u32; 1]);
    right(&one("poll", 2, 32), &|| unsafe {
        for _ in 0..500 {
            xv.atomic_rmw(0, Relaxed, Scope::Device, |v| v.max(3));
        }
    });
}

#[test]
fn element_sizes_mixed_over_launches_and_within_one() {
    let (m, bytes) = uninit::<u8>(64);
    let (words, wide): (View<u32>, View<u64>) = (m.view(0, 16), m.view(0, 8));
    right(&one("bytes", 1, 64), &|| unsafe { bytes.store(tid(), tid() as u8) });
    right(&one("words", 1, 64), &|| unsafe {
        if tid() < 16 {
            assert_eq!(words.load(tid()).to_le_bytes(), [0, 1, 2, 3].map(|b| 4 * tid() as u8 + b));
        }
        sync_block();
        if tid() < 8 {
            wide.store(tid(), 3);
        }
        sync_block();
        assert_eq!(bytes.load(tid()), if tid().is_multiple_of(8) { 3 } else { 0 });
        sync_block();
        bytes.store(tid(), tid() as u8);
    });
    assert_eq!(read::<u8>(&m), (0..64).collect::<Vec<u8>>());
}

#[test]
fn every_level_gives_the_same_numbers() {
    let data = numbers(4096);
    let (_x, x) = of(&data);
    for checks in [Checks::None, Checks::Bounds, Checks::Full] {
        let (y, yv) = uninit::<u32>(4096);
        right(&Launch { checks, ..one("levels", 32, 32) }, &|| unsafe {
            let i = (bid() * 32 + tid()) * 4;
            yv.store_vector(i, x.load_vector::<4>(i).map(|v| v + 1));
        });
        assert_eq!(read::<u32>(&y), data.iter().map(|v| v + 1).collect::<Vec<_>>());
        assert_eq!(y.first_uninitialized(), None);
    }
}
