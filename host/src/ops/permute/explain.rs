//! What the planner decides, in words and numbers. See [`explain`].

use std::fmt;

use super::boxes::Way;
use super::launch;
use super::plan::{Choice, Plan, row_bytes};
use super::problem::Problem;
use super::simplify::PACK;
use super::tuned;
use crate::count::Count;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Desc;

/// How a permutation is done.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// What is left of the problem: extents of the result's dimensions, outermost first, and the elements of the input from
    /// one to the next.
    pub extents: Vec<usize>,
    /// See `extents`.
    pub strides: Vec<isize>,
    /// Bytes of the elements that are left, which may be several of the tensor's.
    pub element: usize,
    /// The kernel, in words.
    pub kernel: String,
    /// What a block takes of each dimension; empty where blocks take what comes.
    pub tile: Vec<usize>,
    /// Bytes of the widest reads from the input and writes to the result.
    pub widths: [usize; 2],
    /// Blocks, and threads and bytes of shared memory of each.
    pub blocks: u64,
    /// See `blocks`.
    pub threads: u32,
    /// See `blocks`.
    pub shared: usize,
    /// Blocks that share a multiprocessor at most, where that is fewer than fit.
    pub limit: Option<usize>,
    /// The types of numbers that count in a launch and that find its memory.
    pub index: &'static str,
    /// Bytes read and written, each once.
    pub bytes: u64,
    /// What it took when it was measured, in microseconds, where that is why it was chosen.
    pub measured: Option<f64>,
}

impl Explanation {
    /// Microseconds at a rate in GB/s.
    pub fn micros(&self, gbps: f64) -> f64 {
        self.bytes as f64 / gbps / 1e3
    }
}

/// The plan of [`permute`](super::permute()) for a tensor like `x`, by `dims`, as `dtype`, both tensors at aligned addresses: the
/// planner's, or what was measured on x's GPU where [`autotune`](crate::autotune) is enabled.
///
/// # Errors
/// As [`permute`](super::permute()).
pub fn explain(x: &Desc, dims: &[isize], dtype: DType) -> Result<Explanation> {
    let problem = Problem::new(super::OP, x, dims, dtype)?;
    let bytes = (problem.y.len() * (x.dtype().size() + dtype.size())) as u64;
    if problem.y.is_empty() {
        return Ok(Explanation {
            kernel: "none: there are no elements".to_owned(),
            ..Explanation::of(bytes, 0)
        });
    }
    let request = problem.request(0, 0);
    let known = tuned::known(&request, x.device());
    let measured = known.as_ref().map(|(_, measured)| measured.microseconds);
    let plan = known.map_or_else(|| Plan::new(request), |(plan, _)| plan);
    let simple = &plan.simple;
    let mut explanation = Explanation { measured, ..Explanation::of(bytes, simple.size) };
    explanation.extents = simple.dims.iter().map(|dim| dim.extent).collect();
    explanation.strides = simple.dims.iter().map(|dim| dim.x).collect();
    match &plan.kernel {
        Choice::Gather => {
            let units = explanation.extents.iter().product::<usize>() as u64;
            let kernel = launch::gather_kernel(simple.size, explanation.extents.len(), units);
            explanation.kernel = "gather: each thread fetches what it stores".to_owned();
            explanation.widths = [simple.size; 2];
            explanation.blocks = units.div_ceil(launch::per_block(kernel));
        }
        Choice::Rows => {
            let row = row_bytes(simple).unwrap_or(0);
            let packs = (problem.y.len() * dtype.size()).div_ceil(PACK) as u64;
            explanation.kernel = format!("rows: packs of the words around them, of rows of {row} bytes");
            explanation.widths = [4, PACK];
            explanation.blocks = packs.div_ceil(launch::per_block(launch::rows_kernel(simple.size)));
        }
        Choice::Cast => explanation.kernel = "cast of any strides, element by element".to_owned(),
        Choice::Tiles(tiled) => {
            explanation.kernel = "tiles: through shared memory, transposed in registers".to_owned();
            explanation.tile = tiled.take.clone();
            explanation.widths = [16, 16];
            explanation.blocks = tiled.blocks.iter().product();
            explanation.threads = 128;
            explanation.shared = tiled.shared_bytes;
            explanation.limit = tiled.limit();
        }
        Choice::Boxes(boxed) => {
            explanation.kernel = match boxed.way {
                Way::Turned => "turned: words through shared memory, transposed in registers".to_owned(),
                Way::Packs { levels, .. } => {
                    format!("packs: gathered from shared memory, by {levels} dimensions of it")
                }
            };
            explanation.tile = boxed.take.clone();
            explanation.widths = [16, 16];
            explanation.blocks = boxed.blocks;
            explanation.shared = boxed.shared_bytes;
            explanation.limit = boxed.limit;
        }
    }
    Ok(explanation)
}

