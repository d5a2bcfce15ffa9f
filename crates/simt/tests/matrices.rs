//! Matrix fragments: right ones, and wrong kernels that use them.
// Every access of these kernels is checked by the launch: that is what is tested.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::*;
use simt::matrix::{Widen, load_matrices, multiply_16x8x8, multiply_16x8x16};
use simt::*;

static TILE: StaticShared = StaticShared::new(32 * 16, 16);

fn tile() -> SharedView<u8> {
    static_array(&TILE, 32 * 16)
}

/// Small integers: the value is the bits.
struct Integer;
impl Widen for Integer {
    fn widen(bits: u16) -> f32 {
        f32::from(bits as i16)
    }
}

/// Writes element (row, column) of 32 rows of eight as 8·row + column.
unsafe fn fill() {
    let row = tid() as u16;
    for column in 0..8 {
        unsafe { tile().cast::<u16>().store(8 * tid() + column as usize, 8 * row + column) };
    }
}

#[test]
fn each_lane_gets_its_elements_of_each_matrix() {
    let (memory, out) = uninit::<u32>(32 * 7);
    right_then(
        &one("loads", 1, 32),
        &|| unsafe {
            fill();
            sync_warp(u32::MAX);
            let [a] = load_matrices::<1, false>(tile(), 16 * tid());
            let b = load_matrices::<2, true>(tile(), 16 * tid());
            let c = load_matrices::<4, false>(tile(), 16 * tid());
            for (i, word) in [a, b[0], b[1], c[0], c[1], c[2], c[3]].into_iter().enumerate() {
                out.store(7 * tid() + i, word);
            }
        },
        || (),
    );
    let words = read::<u32>(&memory);
    for lane in 0..32 {
        let row = |matrix: u32| 64 * matrix + 8 * (lane / 4) + 2 * (lane % 4);
        let plain = |matrix| row(matrix) | (row(matrix) + 1) << 16;
        let across = |matrix: u32| {
            let first = 64 * matrix + 8 * (2 * (lane % 4)) + lane / 4;
            first | (first + 8) << 16
        };
        let want = [plain(0), across(0), across(1), plain(0), plain(1), plain(2), plain(3)];
        assert_eq!(words[7 * lane as usize..][..7], want, "lane {lane}");
    }
}

#[test]
fn a_product_is_that_of_the_matrices_that_the_fragments_hold() {
    let a = |row: u32, k: u32| (3 * row + 5 * k) % 17;
    let b = |k: u32, column: u32| (7 * k + 11 * column) % 13;
    let (memory, out) = uninit::<f32>(16 * 8);
    right(&one("product", 1, 32), &|| unsafe {
        let (g, t) = (tid() as u32 / 4, tid() as u32 % 4);
        let of_a = |w: u32| {
            let (row, k) = (g + 8 * (w % 2), 2 * t + 8 * (w / 2));
            a(row, k) | a(row, k + 1) << 16
        };
        let of_b = |w: u32| b(2 * t + 8 * w, g) | b(2 * t + 8 * w + 1, g) << 16;
        let c = multiply_16x8x16::<Integer>([0, 1, 2, 3].map(of_a), [0, 1].map(of_b), [1.0, 2.0, 3.0, 4.0]);
        for (i, value) in c.into_iter().enumerate() {
            let (row, column) = (g + 8 * (i as u32 / 2), 2 * t + i as u32 % 2);
            out.store((8 * row + column) as usize, value);
        }
    });
    let got = read::<f32>(&memory);
    for (i, got) in got.into_iter().enumerate() {
        let (row, column) = (i as u32 / 8, i as u32 % 8);
        let sum: u32 = (0..16).map(|k| a(row, k) * b(k, column)).sum();
        let start = 1 + column % 2 + 2 * (row / 8);
        assert_eq!(got, (sum + start) as f32, "row {row}, column {column}");
    }
}

#[test]
fn a_product_of_tf32_leaves_out_the_lower_bits() {
    let a = |row: u32, k: u32| (3 * row + 5 * k) % 17;
    let b = |k: u32, column: u32| (7 * k + 11 * column) % 13;
    let (memory, out) = uninit::<f32>(16 * 8);
    right(&one("tf32", 1, 32), &|| unsafe {
        let (g, t) = (tid() as u32 / 4, tid() as u32 % 4);
        let word = |value: u32| (value as f32).to_bits() | ((tid() as u32 * 257) & 0x1fff);
        let of_a = [0, 1, 2, 3].map(|w| word(a(g + 8 * (w % 2), t + 4 * (w / 2))));
        let of_b = [0, 1].map(|w| word(b(t + 4 * w, g)));
        for (i, value) in multiply_16x8x8(of_a, of_b, [0.5; 4]).into_iter().enumerate() {
            let (row, column) = (g + 8 * (i as u32 / 2), 2 * t + i as u32 % 2);
            out.store((8 * row + column) as usize, value);
        }
    });
    for (i, got) in read::<f32>(&memory).into_iter().enumerate() {
        let sum: u32 = (0..8).map(|k| a(i as u32 / 8, k) * b(k, i as u32 % 8)).sum();
        assert_eq!(got, sum as f32 + 0.5, "element {i}");
    }
}

