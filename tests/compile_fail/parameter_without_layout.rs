//! A kernel whose parameter has no bytes that a GPU could take.
#![allow(unexpected_cfgs)]
use cuda_std::prelude::*;
use warpwright::{Device, Grid, Result};

/// Takes a vector.
#[kernel(family = "ui", instances = [{ ; threads: 32 }])]
pub unsafe fn takes_a_vector(x: Vec<u32>) {
    drop(x);
}

fn launch(device: &Device) -> Result<()> {
    // SAFETY: does not compile.
    unsafe { device.launch(&takes_a_vector::ALL[0], Grid::new(1)?, (vec![1],)) }
}

fn main() {}
