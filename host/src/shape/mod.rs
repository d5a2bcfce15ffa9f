//! Arithmetic on shapes and strides, before anything is allocated or launched.
//!
//! Strides count elements. Sizes are checked once, where a shape comes in: after that the number of
//! elements of a shape, times the size of one, fits an `isize`.

mod dims;
mod merge;
mod reshape;

pub(crate) use dims::Dims;
pub use dims::MAX_RANK;
pub(crate) use merge::{Merged, merge};
pub(crate) use reshape::reshaped_strides;

use crate::error::{Error, Result};

/// A shape of at most [`MAX_RANK`] dimensions whose elements, of `size` bytes each, fit memory.
pub(crate) fn checked(op: &'static str, shape: &[usize], size: usize) -> Result<Dims<usize>> {
    let Some(dims) = Dims::from_slice(shape) else {
        let got = shape.len().to_string();
        return Err(Error::TooLarge { op, what: "the number of dimensions", limit: MAX_RANK as u64, got });
    };
    // Empty dimensions count as one: strides of the others must be right, too.
    let bytes = shape.iter().try_fold(size, |bytes, &extent| bytes.checked_mul(extent.max(1)));
    match bytes {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(dims),
        _ => Err(Error::TooLarge {
            op,
            what: "the tensor's bytes",
            limit: isize::MAX as u64,
            got: format!("shape {shape:?} of {size}-byte elements"),
        }),
    }
}

/// The number of elements of a checked shape.
pub(crate) fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Row-major strides of a checked shape.
pub(crate) fn contiguous_strides(shape: &[usize]) -> Dims<isize> {
    let mut strides = Dims::zeros(shape.len());
    let mut step = 1isize;
    for (stride, &extent) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step *= extent.max(1) as isize;
    }
    strides
}

/// Whether the elements lie in row-major order without gaps. Strides of dimensions of size 1 do not matter.
pub(crate) fn is_contiguous(shape: &[usize], strides: &[isize]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut step = 1isize;
    shape.iter().zip(strides).rev().all(|(&extent, &stride)| {
        let fits = extent == 1 || stride == step;
        step *= extent as isize;
        fits
    })
}

/// The lowest and highest offset that a non-empty view reaches; `None` where one does not fit an `isize`.
pub(crate) fn reach(shape: &[usize], strides: &[isize]) -> Option<(isize, isize)> {
    shape.iter().zip(strides).try_fold((0isize, 0isize), |(low, high), (&extent, &stride)| {
        let span = stride.checked_mul(isize::try_from(extent).ok()?.checked_sub(1)?)?;
        Some((low.checked_add(span.min(0))?, high.checked_add(span.max(0))?))
    })
}

/// Strides that walk a tensor of shape `from` as if it had shape `to`: dimensions align at the right,
/// and those that are missing in front or have size 1 repeat (stride 0).
pub(crate) fn broadcast_strides(
    op: &'static str,
    arg: &'static str,
    from: &[usize],
    strides: &[isize],
    to: &[usize],
) -> Result<Dims<isize>> {
    let refuse = || Error::Shape {
        op,
        arg,
        required: format!("{to:?}, where dimensions may be missing in front or be 1"),
        got: from.to_vec(),
    };
    let missing = to.len().checked_sub(from.len()).ok_or_else(refuse)?;
    let mut result = Dims::zeros(to.len());
    for ((stride, &extent), (&size, &step)) in
        result.iter_mut().zip(to).skip(missing).zip(from.iter().zip(strides))
    {
        *stride = match size {
            _ if size == extent => step,
            1 => 0,
            _ => return Err(refuse()),
        };
    }
    Ok(result)
}

/// A dimension counted from the front, or from the back where it is negative. `rank` is how many the
/// caller can choose from.
pub(crate) fn dimension(op: &'static str, arg: &'static str, dim: isize, rank: usize) -> Result<usize> {
    let index = if dim < 0 { dim + rank as isize } else { dim };
    match usize::try_from(index) {
        Ok(index) if index < rank => Ok(index),
        _ => {
            let required = match rank {
                0 => "absent, since the tensor has no dimensions".to_owned(),
                _ => format!("in -{rank}..={}", rank - 1),
            };
            Err(Error::Parameter { op, arg, required, got: dim.to_string() })
        }
    }
}

#[cfg(test)]
pub(crate) mod test_support {
    use proptest::prelude::*;

