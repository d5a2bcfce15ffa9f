//! How the result of a product leaves shared memory, where its kernel does not finish it element by element.

use kernels_gpu::matmul::{self as kernels, Epilogue, Matrix, activation, flag};

use super::choice::{Choice, LAYOUTS};
use super::maps;
use super::problem::Heads;
use crate::error::Result;
use crate::tensor::Tensor;
use cuda_std::tma::TensorMap;

/// By whom results are stored as they lie in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// By the accelerator, so many columns and rows at a time.
    Boxes([u32; 2]),
    /// By threads, as there are no such boxes.
    ByThreads,
}

impl Leaving {
    /// Of the result of a kernel, with what its kernel does before that; none where it is finished otherwise.
    pub fn of(choice: Choice, epilogue: &Epilogue) -> Option<Leaving> {
        let by_threads = || leaves_by_threads(choice, epilogue).then_some(Leaving::ByThreads);
        boxes(choice, epilogue).map(Leaving::Boxes).or_else(by_threads)
    }
}

/// What the accelerator stores at a time, columns and rows, if it can store the result of a kernel, with what its kernel does before
/// that.
fn boxes(choice: Choice, epilogue: &Epilogue) -> Option<[u32; 2]> {
    let Epilogue { flags, activation: applied, .. } = *epilogue;
    let beside = flags & (flag::ADDEND | flag::SLOPE | flag::KEEP);
    let by_heads = epilogue.heads.are_split();
    let (boxed, size, serves) = match choice {
        Choice::Pipelined { .. } | Choice::Turned { .. } | Choice::Alternating { .. } => {
            let serves = match beside {
                0 => !by_heads || applied == activation::NONE,
                _ if by_heads => false,
                // It takes nothing from there.
                flag::ADDEND | flag::SLOPE if matches!(choice, Choice::Alternating { .. }) => false,
                flag::ADDEND => applied == activation::NONE,
                flag::SLOPE | flag::KEEP => applied != activation::NONE,
                _ => false,
            };
            let boxed = [kernels::PIPELINED_CHUNK, kernels::PIPELINED_ROWS];
            (boxed, size_of::<u16>(), serves && flags & flag::WIDE == 0)
        }
        Choice::Parted { .. } | Choice::Tf32Pipelined { .. } => {
            let short = [activation::NONE, activation::RELU].contains(&applied);
            (kernels::F32_BOX, size_of::<f32>(), short && beside == 0)
        }
        _ => return None,
    };
    let mappable = |matrix: &Matrix| maps::mappable(matrix, size, epilogue.m as usize, true);
    // Of a row that ends within a pack the accelerator writes all of that; one row has no step to tell.
    let whole =
        [epilogue.n as usize, epilogue.out.row as usize].iter().all(|step| (step * size).is_multiple_of(16))
            && mappable(&epilogue.out)
            && beside_of(epilogue).is_none_or(|matrix| mappable(&matrix));
    // Boxes of one head and one sequence each: a store cannot begin before the tensor does.
    let kernels::Heads { width, length, .. } = epilogue.heads;
    let [cols, rows] = boxed;
    let of_a_head = width.value().is_multiple_of(cols);
    let of_a_sequence = epilogue.m <= length.value() || length.value().is_multiple_of(rows);
    let serves = serves && (!by_heads || of_a_head && of_a_sequence);
    (serves && whole && flags & flag::PACKED != 0).then_some(boxed)
}

/// Whether threads of a kernel can store results of rows that begin anywhere from shared memory.
pub(super) fn scatters(choice: Choice) -> bool {
    match choice {
        Choice::Pipelined { shape } => {
            let kernel = &kernels::pipelined::kernels::<half::bf16>()[shape * LAYOUTS];
            kernel.constant("SUMS") <= kernels::MOST_SCATTERED
        }
        Choice::Turned { .. } => true,
        _ => false,
    }
}

