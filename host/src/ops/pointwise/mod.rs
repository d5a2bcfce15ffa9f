//! What operations on each element share: the checks, the choice of a kernel, the launch.

mod launch;
mod layout;
mod problem;
mod rows;

pub(super) use launch::{Kernels, Operands, run};
pub(super) use problem::{Problem, check_output, contiguous, float, into, on_device, reach, same, typed};
pub(super) use rows::{Rows, RowsPlan};

/// `$body` with `$T` standing for the type of elements that `$dtype` names: f32, f16 or bf16, which has been
/// checked.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            crate::dtype::DType::F16 => {
                type $T = half::f16;
                $body
            }
            crate::dtype::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            _ => {
                type $T = f32;
                $body
            }
        }
    };
}
pub(super) use with_float;