    /// Offsets of all elements, in row-major order: the model that everything is compared with.
    pub fn offsets(shape: &[usize], strides: &[isize]) -> Vec<isize> {
        shape.iter().zip(strides).fold(vec![0], |outer, (&extent, &stride)| {
            outer.iter().flat_map(|base| (0..extent as isize).map(move |i| base + i * stride)).collect()
        })
    }

    /// A small shape and strides for `N` operands; many of them mergeable.
    pub fn views<const N: usize>() -> impl Strategy<Value = (Vec<usize>, [Vec<isize>; N])> {
        let dim = (0usize..5, prop::array::uniform::<_, N>((0u8..4, -3isize..9)));
        prop::collection::vec(dim, 0..=6).prop_map(|dims| {
            let shape: Vec<usize> = dims.iter().map(|(extent, _)| *extent).collect();
            let strides = std::array::from_fn(|operand| {
                let mut next = 1;
                let mut strides: Vec<isize> = (dims.iter().rev())
                    .map(|(extent, choices)| {
                        let (kind, odd) = choices[operand];
                        let stride = match kind {
                            0 | 1 => next,
                            2 => 0,
                            _ => odd,
                        };
                        next = stride * *extent as isize;
                        stride
                    })
                    .collect();
                strides.reverse();
                strides
            });
            (shape, strides)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::test_support::{offsets, views};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_ninth_dimension_is_refused() {
        assert!(checked("op", &[1; 8], 4).is_ok());
        let error = checked("op", &[1; 9], 4).unwrap_err();
        assert_eq!(error.to_string(), "op: the number of dimensions must be at most 8, got 9");
    }

    #[test]
    fn sizes_past_the_address_space_are_refused() {
        let error = checked("op", &[1 << 40, 1 << 30], 4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "op: the tensor's bytes must be at most 9223372036854775807, \
             got shape [1099511627776, 1073741824] of 4-byte elements"
        );
        assert!(checked("op", &[0, usize::MAX, 2], 1).is_err());
        assert!(checked("op", &[1 << 31, 1 << 30], 4).is_err());
        assert!(checked("op", &[1 << 31, 1 << 29], 4).is_ok());
    }

    #[test]
    fn contiguous_strides_are_row_major() {
        assert_eq!(&*contiguous_strides(&[2, 3, 4]), [12, 4, 1]);
        assert_eq!(&*contiguous_strides(&[2, 0, 4]), [4, 4, 1]);
        assert_eq!(&*contiguous_strides(&[]), [0isize; 0]);
    }

    #[test]
    fn missing_and_single_dimensions_broadcast() {
        let strides = |from: &[usize], to: &[usize]| {
            broadcast_strides("op", "bias", from, &contiguous_strides(from), to).map(|dims| dims.to_vec())
        };
        assert_eq!(strides(&[3, 4], &[2, 3, 4]).unwrap(), [0, 4, 1]);
        assert_eq!(strides(&[3, 1], &[2, 3, 4]).unwrap(), [0, 1, 0]);
        assert_eq!(strides(&[], &[2]).unwrap(), [0]);
        assert_eq!(strides(&[1], &[0]).unwrap(), [0]);
        let error = strides(&[3, 2], &[2, 3, 4]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "op: `bias` must have shape [2, 3, 4], where dimensions may be missing in front or be 1, \
             got [3, 2]"
        );
        assert!(strides(&[1, 2, 3, 4], &[2, 3, 4]).is_err());
    }

    #[test]
    fn dimensions_count_from_either_end() {
        assert_eq!(dimension("op", "dim", -1, 3).unwrap(), 2);
        assert_eq!(dimension("op", "dim", 0, 3).unwrap(), 0);
        for dim in [3, -4, isize::MIN, isize::MAX] {
            let error = dimension("op", "dim", dim, 3).unwrap_err();
            assert_eq!(error.to_string(), format!("op: `dim` must be in -3..=2, got {dim}"));
        }
        assert!(dimension("op", "dim", 0, 0).is_err());
    }

    proptest! {
        #[test]
        fn contiguous_means_offsets_in_order((shape, [strides]) in views::<1>()) {
            let walk = offsets(&shape, &strides);
            let in_order = walk.iter().enumerate().all(|(i, &offset)| offset == i as isize);
            prop_assert_eq!(is_contiguous(&shape, &strides), in_order);
        }

        #[test]
        fn reach_is_the_lowest_and_highest_offset((shape, [strides]) in views::<1>()) {
            let walk = offsets(&shape, &strides);
            if let (Some(&low), Some(&high)) = (walk.iter().min(), walk.iter().max()) {
                prop_assert_eq!(reach(&shape, &strides), Some((low, high)));
            }
        }
    }
}
