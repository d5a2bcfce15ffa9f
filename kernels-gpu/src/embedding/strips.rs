//! Rows that packs do not fit: where their tables end, and the strip of one row of y that a warp has in one of the kernels.

use super::lookup::{Lookup, added};
use super::tokens::{Token, record};
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 4;

/// A launch of strips.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Strips {
    /// Its units are strips, or for [`lookup_windows()`](fn@super::lookup_windows) elements. The columns of the tables lie side by side.
    pub lookup: Lookup,
    /// Elements of wte, counted to the end of its last row.
    pub wte_len: i64,
    /// And of wpe.
    pub wpe_len: i64,
    /// Where the first step's row is in wpe.
    pub wpe_first: i64,
    /// Columns.
    pub cols: u32,
    /// Fills the struct, which has no padding.
    pub unused: u32,
}
cuda_std::plain_parameter!(Strips);
const _: () = assert!(size_of::<Strips>() == size_of::<Lookup>() + 4 * 8);

/// A warp's strip.
#[derive(Clone, Copy)]
pub(super) struct Strip {
    /// Which of its row's strips it is.
    pub within: u32,
    /// Where its row begins in y, in wte (nowhere, for a token that has none) and in wpe.
    pub y_at: u64,
    pub row_at: i64,
    pub step_at: i64,
    number: u32,
    pub token: Token,
}

impl Strips {
    /// The warp's strip, if there is one for it.
    ///
    /// # Safety
    /// As [`lookup_packs()`](fn@super::lookup_packs).
    #[inline(always)]
    pub(super) unsafe fn strip<const WPE: usize>(
        &self,
        tokens: Global<u32>,
        starts: Global<u32>,
    ) -> Option<Strip> {
        let strip = thread::block_idx_x() * WARPS + warp::warp_id();
        if strip >= self.lookup.units {
            return None;
        }
        let (row, within) = self.lookup.per_row.div_rem(strip);
        let number = self.lookup.first + row;
        // Rows of y follow one another.
        let y_at = number as u64 * self.cols as u64;
        // SAFETY: the caller's contract.
        unsafe {
            let token = self.lookup.tokens.read(tokens, number);
            let row_at = if token.valid { token.value * self.lookup.wte_row } else { 0 };
            let mut step_at = 0;
            if const { WPE != added::NOTHING } {
                let near = self.lookup.first_sequence::<WPE>(starts, strip);
                let step = self.lookup.step::<WPE>(starts, near, &token, number);
                step_at = self.wpe_first + step * self.lookup.wpe_row;
            }
            Some(Strip { within, y_at, row_at, step_at, number, token })
        }
    }
}

impl Strip {
    /// Records a token that has no row, once for all of its strips.
    ///
    /// # Safety
    /// As [`lookup_packs()`](fn@super::lookup_packs). All lanes may call.
    #[inline(always)]
    pub unsafe fn record(&self, fault: GlobalMut<u64>) {
        if self.within == 0 && warp::lane_id() == 0 && !self.token.valid {
            // SAFETY: the caller's contract.
            unsafe { record(fault, self.number, self.token.value) };
        }
    }
}
