//! What is chosen: one kernel or a product and a softmax, and how many tiles a block takes.

use std::fmt;

use kernels_gpu::attention_scores as kernels;

use super::Request;
use super::layout::{Layout, Starts};
use crate::cuda::shared::blocks_that_fit;
use crate::device::Device;
use crate::dtype::DType;
use crate::ops::masked_softmax::{self, Alignment, MaskForm};
use crate::ops::matmul;

/// The most blocks of a launch.
const MAX_BLOCKS: u64 = (1 << 31) - 1;

/// What a block does before its first tile, in tiles: it waits for its keys.
const START: f64 = 1.0;

/// Up to so many keys two steps are faster.
const FEW_KEYS: usize = 64;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One kernel, this instance.
    WholeRows {
        /// The instance.
        index: usize,
    },
    /// A product, and a softmax behind it.
    Steps,
}

/// How [`attention_scores`](super::attention_scores()) goes about it.
#[derive(Clone, Debug)]
pub enum Plan {
    /// One kernel.
    WholeRows(WholeRows),
    /// Two.
    Steps {
        /// The product with the scale.
        product: matmul::Plan,
        /// The softmax with the mask.
        softmax: masked_softmax::Plan,
    },
}

impl Plan {
    /// The choice that it is.
    pub fn choice(&self) -> Choice {
        match self {
            Plan::WholeRows(plan) => plan.choice(),
            Plan::Steps { .. } => Choice::Steps,
        }
    }
}

/// One kernel for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeRows {
    /// The instance.
    pub index: usize,
    /// Queries of a tile.
    pub rows: usize,
    /// Keys that it has room for.
    pub room: usize,
    /// Tiles that a block takes, one after the other.
    pub tiles: usize,
    /// Blocks of each product.
    pub blocks: usize,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
}

impl WholeRows {
    /// The choice that it is.
    pub fn choice(&self) -> Choice {
        Choice::WholeRows { index: self.index }
    }
}

/// The GPU that a plan is for.
#[derive(Clone, Copy, Debug)]
struct Target {
    sms: u32,
    shared_per_block: u32,
    shared_per_sm: u32,
}

/// What plans for the CPU are for: an H200.
const HOPPER: Target = Target { sms: 132, shared_per_block: 232_448, shared_per_sm: 233_472 };

impl Target {
    fn of(device: &Device) -> Target {
        device.info().map_or(HOPPER, |info| Target {
            sms: info.sm_count,
            shared_per_block: info.max_shared_per_block,
            shared_per_sm: info.max_shared_per_sm,
        })
    }
}

/// What a plan looks at of an instance.
#[derive(Clone, Copy, Debug)]
struct Shape {
    form: usize,
    rows: usize,
    room: usize,
    warps: usize,
    min_blocks: u32,
}

/// The instances, in their order, which is that of preference among those that have room for as many keys.
const SHAPES: &[Shape] = {
    const KERNELS: &[cuda_std::kernel::Kernel<kernels::whole_rows::Args<half::bf16>>] =
        <half::bf16 as kernels::whole_rows::Instances>::ALL;
    const TABLE: [Shape; KERNELS.len()] = {
        let mut table = [Shape { form: 0, rows: 0, room: 0, warps: 0, min_blocks: 0 }; KERNELS.len()];
        let mut i = 0;
        while i < KERNELS.len() {
            let kernel = &KERNELS[i];
            let warps = kernel.constant("WARPS_N");
            table[i] = Shape {
                form: kernel.constant("FORM"),
                rows: kernel.constant("WARPS_M") * kernel.constant("MI") * 16,
                room: warps * kernel.constant("GROUPS") * 32,
                warps,
                min_blocks: kernel.bounds.min_blocks,
            };
            i += 1;
        }
        table
    };
    &TABLE
};

impl Plan {
    /// The kernel that is taken; `None` for two steps.
    pub(super) fn chosen(request: &Request, layout: Option<&Layout>, starts: Starts) -> Option<WholeRows> {
        Plan::one_kernel(request, layout, starts).next().filter(|plan| is_faster(plan, request))
    }

    /// Every way, the one that is taken first.
    pub(super) fn candidates(request: &Request, layout: Option<&Layout>, starts: Starts) -> Vec<Plan> {
        let target = masked_softmax::Target::of(request.product.y.device());
        let softmax =
            masked_softmax::Plan::candidates(&request.softmax, Alignment::of_allocations(), target)[0];
        let steps = Plan::Steps { product: request.product.plan(), softmax };
        let mut plans: Vec<Plan> = Plan::one_kernel(request, layout, starts).map(Plan::WholeRows).collect();
        let first = Plan::chosen(request, layout, starts).is_none();
        plans.insert(if first { 0 } else { plans.len() }, steps);
        plans
    }

    /// The instances that can serve.
    fn one_kernel(
        request: &Request,
        layout: Option<&Layout>,
        starts: Starts,
    ) -> impl Iterator<Item = WholeRows> {
        let target = Target::of(request.product.y.device());
        let softmax = &request.softmax;
        let layout = layout.copied().filter(|layout| {
            let sums = layout.terms > 0 && !softmax.is_empty();
            sums && request.product.factors.dtype != DType::F32 && starts.q_and_k && !softmax.packed
        });
        let form = layout.and_then(|layout| match (softmax.mask, layout.packed(softmax.mask, starts)) {
            (MaskForm::Bias(_), packed) => packed.then_some(kernels::form::BIASED),
            (_, true) => Some(kernels::form::PLAIN),
            (_, false) => Some(kernels::form::LOOSE),
        });
        let keys = layout.map_or(0, |layout| layout.keys);
        let fitting = move |shape: &Shape| Some(shape.form) == form && shape.room >= keys;
        let smallest = SHAPES.iter().filter(|shape| fitting(shape)).map(|shape| shape.room).min();
        let instances = SHAPES.iter().enumerate();
        instances.filter(move |(_, shape)| fitting(shape) && Some(shape.room) == smallest).filter_map(
            move |(index, shape)| layout.and_then(|layout| whole_rows(index, shape, &layout, target)),
        )
    }
}

