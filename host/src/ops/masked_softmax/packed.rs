//! Packed sequences, turned into a range of columns for each row.

use super::{Causal, Mask, MaskedSoftmax, OP, PackedKeys};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::packed::Packed;
use crate::tensor::{Desc, Tensor};
use kernels_gpu::embedding::{self as kernels, KeptColumns};

/// One past the last kept column of each row, and the first.
pub struct Bounds {
    ends: Tensor,
    firsts: Tensor,
}

impl Bounds {
    /// The parameters with these bounds for their mask.
    pub fn instead<'a>(&'a self, parameters: &MaskedSoftmax<'a>) -> MaskedSoftmax<'a> {
        let mask = Mask::Range { lengths: Some(&self.ends), starts: Some(&self.firsts) };
        MaskedSoftmax { mask, causal: None, ..*parameters }
    }
}

/// Checks the boundaries of scores x.
pub fn check(op: &'static str, x: &Desc, cu_seqlens: &Desc, keys: PackedKeys) -> Result<Packed> {
    let &[.., tokens, cols] = x.shape() else {
        let required = "[.., T, K] with `cu_seqlens`".to_owned();
        return Err(Error::Shape { op, arg: "x", required, got: x.shape().to_vec() });
    };
    if keys == PackedKeys::Packed && tokens != cols {
        let required = "[.., T, T] with packed keys".to_owned();
        return Err(Error::Shape { op, arg: "x", required, got: x.shape().to_vec() });
    }
    Packed::new(op, x, cu_seqlens, tokens, cols)
}

/// The bounds of the rows of x, checked; nothing for other masks.
pub fn bounds(x: &Tensor, parameters: &MaskedSoftmax) -> Result<Option<Bounds>> {
    let Mask::Packed { cu_seqlens, keys } = parameters.mask else { return Ok(None) };
    let packed = check(OP, x.desc(), cu_seqlens.desc(), keys)?;
    let starts = packed.read(OP, x, cu_seqlens)?;
    let bounds = || Tensor::uninit(x.device(), DType::I32, &[packed.total]);
    let (ends, firsts) = (bounds()?, bounds()?);
    if packed.total > 0 {
        let params = KeptColumns {
            tokens: packed.total as u32,
            sequences: packed.sequences as u32,
            cols: x.shape()[x.rank() - 1] as u32,
            packed: u32::from(keys == PackedKeys::Packed),
            causal: u32::from(parameters.causal.is_some()),
            offset: match parameters.causal {
                Some(Causal::Offset(offset)) => offset,
                Some(Causal::BottomRight) | None => 0,
            },
        };
        let kernel = &kernels::kept_columns::ALL[0];
        let grid = Grid::covering(packed.total as u64, u64::from(kernel.bounds.threads))?;
        let args = (starts.view::<u32>()?, firsts.view_mut::<i32>()?, ends.view_mut::<i32>()?, params);
        // SAFETY: boundaries as they were read, an element for each token; the grid covers them.
        unsafe { x.device().launch(kernel, grid, args)? };
    }
    Ok(Some(Bounds { ends, firsts }))
}
