//! What is asked: the checked arguments, as extents and strides.

use super::{Causal, Described, Mask, MaskedSoftmax, packed};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape;
use crate::tensor::Desc;

/// Most columns: those of a block's strides over a row are 31-bit numbers, the last stride's included.
const MAX_COLS: usize = (1 << 31) - (1 << 15);

/// Bytes of a row that is as fast to read when its neighbours in memory are read at other times.
const LONG: usize = 32 << 10;

/// Which kind of mask the kernels apply, beside the range of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskForm {
    /// None.
    None,
    /// Bytes; non-zero keeps.
    Keep,
    /// Bytes; non-zero drops.
    Drop,
    /// Numbers of this type to add.
    Bias(DType),
}

/// Kernels that hold rows in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelSet {
    /// The softmax's, with or without a mask.
    Plain,
    /// The softmax's with a bias.
    Bias,
    /// Those with dropout behind the softmax; without a bias.
    Dropout,
    /// The cross entropy's.
    CrossEntropy,
}

/// One dimension of the rows, with the step along it in each operand; steps count elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowDimension {
    /// How many.
    pub extent: usize,
    /// x.
    pub x: isize,
    /// y.
    pub y: isize,
    /// The mask.
    pub mask: isize,
    /// The lengths.
    pub lengths: isize,
    /// The starts.
    pub starts: isize,
    /// The query position.
    pub query: isize,
}

/// A checked request.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The operation that errors are of.
    pub op: &'static str,
    /// Whose kernels are to serve.
    pub kernels: KernelSet,
    /// The type of x and y.
    pub dtype: DType,
    /// The dimensions of the rows, outermost first, with neighbours merged where every operand allows it, in the
    /// order in which the kernels take the rows: not always x's.
    pub rows: Vec<RowDimension>,
    /// Columns.
    pub cols: usize,
    /// Column stride of x.
    pub x_stride: isize,
    /// Column stride of the mask.
    pub mask_stride: isize,
    /// Elements from the first of x to one past its last.
    pub x_reach: usize,
    /// Elements from the first of the mask to one past its last.
    pub mask_reach: usize,
    /// The mask's kind.
    pub mask: MaskForm,
    /// Whether lengths are given.
    pub has_lengths: bool,
    /// Whether starts are given.
    pub has_starts: bool,
    /// Whether lengths and starts are those of packed sequences, still to be found out.
    pub packed: bool,
    /// What is added to a query's position to give its last column.
    pub causal_offset: Option<i32>,
    /// The scale.
    pub scale: f32,
}

impl Problem {
    /// Checks everything that can be checked without reading an element.
    pub fn new<D: Described>(op: &'static str, x: &Desc, parameters: &MaskedSoftmax<D>) -> Result<Problem> {
        if !matches!(x.dtype(), DType::F32 | DType::F16 | DType::BF16) {
            let required = "f32, f16 or bf16".to_owned();
            return Err(Error::DType { op, arg: "x", required, got: x.dtype() });
        }
        let Some((&cols, outer)) = x.shape().split_last() else {
            return Err(Error::Shape { op, arg: "x", required: "[.., K]".to_owned(), got: vec![] });
        };
        if cols > MAX_COLS {
            let got = cols.to_string();
            return Err(Error::TooLarge { op, what: "columns of `x`", limit: MAX_COLS as u64, got });
        }
        if !parameters.scale.is_finite() {
            let (required, got) = ("finite".to_owned(), parameters.scale.to_string());
            return Err(Error::Parameter { op, arg: "scale", required, got });
        }
        let x_reach = reach(op, "x", x)?;
        let none = vec![0isize; outer.len() + 1];
        let (mut mask_strides, mut lengths_strides, mut starts_strides) =
            (none.clone(), none[1..].to_vec(), none[1..].to_vec());
        let (mut form, mut mask_reach) = (MaskForm::None, 0);
        let bytes: &[DType] = &[DType::U8, DType::Bool];
        let mut dense = |arg, mask: &D, dtypes: &[DType]| {
            mask_strides = operand(op, x, x.shape(), arg, mask.described(), dtypes)?;
            mask_reach = reach(op, arg, mask.described())?;
            Ok(mask.described().dtype())
        };
        let (mut has_lengths, mut has_starts) = (false, false);
        match parameters.mask {
            Mask::None => {}
            Mask::Keep(mask) => {
                dense("keep", mask, bytes)?;
                form = MaskForm::Keep;
            }
            Mask::Drop(mask) => {
                dense("drop", mask, bytes)?;
                form = MaskForm::Drop;
            }
            Mask::Bias(mask) => form = MaskForm::Bias(dense("bias", mask, &[x.dtype(), DType::F32])?),
            Mask::Range { lengths, starts } => {
                if let Some(lengths) = lengths {
                    lengths_strides = operand(op, x, outer, "lengths", lengths.described(), &[DType::I32])?;
                    has_lengths = true;
                }
                if let Some(starts) = starts {
                    starts_strides = operand(op, x, outer, "starts", starts.described(), &[DType::I32])?;
                    has_starts = true;
                }
            }
            Mask::Packed { cu_seqlens, keys } => {
                packed::check(op, x, cu_seqlens.described(), keys)?;
                // As the range that it is turned into.
                for strides in [&mut lengths_strides, &mut starts_strides] {
                    if let Some(last) = strides.last_mut() {
                        *last = 1;
                    }
                }
                (has_lengths, has_starts) = (true, true);
            }
        }
        let queries = outer.last().copied().unwrap_or(1);
        let causal = parameters.causal.filter(|_| !matches!(parameters.mask, Mask::Packed { .. }));
        let causal_offset = causal.map(|causal| causal_offset(op, causal, queries, cols)).transpose()?;
        let mut query_strides = none[1..].to_vec();
        if let (Some(_), Some(last)) = (causal_offset, query_strides.last_mut()) {
            *last = 1;
        }
        let (x_stride, mask_stride) = (x.strides()[outer.len()], mask_strides[outer.len()]);
        let mut y_strides = none[1..].to_vec();
        let mut elements = cols as isize;
        for (stride, &extent) in y_strides.iter_mut().zip(outer).rev() {
            *stride = elements;
            elements = elements.wrapping_mul(extent as isize); // nothing is computed where this overflows
        }
        let merged = shape::merge(
            outer,
            [
                &x.strides()[..outer.len()],
                &y_strides,
                &mask_strides[..outer.len()],
                &lengths_strides,
                &starts_strides,
                &query_strides,
            ],
        );
        let mut rows: Vec<RowDimension> = (0..merged.shape.len())
            .map(|dim| RowDimension {
                extent: merged.shape[dim],
                x: merged.strides[0][dim],
                y: merged.strides[1][dim],
                mask: merged.strides[2][dim],
                lengths: merged.strides[3][dim],
                starts: merged.strides[4][dim],
                query: merged.strides[5][dim],
            })
            .collect();
        if form != MaskForm::None && cols * x.dtype().size() >= LONG {
            // Rows that share a row of the mask follow one another, so that it comes from a cache: the sort is
            // stable, and what the mask is broadcast over goes innermost.
            rows.sort_by_key(|dim| dim.mask == 0);
        }
        let bias = matches!(form, MaskForm::Bias(_));
        Ok(Problem {
            op,
            kernels: if bias { KernelSet::Bias } else { KernelSet::Plain },
            dtype: x.dtype(),
            rows,
            cols,
            x_stride: if cols == 1 { 1 } else { x_stride },
            mask_stride: if cols == 1 || form == MaskForm::None { 1 } else { mask_stride },
            x_reach,
            mask_reach,
            mask: form,
            has_lengths,
            has_starts,
            packed: matches!(parameters.mask, Mask::Packed { .. }),
            causal_offset,
            scale: parameters.scale,
        })
    }

