//! The tiles of kernels of few rows, and of warps by themselves.

use std::ops::RangeInclusive;

use kernels_gpu::matmul as kernels;

use super::choice::Choice;
use super::pace::{
    Alone, MOST_SHORT_STEPS, NARROW, NARROW_F32, NARROW_F32_INTAKE, Pace, SHORT, SHORT_TURNS_OF_TWO, SMALL,
    SMALL_AS_IT_LIES, SMALL_BY_ELEMENTS, SMALL_BY_LINES, SMALL_BY_RUNS, SMALL_STEPS, Stream, Sweep, THIN,
    THIN_F32,
};
use super::request::{Request, Side, Target};
use super::tiles::{Tile, of_clusters};
use crate::dtype::DType;
use cuda_std::kernel::Kernel;

/// Steps of `thin` of which more loads than three are in flight. With fewer some would be in vain, and with more, of over 8192 terms, three are faster.
const STEPS: RangeInclusive<usize> = 4..=32;

/// Steps of so many bytes of a row, if rows are along k and of whole packs, as `thin`, `thin_f32` and `short` read them.
fn steps_of_packs(request: &Request, bytes: u32) -> Option<usize> {
    let Request { k, dtype, sides, .. } = *request;
    let serves = sides.iter().all(|side| side.along_k) && k.is_multiple_of(16 / dtype.size());
    serves.then(|| (k * dtype.size()).div_ceil(bytes as usize))
}

/// That of `thin`, for few rows.
pub(super) fn thin_tile(request: &Request, target: Target) -> Option<Tile> {
    let steps = steps_of_packs(request, kernels::THIN_STEP_BYTES)?;
    let fragments = request.m.div_ceil(kernels::THIN_ROWS as usize).max(1);
    // Wide blocks where they fill nine tenths of their waves.
    let (blocks, sms) = (request.n.div_ceil(2 * kernels::THIN_COLS as usize), target.sms as usize);
    let wide = fragments == 2 && STEPS.contains(&steps) && blocks * 10 >= blocks.div_ceil(sms) * sms * 9;
    let depth = match (fragments, steps) {
        _ if !STEPS.contains(&steps) => 3,
        _ if wide => 8,
        (2, _) => 4,
        // All at once.
        (_, 7 | 8) => 8,
        _ => 6,
    };
    let groups = 1 + usize::from(wide);
    let mut instances = kernels::thin::kernels::<half::bf16>().iter().enumerate();
    let of = |kernel: &Kernel<_>| ["FRAGMENTS", "GROUPS", "DEPTH"].map(|name| kernel.constant(name));
    let (index, kernel) = instances.find(|(_, kernel)| of(kernel) == [fragments, groups, depth])?;
    let (resident, pace) = (kernel.bounds.min_blocks, Pace::Reading(THIN[fragments - 1]));
    Some(of_packs(Choice::Thin { index }, [fragments, groups], resident, pace))
}

/// That of `thin_f32`, for fewer.
pub(super) fn thin_f32_tile(request: &Request, target: Target) -> Option<Tile> {
    if request.m > kernels::THIN_ROWS as usize || !target.fast_tf32 {
        return None;
    }
    // Of blocks that are alone more loads are in flight than two of a multiprocessor have room for.
    let are_alone = request.n.div_ceil(kernels::THIN_COLS as usize) * request.batch <= target.sms as usize;
    let depth = match steps_of_packs(request, kernels::THIN_STEP_BYTES)? {
        5.. if are_alone => 8,
        steps if steps.is_multiple_of(4) => 4,
        _ => 3,
    };
    let mut instances = kernels::thin_f32::ALL.iter().enumerate();
    let (index, kernel) = instances.find(|(_, kernel)| kernel.constant("DEPTH") == depth)?;
    let pace = Pace::Reading(THIN_F32);
    Some(of_packs(Choice::ThinF32 { index }, [1, 1], kernel.bounds.min_blocks, pace))
}

/// That of `short`, for few rows and few terms.
pub(super) fn short_tile(request: &Request) -> Option<Tile> {
    let steps = steps_of_packs(request, kernels::SHORT_STEP_BYTES)?;
    if steps > MOST_SHORT_STEPS {
        return None;
    }
    let fragments = request.m.div_ceil(kernels::THIN_ROWS as usize).max(1);
    let at_once = [1, 2, 4].into_iter().find(|&at_once| steps <= at_once).unwrap_or(4);
    // All types have the same ones.
    let mut instances = kernels::short::kernels::<half::bf16>().iter().enumerate();
    let of = |kernel: &Kernel<_>| ["FRAGMENTS", "STEPS"].map(|name| kernel.constant(name));
    let (index, kernel) = instances.find(|(_, kernel)| of(kernel) == [fragments, at_once])?;
    let groups = kernels::SHORT_WARPS as usize * kernel.constant("GROUPS");
    let wide = usize::from(request.dtype == DType::F32);
    let turn = if fragments == 2 { SHORT_TURNS_OF_TWO[wide] } else { SHORT.turn };
    let pace = Pace::Sweeping(Sweep { turn, ..SHORT });
    Some(of_packs(Choice::Short { index }, [fragments, groups], kernel.bounds.min_blocks, pace))
}

