//! What `#[kernel]` refuses.

use cuda_std::prelude::*;

#[kernel(family = "ui", instances = [{ ; threads: 32 }])]
pub fn safe() {}

#[kernel(family = "ui")]
pub unsafe fn without_instances() {}

#[kernel(instances = [{ ; threads: 32 }])]
pub unsafe fn without_family() {}

#[kernel(family = "ui", instances = [{ ; min_blocks: 2 }])]
pub unsafe fn without_threads() {}

#[kernel(family = "ui", instances = [{ ; threads: 1025 }])]
pub unsafe fn too_many_threads() {}

#[kernel(family = "ui", instances = [{ B: 2, A: 1; threads: 32 }])]
pub unsafe fn consts_in_another_order<const A: usize, const B: usize>() {}

#[kernel(family = "ui", instances = [{ A: 1; threads: 32 }])]
pub unsafe fn const_missing<const A: usize, const B: usize>() {}

#[kernel(family = "ui", instances = [{ ; threads: 32 }])]
pub unsafe fn types_missing<T: Float>(_x: Global<T>) {}

#[kernel(family = "ui", types = [f32], instances = [{ ; threads: 32 }])]
pub unsafe fn types_without_parameter() {}

#[kernel(family = "ui", types = [f32], instances = [{ ; threads: 32 }])]
pub unsafe fn two_types<T: Float, U: Float>(_x: Global<T>, _y: Global<U>) {}

#[kernel(family = "ui", instances = [{ ; threads: 32 }])]
pub unsafe fn a_pattern((_x, _y): (u32, u32)) {}

#[kernel(family = "ui", instances = [{ ; threads: 32 }], requires = "sm_80")]
pub unsafe fn another_architecture() {}

#[kernel(family = "ui", instances = [{ ; threads: 32 }], blocks = 3)]
pub unsafe fn unknown_key() {}

fn main() {}
