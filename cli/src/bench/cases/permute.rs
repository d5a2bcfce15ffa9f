//! The cases of `permute` and its kin: what the literature measures, shapes of models, odd and skinny ones, and random problems.

use std::rc::Rc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use warpwright::ops::permute::{Candidate, MOST_TRIED, permute_candidates};
use warpwright::ops::{merge_heads_into, split_heads_into, transpose_in_place};
use warpwright::{DType, Result, Tensor};

use crate::bench::case::{Case, Prepared, Setting};
use crate::bench::data::Data;
use crate::ops::FLOATS;
use crate::ops::permute::DTYPES;

/// Shapes and orders, of 128 MB to 512 MB in f32.
const NAMED: [(&[usize], &[isize]); 13] = [
    (&[32, 2048, 1024], &[1, 0, 2]),
    (&[64, 1024, 1024], &[0, 2, 1]),
    (&[8192, 8192], &[1, 0]),
    (&[64, 128, 56, 56], &[0, 2, 3, 1]),
    (&[64, 56, 56, 128], &[0, 3, 1, 2]),
    (&[16, 16, 64, 64, 64], &[4, 2, 0, 3, 1]),
    (&[8191, 8193], &[1, 0]),
    (&[64, 128, 55, 55], &[0, 2, 3, 1]),
    (&[64, 55, 55, 128], &[0, 3, 1, 2]),
    (&[24, 15, 61, 65, 45], &[4, 2, 0, 3, 1]),
    (&[256, 3, 256, 256], &[0, 2, 3, 1]),
    (&[256, 256, 256, 3], &[0, 3, 1, 2]),
    (&[4_000_000, 3, 5], &[0, 2, 1]),
];
/// BERT's heads: 12 MB in f32, once from memory and once from L2, where the product that makes them leaves them.
const BERT: (&[usize], &[isize]) = (&[8, 384, 16, 64], &[0, 2, 1, 3]);
/// What the checker has time for, and what takes little longer than a launch.
const SMALL: [(&[usize], &[isize]); 5] = [
    (&[3, 40, 50], &[0, 2, 1]),
    (&[128, 512], &[1, 0]),
    (&[7, 30, 33, 31], &[0, 3, 2, 1]),
    (&[8, 200, 300], &[0, 2, 1]),
    (&[1024, 1024], &[1, 0]),
];
/// Cases that `--quick` leaves.
const QUICK: usize = 6;
/// Random problems, and the bytes that they have.
const RANDOM: u64 = 200;
const RANDOM_BYTES: std::ops::Range<usize> = 64 << 20..256 << 20;

pub fn cases(setting: &Setting) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in setting.dtypes(DTYPES) {
        let named = if setting.quick { &NAMED[..QUICK] } else { &NAMED };
        for (shape, dims) in named.iter().copied().chain([BERT]).chain(SMALL) {
            cases.push(case(shape, dims, dtype, "").compiled(true));
        }
        cases.push(case(BERT.0, BERT.1, dtype, " in L2").cached().compiled(true));
        if !setting.quick {
            for seed in 0..RANDOM {
                let (shape, dims) = random_problem(seed, dtype);
                cases.push(case(&shape, &dims, dtype, &format!(" random={seed}")));
            }
        }
    }
    cases
}

/// Two to six dimensions in any order but their own, of any extents.
fn random_problem(seed: u64, dtype: DType) -> (Vec<usize>, Vec<isize>) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let elements = rng.random_range(RANDOM_BYTES) / dtype.size();
    let rank = rng.random_range(2..=6usize);
    // Extents whose logarithms are evenly spread, scaled to the number of elements.
    let shares: Vec<f64> = (0..rank).map(|_| rng.random_range(0.1..1.0)).collect();
    let total: f64 = shares.iter().sum();
    let extent = |share: &f64| ((elements as f64).powf(share / total).round() as usize).max(2);
    let shape: Vec<usize> = shares.iter().map(extent).collect();
    let mut dims: Vec<isize> = (0..rank as isize).collect();
    while dims.is_sorted() {
        (1..rank).for_each(|i| dims.swap(i, rng.random_range(0..=i)));
    }
    (shape, dims)
}