/// Those of `small` and `small_f32`, for few terms and nothing but simple: in packs along k of operands that lie so or are copied, and of others as they lie.
pub(super) fn small_tiles(request: &Request) -> Vec<Tile> {
    let steps = (request.k * request.dtype.size()).div_ceil(kernels::SMALL_STEP_BYTES as usize);
    if !request.simple || !SMALL_STEPS.contains(&steps) {
        return Vec::new();
    }
    let in_packs = steps_of_packs(request, kernels::SMALL_STEP_BYTES).is_some();
    let lies_in_packs = in_packs && request.sides.iter().all(|side| !side.copied);
    let tile = |choice, [height, packed]: [usize; 2], resident| {
        let kind = if request.dtype == DType::F32 { 2 } else { height - 1 };
        let pace = match packed {
            1 if in_packs => SMALL[kind],
            0 if !lies_in_packs => as_it_lies(request, kind),
            _ => return None,
        };
        let extents = [height as u32 * kernels::SMALL_ROWS, kernels::SMALL_COLS];
        Some(of_registers(choice, extents, resident, Pace::Alone(pace)))
    };
    if request.dtype == DType::F32 {
        let of_floats = |(index, kernel): (usize, &Kernel<_>)| {
            tile(Choice::SmallF32 { index }, [1, kernel.constant("PACKED")], kernel.bounds.min_blocks)
        };
        return kernels::small_f32::ALL.iter().enumerate().filter_map(of_floats).collect();
    }
    let of_halves = |(index, kernel): (usize, &Kernel<_>)| {
        let constants = ["HEIGHT", "PACKED"].map(|name| kernel.constant(name));
        tile(Choice::Small { index }, constants, kernel.bounds.min_blocks)
    };
    kernels::small::kernels::<half::bf16>().iter().enumerate().filter_map(of_halves).collect()
}

/// What number `kind` of [`SMALL_AS_IT_LIES`] takes, by how the kernel reads each operand.
fn as_it_lies(request: &Request, kind: usize) -> Alone {
    let Request { m, n, k, dtype, sides, begins, .. } = *request;
    let half = dtype.size() == 2;
    // Neighbouring lines of a term that a lane reads together.
    let runs = [(m, 2), (n, 8 / dtype.size())];
    let longer = |i: usize| {
        let (lines, run) = runs[i];
        let by_lines = lines.is_multiple_of(run) && begins[i] >= run * dtype.size();
        match sides[i] {
            Side { along_k: true, copied: false } => 0.0,
            Side { along_k: true, .. } if half && begins[i] >= 4 && k.is_multiple_of(2) => 0.0,
            Side { along_k: true, .. } if half => SMALL_BY_RUNS[kind],
            Side { along_k: false, .. } if by_lines => SMALL_BY_LINES[kind],
            _ => SMALL_BY_ELEMENTS[kind],
        }
    };
    let pace = SMALL_AS_IT_LIES[kind];
    Alone { step: pace.step + longer(0) + longer(1), ..pace }
}

/// That of an instance of `thin`, `thin_f32` or `short`, of so many fragments of a and groups of columns.
fn of_packs(choice: Choice, [fragments, groups]: [usize; 2], resident: u32, pace: Pace) -> Tile {
    let extents = [kernels::THIN_ROWS * fragments as u32, kernels::THIN_COLS * groups as u32];
    of_registers(choice, extents, resident, pace)
}

/// That of a kernel whose sums stay in registers.
fn of_registers(choice: Choice, extents: [u32; 2], resident: u32, pace: Pace) -> Tile {
    Tile::new(choice, extents, 0, resident, pace)
}

/// Those of `narrow` and `narrow_f32`, for few rows.
pub(super) fn narrow_tiles(request: &Request, target: Target) -> Vec<Tile> {
    if request.dtype == DType::F32 {
        let choice = |index| Choice::NarrowF32 { index };
        let pace = |kernel: &Kernel<_>| match ["PRODUCTS", "SUMS"].map(|name| kernel.constant(name)) {
            [1, _] => request.tf32.then_some(NARROW_F32),
            [_, 4] => Some(NARROW_F32),
            [_, 8] => Some(Stream { intake: NARROW_F32_INTAKE[0], ..NARROW_F32 }),
            _ => Some(Stream { intake: NARROW_F32_INTAKE[1], ..NARROW_F32 }),
        };
        return narrow_tiles_of(kernels::narrow_f32::ALL, choice, pace, request, target);
    }
    let choice = |index| Choice::Narrow { index };
    narrow_tiles_of(kernels::narrow::kernels::<half::bf16>(), choice, |_| Some(NARROW), request, target)
}

/// Those of the kernels that serve, of which `pace` tells what they take, and that have as few rows as there are.
fn narrow_tiles_of<A>(
    all: &[Kernel<A>],
    choice: impl Fn(usize) -> Choice,
    pace: impl Fn(&Kernel<A>) -> Option<Stream>,
    request: &Request,
    target: Target,
) -> Vec<Tile> {
    // A sum of no terms is left to the others.
    if !(target.warpgroups && request.k > 0 && request.is_mappable()) {
        return Vec::new();
    }
    let rows = |kernel: &Kernel<A>| 2 * kernel.constant("SUMS") as u32;
    let least = all.iter().map(rows).filter(|&rows| rows as usize >= request.m).min();
    let along_k = |kernel: &Kernel<A>| kernel.constant("B_K") == usize::from(request.sides[1].along_k);
    let fewest = all.iter().enumerate().filter(|(_, kernel)| Some(rows(kernel)) == least && along_k(kernel));
    let tile = |(index, kernel): (usize, &Kernel<A>)| {
        let (rows, cols, stages) = (rows(kernel), kernels::NARROW_COLS, kernel.constant("STAGES") as u32);
        let pace = pace(kernel)?;
        let stage = pace.stage.max(pace.ring / f64::from(stages));
        let pace = Pace::Streaming(Stream { stage, ..pace });
        Some(of_clusters(choice(index), [rows, cols], stages, kernel.bounds.min_blocks, pace))
    };
    fewest.filter_map(tile).collect()
}