    /// Rows.
    pub fn row_count(&self) -> u64 {
        self.rows.iter().map(|dim| dim.extent as u64).product()
    }

    /// Whether every column counts, as it is.
    pub fn is_unmasked(&self) -> bool {
        let ranged = self.has_lengths || self.has_starts || self.causal_offset.is_some();
        self.mask == MaskForm::None && !ranged
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.cols == 0 || self.row_count() == 0
    }

    /// Whether a number is added to the scores.
    pub fn has_bias(&self) -> bool {
        matches!(self.mask, MaskForm::Bias(_))
    }

    /// Whether the scale is so small that differences of scores count although they pass f32: scores must
    /// then be scaled before they are subtracted.
    pub fn has_tiny_scale(&self) -> bool {
        // What `Exponent` can split into two parts.
        const TINY: f32 = 1.0 / (1u128 << 100) as f32;
        self.scale != 0.0 && self.scale.abs() < TINY
    }
}

/// The strides by which `given` walks along `shape`, after checks of its type and device.
fn operand(
    op: &'static str,
    x: &Desc,
    shape: &[usize],
    arg: &'static str,
    given: &Desc,
    dtypes: &[DType],
) -> Result<Vec<isize>> {
    if !dtypes.contains(&given.dtype()) {
        let mut names: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
        names.dedup();
        return Err(Error::DType { op, arg, required: names.join(" or "), got: given.dtype() });
    }
    if !given.device().same_device(x.device()) {
        let (required, got) = (x.device().to_string(), given.device().to_string());
        return Err(Error::DeviceMismatch { op, arg, required, got });
    }
    reach(op, arg, given)?;
    Ok(shape::broadcast_strides(op, arg, given.shape(), given.strides(), shape)?.to_vec())
}

/// One past the highest element index that the tensor reaches.
fn reach(op: &'static str, arg: &'static str, desc: &Desc) -> Result<usize> {
    if desc.is_empty() {
        return Ok(0);
    }
    match shape::reach(desc.shape(), desc.strides()) {
        Some((0, high)) => Ok(high as usize + 1),
        _ => {
            let got = desc.strides().iter().map(|&stride| stride as i64).collect();
            Err(Error::Strides { op, arg, required: "strides that are not negative", got })
        }
    }
}

fn causal_offset(op: &'static str, causal: Causal, queries: usize, cols: usize) -> Result<i32> {
    match causal {
        Causal::Offset(offset) => Ok(offset),
        Causal::BottomRight => i32::try_from(cols as i64 - queries as i64).map_err(|_| Error::TooLarge {
            op,
            what: "queries of a causal `x`",
            limit: i32::MAX as u64,
            got: queries.to_string(),
        }),
    }
}
