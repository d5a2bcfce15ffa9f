//! Counting barriers and copies of boxes: what is right is silent, and each mistake is reported.

mod common;

use common::{of, one, read, right, tid, uninit, wrong};
use simt::bulk::{self, TensorMap};
use simt::{Kind, Launch, Ordering, Scope, SharedView, View, dynamic, mbarrier, sync_block};

/// Rows of a box of 64 numbers of 16 bits, its bytes, and where the barriers lie behind two of them.
const ROWS: usize = 8;
const BYTES: u32 = 8 * 128;
const BARRIERS: u32 = 2 * BYTES;

/// A matrix of `rows` rows of `cols` numbers, with boxes of 8 rows of 64.
fn map(data: View<u16>, [rows, cols]: [usize; 2]) -> TensorMap {
    let row = 2 * cols as u64;
    TensorMap {
        data: data.cast(),
        element: 2,
        extents: [cols as u64, rows as u64, 1, 1],
        strides: [2, row, 16, 16],
        boxed: [64, ROWS as u32, 1, 1],
        tf32: false,
    }
}

fn stage(index: u32) -> SharedView<u8> {
    dynamic(index * BYTES, BYTES)
}

/// *Full* of two stages, then *empty* of both.
fn barriers() -> SharedView<u64> {
    dynamic(BARRIERS, 4)
}

/// What a kernel may leave out.
#[derive(Clone, Copy, Default)]
struct Without {
    wait_for_full: bool,
    wait_for_empty: bool,
    init_fence: bool,
    write_fence: bool,
    store_wait: bool,
    last_wait: bool,
    sync_after_init: bool,
    announced_bytes: u32,
    wrong_parity: bool,
    rows_in_front: bool,
    early_use: bool,
}

/// Two warps: one loads boxes in turn, the other doubles what is in them and stores the results.
fn pipeline(x: TensorMap, y: TensorMap, without: Without) {
    let (warp, lane) = (tid() / 32, tid() % 32);
    let boxes = x.extents[1].div_ceil(ROWS as u64) as u32;
    // SAFETY: checked by the launch.
    unsafe {
        if tid() == 0 {
            for stage in 0..2 {
                mbarrier::init(barriers(), stage, 1);
                mbarrier::init(barriers(), 2 + stage, 1);
            }
            if !without.init_fence {
                mbarrier::fence_init();
            }
        }
        if !without.sync_after_init {
            sync_block();
        }
        if warp == 0 {
            for index in 0..if lane == 0 { boxes } else { 0 } {
                let (turn, parity) = ((index % 2) as usize, index / 2 % 2);
                if !without.wait_for_empty {
                    mbarrier::wait(barriers(), 2 + turn, parity ^ 1);
                }
                mbarrier::arrive(barriers(), turn, BYTES - without.announced_bytes);
                let at = [0, (index as usize * ROWS) as i32, 0, 0];
                bulk::load_box(stage(turn as u32), &x, at, barriers(), turn);
            }
            return;
        }
        for index in 0..boxes {
            let (turn, parity) = ((index % 2) as usize, index / 2 % 2);
            if !without.wait_for_full {
                mbarrier::wait(barriers(), turn, parity ^ u32::from(without.wrong_parity));
            }
            let tile = stage(turn as u32).cast::<u16>();
            // Each lane doubles sixteen neighbours in memory.
            for i in 16 * lane..16 * lane + 16 {
                tile.store(i, 2 * tile.load(i));
            }
            if !without.write_fence {
                bulk::fence_proxy();
            }
            simt::sync_warp(u32::MAX);
            if lane == 0 {
                let row = (index as usize * ROWS) as i32 - i32::from(without.rows_in_front);
                bulk::store_box(stage(turn as u32), &y, [0, row, 0, 0]);
                bulk::commit_stores();
                if !without.store_wait {
                    bulk::wait_stores(0);
                }
            }
            simt::sync_warp(u32::MAX);
            if lane == 0 {
                mbarrier::arrive(barriers(), 2 + turn, 0);
            }
            if without.early_use && lane == 1 {
                tile.load(0);
            }
        }
        if lane == 0 && without.store_wait && !without.last_wait {
            bulk::wait_stores(0);
        }
    }
}

