//! Requests drawn at random, against float64. The draws are the same in every run.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use softmax::{Form, check};
use warpwright::ops::MaskedSoftmax;
use warpwright::ops::masked_softmax::Causal;
use warpwright::{DType, Device, Result, Tensor};
use warpwright_tests::{DTYPES, Random, floats, on_each_device};

const CASES: u32 = 200;

/// A request. The numbers of x and of the mask follow from `seed`.
#[derive(Clone, Debug)]
struct Request {
    seed: u64,
    dtype: DType,
    outer: Vec<usize>,
    cols: usize,
    form: Form,
    /// Dimensions of the mask that have size 1, and how many are missing in front.
    broadcast: Vec<bool>,
    missing: usize,
    causal: Option<Causal>,
    scale: f32,
    layout: Layout,
    /// One in so many scores is special.
    special_every: u64,
}

/// How x lies in its memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Dense,
    /// Its rows are parts of longer ones.
    Padded {
        before: usize,
        after: usize,
    },
    /// Every n-th column of longer rows.
    Stepped(usize),
    /// The last two dimensions are exchanged.
    Transposed,
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop_oneof![
        4 => Just(Layout::Dense),
        3 => (0usize..10, 0usize..10).prop_map(|(before, after)| Layout::Padded { before, after }),
        1 => (2usize..4).prop_map(Layout::Stepped),
        1 => Just(Layout::Transposed),
    ]
}

fn columns() -> impl Strategy<Value = usize> {
    prop_oneof![
        12 => 1usize..80,
        6 => 80usize..600,
        2 => 600usize..9000,
        1 => Just(0usize),
    ]
}

fn causal() -> impl Strategy<Value = Option<Causal>> {
    prop_oneof![
        4 => Just(None),
        1 => Just(Some(Causal::BottomRight)),
        2 => (-20i32..100).prop_map(|offset| Some(Causal::Offset(offset))),
        1 => any::<i32>().prop_map(|offset| Some(Causal::Offset(offset))),
    ]
}

fn requests() -> impl Strategy<Value = Request> {
    // A few are empty.
    let extent = prop_oneof![40 => 1usize..6, 1 => Just(0usize)];
    let shape = (prop::collection::vec(extent, 0..5), columns());
    let mask = (prop::sample::select(&Form::ALL[..]), prop::collection::vec(any::<bool>(), 6), 0usize..7);
    let scale = prop_oneof![Just(1.0f32), Just(0.0), -3.0f32..3.0, Just(1e-30), Just(-1e20)];
    let special = prop_oneof![Just(u64::MAX), Just(1000), Just(20), Just(3)];
    let rest = (any::<u64>(), prop::sample::select(&DTYPES[..]), causal(), scale, layouts(), special);
    (shape, mask, rest).prop_map(|((outer, cols), (form, broadcast, missing), rest)| {
        let (seed, dtype, causal, scale, layout, special_every) = rest;
        // Biased scores are rounded as f32: theirs stay moderate, so that the tolerance stays small.
        let biased = matches!(form, Form::Bias | Form::BiasF32);
        let scale = if biased && scale.abs() > 3.0 { -2.0 } else { scale };
        // Few rows where they are long.
        let outer = if cols > 600 { outer.into_iter().take(1).collect() } else { outer };
        Request { seed, dtype, outer, cols, form, broadcast, missing, causal, scale, layout, special_every }
    })
}

impl Request {
    fn special(&self, which: u64) -> f32 {
        let subnormal = if self.dtype == DType::F16 { 3e-6 } else { 5e-40 };
        let finite = [0.0, -0.0, 60.0, -60.0, subnormal, -subnormal];
        let any = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
        let large = if self.dtype == DType::F16 { 65504.0 } else { 1e38 };
        match (self.form, which) {
            (_, 0..6) => finite[which as usize],
            (_, 6..10) => any[which as usize - 6],
            (Form::Bias | Form::BiasF32, _) => -8.0,
            (_, 10) => large,
            _ => -large,
        }
    }

    fn x(&self, device: &Device, random: &mut Random) -> Result<Tensor> {
        let mut numbers = |shape: &[usize]| {
            let mut values = random.floats(shape.iter().product(), -10.0, 10.0);
            for value in &mut values {
                if random.below(self.special_every) == 0 {
                    *value = self.special(random.below(12));
                }
            }
            floats(device, self.dtype, shape, &values)
        };
        let shape = |cols: usize| [&self.outer[..], &[cols]].concat();
        match self.layout {
            Layout::Padded { before, after } => {
                numbers(&shape(before + self.cols + after))?.narrow(-1, before, self.cols)
            }
            Layout::Stepped(step) if self.cols > 0 => {
                numbers(&shape((self.cols - 1) * step + 1))?.step(-1, step)
            }
            Layout::Transposed if !self.outer.is_empty() => {
                let mut exchanged = shape(self.cols);
                exchanged.swap(self.outer.len() - 1, self.outer.len());
                numbers(&exchanged)?.transpose(-1, -2)
            }
            _ => numbers(&shape(self.cols)),
        }
    }

    fn check(&self, device: &Device) -> Result<()> {
        let mut random = Random::new(self.seed);
        let x = self.x(device, &mut random)?;
        let dims = x.shape().iter().zip(&self.broadcast).map(|(&extent, &one)| if one { 1 } else { extent });
        let shape: Vec<usize> = dims.skip(self.missing.min(x.rank() - 1)).collect();
        let masking = self.form.random(device, self.dtype, self.cols, &shape, &mut random)?;
        let parameters = MaskedSoftmax { scale: self.scale, mask: masking.mask(), causal: self.causal };
        check(&x, &parameters, "drawn").map(drop)
    }
}

on_each_device! {
    fn every_request_gives_what_the_reference_gives(device: &Device) -> Result<()> {
        let config =
            Config { cases: CASES, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let outcome = runner.run(&requests(), |request| {
            request.check(device).map_err(|error| TestCaseError::fail(error.to_string()))
        });
        match outcome {
            Ok(()) => Ok(()),
            Err(TestError::Fail(reason, request)) => panic!("{reason}\nsmallest request: {request:?}"),
            Err(error) => panic!("{error}"),
        }
    }
}
