//! The demo of permutations: all bits of the result against the index formula, and sums with a bias rounded once.

use warpwright::{DType, Device, Result, Tensor, ops, reference};

use super::deviation::{Deviation, half_bit};
use super::{Bench, Case, Label, Prepared, Setting, random};
use crate::error::CliError;
use crate::ops::FLOATS;

/// Shapes and orders that the checker has time for.
const SMALL: [(&[usize], &[isize]); 3] =
    [(&[3, 64, 48], &[0, 2, 1]), (&[37, 41], &[1, 0]), (&[2, 3, 5, 7, 11], &[4, 2, 0, 3, 1])];
/// And a GPU: matrices, images, heads, odd extents.
const LARGE: [(&[usize], &[isize]); 4] = [
    (&[64, 1024, 1024], &[0, 2, 1]),
    (&[64, 128, 56, 56], &[0, 2, 3, 1]),
    (&[64, 512, 16, 64], &[0, 2, 1, 3]),
    (&[8191, 8193], &[1, 0]),
];
/// Elements of the result that are compared, of many: the last ones.
const COMPARED: usize = 1 << 20;

pub fn cases(setting: &Setting) -> Vec<Box<dyn Case>> {
    let shapes = SMALL.iter().chain(if setting.gpu { &LARGE[..] } else { &[] });
    let of = |&(shape, dims): &(&'static [usize], &'static [isize])| {
        FLOATS.iter().map(move |&dtype| {
            let shape = shape.to_vec();
            Box::new(PermuteCase { shape, dims, dtype, kind: Kind::Permute }) as Box<dyn Case>
        })
    };
    shapes.flat_map(of).collect()
}

/// Batch, sequence, heads and their size.
const SMALL_HEADS: [usize; 4] = [2, 6, 4, 16];
const LARGE_HEADS: [usize; 4] = [8, 384, 16, 64];

pub fn head_cases(setting: &Setting, split: bool) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for [b, s, h, d] in [SMALL_HEADS].into_iter().chain(setting.gpu.then_some(LARGE_HEADS)) {
        let (shape, dims): (_, &[isize]) = match split {
            true => (vec![b, s, 3, h, d], &[2, 0, 3, 1, 4]),
            false => (vec![3, b, h, s, d], &[1, 3, 0, 2, 4]),
        };
        for &dtype in FLOATS {
            let kind = if split { Kind::Split } else { Kind::Merge };
            cases.push(Box::new(PermuteCase { shape: shape.clone(), dims, dtype, kind }));
        }
    }
    cases
}

pub fn in_place_cases(setting: &Setting) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for shape in [vec![2, 70, 70]].into_iter().chain(setting.gpu.then(|| vec![8192, 8192])) {
        let dims: &[isize] = if shape.len() == 3 { &[0, 2, 1] } else { &[1, 0] };
        for &dtype in FLOATS {
            cases.push(Box::new(PermuteCase { shape: shape.clone(), dims, dtype, kind: Kind::InPlace }));
        }
    }
    cases
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Permute,
    /// With a bias.
    Split,
    Merge,
    InPlace,
}

struct PermuteCase {
    shape: Vec<usize>,
    dims: &'static [isize],
    dtype: DType,
    kind: Kind,
}

impl Case for PermuteCase {
    fn label(&self) -> Label {
        let dims: Vec<String> = self.dims.iter().map(isize::to_string).collect();
        let mask = match self.kind {
            Kind::Permute => format!("dims={}", dims.join(",")),
            Kind::Split | Kind::Merge => "bias".to_owned(),
            Kind::InPlace => String::new(),
        };
        Label { shape: self.shape.clone(), dtype: self.dtype, mask, data: "random".to_owned() }
    }

    fn bytes(&self) -> usize {
        2 * self.shape.iter().product::<usize>() * self.dtype.size()
    }

    fn prepare(&self, bench: &mut Bench) -> Result<Box<dyn Prepared>, CliError> {
        let device = bench.device().clone();
        let set = |seed| -> Result<(Tensor, Tensor)> {
            let x = random::tensor(&device, self.dtype, &self.shape, 1.0, seed)?;
            let y = Tensor::uninit(&device, self.dtype, x.permute(self.dims)?.shape())?;
            Ok((x, y))
        };
        let bias_shape: &[usize] = match self.kind {
            Kind::Split => &self.shape[2..],
            Kind::Merge => &[self.shape[0], self.shape[2], self.shape[4]],
            Kind::Permute | Kind::InPlace => &[],
        };
        let bias = match bias_shape {
            [] => None,
            shape => Some(random::tensor(&device, self.dtype, shape, 1.0, 1000)?),
        };
        let sets = (0..bench.sets(self.bytes()) as u64).map(set).collect::<Result<_>>()?;
        Ok(Box::new(Permuted { dims: self.dims, kind: self.kind, bias, sets, bytes: self.bytes() as u64 }))
    }
}

struct Permuted {
    dims: &'static [isize],
    kind: Kind,
    bias: Option<Tensor>,
    /// x and y.
    sets: Vec<(Tensor, Tensor)>,
    bytes: u64,
}

impl Prepared for Permuted {
    fn sets(&self) -> usize {
        self.sets.len()
    }

    fn launch(&self, set: usize) -> Result<()> {
        let (x, y) = &self.sets[set];
        match self.kind {
            Kind::Permute => ops::permute_into(x, self.dims, y),
            Kind::Split => ops::split_heads_into(x, self.bias.as_ref(), y),
            Kind::Merge => ops::merge_heads_into(x, self.bias.as_ref(), y),
            Kind::InPlace => ops::transpose_in_place(x),
        }
    }

    /// All of it, or the last rows of y's first dimension. Matrices in their place are compared with their transposes'
    /// transposes, which takes one more launch.
    fn compare(&self, set: usize) -> Result<Deviation> {
        let (x, y) = &self.sets[set];
        if self.kind == Kind::InPlace {
            y.copy_from(x)?;
            ops::transpose_in_place(x)?;
        }
        let rows = y.shape()[0];
        let kept = (COMPARED * rows / y.len().max(1)).clamp(1, rows);
        let part = |tensor: &Tensor, dim| tensor.narrow(dim, rows - kept, kept);
        let (got, from) = (part(y, 0)?, part(x, self.dims[0])?);
        let want = reference::permute(&from, self.dims)?;
        let want = Tensor::from_bytes(&Device::cpu(), y.dtype(), got.shape(), &want)?.to_f64()?;
        let mut deviation = Deviation::default();
        let Some(bias) = &self.bias else {
            deviation.add_all(&got, want, |_| 0.0)?;
            return Ok(deviation);
        };
        // The bias along y, of whose rows these are the last.
        let along = match self.kind {
            Kind::Split => bias.unsqueeze(1)?.unsqueeze(3)?,
            _ => bias.clone(),
        };
        let bias = part(&along.expand(y.shape())?, 0)?.to_f64()?;
        let sums = want.into_iter().zip(bias).map(|(value, bias)| value + bias).collect();
        let rounding = half_bit(y.dtype()).max(2f64.powi(-23));
        deviation.add_all(&got, sums, |want| rounding * want.abs() + 2f64.powi(-24))?;
        Ok(deviation)
    }

    fn floor_bytes(&self) -> u64 {
        let bias = self.bias.as_ref().map_or(0, |bias| bias.len() * bias.dtype().size());
        self.bytes + bias as u64
    }
}