impl Explanation {
    fn of(bytes: u64, element: usize) -> Explanation {
        Explanation {
            extents: Vec::new(),
            strides: Vec::new(),
            element,
            kernel: String::new(),
            tile: Vec::new(),
            widths: [element; 2],
            blocks: 0,
            threads: 256,
            shared: 0,
            limit: None,
            index: "u32 within a launch, u64 for its places in memory",
            bytes,
            measured: None,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "simplified  {:?} by input strides {:?}, elements of {}",
            self.extents,
            self.strides,
            Count(self.element, "byte")
        )?;
        writeln!(f, "kernel      {}", self.kernel)?;
        if !self.tile.is_empty() {
            writeln!(f, "tile        {:?}, {} bytes of shared memory", self.tile, self.shared)?;
        }
        writeln!(f, "vectors     {} bytes in, {} bytes out", self.widths[0], self.widths[1])?;
        write!(f, "blocks      {} of {} threads", self.blocks, self.threads)?;
        match self.limit {
            Some(limit) => writeln!(f, ", at most {limit} of a multiprocessor")?,
            None => writeln!(f)?,
        }
        writeln!(f, "index       {}", self.index)?;
        write!(f, "bytes       {}", self.bytes)?;
        match self.measured {
            Some(microseconds) => {
                write!(f, "\nmeasured    {microseconds:.1} us, the least of the likeliest plans")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    fn explained(shape: &[usize], dims: &[isize], dtype: DType) -> Explanation {
        explain(&Desc::new(&Device::cpu(), dtype, shape).unwrap(), dims, dtype).unwrap()
    }

    #[test]
    fn the_plan_is_told() {
        let matrix = explained(&[1, 8192, 8192], &[2, 0, 1], DType::F32);
        assert_eq!((&matrix.extents[..], &matrix.strides[..]), (&[8192, 8192][..], &[1, 8192][..]));
        // Rows that are far powers of two apart.
        assert!(matrix.kernel.starts_with("turned"), "{matrix}");
        assert!(matrix.limit.is_some_and(|limit| limit < 8), "{matrix}");
        assert!(matrix.to_string().contains(" threads, at most "), "{matrix}");
        let bytes = explained(&[8192, 8192], &[1, 0], DType::I8);
        assert!(bytes.kernel.starts_with("tiles") && bytes.limit == Some(12), "{bytes}");
        let many = explained(&[64, 1024, 1024], &[0, 2, 1], DType::F16);
        assert!(many.kernel.starts_with("tiles") && many.limit.is_none(), "{many}");
        // More tiles along the rows than a grid's second dimension has blocks.
        let tall = explained(&[4_300_000, 64], &[1, 0], DType::F16);
        assert!(tall.kernel.starts_with("tiles"), "{tall}");
        let of_two = explained(&[16, 16, 64, 64, 64], &[4, 2, 0, 3, 1], DType::F16);
        assert!(of_two.kernel.starts_with("turned"), "{of_two}");
        assert_eq!((matrix.bytes, matrix.widths), (8 << 26, [16, 16]));
        assert!((matrix.micros(4000.0) - 134.2).abs() < 0.1);
        let rows = explained(&[8, 384, 16, 64], &[0, 2, 1, 3], DType::F16);
        assert!(rows.kernel.starts_with("gather") && rows.element == 16, "{rows}");
        let few = explained(&[24, 25841, 6, 12], &[2, 0, 1, 3], DType::F32);
        assert!(few.kernel.starts_with("packs") && few.element == 16, "{few}");
        let odd = explained(&[8191, 8193], &[1, 0], DType::I8);
        assert!(odd.kernel.starts_with("packs"), "{odd}");
        let both_short = explained(&[400_000, 3, 5], &[0, 2, 1], DType::F32);
        assert!(both_short.kernel.starts_with("packs"), "{both_short}");
        assert!(explained(&[3, 0], &[1, 0], DType::U8).kernel.starts_with("none"));
    }
}
