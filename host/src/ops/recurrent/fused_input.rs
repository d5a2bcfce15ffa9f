//! All steps and the input's product in one launch, of blocks that wait for one another.

use super::dense;
use super::layer::{Layer, Results};
use super::persistent::{aligned, asked, poisoned};
use super::plan::{PATIENCE, Plan};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::matmul::packed_rows;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::Float;
use cuda_std::kernel::Kernel;
use kernels_gpu::matmul::repack;
use kernels_gpu::recurrent::{Fused, fused_sequence, has};

/// Runs the steps; gives gx where something is kept.
pub fn run(layer: &Layer, plan: &Plan, results: Results) -> Result<Option<Tensor>> {
    patiently(PATIENCE, layer, plan, results)
}

/// With blocks that give up after so many polls.
fn patiently(patience: u32, layer: &Layer, plan: &Plan, results: Results) -> Result<Option<Tensor>> {
    match layer.x.dtype() {
        DType::F16 => typed::<half::f16>(
            patience,
            &fused_sequence::kernels::<half::f16>()[plan.index],
            layer,
            plan,
            results,
        ),
        _ => typed::<half::bf16>(
            patience,
            &fused_sequence::kernels::<half::bf16>()[plan.index],
            layer,
            plan,
            results,
        ),
    }
}

