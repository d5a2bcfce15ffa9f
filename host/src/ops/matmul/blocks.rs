//! Blocks, tiles and packs as launches count them.

use cuda_std::divide::{Divisor, ShortDivisor};
use kernels_gpu::matmul::{BAND, Blocks};

use super::layout::Layout;
use super::plan::Plan;
use crate::error::{Error, Result};

/// The blocks of a plan's launch.
pub(super) fn blocks(op: &'static str, layout: &Layout, plan: &Plan) -> Result<Blocks> {
    let [down, across] = plan.tiles;
    let last = down % BAND as usize;
    // A cluster counts its blocks by itself.
    let splits = if plan.is_clustered() { 1 } else { plan.splits };
    Ok(Blocks {
        tiles: short_divisor(op, down * across)?,
        band: short_divisor(op, across * BAND as usize)?,
        last: short_divisor(op, last.max(1))?,
        splits: short_divisor(op, splits)?,
        inner: short_divisor(op, layout.batch[1])?,
        rows: down as u32,
        total: tiles_of_launch(op, plan, layout.products())?,
        blocks: plan.blocks(layout.products()) as u32,
    })
}

/// Tiles that a launch counts for so many products: those of all parts, but of clusters, whose blocks count them.
pub(super) fn tiles_of_launch(op: &'static str, plan: &Plan, products: usize) -> Result<u32> {
    let counted = if plan.is_clustered() { plan.splits as u64 } else { 1 };
    let total = plan.total(products) / counted;
    u32::try_from(total).ok().filter(|&total| total < 1 << 31).ok_or_else(|| too_large(op, total as usize))
}

pub(super) fn divisor(op: &'static str, value: usize) -> Result<Divisor> {
    u32::try_from(value.max(1)).ok().and_then(Divisor::new).ok_or_else(|| too_large(op, value))
}

/// The most packs, and tiles, that a launch can have.
pub(super) const MOST_PACKS: usize = (1 << 31) - 1;

/// Packs that a launch has a thread for each of.
pub(super) fn packs_of_launch(op: &'static str, packs: usize) -> Result<u32> {
    u32::try_from(packs).ok().filter(|_| packs <= MOST_PACKS).ok_or_else(|| too_large(op, packs))
}

pub(super) fn too_large(op: &'static str, got: usize) -> Error {
    Error::TooLarge { op, what: "tiles of a launch", limit: MOST_PACKS as u64, got: got.to_string() }
}

/// A divisor of 31 bits.
pub(super) fn short_divisor(op: &'static str, value: usize) -> Result<ShortDivisor> {
    u32::try_from(value.max(1)).ok().and_then(ShortDivisor::new).ok_or_else(|| too_large(op, value))
}
