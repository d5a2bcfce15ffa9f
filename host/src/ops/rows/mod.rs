//! What operations along rows share: the checks, the choice of a kernel, the launch.

mod backward;
mod launch;
mod plan;
mod problem;
mod walk;

pub(super) use backward::{Backward, Gradients, run_backward, run_column_sums};
pub(super) use launch::{Kernels, Operands, row_kernels, run};
pub(super) use problem::{Problem, check_eps, into, into_all, uninit};
