//! Boxes by the kernel's arithmetic.

use super::super::plan::{Choice, Plan, Request};
use super::super::simplify::{Dim, simplify};
use super::super::takes::{chain_of_x, takes};
use super::*;
use crate::{DType, shape};
use kernels_gpu::permute::{Level, Span};

fn simple(shape: &[usize], order: &[usize], size: usize) -> super::super::simplify::Simple {
    let strides = shape::contiguous_strides(shape);
    let (shape, strides): (Vec<_>, Vec<_>) = order.iter().map(|&i| (shape[i], strides[i])).unzip();
    simplify(&shape, &strides, size)
}

/// The kernel's `offsets`.
fn at(levels: &[Level], number: u64) -> (i64, u64) {
    let (mut global, mut staged, mut rest) = (0, 0, number);
    for (i, level) in levels.iter().enumerate() {
        let count = u64::from(level.count.value());
        let digit = if i + 1 < levels.len() { rest % count } else { rest };
        rest /= count;
        global += level.global * digit as i64;
        staged += u64::from(level.staged) * digit;
    }
    (global, staged)
}

/// Checks some blocks of boxes by the kernel's arithmetic: that every element of their runs of y is staged from where
/// the index formula has it.
fn check(dims: &[Dim], size: usize, boxed: &Boxed) {
    let p = &boxed.params;
    let total: u64 = dims.iter().map(|dim| dim.extent as u64).product();
    for block in [0, 1, boxed.blocks / 2, boxed.blocks - 2, boxed.blocks - 1] {
        let (mut x, mut y, mut rest) = (0i64, 0i64, block);
        let mut tiles = [0, 0];
        for (i, digit) in p.digits[..p.digit_count as usize].iter().enumerate() {
            let count = u64::from(digit.count.value());
            x += digit.x * (rest % count) as i64;
            y += digit.y * (rest % count) as i64;
            if let Some(tile) = tiles.get_mut(i) {
                *tile = rest % count;
            }
            rest /= count;
        }
        if p.u_first != 0 {
            tiles.swap(0, 1);
        }
        let w = tiles[0];
        let u = if p.one_tile != 0 { w } else { tiles[1] };
        let of = |span: &Span, tile: u64| (span.total - span.step * tile).min(span.size);
        // Where each byte of x is staged.
        let mut staged = std::collections::HashMap::new();
        for run in 0..of(&p.run_count, w) {
            let (global, place) = at(&p.runs[..p.run_levels as usize], run);
            assert_eq!((global as u64 ^ place) % if boxed.by_halves { 16 } else { 32 }, 0, "{boxed:?}");
            for byte in (0..of(&p.run_bytes, u)).step_by(size) {
                let from = x + global + byte as i64;
                assert!(from >= 0 && (from as u64) < total * size as u64, "{boxed:?}");
                assert!(staged.insert(place + byte, from).is_none(), "staged twice: {boxed:?}");
            }
        }
        let outs = of(&p.out_count, u);
        for out in [0, outs / 2, outs - 1] {
            let (global, place) = at(&p.outs[..p.out_levels as usize], out);
            for number in 0..of(&p.out_bytes, w) / size as u64 {
                let element = (y + global) as u64 / size as u64 + number;
                let from: i64 = dims
                    .iter()
                    .map(|dim| (element / dim.y as u64 % dim.extent as u64) as i64 * dim.x as i64)
                    .sum();
                let innermost = number % u64::from(p.within[0].count.value());
                let skew = innermost / boxed.per_pack as u64 * u64::from(p.skew);
                let along = at(&p.within[..p.within_levels as usize], number).1 + skew;
                let got = staged.get(&((place + along) * size as u64));
                assert_eq!(got, Some(&(from * size as i64)), "element {element} of {boxed:?}");
            }
        }
    }
}

#[test]
fn neighbours_along_x_follow_soon_or_find_their_lines() {
    for (shape, order, bytes, u_first, keep) in [
        (&[8191, 8193][..], &[1, 0][..], (256, 512), 0, 0), // 64 tiles of y's runs are 2 MB
        (&[1000, 8193], &[1, 0], (256, 512), 0, 1),         // 8 tiles
        (&[24, 15, 61, 65, 45], &[4, 2, 0, 3, 1], (1024, 256), 0, 1), // no tiles of their own along x's
        (&[40_050, 977], &[1, 0], (256, 512), 1, 1),
    ] {
        let simple = simple(shape, order, 4);
        let walk = Walk { dims: &simple.dims, x_size: 4, y_size: 4, x_phase: 0, y_phase: 0 };
        let chain = chain_of_x(&simple.dims);
        let take = takes(&walk, &chain, bytes.0, bytes.1);
        let boxed = Boxed::new(&walk, &chain, take, Layout::PLAIN).unwrap();
        assert_eq!((boxed.params.u_first, boxed.params.keep), (u_first, keep), "{shape:?}");
    }
}

