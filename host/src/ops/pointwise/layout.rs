//! How the operands lie, and with that which kernel: pure arithmetic.

use super::Problem;

/// Elements of one launch at most: kernels count in 31 bits.
pub const MAX_LAUNCH: usize = 1 << 30;

/// How a, b and y lie to one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One run of elements, of which the first `head` lie before a unit.
    Run { head: u32 },
    /// Rows of whole units: how many, how long, and the distance of one to the next in a and b.
    Rows { rows: usize, cols: usize, a: isize, b: isize },
    /// Anything else.
    Strided,
}

/// Where the operands begin, in elements.
#[derive(Clone, Copy, Debug)]
pub struct Phases<'a> {
    /// a, b and y behind a multiple of a unit.
    pub operands: &'a [usize],
    /// The bias.
    pub bias: usize,
}

impl Layout {
    /// The layout of operands whose kernels take `unit` elements at a time.
    pub fn of(problem: &Problem, unit: usize, phases: Phases) -> Layout {
        let walk = &problem.walk;
        let [a, b, bias] = &walk.strides;
        let rank = walk.shape.len();
        // The rows and columns of what remains after merging; a bias keeps its dimension apart.
        let (rows, cols) = match (rank, problem.bias) {
            (0, None) => (1, 1),
            (1, _) => (1, walk.shape[0]),
            (2, _) => (walk.shape[0], walk.shape[1]),
            _ => return Layout::Strided,
        };
        let dense = |strides: &[isize]| strides.last().is_none_or(|&stride| stride == 1);
        let has_bias = problem.bias.is_some();
        if !dense(a) || !dense(b) || has_bias && (!dense(bias) || problem.bias != Some(cols)) {
            return Layout::Strided;
        }
        let row_stride = |strides: &[isize]| if rank == 2 { strides[0] } else { 0 };
        let (a_row, b_row) = (row_stride(a), row_stride(b));
        let whole = |stride: isize| stride.unsigned_abs().is_multiple_of(unit);
        let aligned = phases.operands.iter().all(|&phase| phase == 0) && (!has_bias || phases.bias == 0);
        let in_rows = has_bias || rank == 2;
        let units = cols.is_multiple_of(unit) && whole(a_row) && whole(b_row);
        if in_rows && aligned && units && cols <= MAX_LAUNCH {
            return Layout::Rows { rows, cols, a: a_row, b: b_row };
        }
        let one_run = rank < 2 || a_row == cols as isize && b_row == cols as isize;
        let first = phases.operands[0];
        let alike = phases.operands.iter().all(|&phase| phase == first);
        if one_run && alike && (!has_bias || cols >= unit) {
            return Layout::Run { head: ((unit - first) % unit) as u32 };
        }
        Layout::Strided
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Desc, Tensor};
    use crate::{DType, Device};

    const ALIGNED: Phases = Phases { operands: &[0, 0, 0], bias: 0 };

    fn layout(a: &Desc, b: &Desc, bias: Option<&Desc>, phases: Phases) -> Layout {
        let problem = Problem::new("op", ("a", a), Some(("b", b)), bias, DType::BF16).unwrap();
        Layout::of(&problem, 8, phases)
    }

    fn tensor(shape: &[usize]) -> Tensor {
        Tensor::zeros(&Device::cpu(), DType::BF16, shape).unwrap()
    }

    #[test]
    fn contiguous_operands_are_a_run_and_with_a_bias_rows() {
        let (x, bias) = (tensor(&[3, 5, 16]), tensor(&[16]));
        let phases = |operands| Phases { operands, bias: 0 };
        assert_eq!(layout(x.desc(), x.desc(), None, ALIGNED), Layout::Run { head: 0 });
        assert_eq!(layout(x.desc(), x.desc(), None, phases(&[3, 3, 3])), Layout::Run { head: 5 });
        assert_eq!(layout(x.desc(), x.desc(), None, phases(&[3, 3, 0])), Layout::Strided);
        let rows = Layout::Rows { rows: 15, cols: 16, a: 16, b: 16 };
        assert_eq!(layout(x.desc(), x.desc(), Some(bias.desc()), ALIGNED), rows);
        let run = layout(x.desc(), x.desc(), Some(bias.desc()), phases(&[1, 1, 1]));
        assert_eq!(run, Layout::Run { head: 7 });
        let run = layout(x.desc(), x.desc(), Some(bias.desc()), Phases { operands: &[0; 3], bias: 2 });
        assert_eq!(run, Layout::Run { head: 0 });
    }

    #[test]
    fn ragged_rows_with_a_bias_are_a_run_unless_they_are_shorter_than_a_unit() {
        for (cols, want) in [(8, None), (9, Some(0)), (15, Some(0)), (7, None)] {
            let (x, bias) = (tensor(&[4, cols]), tensor(&[cols]));
            let got = layout(x.desc(), x.desc(), Some(bias.desc()), ALIGNED);
            match (cols, want) {
                (8, _) => assert_eq!(got, Layout::Rows { rows: 4, cols: 8, a: 8, b: 8 }),
                (_, Some(head)) => assert_eq!(got, Layout::Run { head }),
                _ => assert_eq!(got, Layout::Strided),
            }
        }
    }

    #[test]
    fn views_are_rows_where_their_rows_are_whole_units() {
        let wide = tensor(&[4, 40]);
        let part = wide.narrow(1, 8, 24).unwrap();
        let dense = tensor(&[4, 24]);
        let want = Layout::Rows { rows: 4, cols: 24, a: 40, b: 24 };
        assert_eq!(layout(part.desc(), dense.desc(), None, ALIGNED), want);
        let repeated = tensor(&[1, 24]).expand(&[4, 24]).unwrap();
        let want = Layout::Rows { rows: 4, cols: 24, a: 0, b: 24 };
        assert_eq!(layout(repeated.desc(), dense.desc(), None, ALIGNED), want);
        let ragged = wide.narrow(1, 0, 20).unwrap();
        assert_eq!(layout(ragged.desc(), ragged.desc(), None, ALIGNED), Layout::Strided);
        let turned = tensor(&[24, 4]).transpose(0, 1).unwrap();
        assert_eq!(layout(turned.desc(), dense.desc(), None, ALIGNED), Layout::Strided);
        assert_eq!(layout(turned.desc(), turned.desc(), None, ALIGNED), Layout::Strided);
    }

    #[test]
    fn one_element_is_a_run() {
        let x = tensor(&[]);
        assert_eq!(layout(x.desc(), x.desc(), None, ALIGNED), Layout::Run { head: 0 });
    }
}
