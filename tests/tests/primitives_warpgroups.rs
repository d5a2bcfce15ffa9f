//! What products on Hopper are made of: rings of barriers, matrices stored by a warp, a warpgroup's products and registers.
//! Boxes of tensor maps are tested where maps are made, in the library.

use cuda_std::{bf16, f16};
use kernels_gpu::probe::{PRODUCT, handed_over, rounds, stored_matrices, tile_products};
use warpwright::{Device, Grid, Result};
use warpwright_tests::{Array, Plain, Random, assert_same, on_each_device};

/// Whether the device runs kernels for Hopper: the CPU does.
fn runs_them(device: &Device) -> bool {
    device.info().is_none_or(|info| info.arch == (9, 0))
}

fn stores<T: Plain + stored_matrices::Instances>(device: &Device, bits: fn(T) -> u16) -> Result<()> {
    for kernel in stored_matrices::kernels::<T>() {
        let y = Array::<T>::poisoned(device, 256)?;
        // SAFETY: the array and the shared memory have the sizes that the kernel states.
        unsafe { device.launch(kernel, Grid::new(1)?.shared(512), (y.view_mut()?,))? };
        let got: Vec<u16> = y.read()?.into_iter().map(bits).collect();
        // Lane l has of matrix i the elements 2·(l % 4) and the next of row l / 4.
        let want: Vec<u16> = (0..256)
            .map(|at| {
                let (matrix, down, along) = (at / 64, at / 8 % 8, at % 8);
                let turned = kernel.constant("TRANSPOSED") == 1;
                let (row, column) = if turned { (along, down) } else { (down, along) };
                let lane = 4 * row + column / 2;
                2 * (4 * lane + matrix) + column % 2
            })
            .collect();
        assert_same(&got, &want, kernel.name);
    }
    Ok(())
}

fn products<T: Plain + tile_products::Instances>(device: &Device, from: fn(f32) -> T) -> Result<()> {
    let size = PRODUCT as usize;
    let mut random = Random::new(90);
    // Small integers: their products and sums are exact.
    let mut integers = || (0..size * size).map(|_| random.below(17) as f32 - 8.0).collect::<Vec<f32>>();
    let (a, b, c) = (integers(), integers(), integers());
    let array = |of: &[f32]| Array::new(device, &of.iter().map(|&value| from(value)).collect::<Vec<T>>());
    let (of_a, of_b) = (array(&a)?, array(&b)?);
    for kernel in tile_products::kernels::<T>() {
        let sums = Array::new(device, &c)?;
        let args = (of_a.view()?, of_b.view()?, sums.view_mut()?);
        // SAFETY: the arrays and the shared memory have the sizes that the kernel states.
        unsafe { device.launch(kernel, Grid::new(1)?.shared(4 * PRODUCT * PRODUCT), args)? };
        let place = |across: &str, line: usize, term: usize| match kernel.constant(across) {
            0 => line * size + term,
            _ => term * size + line,
        };
        let want: Vec<f32> = (0..size * size)
            .map(|at| {
                let (row, column) = (at / size, at % size);
                let product = |k| a[place("A", row, k)] * b[place("B", column, k)];
                c[at] + 2.0 * (0..size).map(product).sum::<f32>()
            })
            .collect();
        assert_same(&sums.read()?, &want, kernel.name);
    }
    Ok(())
}

on_each_device! {
    fn a_ring_of_barriers_hands_over_every_turn(device: &Device) -> Result<()> {
        if !runs_them(device) {
            return Ok(());
        }
        for turns in [1usize, 3, 4, 100] {
            let values = Random::new(91).words(32 * turns);
            let (x, y) = (Array::new(device, &values)?, Array::<u32>::poisoned(device, values.len())?);
            // Three stages of 128 bytes, with two barriers of 8 for each.
            let grid = Grid::new(1)?.shared(3 * (128 + 16));
            // SAFETY: the arrays and the shared memory have the sizes that the kernel states.
            unsafe { device.launch(&rounds::ALL[0], grid, (x.view()?, y.view_mut()?, turns as u32))? };
            let want: Vec<u32> = values.chunks(32).flat_map(|turn| turn.iter().rev()).copied().collect();
            assert_same(&y.read()?, &want, format!("{turns} turns"));
        }
        Ok(())
    }

    fn matrices_are_stored_as_they_are_loaded(device: &Device) -> Result<()> {
        if !runs_them(device) {
            return Ok(());
        }
        stores(device, f16::to_bits)?;
        stores(device, bf16::to_bits)
    }

    fn warpgroups_multiply_tiles_of_either_layout(device: &Device) -> Result<()> {
        if !runs_them(device) {
            return Ok(());
        }
        products(device, f16::from_f32)?;
        products(device, bf16::from_f32)
    }

    fn one_half_of_a_block_hands_over_to_the_other(device: &Device) -> Result<()> {
        if !runs_them(device) {
            return Ok(());
        }
        let values = Random::new(92).words(128);
        let (x, y) = (Array::new(device, &values)?, Array::<u32>::poisoned(device, 128)?);
        // SAFETY: the arrays and the shared memory have the sizes that the kernel states.
        unsafe { device.launch(&handed_over::ALL[0], Grid::new(1)?.shared(512), (x.view()?, y.view_mut()?))? };
        let want: Vec<u32> = values.iter().rev().map(|value| value.wrapping_mul(*value).wrapping_add(1)).collect();
        assert_same(&y.read()?, &want, "the numbers, squared");
        Ok(())
    }
}
