//! Sequences of different lengths, packed one behind the other: where each begins, checked on the device.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::pointwise::{on_device, reach};
use crate::tensor::{Desc, Tensor};
use cuda_std::Global;
use cuda_std::divide::Divisor;
use kernels_gpu::embedding::{self as kernels, Boundaries, FAULT_BITS, Tokens, token_kind};

/// Most sequences: kernels count them in 31 bits.
const MOST: usize = (1 << 31) - 2;

/// What `cu_seqlens` says, as far as that is known without reading it.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    pub sequences: usize,
    /// The steps of all sequences together.
    pub total: usize,
    /// The most steps that a sequence may have.
    pub most: usize,
    /// The stride and type of the boundaries.
    stride: isize,
    dtype: DType,
}

impl Packed {
    /// Checks boundaries `[sequences + 1]` of `total` steps beside an operand x.
    pub fn new(op: &'static str, x: &Desc, cu_seqlens: &Desc, total: usize, most: usize) -> Result<Packed> {
        let arg = "cu_seqlens";
        if !matches!(cu_seqlens.dtype(), DType::I32 | DType::I64) {
            let (required, got) = ("i32 or i64".to_owned(), cu_seqlens.dtype());
            return Err(Error::DType { op, arg, required, got });
        }
        on_device(op, arg, cu_seqlens, x)?;
        reach(op, arg, cu_seqlens)?;
        let sequences = match *cu_seqlens.shape() {
            // Steps belong to a sequence.
            [count] if count > usize::from(total > 0) => count - 1,
            _ => {
                let (required, got) = ("[sequences + 1]".to_owned(), cu_seqlens.shape().to_vec());
                return Err(Error::Shape { op, arg, required, got });
            }
        };
        for (what, got) in [("elements of `cu_seqlens`", sequences), ("packed steps", total)] {
            if got > MOST {
                return Err(Error::TooLarge { op, what, limit: MOST as u64, got: got.to_string() });
            }
        }
        let (stride, dtype) = (cu_seqlens.strides()[0], cu_seqlens.dtype());
        Ok(Packed { sequences, total, most: most.min(total), stride, dtype })
    }

    /// The boundaries as u32 on `x`'s stream, none beyond the total; and the check of them.
    pub fn read(&self, op: &'static str, x: &Tensor, cu_seqlens: &Tensor) -> Result<Tensor> {
        let (device, count, total) = (x.device(), self.sequences + 1, self.total as i64);
        let cu_seqlens = cu_seqlens.adopted(device, op, "cu_seqlens")?;
        let starts = Tensor::uninit(device, DType::U32, &[count])?;
        let wider = self.dtype == DType::I64;
        let slot = |arg, allowed| device.clipped_value_slot(op, arg, allowed, FAULT_BITS, wider);
        let (first, last) = (slot("cu_seqlens", 0..=0)?, slot("cu_seqlens", total..=total)?);
        let lengths = slot("lengths by cu_seqlens", 0..=self.most as i64)?;
        let values = Tokens {
            sequence: 0,
            step: self.stride as i64,
            vocabulary: total + 1,
            steps: Divisor::new(count as u32).expect("there is a boundary"),
            kind: if self.dtype == DType::I64 { token_kind::I64 } else { token_kind::I32 },
        };
        let params = Boundaries { values, count: count as u32, most: self.most as u32 };
        let kernel = &kernels::read_boundaries::ALL[0];
        let grid = Grid::covering(count as u64, u64::from(kernel.bounds.threads))?;
        // SAFETY: words of boundaries, of one or two each; the grid covers them. Memory is freed in the order of the stream.
        unsafe {
            let words = Global::from_raw(cu_seqlens.raw_view()?);
            let args = (words, starts.view_mut::<u32>()?, first.view(), last.view(), lengths.view(), params);
            device.launch(kernel, grid, args)?;
        }
        [first, last, lengths].into_iter().try_for_each(|slot| slot.finish())?;
        Ok(starts)
    }
}
