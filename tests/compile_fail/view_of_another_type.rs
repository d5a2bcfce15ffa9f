//! A view whose elements are not the kernel's.

use kernels_gpu::probe::copy;
use warpwright::{Device, Grid, Result, Tensor};

fn launch(device: &Device, x: &Tensor, y: &Tensor) -> Result<()> {
    // SAFETY: does not compile.
    unsafe { device.launch(&copy::ALL[0], Grid::new(1)?, (x.view::<f32>()?, y.view_mut()?, 1u64)) }
}

fn main() {}
