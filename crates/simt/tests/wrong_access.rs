//! Wrong kernels: bounds, alignment, initialisation, limits, panics.
// Every access of these kernels is checked by the launch: that is what is tested.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::*;
use simt::*;

static ARRAY: StaticShared = StaticShared::new(64 * 4, 16);

#[test]
fn a_load_past_the_tail() {
    let (_m, x) = of(&[1f32; 100]);
    let line = Line::new();
    let r = wrong(&one("tail", 2, 64), Kind::OutOfBounds, &|| unsafe {
        line.set(line!() + 1);
        x.load(bid() * 64 + tid());
    });
    assert_eq!((r.block, r.thread, r.site.line), ([1, 0, 0], [36, 0, 0], line.get()));
    assert!(r.detail.contains("100"), "{r}");
}

#[test]
fn a_store_one_past_the_end() {
    let (m, x) = of(&[1f32; 32]);
    m.set_name("y");
    let r = wrong(&one("store", 1, 32), Kind::OutOfBounds, &|| unsafe { x.store(tid() + 1, 2.0) });
    assert!(r.detail.contains("`y`") && r.thread == [31, 0, 0], "{r}");
}

#[test]
fn a_vector_over_the_end() {
    let (_m, x) = of(&[1f32; 10]);
    wrong(&one("vector", 1, 1), Kind::OutOfBounds, &|| unsafe {
        x.load_vector::<4>(8);
    });
}

#[test]
fn a_prefetch_past_the_end() {
    let (_m, x) = of(&[1f32; 32]);
    wrong(&one("prefetch", 1, 33), Kind::OutOfBounds, &|| x.prefetch(tid()));
}

#[test]
fn bounds_alone_find_the_tail_as_well() {
    let (_m, x) = of(&[1f32; 32]);
    let l = Launch { checks: Checks::Bounds, ..one("bounds", 1, 33) };
    wrong(&l, Kind::OutOfBounds, &|| unsafe { x.store(tid(), 2.0) });
}

#[test]
fn before_the_first_element() {
    let (_m, x) = of(&[1f32; 32]);
    wrong(&one("before", 1, 1), Kind::InvalidAccess, &|| unsafe {
        x.offset(-1).load(0);
    });
}

#[test]
fn a_view_wider_than_its_memory() {
    let (m, _) = of(&[1f32; 32]);
    let x: View<f32> = m.view(64, 32);
    wrong(&one("wide", 1, 32), Kind::InvalidAccess, &|| unsafe {
        x.load(tid());
    });
}

#[test]
fn a_null_view() {
    wrong(&one("null", 1, 1), Kind::InvalidAccess, &|| unsafe { View::<f32>::null().store(0, 1.0) });
}

#[test]
fn a_misaligned_vector() {
    let (_m, x) = of(&[1f32; 64]);
    let r = wrong(&one("misaligned", 1, 1), Kind::Misaligned, &|| unsafe {
        x.load_vector::<4>(2);
    });
    assert!(r.detail.contains("16"), "{r}");
}

#[test]
fn a_misaligned_scalar() {
    let (m, _) = of(&[1f32; 64]);
    let x: View<f32> = m.view(2, 4);
    wrong(&one("odd", 1, 1), Kind::Misaligned, &|| unsafe { x.store(0, 1.0) });
}

#[test]
fn a_misaligned_shared_vector() {
    wrong(&one("shared vector", 1, 1), Kind::Misaligned, &|| unsafe {
        static_array::<f32>(&ARRAY, 64).store_vector(1, [0f32; 4])
    });
}

#[test]
fn an_unwritten_global_element() {
    let (m, x) = uninit::<f32>(32);
    m.set_name("scratch");
    let line = Line::new();
    let r = wrong(&one("unwritten", 1, 32), Kind::Uninitialized, &|| unsafe {
        if tid() != 5 {
            x.store(tid(), 1.0);
        }
        sync_block();
        line.set(line!() + 1);
        x.load(31 - tid());
    });
    assert_eq!((r.thread, r.site.line), ([26, 0, 0], line.get()), "{r}");
    assert!(r.detail.contains("scratch") && r.detail.contains("byte 20"), "{r}");
}

#[test]
fn a_vector_with_one_unwritten_element() {
    let (m, x) = uninit::<f32>(4);
    m.write(0, &[1; 12]);
    wrong(&one("hole", 1, 1), Kind::Uninitialized, &|| unsafe {
        x.load_vector::<4>(0);
    });
}

