//! What is written before a product: copies of operands, transposed ones, and parts of f32.

use kernels_gpu::matmul::PARTS;

use super::lines::{LOOKUPS, lines};
use super::{LAUNCH, Launch, MEMORY, product};
use crate::dtype::DType;
use crate::ops::matmul::choice::Choice;
use crate::ops::matmul::pace::Pace;
use crate::ops::matmul::request::{Request, Side};
use crate::ops::matmul::tiles::Tile;

/// To take an operand apart, and for each megabyte that is read and written: of lines that begin at multiples of 16 bytes, and of others.
const PARTING: f64 = 0.4;
/// On an H100; of the first it is memory's time.
const PARTED_MEGABYTE: [f64; 2] = [0.42, 0.70];
/// That GPU's [`Target::memory`](crate::ops::matmul::plan::Target::memory).
pub(in crate::ops::matmul) const H100_MEMORY: f64 = 3352.0;
/// To copy operands of 16-bit products on Hopper, one or both, and for each megabyte that is read and written.
const COPY: f64 = 1.6;
const COPIED: f64 = 0.302;
/// To transpose an operand of f32 there, instead.
const TRANSPOSE: f64 = 2.34;

/// What is written before a product.
pub(super) struct Copies {
    /// How the product reads its operands.
    pub sides: [Side; 2],
    /// Whether a launch right ahead of it writes them.
    pub right_ahead: bool,
    pub microseconds: f64,
}

impl Launch<'_> {
    pub(super) fn copies(&self) -> Copies {
        let Request { m, n, k, batch, dtype, sides, begins, .. } = *self.request;
        let (any, rounded) = (self.tile.choice.reads_any(), self.is_rounded());
        let is_transposed = |side: &Side| rounded && !side.along_k;
        let transposed = sides.iter().filter(|side| is_transposed(side)).count() as f64;
        let sides = sides.map(|side| Side {
            along_k: side.along_k || rounded,
            copied: side.copied && !any || is_transposed(&side),
        });
        // Bytes of a number that are written before the product.
        let written = |side: &Side| match self.tile.pace {
            Pace::Parted(_) => 2 * PARTS,
            _ if side.copied => dtype.size(),
            _ => 0,
        };
        let [aligned, ragged] = PARTED_MEGABYTE;
        let (copy, copied) = match self.tile.pace {
            Pace::Waves(_) | Pace::Reading(_) | Pace::Sweeping(_) | Pace::Alone(_) => {
                (LAUNCH, [1e3 / MEMORY; 2])
            }
            Pace::Streaming(_) if dtype == DType::F32 => (LAUNCH, [1e3 / MEMORY; 2]),
            Pace::Parted(_) => (PARTING, [aligned * H100_MEMORY / self.target.memory, ragged]),
            Pace::Staying(_) | Pace::Alternating(_) | Pace::Clusters(_) | Pace::Streaming(_) => {
                (COPY, [COPIED; 2])
            }
        };
        let (count, copying) = (0..2)
            .map(|i| (i, [m, n][i], written(&sides[i])))
            .filter(|&(_, _, written)| written > 0)
            .map(|(i, rows, written)| {
                let megabytes = product([batch, rows, k, dtype.size() + written]) / 1e6;
                copied[usize::from(begins[i] < 16)] * megabytes
            })
            .fold((0.0f64, 0.0), |(count, all), of_side| (count + 1.0, all + of_side));
        // Both are copied by one launch, and taken apart or transposed by one each.
        let launches =
            if matches!(self.tile.pace, Pace::Parted(_)) { count } else { (count - transposed).min(1.0) };
        let microseconds = copy * launches + TRANSPOSE * transposed + copying;
        Copies { sides, right_ahead: launches > 0.0, microseconds }
    }
}

impl Tile {
    /// The request as it is, and with operands copied first that could be read as they lie, but for which L2 would look up more lines than for a copy
    /// for longer than copying takes.
    pub(in crate::ops::matmul) fn with_copies(&self, request: &Request) -> impl Iterator<Item = Request> {
        let Request { m, n, k, batch, dtype, .. } = *request;
        let with = move |copies: [bool; 2]| {
            let mut request = *request;
            request.sides.iter_mut().zip(copies).for_each(|(side, copy)| side.copied |= copy);
            request
        };
        let tiles = self.tiles(request);
        let pays = [(m, [true, false]), (n, [false, true])].map(|(rows, copies)| {
            let spared = (lines(request, tiles) - lines(&with(copies), tiles)) / LOOKUPS;
            let megabytes = product([batch, rows, k, 2 * dtype.size()]) / 1e6;
            let through_lines = matches!(
                self.choice,
                Choice::Pipelined { .. } | Choice::Turned { .. } | Choice::Alternating { .. }
            );
            through_lines && spared > COPY + COPIED * megabytes
        });
        let all = [[false, false], [true, false], [false, true], [true, true]];
        all.into_iter().filter(move |copies| (0..2).all(|i| !copies[i] || pays[i])).map(with)
    }
}