fn case(shape: &[usize], dims: &[isize], dtype: DType, more: &str) -> Case {
    let set_bytes = 2 * shape.iter().product::<usize>() * dtype.size();
    let text = dims.iter().map(isize::to_string).collect::<Vec<_>>().join(",");
    let (owned, order) = (shape.to_vec(), dims.to_vec());
    Case::new("permute", shape, dtype, format!("dims={text}{more}"), set_bytes, move |data, sets| {
        prepare(data, sets, &owned, &order, dtype)
    })
    .torch([("dims", Value::from(dims.to_vec()))])
    .beside_copy()
}

fn prepare(data: &Data, sets: usize, shape: &[usize], dims: &[isize], dtype: DType) -> Result<Prepared> {
    let x = data.bits(sets, dtype, shape)?;
    let of: Vec<usize> = x[0].permute(dims)?.shape().to_vec();
    let y = data.outputs(sets, dtype, &of)?;
    let sets: Sets = x.into_iter().zip(y).collect();
    let (x, y) = &sets[0];
    let floor = 2 * x.len() * dtype.size();
    let mut prepared: Option<Prepared> = None;
    for candidate in permute_candidates(x, dims, y, MOST_TRIED)? {
        let (plan, launch) = (candidate.describe(), way(candidate, &sets, dims));
        prepared = Some(match prepared {
            None => Prepared::new(floor, plan, launch),
            Some(prepared) => prepared.or(plan, launch),
        });
    }
    // The planner's own choice is always there.
    Ok(prepared.unwrap_or_else(|| Prepared::new(floor, "", |_| Ok(()))))
}

/// x and y of each set.
type Sets = Rc<[(Tensor, Tensor)]>;

fn way(candidate: Candidate, sets: &Sets, dims: &[isize]) -> impl Fn(usize) -> Result<()> + 'static {
    let (sets, dims) = (sets.clone(), dims.to_vec());
    move |set| {
        let (x, y) = &sets[set];
        candidate.run(x, &dims, y)
    }
}

/// Batch, sequence, heads and their size: BERT large, and what the checker has time for.
const HEADS: [[usize; 4]; 3] = [[8, 384, 16, 64], [32, 512, 16, 64], [2, 6, 4, 16]];

pub fn head_cases(setting: &Setting, split: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in setting.dtypes(FLOATS) {
        for [b, s, h, d] in HEADS {
            for bias in [false, true] {
                cases.push(head_case(split, [b, s, h, d], dtype, bias).compiled(true));
            }
        }
    }
    cases
}

fn head_case(split: bool, [b, s, h, d]: [usize; 4], dtype: DType, bias: bool) -> Case {
    let (rows, heads) = ([b, s, 3, h, d], [3, b, h, s, d]);
    let (name, from, to) = if split { ("split_heads", rows, heads) } else { ("merge_heads", heads, rows) };
    let bytes = 2 * b * s * 3 * h * d * dtype.size();
    let variant = if bias { "bias" } else { "" };
    Case::new(name, &from, dtype, variant, bytes, move |data, sets| {
        let (x, y) = (data.numbers(sets, dtype, &from)?, data.outputs(sets, dtype, &to)?);
        let bias = if bias { data.numbers(1, dtype, &[3, h, d])?.pop() } else { None };
        let floor = bytes + bias.as_ref().map_or(0, Tensor::len) * dtype.size();
        Ok(Prepared::new(floor, "", move |set| match split {
            true => split_heads_into(&x[set], bias.as_ref(), &y[set]),
            false => merge_heads_into(&x[set], bias.as_ref(), &y[set]),
        }))
    })
    .torch([("bias", bias.into())])
    .beside_copy()
}

pub fn in_place_cases(setting: &Setting) -> Vec<Case> {
    let shapes: [&[usize]; 3] = [&[8192, 8192], &[64, 1024, 1024], &[2, 70, 70]];
    let mut cases = Vec::new();
    for dtype in setting.dtypes(DTYPES) {
        for shape in shapes {
            let bytes = shape.iter().product::<usize>() * dtype.size();
            let case = Case::new("transpose_in_place", shape, dtype, "", bytes, move |data, sets| {
                let x = data.bits(sets, dtype, shape)?;
                Ok(Prepared::new(2 * bytes, "", move |set| transpose_in_place(&x[set])))
            });
            cases.push(case.beside_copy());
        }
    }
    cases
}
