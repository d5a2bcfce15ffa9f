//! `permute` against the index formula: every order of the dimensions, every size of element, and every plan.

use warpwright::ops::{self, permute::permute_candidates};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{POISON, Random, assert_same, on_each_device, poisoned};

/// One type of each size.
const SIZES: [DType; 5] = [DType::U8, DType::I16, DType::F32, DType::I64, DType::C128];

/// A tensor of random bits.
fn random(device: &Device, dtype: DType, shape: &[usize], seed: u64) -> Result<Tensor> {
    let count = shape.iter().product::<usize>() * dtype.size();
    let words = Random::new(seed).words(count.div_ceil(4));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take(count).collect();
    Tensor::from_bytes(device, dtype, shape, &bytes)
}

/// Every order of `0..rank`.
fn orders(rank: usize) -> Vec<Vec<isize>> {
    if rank == 0 {
        return vec![vec![]];
    }
    let of = |order: &Vec<isize>| -> Vec<Vec<isize>> {
        let with = |at: usize| [&order[..at], &[rank as isize - 1], &order[at..]].concat();
        (0..rank).map(with).collect()
    };
    orders(rank - 1).iter().flat_map(of).collect()
}

/// Checks the operation on x, and the best plan through shared memory, which small tensors do without.
fn check(x: &Tensor, dims: &[isize]) -> Result<()> {
    let (y, want) = (ops::permute(x, dims)?, reference::permute(x, dims)?);
    assert_eq!(y.shape(), x.permute(dims)?.shape());
    assert_same(&y.to_bytes()?, &want, format!("{x:?} by {dims:?}"));
    check_plans(x, dims, 2, 0)
}

/// Checks `most` plans for x, into a tensor that begins `offset` elements behind an aligned address.
fn check_plans(x: &Tensor, dims: &[isize], most: usize, offset: usize) -> Result<()> {
    check_plans_like(x, dims, most, offset, "").map(|_| ())
}

/// As [`check_plans`], of those whose description has `like` in it; how many these are.
fn check_plans_like(x: &Tensor, dims: &[isize], most: usize, offset: usize, like: &str) -> Result<usize> {
    let mut checked = 0;
    let view = x.permute(dims)?;
    let want = reference::permute(x, dims)?;
    let probe = poisoned(x.device(), x.dtype(), &[view.len() + offset], POISON)?;
    let y = probe.narrow(0, offset, view.len())?.reshape(view.shape())?;
    for candidate in permute_candidates(x, dims, &y, most)? {
        if !candidate.describe().contains(like) {
            continue;
        }
        checked += 1;
        let whole = poisoned(x.device(), x.dtype(), &[view.len() + offset + 40], POISON)?;
        let y = whole.narrow(0, offset, view.len())?.reshape(view.shape())?;
        candidate.run(x, dims, &y)?;
        let what = format!("{x:?} by {dims:?} as {}", candidate.describe());
        assert_same(&y.to_bytes()?, &want, &what);
        let (before, behind) = (whole.narrow(0, 0, offset)?, whole.narrow(0, offset + view.len(), 40)?);
        for around in [before, behind] {
            assert!(around.to_bytes()?.iter().all(|&byte| byte == POISON), "{what} wrote elsewhere");
        }
    }
    Ok(checked)
}

fn every_order_of_six_dimensions(device: &Device, dtypes: &[DType]) -> Result<()> {
    for (i, &dtype) in dtypes.iter().enumerate() {
        let x = random(device, dtype, &[3, 2, 5, 2, 3, 5], i as u64)?;
        orders(6).iter().try_for_each(|dims| check(&x, dims))?;
    }
    Ok(())
}

