//! Masks of bytes and biases, read eight columns at a time and applied to scores in registers.

use super::group::{Group, KEYS, RUN, keep_signs, run, set_run};
use super::{Params, form};
use crate::masked_softmax::mask_kind;
use core::marker::PhantomData;
use cuda_std::bits;
use cuda_std::prelude::*;

/// A product's mask, of a kernel of this form.
#[derive(Clone, Copy)]
pub(super) struct Mask<T, const FORM: usize> {
    elements: Global<u8>,
    /// The mask's element at the product's first row and column.
    start: i64,
    element: PhantomData<T>,
}

/// A row, as a lane sees it.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub number: u32,
    /// The lane's first column of the first group.
    pub column: u32,
    pub exists: bool,
}

impl<T: Half, const FORM: usize> Mask<T, FORM> {
    #[inline(always)]
    pub fn new(elements: Global<u8>, start: i64) -> Self {
        Mask { elements, start, element: PhantomData }
    }

    /// Where a row begins.
    #[inline(always)]
    fn at(self, p: &Params, row: u32) -> i64 {
        self.start + row as i64 * p.mask.row
    }

    /// The bytes of a row's mask, if it has one.
    ///
    /// # Safety
    /// The mask is as `p` says, and has the row where that exists.
    #[inline(always)]
    pub unsafe fn read<const GROUPS: usize>(self, p: &Params, row: Row) -> [[u32; 2]; GROUPS] {
        let mut bytes = [[0; 2]; GROUPS];
        if const { FORM != form::BIASED } && p.mask_kind == mask_kind::BYTES {
            for i in 0..GROUPS {
                // SAFETY: the caller's contract.
                bytes[i] = unsafe { self.bytes(p, row, i as u32) };
            }
        }
        bytes
    }

    /// Applies the mask, of which the bytes were read, and the scale to the scores of a row.
    ///
    /// # Safety
    /// As [`Self::read`].
    #[inline(always)]
    pub unsafe fn apply<const GROUPS: usize>(
        self,
        p: &Params,
        row: Row,
        bytes: [[u32; 2]; GROUPS],
        half: usize,
        groups: &mut [Group; GROUPS],
    ) {
        if const { FORM == form::BIASED } {
            // SAFETY: the caller's contract; the kind says which type the elements have.
            unsafe {
                if p.mask_kind == mask_kind::BIAS_F32 {
                    let bias: [[Pack; 2]; GROUPS] = self.packs::<f32, 2, GROUPS>(p, row);
                    add(groups, half, p.scale, |i, e| f32::from_bits(bias[i][e / 4][e % 4]));
                } else {
                    let bias: [[Pack; 1]; GROUPS] = self.packs::<T, 1, GROUPS>(p, row);
                    add(groups, half, p.scale, |i, e| T::pair(bias[i][0], e / 2)[e % 2]);
                }
            }
        } else if p.scale != 1.0 {
            for i in 0..GROUPS {
                let scores = run(&groups[i], half).map(|score| score * p.scale);
                set_run(&mut groups[i], half, scores);
            }
        }
        if const { FORM != form::BIASED } && p.mask_kind == mask_kind::BYTES {
            for i in 0..GROUPS {
                let sign = |bytes| bits::nonzero_bytes(bytes) ^ (p.mask_invert & 0x8080_8080);
                let signs = [sign(bytes[i][0]), sign(bytes[i][1])];
                let scores = keep_signs(run(&groups[i], half), signs);
                set_run(&mut groups[i], half, scores);
            }
        }
    }

    /// Whether a mask of bytes keeps a column of a row.
    ///
    /// # Safety
    /// As [`Self::apply`], for a row and a column that exist.
    #[inline(always)]
    pub unsafe fn keeps(self, p: &Params, row: u32, column: u32) -> bool {
        if p.mask_kind != mask_kind::BYTES {
            return true;
        }
        let at = self.at(p, row) + column as i64 * p.mask.col;
        // SAFETY: the caller's contract.
        let byte = unsafe { self.elements.get(at as usize) };
        (byte != 0) != (p.mask_invert != 0)
    }

    /// The bytes of the lane's columns of a group; 0 beyond the last.
    #[inline(always)]
    unsafe fn bytes(self, p: &Params, row: Row, group: u32) -> [u32; 2] {
        let (at, column) = (self.at(p, row.number), row.column + group * KEYS);
        // SAFETY: columns that exist.
        unsafe {
            let when = row.exists && column + RUN as u32 <= p.keys;
            self.elements.get_8_if(when, (at + column as i64) as usize, 0)
        }
    }

    /// The packs of the lane's columns of each group, of a bias whose elements are `U`: all loads before the first use.
    #[inline(always)]
    unsafe fn packs<U: Copy, const PACKS: usize, const GROUPS: usize>(
        self,
        p: &Params,
        row: Row,
    ) -> [[Pack; PACKS]; GROUPS] {
        let at = self.at(p, row.number);
        let mut packs = [[[0; 4]; PACKS]; GROUPS];
        // SAFETY: columns that exist; the elements are the caller's contract.
        unsafe {
            let bias = Global::<U>::from_raw(self.elements.raw());
            for i in 0..GROUPS {
                let column = row.column + i as u32 * KEYS;
                let when = row.exists && column + RUN as u32 <= p.keys;
                for part in 0..PACKS {
                    let at = at + column as i64 + (part * (RUN / PACKS)) as i64;
                    packs[i][part] = bias.get_pack_if(when, at as usize, 0);
                }
            }
        }
        packs
    }
}

/// Scales the scores of a row and adds the bias of element e of group i.
#[inline(always)]
fn add<const GROUPS: usize>(
    groups: &mut [Group; GROUPS],
    half: usize,
    scale: f32,
    bias: impl Fn(usize, usize) -> f32,
) {
    for i in 0..GROUPS {
        let mut scores = run(&groups[i], half);
        for e in 0..RUN {
            scores[e] = float::fma(scores[e], scale, bias(i, e));
        }
        set_run(&mut groups[i], half, scores);
    }
}
