//! Every kernel that can serve a row, not only the preferred one.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use softmax::{Form, check_by};
use warpwright::ops::masked_softmax::{Causal, Choice, candidates, explain, masked_softmax_into_by};
use warpwright::ops::{self, MaskedSoftmax};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{DTYPES, POISON, Random, assert_same, floats, on_each_device, poisoned};

/// Columns: less than a pack, ragged and whole packs, a warp's, a block's.
const LENGTHS: [usize; 7] = [1, 5, 24, 64, 250, 1000, 2051];

/// Three rows of which the first is plain, the second has a NaN and the third is mostly -inf.
fn rows(device: &Device, dtype: DType, cols: usize, random: &mut Random) -> Result<Tensor> {
    many_rows(device, dtype, [3, cols], random)
}

/// Rows of which each third is plain, has a NaN, or is mostly -inf.
fn many_rows(
    device: &Device,
    dtype: DType,
    [count, cols]: [usize; 2],
    random: &mut Random,
) -> Result<Tensor> {
    let mut values = random.floats(count * cols, -8.0, 8.0);
    for (number, row) in values.chunks_mut(cols).enumerate() {
        match number % 3 {
            0 => {}
            1 => row[random.below(cols as u64) as usize] = f32::NAN,
            _ => row.iter_mut().filter(|_| random.below(5) > 0).for_each(|value| *value = f32::NEG_INFINITY),
        }
    }
    floats(device, dtype, &[count, cols], &values)
}

