//! Small problems: a block's way through shared memory, its tables and barriers, takes longer than the sectors that it spares, so each thread
//! fetches what it stores.

use std::collections::BTreeSet;

use super::boxes::Way;
use super::plan::Choice;
use super::simplify::Simple;
use super::takes::SECTOR;

/// Units up to which most of the time is a launch's: 3×40×50 by (0,2,1) takes 1.1 µs instead of 1.9.
const LAUNCH: usize = 1 << 14;

/// Units up to which only tiles, and words of several bytes that are turned, are faster: 485×129 by (1,0) takes 1.7 µs in f32, f16 and i8 instead of
/// 2.2, 67×3×223 by (1,0,2) 1.0 to 1.5 instead of 1.5 to 1.9 as rows; 128×512 by (1,0) in f32 1.7 instead of 1.5 by tiles, but in i8, where bytes are
/// turned, 1.6 instead of 1.8. Of units of at most four bytes, as is what follows: with larger ones time is that of as many bytes.
const FEW: usize = 1 << 17;

/// Units up to which boxes are slower where a warp reads at most [`SECTORS`] sectors at once: 152×28×9×5 by (3,1,0,2) takes 1.6 to 2.1 µs
/// instead of 2.5 to 2.7, 5×40×1661 by (1,2,0) 2.2 to 2.4 instead of 2.7 to 3.0; 7×30×33×31 by (0,3,2,1), of 32 sectors, 3.3 instead of 2.8.
const SOME: usize = 1 << 19;
const SECTORS: usize = 24;
const MEASURED_SIZE: usize = 4;

/// Whether threads are to fetch what they store, where `staged` is the best plan of another kind. x begins `x_phase` bytes behind a sector.
pub fn goes_directly(simple: &Simple, x_phase: usize, staged: &Choice) -> bool {
    let units = units(simple);
    let by_words = match staged {
        Choice::Tiles(_) => true,
        Choice::Boxes(boxed) => boxed.way == Way::Turned && simple.size > 1,
        _ => false,
    };
    let reads_few = || sectors_of_a_warp(simple, x_phase) <= SECTORS;
    let is_measured = simple.size <= MEASURED_SIZE && matches!(staged, Choice::Boxes(_));
    units <= LAUNCH
        || !by_words && units * simple.size.max(MEASURED_SIZE) <= FEW * MEASURED_SIZE
        || !by_words && units <= SOME && is_measured && reads_few()
}

/// Whether that is worth a try, whatever [`goes_directly`] says.
pub fn might_go_directly(simple: &Simple) -> bool {
    units(simple) <= 2 * SOME
}

fn units(simple: &Simple) -> usize {
    simple.dims.iter().map(|dim| dim.extent).product()
}

/// Sectors of x that the first 32 units of y come from.
fn sectors_of_a_warp(simple: &Simple, x_phase: usize) -> usize {
    let place = |number: usize| {
        let (mut rest, mut x) = (number, 0);
        for dim in simple.dims.iter().rev() {
            x += (rest % dim.extent) as isize * dim.x;
            rest /= dim.extent;
        }
        (x_phase as isize + x * simple.size as isize).div_euclid(SECTOR as isize)
    };
    (0..32).map(place).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Plan, Request};
    use super::*;
    use crate::dtype::DType;

    /// The plan of `shape` by `order`, with x contiguous.
    fn plan(shape: &[usize], order: &[usize], dtype: DType) -> Plan {
        Plan::new(Request::of_order(shape, order, dtype))
    }

    #[test]
    fn small_problems_go_directly_by_what_the_alternative_is_and_by_the_sectors_that_they_read() {
        for (shape, order, dtype, expected) in [
            (&[3, 40, 50][..], &[0, 2, 1][..], DType::F32, true),
            (&[485, 129], &[1, 0], DType::F16, true),
            (&[67, 3, 223], &[1, 0, 2], DType::F32, true),
            (&[128, 512], &[1, 0], DType::F32, false),
            (&[128, 512], &[1, 0], DType::F16, false),
            (&[128, 512], &[1, 0], DType::I8, true),
            (&[152, 28, 9, 5], &[3, 1, 0, 2], DType::F32, true),
            (&[7, 30, 33, 31], &[0, 3, 2, 1], DType::F32, false),
            (&[2, 36, 3, 19, 99], &[3, 1, 0, 2, 4], DType::F16, false),
            (&[512, 1323], &[1, 0], DType::F32, false),
            // Larger units: as few, but more bytes.
            (&[257, 509], &[1, 0], DType::F32, true),
            (&[257, 509], &[1, 0], DType::F64, false),
            (&[100, 290, 6, 12], &[2, 0, 1, 3], DType::F32, false),
        ] {
            let plan = plan(shape, order, dtype);
            assert_eq!(
                matches!(plan.kernel, Choice::Gather),
                expected,
                "{shape:?} {order:?} {dtype:?}: {plan}"
            );
        }
    }

    #[test]
    fn sectors_are_counted_along_the_fastest_units_of_y() {
        let sectors = |shape: &[usize], order: &[usize], phase| {
            sectors_of_a_warp(&plan(shape, order, DType::F32).simple, phase)
        };
        assert_eq!(sectors(&[1000, 1000], &[1, 0], 0), 32);
        // Four of each of eight rows, which begin at sectors, or in the last words of one.
        assert_eq!(sectors(&[8, 1000], &[1, 0], 0), 8);
        assert_eq!(sectors(&[8, 1000], &[1, 0], 24), 16);
    }
}
