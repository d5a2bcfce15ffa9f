//! Rows of a table, chosen by tokens. See [`embedding`].

mod backward;
mod launch;
mod positions;
mod problem;
mod sort;
mod sums;

use super::masked_softmax::Described;
use super::pointwise;
use crate::error::Result;
use crate::tensor::{Desc, Tensor};

pub use backward::{embedding_backward, embedding_backward_into, embedding_backward_shape};

const OP: &str = "embedding";
const BACKWARD: &str = "embedding_backward";

/// A table of positions.
#[derive(Debug)]
pub struct Positions<'a, D = Tensor> {
    /// `[P, C]`: its row `offset + t` is added at step t.
    pub wpe: &'a D,
    /// The position of the first step.
    pub offset: usize,
    /// For sequences of different lengths, packed one behind the other in tokens `[total]`: where each begins, and the
    /// last ends; `[sequences + 1]` of i32 or i64. The first is 0, the last `total`, and none is below the one before it.
    pub cu_seqlens: Option<&'a D>,
}

impl<'a, D> Positions<'a, D> {
    /// Positions from 0 on, in sequences of one length.
    pub const fn new(wpe: &'a D) -> Positions<'a, D> {
        Positions { wpe, offset: 0, cu_seqlens: None }
    }
}

impl<D> Clone for Positions<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for Positions<'_, D> {}

/// wte\[token\] for each token, and with positions wte\[token\] + wpe\[offset + t\] at step t of a sequence.
///
/// tokens `[B, T]` or `[T]`, of u32, i32 or i64; wte `[V, C]` and wpe `[P, C]` of one type, f32, f16 or bf16; gives
/// `[B, T, C]` or `[T, C]` of that type, contiguous. Sums are taken in f32 and rounded once; without positions
/// rows are copied bit by bit. Any strides are right; fast are rows of whole packs of 16 bytes, in tables that
/// begin at a multiple of 16 bytes.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, Positions}};
///
/// let device = Device::cpu();
/// let tokens = Tensor::from_slice(&device, &[1, 2], &[2u32, 0])?;
/// let wte = Tensor::from_slice(&device, &[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(ops::embedding(&tokens, &wte, None)?.to_vec::<f32>()?, [5.0, 6.0, 1.0, 2.0]);
/// let wpe = Tensor::from_slice(&device, &[2, 2], &[0.5f32, 0.0, 0.25, 0.0])?;
/// let y = ops::embedding(&tokens, &wte, Some(Positions::new(&wpe)))?;
/// assert_eq!(y.to_vec::<f32>()?, [5.5, 6.0, 1.25, 2.0]);
/// // Two sequences of one step each, packed: both have position 0.
/// let (tokens, ends) = (tokens.reshape(&[2])?, Tensor::from_slice(&device, &[3], &[0i32, 1, 2])?);
/// let positions = Positions { cu_seqlens: Some(&ends), ..Positions::new(&wpe) };
/// let y = ops::embedding(&tokens, &wte, Some(positions))?;
/// assert_eq!(y.to_vec::<f32>()?, [5.5, 6.0, 1.5, 2.0]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`Value`](crate::Error::Value) for a position that wpe has no row for, for a token that is not in `0..V`, and for
/// boundaries that are not as [`Positions::cu_seqlens`] says: of the first and last as `cu_seqlens`, of differences as
/// `lengths by cu_seqlens`. Tokens and boundaries are checked by kernels: on a GPU that error comes from the next read-back, from
/// [`Device::synchronize`](crate::Device::synchronize) or [`Device::check_values`](crate::Device::check_values), and
/// names the first such token, with i64 values beyond ±2³² as the nearest number within. Nothing outside the tables
/// is read. [`Shape`](crate::Error::Shape), [`DType`](crate::Error::DType) and
/// [`DeviceMismatch`](crate::Error::DeviceMismatch) for tensors that do not fit, [`TooLarge`](crate::Error::TooLarge) for 2³¹
/// tokens, rows of wte or columns and more, [`Strides`](crate::Error::Strides) for negative strides,
/// [`OutOfMemory`](crate::Error::OutOfMemory).
pub fn embedding(tokens: &Tensor, wte: &Tensor, positions: Option<Positions>) -> Result<Tensor> {
    let problem = problem::forward(tokens, wte, positions)?;
    let y = Tensor::uninit(problem.y.device(), problem.dtype, problem.y.shape())?;
    launch::run(&problem, tokens, wte, positions, &y)?;
    Ok(y)
}

/// [`embedding`] into a contiguous tensor of the result's shape and type on the tokens' device, which must not
/// overlap the inputs.
pub fn embedding_into(tokens: &Tensor, wte: &Tensor, positions: Option<Positions>, y: &Tensor) -> Result<()> {
    let problem = problem::forward(tokens, wte, positions)?;
    let mut inputs = vec![tokens, wte];
    inputs.extend(positions.into_iter().flat_map(|p| [Some(p.wpe), p.cu_seqlens]).flatten());
    pointwise::check_output(OP, "y", y, &problem.y, &inputs)?;
    let device = tokens.device();
    launch::run(&problem, tokens, wte, positions, &y.adopted(device, OP, "y")?)?;
    y.device().wait_for(device, OP)
}

/// Checks the arguments of [`embedding`] without computing; gives y.
pub fn embedding_shape<D: Described>(tokens: &D, wte: &D, positions: Option<Positions<D>>) -> Result<Desc> {
    Ok(problem::forward(tokens, wte, positions)?.y)
}