fn typed<T: Element + Float + repack::Instances>(
    patience: u32,
    kernel: &Kernel<fused_sequence::Args<T>>,
    layer: &Layer,
    plan: &Plan,
    results: Results,
) -> Result<Option<Tensor>> {
    let device = layer.x.device();
    let [steps, batch, hidden] = layer.extents();
    let x = if layer.x.address().is_multiple_of(16) { layer.x.clone() } else { aligned(layer.x, 16)? };
    let (w_hh, of_w_hh) = packed_rows::<T>(layer.op, layer.weights.w_hh)?;
    let (w_ih, of_w_ih) = packed_rows::<T>(layer.op, layer.weights.w_ih)?;
    let b_ih = layer.weights.b_ih.map(dense).transpose()?;
    let given = layer.given()?;
    let (gh, cells, kept) = results.kept();
    let gx = if kept == 0 {
        None
    } else {
        Some(Tensor::uninit(device, x.dtype(), &[steps, batch, layer.kind.gates() * hidden])?)
    };
    let x_bias = if b_ih.is_some() { has::X_BIAS } else { 0 };
    let sequence = asked(layer, plan, (results.y, of_w_hh), given.has | x_bias | kept, patience);
    let p = Fused {
        sequence,
        columns: x.shape()[2] as u32,
        weight_row: of_w_ih as u32,
        x_time: x.strides()[0] as i64,
        x_row: x.strides()[1] as i64,
    };
    let slot = device.wait_slot(layer.op)?;
    // Ahead of the kernel, which relies on that.
    let exchange = poisoned(device, plan, plan.blocks * plan.units, 0)?;
    let args = (
        w_hh.view()?,
        w_ih.view()?,
        x.view()?,
        read(b_ih.as_ref())?,
        read(given.bias.as_ref())?,
        read(given.h0.as_ref())?,
        read(given.c0.as_ref())?,
        read(layer.lengths)?,
        results.y.view_mut()?,
        results.h_n.view_mut()?,
        write(results.c_n)?,
        write(gx.as_ref())?,
        write(gh)?,
        write(cells)?,
        exchange.view_mut()?,
        slot.view(),
        p,
    );
    let grid = Grid::xyz(plan.blocks as u64, plan.groups as u64, 1)?
        .shared(plan.shared_bytes)
        .cooperative()
        .early_if(true);
    // SAFETY: contiguous tensors of the layer's extents, x and weights in whole packs; the plan's blocks own all units and its groups all rows, and the
    // launch is refused where they do not run at once. The launch before poisons the exchange.
    unsafe { device.launch(kernel, grid, args)? };
    slot.finish()?;
    Ok(gx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::ops::recurrent::layer::Aside;
    use crate::ops::recurrent::persistent::tests::waits_in_vain;
    use crate::ops::recurrent::plan::{Choice, Target};
    use crate::ops::recurrent::problem::Problem;
    use crate::ops::recurrent::{Kind, RecurrentWeights};
    use crate::ops::{Linear, Recurrent, linear};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn plan(layer: &Layer, device: &Device) -> Result<Plan> {
        let layers = [layer.weights];
        let problem = Problem::new(layer.op, layer.kind, layer.x, &Recurrent::new(&layers))?;
        Ok(Plan::by(Choice::Fused, &problem, Target::of(device)))
    }

    #[test]
    fn blocks_that_wait_in_vain_give_up() -> Result<()> {
        waits_in_vain(Choice::Fused, |patience, layer, plan, results| {
            patiently(patience, layer, plan, results).map(drop)
        })
    }

    /// What is kept for the gradient: what x and h give to the gates, with their bias, and the c of each step.
    #[test]
    fn what_is_kept_is_what_the_gates_were_given() -> Result<()> {
        let [steps, batch, input, hidden] = [4, 11, 24, 34];
        let device = Device::cpu();
        let mut random = StdRng::seed_from_u64(3);
        let mut filled = |shape: &[usize]| {
            let count = shape.iter().product();
            let data: Vec<_> =
                (0..count).map(|_| half::f16::from_f32(random.random_range(-0.5..0.5))).collect();
            Tensor::from_slice(&device, shape, &data)
        };
        for kind in [Kind::Gru, Kind::Lstm] {
            let (rows, is_lstm) = (kind.gates() * hidden, kind == Kind::Lstm);
            let x = filled(&[steps, batch, input])?;
            let (w_ih, w_hh) = (filled(&[rows, input])?, filled(&[rows, hidden])?);
            let (b_ih, b_hh) = (filled(&[rows])?, filled(&[rows])?);
            let c0 = filled(&[batch, hidden])?;
            let weights = RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih: Some(&b_ih), b_hh: Some(&b_hh) };
            let op = if is_lstm { "lstm" } else { "gru" };
            let layer = Layer { c0: is_lstm.then_some(&c0), ..Layer::new(op, kind, &x, weights) };
            let zeros = |shape: &[usize]| Tensor::zeros(&device, DType::F16, shape);
            let (y, h_n, c_n) =
                (zeros(&[steps, batch, hidden])?, zeros(&[batch, hidden])?, zeros(&[batch, hidden])?);
            let (gh, c) = (zeros(&[steps, batch, rows])?, zeros(&[steps, batch, hidden])?);
            let aside = Some(Aside { gh: &gh, c: is_lstm.then_some(&c) });
            let results = Results { y: &y, h_n: &h_n, c_n: is_lstm.then_some(&c_n), aside };
            let gx = run(&layer, &plan(&layer, &device)?, results)?.expect("kept");
            let close = |got: &Tensor, want: &Tensor, what: &str| -> Result<()> {
                for (i, (got, want)) in got.to_f64()?.iter().zip(want.to_f64()?).enumerate() {
                    // Sums of some 30 terms, rounded to f16 on the way.
                    assert!((got - want).abs() <= 8e-3 * want.abs().max(1.0), "{what} {i}: {got}, {want}");
                }
                Ok(())
            };
            close(&gx, &layer.gx()?, "gx")?;
            // Of steps from the second on, h is y of the one before.
            let before = y.narrow(0, 0, steps - 1)?.reshape(&[(steps - 1) * batch, hidden])?;
            let of_h = linear(&before, &w_hh, &Linear { bias: Some(&b_hh), ..Linear::default() })?;
            let later = gh.narrow(0, 1, steps - 1)?.reshape(&[(steps - 1) * batch, rows])?;
            close(&later, &of_h, "gh")?;
            if is_lstm {
                close(&c.narrow(0, 0, 1)?.squeeze(0)?, &c0, "c")?;
            }
        }
        Ok(())
    }
}
