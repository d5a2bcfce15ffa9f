//! Input and output in the wrong order.

use kernels_gpu::probe::copy;
use warpwright::{Device, Grid, Result, Tensor};

fn launch(device: &Device, x: &Tensor, y: &Tensor) -> Result<()> {
    // SAFETY: does not compile.
    unsafe { device.launch(&copy::ALL[0], Grid::new(1)?, (y.view_mut()?, x.view()?, 1u64)) }
}

fn main() {}