#[test]
fn unwritten_shared_memory_also_after_another_block_wrote_it() {
    let r = wrong(&one("shared", 2, 1), Kind::Uninitialized, &|| unsafe {
        let s = static_array::<f32>(&ARRAY, 64);
        if bid() == 0 {
            s.store(3, 1.0);
        }
        s.load(3);
    });
    assert_eq!(r.block, [1, 0, 0]);
}

#[test]
fn an_atomic_on_unwritten_memory() {
    let (_m, x) = uninit::<u32>(1);
    wrong(&one("count", 1, 1), Kind::Uninitialized, &|| unsafe {
        x.atomic_rmw(0, Ordering::Relaxed, Scope::Device, |v| v + 1);
    });
}

#[test]
fn a_shared_index_past_the_array() {
    wrong(&one("shared tail", 1, 65), Kind::OutOfBounds, &|| unsafe {
        static_array::<f32>(&ARRAY, 64).store(tid(), 1.0)
    });
}

#[test]
fn more_dynamic_memory_than_the_launch_gave() {
    let l = Launch { shared_bytes: 128, ..one("dynamic", 1, 32) };
    let r = wrong(&l, Kind::SharedLimit, &|| {
        dynamic::<f32>(0, 33);
    });
    assert!(r.detail.contains("132") && r.detail.contains("128"), "{r}");
}

#[test]
fn more_shared_memory_than_the_hardware_has() {
    let l = Launch { shared_bytes: 232_449, ..one("huge", 1, 32) };
    wrong(&l, Kind::SharedLimit, &|| ());
    let l = Launch { shared_bytes: 232_448, ..one("static too", 1, 32) };
    wrong(&l, Kind::SharedLimit, &|| {
        static_array::<f32>(&ARRAY, 64);
    });
}

#[test]
fn shapes_that_the_hardware_refuses() {
    for (grid, block) in [
        ([1, 1, 1], [1025, 1, 1]),
        ([1, 1, 1], [32, 33, 1]),
        ([1, 1, 1], [1, 1, 65]),
        ([1, 1, 1], [0, 1, 1]),
        ([1, 65_536, 1], [1, 1, 1]),
        ([1 << 31, 1, 1], [1, 1, 1]),
    ] {
        wrong(&Launch::new("shape", grid, block), Kind::LaunchLimit, &|| ());
    }
    wrong(&Launch { cluster: 3, ..one("cluster", 4, 32) }, Kind::LaunchLimit, &|| ());
    wrong(&Launch { cluster: 32, ..one("cluster", 32, 32) }, Kind::LaunchLimit, &|| ());
    wrong(&Launch { cooperative: true, ..one("resident", 265, 1024) }, Kind::LaunchLimit, &|| ());
    wrong(&one("grid", 1, 32), Kind::LaunchLimit, &sync_grid);
}

#[test]
fn a_grid_of_no_blocks_does_nothing() {
    let l = Launch::new("none", [3, 0, 1], [2000, 1, 1]);
    assert_eq!(launch(&l, &|| panic!()), Ok(Stats::default()));
}

#[test]
#[allow(arithmetic_overflow, unconditional_panic)]
fn a_kernel_that_panics() {
    let (_m, x) = of(&[200u8; 32]);
    let table = [1, 2, 3];
    let line = Line::new();
    let r = wrong(&one("index", 1, 32), Kind::Panic, &|| unsafe {
        let i = x.load(tid()) as usize;
        line.set(line!() + 1);
        std::hint::black_box(table[std::hint::black_box(i)]);
    });
    assert!(r.detail.contains("index out of bounds") && r.site.line == line.get(), "{r}");
    let r = wrong(&one("message", 1, 32), Kind::Panic, &|| {
        sync_block();
        panic!("row {} is empty", tid())
    });
    assert!(r.detail.contains("is empty"), "{r}");
}

#[test]
fn the_library_stays_usable_and_memory_fine_after_a_report() {
    let (m, x) = uninit::<u32>(64);
    for _ in 0..20 {
        wrong(&one("part", 1, 64), Kind::BarrierDivergence, &|| unsafe {
            x.store(tid(), 1);
            if tid() < 40 {
                sync_block();
            }
        });
        right(&one("whole", 1, 64), &|| unsafe {
            x.store(63 - tid(), tid() as u32);
            sync_block();
            assert_eq!(x.load(tid()), 63 - tid() as u32);
        });
    }
    assert_eq!(m.first_uninitialized(), None);
}

