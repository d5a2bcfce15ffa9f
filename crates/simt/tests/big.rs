//! Many lanes, many launches.
// Every access of these kernels is checked by the launch: that is what is tested.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::*;
use simt::*;

#[test]
fn thirty_two_thousand_live_lanes() {
    let (y, yv) = of(&vec![0u32; 32 * 1024]);
    let l = Launch { cooperative: true, ..one("lanes", 32, 1024) };
    let stats = launch(&l, &|| unsafe {
        let i = bid() * 1024 + tid();
        yv.store(i, i as u32);
        sync_grid();
        let v = yv.load(32_767 - i);
        sync_grid();
        yv.store(i, v);
    });
    assert_eq!(stats.expect("right").threads, 32_768);
    assert!(read::<u32>(&y).iter().enumerate().all(|(i, &v)| v as usize == 32_767 - i));
}

#[test]
fn a_cooperative_grid_of_132_blocks_and_ten_barriers() {
    let l = Launch { cooperative: true, ..one("barriers", 132, 128) };
    launch(&l, &|| (0..10).for_each(|_| sync_grid())).expect("right");
}

#[test]
fn many_small_launches_pass_the_end_of_an_era() {
    let (_m, x) = of(&[0u32; 64]);
    let (_n, y) = uninit::<u32>(64);
    for _ in 0..300 {
        launch(&one("small", 1, 64), &|| unsafe {
            for _ in 0..2000 {
                sync_block();
            }
            y.store(63 - tid(), x.load(tid()));
            sync_block();
            x.store(tid(), y.load(tid()));
        })
        .expect("right");
    }
}

#[test]
fn launches_from_several_threads_at_once() {
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for n in 1..20 {
                    let (m, y) = uninit::<u32>(n * 256);
                    launch(&one("parallel", n as u32, 256), &|| unsafe {
                        y.store(bid() * 256 + tid(), sum(u32::MAX, 1) as u32);
                        sync_block();
                    })
                    .expect("right");
                    assert_eq!(read::<u32>(&m), vec![32; n * 256]);
                }
            });
        }
    });
}
