//! How a lane of [`small()`](fn@super::small) reads its packs of an operand: as the operand lies.

use super::Matrix;
use super::few_rows::OfPacks;
use cuda_std::bits;
use cuda_std::prelude::*;

/// Terms are neighbours in memory, or lines are; and how much of them begins at multiples of as many bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Whole packs of terms.
    Packs,
    /// Two terms of 16 bits.
    Words,
    /// Terms of 16 bits that begin anywhere.
    Run,
    /// A lane's neighbouring lines of a term.
    Lines,
    /// Any strides.
    Elements,
}

impl Kind {
    /// That of an operand with so many lines and terms, of which lanes have `run` neighbouring lines.
    #[inline(always)]
    pub fn of<T: OfPacks>(of: Global<T>, matrix: Matrix, lines: u32, k: u32, run: u32) -> Kind {
        let Matrix { row, col, outer, inner } = matrix;
        let starts = |step: i64, count: u32| {
            let bytes = count as u64 * size_of::<T>() as u64;
            ((step | outer | inner) as u64).is_multiple_of(count as u64) && of.address().is_multiple_of(bytes)
        };
        let (per_pack, half) = (T::PER_PACK as u32, const { T::PER_PACK == 8 });
        if col == 1 && k.is_multiple_of(per_pack) && starts(row, per_pack) {
            Kind::Packs
        } else if half && col == 1 && k.is_multiple_of(2) && starts(row, 2) {
            Kind::Words
        } else if half && col == 1 {
            Kind::Run
        } else if row == 1 && lines.is_multiple_of(run) && starts(col, run) {
            Kind::Lines
        } else {
            Kind::Elements
        }
    }
}

/// An operand of one product of the batch.
#[derive(Clone, Copy)]
pub(super) struct Operand<T> {
    pub of: Global<T>,
    pub matrix: Matrix,
    pub lines: u32,
    pub k: u32,
    pub kind: Kind,
}

impl<T: OfPacks> Operand<T> {
    /// The packs of `RUN` neighbouring lines from `line` on, from `term` on; zeros where there are none.
    ///
    /// # Safety
    /// The operand is there, and is of its kind.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn packs<const RUN: usize>(self, line: u32, term: u32) -> [Pack; RUN] {
        let Operand { of, matrix, lines, k, kind } = self;
        let mut packs = [[0; 4]; RUN];
        // Pinned, so that where lines begin is not kept in registers for each kind.
        let line = bits::pinned(line);
        // SAFETY: the caller's contract; lines and terms are below their numbers by the predicates.
        unsafe {
            match kind {
                Kind::Packs => {
                    for i in 0..RUN {
                        let line = line + i as u32;
                        let at = line as i64 * matrix.row + term as i64;
                        packs[i] = of.get_pack_if(line < lines && term < k, at as usize, 0);
                    }
                }
                Kind::Words => {
                    for i in 0..RUN {
                        let line = line + i as u32;
                        let end = if line < lines { k } else { 0 };
                        let at = line as i64 * matrix.row + term as i64;
                        for word in 0..4 {
                            let next = 2 * word as u32;
                            packs[i][word] = of.get_4_if(term + next < end, at as usize + next as usize, 0);
                        }
                    }
                }
                Kind::Run => {
                    for i in 0..RUN {
                        let line = line + i as u32;
                        packs[i] = self.around(line, term, if line < lines { k } else { 0 });
                    }
                }
                Kind::Lines => self.turned(&mut packs, line, term),
                Kind::Elements => {
                    for i in 0..RUN {
                        let line = line + i as u32;
                        let end = if line < lines { k } else { 0 };
                        let mut at = line as i64 * matrix.row + term as i64 * matrix.col;
                        for next in 0..T::PER_PACK {
                            let element = of.get_bits_if(term + (next as u32) < end, at as usize, 0);
                            let (word, shift) = (next / (T::PER_PACK / 4), next % (T::PER_PACK / 4) * 16);
                            packs[i][word] |= element << shift;
                            at += matrix.col;
                        }
                    }
                }
            }
        }
        packs
    }

    /// A pack of terms of 16 bits before `end`, from those of the words around them.
    ///
    /// # Safety
    /// As [`Self::packs`].
    #[inline(always)]
    #[track_caller]
    unsafe fn around(self, line: u32, term: u32, end: u32) -> Pack {
        // Pinned for the same reason.
        let left = end.saturating_sub(bits::pinned(term));
        let count = if left < T::PER_PACK as u32 { left } else { T::PER_PACK as u32 };
        // Where there is none, the first is read in vain.
        let (at, read) =
            if count > 0 { (line as i64 * self.matrix.row + term as i64, count) } else { (0, 1) };
        let odd = (self.of.address() / 2 + at as u64) as u32 & 1;
        // SAFETY: the caller's contract.
        let words = unsafe { self.of.get_words_around::<5>((at - odd as i64) as usize, odd, odd + read) };
        let mut pack = [0; 4];
        for word in 0..4 {
            let of_pack = bits::funnel_right(words[word], words[word + 1], odd * 16);
            // What lies behind the terms is anything.
            let kept = match count.saturating_sub(2 * word as u32) {
                0 => 0,
                1 => 0xffff,
                _ => u32::MAX,
            };
            pack[word] = of_pack & kept;
        }
        pack
    }

    /// Those of which a load gives neighbouring lines.
    ///
    /// # Safety
    /// As [`Self::packs`].
    #[inline(always)]
    #[track_caller]
    unsafe fn turned<const RUN: usize>(self, packs: &mut [Pack; RUN], line: u32, term: u32) {
        let Operand { of, matrix, lines, k, .. } = self;
        let end = if line < lines { k } else { 0 };
        let mut at = term as i64 * matrix.col + line as i64;
        for word in 0..4 {
            // Two terms of 16 bits, or one.
            let mut terms = [[0; 2]; 2];
            for i in 0..T::PER_PACK / 4 {
                let exists = term + ((word * T::PER_PACK / 4 + i) as u32) < end;
                // SAFETY: the caller's contract.
                terms[i] = unsafe {
                    if const { RUN * size_of::<T>() == 8 } {
                        of.get_8_if(exists, at as usize, 0)
                    } else {
                        [of.get_4_if(exists, at as usize, 0), 0]
                    }
                };
                at += matrix.col;
            }
            for i in 0..RUN {
                packs[i][word] = if const { T::PER_PACK == 8 } {
                    // The left or the right halves.
                    bits::prmt(terms[0][i / 2], terms[1][i / 2], if i % 2 == 0 { 0x5410 } else { 0x7632 })
                } else {
                    terms[0][i]
                };
            }
        }
    }
}
