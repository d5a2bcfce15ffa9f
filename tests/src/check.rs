//! Assertions over slices: they name the element, what came and what was wanted.

use std::fmt::{Debug, Display};

use bytemuck::NoUninit;

/// Wants equal slices. NaN equals NaN, and zeros must have the same sign.
#[track_caller]
pub fn assert_same<T: Debug + PartialEq + NoUninit>(got: &[T], want: &[T], what: impl Display) {
    assert_eq!(got.len(), want.len(), "{what}: the number of elements");
    // Soon said of millions of numbers.
    if bytemuck::cast_slice::<T, u8>(got) == bytemuck::cast_slice::<T, u8>(want) {
        return;
    }
    // The text tells zeros apart and NaN not.
    let same = |(a, b): (&T, &T)| (a == b || is_nan(a)) && format!("{a:?}") == format!("{b:?}");
    let wrong: Vec<usize> = (0..got.len()).filter(|&i| !same((&got[i], &want[i]))).collect();
    if let Some(&i) = wrong.first() {
        let count = wrong.len();
        panic!("{what}: element {i} is {:?}, want {:?} ({count} of {} differ)", got[i], want[i], got.len());
    }
}

#[allow(clippy::eq_op)] // NaN is what does not equal itself
fn is_nan<T: PartialEq>(value: &T) -> bool {
    value != value
}

/// Wants each element of `got` within `tolerance` of `want`'s. NaN goes with NaN and infinities with
/// themselves, whatever the tolerance.
#[track_caller]
pub fn assert_within(got: &[f64], want: &[f64], tolerance: impl Fn(usize) -> f64, what: impl Display) {
    assert_eq!(got.len(), want.len(), "{what}: the number of elements");
    let within = |i: usize| {
        let (got, want) = (got[i], want[i]);
        match want.is_finite() {
            true => (got - want).abs() <= tolerance(i),
            false => got == want || (got.is_nan() && want.is_nan()),
        }
    };
    let wrong: Vec<usize> = (0..got.len()).filter(|&i| !within(i)).collect();
    if let Some(&i) = wrong.first() {
        let (count, error, allowed) = (wrong.len(), (got[i] - want[i]).abs(), tolerance(i));
        panic!(
            "{what}: element {i} is {:e}, want {:e}: off by {error:e}, allowed {allowed:e} ({count} of {} differ)",
            got[i],
            want[i],
            got.len()
        );
    }
}

/// The distance of neighbouring f32 at `x`.
pub fn ulp(x: f64) -> f64 {
    let exponent = (x.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor()).max(-126.0);
    (exponent - 23.0).exp2()
}
