//! An element type that the kernel is not built for.

use kernels_gpu::probe::widen;
use warpwright::{Device, Grid, Result, Tensor};

fn launch(device: &Device, x: &Tensor, y: &Tensor) -> Result<()> {
    // SAFETY: does not compile.
    unsafe { device.launch(&widen::kernels::<f64>()[0], Grid::new(1)?, (x.view()?, y.view_mut()?, 1u32)) }
}

fn main() {}
