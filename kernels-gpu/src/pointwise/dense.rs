//! The engine for operands that lie densely.
//!
//! Work is cut into *units*: a pack of 16 bytes of the wider type, and as many elements of the other. A thread
//! has PACKS of them, a block's width apart, and loads all before it computes. Either the launch is one run of
//! elements, which begins and ends anywhere, as long as all operands lie alike modulo a unit; or it consists
//! of rows of whole units, each operand with its own distance from row to row. With a bias, a thread's units are
//! those of neighbouring rows in the same columns: they share a unit of the bias.

use super::Function;
use crate::dropping::Dropping;
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// A launch on dense operands.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dense {
    /// Where the first element is in a, counted in elements of the view.
    pub a_base: i64,
    /// And in b.
    pub b_base: i64,
    /// And in y, which is contiguous.
    pub y_base: i64,
    /// Elements of a from row to row.
    pub a_row: i64,
    /// And of b.
    pub b_row: i64,
    /// The number of the launch's first element in the whole tensor.
    pub first: u64,
    /// What `dropout` drops; no other function looks at it.
    pub dropping: Dropping,
    /// Whole units.
    pub units: u32,
    /// Elements before the first unit: fewer than a unit has.
    pub head: u32,
    /// Elements of the launch, below 2^31; all in whole units where there are rows.
    pub count: u32,
    /// 1 for rows, 0 for one run.
    pub rows: u32,
    /// The units of a row; in a run, the length of the bias.
    pub per_row: Divisor,
    /// How many rows; in a run 0.
    pub row_count: u32,
}
cuda_std::plain_parameter!(Dense);
const _: () = assert!(size_of::<Dense>() == 6 * 8 + size_of::<Dropping>() + 5 * 4 + 12);

/// Elements of a unit, for operands of type `A` and a result of type `B`.
pub const fn unit<A: Float, B: Float>() -> usize {
    if A::PER_PACK < B::PER_PACK { A::PER_PACK } else { B::PER_PACK }
}

/// The operands, as every kernel takes them.
#[derive(Clone, Copy)]
pub(crate) struct Operands<A, B> {
    pub a: Global<A>,
    pub b: Global<A>,
    pub bias: Global<A>,
    pub y: GlobalMut<B>,
}

/// Computes the launch `p`, PACKS units a thread.
///
/// # Safety
/// The operands that `F` reads hold what `p` says, `y` too; units begin at multiples of their size; a bias has
/// at least a unit's elements; the grid covers the units, and has a block.
#[inline(always)]
pub(crate) unsafe fn run<A: Float, B: Float, F: Function, const PACKS: usize>(
    f: F,
    operands: Operands<A, B>,
    p: &Dense,
) {
    let unit = const { unit::<A, B>() };
    let (mut a, mut b, mut bias) = ([[0; 4]; PACKS], [[0; 4]; PACKS], [[0; 4]; PACKS]);
    let (mut ats, mut whens, mut functions) = ([0; PACKS], [false; PACKS], [f; PACKS]);
    // SAFETY: the caller's contract; units and elements beyond the last are not accessed.
    unsafe {
        if const { F::BIAS } && p.rows != 0 {
            let (group, within) = p.per_row.div_rem(thread::index_1d() as u32);
            let (row, column) = (group * PACKS as u32, within * unit as u32);
            let shared = operands.bias.get_pack_if(row < p.row_count, column as usize, 0);
            for i in 0..PACKS {
                let row = row + i as u32;
                whens[i] = row < p.row_count;
                ats[i] = row * p.per_row.value() * unit as u32 + column;
                let (a_row, b_row) = (row as i64 * p.a_row, row as i64 * p.b_row);
                let (a_at, b_at) = (p.a_base + a_row + column as i64, p.b_base + b_row + column as i64);
                a[i] = load(operands.a, whens[i], a_at as usize, unit);
                if const { F::SECOND } {
                    b[i] = load(operands.b, whens[i], b_at as usize, unit);
                }
                bias[i] = shared;
            }
        } else {
            let width = thread::block_dim_x();
            let first = thread::block_idx_x() * width * PACKS as u32 + thread::thread_idx_x();
            let mut numbers = [0; PACKS];
            for i in 0..PACKS {
                let number = first + i as u32 * width;
                whens[i] = number < p.units;
                ats[i] = p.head + number * unit as u32;
                numbers[i] = p.first + ats[i] as u64;
            }
            // One choice for all packs: the loads follow one another.
            if p.rows != 0 {
                for i in 0..PACKS {
                    let number = first + i as u32 * width;
                    let (row, within) = p.per_row.div_rem(if whens[i] { number } else { 0 });
                    let (row, column) = (row as i64, (within * unit as u32) as i64);
                    a[i] = load(operands.a, whens[i], (p.a_base + row * p.a_row + column) as usize, unit);
                    if const { F::SECOND } {
                        b[i] = load(operands.b, whens[i], (p.b_base + row * p.b_row + column) as usize, unit);
                    }
                }
            } else {
                for i in 0..PACKS {
                    let at = if whens[i] { ats[i] } else { p.head };
                    a[i] = load(operands.a, whens[i], (p.a_base + at as i64) as usize, unit);
                    if const { F::SECOND } {
                        b[i] = load(operands.b, whens[i], (p.b_base + at as i64) as usize, unit);
                    }
                    if const { F::BIAS } {
                        bias[i] = load_bias(operands.bias, p, p.per_row.div_rem(at).1);
                    }
                }
            }
            functions = f.of_units(numbers, unit as u32, width * unit as u32);
        }
        let mut y = [[0; 4]; PACKS];
        for i in 0..PACKS {
            y[i] = compute::<A, B, F>(functions[i], p.first + ats[i] as u64, a[i], b[i], bias[i]);
        }
        // Behind all results, so that the assembler computes them side by side.
        for i in 0..PACKS {
            store(operands.y, whens[i], (p.y_base as u64 + ats[i] as u64) as usize, unit, y[i]);
        }
        if thread::block_idx_x() == 0 {
            edge::<A, B, F>(f, operands, p);
        }
    }
}

