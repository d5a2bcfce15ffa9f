//! What is chosen: one kernel or a product and a softmax, and how many tiles a block takes.

use std::fmt;

use kernels_gpu::attention_scores as kernels;

use super::layout::{Layout, Starts};
use super::{Request, factors};
use crate::count::Count;
use crate::cuda::shared::{blocks_that_fit, share};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::masked_softmax::{self, Alignment, MaskForm};
use crate::ops::matmul;

/// The most blocks of a launch.
const MAX_BLOCKS: u64 = (1 << 31) - 1;

/// What a block does before its first tile, in tiles: it waits for its keys.
const START: f64 = 1.0;

/// Up to so many keys two steps are faster.
const FEW_KEYS: usize = 64;

/// The most keys that leave a warpgroup registers for more than their scores.
const LIGHT_KEYS: usize = 256;

/// Up to so many terms two blocks of a warpgroup and as many keys as it can hold have room on a multiprocessor, and three of warps.
const FEW_TERMS: usize = 64;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One kernel, this instance.
    WholeRows {
        /// Who has a tile's rows.
        by: By,
        /// The instance.
        index: usize,
    },
    /// A product, and a softmax behind it.
    Steps,
}

/// Who has the rows of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Warps: `mma.sync`.
    Warps,
    /// A warpgroup: `wgmma`, on Hopper.
    Warpgroups,
}

impl By {
    /// The form of instances that serve, if there are any.
    fn form(self, softmax: &masked_softmax::Problem, layout: &Layout, starts: Starts) -> Option<usize> {
        use kernels::form::{BIASED, LOOSE, PLAIN};
        let packed = |mask| layout.packed(mask, starts);
        match (self, softmax.mask) {
            (By::Warps, MaskForm::Bias(_)) => packed(softmax.mask).then_some(BIASED),
            (By::Warps, _) => packed(softmax.mask).then_some(PLAIN),
            // One that all queries share, and that is read number by number.
            (By::Warpgroups, MaskForm::Bias(_)) if layout.mask.row != 0 => None,
            (By::Warpgroups, MaskForm::Bias(_)) => Some(if packed(MaskForm::None) { PLAIN } else { LOOSE }),
            (By::Warpgroups, _) => Some(if packed(softmax.mask) { PLAIN } else { LOOSE }),
        }
    }
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
    /// Who has a tile's rows.
    pub by: By,
    /// The instance.
    pub index: usize,
    /// One of [`form`](kernels::form).
    form: usize,
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
        Choice::WholeRows { by: self.by, index: self.index }
    }

    /// Whether results leave by the accelerator, where they leave a warpgroup.
    pub(super) fn stores_boxes(&self) -> bool {
        self.form != kernels::form::LOOSE
    }
}

/// The GPU that a plan is for.
#[derive(Clone, Copy, Debug)]
struct Target {
    sms: u32,
    shared_per_block: u32,
    shared_per_sm: u32,
    /// Whether there are Hopper's products of warpgroups.
    warpgroups: bool,
}

/// What plans for the CPU are for: an H200.
const HOPPER: Target =
    Target { sms: 132, shared_per_block: 232_448, shared_per_sm: 233_472, warpgroups: true };

impl Target {
    fn of(device: &Device) -> Target {
        device.info().map_or(HOPPER, |info| Target {
            sms: info.sm_count,
            shared_per_block: info.max_shared_per_block,
            shared_per_sm: info.max_shared_per_sm,
            warpgroups: info.arch == (9, 0),
        })
    }
}

/// What a plan looks at of an instance.
#[derive(Clone, Copy, Debug)]
struct Shape {
    by: By,
    index: usize,
    form: usize,
    rows: usize,
    room: usize,
    /// Warps side by side.
    warps: usize,
    min_blocks: u32,
}

impl Shape {
    const NONE: Shape = Shape { by: By::Warps, index: 0, form: 0, rows: 0, room: 0, warps: 0, min_blocks: 0 };

    /// Bytes of shared memory for sums of `terms`, with a bias or without.
    fn shared_bytes(&self, terms: u32, biased: bool) -> u32 {
        let (rows, room) = (self.rows as u32, self.room as u32);
        match self.by {
            By::Warps => kernels::shared_bytes(rows, room, self.warps as u32, terms),
            By::Warpgroups => kernels::warpgroup_shared_bytes(self.form, room, terms, biased),
        }
    }

