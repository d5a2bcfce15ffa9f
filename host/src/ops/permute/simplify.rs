//! The same permutation with fewer dimensions and longer elements.

use crate::shape::{self, Dims};

/// Bytes of the longest element that is moved as one.
pub const PACK: usize = 16;

/// A dimension of y.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    pub extent: usize,
    /// Elements of x from one to the next.
    pub x: isize,
    /// Elements of y from one to the next.
    pub y: isize,
}

/// y, which is contiguous, element by element from x.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Simple {
    /// As y has them, outermost first; none of extent 1. No dimension is a single element.
    pub dims: Vec<Dim>,
    /// Bytes of an element.
    pub size: usize,
}

/// Drops dimensions of extent 1 and merges those that stay neighbours, in x as in y. `shape` is y's, which is not
/// empty, and `strides` are x's along it; elements have `size` bytes.
pub fn simplify(shape: &[usize], strides: &[isize], size: usize) -> Simple {
    let merged = shape::merge(shape, [strides]);
    with_strides_of_y(&merged.shape, &merged.strides[0], size)
}

fn with_strides_of_y(shape: &[usize], x: &[isize], size: usize) -> Simple {
    let y: Dims<isize> = shape::contiguous_strides(shape);
    let dims = shape.iter().zip(x).zip(&*y).map(|((&extent, &x), &y)| Dim { extent, x, y });
    Simple { dims: dims.collect(), size }
}

/// Takes as many neighbours of the last dimension for one element as all rows allow, up to 16 bytes. They do where the last
/// dimension is x's, too; `alignment` is what both addresses are multiples of.
pub fn widen(simple: Simple, alignment: usize) -> Simple {
    let mut factor = PACK / simple.size;
    while factor > 1 && !widens(&simple, alignment, factor) {
        factor /= 2;
    }
    if factor <= 1 {
        return simple;
    }
    let (mut shape, mut strides) = (Vec::new(), Vec::new());
    for (i, dim) in simple.dims.iter().enumerate() {
        let last = i + 1 == simple.dims.len();
        let extent = if last { dim.extent / factor } else { dim.extent };
        if extent > 1 {
            shape.push(extent);
            strides.push(if last { 1 } else { dim.x / factor as isize });
        }
    }
    with_strides_of_y(&shape, &strides, simple.size * factor)
}