/// The elements before the first unit and behind the last, one for each thread of a block: fewer than two
/// units.
#[inline(always)]
unsafe fn edge<A: Float, B: Float, F: Function>(f: F, operands: Operands<A, B>, p: &Dense) {
    let (thread, in_units) = (thread::thread_idx_x(), p.units * const { unit::<A, B>() as u32 });
    if thread >= p.count - in_units {
        return;
    }
    let at = if thread < p.head { thread } else { thread + in_units };
    // SAFETY: the caller's contract.
    unsafe {
        let a = operands.a.get((p.a_base + at as i64) as usize).to_f32();
        let b =
            if const { F::SECOND } { operands.b.get((p.b_base + at as i64) as usize).to_f32() } else { 0.0 };
        let bias = if const { F::BIAS } {
            operands.bias.get(p.per_row.div_rem(at).1 as usize).to_f32()
        } else {
            0.0
        };
        let y = f.one(p.first + at as u64, a, b, bias);
        operands.y.set((p.y_base + at as i64) as usize, B::from_f32(y));
    }
}

/// A unit's results.
#[inline(always)]
fn compute<A: Float, B: Float, F: Function>(f: F, at: u64, a: Pack, b: Pack, bias: Pack) -> Pack {
    let four = |pack: Pack, i: usize| {
        let ([p, q], [r, s]) = (A::pair(pack, 2 * i), A::pair(pack, 2 * i + 1));
        [p, q, r, s]
    };
    let mut y = [0; 4];
    for i in 0..const { unit::<A, B>() / 4 } {
        let [p, q, r, s] = f.four(at + 4 * i as u64, four(a, i), four(b, i), four(bias, i));
        B::set_pair(&mut y, 2 * i, [p, q]);
        B::set_pair(&mut y, 2 * i + 1, [r, s]);
    }
    y
}

/// The bias of a unit of a run that begins at `column`: columns follow one another and begin again.
#[inline(always)]
unsafe fn load_bias<A: Float>(bias: Global<A>, p: &Dense, column: u32) -> Pack {
    A::pack_from(|i| {
        let column = column + i as u32;
        let wrapped = column.wrapping_sub(p.per_row.value());
        // SAFETY: the caller's contract; a bias has at least a unit's elements.
        unsafe { bias.get(column.min(wrapped) as usize) }
    })
}

/// Reads a unit of 16 or 8 bytes into the first words of a pack.
#[inline(always)]
unsafe fn load<T: Float>(x: Global<T>, when: bool, at: usize, unit: usize) -> Pack {
    // SAFETY: the caller's contract.
    unsafe {
        if unit * size_of::<T>() == 16 {
            x.get_pack_or(when, at, [0; 4])
        } else {
            let [low, high] = x.get_8_if(when, at, 0);
            [low, high, 0, 0]
        }
    }
}

/// Writes a unit of 16 or 8 bytes from the first words of a pack.
#[inline(always)]
unsafe fn store<T: Float>(y: GlobalMut<T>, when: bool, at: usize, unit: usize, pack: Pack) {
    // SAFETY: the caller's contract.
    unsafe {
        if unit * size_of::<T>() == 16 {
            y.set_pack_if(when, at, pack);
        } else {
            y.set_8_if(when, at, [pack[0], pack[1]]);
        }
    }
}
