//! The tensors of one call of an operation.

use warpwright::Tensor;

/// In the order that the operation's `Function::run` takes.
pub struct Operands {
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
}
