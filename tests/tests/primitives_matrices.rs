//! Matrix fragments: loads by `ldmatrix` and products by `mma.sync`.

use cuda_std::{bf16, f16};
use kernels_gpu::probe::{LOADED_WORDS, matrix_fragments, tf32_fragments};
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

    /// Small integers, and behind them bits that tf32 has not.
    fn tf32_leaves_out_the_lower_bits(device: &Device) -> Result<()> {
        let kernel = &tf32_fragments::ALL[0];
        let mut random = Random::new(61);
        let mut integers = |count: usize| (0..count).map(|_| random.below(17) as f32 - 8.0).collect::<Vec<f32>>();
        let (a, b, c) = (integers(128), integers(64), integers(128));
        let more = |of: &[f32]| {
            let with_bits = |(i, value): (usize, &f32)| f32::from_bits(value.to_bits() | ((i as u32 * 331) & 0x1fff));
            Array::new(device, &of.iter().enumerate().map(with_bits).collect::<Vec<f32>>())
        };
        let (of_a, of_b, sums) = (more(&a)?, more(&b)?, Array::new(device, &c)?);
        // SAFETY: the arrays have the sizes that the kernel states; 192 elements are shared.
        unsafe { device.launch(kernel, Grid::new(1)?.shared(768), (of_a.view()?, of_b.view()?, sums.view_mut()?))? };
        let product = |i: usize| {
            let (row, column) = (i / 8, i % 8);
            c[i] + (0..8).map(|k| a[row * 8 + k] * b[column * 8 + k]).sum::<f32>()
        };
        assert_same(&sums.read()?, &(0..128).map(product).collect::<Vec<f32>>(), kernel.name);
        Ok(())
    }
}