    /// Whether it can read the operands.
    fn reads(&self, layout: &Layout, target: Target) -> bool {
        self.by == By::Warps || (target.warpgroups && layout.mappable())
    }
}

/// The shapes of a kernel's instances.
macro_rules! shapes {
    ($kernel:ident, |$index:ident, $of:ident| $shape:expr) => {{
        const KERNELS: &[cuda_std::kernel::Kernel<kernels::$kernel::Args<half::bf16>>] =
            <half::bf16 as kernels::$kernel::Instances>::ALL;
        const TABLE: [Shape; KERNELS.len()] = {
            let mut table = [Shape::NONE; KERNELS.len()];
            let mut $index = 0;
            while $index < KERNELS.len() {
                let $of = &KERNELS[$index];
                table[$index] = $shape;
                $index += 1;
            }
            table
        };
        &TABLE
    }};
}

/// The kernels, and of each its instances, in the order of preference among those that have room for as many keys.
const SHAPES: [&[Shape]; 2] = [
    shapes!(by_warpgroups, |index, of| Shape {
        by: By::Warpgroups,
        index,
        form: of.constant("FORM"),
        rows: kernels::WARPGROUP_ROWS as usize,
        room: of.constant("PIECES") * 2 * of.constant("N"),
        warps: 0,
        min_blocks: of.bounds.min_blocks,
    }),
    shapes!(whole_rows, |index, of| Shape {
        by: By::Warps,
        index,
        form: of.constant("FORM"),
        rows: of.constant("WARPS_M") * of.constant("MI") * 16,
        room: of.constant("WARPS_N") * of.constant("GROUPS") * 32,
        warps: of.constant("WARPS_N"),
        min_blocks: of.bounds.min_blocks,
    }),
];

impl Plan {
    /// The kernel that is taken; `None` for two steps.
    pub(super) fn chosen(request: &Request, layout: Option<&Layout>, starts: Starts) -> Option<WholeRows> {
        let target = Target::of(request.product.y.device());
        Plan::one_kernel(request, layout, starts, target).next().filter(|plan| is_faster(plan, request))
    }

    /// Every way, the one that is taken first.
    pub(super) fn candidates(
        request: &Request,
        layout: Option<&Layout>,
        starts: Starts,
    ) -> Result<Vec<Plan>> {
        let target = masked_softmax::Target::of(request.product.y.device());
        // The product has the scale, if it is not 0.
        let softmax =
            masked_softmax::Problem { scale: factors(request.softmax.scale).1, ..request.softmax.clone() };
        let softmax = masked_softmax::Plan::candidates(&softmax, Alignment::of_allocations(), target)[0];
        let steps = Plan::Steps { product: request.product.plan()?, softmax };
        let of_one = Plan::one_kernel(request, layout, starts, Target::of(request.product.y.device()));
        let mut plans: Vec<Plan> = of_one.map(Plan::WholeRows).collect();
        let first = Plan::chosen(request, layout, starts).is_none();
        plans.insert(if first { 0 } else { plans.len() }, steps);
        Ok(plans)
    }

    /// The instances that can serve, the one that is taken first.
    fn one_kernel(
        request: &Request,
        layout: Option<&Layout>,
        starts: Starts,
        target: Target,
    ) -> impl Iterator<Item = WholeRows> {
        let softmax = &request.softmax;
        let layout = layout.copied().filter(|layout| {
            let sums = layout.terms > 0 && !softmax.is_empty();
            sums && request.product.factors.dtype != DType::F32 && starts.q_and_k && !softmax.packed
        });
        let warps_first = layout.is_some_and(|layout| warps_are_faster(&layout, softmax, starts));
        let [warpgroups, warps] = SHAPES;
        let order = if warps_first { [warps, warpgroups] } else { [warpgroups, warps] };
        order.into_iter().flat_map(move |shapes| {
            let fitting = move |shape: &Shape| {
                layout.is_some_and(|layout| {
                    let form = shape.by.form(softmax, &layout, starts);
                    Some(shape.form) == form && shape.reads(&layout, target) && shape.room >= layout.keys
                })
            };
            let smallest = shapes.iter().filter(|shape| fitting(shape)).map(|shape| shape.room).min();
            let instances = shapes.iter().filter(move |shape| fitting(shape) && Some(shape.room) == smallest);
            instances.filter_map(move |shape| {
                layout.and_then(|layout| whole_rows(shape, softmax.has_bias(), &layout, target))
            })
        })
    }
}

