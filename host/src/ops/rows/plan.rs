//! What is chosen: how rows are cut, and which kernel takes them. Pure arithmetic.

use super::problem::Problem;
use kernels_gpu::rows::MAX_CLUSTER;

/// How the rows lie to packs of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Whole packs, all of them.
    Packs,
    /// Packs, and loose elements before and behind them; row 0 begins `phase` elements behind a pack.
    Ragged { phase: usize },
    /// Elements.
    Strided,
}

/// The capacity of an instance of the register kernel: how many threads a row has, and packs a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowShape {
    pub lanes: usize,
    pub packs: usize,
}

/// Which kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The instance that holds rows in registers.
    Registers {
        index: usize,
    },
    /// The instance for clusters, and how many blocks they have.
    Cluster {
        index: usize,
        blocks: u32,
    },
    Streamed,
    Strided,
}

/// The instances of an operation that hold rows, by ascending capacity (of a block for clusters).
pub struct Instances<R, C> {
    pub registers: R,
    /// None where the GPU has no clusters, or the operation no kernels for them.
    pub clusters: C,
}

impl Cut {
    /// The cut of a problem whose operands begin so many elements behind a multiple of 16 bytes, for packs of
    /// `per_pack` elements.
    pub fn of(problem: &Problem, per_pack: usize, phases: impl Iterator<Item = usize>) -> Cut {
        let mut phase = None;
        for of_operand in phases {
            if *phase.get_or_insert(of_operand) != of_operand {
                return Cut::Strided;
            }
        }
        let phase = phase.unwrap_or(0);
        if problem.steps != [1; 3] {
            return Cut::Strided;
        }
        let mut ragged = phase != 0 || !problem.cols.is_multiple_of(per_pack);
        // A step along the rows must lead every operand to the same place within a pack.
        let mut of_result = problem.cols as u64;
        for (dim, &extent) in problem.rows.shape.iter().enumerate().rev() {
            for strides in &problem.rows.strides {
                let stride = strides[dim] as u64;
                if !stride.wrapping_sub(of_result).is_multiple_of(per_pack as u64) {
                    return Cut::Strided;
                }
                ragged |= !stride.is_multiple_of(per_pack as u64);
            }
            of_result = of_result.wrapping_mul(extent as u64);
        }
        if ragged { Cut::Ragged { phase } } else { Cut::Packs }
    }
}

impl Choice {
    /// The kernel for rows of `cols` columns: the first instance that holds them, in a block or else in a cluster.
    pub fn of(
        cut: Cut,
        cols: usize,
        per_pack: usize,
        instances: Instances<impl Iterator<Item = RowShape>, impl Iterator<Item = RowShape>>,
    ) -> Choice {
        if cut == Cut::Strided {
            return Choice::Strided;
        }
        // However a row lies, it has no more whole packs.
        let packs = cols / per_pack;
        let holds = |(_, shape): &(usize, RowShape)| shape.lanes * shape.packs >= packs;
        if let Some((index, _)) = instances.registers.enumerate().find(holds) {
            return Choice::Registers { index };
        }
        let in_cluster = instances.clusters.enumerate().find_map(|(index, shape)| {
            let blocks = packs.div_ceil(shape.lanes * shape.packs).max(1);
            (blocks <= MAX_CLUSTER as usize).then_some(Choice::Cluster { index, blocks: blocks as u32 })
        });
        in_cluster.unwrap_or(Choice::Streamed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Device, Tensor};

    fn cut(inputs: &[&Tensor], phases: &[usize]) -> Cut {
        let inputs: Vec<_> = inputs.iter().map(|input| ("x", input.desc())).collect();
        Cut::of(&Problem::new("op", &inputs).unwrap(), 8, phases.iter().copied())
    }

    fn tensor(shape: &[usize]) -> Tensor {
        Tensor::zeros(&Device::cpu(), DType::BF16, shape).unwrap()
    }

    #[test]
    fn rows_of_whole_packs_have_no_loose_elements() {
        assert_eq!(cut(&[&tensor(&[3, 5, 16])], &[0, 0]), Cut::Packs);
        assert_eq!(cut(&[&tensor(&[4, 40]).narrow(1, 8, 24).unwrap()], &[0]), Cut::Packs);
        assert_eq!(cut(&[&tensor(&[8])], &[0]), Cut::Packs);
        let repeated = tensor(&[1, 24]).expand(&[4, 24]).unwrap();
        assert_eq!(cut(&[&repeated, &tensor(&[4, 24])], &[0]), Cut::Packs);
    }

    #[test]
    fn rows_that_begin_alike_at_any_element_are_ragged() {
        assert_eq!(cut(&[&tensor(&[3, 5, 17])], &[0, 0]), Cut::Ragged { phase: 0 });
        assert_eq!(cut(&[&tensor(&[3, 16])], &[3, 3]), Cut::Ragged { phase: 3 });
        assert_eq!(cut(&[&tensor(&[1, 9])], &[0]), Cut::Ragged { phase: 0 });
        // 25 and 17 differ by a pack.
        assert_eq!(cut(&[&tensor(&[4, 25]).narrow(1, 0, 17).unwrap()], &[0]), Cut::Ragged { phase: 0 });
    }

    #[test]
    fn other_operands_are_walked_by_elements() {
        assert_eq!(cut(&[&tensor(&[3, 16])], &[0, 1]), Cut::Strided);
        assert_eq!(cut(&[&tensor(&[16, 3]).transpose(0, 1).unwrap()], &[0]), Cut::Strided);
        assert_eq!(cut(&[&tensor(&[4, 24]).narrow(1, 0, 17).unwrap()], &[0]), Cut::Strided);
        let part = tensor(&[4, 25]).narrow(1, 0, 16).unwrap();
        assert_eq!(cut(&[&tensor(&[4, 16]), &part], &[0]), Cut::Strided);
        assert_eq!(
            cut(&[&tensor(&[4, 1]), &tensor(&[1, 4]).transpose(0, 1).unwrap()], &[0]),
            Cut::Ragged { phase: 0 },
            "a single column has no step"
        );
    }

    #[test]
    fn the_first_instance_that_holds_a_row_takes_it() {
        let table =
            |of: &'static [(usize, usize)]| of.iter().map(|&(lanes, packs)| RowShape { lanes, packs });
        let registers = || table(&[(1, 1), (2, 2), (16, 3), (512, 1)]);
        let choice = |cut, cols, clusters| {
            Choice::of(cut, cols, 8, Instances { registers: registers(), clusters: table(clusters) })
        };
        for (cols, want) in [(1, 0), (8, 0), (15, 0), (16, 1), (39, 1), (40, 2), (391, 2), (392, 3)] {
            assert_eq!(choice(Cut::Packs, cols, &[]), Choice::Registers { index: want }, "{cols}");
        }
        assert_eq!(choice(Cut::Packs, 513 * 8, &[]), Choice::Streamed);
        assert_eq!(choice(Cut::Strided, 8, &[]), Choice::Strided);
        // A cluster takes what no block holds, as long as it does.
        let clusters = &[(32, 2), (64, 2)];
        assert_eq!(choice(Cut::Packs, 512 * 8, clusters), Choice::Registers { index: 3 });
        for (packs, index, blocks) in
            [(513, 0, 9), (576, 0, 9), (577, 0, 10), (1024, 0, 16), (1025, 1, 9), (2048, 1, 16)]
        {
            assert_eq!(choice(Cut::Packs, packs * 8, clusters), Choice::Cluster { index, blocks }, "{packs}");
        }
        assert_eq!(choice(Cut::Packs, 2049 * 8, clusters), Choice::Streamed);
    }
}