#[test]
fn a_row_that_is_not_aligned() {
    let line = Line::new();
    let r = wrong(&one("unaligned", 1, 32), Kind::Misaligned, &|| unsafe {
        fill();
        sync_warp(u32::MAX);
        let byte = if tid() == 5 { 8 } else { 16 * tid() };
        line.set(line!() + 1);
        load_matrices::<1, false>(tile(), byte);
    });
    assert_eq!((r.site.line, r.thread), (line.get(), [5, 0, 0]));
}

#[test]
fn a_row_outside_of_the_tile() {
    let r = wrong(&one("outside", 1, 32), Kind::OutOfBounds, &|| unsafe {
        fill();
        sync_warp(u32::MAX);
        load_matrices::<4, true>(tile(), 16 * (tid() + 1));
    });
    assert_eq!(r.thread, [31, 0, 0]);
}

#[test]
fn a_row_that_nothing_wrote() {
    wrong(&one("unwritten", 1, 32), Kind::Uninitialized, &|| unsafe {
        load_matrices::<2, false>(tile(), 16 * tid());
    });
}

#[test]
fn a_row_of_another_lane_without_a_barrier() {
    let at = lines();
    race(&one("early", 1, 64), &at, &|| unsafe {
        if tid() < 32 {
            at.a.set(line!() + 1);
            tile().store_vector::<16>(16 * tid(), [1; 16]);
        } else {
            at.b.set(line!() + 1);
            load_matrices::<4, false>(tile(), 16 * (tid() - 32));
        }
    });
}

#[test]
fn part_of_the_warp_missing() {
    wrong(&one("load of half a warp", 1, 32), Kind::WarpMask, &|| unsafe {
        fill();
        sync_warp(u32::MAX);
        if tid() < 16 {
            load_matrices::<2, false>(tile(), 16 * tid());
        }
    });
    wrong(&one("product of half a warp", 1, 32), Kind::WarpMask, &|| {
        if tid() < 16 {
            multiply_16x8x16::<Integer>([0; 4], [0; 2], [0.0; 4]);
        }
    });
    wrong(&one("a warp of 16", 1, 16), Kind::WarpMask, &|| {
        multiply_16x8x16::<Integer>([0; 4], [0; 2], [0.0; 4]);
    });
}

/// Tiles of a warpgroup's products: A of 64 rows and B of 128 columns, 16 terms each in rows of 128 bytes.
mod warpgroup {
    use super::*;
    use simt::warpgroup::{Product, commit_products, multiply, multiply_tf32, take_sums, wait_products};

    static TILES: StaticShared = StaticShared::new(3 << 13, 1024);
    const COLUMNS: usize = 128;
    /// Where B begins.
    const SECOND: u32 = 1 << 13;

    fn tiles() -> SharedView<u16> {
        static_array(&TILES, 3 << 12)
    }

    /// The swizzle of 128 bytes, of an element's place.
    fn swizzled(byte: u32) -> usize {
        ((byte ^ (byte / 128 % 8) << 4) / 2) as usize
    }

    /// A and B along the terms, or with `turned` along rows and columns: 64 of them in a row of 128 bytes.
    fn place(turned: bool, start: u32, line: u32, term: u32) -> usize {
        if turned {
            swizzled(start + line / 64 * (16 * 128) + term * 128 + line % 64 * 2)
        } else {
            swizzled(start + line * 128 + term * 2)
        }
    }

    fn product(turned: [bool; 2]) -> Product {
        let descriptor = |start: u32, turned: bool| {
            let (leading, stride): (u32, u32) = (if turned { 16 * 128 } else { 16 }, 1024);
            u64::from(start >> 4) | u64::from(leading >> 4) << 16 | u64::from(stride >> 4) << 32 | 1 << 62
        };
        let start = tiles().byte_offset();
        Product {
            columns: COLUMNS,
            descriptors: [descriptor(start, turned[0]), descriptor(start + SECOND, turned[1])],
            more: true,
            transposed: turned,
        }
    }

