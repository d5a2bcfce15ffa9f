//! How the product of a step is shared out to blocks, where its weights are streamed.

use std::fmt;

use super::plan::Target;
use super::problem::Problem;
use super::streamed::FOUR;
use crate::dtype::DType;
use cuda_std::f16;
use cuda_std::kernel::Kernel;
use kernels_gpu::recurrent::{
    COLUMNS, STREAM_COLUMNS, STREAM_ROWS, STREAM_TURNS, TERMS, WALK_CHUNKS, WALK_ROWS, stream_product,
    stream_product_f32, stream_shared_bytes, stream_stage_bytes, stream_walk_back, walk_shared_bytes,
};

/// The blocks of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// The kernel, by its place among those of the type.
    pub index: usize,
    /// Rows of the weights of a block.
    pub rows: usize,
    /// Chunks of [`TERMS`] terms of a block.
    pub turns: usize,
    /// Blocks along the weights' rows, the terms and the batch.
    pub blocks: [usize; 3],
    pub shared_bytes: u32,
}

/// Units of a gate in parts, with zeros behind them.
pub fn padded(units: usize) -> usize {
    units.next_multiple_of(TERMS as usize)
}

/// Parts of a number.
pub fn parts(dtype: DType) -> usize {
    if dtype == DType::F32 { 2 } else { 1 }
}

impl Tiling {
    /// Of the product of a step, of `rows` rows of weights with so many chunks of terms: the one in which a multiprocessor moves the fewest bytes.
    pub fn of_steps(
        problem: &Problem,
        (rows, chunks): (usize, usize),
        target: Target,
    ) -> Result<Tiling, &'static str> {
        let (dtype, batch) = (problem.dtype, problem.batch.max(1));
        fn of<A>(kernel: &Kernel<A>) -> [u32; 2] {
            ["CONSUMERS", "STAGES"].map(|name| kernel.constant(name) as u32)
        }
        // Instances of both 16-bit types are alike.
        let forms: Vec<[u32; 2]> = match dtype {
            DType::F32 => stream_product_f32::kernels::<f32>().iter().map(of).collect(),
            _ => stream_product::kernels::<f16>().iter().map(of).collect(),
        };
        let parts = parts(dtype) as u32;
        let mut best: Option<(u64, Tiling)> = None;
        for (index, [consumers, stages]) in forms.into_iter().enumerate() {
            let shared_bytes = stream_shared_bytes(parts, consumers, stages);
            if shared_bytes > target.shared_bytes {
                continue;
            }
            let tile = (consumers * STREAM_ROWS) as usize;
            for turns in 1..=chunks.min(STREAM_TURNS as usize) {
                let blocks =
                    [rows.div_ceil(tile), chunks.div_ceil(turns), batch.div_ceil(STREAM_COLUMNS as usize)];
                let waves = blocks.iter().product::<usize>().div_ceil(target.multiprocessors) as u64;
                let stage = u64::from(stream_stage_bytes(parts, consumers));
                // Sums are written, and read again.
                let sums = u64::from(STREAM_COLUMNS) * tile as u64 * 8;
                let bytes = waves * (turns as u64 * stage + sums);
                if best.is_none_or(|(least, _)| bytes < least) {
                    best = Some((bytes, Tiling { index, rows: tile, turns, blocks, shared_bytes }));
                }
            }
        }
        best.map(|(_, tiling)| tiling).ok_or("a block has too little shared memory")
    }

    /// Of a gradient's product whose weights stay where they are for all steps, of `rows` rows of weights with so many chunks of terms: all blocks run at
    /// once, one a multiprocessor.
    pub fn of_walk(
        problem: &Problem,
        (rows, chunks): (usize, usize),
        target: Target,
    ) -> Result<Tiling, &'static str> {
        let Problem { kind, dtype, batch, hidden, .. } = *problem;
        if dtype == DType::F32 {
            return Err("f32 is multiplied in parts, which are streamed for each step");
        }
        if batch > STREAM_COLUMNS as usize {
            return Err("a block has fewer rows than the batch");
        }
        if !hidden.is_multiple_of(FOUR) {
            return Err("units come in no whole fours");
        }
        // Instances of both types are alike.
        let kernels = stream_walk_back::kernels::<f16>();
        let index = kernels.iter().position(|kernel| kernel.constant("GATES") == kind.gates());
        let index = index.expect("both kinds have kernels");
        let [held, stages] = ["HELD", "STAGES"].map(|name| kernels[index].constant(name) as u32);
        let shared_bytes = walk_shared_bytes(held, stages);
        let (blocks, all) = (rows.div_ceil(WALK_ROWS as usize), chunks.div_ceil(WALK_CHUNKS as usize));
        let splits = (target.multiprocessors / blocks).min(all);
        if splits == 0 {
            return Err("the GPU has too few multiprocessors for the recurrent weights");
        }
        if shared_bytes > target.shared_bytes {
            return Err("a block has too little shared memory");
        }
        // Fewer splits are fewer shares to wait for: as few as leave a block's weights in shared memory, and its gates as few rows as may be.
        let least = all.div_ceil(splits);
        let own = |turns: usize| batch.div_ceil(COLUMNS as usize).div_ceil(all.div_ceil(turns));
        let fits = |turns: &usize| own(*turns) == own(least);
        let of_split = (least..=held as usize).rev().find(fits).unwrap_or(least);
        Ok(Tiling {
            index,
            rows: WALK_ROWS as usize,
            turns: of_split * WALK_CHUNKS as usize,
            blocks: [blocks, all.div_ceil(of_split), 1],
            shared_bytes,
        })
    }

    /// Shares of the terms.
    pub fn splits(&self) -> usize {
        self.blocks[1]
    }
}

impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tiling { rows, turns, blocks: [down, across, batch], .. } = self;
        let terms = turns * TERMS as usize;
        write!(
            f,
            "{down}x{across}x{batch} blocks of {rows} rows, {terms} terms and {STREAM_COLUMNS} rows of the batch"
        )
    }
}