on_each_device! {
    fn every_order_of_up_to_five_dimensions(device: &Device) -> Result<()> {
        for shape in [&[][..], &[7], &[37, 21], &[5, 11, 9], &[3, 5, 7, 4], &[3, 5, 2, 7, 3]] {
            for (i, dtype) in SIZES.into_iter().enumerate() {
                let x = random(device, dtype, shape, i as u64)?;
                orders(shape.len()).iter().try_for_each(|dims| check(&x, dims))?;
            }
        }
        Ok(())
    }

    fn every_order_of_six_dimensions_of_small_elements(device: &Device) -> Result<()> {
        every_order_of_six_dimensions(device, &SIZES[..2])
    }

    fn every_order_of_six_dimensions_of_large_elements(device: &Device) -> Result<()> {
        every_order_of_six_dimensions(device, &SIZES[2..])
    }

    /// Pairs of 8-byte elements that stay together are elements of 16 bytes.
    fn elements_of_sixteen_bytes(device: &Device) -> Result<()> {
        let x = random(device, DType::F64, &[5, 9, 7, 2], 1)?;
        for order in orders(3) {
            check(&x, &[&order[..], &[3]].concat())?;
        }
        let x = random(device, DType::F64, &[70, 67, 2], 2)?;
        check_plans(&x, &[1, 0, 2], 8, 0)
    }

    fn every_plan_of_aligned_and_odd_matrices(device: &Device) -> Result<()> {
        for (shape, dims) in [
            (&[128, 192][..], &[1, 0][..]),
            (&[131, 197], &[1, 0]),
            (&[64, 200], &[1, 0]),
            (&[2, 64, 7, 48], &[0, 2, 3, 1]),
            (&[3, 5, 600], &[2, 0, 1]),
            (&[600, 3, 5], &[0, 2, 1]),
            (&[2, 3, 700], &[0, 2, 1]),
            (&[2, 700, 3], &[0, 2, 1]),
            (&[4, 6, 16, 32, 8], &[4, 2, 0, 3, 1]),
            (&[3, 16, 2, 12, 16], &[4, 2, 0, 3, 1]),
            (&[2, 8, 5, 16, 4], &[1, 0, 2, 4, 3]),
            (&[4, 5, 11, 13, 15], &[4, 2, 0, 3, 1]),
            (&[9, 11, 33], &[1, 0, 2]),
        ] {
            for dtype in SIZES {
                check_plans(&random(device, dtype, shape, 3)?, dims, 12, 0)?;
            }
        }
        Ok(())
    }

    fn inputs_and_outputs_of_any_alignment(device: &Device) -> Result<()> {
        for dtype in SIZES {
            for (front, offset) in [(1, 0), (0, 1), (3, 5), (7, 7)] {
                let flat = random(device, dtype, &[front + 40 * 96], 4)?;
                let x = flat.narrow(0, front, 40 * 96)?.reshape(&[40, 96])?;
                check_plans(&x, &[1, 0], 6, offset)?;
                check_plans(&x, &[0, 1], 2, offset)?;
                let part = x.narrow(1, 5, 77)?.narrow(0, 1, 33)?;
                check_plans(&part, &[1, 0], 6, offset)?;
                check_plans(&part, &[0, 1], 6, offset)?;
            }
        }
        Ok(())
    }

    /// Rows of 16 bytes and a little more, of a block and more, one row, and rows that are there many times; of x and y at any alignment.
    fn rows_that_stay_whole(device: &Device) -> Result<()> {
        for dtype in [DType::U8, DType::I16, DType::F32, DType::I64] {
            let least = 16 / dtype.size();
            for (i, row) in [least, least + 1, 2 * least - 1, 67, 9001].into_iter().enumerate() {
                let shape: &[usize] = if row > 1000 { &[3, 2] } else { &[5, 3, 7] };
                let rows: usize = shape.iter().product();
                let front = [0, 1, 3, 5, 7][i];
                let flat = random(device, dtype, &[front + rows * row], 7)?;
                let x = flat.narrow(0, front, rows * row)?.reshape(&[shape, &[row]].concat())?;
                let (rank, mut rows) = (shape.len() as isize, 0);
                for offset in [0, 1, 2, 15] {
                    let turned: Vec<isize> = (0..rank).rev().chain([rank]).collect();
                    rows += check_plans_like(&x, &turned, 100, offset, "rows of")?;
                    let dims: Vec<isize> = (0..=rank).collect();
                    let inner = x.narrow(rank, 0, row - 1)?;
                    rows += check_plans_like(&inner, &dims, 100, offset, "rows of")?;
                    rows += check_plans_like(&x.narrow(0, 0, 1)?, &dims, 100, offset, "rows of")?;
                    let many = x.narrow(0, 1, 1)?.expand(&[&[4], &x.shape()[1..]].concat())?;
                    rows += check_plans_like(&many, &dims, 100, offset, "rows of")?;
                }
                assert!(rows >= 4, "{dtype} rows of {row}: {rows}");
            }
        }
        Ok(())
    }

    /// Whose tables of places along a run of y have rows, with all rows of x apart and without.
    fn long_periods_along_runs(device: &Device) -> Result<()> {
        for (dtype, shape, dims) in [
            (DType::U8, &[40, 5, 98][..], &[0, 2, 1][..]),
            (DType::U8, &[73, 4096], &[1, 0]),
            (DType::I16, &[57, 5, 126], &[0, 2, 1]),
            (DType::F32, &[40, 5, 130], &[0, 2, 1]),
            (DType::I64, &[33, 515], &[1, 0]),
        ] {
            let x = random(device, dtype, shape, 8)?;
            let of = |like: &str| check_plans_like(&x, dims, 400, 1, like);
            assert!(of("in rows")? > 0 && (shape.len() == 3 || of("in rows skewed")? > 0), "{dtype} {shape:?}");
        }
        Ok(())
    }

    fn random_problems(device: &Device) -> Result<()> {
        let mut random_of = Random::new(99);
        for seed in 0..60 {
            let rank = 2 + random_of.below(5) as usize;
            let mut shape = vec![1; rank];
            while shape.iter().product::<usize>() < 2000 {
                shape[random_of.below(rank as u64) as usize] += 1 + random_of.below(9) as usize;
            }
            let mut dims: Vec<isize> = (0..rank as isize).collect();
            (1..rank).for_each(|i| dims.swap(i, random_of.below(i as u64 + 1) as usize));
            let dtype = SIZES[random_of.below(SIZES.len() as u64) as usize];
            check_plans(&random(device, dtype, &shape, seed)?, &dims, 4, random_of.below(9) as usize)?;
        }
        Ok(())
    }

    fn boxes_that_leave_no_lanes_idle(device: &Device) -> Result<()> {
        for shape in [[501, 1223], [367, 1507], [903, 797]] {
            let x = random(device, DType::F32, &shape, 7)?;
            let filled = check_plans_like(&x, &[1, 0], 400, 1, " filled")?;
            assert_eq!(filled, 1, "{shape:?}");
        }
        Ok(())
    }

    /// Smaller than others, or fewer at a time: of one run of x and y, of one run of x, of one run of y.
    fn boxes_that_share_no_sector(device: &Device) -> Result<()> {
        for (dtype, shape) in [
            (DType::F32, [30_001, 3, 5]),
            (DType::F16, [50_003, 5, 3]),
            (DType::F32, [3, 80_000, 3]),
            (DType::F16, [2, 3, 80_000]),
        ] {
            let x = random(device, dtype, &shape, 9)?;
            assert_eq!(check_plans_like(&x, &[0, 2, 1], 400, 0, " filled")?, 1, "{dtype} {shape:?}");
        }
        Ok(())
    }

    /// Some plans have so many blocks along the rows that those along the columns go first, of boxes and of tiles.
    fn long_matrices_of_few_columns(device: &Device) -> Result<()> {
        check_plans(&random(device, DType::U8, &[8400, 70], 5)?, &[1, 0], 100, 0)?;
        check_plans(&random(device, DType::F32, &[8240, 64], 6)?, &[1, 0], 3, 0)
    }
}
