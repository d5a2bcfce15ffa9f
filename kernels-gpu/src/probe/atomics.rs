//! Atomic operations: each one on each type, and each ordering at each scope.

use cuda_std::atomic::{AtomicInt, Ordering, Scope};
use cuda_std::prelude::*;
use cuda_std::warp::Reduce;

/// Cells that [`integer_atomics()`](fn@integer_atomics) works on: add, minimum, maximum, and, or, xor,
/// exchange, compare-exchange, and a sum by compare-exchange.
pub const INTEGER_CELLS: usize = 9;

/// The first `active` threads of the grid apply each operation to its cell, with their own value as the
/// operand; the compare-exchange expects `expected`. `before` is [cell] by thread.
///
/// # Safety
/// [`INTEGER_CELLS`] cells; `values` has an element for each active thread, `before` one for each cell.
#[kernel(family = "probe", types = [u32, i32, u64, i64], instances = [{ ; threads: 64 }])]
pub unsafe fn integer_atomics<T: AtomicInt + Reduce>(
    cells: GlobalMut<T>,
    values: Global<T>,
    before: GlobalMut<T>,
    expected: Global<T>,
    active: u32,
) {
    let me = thread::index_1d() as usize;
    if me >= active as usize {
        return;
    }
    let (relaxed, device) = (Ordering::Relaxed, Scope::Device);
    // SAFETY: the cells are accessed atomically, the rest are a thread's own elements.
    unsafe {
        let value = values.get(me);
        let mut seen = cells.atomic_load(8, relaxed, device);
        loop {
            let found = cells.atomic_compare_exchange(8, seen, seen.plus(value), relaxed, device);
            if found == seen {
                break;
            }
            seen = found;
        }
        let results = [
            cells.atomic_add(0, value, relaxed, device),
            cells.atomic_min(1, value, relaxed, device),
            cells.atomic_max(2, value, relaxed, device),
            cells.atomic_and(3, value, relaxed, device),
            cells.atomic_or(4, value, relaxed, device),
            cells.atomic_xor(5, value, relaxed, device),
            cells.atomic_exchange(6, value, relaxed, device),
            cells.atomic_compare_exchange(7, expected.get(0), value, relaxed, device),
            seen,
        ];
        for (i, result) in results.into_iter().enumerate() {
            before.set(i * active as usize + me, result);
        }
    }
}

/// The operations that f32 has: the first `active` threads add to cell 0, exchange cell 1, and load cell 2,
/// which they store to their own cell from 3 on. `before` is [add, exchange, load] by thread.
///
/// # Safety
/// `3 + active` cells, `active` values, `3·active` results.
#[kernel(family = "probe", instances = [{ ; threads: 64 }])]
pub unsafe fn float_atomics(cells: GlobalMut<f32>, values: Global<f32>, before: GlobalMut<f32>, active: u32) {
    let me = thread::index_1d() as usize;
    if me >= active as usize {
        return;
    }
    let (relaxed, device) = (Ordering::Relaxed, Scope::Device);
    // SAFETY: the cells are accessed atomically, the rest are a thread's own elements.
    unsafe {
        let value = values.get(me);
        let loaded = cells.atomic_load(2, relaxed, device);
        cells.atomic_store(3 + me, loaded, relaxed, device);
        let results = [
            cells.atomic_add(0, value, relaxed, device),
            cells.atomic_exchange(1, value, relaxed, device),
            loaded,
        ];
        for (i, result) in results.into_iter().enumerate() {
            before.set(i * active as usize + me, result);
        }
    }
}

/// The ordering that [`semantics()`](fn@semantics) has for each number.
pub const ORDERINGS: [Ordering; 4] =
    [Ordering::Relaxed, Ordering::Acquire, Ordering::Release, Ordering::AcqRel];
/// The scope that [`semantics()`](fn@semantics) has for each number.
pub const SCOPES: [Scope; 3] = [Scope::Block, Scope::Device, Scope::System];

/// One thread works on `narrow`, then on `wide`, with one ordering and scope: adds 5, exchanges for 70,
/// compares with 70 to store 800, loads, and stores the load plus 9000. Results: what each but the store
/// gave, [narrow, wide] by operation.
///
/// # Safety
/// One cell each, 8 results.
#[kernel(
    family = "probe",
    instances = [
        { ORDERING: 0, SCOPE: 0; threads: 32 }, { ORDERING: 0, SCOPE: 1; threads: 32 },
        { ORDERING: 0, SCOPE: 2; threads: 32 }, { ORDERING: 1, SCOPE: 0; threads: 32 },
        { ORDERING: 1, SCOPE: 1; threads: 32 }, { ORDERING: 1, SCOPE: 2; threads: 32 },
        { ORDERING: 2, SCOPE: 0; threads: 32 }, { ORDERING: 2, SCOPE: 1; threads: 32 },
        { ORDERING: 2, SCOPE: 2; threads: 32 }, { ORDERING: 3, SCOPE: 0; threads: 32 },
        { ORDERING: 3, SCOPE: 1; threads: 32 }, { ORDERING: 3, SCOPE: 2; threads: 32 },
    ],
)]
pub unsafe fn semantics<const ORDERING: usize, const SCOPE: usize>(
    narrow: GlobalMut<u32>,
    wide: GlobalMut<u64>,
    out: GlobalMut<u64>,
) {
    let (ordering, scope) = const { (ORDERINGS[ORDERING], SCOPES[SCOPE]) };
    // A load cannot release, a store cannot acquire.
    let loading = if matches!(ordering, Ordering::Acquire | Ordering::AcqRel) {
        Ordering::Acquire
    } else {
        Ordering::Relaxed
    };
    let storing = if matches!(ordering, Ordering::Release | Ordering::AcqRel) {
        Ordering::Release
    } else {
        Ordering::Relaxed
    };
    if thread::thread_idx_x() != 0 {
        return;
    }
    // SAFETY: one thread.
    unsafe {
        macro_rules! operate {
            ($cell:ident, $first:literal) => {
                out.set($first, u64::from($cell.atomic_add(0, 5, ordering, scope)));
                out.set($first + 1, u64::from($cell.atomic_exchange(0, 70, ordering, scope)));
                out.set($first + 2, u64::from($cell.atomic_compare_exchange(0, 70, 800, ordering, scope)));
                let loaded = $cell.atomic_load(0, loading, scope);
                out.set($first + 3, u64::from(loaded));
                $cell.atomic_store(0, loaded + 9000, storing, scope);
            };
        }
        operate!(narrow, 0);
        operate!(wide, 4);
    }
}
