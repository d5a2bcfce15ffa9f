//! Products of a warpgroup from shared memory: `wgmma`.
//!
//! A product reads its operands some time between its issue and the wait for its group. Here it reads them during
//! the wait, through the descriptors, each warp for its own 16 rows: what overwrites a tile before everybody has
//! waited is reported as a race, and so is a tile that was not there. Sums stay away from the kernel until it has
//! waited for all groups and asked for them; which they are, of several, says where the kernel has them.

use std::collections::VecDeque;
use std::panic::Location;

use crate::bulk::unfenced;
use crate::ctx::{At, Ctx, FULL, ctx};
use crate::fault::{fault, other_of_word};
use crate::matrix::Widen;
use crate::race::Space;
use crate::report::Kind;
use crate::shared::from_address;

/// Rows of a warp.
const ROWS: usize = 16;
/// Bytes of an operand's line in a product.
const LINE: usize = 32;
/// Bytes that stay together when rows are swizzled.
const UNIT: usize = 16;
/// Bytes of a row that is swizzled as a whole, and of eight of them.
const SPAN: u32 = 128;

/// One `wgmma.mma_async` of 64 rows and 16 terms of 16 bits, or 8 of tf32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Columns.
    pub columns: usize,
    /// Descriptors of A and B.
    pub descriptors: [u64; 2],
    /// Whether A and B run along their rows and columns in memory (`tnspA`, `tnspB`) instead of along the terms.
    pub transposed: [bool; 2],
    /// It is added to the sums; else they begin with it (`scale-d`).
    pub more: bool,
}

/// How the elements of operands are read: so many bytes each, of 16 at a time.
#[derive(Clone, Copy)]
struct Element {
    bytes: usize,
    /// The values of as many elements as there are.
    unpack: fn([u32; 4]) -> [f32; UNIT / 2],
}

fn unpack_halves<T: Widen>(words: [u32; 4]) -> [f32; UNIT / 2] {
    std::array::from_fn(|i| T::widen((words[i / 2] >> (16 * (i % 2))) as u16))
}

fn unpack_tf32(words: [u32; 4]) -> [f32; UNIT / 2] {
    std::array::from_fn(|i| words.get(i).map_or(0.0, |word| f32::from_bits(word & !0x1fff)))
}

#[derive(Clone)]
struct Pending {
    product: Product,
    element: Element,
    at: At,
    /// Which of the thread's sums it is added to.
    sums: usize,
}

/// The products of a thread that it has not waited for, and all its sums that are away.
#[derive(Default)]
pub(crate) struct Products {
    groups: VecDeque<Vec<Pending>>,
    open: Vec<Pending>,
    sums: Vec<Sums>,
}

/// Sums that are away, and where the kernel has them.
struct Sums {
    home: *const f32,
    values: Vec<f32>,
}

impl Products {
    /// The number of the sums, which go away if they are there.
    fn number_of(&mut self, sums: &[f32]) -> usize {
        let home = sums.as_ptr();
        self.sums.iter().position(|away| away.home == home).unwrap_or_else(|| {
            self.sums.push(Sums { home, values: sums.to_vec() });
            self.sums.len() - 1
        })
    }
}

fn with_products<R>(lane: &crate::ctx::Lane, use_them: impl FnOnce(&mut Products) -> R) -> R {
    ctx().warp().copied.set(true);
    use_them(lane.products.borrow_mut().get_or_insert_with(Box::default))
}

/// Starts a product on top of `sums`, or of those of the products under way. Number i of a lane is that of
/// row 16·w + lane / 4 + 8·(i / 2 % 2) and column 8·(i / 4) + 2·(lane % 4) + i % 2, with w the warp of its warpgroup.
#[track_caller]
pub fn multiply<T: Widen>(product: Product, sums: &[f32]) {
    start(product, Element { bytes: 2, unpack: unpack_halves::<T> }, sums);
}

