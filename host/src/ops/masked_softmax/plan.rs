//! What is chosen: the kernel and its launch, from the problem alone.

use std::fmt;

use super::mask_bits;
use super::problem::{KernelSet, MaskForm, Problem};
use super::spread::{Shape as SpreadShape, Spread};
use crate::count::Count;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::launch::Grid;
use cuda_std::kernel::Kernel;
use kernels_gpu::masked_softmax as kernels;

/// The GPU that a plan is for; the CPU runs what the newest would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Thread-block clusters: sm_90a.
    pub clusters: bool,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Most shared memory of a block.
    pub shared_bytes: u32,
}

impl Target {
    /// The target of tensors on `device`.
    pub fn of(device: &Device) -> Target {
        let clusters = device.has_clusters();
        let (multiprocessors, shared_bytes) = match device.info() {
            Some(info) => (info.sm_count, info.max_shared_per_block),
            None => {
                let limits = simt::Limits::default();
                (limits.multiprocessors, limits.max_shared_per_block)
            }
        };
        Target { clusters, multiprocessors, shared_bytes }
    }
}

/// Where the operands' first elements lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// x and all results start at a multiple of 16 bytes.
    pub x_and_y: bool,
    /// The mask does.
    pub mask: bool,
}

impl Alignment {
    /// That of whole allocations.
    pub fn of_allocations() -> Alignment {
        Alignment { x_and_y: true, mask: true }
    }
}

/// Which kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Held in registers.
    Row {
        /// The instance of `row`, or of `row_bias`.
        index: usize,
    },
    /// Held in registers, longer, without a bias; sm_90a.
    LongRow {
        /// The instance of `long_row`.
        index: usize,
    },
    /// Held in the registers and shared memory of a cluster.
    Cluster {
        /// The instance of `cluster_row`, or of `cluster_row_bias`.
        index: usize,
        /// Blocks of the cluster.
        blocks: u32,
        /// Packs of a row that each block takes.
        slice: u32,
    },
    /// Held in the shared memory of blocks that stay, several at a time; sm_90a.
    Spread {
        /// The instance of `spread_row`.
        index: usize,
        /// How rows are dealt out.
        spread: Spread,
    },
    /// Read twice.
    Streamed,
    /// Element by element.
    Strided,
}

/// A kernel and how the rows are dealt out to its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The kernel.
    pub choice: Choice,
    /// Rows that a block takes; for clusters, that a cluster takes; of rows that are spread, that a group of blocks takes.
    pub rows_per_block: u32,
    /// Whether rows may start or end inside a 16-byte pack.
    pub ragged: bool,
    /// Whether the masks of packs may start at any byte.
    pub mask_skewed: bool,
    /// Whether masks of bytes are turned into bits first.
    pub mask_bits: bool,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.choice {
            Choice::Row { index } => write!(f, "row {index}: rows in registers")?,
            Choice::LongRow { index } => write!(f, "long_row {index}: rows in registers")?,
            Choice::Cluster { index, blocks, slice } => write!(
                f,
                "cluster_row {index}: rows in the registers and shared memory of {}, {} each",
                Count(blocks as usize, "block"),
                Count(slice as usize, "pack")
            )?,
            Choice::Spread { index, spread } => write!(
                f,
                "spread_row {index}: rows in the shared memory of {} that stay, {} each",
                Count(spread.blocks as usize, "block"),
                Count(spread.slice as usize, "pack")
            )?,
            Choice::Streamed => write!(f, "streamed_row: rows are read twice")?,
            Choice::Strided => write!(f, "strided_row: element by element")?,
        }
        let of = match self.choice {
            Choice::Cluster { .. } => "cluster",
            Choice::Spread { .. } => "group",
            _ => "block",
        };
        let rows = if self.rows_per_block == 1 { "row" } else { "rows" };
        write!(f, "; {} {rows} a {of}", self.rows_per_block)?;
        if self.ragged {
            write!(f, ", which may start or end inside of 16 bytes")?;
        }
        if self.mask_skewed {
            write!(f, "; masks may start at any byte")?;
        }
        if self.mask_bits {
            write!(f, "; masks are turned into bits first")?;
        }
        Ok(())
    }
}

impl Plan {
    /// The kernel for the problem: the first of [`Plan::candidates`].
    pub fn new(problem: &Problem, alignment: Alignment, target: Target) -> Plan {
        Plan::dispatch(problem, alignment, target, |plans| plans.next().unwrap_or(STRIDED))
    }

