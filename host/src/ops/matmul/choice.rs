//! The kernels that there are, by the places of their instances.

use kernels_gpu::matmul as kernels;

use super::request::Side;

/// Which kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// `tensor_cores`, with tiles of this shape.
    TensorCores {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `pipelined`, with tiles of this shape.
    Pipelined {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `turned`, with tiles of this shape.
    Turned {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `alternating`, with tiles of this shape.
    Alternating {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `clustered`, with tiles of this shape.
    Clustered {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `narrow`, with tiles of so many rows and so many stages.
    Narrow {
        /// The instance.
        index: usize,
    },
    /// `narrow_f32`, likewise.
    NarrowF32 {
        /// The instance.
        index: usize,
    },
    /// `loose`, with tiles of this shape.
    Loose {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `thin`, with as many fragments of a.
    Thin {
        /// The instance.
        index: usize,
    },
    /// `thin_f32`.
    ThinF32 {
        /// The instance.
        index: usize,
    },
    /// `short`.
    Short {
        /// The instance.
        index: usize,
    },
    /// `small`, with tiles of so many rows.
    Small {
        /// The instance.
        index: usize,
    },
    /// `small_f32`.
    SmallF32 {
        /// The instance.
        index: usize,
    },
    /// `tf32_cores`, with tiles of this shape.
    Tf32Cores {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `parted`, with tiles of this shape.
    Parted {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `tf32_pipelined`, with tiles of this shape.
    Tf32Pipelined {
        /// The instance.
        shape: usize,
    },
    /// `cuda_cores`.
    CudaCores {
        /// The instance.
        index: usize,
    },
}

impl Choice {
    /// Whether the parts of k are the blocks of a cluster, which adds them up by itself.
    pub(super) fn is_clustered(self) -> bool {
        matches!(
            self,
            Choice::Clustered { .. }
                | Choice::Narrow { .. }
                | Choice::NarrowF32 { .. }
                | Choice::Loose { .. }
        )
    }

    /// Whether it is a kernel of few rows, which may be the result's columns.
    pub(super) fn is_of_few(self) -> bool {
        matches!(
            self,
            Choice::Thin { .. }
                | Choice::ThinF32 { .. }
                | Choice::Short { .. }
                | Choice::Narrow { .. }
                | Choice::NarrowF32 { .. }
        )
    }

    /// Whether it reads operands in any strides, so that nothing is copied first.
    pub(super) fn reads_any(self) -> bool {
        match self {
            Choice::CudaCores { .. } | Choice::Loose { .. } | Choice::Parted { .. } => true,
            Choice::Small { index } => kernels::small::kernels::<half::bf16>()[index].constant("PACKED") == 0,
            Choice::SmallF32 { index } => kernels::small_f32::ALL[index].constant("PACKED") == 0,
            _ => false,
        }
    }

    /// Stages, of kernels whose instances of a tile differ in these.
    pub(super) fn stages(self) -> Option<usize> {
        match self {
            Choice::Narrow { index } => {
                Some(kernels::narrow::kernels::<half::bf16>()[index].constant("STAGES"))
            }
            Choice::NarrowF32 { index } => Some(kernels::narrow_f32::ALL[index].constant("STAGES")),
            _ => None,
        }
    }
}

/// Each instance of `tensor_cores`, `pipelined`, `turned`, `alternating`, `clustered`, `loose`, `tf32_cores` and `parted` in four layouts, for all types alike.
pub(super) const LAYOUTS: usize = 4;

/// The instance of `tensor_cores`, `pipelined`, `turned`, `alternating`, `clustered`, `loose`, `tf32_cores` or `parted` with tiles of a shape, for operands read this way.
pub fn instance(shape: usize, sides: [Side; 2]) -> usize {
    shape * LAYOUTS + 2 * usize::from(!sides[0].along_k) + usize::from(!sides[1].along_k)
}