on_each_device! {
    fn every_candidate_gives_what_the_reference_gives(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| LENGTHS.map(|cols| (dtype, cols))) {
            for (case, form) in Form::ALL.into_iter().enumerate() {
                let mut random = Random::new(cols as u64);
                let x = rows(device, dtype, cols, &mut random)?;
                let masking = form.random(device, dtype, cols, &[3, cols], &mut random)?;
                let causal = (case % 4 == 3).then_some(Causal::Offset(cols as i32 / 2));
                let parameters =
                    MaskedSoftmax { scale: [0.7, -1.0, 0.0][case % 3], mask: masking.mask(), causal };
                let want = reference::masked_softmax(&x, &parameters)?;
                let plans = candidates(&x, &parameters)?;
                assert_eq!(plans[0], explain(&x, &parameters)?);
                for (number, plan) in plans.into_iter().enumerate() {
                    // The CPU takes turns: each kernel meets each form at some length.
                    if device.is_cuda() || (number + case + cols) % 3 == 0 {
                        check_by(plan.choice, &want, &x, &parameters, &format!("{form:?}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn masks_that_become_bits_may_be_broadcast_and_have_gaps(device: &Device) -> Result<()> {
        let mut number = 0;
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [97, 1000, 2051].map(|cols| (dtype, cols))) {
            let mut random = Random::new(cols as u64);
            let dense = softmax::scores(device, dtype, &[3, 2, 2, cols], &mut random)?;
            // Rows must start alike in x and in y.
            let x = if cols.is_multiple_of(8) { dense.permute(&[1, 0, 2, 3])? } else { dense };
            let [sequences, heads] = [x.shape()[0], x.shape()[1]];
            for shape in [
                &[sequences, 1, 2][..],
                &[heads, 1],
                &[],
                &[sequences, heads, 1],
                &[sequences, heads, 2],
            ] {
                for (form, gap) in [(Form::Keep, 0), (Form::Drop, 16), (Form::KeepBool, 21)] {
                    // Bytes of no column lie in front of each row, up to a multiple of 16, and behind it.
                    let shape = [shape, &[gap + cols]].concat();
                    let whole = form.random(device, dtype, gap + cols, &shape, &mut random)?;
                    let masking = whole.map(|mask| mask.narrow(-1, gap / 16 * 16, cols))?;
                    let causal = (gap > 0).then_some(Causal::Offset(cols as i32 / 2));
                    let parameters = MaskedSoftmax { scale: 0.7, mask: masking.mask(), causal };
                    let want = reference::masked_softmax(&x, &parameters)?;
                    let plans = candidates(&x, &parameters)?;
                    let of_bits: Vec<_> = plans.iter().filter(|plan| plan.mask_bits).collect();
                    assert!(device.is_cuda() || !of_bits.is_empty(), "{shape:?}");
                    for plan in of_bits {
                        number += 1;
                        // The CPU takes turns.
                        if device.is_cuda() || number % 7 == 0 {
                            check_by(plan.choice, &want, &x, &parameters, &format!("{form:?} {shape:?}"))?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn rows_that_are_spread_take_turns(device: &Device) -> Result<()> {
        let mut number = 0;
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [600, 1027, 2048].map(|cols| (dtype, cols))) {
            let mut random = Random::new(cols as u64);
            let x = many_rows(device, dtype, [25, cols], &mut random)?;
            for (case, form) in Form::ALL.into_iter().enumerate() {
                let masking = form.random(device, dtype, cols, &[25, cols], &mut random)?;
                let causal = (case % 3 == 2).then_some(Causal::Offset(cols as i32 - 20));
                let parameters =
                    MaskedSoftmax { scale: [0.7, -1.0, 0.0][case % 3], mask: masking.mask(), causal };
                let want = reference::masked_softmax(&x, &parameters)?;
                for plan in candidates(&x, &parameters)? {
                    let Choice::Spread { spread, .. } = plan.choice else { continue };
                    assert!(spread.groups == 7 && spread.blocks > 1, "{plan}");
                    number += 1;
                    // The CPU takes turns.
                    if device.is_cuda() || number % 5 == 0 {
                        check_by(plan.choice, &want, &x, &parameters, &format!("{form:?}"))?;
                    }
                }
            }
        }
        assert!(number > 0 || device.is_cuda());
        Ok(())
    }

    fn the_preferred_kernel_is_the_one_that_runs(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| LENGTHS.map(|cols| (dtype, cols))) {
            let x = rows(device, dtype, cols, &mut Random::new(70))?;
            let parameters = MaskedSoftmax { scale: 0.3, ..Default::default() };
            let y = poisoned(device, dtype, &[3, cols], POISON)?;
            masked_softmax_into_by(explain(&x, &parameters)?.choice, &x, &parameters, &y)?;
            let same = ops::masked_softmax(&x, &parameters)?;
            assert_same(&y.to_bytes()?, &same.to_bytes()?, format!("{dtype}, {cols} columns"));
        }
        Ok(())
    }

    fn a_kernel_that_cannot_serve_the_rows_is_refused(device: &Device) -> Result<()> {
        let y = poisoned(device, DType::F32, &[2, 100], POISON)?;
        let wide = floats(device, DType::F32, &[2, 100], &[1.0; 200])?;
        let stepped = floats(device, DType::F32, &[2, 200], &[1.0; 400])?.step(1, 2)?;
        let unaligned = floats(device, DType::F32, &[2, 101], &[1.0; 202])?.narrow(1, 1, 100)?;
        let nowhere = Choice::Row { index: usize::MAX };
        for (x, choice) in [
            (&wide, Choice::Row { index: 0 }),
            (&wide, nowhere),
            (&wide, Choice::Cluster { index: 0, blocks: 3, slice: 32 }),
            (&stepped, Choice::Streamed),
            (&unaligned, Choice::Streamed),
        ] {
            let error = masked_softmax_into_by(choice, x, &MaskedSoftmax::default(), &y).unwrap_err();
            let want = format!(
                "masked_softmax: `choice` must be one of the candidates for these operands, got {choice:?}"
            );
            assert_eq!(error.to_string(), want);
            assert!(y.to_bytes()?.iter().all(|&byte| byte == POISON));
        }
        Ok(())
    }
}
