//! What kernels leave, behind what the public functions show.

use crate::device::Device;
use crate::dtype::Element;
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::matmul::choice::Choice;
use crate::ops::matmul::launch::{Behind, run};
use crate::ops::matmul::maps;
use crate::ops::matmul::problem::{Epilogue, Factors, Problem};
use crate::ops::{Activation, Approximate, LinearBackward};
use crate::reference;
use crate::tensor::Tensor;
use cuda_std::{Float, bf16, f16};
use kernels_gpu::matmul::{Matrix, activation};
use kernels_gpu::probe::{BOX, boxes};

/// Copies the box at a corner of a tensor, whose lines have a gap behind them, from one to another, raised by 1.
fn copies_a_clipped_box<T: Element + Float + boxes::Instances>(device: &Device, width: usize) -> Result<()> {
    let (lines, step) = (40, 104);
    let [box_width, box_lines] = BOX.map(|extent| extent as usize);
    let (x, y) = (64, 32);
    let bytes = |of: &[u16]| of.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>();
    let numbers: Vec<u16> = (0..lines * step).map(|number| number as u16).collect();
    let poison = vec![0xa5a5; numbers.len()];
    let from = Tensor::from_bytes(device, T::DTYPE, &[lines, step], &bytes(&numbers))?;
    let to = Tensor::from_bytes(device, T::DTYPE, &[lines, step], &bytes(&poison))?;
    let seen = Tensor::zeros(device, T::DTYPE, &[box_lines, box_width])?;
    let matrix = Matrix { row: step as i64, col: 1, ..Matrix::default() };
    let map = |tensor| maps::result(tensor, &matrix, [lines, width], [1, 1], BOX);
    let grid = Grid::new(1)?.shared(2 * BOX[0] * BOX[1] + 8);
    let args = (map(&from)?, map(&to)?, seen.view_mut::<T>()?, x as i32, y as i32);
    // SAFETY: the tensors and the shared memory have the sizes that the kernel states.
    unsafe { device.launch(&boxes::kernels::<T>()[0], grid, args)? };
    let inside = |line: usize, column: usize| line < lines && column < width;
    let mut want_seen = Vec::new();
    let mut want_to = poison;
    for (line, column) in (0..box_lines).flat_map(|line| (0..box_width).map(move |column| (line, column))) {
        let (line, column) = (y + line, x + column);
        let at = line * step + column;
        want_seen.push(if inside(line, column) { numbers[at] } else { 0 });
        if inside(line, column) {
            want_to[at] = numbers[at] + 1;
        }
    }
    for (what, got, want, step) in [("seen", &seen, want_seen, box_width), ("stored", &to, want_to, step)] {
        let got: Vec<u16> =
            got.to_bytes()?.as_chunks().0.iter().map(|&number| u16::from_ne_bytes(number)).collect();
        let wrong: Vec<usize> = (0..want.len()).filter(|&at| got[at] != want[at]).collect();
        let first: Vec<_> =
            wrong.iter().take(9).map(|&at| ([at / step, at % step], got[at], want[at])).collect();
        assert!(
            wrong.is_empty(),
            "{} of {width} columns, {what}: {} wrong, {first:?}",
            T::DTYPE,
            wrong.len()
        );
    }
    Ok(())
}

#[test]
fn boxes_of_a_map_are_clipped_at_the_ends_of_the_tensor() {
    let hopper = Device::cuda(0).ok().filter(|device| device.info().is_some_and(|info| info.arch == (9, 0)));
    for device in hopper.into_iter().chain([Device::cpu()]) {
        // Of 100 columns an H100 would write 4 more to each line: the rest of a line's last 16 bytes.
        copies_a_clipped_box::<f16>(&device, 96).unwrap();
        copies_a_clipped_box::<bf16>(&device, 96).unwrap();
    }
}

/// The slopes of an activation behind the product of each kernel that could serve: tiles that are cut at both ends.
fn each_kernel_takes_slopes<T: Element + Float>(device: &Device) -> Result<()> {
    let [m, n, k] = [200, 264, 136];
    let of = |shape: [usize; 2], step: usize| {
        let number = |i: usize| T::from_f32((i * step % 61) as f32 / 32.0 - 1.0);
        Tensor::from_slice(device, &shape, &(0..shape[0] * shape[1]).map(number).collect::<Vec<_>>())
    };
    let (dy, weight, input) = (of([m, k], 37)?, of([k, n], 23)?, of([m, n], 19)?);
    let layer =
        LinearBackward { input: Some((&input, Activation::Gelu(Approximate::Tanh))), ..Default::default() };
    let want = reference::linear_backward(&input, &weight, &dy, &layer)?.dx;
    let factors = Factors::new("linear", ("dy", dy.desc(), false), ("weight", weight.desc(), true))?;
    let epilogue = Epilogue { activation: activation::GELU_TANH, slope: true, ..Epilogue::default() };
    let problem = Problem::new("linear", factors, epilogue, T::DTYPE, device)?;
    let plans = problem.plans()?;
    assert!(plans.iter().any(|plan| matches!(plan.choice, Choice::Turned { .. })) || device.is_cuda());
    for plan in plans {
        let dx = Tensor::from_slice(device, &[m, n], &vec![T::from_f32(77.0); m * n])?;
        let behind = Behind { aux: Some(&input), ..Behind::default() };
        run(&problem.clone().by(plan.choice), &dy, &weight, &behind, &dx)?;
        for (i, (got, want)) in dx.to_f64()?.into_iter().zip(&want).enumerate() {
            assert!((got - want).abs() <= want.abs() / 256.0 + 1e-3, "{plan}, {i}: {got} for {want}");
        }
    }
    Ok(())
}

#[test]
fn slopes_are_taken_behind_each_kernel() {
    for device in Device::cuda(0).ok().into_iter().chain([Device::cpu()]) {
        each_kernel_takes_slopes::<f16>(&device).unwrap();
        each_kernel_takes_slopes::<bf16>(&device).unwrap();
    }
}
