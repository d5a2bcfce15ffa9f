//! From request and plan to the launch of the one kernel.

use cuda_std::divide::Divisor;
use cuda_std::global::RawView;
use cuda_std::kernel::Kernel;
use cuda_std::tma::TensorMap;
use cuda_std::{Global, GlobalMut, Half};
use kernels_gpu::attention_scores::{self as kernels, Params};
use kernels_gpu::masked_softmax::{Exponent, mask_kind};

use super::layout::Layout;
use super::plan::{By, WholeRows};
use super::{OP, Request};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::faults::ValueSlot;
use crate::launch::Grid;
use crate::ops::masked_softmax::{MaskForm, MaskedSoftmax};
use crate::ops::matmul::{map_of_operand, map_of_result};
use crate::tensor::Tensor;

/// Checked arguments, with the layout and the plan that are theirs.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub request: &'a Request,
    pub layout: &'a Layout,
    pub plan: WholeRows,
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub parameters: &'a MaskedSoftmax<'a>,
}

impl Call<'_> {
    /// Computes y.
    pub fn run(self, y: &Tensor) -> Result<()> {
        match y.dtype() {
            DType::F16 => typed::<half::f16>(self, y),
            _ => typed::<half::bf16>(self, y),
        }
    }
}

fn typed<T: Element + Half + kernels::whole_rows::Instances + kernels::by_warpgroups::Instances>(
    call: Call,
    y: &Tensor,
) -> Result<()> {
    let Call { request, layout, plan, q, k, parameters } = call;
    let (device, softmax) = (y.device(), &request.softmax);
    let adopt = |tensor: Option<&Tensor>, arg| tensor.map(|t| t.adopted(device, OP, arg)).transpose();
    let (q, k) = (q.adopted(device, OP, "q")?, k.adopted(device, OP, "k")?);
    let (first, starts) =
        (adopt(parameters.mask.first(), "mask")?, adopt(parameters.mask.second(), "starts")?);
    let (mask, lengths) = if softmax.has_lengths { (None, first) } else { (first, None) };
    let raw = |tensor: &Option<Tensor>| tensor.as_ref().map_or(Ok(RawView::none()), Tensor::raw_view);
    let slot =
        |present: bool, arg| present.then(|| device.value_slot(OP, arg, 0, layout.keys as i64)).transpose();
    let (lengths_slot, starts_slot) =
        (slot(softmax.has_lengths, "lengths")?, slot(softmax.has_starts, "starts")?);
    let fault = |slot: &Option<ValueSlot>| match slot {
        Some(slot) => slot.view(),
        // SAFETY: not used by a kernel without these bounds.
        None => unsafe { GlobalMut::from_raw(RawView::none()) },
    };
    // SAFETY: the views have the types that `Request` checked.
    let (mask, lengths, starts) = unsafe {
        (Global::from_raw(raw(&mask)?), Global::from_raw(raw(&lengths)?), Global::from_raw(raw(&starts)?))
    };
    let blocks = layout.products() as u64 * plan.blocks as u64;
    let grid = Grid::new(blocks)?.shared(plan.shared_bytes);
    let y_view = y.view_mut::<T>()?;
    let (lengths_fault, starts_fault) = (fault(&lengths_slot), fault(&starts_slot));
    let p = params(request, layout, plan)?;
    // SAFETY: layout and plan are those of the tensors, which `Request` has checked, and so are the maps; memory is freed in the order of its
    // streams, which `adopted` has made wait for one another.
    unsafe {
        match plan.by {
            By::Warps => {
                let kernel: &Kernel<kernels::whole_rows::Args<T>> =
                    &kernels::whole_rows::kernels::<T>()[plan.index];
                let (q, k) = (q.view::<T>()?, k.view::<T>()?);
                let args = (q, k, mask, lengths, starts, y_view, lengths_fault, starts_fault, p);
                device.launch(kernel, grid, args)?;
            }
            By::Warpgroups => {
                let kernel: &Kernel<kernels::by_warpgroups::Args<T>> =
                    &kernels::by_warpgroups::kernels::<T>()[plan.index];
                let [map_q, map_k, map_y] = maps(layout, plan, [&q, &k, y])?;
                let args =
                    (map_q, map_k, map_y, mask, lengths, starts, y_view, lengths_fault, starts_fault, p);
                device.launch(kernel, grid, args)?;
            }
        }
    }
    [lengths_slot, starts_slot].into_iter().flatten().try_for_each(ValueSlot::finish)
}

/// The maps of q, k and y, as a plan by warpgroups wants them.
fn maps(layout: &Layout, plan: WholeRows, [q, k, y]: [&Tensor; 3]) -> Result<[TensorMap; 3]> {
    let Layout { queries, keys, terms, batch, .. } = *layout;
    let keys_of_box = plan.room.min(kernels::WARPGROUP_KEYS);
    let of_y = || {
        let boxed = [kernels::WARPGROUP_COLUMNS, kernels::WARPGROUP_ROWS];
        map_of_result(y, &layout.y, [queries, keys], batch, boxed)
    };
    Ok([
        map_of_operand(q, &layout.q, [queries, terms], batch, true, kernels::WARPGROUP_ROWS)?,
        map_of_operand(k, &layout.k, [keys, terms], batch, true, keys_of_box as u32)?,
        if plan.stores_boxes() { of_y()? } else { TensorMap::none() },
    ])
}

fn params(request: &Request, layout: &Layout, plan: WholeRows) -> Result<Params> {
    let softmax = &request.softmax;
    let scale = softmax.scale;
    // With a bias or a tiny scale the sums are scaled; else the exponent scales their differences, and they get the sign.
    let scaled = softmax.has_bias() || softmax.has_tiny_scale() || scale == 0.0;
    let divisor = |value: usize| {
        u32::try_from(value).ok().and_then(Divisor::new).ok_or_else(|| Error::TooLarge {
            op: OP,
            what: "products of a batch",
            limit: (1 << 31) - 1,
            got: value.to_string(),
        })
    };
    Ok(Params {
        q: layout.q,
        k: layout.k,
        y: layout.y,
        mask: layout.mask,
        lengths: layout.lengths,
        starts: layout.starts,
        blocks: divisor(plan.blocks)?,
        inner: divisor(layout.batch[1])?,
        exponent: Exponent::new(if scaled { 1.0 } else { f64::from(scale.abs()) }),
        scale: if scaled { scale } else { scale.signum() },
        queries: layout.queries as u32,
        keys: layout.keys as u32,
        terms: layout.terms as u32,
        tiles: plan.tiles as u32,
        mask_kind: match softmax.mask {
            MaskForm::None => mask_kind::NONE,
            MaskForm::Keep | MaskForm::Drop => mask_kind::BYTES,
            MaskForm::Bias(dtype) if dtype == softmax.dtype => mask_kind::BIAS,
            MaskForm::Bias(_) => mask_kind::BIAS_F32,
        },
        mask_invert: if softmax.mask == MaskForm::Drop { u32::MAX } else { 0 },
        has_lengths: u32::from(softmax.has_lengths),
        has_starts: u32::from(softmax.has_starts),
        causal: u32::from(softmax.causal_offset.is_some()),
        causal_offset: softmax.causal_offset.unwrap_or(0),
    })
}
