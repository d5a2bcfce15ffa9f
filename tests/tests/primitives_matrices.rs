//! Matrix fragments: loads by `ldmatrix` and products by `mma.sync`.

use cuda_std::{bf16, f16};
use kernels_gpu::probe::{LOADED_WORDS, matrix_fragments};
use warpwright::{Device, Grid, Result};
use warpwright_tests::{Array, Plain, Random, assert_same, on_each_device};

/// Element (row, column) of 32 rows of eight.
fn bits(row: usize, column: usize) -> u32 {
    (8 * row + column) as u32
}

/// The words that a lane loads of so many matrices.
fn words(lane: usize, count: usize, transposed: bool) -> Vec<u32> {
    let (own, pair) = (lane / 4, 2 * (lane % 4));
    let word = |matrix: usize| match transposed {
        false => bits(8 * matrix + own, pair) | bits(8 * matrix + own, pair + 1) << 16,
        true => bits(8 * matrix + pair, own) | bits(8 * matrix + pair + 1, own) << 16,
    };
    (0..count).map(word).collect()
}

fn fragments<T>(device: &Device, from_bits: fn(u16) -> T, from_f32: fn(f32) -> T) -> Result<()>
where
    T: Plain + matrix_fragments::Instances,
{
    let kernel = &matrix_fragments::kernels::<T>()[0];
    let x: Vec<T> = (0..256).map(from_bits).collect();
    // Small integers: their products and sums are exact.
    let mut random = Random::new(60);
    let mut integers = |count: usize| (0..count).map(|_| random.below(17) as f32 - 8.0).collect::<Vec<f32>>();
    let (a, b, c) = (integers(256), integers(128), integers(128));
    let array = |of: &[f32]| Array::new(device, &of.iter().map(|&value| from_f32(value)).collect::<Vec<T>>());
    let loaded = Array::<u32>::poisoned(device, 32 * LOADED_WORDS)?;
    let sums = Array::new(device, &c)?;
    let (of_x, of_a, of_b) = (Array::new(device, &x)?, array(&a)?, array(&b)?);
    let args = (of_x.view()?, loaded.view_mut()?, of_a.view()?, of_b.view()?, sums.view_mut()?);
    // SAFETY: the arrays have the sizes that the kernel states, and 256 elements of two bytes are shared.
    unsafe { device.launch(kernel, Grid::new(1)?.shared(512), args)? };
    let loads = [(1, false), (1, true), (2, false), (2, true), (4, false), (4, true)];
    let want: Vec<u32> = (0..32)
        .flat_map(|lane| {
            loads.into_iter().flat_map(move |(count, transposed)| words(lane, count, transposed))
        })
        .collect();
    assert_same(&loaded.read()?, &want, kernel.name);
    let product = |i: usize| {
        let (row, column) = (i / 8, i % 8);
        c[i] + (0..16).map(|k| a[row * 16 + k] * b[column * 16 + k]).sum::<f32>()
    };
    let want: Vec<f32> = (0..128).map(product).collect();
    assert_same(&sums.read()?, &want, kernel.name);
    Ok(())
}

on_each_device! {
    fn fragments_hold_what_the_manual_says(device: &Device) -> Result<()> {
        fragments(device, f16::from_bits, f16::from_f32)?;
        fragments(device, bf16::from_bits, bf16::from_f32)
    }
}