    fn a(row: u32, term: u32) -> u16 {
        ((3 * row + 5 * term) % 11) as u16
    }

    fn b(term: u32, column: u32) -> u16 {
        ((7 * term + 2 * column) % 13) as u16
    }

    unsafe fn fill(turned: [bool; 2]) {
        // SAFETY: as of this.
        unsafe { fill_without_fence(turned) };
        simt::bulk::fence_proxy();
        sync_block();
    }

    unsafe fn fill_without_fence(turned: [bool; 2]) {
        for i in (tid() as u32..64 * 16).step_by(128) {
            unsafe { tiles().store(place(turned[0], 0, i / 16, i % 16), a(i / 16, i % 16)) };
        }
        for i in (tid() as u32..128 * 16).step_by(128) {
            unsafe { tiles().store(place(turned[1], SECOND, i / 16, i % 16), b(i % 16, i / 16)) };
        }
    }

    /// Stores a thread's sums of 64 rows where they belong.
    unsafe fn store_sums(out: View<f32>, sums: [f32; COLUMNS / 2]) {
        let (warp, lane) = (tid() / 32, tid() % 32);
        for (i, sum) in sums.into_iter().enumerate() {
            let row = 16 * warp + lane / 4 + 8 * (i / 2 % 2);
            let column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
            // SAFETY: checked by the launch.
            unsafe { out.store(row * COLUMNS + column, sum) };
        }
    }

    #[test]
    fn products_are_those_of_the_tiles_that_the_descriptors_name() {
        for turned in [[false, false], [false, true], [true, false], [true, true]] {
            let (memory, out) = uninit::<f32>(64 * COLUMNS);
            right(&one("warpgroup", 1, 128), &|| unsafe {
                fill(turned);
                let mut sums = [1.0; COLUMNS / 2];
                multiply::<Integer>(product(turned), &sums);
                commit_products();
                multiply::<Integer>(product(turned), &sums);
                commit_products();
                wait_products(1);
                assert_eq!(sums, [1.0; COLUMNS / 2], "nothing is there before its time");
                take_sums(&mut sums);
                store_sums(out, sums);
            });
            for (i, got) in read::<f32>(&memory).into_iter().enumerate() {
                let (row, column) = ((i / COLUMNS) as u32, (i % COLUMNS) as u32);
                let sum: u32 = (0..16).map(|k| u32::from(a(row, k)) * u32::from(b(k, column))).sum();
                assert_eq!(got, (1 + 2 * sum) as f32, "{turned:?}: row {row}, column {column}");
            }
        }
    }

    /// Products of one tile after another that are added to sums of their own, some of which are looked at before others.
    #[test]
    fn several_sums_are_away_at_a_time() {
        let (memory, out) = uninit::<f32>(64 * COLUMNS);
        right(&one("several", 1, 128), &|| unsafe {
            fill([false; 2]);
            let (mut all, mut one) = ([1.0; COLUMNS / 2], [0.0; COLUMNS / 2]);
            for round in 0..3 {
                multiply::<Integer>(product([false; 2]), &all);
                commit_products();
                multiply::<Integer>(Product { more: false, ..product([false; 2]) }, &one);
                commit_products();
                take_sums(&mut one);
                assert_eq!(
                    all,
                    [1.0; COLUMNS / 2],
                    "nothing is there before it is asked for, in round {round}"
                );
            }
            take_sums(&mut all);
            for i in 0..COLUMNS / 2 {
                assert_eq!(all[i], 1.0 + 3.0 * one[i]);
            }
            store_sums(out, one);
        });
        for (i, got) in read::<f32>(&memory).into_iter().enumerate() {
            let (row, column) = ((i / COLUMNS) as u32, (i % COLUMNS) as u32);
            let sum: u32 = (0..16).map(|k| u32::from(a(row, k)) * u32::from(b(k, column))).sum();
            assert_eq!(got, sum as f32, "row {row}, column {column}");
        }
    }

