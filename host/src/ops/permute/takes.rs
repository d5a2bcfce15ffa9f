//! What a box takes of each dimension: pure arithmetic.

use super::simplify::Dim;

/// Bytes of a sector, the least that memory is asked for.
pub const SECTOR: usize = 32;

/// What the boxes are of: dimensions of y, outermost first.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    pub dims: &'a [Dim],
    /// Bytes of an element of x.
    pub x_size: usize,
    /// And of y.
    pub y_size: usize,
    /// The addresses modulo 32.
    pub x_phase: usize,
    pub y_phase: usize,
}

impl Walk<'_> {
    /// Bytes of x from one element of a dimension to the next.
    pub fn x_step(&self, dim: usize) -> usize {
        self.dims[dim].x as usize * self.x_size
    }

    /// And of y.
    pub fn y_step(&self, dim: usize) -> usize {
        self.dims[dim].y as usize * self.y_size
    }

    /// Bytes of the words that are turned: of one element of x, or of as many as four bytes have.
    pub fn word(&self) -> usize {
        self.x_size.max(4)
    }
}

/// The dimensions of a walk in the order in which x has them, as long as each follows the one before without a gap.
pub fn chain_of_x(dims: &[Dim]) -> Vec<usize> {
    let mut chain = Vec::new();
    let mut next = 1;
    while let Some(dim) = (0..dims.len()).find(|i| dims[*i].x == next && !chain.contains(i)) {
        chain.push(dim);
        match next.checked_mul(dims[dim].extent as isize) {
            Some(step) => next = step,
            None => break,
        }
    }
    chain
}

/// What a box takes of each dimension if runs of x and of y are to have about so many bytes.
pub fn takes(walk: &Walk, chain: &[usize], x_bytes: usize, y_bytes: usize) -> Vec<usize> {
    let dims = walk.dims;
    let mut take = vec![1; dims.len()];
    let mut run = 1;
    for &dim in chain {
        let wanted = x_bytes.div_ceil(run * walk.x_size);
        if wanted <= 1 {
            break;
        }
        let whole = of_sectors(run * walk.x_size);
        take[dim] = part(dims[dim].extent, wanted, whole);
        if take[dim] < dims[dim].extent {
            break;
        }
        run *= take[dim];
    }
    let mut run = 1;
    for dim in (0..dims.len()).rev() {
        let extent = dims[dim].extent;
        if take[dim] == 1 {
            let wanted = y_bytes.div_ceil(run * walk.y_size);
            if wanted <= 1 {
                break;
            }
            let whole = of_sectors(run * walk.y_size);
            take[dim] = part(extent, wanted, whole);
        }
        if take[dim] < extent {
            // Also what runs of x are cut by: then a tile is to be whole in y as well.
            let whole = of_sectors(run * walk.y_size);
            if whole <= take[dim] {
                take[dim] = take[dim].next_multiple_of(whole).min(extent);
            }
            break;
        }
        run *= extent;
    }
    take
}

/// About `wanted` of `extent`, in tiles of one size; all of it where little would be left. The size is a multiple of
/// `whole` where that is not much more.
fn part(extent: usize, wanted: usize, whole: usize) -> usize {
    if extent <= wanted + wanted / 2 {
        return extent;
    }
    let tiles = extent.div_ceil(wanted);
    let tile = extent.div_ceil(tiles);
    let rounded = tile.next_multiple_of(whole);
    let left = extent % rounded;
    if whole <= tile && (left == 0 || 2 * left >= rounded) { rounded.min(extent) } else { tile }
}

/// The fewest pieces of so many bytes that are whole sectors.
pub fn of_sectors(bytes: usize) -> usize {
    SECTOR / gcd(SECTOR, bytes)
}

/// The greatest common divisor; that of 0 and another number is the other.
pub fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::simplify::simplify;
    use super::*;

    #[test]
    fn runs_that_follow_one_another_are_a_chain() {
        // Channels behind pixels, of an image that has them before.
        let image = simplify(&[64, 3025, 128], &[387_200, 1, 3025], 4);
        assert_eq!(chain_of_x(&image.dims), [1, 2, 0]);
        let padded = simplify(&[5, 6, 7], &[100, 1, 10], 4);
        assert_eq!(chain_of_x(&padded.dims), [1]);
        let repeated = simplify(&[5, 6], &[2, 2], 4);
        assert!(chain_of_x(&repeated.dims).is_empty());
    }

    #[test]
    fn tiles_are_of_one_size() {
        assert_eq!(part(8192, 64, 8), 64);
        assert_eq!(part(90, 64, 8), 90); // not 64 and 26
        assert_eq!(part(100, 64, 8), 56); // 50 would be no multiple
        assert_eq!(part(61, 2, 32), 2); // a multiple would be far more
    }
}
