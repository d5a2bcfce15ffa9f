//! Batches of more dimensions than kernels count in.

use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::matmul::counted::Counted;
use crate::ops::matmul::layout::Layout;
use crate::ops::matmul::problem::{Epilogue, Factors, Problem};
use crate::tensor::Tensor;

fn zeros(shape: &[usize]) -> Result<Tensor> {
    let count = shape.iter().product();
    Tensor::from_slice(&Device::cpu(), shape, &vec![0.0f32; count])
}

fn problem(a: &Tensor, b: &Tensor) -> Result<Problem> {
    let factors = Factors::new("matmul", ("a", a.desc(), false), ("b", b.desc(), true))?;
    Problem::new("matmul", factors, Epilogue::default(), DType::F32, a.device())
}

/// Windows of an image, of which rows are neither a matrix nor a batch of two dimensions.
fn windows() -> Result<Tensor> {
    zeros(&[2, 3, 4, 2, 5, 6])?.permute(&[0, 1, 3, 2, 4, 5])
}

#[test]
fn a_weight_stays_one_where_rows_are_copied() -> Result<()> {
    let (x, weight) = (windows()?, zeros(&[6, 7])?);
    let problem = problem(&x, &weight)?;
    assert!(Layout::new(&problem).is_none());
    let counted = Counted::new(&problem);
    let [of_x, of_weight] = counted.operands([&x, &weight])?;
    assert_eq!((of_x.shape(), of_x.is_contiguous()), (x.shape(), true));
    assert_eq!((of_weight.address(), of_weight.shape()), (weight.address(), weight.shape()));
    assert_eq!((counted.layout.m, counted.layout.products()), (2 * 3 * 2 * 4 * 5, 1));
    // What is added does not step as the windows do, and is copied; it is the least.
    let added = zeros(&[4, 5, 7])?;
    let contiguous = zeros(&[2, 3, 2, 4, 5, 6])?;
    let problem = self::problem(&contiguous, &weight)?.with_addend("c", added.desc())?;
    let counted = Counted::new(&problem);
    let [of_x, _] = counted.operands([&contiguous, &weight])?;
    assert_eq!(of_x.address(), contiguous.address());
    Ok(())
}

#[test]
fn what_repeats_is_copied_once_where_that_will_do() -> Result<()> {
    // b is one for the outer dimension, and its others are out of order.
    let a = zeros(&[2, 3, 4, 5, 6, 7])?;
    let b = zeros(&[5, 4, 3, 7, 8])?.permute(&[2, 1, 0, 3, 4])?;
    let problem = problem(&a, &b)?;
    assert!(Layout::new(&problem).is_none());
    let counted = Counted::new(&problem);
    let [of_a, of_b] = counted.operands([&a, &b])?;
    assert_eq!(of_a.address(), a.address());
    assert_eq!((of_b.shape(), of_b.is_contiguous()), (&[1, 3, 4, 5, 7, 8][..], true));
    assert_eq!((counted.layout.batch, counted.layout.b.outer), ([2, 3 * 4 * 5], 0));
    Ok(())
}
