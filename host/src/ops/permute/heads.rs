//! Heads of attention, split from the rows of a product and merged back. See [`split_heads`] and [`merge_heads`].

use cuda_std::kernel::Kernel;
use cuda_std::{Float, Global, GlobalMut};
use kernels_gpu::permute::{Gather, gather_bias_elements, gather_bias_packs};

use super::launch::{GatherDim, MOST_UNITS, Numbers, cut, gather_grid};
use super::simplify::Dim;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::masked_softmax::Described;
use crate::ops::pointwise::{check_output, float, on_device, reach, with_float};
use crate::shape;
use crate::tensor::{Desc, Tensor};

const SPLIT: &str = "split_heads";
const MERGE: &str = "merge_heads";

/// The heads of x [B, S, P, H, D] as [P, B, H, S, D], contiguous: what a projection to queries, keys and values (P = 3)
/// leaves, as attention wants it. With a bias [P, H, D] that is added on the way, in f32, rounded once.
///
/// Without a bias any element type, bit for bit, as [`permute`](super::permute()) by `[2, 0, 3, 1, 4]`; with one f32, f16 or bf16.
///
/// ```
/// use warpwright::{Device, Tensor, ops};
///
/// let x = Tensor::from_slice(&Device::cpu(), &[1, 2, 3, 1, 1], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let bias = Tensor::from_slice(&Device::cpu(), &[3, 1, 1], &[0.5f32, 0.0, 0.0])?;
/// assert_eq!(ops::split_heads(&x, Some(&bias))?.to_vec::<f32>()?, [1.5, 4.5, 2.0, 5.0, 3.0, 6.0]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`Shape`](Error::Shape), [`DType`](Error::DType), [`DeviceMismatch`](Error::DeviceMismatch),
/// [`Strides`](Error::Strides) for negative strides, [`OutOfMemory`](Error::OutOfMemory).
pub fn split_heads(x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    allocated(&Heads::split(x, bias)?, x, bias)
}

/// [`split_heads`] into a contiguous tensor of the result's shape and type, on x's device, which must not overlap the inputs.
pub fn split_heads_into(x: &Tensor, bias: Option<&Tensor>, y: &Tensor) -> Result<()> {
    into(&Heads::split(x, bias)?, x, bias, y)
}

/// Checks the arguments of [`split_heads`] without computing; gives y.
pub fn split_heads_shape<D: Described>(x: &D, bias: Option<&D>) -> Result<Desc> {
    Ok(Heads::split(x, bias)?.y)
}

/// The heads of x [P, B, H, S, D] as rows [B, S, P, H, D], contiguous: the way back of [`split_heads`], and, without a
/// bias, its gradient. A bias [P, H, D] is added on the way, in f32, rounded once.
///
/// # Errors
/// As [`split_heads`].
pub fn merge_heads(x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    allocated(&Heads::merge(x, bias)?, x, bias)
}

/// [`merge_heads`] into a contiguous tensor of the result's shape and type, on x's device, which must not overlap the inputs.
pub fn merge_heads_into(x: &Tensor, bias: Option<&Tensor>, y: &Tensor) -> Result<()> {
    into(&Heads::merge(x, bias)?, x, bias, y)
}

/// Checks the arguments of [`merge_heads`] without computing; gives y.
pub fn merge_heads_shape<D: Described>(x: &D, bias: Option<&D>) -> Result<Desc> {
    Ok(Heads::merge(x, bias)?.y)
}

/// A kernel that takes x, a bias and y.
type BiasKernel<T> = Kernel<(Global<T>, Global<T>, GlobalMut<T>, Gather)>;

/// A checked request.
struct Heads {
    op: &'static str,
    /// The dimensions of x in the order of y.
    dims: [isize; 5],
    /// The dimensions of the bias along those of y.
    bias: [Option<usize>; 5],
    y: Desc,
}

impl Heads {
    fn split<D: Described>(x: &D, bias: Option<&D>) -> Result<Heads> {
        let along = [Some(0), None, Some(1), None, Some(2)];
        Heads::new(SPLIT, "[B, S, P, H, D]", [2, 0, 3, 1, 4], along, x.described(), bias.map(D::described))
    }

    fn merge<D: Described>(x: &D, bias: Option<&D>) -> Result<Heads> {
        let along = [None, None, Some(0), Some(1), Some(2)];
        Heads::new(MERGE, "[P, B, H, S, D]", [1, 3, 0, 2, 4], along, x.described(), bias.map(D::described))
    }

