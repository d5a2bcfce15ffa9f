//! A handle for one element type, a view of another.

use kernels_gpu::probe::widen;
use warpwright::{Device, Grid, Result, Tensor};

fn launch(device: &Device, x: &Tensor, y: &Tensor) -> Result<()> {
    // SAFETY: does not compile.
    unsafe { device.launch(&widen::kernels::<half::f16>()[0], Grid::new(1)?, (x.view::<half::bf16>()?, y.view_mut()?, 1u32)) }
}

fn main() {}
