//! The cases of each operation. [`case`](super::case) tells how to add one's.

pub mod embedding;
pub mod masked_softmax;
pub mod pointwise;
pub mod products;
pub mod rows;