    /// Every kernel that can serve the problem, the preferred one first.
    pub fn candidates(problem: &Problem, alignment: Alignment, target: Target) -> Vec<Plan> {
        Plan::dispatch(problem, alignment, target, |plans| plans.collect())
    }

    /// The launch of a kernel of the plan's for so many rows.
    pub(in crate::ops) fn grid<A>(&self, device: &Device, rows: u64, kernel: &Kernel<A>) -> Result<Grid> {
        let blocks = rows.div_ceil(u64::from(self.rows_per_block));
        match self.choice {
            Choice::Spread { spread, .. } => spread.grid(rows),
            Choice::Cluster { blocks: size, slice, .. } => {
                let lanes = kernel.constant("LANES");
                let staged = (slice as usize).div_ceil(lanes).saturating_sub(kernel.constant("PACKS"));
                let staged = if kernel.constant("STAGED") == 0 { 0 } else { staged };
                let grid = Grid::new(blocks * u64::from(size))?.cluster(size);
                Ok(grid.shared((staged * lanes * 16) as u32).spread(device))
            }
            Choice::Row { .. } => Ok(Grid::new(blocks)?.spread(device)),
            Choice::LongRow { .. } | Choice::Streamed | Choice::Strided => Grid::new(blocks),
        }
    }

    /// Hands the candidates to `visit`, one by one: planning a launch allocates nothing.
    fn dispatch<R>(
        problem: &Problem,
        alignment: Alignment,
        target: Target,
        visit: impl FnOnce(&mut dyn Iterator<Item = Plan>) -> R,
    ) -> R {
        match problem.dtype {
            DType::F16 => Plan::typed::<half::f16, R>(problem, alignment, target, visit),
            DType::BF16 => Plan::typed::<half::bf16, R>(problem, alignment, target, visit),
            _ => Plan::typed::<f32, R>(problem, alignment, target, visit),
        }
    }