#[test]
fn locals_are_dropped_when_a_launch_stops() {
    use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
    static LIVE: AtomicI32 = AtomicI32::new(0);
    struct Local;
    impl Drop for Local {
        fn drop(&mut self) {
            LIVE.fetch_sub(1, Relaxed);
        }
    }
    wrong(&one("locals", 1, 64), Kind::BarrierDivergence, &|| {
        LIVE.fetch_add(1, Relaxed);
        let _local = Local;
        if tid() < 63 {
            sync_block();
        }
    });
    assert_eq!(LIVE.load(Relaxed), 0);
}

#[test]
fn a_stack_overflow() {
    fn deep(n: u64) -> u64 {
        let pad = std::hint::black_box([n; 64]);
        if n == 0 { 0 } else { deep(n - 1) + std::hint::black_box(pad)[3] }
    }
    for _ in 0..3 {
        wrong(&one("deep", 1, 64), Kind::StackOverflow, &|| {
            if tid() == 40 {
                std::hint::black_box(deep(1_000_000));
            }
            sync_block();
        });
    }
    right(&one("shallow", 1, 64), &|| {
        std::hint::black_box(deep(20));
    });
}

#[test]
#[should_panic(expected = "outside a launch")]
fn device_functions_outside_a_launch_panic() {
    thread_idx();
}

#[test]
fn host_bytes_and_unwritten_ones() {
    let m = Memory::uninit(1000);
    assert_eq!(m.as_ptr() as usize % ALIGNMENT, 0);
    assert_eq!(read::<u8>(&m), vec![POISON; 1000]);
    assert!(f32::from_bits(u32::from_le_bytes([POISON; 4])).is_nan());
    assert_eq!(m.first_uninitialized(), Some(0));
    m.write(0, &[7; 500]);
    assert_eq!(m.first_uninitialized(), Some(500));
    m.write(501, &[7; 499]);
    assert_eq!(m.first_uninitialized(), Some(500));
    m.write(500, &[7]);
    assert_eq!(m.first_uninitialized(), None);
    assert_eq!(Memory::from_bytes(&[1, 2]).first_uninitialized(), None);
    assert!(Memory::try_uninit(1 << 60).is_none() && Memory::try_uninit(usize::MAX).is_none());
    assert_eq!(Memory::uninit(0).first_uninitialized(), None);
    // A copy is of what was written, and of what was not.
    let (from, to) = (Memory::uninit(64), Memory::uninit(64));
    from.write(0, &[7; 40]);
    to.copy_from(8, &from, 0, 56);
    to.write(0, &[1; 8]);
    assert_eq!((to.first_uninitialized(), &read::<u8>(&to)[8..48]), (Some(48), &[7; 40][..]));
    to.copy_from(48, &Memory::from_bytes(&[3; 16]), 0, 16);
    assert_eq!(to.first_uninitialized(), None);
}

#[test]
fn a_pack_read_before_its_copy_was_waited_for() {
    let copy = |wait: usize| {
        move || unsafe {
            let slots = dynamic::<u8>(0, 64);
            copy_async(slots, 0, [1; 16]);
            commit_copies();
            copy_async(slots, 16, [2; 16]);
            commit_copies();
            wait_copies(wait);
            assert_eq!(slots.load_vector::<16>(0), [1; 16]);
            assert_eq!(slots.load_vector::<16>(16), [2; 16]);
        }
    };
    let l = Launch { shared_bytes: 64, ..one("copies", 1, 1) };
    let r = wrong(&l, Kind::Uninitialized, &copy(1));
    assert!(r.detail.contains("byte 16"), "{r}");
    launch(&l, &copy(0)).unwrap();
}

#[test]
fn a_copy_that_was_never_committed() {
    let l = Launch { shared_bytes: 64, ..one("copies", 1, 1) };
    wrong(&l, Kind::Uninitialized, &|| unsafe {
        let slots = dynamic::<u8>(0, 64);
        copy_async(slots, 0, [1; 16]);
        wait_copies(0);
        slots.load(3);
    });
}
