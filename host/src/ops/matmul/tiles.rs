//! The tiles that kernels offer.

use kernels_gpu::matmul as kernels;

use super::choice::{Choice, LAYOUTS};
use super::few_tiles::{narrow_tiles, short_tile, small_tiles, thin_f32_tile, thin_tile};
use super::pace::{
    ALTERNATING, CLUSTERED, F32_RATES, HALF_RATES, LOOSE, ON_HOPPER, PARTED, PIPED, Pace, TF32_PIPED,
    TF32_RATES, TURNED,
};
use super::request::{Request, Target};
use crate::dtype::DType;
use cuda_std::kernel::Kernel;

/// A tile that a kernel offers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub choice: Choice,
    pub rows: u32,
    pub cols: u32,
    pub shared_bytes: u32,
    /// Blocks of a multiprocessor.
    pub resident: u32,
    pub pace: Pace,
}

impl Tile {
    pub fn new(choice: Choice, [rows, cols]: [u32; 2], shared_bytes: u32, resident: u32, pace: Pace) -> Tile {
        Tile { choice, rows, cols, shared_bytes, resident, pace }
    }

    /// Tiles that a block takes at a time.
    pub fn abreast(&self) -> u32 {
        match self.choice {
            Choice::Small { .. } | Choice::SmallF32 { .. } => kernels::SMALL_WARPS,
            _ => 1,
        }
    }
}

/// Those of all kernels that can serve; kernels of few rows are asked for `few`, which is [`Request::of_few`].
pub(super) fn tiles(request: &Request, few: &Request, target: Target) -> Vec<Tile> {
    if request.dtype == DType::F32 {
        let instances = kernels::cuda_cores::ALL.iter().enumerate();
        let on_cores = instances.map(|(index, kernel)| {
            let side = |name| 8 * kernel.constant(name) as u32;
            let (rows, cols) = (side("THREADS_M"), side("THREADS_N"));
            let (choice, pace) = (Choice::CudaCores { index }, Pace::Waves(F32_RATES[index]));
            let shared_bytes = kernels::f32_shared_bytes(rows, cols);
            Tile::new(choice, [rows, cols], shared_bytes, kernel.bounds.min_blocks, pace)
        });
        let on_tensor_cores = tf32_tiles(request, target).chain(parted_tiles(request, target));
        let of_few = narrow_tiles(few, target).into_iter().chain(thin_f32_tile(few, target));
        let of_warps = short_tile(few).into_iter().chain(small_tiles(request)).filter(|_| target.fast_tf32);
        let by_maps = tf32_piped_tiles(request, target);
        return on_cores.chain(on_tensor_cores).chain(by_maps).chain(of_few).chain(of_warps).collect();
    }
    let instances = kernels::tensor_cores::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    let mut tiles: Vec<Tile> = instances
        .map(|(shape, kernel)| {
            let of = |name| kernel.constant(name) as u32;
            let (rows, cols) = (of("WARPS_M") * of("MI") * 16, of("WARPS_N") * of("NI") * 8);
            let shared_bytes = kernels::shared_bytes(rows, cols, of("STEPS") * 16, of("STAGES"));
            let pace = Pace::Waves(HALF_RATES[shape] * if target.warpgroups { ON_HOPPER } else { 1.0 });
            let choice = Choice::TensorCores { shape };
            Tile::new(choice, [rows, cols], shared_bytes, kernel.bounds.min_blocks, pace)
        })
        .collect();
    let piped = kernels::pipelined::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    // A sum of no terms is left to the others.
    let fits = target.warpgroups && request.is_mappable() && request.k > 0;
    tiles.extend(piped.filter(|_| fits).map(|(shape, kernel)| {
        let pace = Pace::Staying(PIPED[shape]);
        of_consumers(kernel, Choice::Pipelined { shape }, kernels::pipelined_shared_bytes, pace)
    }));
    let fits = fits && request.boxed;
    let turned = kernels::turned::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    tiles.extend(turned.filter(|_| fits).map(|(shape, kernel)| {
        let (choice, pace) = (Choice::Turned { shape }, Pace::Staying(TURNED[shape]));
        let tile = of_consumers(kernel, choice, kernels::turned_shared_bytes, pace);
        Tile { rows: tile.cols, cols: tile.rows, ..tile }
    }));
    let alternating = kernels::alternating::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    tiles.extend(alternating.filter(|_| fits && request.in_turn).map(|(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let rows = 2 * of("SUMS");
        let shared_bytes = kernels::alternating_shared_bytes(rows, of("STAGES"));
        let (choice, pace) = (Choice::Alternating { shape }, Pace::Alternating(ALTERNATING[shape]));
        Tile::new(choice, [rows, kernels::ALTERNATING_COLS], shared_bytes, kernel.bounds.min_blocks, pace)
    }));
    tiles.extend(cluster_tiles(request, target));
    tiles.extend(narrow_tiles(few, target));
    tiles.extend(thin_tile(few, target));
    tiles.extend(short_tile(few));
    tiles.extend(small_tiles(request));
    tiles
}