    fn typed<T: Instances, R>(
        problem: &Problem,
        alignment: Alignment,
        target: Target,
        visit: impl FnOnce(&mut dyn Iterator<Item = Plan>) -> R,
    ) -> R {
        let pack = 16 / problem.dtype.size();
        let strided = STRIDED;
        let Some(Layout { ragged, mask_skewed }) = Layout::of(problem, alignment, pack) else {
            return visit(&mut [strided].into_iter());
        };
        if problem.has_tiny_scale() && !problem.has_bias() {
            return visit(&mut [strided].into_iter()); // which scales first, at no cost to the others
        }
        // Those that cover a row wherever it begins.
        let packs = if ragged { (problem.cols + 2 * pack - 2) / pack } else { problem.cols / pack };
        let bias = problem.has_bias();
        let Tables { rows: table, long, clusters, spread } = match problem.kernels {
            KernelSet::Plain => T::PLAIN,
            KernelSet::Bias => T::BIAS,
            KernelSet::Dropout => T::DROPOUT,
            KernelSet::CrossEntropy => T::CROSS_ENTROPY,
        };
        let long = if target.clusters { long } else { &[] };
        let serves = move |shape: &RowShape| shape.capacity() >= packs;
        // Of two instances that hold as much, masks want the one with more packs a thread, whose mask loads overlap,
        // and comes first in the table; without one, fewer packs in flight stream better.
        let twin = |a: usize, b: usize| b < table.len() && table[a].capacity() == table[b].capacity();
        let plain = problem.is_unmasked() && !ragged;
        let in_turn = move |index: usize| match index {
            _ if plain && twin(index, index + 1) => index + 1,
            1.. if plain && twin(index - 1, index) => index - 1,
            _ => index,
        };
        let row = move |index: usize| {
            let (index, shape) = (in_turn(index), &table[in_turn(index)]);
            let rows_per_block = kernels::rows_per_block(shape.lanes, shape.threads);
            serves(shape).then_some(Plan {
                choice: Choice::Row { index },
                rows_per_block,
                ragged,
                mask_skewed,
                mask_bits: false,
            })
        };
        // Where both serve, the long kernels are faster.
        let short =
            table.iter().take_while(|shape| long.first().is_none_or(|l| shape.capacity() < l.capacity()));
        let short = short.count();
        let (before, after) = (0..short, short..table.len());
        let rows = move |range: core::ops::Range<usize>| range.filter_map(row);
        // A block that fills a multiprocessor waits for its own arithmetic, of which 16-bit rows have more: clusters
        // of smaller blocks go before it.
        let full = move |shape: &RowShape| pack == 8 && shape.threads == 1024;
        let long = move |last: bool| {
            let instances = long.iter().enumerate();
            let serving = instances.filter(move |(_, shape)| serves(shape) && full(shape) == last);
            serving.map(move |(index, _)| Plan {
                choice: Choice::LongRow { index },
                rows_per_block: 1,
                ragged,
                mask_skewed,
                mask_bits: false,
            })
        };
        // Shared memory holds more, but what is there is gone through pack by pack, and masks become bits for it: masked rows do
        // without, where masks lie well, below [`MASKED_IN_BOTH`] packs.
        let masked = !problem.is_unmasked();
        let plain_masks = !ragged && !mask_skewed;
        let (has_mask, as_bits) = (problem.mask != MaskForm::None, mask_bits::serve(problem));
        let staged = move |shape: &RowShape| shape.staged > 0;
        // Of masked 16-bit rows, the larger blocks before the smallest, of which twice as many have to agree.
        let smallest_later = masked && pack == 8 && clusters.len() > 1;
        let in_order = move |index: usize| if smallest_later && index < 2 { 1 - index } else { index };
        let clusters_of = move |wanted: bool| {
            let indices = (0..clusters.len()).filter(move |_| target.clusters).map(in_order);
            let instances = indices.map(move |index| (index, &clusters[index]));
            instances.filter(move |(_, shape)| staged(shape) == wanted).filter_map(move |(index, shape)| {
                let blocks = packs.div_ceil(shape.capacity()).max(1);
                // Shared out evenly, whole warps of packs each, unless a slice is what the registers hold.
                let shared_out = packs.div_ceil(blocks).next_multiple_of(32);
                let slice = if staged(shape) { shared_out } else { shape.capacity() } as u32;
                let choice = Choice::Cluster { index, blocks: blocks as u32, slice };
                let fits = if staged(shape) { as_bits } else { bias || plain_masks };
                let mask_bits = staged(shape) && has_mask;
                let mask_skewed = mask_skewed && !mask_bits;
                let serves = blocks <= kernels::MAX_CLUSTER as usize && fits;
                serves.then_some(Plan { choice, rows_per_block: 1, ragged, mask_skewed, mask_bits })
            })
        };
        let staged_first = !masked || packs > MASKED_IN_BOTH || (has_mask && packs == MASKED_IN_BOTH);
        let clusters = clusters_of(staged_first).chain(clusters_of(!staged_first));
        let streamed =
            Plan { choice: Choice::Streamed, rows_per_block: 1, ragged, mask_skewed, mask_bits: false };
        let rows_in_all = problem.row_count();
        let shapes = if as_bits && target.clusters { spread } else { &[] };
        // Masked 16-bit rows are more to go through, and larger slices let more of that overlap.
        let widest_first = masked && pack == 8;
        let spread = (0..shapes.len()).filter_map(move |number| {
            let index = if widest_first { shapes.len() - 1 - number } else { number };
            let spread = Spread::of(&shapes[index], packs, rows_in_all, target)?;
            let rows_per_block = u32::try_from(rows_in_all.div_ceil(spread.groups.into())).ok()?;
            let (choice, mask_skewed) = (Choice::Spread { index, spread }, mask_skewed && !has_mask);
            Some(Plan { choice, rows_per_block, ragged, mask_skewed, mask_bits: has_mask })
        });
        let spread = move |now: bool| spread.clone().filter(move |_| now);
        // f32 rows without a mask stream better from the fewer blocks of a kernel for longer rows, which has them half filled.
        let half = plain && pack == 4 && packs > 768;
        let long_rows = move |now: bool| long(false).filter(move |_| now);
        // A row for a whole multiprocessor is best without a mask, or where there are few.
        let whole = move |now: bool| long(true).filter(move |_| now);
        let alone = !masked || (has_mask && !plain_masks && problem.row_count() <= FEW);
        let held = long_rows(half).chain(rows(before)).chain(long_rows(!half)).chain(rows(after));
        let huge = packs >= SPREAD;
        let held = spread(huge).chain(held).chain(whole(alone)).chain(clusters).chain(whole(!alone));
        visit(&mut held.chain(spread(!huge)).chain([streamed, strided]))
    }
}

/// Packs from which a row with a mask of bytes is best held in shared memory, too, by clusters; of other masked rows the most that
/// are best held in registers alone.
const MASKED_IN_BOTH: usize = 1 << 16;

/// Packs from which a row is best spread: it would be most of a cluster's, and nothing would go on beside it.
const SPREAD: usize = 1 << 17;

