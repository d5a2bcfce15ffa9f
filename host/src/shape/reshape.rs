//! Another shape for the same elements, without a copy.

use super::{Dims, contiguous_strides, count, merge};

/// Strides under which a view of shape `from` has shape `to`; both have the same number of elements.
/// `None` where the elements would have to move.
pub(crate) fn reshaped_strides(from: &[usize], strides: &[isize], to: &[usize]) -> Option<Dims<isize>> {
    if count(to) == 0 {
        return Some(contiguous_strides(to));
    }
    // Each merged dimension is one run of equal steps; the new dimensions have to split these runs.
    let runs = merge(from, [strides]);
    let mut result = Dims::zeros(to.len());
    let mut runs = runs.shape.iter().copied().zip(runs.strides[0].iter().copied()).rev();
    let (mut left, mut step) = (1, 1);
    for (stride, &extent) in result.iter_mut().zip(to).rev() {
        if extent == 1 {
            *stride = step;
            continue;
        }
        if left == 1 {
            (left, step) = runs.next()?;
        }
        if !left.is_multiple_of(extent) {
            return None;
        }
        *stride = step;
        left /= extent;
        step = step.checked_mul(isize::try_from(extent).ok()?)?;
    }
    (left == 1).then_some(result)
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{offsets, views};
    use super::*;
    use proptest::prelude::*;

    fn check(from: &[usize], strides: &[isize], to: &[usize], want: Option<&[isize]>) {
        assert_eq!(reshaped_strides(from, strides, to).as_deref(), want, "{from:?} {strides:?} {to:?}");
    }

    #[test]
    fn a_contiguous_tensor_takes_any_shape() {
        check(&[6, 4], &[4, 1], &[2, 3, 2, 2], Some(&[12, 4, 2, 1]));
        check(&[], &[], &[1, 1], Some(&[1, 1]));
        check(&[1], &[1], &[], Some(&[]));
    }

    #[test]
    fn a_run_splits_and_two_runs_do_not_join() {
        check(&[4, 6], &[1, 4], &[2, 2, 3, 2], Some(&[2, 1, 8, 4]));
        check(&[4, 6], &[1, 4], &[24], None);
        check(&[4, 6], &[1, 4], &[8, 3], None);
        check(&[2, 6], &[0, 1], &[2, 2, 3], Some(&[0, 3, 1]));
    }

    #[test]
    fn empty_tensors_take_any_empty_shape() {
        check(&[0, 3], &[9, 5], &[7, 0], Some(&[1, 1]));
    }

    proptest! {
        #[test]
        fn the_elements_keep_their_order(
            (shape, [strides]) in views::<1>(),
            pick in prop::collection::vec(1usize..=4, 0..4),
        ) {
            let walk = offsets(&shape, &strides);
            let mut rest = walk.len();
            let mut to: Vec<usize> = Vec::new();
            for extent in pick {
                if rest > 0 && rest.is_multiple_of(extent) {
                    to.push(extent);
                    rest /= extent;
                }
            }
            to.push(rest);
            match reshaped_strides(&shape, &strides, &to) {
                Some(result) => prop_assert_eq!(offsets(&to, &result), walk),
                None => {
                    // Every candidate would have to give the first steps of the walk, and none does.
                    let steps = |dim: usize| -> usize { to[dim + 1..].iter().product() };
                    let forced: Vec<isize> = (0..to.len())
                        .map(|dim| if to[dim] > 1 { walk[steps(dim)] - walk[0] } else { 0 })
                        .collect();
                    prop_assert_ne!(offsets(&to, &forced), walk);
                }
            }
        }
    }
}