/// As [`multiply`], of elements of f32, of which only the upper 19 bits count (tf32), and which lie along the terms.
#[track_caller]
pub fn multiply_tf32(product: Product, sums: &[f32]) {
    start(product, Element { bytes: 4, unpack: unpack_tf32 }, sums);
}

#[track_caller]
fn start(product: Product, element: Element, sums: &[f32]) {
    let (ctx, at) = (ctx(), Location::caller());
    let threads: u32 = crate::thread::block_dim().into_iter().product();
    // Threads behind the last whole warpgroup may do anything else.
    if ctx.lane().tid.get() / 128 >= threads / 128 && !ctx.stopping.get() {
        let detail = format!("a warpgroup's product by threads without one, in a block of {threads}");
        fault(ctx, Kind::WarpMask, at, None, detail);
    }
    with_products(ctx.lane(), |products| {
        let sums = products.number_of(sums);
        products.open.push(Pending { product, element, at, sums });
    });
}

/// Makes a group of the thread's products since the last.
pub fn commit_products() {
    with_products(ctx().lane(), |products| {
        let group = std::mem::take(&mut products.open);
        products.groups.push_back(group);
    });
}

/// Waits until at most the last `pending` groups are under way: a collective of the warp.
#[track_caller]
pub fn wait_products(pending: usize) {
    crate::warp::collective("wgmma.wait_group", u32::MAX, [pending as u64, 0], |lanes, _, _| {
        let warp = ctx().warp();
        let of = |lane: usize| {
            with_products(&warp.lanes[lane], |products| {
                let count = products.groups.len().saturating_sub(lanes[lane][0] as usize);
                products.groups.drain(..count).flatten().collect::<Vec<Pending>>()
            })
        };
        let first = of(0);
        for lane in 1..32 {
            let other = of(lane);
            let same = first.len() == other.len()
                && first
                    .iter()
                    .zip(&other)
                    .all(|(a, b)| (a.product, a.sums) == (b.product, b.sums) && std::ptr::eq(a.at, b.at));
            if !same && !ctx().stopping.get() {
                let at = first.first().or(other.first()).map_or(Location::caller(), |pending| pending.at);
                let detail = format!("lanes 0 and {lane} of a warp have issued different products");
                fault(ctx(), Kind::WarpMask, at, None, detail);
            }
        }
        first.iter().for_each(execute);
    });
}

/// The sums, once all groups have been waited for.
#[track_caller]
pub fn take_sums(sums: &mut [f32]) {
    wait_products(0);
    let home = sums.as_ptr();
    with_products(ctx().lane(), |products| {
        // Others keep their numbers' order, alike in all lanes, and no product is under way that has a number.
        if let Some(number) = products.sums.iter().position(|away| away.home == home) {
            sums.copy_from_slice(&products.sums.remove(number).values);
        }
    });
}

/// Where element (line, term) of an operand lies, as the PTX manual's matrix descriptor has it, for the 128-byte
/// swizzle.
fn place(descriptor: u64, transposed: bool, bytes: u32, line: u32, term: u32) -> u32 {
    let field = |bit: u32| ((descriptor >> bit) as u32 & 0x3fff) << 4;
    let (start, leading, stride) = (field(0), field(16), field(32));
    let linear = if transposed {
        // 64 lines in a row of 128 bytes, a row a term; `leading` from 64 lines to the next.
        start + line / 64 * leading + term / 8 * stride + term % 8 * SPAN + line % 64 * 2
    } else {
        start + line / 8 * stride + line % 8 * SPAN + term * bytes
    };
    // The 16-byte columns of a row are permuted by the row's number among eight.
    linear ^ (linear / SPAN % 8) << 4
}

