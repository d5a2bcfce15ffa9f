use super::*;
use warpwright::{Checks, Device};

/// The mask tensors keep what the rule says, told by scores that are all alike.
#[test]
fn each_form_keeps_the_columns_that_its_floor_counts() {
    let device = Device::cpu_with(Checks::None);
    let shape = [3, 2, 20, 24];
    let x = Tensor::zeros(&device, DType::F32, &shape).unwrap();
    for form in Form::ALL {
        let mask = form.mask(&device, shape, DType::F32, 0).unwrap();
        let y = reference::masked_softmax(&x, &form.parameters(1.0, mask.as_ref(), None)).unwrap();
        let kept = y.iter().filter(|&&y| y > 0.0).count() as u64;
        assert_eq!(form.kept(shape), kept, "{form:?}");
        assert!(form == Form::None || form == Form::Bias || kept < x.len() as u64, "{form:?} masks nothing");
    }
}

/// The same deviation from whole rows as from everything, and one wrong element in them is noticed.
#[test]
fn rows_are_compared_with_their_own_mask() {
    let device = Device::cpu_with(Checks::None);
    let shape = [3, 2, 20, 24];
    for form in Form::ALL {
        let mask = form.mask(&device, shape, DType::F32, 0).unwrap();
        let x = crate::demo::random::tensor(&device, DType::F32, &shape, 14.0, 7).unwrap();
        let whole = reference::masked_softmax(&x, &form.parameters(SCALE, mask.as_ref(), None)).unwrap();
        for row in 0..120 {
            let index = [row / 40, row / 20 % 2, row % 20];
            let part = mask.as_ref().map(|mask| row_of(mask, index).unwrap());
            let parameters = form.parameters(SCALE, part.as_ref(), Some(index[2] as i32 + 24 - 20));
            let alone = reference::masked_softmax(&row_of(&x, index).unwrap(), &parameters).unwrap();
            assert_eq!(alone, whole[row * 24..][..24], "{form:?} row {row}");
        }
    }
}

#[test]
fn a_wrong_result_is_out_of_tolerance() {
    let device = Device::cpu_with(Checks::None);
    let case = SoftmaxCase { shape: [2, 2, 5, 40], dtype: DType::F32, form: Form::Keep, real: None };
    let x = crate::demo::random::tensor(&device, DType::F32, &case.shape, 14.0, 1).unwrap();
    let mask = case.form.mask(&device, case.shape, DType::F32, 1).unwrap();
    let parameters = case.form.parameters(SCALE, mask.as_ref(), None);
    let mut want: Vec<f32> =
        reference::masked_softmax(&x, &parameters).unwrap().into_iter().map(|y| y as f32).collect();
    for (index, passes) in [(None, true), (Some(3), false), (Some(want.len() - 1), false)] {
        if let Some(index) = index {
            want[index] += 1e-6;
        }
        let y = Tensor::from_slice(&device, &case.shape, &want).unwrap();
        let set = Set { x: x.clone(), mask: mask.clone(), y };
        let softmax = Softmax { shape: case.shape, form: case.form, scale: SCALE, kept: 0, sets: vec![set] };
        assert_eq!(softmax.compare(0).unwrap().passed(), passes, "{index:?}");
    }
}