fn launch(kernel: &str) -> Launch<'_> {
    Launch { shared_bytes: BARRIERS + 32, ..one(kernel, 1, 64) }
}

/// Rows and columns that are no multiples of a box's.
const SHAPE: [usize; 2] = [37, 56];

fn numbers() -> Vec<u16> {
    (0..(SHAPE[0] * SHAPE[1]) as u16).collect()
}

#[track_caller]
fn report(without: Without, kind: Kind) -> simt::Report {
    let (_x, x) = of(&numbers());
    let (_y, y) = uninit::<u16>(SHAPE[0] * SHAPE[1]);
    let (x, y) = (map(x, SHAPE), map(y, SHAPE));
    wrong(&launch("pipeline"), kind, &|| pipeline(x, y, without))
}

#[test]
fn a_pipeline_of_boxes_is_right() {
    let (_x, x) = of(&numbers());
    let (memory, y) = uninit::<u16>(SHAPE[0] * SHAPE[1]);
    let (x, y) = (map(x, SHAPE), map(y, SHAPE));
    right(&launch("pipeline"), &|| pipeline(x, y, Without::default()));
    let want: Vec<u16> = numbers().iter().map(|n| 2 * n).collect();
    assert_eq!(read::<u16>(&memory), want);
}

#[test]
fn a_box_lies_swizzled_with_zeros_beyond_the_tensor() {
    let (_x, x) = of(&numbers());
    let (memory, out) = uninit::<u16>(ROWS * 64);
    let x = map(x, SHAPE);
    right(&launch("swizzle"), &|| {
        // SAFETY: checked by the launch.
        unsafe {
            if tid() == 0 {
                mbarrier::init(barriers(), 0, 1);
                mbarrier::fence_init();
                mbarrier::arrive(barriers(), 0, BYTES);
                bulk::load_box(stage(0), &x, [0, 32, 0, 0], barriers(), 0);
            }
            sync_block();
            mbarrier::wait(barriers(), 0, 0);
            for i in 8 * tid()..8 * tid() + 8 {
                out.store(i, stage(0).cast::<u16>().load(i));
            }
        }
    });
    let got = read::<u16>(&memory);
    for row in 0..ROWS {
        for col in 0..64 {
            let exists = 32 + row < SHAPE[0] && col < SHAPE[1];
            let want = if exists { ((32 + row) * SHAPE[1] + col) as u16 } else { 0 };
            assert_eq!(got[row * 64 + ((col / 8) ^ row) * 8 + col % 8], want, "{row}, {col}");
        }
    }
}

#[test]
fn a_box_that_is_read_before_it_came_is_a_race_or_not_there() {
    let (_x, x) = of(&numbers());
    let (_y, y) = uninit::<u16>(SHAPE[0] * SHAPE[1]);
    let (x, y) = (map(x, SHAPE), map(y, SHAPE));
    let without = Without { wait_for_full: true, ..Default::default() };
    let report = simt::launch(&launch("early"), &|| pipeline(x, y, without)).unwrap_err();
    assert!(matches!(report.kind, Kind::Race | Kind::Uninitialized), "{report}");
}

#[test]
fn a_stage_that_is_filled_before_it_is_free_is_reported() {
    // Unless the producer comes round to a barrier whose copies nobody has waited for.
    report(Without { wait_for_empty: true, ..Default::default() }, Kind::Deadlock);
}

#[test]
fn a_stage_that_is_read_after_it_was_given_back_is_a_race() {
    report(Without { early_use: true, ..Default::default() }, Kind::Race);
}