/// What threads wrote wants a proxy fence behind the write.
fn check_fence(ctx: &Ctx, offset: usize, at: At) {
    let shadow = ctx.block().arena.shadow(UNIT.trailing_zeros(), ctx.time.get());
    for offset in (offset..offset + UNIT).step_by(shadow.bytes) {
        let word = shadow.last_writer(offset);
        if let Some(detail) = unfenced(ctx, word, offset) {
            fault(ctx, Kind::InvalidAccess, at, Some(other_of_word(ctx, word)), detail);
        }
    }
}

/// The elements of so many lines of an operand from `first` on: of the first term, then of the next.
fn read(ctx: &Ctx, pending: &Pending, side: usize, first: usize, lines: usize) -> Vec<f32> {
    let &Pending { product, element: Element { bytes, unpack }, at, .. } = pending;
    let (descriptor, transposed) = (product.descriptors[side], product.transposed[side]);
    let unit = |line: usize, term: usize| {
        let byte = place(descriptor, transposed, bytes as u32, (first + line) as u32, term as u32);
        // SAFETY: the checker tests the access.
        let words = unsafe { from_address::<u32>(byte, 4).load_vector_at::<4>(0, at) };
        if ctx.level.get() == FULL {
            check_fence(ctx, byte as usize, at);
        }
        unpack(words)
    };
    let (terms, of_unit) = (LINE / bytes, UNIT / bytes);
    let mut elements = vec![0.0; terms * lines];
    if transposed {
        for (term, of_term) in elements.chunks_exact_mut(lines).enumerate() {
            for (number, of_lines) in of_term.chunks_exact_mut(of_unit).enumerate() {
                of_lines.copy_from_slice(&unit(number * of_unit, term)[..of_unit]);
            }
        }
    } else {
        for line in 0..lines {
            for first_term in (0..terms).step_by(of_unit) {
                for (i, value) in unit(line, first_term)[..of_unit].iter().enumerate() {
                    elements[(first_term + i) * lines + line] = *value;
                }
            }
        }
    }
    elements
}

/// Adds a product to the sums of the running lane's warp.
fn execute(pending: &Pending) {
    let (ctx, &Pending { product, at, sums: number, .. }) = (ctx(), pending);
    if ctx.stopping.get() {
        return;
    }
    if let Some(descriptor) = product.descriptors.into_iter().find(|descriptor| descriptor >> 61 != 2) {
        let detail = format!("descriptor {descriptor:#x} is not of the 128-byte swizzle");
        fault(ctx, Kind::InvalidAccess, at, None, detail);
    }
    let first = ctx.warp().index.get() as usize % 4 * ROWS;
    let rows = read(ctx, pending, 0, first, ROWS);
    let columns = read(ctx, pending, 1, 0, product.columns);
    let mut sums = vec![0.0; product.columns];
    for row in 0..ROWS {
        if product.more {
            each_of_row(ctx, number, row, &mut sums, |sum, of_lane| *sum = *of_lane);
        } else {
            sums.fill(0.0);
        }
        for (of_rows, of_columns) in rows.chunks_exact(ROWS).zip(columns.chunks_exact(product.columns)) {
            for (sum, of_column) in sums.iter_mut().zip(of_columns) {
                *sum += of_rows[row] * of_column;
            }
        }
        each_of_row(ctx, number, row, &mut sums, |sum, of_lane| *of_lane = *sum);
    }
}

/// Hands out the sums of a row of the running lane's warp beside those that its lanes have, of number `number`.
fn each_of_row(ctx: &Ctx, number: usize, row: usize, sums: &mut [f32], each: impl Fn(&mut f32, &mut f32)) {
    for of_row in 0..4 {
        with_products(&ctx.warp().lanes[row % 8 * 4 + of_row], |products| {
            let values =
                products.sums.get_mut(number).into_iter().flat_map(|away| away.values.chunks_exact_mut(4));
            for (of_group, of_lane) in sums.chunks_exact_mut(8).zip(values) {
                for i in 0..2 {
                    each(&mut of_group[2 * of_row + i], &mut of_lane[row / 8 * 2 + i]);
                }
            }
        });
    }
}
