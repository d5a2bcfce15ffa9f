//! Tests of what is chosen, and of what is launched.

mod counted;
mod f32;
mod few;
mod hopper;
mod launches;
mod layouts;
mod plans;

use super::layout::begins;
use super::model::H100_MEMORY;
use super::plan::Plan;
use super::request::{Request, Side, Target};
use crate::dtype::DType;
use kernels_gpu::matmul::Matrix;

const TARGET: Target =
    Target { sms: 132, shared_bytes: 228 << 10, warpgroups: false, fast_tf32: true, memory: H100_MEMORY };
const ALONG_K: Side = Side { along_k: true, copied: false };

fn request([m, n, k]: [usize; 3], dtype: DType) -> Request {
    let lying = Matrix { row: k as i64, col: 1, outer: 0, inner: 0 };
    let begins = [begins(&lying, true, dtype, 0); 2];
    let sides = [ALONG_K; 2];
    Request {
        m,
        n,
        k,
        batch: 1,
        dtype,
        tf32: false,
        sides,
        begins,
        mappable: [true; 2],
        by_columns: false,
        neighbours: true,
        boxed: dtype != DType::F32,
        in_turn: dtype != DType::F32 && n.is_multiple_of(8),
        beside: false,
        gelu: false,
        simple: true,
    }
}

fn plan(shape: [usize; 3], dtype: DType) -> Plan {
    Plan::new(&request(shape, dtype), TARGET, None)
}
