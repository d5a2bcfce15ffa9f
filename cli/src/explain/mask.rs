//! The masks that plans depend on, for the operations that have a softmax.

use warpwright::ops::masked_softmax::Causal;
use warpwright::ops::{Mask, MaskedSoftmax};
use warpwright::{DType, Desc, Device, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    None,
    /// A byte for each number of a row
    Keep,
    /// A number for each number of a row
    Bias,
    /// A length for each row
    Lengths,
    Causal,
}

/// What masks of `[rows, cols]` would be.
pub struct Masks {
    keep: Desc,
    bias: Desc,
    lengths: Desc,
}

impl Masks {
    pub fn new(device: &Device, dtype: DType, rows: usize, cols: usize) -> Result<Masks> {
        Ok(Masks {
            keep: Desc::new(device, DType::U8, &[rows, cols])?,
            bias: Desc::new(device, dtype, &[rows, cols])?,
            lengths: Desc::new(device, DType::I32, &[rows])?,
        })
    }

    /// A request with a mask of this form.
    pub fn request(&self, form: Form) -> MaskedSoftmax<'_, Desc> {
        MaskedSoftmax {
            mask: match form {
                Form::Keep => Mask::Keep(&self.keep),
                Form::Bias => Mask::Bias(&self.bias),
                Form::Lengths => Mask::Range { starts: None, lengths: Some(&self.lengths) },
                Form::None | Form::Causal => Mask::None,
            },
            causal: (form == Form::Causal).then_some(Causal::BottomRight),
            ..MaskedSoftmax::default()
        }
    }
}