/// Whether threads can store the result: by heads, in whole packs, or of rows that begin anywhere.
fn leaves_by_threads(choice: Choice, epilogue: &Epilogue) -> bool {
    let Epilogue { flags, activation: applied, heads, .. } = *epilogue;
    let serves = scatters(choice) || matches!(choice, Choice::Alternating { .. }) && heads.are_split();
    let beside = flags & (flag::ADDEND | flag::SLOPE | flag::KEEP);
    let in_packs = flags & flag::PACKED != 0 && heads.width.value().is_multiple_of(8);
    serves
        && (in_packs || !heads.are_split())
        && applied == activation::NONE
        && beside == 0
        && flags & flag::WIDE == 0
}

/// Where the matrix lies that is there beside the result: an addend, what slopes are taken at, or what is kept.
pub(super) fn beside_of(epilogue: &Epilogue) -> Option<Matrix> {
    match epilogue.flags & (flag::ADDEND | flag::SLOPE | flag::KEEP) {
        0 => None,
        flag::ADDEND => Some(epilogue.addend),
        _ => Some(epilogue.aux),
    }
}

/// Of a result by heads: boxes are rows and columns of a head in a sequence.
pub(super) fn map_of_heads(
    y: &Tensor,
    heads: &Heads,
    epilogue: &Epilogue,
    boxed: [u32; 2],
) -> Result<TensorMap> {
    let kernels::Heads { step, width, count, length, sequences } = epilogue.heads;
    let matrix = Matrix { inner: step, outer: epilogue.out.inner, ..epilogue.out };
    let [length, width, count, sequences] =
        [length.value(), width.value(), count.value(), sequences].map(|extent| extent as usize);
    maps::result(y, &matrix, [length, width], [heads.parts * sequences, count], boxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURNED: Choice = Choice::Turned { shape: 0 };
    const IN_TURN: Choice = Choice::Alternating { shape: 0 };
    const WIDEST: Choice = Choice::Pipelined { shape: 0 };
    const PIPED: Choice = Choice::Pipelined { shape: 1 };

    fn of(n: u32, flags: u32, activation: u32) -> Epilogue {
        let out = Matrix { row: n as i64, col: 1, outer: 0, inner: 0 };
        Epilogue {
            out,
            aux: out,
            addend: out,
            m: 100,
            n,
            alpha: 1.0,
            flags,
            activation,
            ..Epilogue::default()
        }
    }

    #[test]
    fn whole_packs_leave_in_boxes_and_other_rows_by_threads() {
        let boxes = Some(Leaving::Boxes([kernels::PIPELINED_CHUNK, kernels::PIPELINED_ROWS]));
        for choice in [TURNED, IN_TURN, WIDEST, PIPED] {
            for (flags, activation) in
                [(0, activation::NONE), (flag::BIAS, activation::RELU), (flag::KEEP, activation::RELU)]
            {
                assert_eq!(
                    Leaving::of(choice, &of(64, flag::PACKED | flags, activation)),
                    boxes,
                    "{choice:?}"
                );
            }
            // An activation behind an addend, and f32.
            let both = of(64, flag::PACKED | flag::ADDEND, activation::RELU);
            assert_eq!(Leaving::of(choice, &both), None);
            assert_eq!(Leaving::of(choice, &of(64, flag::PACKED | flag::WIDE, activation::NONE)), None);
        }
        for choice in [TURNED, PIPED] {
            // Rows of no whole packs, results that begin between packs, and one row, which has no step.
            let row = Epilogue {
                out: Matrix::default(),
                m: 1,
                ..of(33, flag::PACKED | flag::BIAS, activation::NONE)
            };
            for epilogue in [of(33, 0, activation::NONE), of(64, flag::BIAS, activation::NONE), row] {
                assert_eq!(Leaving::of(choice, &epilogue), Some(Leaving::ByThreads), "{choice:?}");
                assert_eq!(Leaving::of(choice, &Epilogue { activation: activation::RELU, ..epilogue }), None);
                for also in [flag::ADDEND, flag::KEEP, flag::WIDE] {
                    assert_eq!(
                        Leaving::of(choice, &Epilogue { flags: epilogue.flags | also, ..epilogue }),
                        None
                    );
                }
                assert_eq!([IN_TURN, WIDEST].map(|choice| Leaving::of(choice, &epilogue)), [None; 2]);
            }
        }
    }
}
