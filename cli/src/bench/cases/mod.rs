//! The cases of each operation. [`case`](super::case) tells how to add one's.

pub mod attention_scores;
pub mod cross_entropy;
pub mod embedding;
pub mod masked_softmax;
pub mod permute;
pub mod pointwise;
pub mod products;
pub mod recurrent;
pub mod rows;
