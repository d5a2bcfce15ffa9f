//! Masked softmax over the last axis.
//!
//! y[…, j] = exp(scale·x[…, j] + bias[…, j] − m) / Σ over the kept columns, with m their maximum; exactly 0 at
//! every other column. See [`masked_softmax`].

mod dropout;
mod launch;
mod mask_bits;
mod packed;
mod plan;
mod problem;
mod spread;

pub use dropout::{
    DroppedSoftmax, masked_softmax_dropout, masked_softmax_dropout_into, masked_softmax_dropout_shape,
};
pub(super) use launch::params_of_all;
pub(super) use plan::{Alignment, Target};
pub use plan::{Choice, Plan};
pub(super) use problem::KernelSet;
pub use problem::{MaskForm, Problem};
pub use spread::Spread;

use super::pointwise::check_output;
use crate::error::Result;
use crate::tensor::{Desc, Tensor};
use launch::Results;

/// Which columns of a row are kept. The tensors broadcast against x: dimensions may be missing in front or
/// have size 1.
#[derive(Debug, Default)]
pub enum Mask<'a, D = Tensor> {
    /// All.
    #[default]
    None,
    /// Those where this u8 or bool tensor is not 0, as BERT's attention mask.
    Keep(&'a D),
    /// Those where this u8 or bool tensor is 0, as PyTorch's key padding mask.
    Drop(&'a D),
    /// All; this tensor, of x's type or f32, is added to the scaled scores. −∞ drops.
    Bias(&'a D),
    /// Columns `starts..lengths`: i32, one for each row. What is dropped is not read. A length or start
    /// outside 0..=K is an error, reported at once on the CPU, and on a GPU by the next read-back or
    /// synchronisation; until then the row is computed with the nearest valid value. The index in the error
    /// counts elements of memory from the tensor's first.
    Range {
        /// One past the last kept column; K where absent.
        lengths: Option<&'a D>,
        /// The first kept column; 0 where absent.
        starts: Option<&'a D>,
    },
    /// Those of the row's own sequence: the rows of x `[.., T, K]` are T tokens of sequences of different lengths, packed
    /// one behind the other.
    Packed {
        /// Where each sequence begins, and the last ends: `[sequences + 1]` of i32 or i64. The first is 0, the last T, and
        /// none is below the one before it, or, with [`PackedKeys::Padded`], further from it than K. Checked by a kernel, as
        /// lengths are.
        cu_seqlens: &'a D,
        /// What the columns are.
        keys: PackedKeys,
    },
}

/// The columns of packed sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackedKeys {
    /// The steps of the row's own sequence, padded to K: a row keeps as many as its sequence has.
    #[default]
    Padded,
    /// The tokens of all sequences, packed like the rows, K = T: a row keeps those of its own sequence.
    Packed,
}

/// The parameters of [`masked_softmax`].
#[derive(Debug)]
pub struct MaskedSoftmax<'a, D = Tensor> {
    /// What the scores are multiplied by, before the maximum is taken. Finite, of any sign.
    pub scale: f32,
    /// The mask.
    pub mask: Mask<'a, D>,
    /// Keep only columns j ≤ q + offset, where q is the index along the last but one dimension; of packed sequences the
    /// steps j of a sequence for its step q.
    pub causal: Option<Causal>,
}

/// Where the causal limit lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Causal {
    /// Offset K − Q: the last query sees every key. Of packed sequences 0.
    #[default]
    BottomRight,
    /// This offset; 0 lets query q see keys 0..=q.
    Offset(i32),
}

// By hand, since a derive would want `D: Copy`, and a tensor is not.
impl<D> Clone for Mask<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for Mask<'_, D> {}

impl<D> Clone for MaskedSoftmax<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for MaskedSoftmax<'_, D> {}

impl<D> Default for MaskedSoftmax<'_, D> {
    fn default() -> Self {
        MaskedSoftmax { scale: 1.0, mask: Mask::None, causal: None }
    }
}

/// Something that has a [`Desc`].
pub trait Described {
    /// The element type, shape, strides and device.
    fn described(&self) -> &Desc;
}

impl Described for Tensor {
    fn described(&self) -> &Desc {
        self.desc()
    }
}

impl Described for Desc {
    fn described(&self) -> &Desc {
        self
    }
}

const OP: &str = "masked_softmax";

