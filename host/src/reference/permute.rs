//! The index formula of permutations.

use crate::error::Result;
use crate::shape;
use crate::tensor::Tensor;

/// The bytes of y[i…] = x[i… permuted], element by element: dimension `i` of y is dimension `dims[i]` of x.
///
/// # Errors
/// As [`Tensor::permute`], and those of reading x.
pub fn permute(x: &Tensor, dims: &[isize]) -> Result<Vec<u8>> {
    let (view, elements) = (x.permute(dims)?, x.to_bytes()?);
    let size = x.dtype().size();
    let strides = shape::contiguous_strides(x.shape());
    let rank = x.rank() as isize;
    let steps: Vec<usize> =
        dims.iter().map(|&dim| strides[if dim < 0 { dim + rank } else { dim } as usize] as usize).collect();
    let mut bytes = Vec::with_capacity(elements.len());
    for number in 0..view.len() {
        let (mut rest, mut from) = (number, 0);
        for (&extent, &step) in view.shape().iter().zip(&steps).rev() {
            from += rest % extent * step;
            rest /= extent;
        }
        bytes.extend_from_slice(&elements[from * size..][..size]);
    }
    Ok(bytes)
}
