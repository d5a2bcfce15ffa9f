//! Square matrices transposed where they are. See [`transpose_in_place`].

use cuda_std::divide::Divisor;
use cuda_std::kernel::Kernel;
use cuda_std::prelude::{GlobalMut, Pack};
use kernels_gpu::permute::{InPlace, Unit, tile, tile_bytes, transpose_in_place as kernels};

use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::pointwise::contiguous;
use crate::tensor::Tensor;

const OP: &str = "transpose_in_place";
/// Blocks of a launch at most: kernels count in 31 bits.
const MOST_BLOCKS: usize = (1 << 31) - 1;

/// Exchanges the last two dimensions of x [.., N, N], which is contiguous, in its own memory. Every element type; the
/// elements' bits stay.
///
/// ```
/// use warpwright::{Device, Tensor, ops};
///
/// let x = Tensor::from_slice(&Device::cpu(), &[2, 2], &[1i32, 2, 3, 4])?;
/// ops::transpose_in_place(&x)?;
/// assert_eq!(x.to_vec::<i32>()?, [1, 3, 2, 4]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`Shape`](Error::Shape) for what is not square, [`Strides`](Error::Strides) for what is not contiguous,
/// [`TooLarge`](Error::TooLarge) beyond 1.4 million rows.
pub fn transpose_in_place(x: &Tensor) -> Result<()> {
    let n = match x.shape() {
        [.., rows, columns] if rows == columns => *rows,
        got => {
            return Err(Error::Shape {
                op: OP,
                arg: "x",
                required: "[.., N, N]".to_owned(),
                got: got.to_vec(),
            });
        }
    };
    contiguous(OP, "x", x.desc())?;
    if x.is_empty() {
        return Ok(());
    }
    match x.dtype().size() {
        1 => run::<u8>(x, n),
        2 => run::<u16>(x, n),
        4 => run::<u32>(x, n),
        8 => run::<u64>(x, n),
        _ => run::<Pack>(x, n),
    }
}

fn run<T: Unit + kernels::Instances>(x: &Tensor, n: usize) -> Result<()> {
    let packs = n.is_multiple_of(T::PER_PACK) && x.address().is_multiple_of(16);
    let tiles = n.div_ceil(tile(T::BYTES, packs));
    let places = tiles.saturating_mul(tiles);
    let (Some(per_matrix), Some(per_row)) = (divisor(places), divisor(tiles)) else {
        let limit = (MOST_BLOCKS as f64).sqrt() as u64 * tile(T::BYTES, packs) as u64;
        return Err(Error::TooLarge { op: OP, what: "rows of `x`", limit, got: n.to_string() });
    };
    let kernel: &Kernel<(GlobalMut<T>, InPlace)> = &kernels::kernels::<T>()[usize::from(packs)];
    // SAFETY: the elements have this size, and begin at a multiple of it.
    let view = unsafe { GlobalMut::<T>::from_raw(x.raw_view()?) };
    let shared = 2 * tile_bytes(T::BYTES, packs);
    let (matrices, at_once) = (x.len() / (n * n), MOST_BLOCKS / places);
    (0..matrices).step_by(at_once).try_for_each(|first| {
        let count = at_once.min(matrices - first);
        let params =
            InPlace { first: first as u64, n: n as u32, tiles: tiles as u32, places: per_matrix, per_row };
        let grid = Grid::new((count * places) as u64)?.shared(shared as u32);
        // SAFETY: x holds the matrices, contiguous, with a block for each place, and room for two tiles.
        unsafe { x.device().launch(kernel, grid, (view, params)) }
    })
}

fn divisor(value: usize) -> Option<Divisor> {
    Divisor::new(u32::try_from(value).ok()?)
}
