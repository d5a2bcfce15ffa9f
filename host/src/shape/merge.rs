//! Fewer dimensions for the same walk over several operands.

use super::Dims;

/// What [`merge`] leaves: extents, and one list of strides for each operand. Outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merged<const N: usize> {
    pub shape: Dims<usize>,
    pub strides: [Dims<isize>; N],
}

/// Drops the dimensions of size 1 and merges neighbours wherever every operand steps through both as
/// through one. The order of the elements stays.
///
/// No elements give one dimension of extent 0; a single element gives none. Each list of strides has as
/// many entries as `shape`.
pub(crate) fn merge<const N: usize>(shape: &[usize], strides: [&[isize]; N]) -> Merged<N> {
    let mut merged = Merged { shape: Dims::new(), strides: [Dims::new(); N] };
    if shape.contains(&0) {
        merged.shape.push(0);
        merged.strides.iter_mut().for_each(|dims| dims.push(0));
        return merged;
    }
    for (dim, &extent) in shape.iter().enumerate().filter(|&(_, &extent)| extent != 1) {
        let inner = strides.map(|operand| operand[dim]);
        match merged.shape.last_mut() {
            Some(outer) if joins(&merged.strides, &inner, extent) => {
                *outer *= extent;
                for (operand, stride) in merged.strides.iter_mut().zip(inner) {
                    operand.last_mut().into_iter().for_each(|last| *last = stride);
                }
            }
            _ => {
                merged.shape.push(extent);
                merged.strides.iter_mut().zip(inner).for_each(|(operand, stride)| operand.push(stride));
            }
        }
    }
    merged
}

/// Whether a step in the last merged dimension equals `extent` steps in the next one, for each operand.
fn joins<const N: usize>(outer: &[Dims<isize>; N], inner: &[isize; N], extent: usize) -> bool {
    let extent = isize::try_from(extent).ok();
    outer.iter().zip(inner).all(|(outer, &inner)| {
        extent.and_then(|extent| inner.checked_mul(extent)).is_some_and(|step| outer.last() == Some(&step))
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{offsets, views};
    use super::*;
    use proptest::prelude::*;

    fn check(shape: &[usize], strides: &[isize], want_shape: &[usize], want_strides: &[isize]) {
        let merged = merge(shape, [strides]);
        assert_eq!((&*merged.shape, &*merged.strides[0]), (want_shape, want_strides));
    }

    #[test]
    fn contiguous_dimensions_become_one() {
        check(&[2, 3, 4], &[12, 4, 1], &[24], &[1]);
    }

    #[test]
    fn dimensions_of_size_one_go_whatever_their_stride() {
        check(&[1, 3, 1, 4, 1], &[7, 4, -5, 1, 99], &[12], &[1]);
        check(&[1, 1], &[5, 6], &[], &[]);
        check(&[], &[], &[], &[]);
    }

    #[test]
    fn padding_and_transposition_keep_dimensions_apart() {
        check(&[3, 4], &[5, 1], &[3, 4], &[5, 1]);
        check(&[4, 3], &[1, 4], &[4, 3], &[1, 4]);
        check(&[2, 3, 4], &[15, 5, 1], &[6, 4], &[5, 1]);
    }

    #[test]
    fn broadcast_dimensions_merge_with_each_other_only() {
        check(&[2, 3, 4], &[0, 0, 1], &[6, 4], &[0, 1]);
        check(&[2, 3, 4], &[4, 0, 1], &[2, 3, 4], &[4, 0, 1]);
    }

    #[test]
    fn reversed_dimensions_merge() {
        check(&[2, 3], &[-3, -1], &[6], &[-1]);
    }

    #[test]
    fn all_operands_have_to_agree() {
        let merged = merge(&[2, 3, 4], [&[12, 4, 1], &[0, 4, 1]]);
        assert_eq!(&*merged.shape, [2, 12]);
        assert_eq!((&*merged.strides[0], &*merged.strides[1]), (&[12, 1][..], &[0, 1][..]));
    }

    #[test]
    fn no_elements_are_one_empty_dimension() {
        check(&[2, 0, 3], &[0, 3, 1], &[0], &[0]);
    }

    #[test]
    fn strides_past_64_bits_do_not_merge() {
        check(&[2, 4], &[0, isize::MAX / 2], &[2, 4], &[0, isize::MAX / 2]);
    }

    proptest! {
        #[test]
        fn the_walk_over_two_operands_stays((shape, [a, b]) in views::<2>()) {
            let merged = merge(&shape, [&a, &b]);
            let pairs = |shape: &[usize], a: &[isize], b: &[isize]| -> Vec<_> {
                offsets(shape, a).into_iter().zip(offsets(shape, b)).collect()
            };
            prop_assert_eq!(
                pairs(&merged.shape, &merged.strides[0], &merged.strides[1]),
                pairs(&shape, &a, &b)
            );
            prop_assert!(!merged.shape.contains(&1));
            // Merging again finds nothing more.
            prop_assert_eq!(merge(&merged.shape, [&merged.strides[0], &merged.strides[1]]), merged);
        }
    }
}