/// Whether elements can be that many times as long.
fn widens(simple: &Simple, alignment: usize, factor: usize) -> bool {
    let Some((last, outer)) = simple.dims.split_last() else { return false };
    last.x == 1
        && last.extent.is_multiple_of(factor)
        && outer.iter().all(|dim| dim.x.unsigned_abs().is_multiple_of(factor))
        && alignment.is_multiple_of(simple.size * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// y's dimensions as (extent, stride in x).
    fn dims(simple: &Simple) -> Vec<(usize, isize)> {
        simple.dims.iter().map(|dim| (dim.extent, dim.x)).collect()
    }

    /// x contiguous of this shape, permuted.
    fn permuted(shape: &[usize], order: &[usize], size: usize) -> Simple {
        let strides = shape::contiguous_strides(shape);
        let of = |i: &usize| (shape[*i], strides[*i]);
        let (shape, strides): (Vec<_>, Vec<_>) = order.iter().map(of).unzip();
        simplify(&shape, &strides, size)
    }

    #[test]
    fn dimensions_of_size_one_go_and_neighbours_merge() {
        assert_eq!(dims(&permuted(&[2, 1, 3, 4], &[0, 1, 2, 3], 4)), [(24, 1)]);
        assert_eq!(dims(&permuted(&[2, 3, 4, 5], &[2, 3, 0, 1], 4)), [(20, 1), (6, 20)]);
        assert_eq!(
            dims(&permuted(&[64, 128, 56, 56], &[0, 2, 3, 1], 4)),
            [(64, 401408), (3136, 1), (128, 3136)]
        );
        assert_eq!(dims(&permuted(&[5, 1], &[1, 0], 4)), [(5, 1)]);
        assert_eq!(dims(&permuted(&[1, 1], &[1, 0], 4)), []);
    }

    #[test]
    fn strides_of_y_are_row_major() {
        let simple = permuted(&[2, 3, 4], &[2, 0, 1], 4);
        assert_eq!(simple.dims.iter().map(|dim| dim.y).collect::<Vec<_>>(), [6, 1]);
    }

    #[test]
    fn elements_widen_as_far_as_rows_and_addresses_allow() {
        for (shape, order, size, alignment, want, wide) in [
            (&[6, 4, 8][..], &[1, 0, 2][..], 4, 256, &[(4, 2), (6, 8), (2, 1)][..], 16),
            (&[6, 4, 8], &[1, 0, 2], 4, 8, &[(4, 4), (6, 16), (4, 1)], 8),
            (&[6, 4, 2], &[1, 0, 2], 4, 256, &[(4, 1), (6, 4)], 8),
            (&[6, 4, 7], &[1, 0, 2], 1, 256, &[(4, 7), (6, 28), (7, 1)], 1),
            (&[6, 5, 10], &[1, 0, 2], 1, 256, &[(5, 5), (6, 25), (5, 1)], 2),
            (&[6, 4, 8], &[0, 2, 1], 4, 256, &[(6, 32), (8, 1), (4, 8)], 4),
            (&[64], &[0], 1, 256, &[(4, 1)], 16),
        ] {
            let got = widen(permuted(shape, order, size), alignment);
            assert_eq!((dims(&got).as_slice(), got.size), (want, wide), "{shape:?} {order:?}");
        }
    }

    #[test]
    fn rows_with_padding_widen_by_their_distance() {
        let simple = simplify(&[3, 8], &[10, 1], 2);
        assert_eq!((dims(&widen(simple.clone(), 16)), 4), (vec![(3, 5), (4, 1)], widen(simple, 16).size));
    }

    /// Byte of x for each byte of y.
    fn bytes(simple: &Simple) -> Vec<isize> {
        let elements = simple.dims.iter().fold(vec![0isize], |outer, dim| {
            outer.iter().flat_map(|base| (0..dim.extent as isize).map(move |i| base + i * dim.x)).collect()
        });
        let size = simple.size as isize;
        elements.iter().flat_map(|at| (0..size).map(move |byte| at * size + byte)).collect()
    }

    proptest! {
        #[test]
        fn every_byte_comes_from_where_it_did(
            dims in prop::collection::vec((1usize..7, 0usize..1000), 1..=6),
            size in prop::sample::select(vec![1usize, 2, 4, 8, 16]),
            padding in 0isize..3,
            alignment in prop::sample::select(vec![1usize, 2, 4, 8, 16, 256]),
        ) {
            // A permutation by sorting, of a tensor with padded rows.
            let mut order: Vec<usize> = (0..dims.len()).collect();
            order.sort_by_key(|&i| dims[i].1);
            let shape: Vec<usize> = dims.iter().map(|dim| dim.0).collect();
            let mut strides = shape::contiguous_strides(&shape).to_vec();
            let last = strides.len() - 1;
            strides[..last].iter_mut().for_each(|stride| *stride *= 1 + padding);
            let (shape, strides): (Vec<_>, Vec<_>) = order.iter().map(|&i| (shape[i], strides[i])).unzip();
            let model = with_strides_of_y(&shape, &strides, size);
            let simple = simplify(&shape, &strides, size);
            prop_assert_eq!(bytes(&simple), bytes(&model));
            let wide = widen(simple.clone(), alignment.max(size));
            prop_assert_eq!(bytes(&wide), bytes(&model));
            prop_assert!(wide.dims.iter().all(|dim| dim.extent > 1));
            prop_assert!(wide.size <= PACK && alignment.max(size).is_multiple_of(wide.size));
        }
    }
}