#[test]
fn a_wait_for_the_other_parity_is_reported() {
    let (_x, x) = of(&numbers());
    let (_y, y) = uninit::<u16>(SHAPE[0] * SHAPE[1]);
    let (x, y) = (map(x, SHAPE), map(y, SHAPE));
    let without = Without { wrong_parity: true, ..Default::default() };
    let report = simt::launch(&launch("parity"), &|| pipeline(x, y, without)).unwrap_err();
    assert!(matches!(report.kind, Kind::Race | Kind::Uninitialized | Kind::Spin), "{report}");
}

#[test]
fn bytes_that_never_come_are_a_wait_without_end() {
    report(Without { announced_bytes: 16, ..Default::default() }, Kind::Spin);
}

#[test]
fn a_store_without_a_proxy_fence_is_reported() {
    let r = report(Without { write_fence: true, ..Default::default() }, Kind::InvalidAccess);
    assert!(r.detail.contains("proxy fence"), "{r}");
}

#[test]
fn a_store_that_begins_before_its_tensor_is_reported() {
    let r = report(Without { rows_in_front: true, ..Default::default() }, Kind::InvalidAccess);
    assert!(r.detail.contains("from -1 on along dimension 1"), "{r}");
}

#[test]
fn a_stage_that_is_overwritten_under_a_store_is_a_race() {
    report(Without { store_wait: true, ..Default::default() }, Kind::Race);
}

#[test]
fn a_thread_that_leaves_its_stores_behind_is_reported() {
    // One box: nothing overwrites it.
    let (_x, x) = of(&numbers());
    let (_y, y) = uninit::<u16>(SHAPE[0] * SHAPE[1]);
    let (x, y) = (map(x, [8, 56]), map(y, [8, 56]));
    let without = Without { store_wait: true, last_wait: true, ..Default::default() };
    let r = wrong(&launch("left behind"), Kind::InvalidAccess, &|| pipeline(x, y, without));
    assert!(r.detail.contains("ends before its stores"), "{r}");
}

#[test]
fn copies_want_barriers_that_were_fenced_and_waited_for() {
    let r = report(Without { init_fence: true, ..Default::default() }, Kind::InvalidAccess);
    assert!(r.detail.contains("fence_init"), "{r}");
    let (_x, x) = of(&numbers());
    let (_y, y) = uninit::<u16>(SHAPE[0] * SHAPE[1]);
    let (x, y) = (map(x, SHAPE), map(y, SHAPE));
    let without = Without { sync_after_init: true, ..Default::default() };
    let report = simt::launch(&launch("unsynchronised"), &|| pipeline(x, y, without)).unwrap_err();
    assert!(matches!(report.kind, Kind::Race | Kind::Uninitialized), "{report}");
}

#[test]
fn barriers_count_what_they_were_made_for() {
    let r = wrong(&launch("arrivals"), Kind::Deadlock, &|| {
        // SAFETY: checked by the launch.
        unsafe {
            if tid() == 0 {
                mbarrier::init(barriers(), 0, 1);
                mbarrier::init(barriers(), 1, 2);
            }
            sync_block();
            // The second phase waits for bytes, and has no arrival left.
            if tid() == 0 {
                mbarrier::arrive(barriers(), 0, 16);
                mbarrier::arrive(barriers(), 0, 0);
            }
        }
    });
    assert!(r.detail.contains("more arrivals"), "{r}");
    // SAFETY: checked by the launch.
    wrong(&launch("unmade"), Kind::Uninitialized, &|| unsafe { mbarrier::wait(barriers(), 3, 0) });
    // SAFETY: checked by the launch.
    wrong(&launch("none"), Kind::LaunchLimit, &|| unsafe { mbarrier::init(barriers(), 0, 0) });
}