/// Rows of which each has a multiprocessor nearly to itself: a block for each, which reads bytes, is faster then than clusters with
/// bits.
const FEW: u64 = 256;

/// The kernel that serves everything: four warps a block, a row each.
const STRIDED: Plan =
    Plan { choice: Choice::Strided, rows_per_block: 4, ragged: false, mask_skewed: false, mask_bits: false };

/// How rows and masks lie to packs.
#[derive(Clone, Copy)]
struct Layout {
    ragged: bool,
    mask_skewed: bool,
}

impl Layout {
    /// Nothing where rows of packs cannot serve the problem.
    fn of(problem: &Problem, alignment: Alignment, pack: usize) -> Option<Layout> {
        if problem.x_stride != 1 || problem.mask_stride != 1 || !alignment.x_and_y || !alignment.mask {
            return None;
        }
        let alike = |a: isize, b: isize| (a as u64).wrapping_sub(b as u64).is_multiple_of(pack as u64);
        // Rows of x and y must start alike, modulo a pack.
        if !problem.rows.iter().all(|dim| alike(dim.x, dim.y)) {
            return None;
        }
        Some(Layout {
            ragged: !problem.cols.is_multiple_of(pack) || !problem.rows.iter().all(|dim| alike(dim.x, 0)),
            mask_skewed: !problem.rows.iter().all(|dim| alike(dim.x, dim.mask)),
        })
    }
}

/// What a plan looks at of an instance of a register kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowShape {
    lanes: usize,
    packs: usize,
    /// Packs of a thread that wait in shared memory.
    staged: usize,
    threads: u32,
}

impl RowShape {
    /// Of a kernel that has rows in registers alone.
    const fn of<A>(kernel: &Kernel<A>) -> RowShape {
        RowShape {
            lanes: kernel.constant("LANES"),
            packs: kernel.constant("PACKS"),
            staged: 0,
            threads: kernel.bounds.threads,
        }
    }

    /// Of one that may have a part of them in shared memory.
    const fn with_staged<A>(kernel: &Kernel<A>) -> RowShape {
        RowShape { staged: kernel.constant("STAGED"), ..RowShape::of(kernel) }
    }

    /// The packs of a row that it holds.
    fn capacity(&self) -> usize {
        self.lanes * (self.packs + self.staged)
    }
}

/// The plan tables of a set of kernels: their constants, in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables {
    rows: &'static [RowShape],
    long: &'static [RowShape],
    clusters: &'static [RowShape],
    spread: &'static [SpreadShape],
}

/// The plan tables of an element type.
pub(super) trait Instances: Copy + 'static {
    const PLAIN: Tables;
    const BIAS: Tables;
    const DROPOUT: Tables;
    const CROSS_ENTROPY: Tables;
}

/// What each of a kernel's instances is to the plan.
macro_rules! table {
    ($kernel:ident, $ty:ty, $shape:ident::$of:ident) => {{
        const KERNELS: &[Kernel<kernels::$kernel::Args<$ty>>] = <$ty as kernels::$kernel::Instances>::ALL;
        const TABLE: [$shape; KERNELS.len()] = {
            let mut table = [$shape::$of(&KERNELS[0]); KERNELS.len()];
            let mut i = 1;
            while i < KERNELS.len() {
                table[i] = $shape::$of(&KERNELS[i]);
                i += 1;
            }
            table
        };
        &TABLE
    }};
}

macro_rules! instances {
    ($($ty:ty),*) => {$(
        impl Instances for $ty {
            const PLAIN: Tables = Tables {
                rows: table!(row, $ty, RowShape::of),
                long: table!(long_row, $ty, RowShape::of),
                clusters: table!(cluster_row, $ty, RowShape::with_staged),
                spread: table!(spread_row, $ty, SpreadShape::of),
            };
            const BIAS: Tables = Tables {
                rows: table!(row_bias, $ty, RowShape::of),
                long: &[],
                clusters: table!(cluster_row_bias, $ty, RowShape::with_staged),
                spread: &[],
            };
            const DROPOUT: Tables = Tables {
                rows: table!(dropout_row, $ty, RowShape::of),
                long: &[],
                clusters: &[],
                spread: &[],
            };
            const CROSS_ENTROPY: Tables = Tables {
                rows: table!(cross_entropy_row, $ty, RowShape::of),
                long: &[],
                clusters: table!(cross_entropy_cluster, $ty, RowShape::with_staged),
                spread: &[],
            };
        }
    )*};
}
instances!(f32, half::f16, half::bf16);
