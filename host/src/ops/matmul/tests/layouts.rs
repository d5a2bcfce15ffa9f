//! How operands lie for kernels.

use crate::device::Device;
use crate::dtype::DType;
use crate::ops::matmul::layout::{Layout, Lines, lines, pitch};
use crate::ops::matmul::maps::mappable;
use crate::ops::matmul::problem::{Epilogue, Factors, Problem};
use crate::tensor::Desc;
use kernels_gpu::matmul::Matrix;

#[test]
fn rows_of_a_batch_are_rows_of_one_product_as_long_as_kernels_count_them() {
    let device = Device::cpu();
    let layout = |batch: usize, rows: usize| {
        let desc = |shape: &[usize]| Desc::new(&device, DType::BF16, shape).unwrap();
        let (x, weight) = (desc(&[batch, rows, 8]), desc(&[8, 8]));
        let factors = Factors::new("linear", ("x", &x, false), ("weight", &weight, false)).unwrap();
        let problem = Problem::new("linear", factors, Epilogue::default(), DType::BF16, &device).unwrap();
        let layout = Layout::new(&problem).unwrap();
        (layout.m, layout.products())
    };
    assert_eq!(layout(6, 7), (42, 1));
    assert_eq!(layout(2, 1 << 29), (1 << 30, 1));
    assert_eq!(layout(8, 1 << 29), (1 << 29, 8));
}

#[test]
fn lines_start_at_packs_or_the_operand_is_copied() {
    let of = |row, col| Matrix { row, col, outer: 64, inner: 8 };
    let along = |step| Some(Lines { along_k: true, step });
    let across = |step| Some(Lines { along_k: false, step });
    for (matrix, extents, want) in [
        (of(40, 1), (5, 33), along(40)),
        (of(33, 1), (5, 33), None),
        (of(1, 40), (33, 5), across(40)),
        (of(1, 33), (33, 5), None),
        (of(40, 2), (5, 20), None),
        // Of one row, or one column, the other step does not matter.
        (of(33, 1), (1, 33), along(40)),
        (of(1, 33), (33, 1), across(40)),
        (of(8, 33), (5, 1), along(8)),
        (of(0, 1), (5, 33), along(0)),
        (Matrix { inner: 4, ..of(40, 1) }, (5, 33), None),
        (Matrix { outer: 4, ..of(40, 1) }, (5, 33), None),
    ] {
        assert_eq!(lines(&matrix, extents.0, extents.1, 8), want, "{matrix:?} {extents:?}");
    }
}

#[test]
fn lines_that_are_one_and_the_same_have_no_map() {
    let matrix = |row: i64| Matrix { row, col: 1, outer: 0, inner: 0 };
    assert!(mappable(&matrix(64), 2, 9, true) && mappable(&matrix(0), 2, 1, true));
    assert!(!mappable(&matrix(0), 2, 9, true) && !mappable(&matrix(-64), 2, 9, true));
    assert!(!mappable(&matrix(1 << 39), 2, 9, true));
    let across = Matrix { row: 1, col: 0, outer: 0, inner: 0 };
    assert!(!mappable(&across, 2, 9, false) && mappable(&across, 2, 1, false));
}

#[test]
fn copies_begin_at_lines_of_l2_where_that_is_little_more() {
    for (length, dtype, want) in [
        (17, DType::BF16, 24),
        (255, DType::F16, 256),
        (257, DType::F16, 320),
        (3544, DType::BF16, 3584),
        (100, DType::F32, 100),
        (130, DType::F32, 160),
    ] {
        assert_eq!(pitch(length, dtype), want, "{length} {dtype}");
    }
}
