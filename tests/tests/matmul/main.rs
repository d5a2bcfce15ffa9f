//! `ops::matmul` against float64: shapes, transposes, strides, batches, types, values at the edges.

mod few;
mod gradients;
mod kernels;
mod operands;
#[path = "../../src/product.rs"]
mod product;
mod values;

use product::{tolerance, uniform};
use warpwright::ops::matmul::Plan;
use warpwright::ops::{self, Matmul, MatmulGradients};
use warpwright::{DType, Desc, Device, Result, Tensor, reference};
use warpwright_tests::{POISON, Random, assert_same, assert_within, poisoned};

/// Wants the product in the operands' type and, of 16-bit operands, in f32; twice the same bits.
fn check(a: &Tensor, b: &Tensor, parameters: &Matmul, what: &str) -> Result<Tensor> {
    let want = reference::matmul(a, b, parameters)?;
    let k = terms(a, parameters);
    let mut last = None;
    for out in [None, Some(DType::F32)] {
        let parameters = Matmul { out, ..*parameters };
        let shape = ops::matmul_shape(a, b, &parameters)?;
        let y = poisoned(a.device(), shape.dtype(), shape.shape(), POISON)?;
        ops::matmul_into(a, b, &parameters, &y)?;
        let what = format!("{what}: {:?}·{:?} {:?}, out {}", a.desc(), b.desc(), parameters, y.dtype());
        assert_within(&y.to_f64()?, &want, |i| tolerance(y.dtype(), k, scale(&parameters), want[i]), &what);
        let again = ops::matmul(a, b, &parameters)?;
        assert_same(&again.to_bytes()?, &y.to_bytes()?, &what);
        last = last.or(Some(again));
    }
    Ok(last.expect("the operands' type comes first"))
}

/// Wants the product from each of the kernels that can serve and are wanted, whichever the model would take; which they were.
fn check_each(
    a: &Tensor,
    b: &Tensor,
    parameters: &Matmul,
    wanted: impl Fn(&Plan) -> bool,
) -> Result<Vec<Plan>> {
    let want = reference::matmul(a, b, parameters)?;
    let (shape, k) = (ops::matmul_shape(a, b, parameters)?, terms(a, parameters));
    let mut plans = ops::matmul::candidates(a, b, parameters)?;
    plans.retain(wanted);
    for plan in &plans {
        let y = poisoned(a.device(), shape.dtype(), shape.shape(), POISON)?;
        ops::matmul::matmul_into_by(plan.choice, a, b, parameters, &y)?;
        let allowed = |i: usize| tolerance(y.dtype(), k, scale(parameters), want[i]);
        assert_within(&y.to_f64()?, &want, allowed, format!("{:?}·{:?} by {plan}", a.desc(), b.desc()));
    }
    Ok(plans)
}

/// Terms of each sum.
fn terms(a: &Tensor, parameters: &Matmul) -> usize {
    a.shape()[a.rank() - if parameters.transpose_a { 2 } else { 1 }]
}

/// What bounds of errors are multiples of: operands are within ±1, addends within ±2.
fn scale(parameters: &Matmul) -> f32 {
    parameters.alpha.abs().max(1.0)
}

/// Wants both gradients, into memory of the caller's and not, twice the same bits.
fn check_gradients(a: &Tensor, b: &Tensor, dy: &Tensor, parameters: &Matmul) -> Result<()> {
    let want = reference::matmul_backward(a, b, dy, parameters)?;
    let shapes = ops::matmul_backward_shape(a, b, dy, parameters)?;
    let new = |desc: &Desc| poisoned(a.device(), desc.dtype(), desc.shape(), POISON);
    let got = MatmulGradients { da: new(&shapes.da)?, db: new(&shapes.db)? };
    ops::matmul_backward_into(a, b, dy, parameters, &got)?;
    let again = ops::matmul_backward(a, b, dy, parameters)?;
    for (name, got, again, want) in [("da", &got.da, &again.da, want.da), ("db", &got.db, &again.db, want.db)]
    {
        let what = format!("{name} of {:?}·{:?}, {:?}, {parameters:?}", a.desc(), b.desc(), dy.desc());
        // Each number is a sum of as many terms as it has of dy's, and of those that repeat.
        let terms = dy.len().max(1);
        assert_within(&got.to_f64()?, &want, |i| tolerance(got.dtype(), terms, 1.0, want[i]), &what);
        assert_same(&again.to_bytes()?, &got.to_bytes()?, &what);
    }
    Ok(())
}

/// [rows, cols], or its transpose as it would lie in memory.
fn matrix(
    device: &Device,
    dtype: DType,
    [rows, cols]: [usize; 2],
    transposed: bool,
    random: &mut Random,
) -> Result<Tensor> {
    let shape = if transposed { [cols, rows] } else { [rows, cols] };
    uniform(device, dtype, &shape, random)
}