#[test]
fn boxes_hold_what_they_write_also_past_2_to_the_31_elements() {
    let (mut skewed, mut by_halves, mut by_table, mut u_first) = (0, 0, 0, 0);
    for (shape, order, size) in [
        (&[100, 70][..], &[1, 0][..], 4),
        (&[7, 64, 33], &[0, 2, 1], 2),
        (&[6, 5, 11, 13, 15], &[4, 2, 0, 3, 1], 1),
        (&[300, 3, 5], &[0, 2, 1], 1),
        (&[60_001, 70_003], &[1, 0], 1),
        (&[3, 50_000, 40_000], &[2, 0, 1], 8),
        (&[24, 15, 610, 650, 450], &[4, 2, 0, 3, 1], 4),
        (&[1_000_000_000, 3, 5], &[0, 2, 1], 2),
        (&[531_220, 99], &[1, 0], 4),
        (&[73, 8192], &[1, 0], 1),
    ] {
        let simple = simple(shape, order, size);
        let chain = chain_of_x(&simple.dims);
        let walk = Walk { dims: &simple.dims, x_size: size, y_size: size, x_phase: 0, y_phase: 0 };
        let mut checked = 0;
        for (x_bytes, y_bytes) in [(64, 64), (256, 256), (512, 128), (2048, 2048), (64, 1024)] {
            let take = takes(&walk, &chain, x_bytes, y_bytes);
            let layouts = [0, 16, 32].into_iter().flat_map(|skew| {
                let of = move |(rows, sectors)| Layout { words: false, skew, rows, sectors };
                [(false, true), (true, true), (false, false), (true, false)].map(of)
            });
            for layout in layouts {
                if let Some(boxed) = Boxed::new(&walk, &chain, take.clone(), layout) {
                    check(&simple.dims, size, &boxed);
                    checked += 1;
                    skewed += usize::from(boxed.skew);
                    by_halves += usize::from(boxed.by_halves);
                    by_table += usize::from(boxed.params.skew > 0);
                    u_first += boxed.params.u_first;
                }
            }
        }
        assert!(checked > 0, "{shape:?} has no boxes");
    }
    assert!(skewed > 0 && by_halves > 0 && by_table > 0 && u_first > 0);
}

#[test]
fn filled_boxes_leave_no_lanes_idle() {
    for (shape, order, size, bytes, filled) in [
        (&[8191, 8193][..], &[1, 0][..], 2, (128, 256), Some(&[56, 112][..])),
        (&[8191, 8193], &[1, 0], 4, (256, 256), Some(&[60, 56])),
        (&[8191, 8193], &[1, 0], 1, (128, 256), Some(&[113, 224])),
        (&[3002, 3, 18678], &[2, 1, 0], 4, (256, 256), Some(&[60, 1, 56])),
        (&[8192, 8192], &[1, 0], 4, (256, 256), None), // aligned
        (&[61, 8193], &[1, 0], 4, (256, 256), None),   // no tiles along y
    ] {
        let simple = simple(shape, order, size);
        let walk = Walk { dims: &simple.dims, x_size: size, y_size: size, x_phase: 0, y_phase: 0 };
        let chain = chain_of_x(&simple.dims);
        let take = takes(&walk, &chain, bytes.0, bytes.1);
        let boxed = Boxed::new(&walk, &chain, take, Layout::PLAIN).unwrap();
        let boxed = Boxed { limit: Some(4), ..boxed };
        let got = boxed.filled(&walk, &chain);
        assert_eq!(got.as_ref().map(|got| &got.take[..]), filled, "{shape:?} of {size}");
        let Some(got) = got else { continue };
        check(&simple.dims, size, &got);
        let (copies, runs) = (got.params.copies.value() as usize, got.params.run_count.size as usize);
        let at_once = THREADS / copies;
        assert!(copies.is_power_of_two(), "{got:?}");
        // Beyond whole rounds a tile that ends at sectors has no room.
        assert!(runs.next_multiple_of(at_once) - runs < SECTOR / size + 1, "{got:?}");
        assert_eq!(got.limit, boxed.limit);
    }
}

#[test]
fn boxes_that_share_no_sector_are_few_and_those_of_one_run_small() {
    for (shape, order, dtype, taken) in [
        (&[4_000_000, 3, 5][..], &[0, 2, 1][..], DType::F32, Some((&[136, 5, 3][..], 6))),
        (&[4_000_000, 3, 5], &[0, 2, 1], DType::F16, Some((&[272, 5, 3], 7))),
        (&[4_000_000, 3, 5], &[0, 2, 1], DType::I8, None),
        (&[500_001, 9, 11], &[0, 2, 1], DType::F32, Some((&[24, 11, 9], 6))),
        // Channels of an image, behind pixels and before them.
        (&[256, 3, 65536], &[0, 2, 1], DType::F32, Some((&[1, 1024, 3], 4))),
        (&[256, 3, 65536], &[0, 2, 1], DType::F16, Some((&[1, 2048, 3], 5))),
        (&[256, 65536, 3], &[0, 2, 1], DType::F32, Some((&[1, 3, 680], 6))),
        (&[64, 128, 3025], &[0, 2, 1], DType::F32, None), // two dimensions that are cut
    ] {
        let plan = Plan::new(Request::of_order(shape, order, dtype));
        let Choice::Boxes(boxed) = &plan.kernel else { panic!("{plan}") };
        check(&plan.simple.dims, dtype.size(), boxed);
        let got = boxed.is_filled.then_some((&boxed.take[..], boxed.limit.unwrap_or(0)));
        assert_eq!(got, taken, "{plan}");
    }
}