/// Who waits at a barrier of its block knows what those who arrived there know of other blocks; and nothing of what nobody there has acquired.
#[test]
fn arrivals_pass_on_what_they_know_of_other_blocks() {
    let run = |acquires: bool| {
        let (_x, x) = of(&[0u32]);
        let (_flag, flag) = of(&[0u32]);
        let (_y, y) = uninit::<u32>(1);
        let shared = Launch { cooperative: true, shared_bytes: 8, ..one("passed on", 2, 64) };
        // SAFETY: checked by the launch.
        simt::launch(&shared, &|| unsafe {
            let barrier = || dynamic::<u64>(0, 1);
            if tid() == 0 {
                mbarrier::init(barrier(), 0, 1);
            }
            sync_block();
            if simt::block_idx()[0] == 0 {
                if tid() == 0 {
                    x.store(0, 7);
                    flag.atomic_store(0, 1, Ordering::Release, Scope::Device);
                }
            } else if tid() == 0 {
                let order = if acquires { Ordering::Acquire } else { Ordering::Relaxed };
                while flag.atomic_load(0, order, Scope::Device) == 0 {}
                mbarrier::arrive(barrier(), 0, 0);
            } else if tid() == 32 {
                mbarrier::wait(barrier(), 0, 0);
                y.store(0, x.load(0));
            }
        })
    };
    run(true).expect("what the first warp has acquired the second knows");
    assert_eq!(run(false).expect_err("nobody has acquired it").kind, Kind::Race);
}

/// To the nearest number of 11 bits, the even one of two; what is not finite stays.
#[test]
fn loads_of_tf32_round() {
    let one = 1f32.to_bits();
    let pairs = [
        (one + 0xfff, one),
        (one + 0x1000, one),
        (one + 0x1001, one + 0x2000),
        (one + 0x3000, one + 0x4000),
        (f32::NEG_INFINITY.to_bits(), f32::NEG_INFINITY.to_bits()),
        (0x7f80_0001, 0x7f80_0001),
        (f32::MAX.to_bits(), f32::INFINITY.to_bits()),
        (0x8000_0fff, 0x8000_0000),
    ];
    let count = ROWS * 32;
    let (_x, x) = of(&(0..count).map(|i| pairs[i % 8].0).collect::<Vec<u32>>());
    let (memory, out) = uninit::<u32>(count);
    let map = TensorMap {
        data: x.cast(),
        element: 4,
        extents: [32, ROWS as u64, 1, 1],
        strides: [4, 128, 16, 16],
        boxed: [32, ROWS as u32, 1, 1],
        tf32: true,
    };
    // SAFETY: checked by the launch.
    right(&launch("tf32"), &|| unsafe {
        if tid() == 0 {
            mbarrier::init(barriers(), 0, 1);
            mbarrier::fence_init();
        }
        sync_block();
        if tid() == 0 {
            mbarrier::arrive(barriers(), 0, BYTES);
            bulk::load_box(stage(0), &map, [0; 4], barriers(), 0);
        }
        mbarrier::wait(barriers(), 0, 0);
        for i in (tid()..count).step_by(64) {
            let byte = 4 * i;
            out.store(i, stage(0).cast::<u32>().load((byte ^ (byte / 128 % 8 * 16)) / 4));
        }
    });
    let want: Vec<u32> = (0..count).map(|i| pairs[i % 8].1).collect();
    assert_eq!(read::<u32>(&memory), want);
}

#[test]
fn maps_and_boxes_are_held_to_what_hardware_wants() {
    let (_x, x) = of(&numbers());
    let load = |map: TensorMap, to: u32| {
        move || {
            // SAFETY: checked by the launch.
            unsafe {
                if tid() == 0 {
                    mbarrier::init(barriers(), 0, 1);
                    mbarrier::fence_init();
                    bulk::load_box(dynamic(to, BYTES), &map, [0; 4], barriers(), 0);
                }
            }
        }
    };
    wrong(&launch("stride"), Kind::Misaligned, &load(map(x, [30, 57]), 0));
    wrong(&launch("address"), Kind::Misaligned, &load(map(x.offset(1), [30, 56]), 0));
    wrong(&launch("target"), Kind::Misaligned, &load(map(x, SHAPE), 64));
    let wide = TensorMap { boxed: [128, 8, 1, 1], ..map(x, SHAPE) };
    wrong(&launch("line"), Kind::LaunchLimit, &load(wide, 0));
}
