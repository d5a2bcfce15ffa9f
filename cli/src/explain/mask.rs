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

impl Form {
    /// What such a mask of `[rows, cols]` is, where it is a tensor.
    pub fn tensor(self, device: &Device, dtype: DType, [rows, cols]: [usize; 2]) -> Result<Option<Desc>> {
        match self {
            Form::Keep => Desc::new(device, DType::U8, &[rows, cols]).map(Some),
            Form::Bias => Desc::new(device, dtype, &[rows, cols]).map(Some),
            Form::Lengths => Desc::new(device, DType::I32, &[rows]).map(Some),
            Form::None | Form::Causal => Ok(None),
        }
    }

    /// A request with this mask, and its tensor.
    pub fn request(self, tensor: Option<&Desc>) -> MaskedSoftmax<'_, Desc> {
        MaskedSoftmax {
            mask: match (self, tensor) {
                (Form::Keep, Some(keep)) => Mask::Keep(keep),
                (Form::Bias, Some(bias)) => Mask::Bias(bias),
                (Form::Lengths, lengths) => Mask::Range { starts: None, lengths },
                _ => Mask::None,
            },
            causal: (self == Form::Causal).then_some(Causal::BottomRight),
            ..MaskedSoftmax::default()
        }
    }
}
