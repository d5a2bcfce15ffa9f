//! The operations. Each checks its arguments first, by a *shape function* that can be called alone, and
//! returns a typed [`Error`](crate::Error).

pub mod masked_softmax;

pub use masked_softmax::{Mask, MaskedSoftmax, masked_softmax, masked_softmax_into, masked_softmax_shape};
