//! What is asked of a product besides its sums.

use cuda_std::divide::ShortDivisor;

use super::Matrix;
use super::place::Place;

/// The functions behind a product, by number.
pub mod activation {
    /// The number itself.
    pub const NONE: u32 = 0;
    /// The larger of it and 0.
    pub const RELU: u32 = 1;
    /// GELU with tanh's approximation.
    pub const GELU_TANH: u32 = 2;
    /// GELU by erf.
    pub const GELU_ERF: u32 = 3;
}

/// What else an epilogue has to do.
pub mod flag {
    /// Add `bias[n]`.
    pub const BIAS: u32 = 1;
    /// Add beta·`addend[m,n]`, behind the activation.
    pub const ADDEND: u32 = 2;
    /// Write what the activation gets to `aux[m,n]`.
    pub const KEEP: u32 = 4;
    /// Multiply by the activation's slope at `aux[m,n]` instead of applying it.
    pub const SLOPE: u32 = 8;
    /// The result is f32, whatever the operands are.
    pub const WIDE: u32 = 16;
    /// Whole packs of bias, addend, aux and result start at multiples of 16 bytes.
    pub const PACKED: u32 = 32;
    /// There is a tensor map of the result, and nothing to do but alpha, a bias and one of these: an activation, of which the operand may be
    /// kept; an addend; slopes. What is kept has a map, too.
    pub const STORED: u32 = 64;
    /// There is a tensor map of the addend, or of where slopes are taken.
    pub const BESIDE: u32 = 128;
    /// With [`STORED`]: a result in 16 bits has no map, and leaves by threads. It is one by heads, of which boxes would be of several
    /// sequences or heads, and which has whole packs; or one whose rows begin anywhere.
    pub const SCATTERED: u32 = 256;
    /// Rows of tiles are columns of the result, which are few, and columns of tiles its rows; operands have changed places. In kernels of few rows alone.
    pub const BY_COLUMNS: u32 = 512;
}

/// The parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epilogue {
    /// The result; its columns are neighbours.
    pub out: Matrix,
    /// What is added.
    pub addend: Matrix,
    /// What is kept, or where slopes are taken; its columns are neighbours.
    pub aux: Matrix,
    /// From the result of a split to that of the next.
    pub split: i64,
    /// Rows of the result.
    pub m: u32,
    /// Columns of the result.
    pub n: u32,
    /// The factor of the sums.
    pub alpha: f32,
    /// The factor of what is added.
    pub beta: f32,
    /// One of [`activation`].
    pub activation: u32,
    /// Of [`flag`].
    pub flags: u32,
    /// How columns and rows of the result are split, if they are.
    pub heads: Heads,
}

/// A result [sequences·length, parts·count·width] that lies as [parts, sequences, count, length, width]: the queries, keys and values of
/// attention. From row to row of a sequence it is `out.row`, and from sequence to sequence, of which each part has as many, `out.inner`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
    /// From a head to the next.
    pub step: i64,
    /// Columns of a head.
    pub width: ShortDivisor,
    /// Heads of a part.
    pub count: ShortDivisor,
    /// Rows of a sequence.
    pub length: ShortDivisor,
    /// Sequences: 0 where the result is not split. With heads there is nothing beside it.
    pub sequences: u32,
}

impl Heads {
    /// Whether there are any.
    #[inline(always)]
    pub fn are_split(&self) -> bool {
        self.sequences != 0
    }
}

impl Default for Heads {
    fn default() -> Self {
        Heads {
            step: 0,
            width: ShortDivisor::ONE,
            count: ShortDivisor::ONE,
            length: ShortDivisor::ONE,
            sequences: 0,
        }
    }
}

/// What an epilogue may have that kernels with few registers to spare serve, and the activations: the number itself, and relu.
const SIMPLE: u32 = flag::BIAS | flag::ADDEND | flag::KEEP | flag::PACKED;
const SIMPLE_ACTIVATIONS: u32 = activation::NONE | activation::RELU;

impl Epilogue {
    /// The same, of which the compiler knows that there is nothing else to it.
    #[cfg(feature = "matmul")]
    #[inline(always)]
    pub(super) fn simple(&self) -> Self {
        let (flags, activation) = (self.flags & SIMPLE, self.activation & SIMPLE_ACTIVATIONS);
        Epilogue { flags, activation, ..*self }
    }

    /// Whether there is a tensor map of the result.
    #[cfg(feature = "matmul_hopper")]
    #[inline(always)]
    pub(super) fn is_mapped(&self) -> bool {
        self.flags & (flag::STORED | flag::SCATTERED) == flag::STORED
    }

    /// Which of the batch's matrices lies beside the sums: the inner and outer number, 0 where they repeat the same matrix.
    #[inline(always)]
    pub(super) fn beside(&self, place: Place) -> [i32; 2] {
        let of = if self.flags & flag::ADDEND != 0 { self.addend } else { self.aux };
        let number = |step: i64, number: u32| if step != 0 { number as i32 } else { 0 };
        [number(of.inner, place.inner), number(of.outer, place.outer)]
    }

    /// How far a row of a result by heads is from the first, and a column.
    #[inline(always)]
    pub(super) fn row_by_heads(&self, row: u32) -> i64 {
        let (sequence, row) = self.heads.length.div_rem(row);
        sequence as i64 * self.out.inner + row as i64 * self.out.row
    }

    #[inline(always)]
    pub(super) fn col_by_heads(&self, col: u32) -> i64 {
        let heads = &self.heads;
        let (head, along) = heads.width.div_rem(col);
        let (part, head) = heads.count.div_rem(head);
        part as i64 * heads.sequences as i64 * self.out.inner + head as i64 * heads.step + along as i64
    }

    /// Where the map of a result by heads, [width, length, count, parts·sequences] from the innermost on, has the box of results from (row, col)
    /// on, which is of one head of one sequence. A box that began before its head or its sequence would be at coordinates
    /// below 0, where the accelerator loads, but where a store is an illegal instruction.
    #[cfg(feature = "matmul_hopper")]
    #[inline(always)]
    pub(super) fn box_of_heads(&self, place: Place, row: u32, col: u32) -> [i32; 4] {
        let heads = &self.heads;
        let (head, along) = heads.width.div_rem(col);
        let (part, number) = heads.count.div_rem(head);
        let (sequence, down) = heads.length.div_rem(row);
        let sequence = place.inner + part * heads.sequences + sequence;
        [along, down, number, sequence].map(|number| number as i32)
    }
}
