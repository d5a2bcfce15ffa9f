//! What is asked: the checked arguments.

use super::{CrossEntropy, Reduction};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::masked_softmax::{self, Described, KernelSet, MaskedSoftmax};
use crate::ops::pointwise::{contiguous, on_device, typed};
use crate::tensor::Desc;

/// Most rows: kernels count them in 31 bits.
const MAX_ROWS: u64 = (1 << 31) - 1;

/// A checked request.
#[derive(Debug)]
pub struct Problem {
    pub op: &'static str,
    /// The logits' rows.
    pub rows: masked_softmax::Problem,
    pub parameters: CrossEntropy,
    pub wide_targets: bool,
    pub loss: Desc,
    pub dx: Desc,
}

impl Problem {
    /// Checks everything that can be checked without reading an element.
    pub fn new<D: Described>(
        op: &'static str,
        x: &D,
        target: &D,
        dloss: Option<&D>,
        parameters: CrossEntropy,
    ) -> Result<Problem> {
        let (x, target) = (x.described(), target.described());
        let rows = masked_softmax::Problem::new(op, x, &MaskedSoftmax::<D>::default())?;
        if !matches!(target.dtype(), DType::I32 | DType::I64) {
            let (required, got) = ("i32 or i64".to_owned(), target.dtype());
            return Err(Error::DType { op, arg: "target", required, got });
        }
        let outer = &x.shape()[..x.rank() - 1];
        on_device(op, "target", target, x)?;
        if target.shape() != outer {
            let (required, got) = (format!("{outer:?}"), target.shape().to_vec());
            return Err(Error::Shape { op, arg: "target", required, got });
        }
        contiguous(op, "target", target)?;
        if rows.row_count() > MAX_ROWS {
            let (limit, got) = (MAX_ROWS, rows.row_count().to_string());
            return Err(Error::TooLarge { op, what: "rows of `x`", limit, got });
        }
        if rows.cols == 0 && rows.row_count() > 0 {
            let (required, got) = ("[.., V] with V ≥ 1".to_owned(), x.shape().to_vec());
            return Err(Error::Shape { op, arg: "x", required, got });
        }
        let of_loss = if parameters.reduction == Reduction::None { outer } else { &[] };
        let loss = Desc::contiguous(op, x.device(), DType::F32, of_loss)?;
        if let Some(dloss) = dloss {
            typed(op, "dloss", dloss.described(), DType::F32, &loss)?;
            contiguous(op, "dloss", dloss.described())?;
        }
        Ok(Problem {
            op,
            rows: masked_softmax::Problem { kernels: KernelSet::CrossEntropy, ..rows },
            parameters,
            wide_targets: target.dtype() == DType::I64,
            loss,
            dx: Desc::contiguous(op, x.device(), x.dtype(), x.shape())?,
        })
    }
}
