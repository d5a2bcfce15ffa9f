//! The kernel's numbers, as far as they fit.

use cuda_std::divide::Divisor;
use kernels_gpu::permute::{Digit, Level, Span, Step};

pub fn divisor(value: usize) -> Option<Divisor> {
    Divisor::new(u32::try_from(value).ok()?)
}

pub fn level(count: usize, staged: usize, global: i64) -> Option<Level> {
    Some(Level { count: divisor(count)?, staged: u32::try_from(staged).ok()?, global })
}

pub fn digit(count: usize, x: usize, y: usize) -> Option<Digit> {
    Some(Digit { count: divisor(count)?, unused: 0, x: i64::try_from(x).ok()?, y: i64::try_from(y).ok()? })
}

/// The steps from run to run, `at_once` further each, of boxes with at most two levels of runs.
pub fn steps_of(levels: &[Level], at_once: usize) -> Option<[Step; 2]> {
    let none = level(1, 0, 0)?;
    let (inner, outer) = (levels.first().unwrap_or(&none), levels.get(1).unwrap_or(&none));
    let count = inner.count.value();
    let (of_outer, of_inner) = (at_once as u32 / count, at_once as u32 % count);
    let staged = |level: &Level, steps: u32| level.staged.wrapping_mul(steps);
    let global = |level: &Level, steps: u32| level.global.checked_mul(steps.into());
    let step = Step {
        global: global(inner, of_inner)?.checked_add(global(outer, of_outer)?)?,
        staged: staged(inner, of_inner).wrapping_add(staged(outer, of_outer)),
        runs: of_inner,
    };
    let again = Step {
        global: outer.global - global(inner, count)?,
        staged: outer.staged.wrapping_sub(staged(inner, count)),
        runs: count.wrapping_neg(),
    };
    Some([step, again])
}

pub fn span_of(total: usize, step: usize, size: usize) -> Span {
    Span { total: total as u64, step: step as u64, size: size as u64 }
}

pub fn filled<T: Copy, const N: usize>(values: &[T], rest: T) -> [T; N] {
    let mut all = [rest; N];
    all.iter_mut().zip(values).for_each(|(slot, value)| *slot = *value);
    all
}