/// Whether one kernel is faster than two steps, as measured (docs/PERFORMANCE.md): by warps not of few keys, of which it computes twice as many.
fn is_faster(plan: &WholeRows, request: &Request) -> bool {
    plan.by == By::Warpgroups || request.softmax.cols > FEW_KEYS
}

/// Whether warps are faster, as measured, where the scores of a warpgroup's rows leave few registers: they wait for bytes of masks that differ from
/// row to row, and have little to gain without any.
fn warps_are_faster(layout: &Layout, softmax: &masked_softmax::Problem, starts: Starts) -> bool {
    let plain = By::Warpgroups.form(softmax, layout, starts) == Some(kernels::form::PLAIN);
    let ranged = softmax.has_lengths || softmax.has_starts || softmax.causal_offset.is_some();
    plain
        && layout.keys > LIGHT_KEYS
        && match softmax.mask {
            MaskForm::Keep | MaskForm::Drop => layout.mask.row != 0,
            MaskForm::None => !ranged && layout.terms <= FEW_TERMS,
            MaskForm::Bias(_) => false,
        }
}

/// The launch of an instance; `None` where the GPU cannot.
fn whole_rows(shape: &Shape, biased: bool, layout: &Layout, target: Target) -> Option<WholeRows> {
    let terms = u32::try_from(layout.terms).ok().filter(|&terms| terms <= 1 << 12)?;
    let needed = shape.shared_bytes(terms, biased);
    if needed > target.shared_per_block {
        return None;
    }
    let resident = blocks_that_fit(target.shared_per_sm, needed).min(shape.min_blocks.max(1)).max(1);
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
    let on_each = total.div_ceil(u64::from(target.sms));
    // Of blocks that all run at once no multiprocessor takes more than its share, which some would where these start early.
    let evenly = shape.by == By::Warpgroups && (2..=u64::from(resident)).contains(&on_each);
    let shared_bytes = if evenly { share(target.shared_per_sm, on_each as u32) } else { needed };
    let Shape { by, index, form, rows, room, .. } = *shape;
    let plan = WholeRows { by, index, form, rows, room, tiles, blocks, shared_bytes };
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
        let WholeRows { by, rows, room, tiles, blocks, shared_bytes, .. } = self;
        let name = match by {
            By::Warps => "whole_rows",
            By::Warpgroups => "by_warpgroups",
        };
        write!(
            f,
            "{name} {rows}x{room}, {} a block, {} a product, {} KB",
            Count(*tiles, "tile"),
            Count(*blocks, "block"),
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

    /// The kernels of a GPU that may not have Hopper's products, without a mask.
    fn kernels_of(target: Target, shape: [usize; 3]) -> Vec<WholeRows> {
        let [queries, keys, terms] = shape;
        let (q, k) = (of(DType::F16, &[queries, terms]), of(DType::F16, &[keys, terms]));
        let parameters = MaskedSoftmax::default();
        let request = Request::new(&q, &k, &parameters).unwrap();
        let layout = Layout::new(&request, &parameters).unwrap();
        Plan::one_kernel(&request, layout.as_ref(), Starts::of_allocations(), target).collect()
    }

    #[test]
    fn the_smallest_room_that_holds_the_keys_is_taken() {
        use By::{Warpgroups, Warps};
        for (keys, by, room) in [
            (1, Warpgroups, 64),
            (64, Warpgroups, 64),
            (65, Warpgroups, 128),
            (128, Warpgroups, 128),
            (136, Warpgroups, 256),
            (197, Warpgroups, 256),
            (256, Warpgroups, 256),
            (264, Warps, 384),
            (383, Warpgroups, 384),
            (384, Warps, 384),
            (392, Warps, 512),
            (520, Warps, 1024),
            (1024, Warps, 1024),
        ] {
            let Plan::WholeRows(plan) = plan(100, keys, 64, 8) else { panic!("{keys} keys take two steps") };
            assert_eq!((plan.by, plan.room), (by, room), "{keys} keys");
        }
        for (keys, terms) in [(1032, 64), (1024, 128), (128, 0), (385, 64)] {
            assert_eq!(plan(100, keys, terms, 8).choice(), Choice::Steps, "{keys} keys of {terms}");
        }
    }

    #[test]
    fn what_hopper_alone_has_is_not_taken_elsewhere() {
        let elsewhere = Target { warpgroups: false, ..HOPPER };
        for (keys, room) in [(72, 128), (128, 128), (136, 256), (264, 384), (392, 512)] {
            let first = kernels_of(elsewhere, [100, keys, 64])[0];
            assert_eq!((first.by, first.room), (By::Warps, room), "{keys} keys");
        }
    }

    /// BERT-large on 384 tokens: two blocks a head fill 132 multiprocessors twice, and share them evenly.
    #[test]
    fn tiles_of_a_block_fill_waves() {
        let (q, keep) = (of(DType::BF16, &[128, 384, 64]), of(DType::Bool, &[384]));
        let parameters = MaskedSoftmax { mask: Mask::Keep(&keep), ..Default::default() };
        let Plan::WholeRows(plan) = explain(&q, &q, &parameters).unwrap() else { panic!("two steps") };
        assert_eq!((plan.by, plan.rows, plan.tiles, plan.blocks), (By::Warpgroups, 64, 3, 2));
        assert_eq!(plan.shared_bytes, share(HOPPER.shared_per_sm, 2));
        assert!(plan.shared_bytes > kernels::warpgroup_shared_bytes(kernels::form::PLAIN, 384, 64, false));
        let elsewhere = kernels_of(Target { warpgroups: false, ..HOPPER }, [384, 384, 64])[0];
        assert_eq!((elsewhere.rows, elsewhere.shared_bytes), (32, kernels::shared_bytes(32, 384, 2, 64)));
    }

    #[test]
    fn what_is_slower_in_one_kernel_stays_a_candidate() {
        // Few keys, of which warps compute twice as many.
        let (q, k) = (of(DType::F16, &[100, 64]), of(DType::F16, &[64, 64]));
        let bias = of(DType::F16, &[100, 64]);
        let parameters = MaskedSoftmax { mask: Mask::Bias(&bias), ..Default::default() };
        let choices: Vec<Choice> =
            candidates(&q, &k, &parameters).unwrap().iter().map(Plan::choice).collect();
        assert!(
            matches!(choices[..], [Choice::Steps, Choice::WholeRows { by: By::Warps, .. }]),
            "{choices:?}"
        );
        // Masks of bytes for each row: warps where a warpgroup's scores leave no registers, and not beside fewer keys.
        for (keys, first) in [(384, By::Warps), (256, By::Warpgroups)] {
            let (q, k) = (of(DType::F16, &[100, 64]), of(DType::F16, &[keys, 64]));
            let mask = of(DType::Bool, &[100, keys]);
            let parameters = MaskedSoftmax { mask: Mask::Keep(&mask), ..Default::default() };
            let choices: Vec<Choice> =
                candidates(&q, &k, &parameters).unwrap().iter().map(Plan::choice).collect();
            let [Choice::WholeRows { by, .. }, Choice::WholeRows { .. }, Choice::Steps] = choices[..] else {
                panic!("{choices:?}")
            };
            assert_eq!(by, first, "{keys} keys");
            // A bias that all queries share leaves them.
            let bias = of(DType::F32, &[keys]);
            let parameters = MaskedSoftmax { mask: Mask::Bias(&bias), ..Default::default() };
            let Choice::WholeRows { by, .. } = explain(&q, &k, &parameters).unwrap().choice() else {
                panic!("two steps")
            };
            assert_eq!(by, By::Warpgroups, "{keys} keys");
        }
        let (q, k) = (of(DType::F16, &[100, 64]), of(DType::F16, &[384, 64]));
        let bias = of(DType::F32, &[100, 384]);
        let parameters = MaskedSoftmax { mask: Mask::Bias(&bias), ..Default::default() };
        let plans = candidates(&q, &k, &parameters).unwrap();
        assert!(matches!(plans[0].choice(), Choice::WholeRows { .. }), "{plans:?}");
        let (q, k) = (of(DType::F32, &[100, 64]), of(DType::F32, &[384, 64]));
        let plans = candidates(&q, &k, &MaskedSoftmax::default()).unwrap();
        assert_eq!(plans.iter().map(Plan::choice).collect::<Vec<_>>(), [Choice::Steps]);
    }

    /// The product has it.
    #[test]
    fn a_tiny_scale_is_none_of_the_softmaxs_own() {
        let (q, k) = (of(DType::F32, &[100, 64]), of(DType::F32, &[384, 64]));
        let plan =
            |scale| explain(&q, &k, &MaskedSoftmax { scale, ..Default::default() }).unwrap().to_string();
        assert_eq!(plan(1e-31), plan(1.0));
    }
}