    /// Eight terms of f32, in as many bytes as sixteen of 16 bits; the bits that tf32 has not do not count.
    #[test]
    fn products_of_tf32_leave_out_the_lower_bits() {
        let number = |value: u16| f32::from(value).to_bits() | 0x1abc;
        let place = |start: u32, line: u32, term: u32| swizzled(start + line * 128 + term * 4) / 2;
        let (memory, out) = uninit::<f32>(64 * COLUMNS);
        right(&one("tf32", 1, 128), &|| unsafe {
            let words = tiles().cast::<u32>();
            for i in (tid() as u32..128 * 8).step_by(128) {
                let (line, term) = (i / 8, i % 8);
                if line < 64 {
                    words.store(place(0, line, term), number(1 + a(line, term)));
                }
                words.store(place(SECOND, line, term), number(1 + b(term, line)));
            }
            simt::bulk::fence_proxy();
            sync_block();
            let mut sums = [1.0; COLUMNS / 2];
            multiply_tf32(product([false; 2]), &sums);
            commit_products();
            take_sums(&mut sums);
            store_sums(out, sums);
        });
        for (i, got) in read::<f32>(&memory).into_iter().enumerate() {
            let (row, column) = ((i / COLUMNS) as u32, (i % COLUMNS) as u32);
            let sum: u32 = (0..8).map(|k| u32::from(1 + a(row, k)) * u32::from(1 + b(k, column))).sum();
            assert_eq!(got, (1 + sum) as f32, "row {row}, column {column}");
        }
    }

    #[test]
    fn a_tile_that_is_overwritten_before_the_wait() {
        let at = lines();
        race(&one("reuse", 1, 128), &at, &|| unsafe {
            fill([false; 2]);
            at.a.set(line!() + 1);
            multiply::<Integer>(product([false; 2]), &[0.0; COLUMNS / 2]);
            commit_products();
            sync_block();
            if tid() == 64 {
                at.b.set(line!() + 1);
                tiles().store(place(false, 0, 3, 2), 1);
            }
            take_sums(&mut [0.0; COLUMNS / 2]);
        });
    }

    #[test]
    fn a_tile_that_nothing_wrote() {
        wrong(&one("unwritten", 1, 128), Kind::Uninitialized, &|| {
            tiles();
            multiply::<Integer>(product([false; 2]), &[0.0; COLUMNS / 2]);
            commit_products();
            take_sums(&mut [0.0; COLUMNS / 2]);
        });
    }

    /// A barrier alone does not show the tensor cores what threads wrote, nor does a fence before the write.
    #[test]
    fn a_tile_without_a_proxy_fence() {
        for early in [false, true] {
            let r = wrong(&one("unfenced", 1, 128), Kind::InvalidAccess, &|| unsafe {
                if early {
                    simt::bulk::fence_proxy();
                }
                fill_without_fence([false; 2]);
                sync_block();
                multiply::<Integer>(product([false; 2]), &[0.0; COLUMNS / 2]);
                commit_products();
                take_sums(&mut [0.0; COLUMNS / 2]);
            });
            assert!(r.detail.contains("proxy fence"), "{r}");
        }
    }

    #[test]
    fn a_descriptor_of_another_swizzle() {
        let r = wrong(&one("swizzle", 1, 128), Kind::InvalidAccess, &|| unsafe {
            fill([false; 2]);
            let right = product([false; 2]);
            let descriptors = right.descriptors.map(|descriptor| descriptor & !(3 << 62));
            multiply::<Integer>(Product { descriptors, ..right }, &[0.0; COLUMNS / 2]);
            commit_products();
            take_sums(&mut [0.0; COLUMNS / 2]);
        });
        assert!(r.detail.contains("swizzle"), "{r}");
    }

    #[test]
    fn lanes_of_a_warp_with_different_products() {
        let r = wrong(&one("different", 1, 128), Kind::WarpMask, &|| unsafe {
            fill([false; 2]);
            let turned = if tid() == 7 { [true, false] } else { [false; 2] };
            multiply::<Integer>(product(turned), &[0.0; COLUMNS / 2]);
            commit_products();
            take_sums(&mut [0.0; COLUMNS / 2]);
        });
        assert!(r.detail.contains("lanes 0 and 7"), "{r}");
    }

    #[test]
    fn part_of_a_warpgroup() {
        wrong(&one("half", 1, 64), Kind::WarpMask, &|| {
            multiply::<Integer>(product([false; 2]), &[0.0; COLUMNS / 2]);
        });
        // Warps behind the last whole one are of none.
        for first in [0, 1] {
            let ended = simt::launch(&one("behind", 1, 160), &|| unsafe {
                if tid() < 128 {
                    fill_without_fence([false; 2]);
                    simt::bulk::fence_proxy();
                }
                sync_block();
                if tid() / 32 >= first && tid() / 32 < first + 4 {
                    multiply::<Integer>(product([false; 2]), &[0.0; COLUMNS / 2]);
                    commit_products();
                    take_sums(&mut [0.0; COLUMNS / 2]);
                }
            });
            let report = ended.err().map(|report| report.kind);
            assert_eq!(report, (first > 0).then_some(Kind::WarpMask));
        }
    }
}