/// Whether one kernel is faster than two steps, as measured (docs/PERFORMANCE.md): not element by element, and not of few keys, of
/// which it computes twice as many.
fn is_faster(plan: &WholeRows, request: &Request) -> bool {
    SHAPES[plan.index].form != kernels::form::LOOSE && request.softmax.cols > FEW_KEYS
}

/// The launch of an instance; `None` where the GPU cannot.
fn whole_rows(index: usize, shape: &Shape, layout: &Layout, target: Target) -> Option<WholeRows> {
    let terms = u32::try_from(layout.terms).ok().filter(|&terms| terms <= 1 << 12)?;
    let shared_bytes = kernels::shared_bytes(shape.rows as u32, shape.room as u32, shape.warps as u32, terms);
    if shared_bytes > target.shared_per_block {
        return None;
    }
    let resident = blocks_that_fit(target.shared_per_sm, shared_bytes).min(shape.min_blocks.max(1)).max(1);
    let slots = f64::from(target.sms * resident);
    let of_product = layout.queries.div_ceil(shape.rows);
    let blocks_of = |tiles: usize| of_product.div_ceil(tiles);
    let time = |tiles: usize| {
        let waves = ((layout.products() * blocks_of(tiles)) as f64 / slots).ceil();
        waves * (tiles as f64 + START)
    };
    let tiles = (1..=of_product.min(64)).min_by(|&a, &b| time(a).total_cmp(&time(b)))?;
    let blocks = blocks_of(tiles);
    let total = layout.products() as u64 * blocks as u64;
    let plan = WholeRows { index, rows: shape.rows, room: shape.room, tiles, blocks, shared_bytes };
    (total <= MAX_BLOCKS).then_some(plan)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Plan::WholeRows(plan) => plan.fmt(f),
            Plan::Steps { product, softmax } => write!(f, "{product}; softmax {softmax}"),
        }
    }
}

impl fmt::Display for WholeRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WholeRows { rows, room, tiles, blocks, shared_bytes, .. } = self;
        write!(
            f,
            "whole_rows {rows}x{room}, {tiles} tiles a block, {blocks} blocks a product, {} KB",
            shared_bytes >> 10
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::{candidates, explain};
    use super::*;
    use crate::ops::{Mask, MaskedSoftmax};
    use crate::tensor::Desc;

    fn of(dtype: DType, shape: &[usize]) -> Desc {
        Desc::new(&Device::cpu(), dtype, shape).unwrap()
    }

    fn plan(queries: usize, keys: usize, terms: usize, heads: usize) -> Plan {
        let (q, k) = (of(DType::BF16, &[heads, queries, terms]), of(DType::BF16, &[heads, keys, terms]));
        explain(&q, &k, &MaskedSoftmax::default()).unwrap()
    }

    #[test]
    fn the_smallest_room_that_holds_the_keys_is_taken() {
        for (keys, room) in [
            (72, 128),
            (128, 128),
            (136, 256),
            (256, 256),
            (264, 384),
            (384, 384),
            (392, 512),
            (520, 1024),
            (1024, 1024),
        ] {
            let Plan::WholeRows(plan) = plan(100, keys, 64, 8) else { panic!("{keys} keys take two steps") };
            assert_eq!(plan.room, room, "{keys} keys");
        }
        for (keys, terms) in [(64, 64), (1032, 64), (130, 64), (1024, 128), (128, 0)] {
            assert_eq!(plan(100, keys, terms, 8).choice(), Choice::Steps, "{keys} keys of {terms}");
        }
    }

    /// BERT-large on 384 tokens: three blocks a head fill 132 multiprocessors three times.
    #[test]
    fn tiles_of_a_block_fill_waves() {
        let Plan::WholeRows(plan) = plan(384, 384, 64, 128) else { panic!("two steps") };
        assert_eq!((plan.rows, plan.tiles, plan.blocks), (32, 4, 3));
        assert_eq!(plan.shared_bytes, kernels::shared_bytes(32, 384, 2, 64));
    }

    #[test]
    fn what_is_slower_in_one_kernel_stays_a_candidate() {
        // 130 keys do not lie in whole packs.
        let (q, k) = (of(DType::F16, &[100, 64]), of(DType::F16, &[130, 64]));
        let choices: Vec<Choice> =
            candidates(&q, &k, &MaskedSoftmax::default()).unwrap().iter().map(Plan::choice).collect();
        assert!(matches!(choices[..], [Choice::Steps, Choice::WholeRows { .. }]), "{choices:?}");
        let (q, k) = (of(DType::F16, &[100, 64]), of(DType::F16, &[384, 64]));
        let bias = of(DType::F32, &[100, 384]);
        let parameters = MaskedSoftmax { mask: Mask::Bias(&bias), ..Default::default() };
        let plans = candidates(&q, &k, &parameters).unwrap();
        assert!(matches!(plans[0].choice(), Choice::WholeRows { .. }), "{plans:?}");
        let (q, k) = (of(DType::F32, &[100, 64]), of(DType::F32, &[384, 64]));
        let plans = candidates(&q, &k, &MaskedSoftmax::default()).unwrap();
        assert_eq!(plans.iter().map(Plan::choice).collect::<Vec<_>>(), [Choice::Steps]);
    }
}