/// Softmax over the last axis of `x` `[.., K]` (f32, f16 or bf16), with scale and mask applied on the way.
///
/// The result has x's shape and type and is contiguous; maximum and sum are f32. A row with nothing kept, or
/// with nothing but −∞ kept, is zeros. A score that is kept and, once scaled, NaN or +∞ makes every kept column of its row NaN;
/// masked columns are 0 even there, and whatever x holds at them. Exponentials below 2⁻¹²⁶ are 0.
///
/// Any strides of x are accepted; the fast path takes rows that lie densely and start alike (modulo 16
/// bytes) in x and y. The same input gives the same bits on the same device.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, Mask, MaskedSoftmax}};
///
/// let device = Device::cpu();
/// let x = Tensor::from_slice(&device, &[2, 3], &[0.0f32, 0.0, 9.0, 1.0, 1.0, 1.0])?;
/// let keep = Tensor::from_slice(&device, &[3], &[1u8, 1, 0])?;
/// let y = ops::masked_softmax(&x, &MaskedSoftmax { mask: Mask::Keep(&keep), ..Default::default() })?;
/// assert_eq!(y.to_vec::<f32>()?, [0.5, 0.5, 0.0, 0.5, 0.5, 0.0]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`Shape`](crate::Error::Shape), [`DType`](crate::Error::DType) and [`DeviceMismatch`](crate::Error::DeviceMismatch) for tensors that
/// do not fit, [`Parameter`](crate::Error::Parameter) for a scale that is not finite, [`Value`](crate::Error::Value) for a length
/// or start out of range, [`OutOfMemory`](crate::Error::OutOfMemory).
pub fn masked_softmax(x: &Tensor, parameters: &MaskedSoftmax) -> Result<Tensor> {
    let problem = Problem::new(OP, x.desc(), parameters)?;
    let y = Tensor::uninit(x.device(), x.dtype(), x.shape())?;
    launch::run(&problem, x, parameters, Results { y: &y, dropped: None }, None)?;
    Ok(y)
}

/// [`masked_softmax`] into a contiguous tensor of x's shape, type and device, which must not overlap x or
/// the mask. Captured in a graph this allocates nothing, unless the mask is [`Mask::Packed`], whose lengths are worked out first, or
/// one of bytes for rows of many thousands of columns, which is turned into bits, or rows have 2 MB and more, whose blocks agree by words
/// in memory.
pub fn masked_softmax_into(x: &Tensor, parameters: &MaskedSoftmax, y: &Tensor) -> Result<()> {
    into(x, parameters, y, None)
}

/// [`masked_softmax_into`] by a kernel of the caller's choice, one of [`candidates`]: for tests of each
/// kernel, and for tuning the plan.
pub fn masked_softmax_into_by(
    choice: Choice,
    x: &Tensor,
    parameters: &MaskedSoftmax,
    y: &Tensor,
) -> Result<()> {
    into(x, parameters, y, Some(choice))
}

fn into(x: &Tensor, parameters: &MaskedSoftmax, y: &Tensor, choice: Option<Choice>) -> Result<()> {
    let problem = Problem::new(OP, x.desc(), parameters)?;
    check_output(OP, "y", y, x.desc(), &inputs(x, parameters))?;
    let here = y.adopted(x.device(), OP, "y")?;
    launch::run(&problem, x, parameters, Results { y: &here, dropped: None }, choice)?;
    y.device().wait_for(x.device(), OP)
}

/// [`masked_softmax_into`] as a part of the operation `op`, on x's stream; y is x's like and apart from it.
pub(super) fn part_of(op: &'static str, x: &Tensor, parameters: &MaskedSoftmax, y: &Tensor) -> Result<()> {
    let problem = Problem::new(op, x.desc(), parameters)?;
    launch::run(&problem, x, parameters, Results { y, dropped: None }, None)
}

/// The tensors that are read.
fn inputs<'a>(x: &'a Tensor, parameters: &MaskedSoftmax<'a>) -> Vec<&'a Tensor> {
    [Some(x), parameters.mask.first(), parameters.mask.second()].into_iter().flatten().collect()
}

/// Checks the arguments of [`masked_softmax`] without computing; gives y.
pub fn masked_softmax_shape<D: Described>(x: &D, parameters: &MaskedSoftmax<D>) -> Result<Desc> {
    let x = x.described();
    Problem::new(OP, x, parameters)?;
    Desc::new(x.device(), x.dtype(), x.shape())
}

/// How [`masked_softmax`] would go about it: which kernel, in how many blocks.
pub fn explain<D: Described>(x: &D, parameters: &MaskedSoftmax<D>) -> Result<Plan> {
    Ok(candidates(x, parameters)?[0])
}

/// Every way that [`masked_softmax`] could go about it, the preferred one first, for operands that start at
/// multiples of 16 bytes.
pub fn candidates<D: Described>(x: &D, parameters: &MaskedSoftmax<D>) -> Result<Vec<Plan>> {
    let problem = Problem::new(OP, x.described(), parameters)?;
    let target = plan::Target::of(x.described().device());
    Ok(Plan::candidates(&problem, plan::Alignment::of_allocations(), target))
}

impl<'a, D> Mask<'a, D> {
    /// The mask, or the lengths.
    pub(super) fn first(&self) -> Option<&'a D> {
        match *self {
            Mask::None => None,
            Mask::Keep(mask) | Mask::Drop(mask) | Mask::Bias(mask) => Some(mask),
            Mask::Range { lengths, .. } => lengths,
            Mask::Packed { cu_seqlens, .. } => Some(cu_seqlens),
        }
    }

    /// The starts.
    pub(super) fn second(&self) -> Option<&'a D> {
        match *self {
            Mask::Range { starts, .. } => starts,
            _ => None,
        }
    }
}
