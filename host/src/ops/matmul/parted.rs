//! Operands in f32 as parts of f16, for the kernel that multiplies these.

use cuda_std::kernel::Kernel;
use cuda_std::tma::TensorMap;
use cuda_std::{Float, Global, GlobalMut};
use kernels_gpu::matmul::{self as kernels, Matrix, PARTS, Parting, Scales};

use super::blocks::{divisor, packs_of_launch};
use super::layout::{Copied, lines};
use super::maps;
use super::plan::Plan;
use super::request::Target;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::launch::Grid;
use crate::tensor::Tensor;

/// The largest cluster of the kernel for columns, and the fewest terms of a block that is there since multiprocessors would be idle.
const MOST_BLOCKS: usize = 8;
const LEAST_TERMS: usize = 64;

/// An operand to be taken apart.
#[derive(Clone, Copy)]
pub struct Whole<'a> {
    pub tensor: &'a Tensor,
    pub matrix: Matrix,
    /// Rows along m or n.
    pub rows: usize,
    /// Columns along k.
    pub cols: usize,
    pub batch: [usize; 2],
    /// Whether lines of the parts are along k.
    pub along_k: bool,
}

/// Parts of an operand.
pub struct Parts {
    held: Tensor,
    /// For tiles of a kernel.
    pub map: TensorMap,
    scales: Tensor,
    /// Where the scales are.
    pub places: Scales,
}

impl Parts {
    /// The words of the scales.
    pub fn scales(&self) -> Result<Global<u32>> {
        // SAFETY: numbers of 32 bits.
        Ok(unsafe { Global::from_raw(self.scales.raw_view()?) })
    }
}

impl Whole<'_> {
    /// Takes the operand apart, for tiles of `width` rows and the plan's splits. What repeats in the batch is taken once.
    pub fn take_apart(&self, op: &'static str, width: u32, plan: &Plan) -> Result<Parts> {
        let Whole { tensor, matrix, rows, cols, batch, along_k } = *self;
        let device = tensor.device();
        let copied =
            Copied::new(&matrix, [rows, cols], batch, along_k, kernels::PACK_OF_PARTS).in_lines(DType::F16);
        let Copied { outer, inner, lines: count, length, pitch, source, .. } = copied;
        let held = Tensor::uninit(device, DType::F16, &[outer, PARTS, inner, count, pitch])?;
        let scales = Tensor::uninit(device, DType::I32, &[plan.splits, outer, inner, rows])?;
        let of_batch = |step: i64, of_scales: usize| if step == 0 { 0 } else { of_scales as i64 };
        let places = Scales {
            split: (outer * inner * rows) as i64,
            outer: of_batch(matrix.outer, inner * rows),
            inner: of_batch(matrix.inner, rows),
        };
        let aligned = tensor.address().is_multiple_of(16)
            && lines(&matrix, rows, cols, f32::PER_PACK).is_some_and(|lines| lines.along_k == along_k);
        let packs_of_line = pitch / kernels::PACK_OF_PARTS;
        let packs_of_matrix = count * packs_of_line;
        let packs_of_part = inner * packs_of_matrix;
        // Numbers of packs are of 32 bits.
        packs_of_launch(op, outer * packs_of_part)?;
        let across = if along_k { count } else { length.div_ceil(kernels::COLUMNS_OF_GROUP as usize) };
        let total = outer * inner * plan.splits * across;
        let blocks = if along_k {
            1
        } else {
            blocks_of_cluster(total, plan.k_of_split, Target::of(device).sms as usize)
        };
        let p = Parting {
            source,
            scales: places,
            across: divisor(op, across)?,
            splits: divisor(op, plan.splits)?,
            inner: divisor(op, inner)?,
            total: packs_of_launch(op, total)?,
            k_of_split: plan.k_of_split as u32,
            k: cols as u32,
            share: plan.k_of_split.div_ceil(blocks) as u32,
            length: length as u32,
            packs_of_line: packs_of_line as u32,
            packs_of_part: packs_of_part as u32,
            packs_of_matrix: packs_of_matrix as u32,
            aligned: aligned.into(),
        };
        let parts = Parts {
            map: maps::operand(
                &held,
                &copied.matrix(),
                [rows, cols],
                [outer * PARTS, inner],
                along_k,
                width,
            )?,
            held,
            scales,
            places,
        };
        parts.launch(device, tensor, p, along_k, blocks)?;
        Ok(parts)
    }
}

impl Parts {
    fn launch(
        &self,
        device: &Device,
        tensor: &Tensor,
        p: Parting,
        along_k: bool,
        blocks: usize,
    ) -> Result<()> {
        // SAFETY: numbers of 32 bits, of which the kernels count without a sign.
        let scales = unsafe { GlobalMut::<u32>::from_raw(self.scales.raw_view()?) };
        let args = (tensor.view::<f32>()?, scales, self.held.view_mut::<half::f16>()?, p);
        let (kernel, grid) = if along_k {
            // As few threads for a row as keep all of it.
            let kernels = kernels::part_rows::ALL;
            let [lanes, packs] =
                ["LANES", "AT_A_TIME"].map(|name| move |kernel: &Kernel<_>| kernel.constant(name));
            let keeps = |kernel: &&Kernel<_>| {
                lanes(kernel) * packs(kernel) * kernels::PACK_OF_PARTS >= p.k_of_split as usize
            };
            let kernel = kernels.iter().find(keeps).unwrap_or(&kernels[kernels.len() - 1]);
            let threads = u64::from(p.total) * lanes(kernel) as u64;
            (kernel, Grid::covering(threads, kernel.bounds.threads.into())?)
        } else {
            let grid = Grid::new(u64::from(p.total) * blocks as u64)?;
            (&kernels::part_columns::ALL[0], if blocks > 1 { grid.cluster(blocks as u32) } else { grid })
        };
        // SAFETY: the source has the elements of the operand's layout, the parts whole packs for all lines, the scales words for all
        // rows and splits; the blocks of a cluster have shares of all terms of a split.
        unsafe { device.launch(kernel, grid, args) }
    }
}

/// As many as keep a split of so many terms between them, or do not leave some of so many multiprocessors idle.
fn blocks_of_cluster(groups: usize, terms: usize, multiprocessors: usize) -> usize {
    let mut blocks = 1;
    let keep = |blocks: usize| terms <= blocks * kernels::LINES_AT_A_TIME as usize;
    let are_few = |blocks: usize| groups * blocks < multiprocessors && terms > blocks * LEAST_TERMS;
    while blocks < MOST_BLOCKS && (!keep(blocks) || are_few(blocks)) {
        blocks *= 2;
    }
    blocks
}