    fn new(
        op: &'static str,
        required: &str,
        dims: [isize; 5],
        bias_dims: [Option<usize>; 5],
        x: &Desc,
        bias: Option<&Desc>,
    ) -> Result<Heads> {
        if x.rank() != 5 {
            return Err(Error::Shape {
                op,
                arg: "x",
                required: required.to_owned(),
                got: x.shape().to_vec(),
            });
        }
        reach(op, "x", x)?;
        let shape = dims.map(|dim| x.shape()[dim as usize]);
        if let Some(bias) = bias {
            float(op, "x", x)?;
            if bias.dtype() != x.dtype() {
                return Err(Error::DType {
                    op,
                    arg: "bias",
                    required: x.dtype().to_string(),
                    got: bias.dtype(),
                });
            }
            let of = |dim: usize| bias_dims.iter().position(|d| *d == Some(dim)).map_or(0, |i| shape[i]);
            let wanted = [of(0), of(1), of(2)];
            if bias.shape() != wanted {
                let (required, got) = (format!("{wanted:?}"), bias.shape().to_vec());
                return Err(Error::Shape { op, arg: "bias", required, got });
            }
            on_device(op, "bias", bias, x)?;
            reach(op, "bias", bias)?;
        }
        Ok(Heads { op, dims, bias: bias_dims, y: Desc::contiguous(op, x.device(), x.dtype(), &shape)? })
    }
}

fn allocated(heads: &Heads, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let y = Tensor::uninit(x.device(), heads.y.dtype(), heads.y.shape())?;
    run(heads, x, bias, &y)?;
    Ok(y)
}

fn into(heads: &Heads, x: &Tensor, bias: Option<&Tensor>, y: &Tensor) -> Result<()> {
    let inputs: Vec<&Tensor> = [Some(x), bias].into_iter().flatten().collect();
    check_output(heads.op, "y", y, &heads.y, &inputs)?;
    let device = x.device();
    run(heads, x, bias, &y.adopted(device, heads.op, "y")?)?;
    y.device().wait_for(device, heads.op)
}

fn run(heads: &Heads, x: &Tensor, bias: Option<&Tensor>, y: &Tensor) -> Result<()> {
    match bias {
        _ if y.is_empty() => Ok(()),
        None => super::permute_into(x, &heads.dims, y),
        Some(bias) => {
            let bias = bias.adopted(x.device(), heads.op, "bias")?;
            with_float!(x.dtype(), T => add::<T>(heads, x, &bias, y))
        }
    }
}

/// y = x permuted, plus the bias.
fn add<T>(heads: &Heads, x: &Tensor, bias: &Tensor, y: &Tensor) -> Result<()>
where
    T: Element + Float + gather_bias_packs::Instances + gather_bias_elements::Instances,
{
    let view = x.permute(&heads.dims)?;
    let bias_strides = heads.bias.map(|dim| dim.map_or(0, |dim| bias.strides()[dim]));
    let walk = shape::merge(view.shape(), [view.strides(), &bias_strides]);
    let [x_strides, bias_strides] = &walk.strides;
    let pack = T::PER_PACK;
    let outer = walk.shape.len().saturating_sub(1);
    let whole = |stride: &isize| stride.unsigned_abs().is_multiple_of(pack);
    let packs = walk.shape.last().is_some_and(|extent| extent.is_multiple_of(pack))
        && [x_strides, bias_strides].iter().all(|s| s[outer] == 1 && s[..outer].iter().all(whole))
        && [&view, bias, y].iter().all(|tensor| tensor.address().is_multiple_of(16));
    let unit = if packs { pack } else { 1 };
    let dims: Vec<GatherDim> = (0..walk.shape.len())
        .map(|dim| {
            // Of packs the innermost step is one of them, in x and, by elements, in the bias.
            let last = dim == outer;
            let x = if last { x_strides[dim] } else { x_strides[dim] / unit as isize };
            let bias = if last { bias_strides[dim] * unit as isize } else { bias_strides[dim] };
            let extent = if last { walk.shape[dim] / unit } else { walk.shape[dim] };
            GatherDim { dim: Dim { extent, x, y: 0 }, bias }
        })
        .collect();
    let kernels = [gather_bias_elements::kernels::<T>(), gather_bias_packs::kernels::<T>()];
    let kernel: &BiasKernel<T> = &kernels[usize::from(packs)][0];
    let (x_view, bias_view, y_view) = (view.view::<T>()?, bias.view::<T>()?, y.view_mut::<T>()?);
    cut(&dims, Numbers::Units, unit * size_of::<T>(), MOST_UNITS, &mut |params| {
        let grid: Grid = gather_grid(kernel, &params)?;
        // SAFETY: the operands have the elements of these dimensions, in whole aligned packs if so; the grid covers the
        // units. Memory is freed in the order of the stream.
        unsafe { x.device().launch(kernel, grid, (x_view, bias_view, y_view, params)) }
    })
}