/// That of an instance whose consumers have [`kernels::PIPELINED_ROWS`] rows each, with the bytes of so many consumers, columns and stages.
fn of_consumers<A>(
    kernel: &Kernel<A>,
    choice: Choice,
    shared_bytes: impl Fn(u32, u32, u32) -> u32,
    pace: Pace,
) -> Tile {
    let of = |name| kernel.constant(name) as u32;
    let (consumers, cols) = (of("CONSUMERS"), 2 * of("SUMS"));
    let extents = [consumers * kernels::PIPELINED_ROWS, cols];
    Tile::new(choice, extents, shared_bytes(consumers, cols, of("STAGES")), kernel.bounds.min_blocks, pace)
}

/// That of a kernel whose clusters share out k.
pub(super) fn of_clusters(
    choice: Choice,
    [rows, cols]: [u32; 2],
    stages: u32,
    resident: u32,
    pace: Pace,
) -> Tile {
    let shared_bytes = kernels::clustered_shared_bytes(rows, cols, stages);
    Tile::new(choice, [rows, cols], shared_bytes, resident, pace)
}

/// Those of `clustered` and `loose`.
fn cluster_tiles(request: &Request, target: Target) -> impl Iterator<Item = Tile> {
    // A sum of no terms is left to the others.
    let fits = target.warpgroups && request.k > 0;
    let clustered = kernels::clustered::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    let clustered = clustered.filter(move |_| fits && request.is_mappable()).map(move |(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let (rows, cols) = (of("CONSUMERS") * kernels::PIPELINED_ROWS, 2 * of("SUMS"));
        let choice = Choice::Clustered { shape };
        let pace = Pace::Clusters(CLUSTERED[shape]);
        of_clusters(choice, [rows, cols], of("STAGES"), kernel.bounds.min_blocks, pace)
    });
    let copied = request.sides.iter().any(|side| side.copied);
    let loose = kernels::loose::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    let loose = loose.filter(move |_| fits && request.neighbours && copied).map(move |(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let (rows, cols) = (kernels::PIPELINED_ROWS, 2 * of("SUMS"));
        let (choice, pace) = (Choice::Loose { shape }, Pace::Clusters(LOOSE[shape]));
        of_clusters(choice, [rows, cols], of("STAGES"), kernel.bounds.min_blocks, pace)
    });
    clustered.chain(loose)
}

/// Those of `tf32_cores`: of three products where they are worth it, of one where that is asked for.
fn tf32_tiles(request: &Request, target: Target) -> impl Iterator<Item = Tile> {
    let Request { tf32, sides, k, .. } = *request;
    let shapes = kernels::tf32_cores::ALL.iter().step_by(LAYOUTS).enumerate();
    let shapes = shapes.filter(move |(_, kernel)| match kernel.constant("PRODUCTS") {
        1 => tf32,
        _ => target.fast_tf32,
    });
    // A sum of no terms is left to the others.
    shapes.filter(move |_| k > 0).map(move |(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let (rows, cols) = (of("WARPS_M") * of("MI") * 16, of("WARPS_N") * of("NI") * 8);
        let along_k = sides.map(|side| side.along_k);
        let shared_bytes = kernels::tf32_shared_bytes(rows, cols, of("STAGES"), along_k);
        let (choice, pace) = (Choice::Tf32Cores { shape }, Pace::Waves(TF32_RATES[shape]));
        Tile::new(choice, [rows, cols], shared_bytes, kernel.bounds.min_blocks, pace)
    })
}

/// Those of `tf32_pipelined`, where operands may be rounded.
fn tf32_piped_tiles(request: &Request, target: Target) -> impl Iterator<Item = Tile> {
    // What does not lie along k is transposed.
    let mappable = (0..2).all(|i| request.mappable[i] || !request.sides[i].along_k);
    // A sum of no terms is left to the others.
    let serves = request.tf32 && mappable && request.k > 0 && target.warpgroups;
    let shapes = kernels::tf32_pipelined::ALL.iter().enumerate().filter(move |_| serves);
    shapes.map(|(shape, kernel)| {
        let pace = Pace::Staying(TF32_PIPED[shape]);
        of_consumers(kernel, Choice::Tf32Pipelined { shape }, kernels::tf32_pipelined_shared_bytes, pace)
    })
}

/// Those of `parted`.
fn parted_tiles(request: &Request, target: Target) -> impl Iterator<Item = Tile> {
    // A sum of no terms is left to the others.
    let serves = target.warpgroups && request.k > 0;
    let shapes = kernels::parted::ALL.iter().step_by(LAYOUTS).enumerate().filter(move |_| serves);
    shapes.map(|(shape, kernel)| {
        let pace = Pace::Parted(PARTED[shape]);
        of_consumers(kernel, Choice::Parted { shape }, kernels::parted_shared_bytes, pace)
    })
}
