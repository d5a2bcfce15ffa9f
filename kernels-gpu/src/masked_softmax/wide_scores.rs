//! Scores held in f32, with scale and bias applied.

use super::held::{Held, Normaliser, column, gather};
use super::locate::{Row, whole_columns};
use super::{Exponent, Operands, Params, mask_kind};
use cuda_std::prelude::*;

/// Scores with scale and bias applied, in f32; the first `T::PER_PACK` count.
#[derive(Clone, Copy)]
pub(crate) struct Wide([f32; 8]);

impl<T: Float> Held<T> for Wide {
    /// The bias as it is in memory: four words of x's type, or eight of f32.
    type Mask = [Pack; 2];
    const EMPTY: Self = Wide([0.0; 8]);
    const BIASED: bool = true;
    const SHIFTS: bool = false;
    const RECOMPUTES: bool = false;

    #[inline(always)]
    unsafe fn read_mask<const LANES: usize, const PACKS: usize>(
        operands: &Operands<T>,
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self::Mask; PACKS] {
        // SAFETY: a pack that is read whole is inside the bias, and so are kept elements.
        unsafe {
            let like_x = Global::<T>::from_raw(operands.mask.raw());
            let wide = Global::<f32>::from_raw(operands.mask.raw());
            let is_wide = const { T::PER_PACK == 8 } && p.mask_kind == mask_kind::BIAS_F32;
            // Packs that may be read whole: of a bias that is not aligned with x, none.
            let aligned = row.mask & (T::PER_PACK as i64 - 1) == 0;
            let whole = if aligned { whole_columns::<T>(p.mask_len, row.mask) } else { 0 };
            let readable = Row { high: row.high.min(whole), ..*row };
            let mut masks = [[[0; 4]; 2]; PACKS];
            for i in 0..PACKS {
                let column = column::<T, LANES>(first, i);
                let at = (row.mask + column as i64) as usize;
                let when = readable.keeps_some::<T>(column);
                // Predicated loads of both kinds rather than a branch for each pack.
                masks[i][0] = like_x.get_pack_if(when & !is_wide, at, 0);
                if const { T::PER_PACK == 8 } {
                    let low = wide.get_pack_if(when & is_wide, at, 0);
                    for w in 0..4 {
                        masks[i][0][w] |= low[w];
                    }
                    masks[i][1] = wide.get_pack_if(when & is_wide, at.wrapping_add(4), 0);
                }
            }
            if row.high > whole {
                for i in 0..PACKS {
                    let column = column::<T, LANES>(first, i);
                    let at = row.mask + column as i64;
                    if row.keeps_some::<T>(column) && column >= whole {
                        if is_wide {
                            let read = |e: u32| wide.get((at + e as i64) as usize).to_bits();
                            masks[i][0] = gather::<f32>(row, column, read);
                            masks[i][1] = gather::<f32>(row, column + 4, |e| read(e + 4));
                        } else {
                            let read = |e: u32| like_x.get((at + e as i64) as usize).bits();
                            masks[i][0] = gather::<T>(row, column, read);
                        }
                    }
                }
            }
            masks
        }
    }

    #[inline(always)]
    fn prepare<const LANES: usize, const PACKS: usize>(
        x: [Pack; PACKS],
        mask: [Self::Mask; PACKS],
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self; PACKS] {
        let is_wide = const { T::PER_PACK == 8 } && p.mask_kind == mask_kind::BIAS_F32;
        let mut held = [<Self as Held<T>>::EMPTY; PACKS];
        for i in 0..PACKS {
            let column = column::<T, LANES>(first, i);
            for e in 0..T::PER_PACK {
                let wide = f32::from_bits(mask[i][e / 4][e % 4]);
                let bias = if is_wide { wide } else { T::element(mask[i][0], e).to_f32() };
                let score = float::fma(T::element(x[i], e).to_f32(), p.scale, bias);
                held[i].0[e] = if row.keeps(column + e as i32) { score } else { f32::NEG_INFINITY };
            }
        }
        held
    }

    #[inline(always)]
    fn max_words(mut self, other: Self) -> Self {
        for i in 0..T::PER_PACK {
            self.0[i] = float::max_nan(self.0[i], other.0[i]);
        }
        self
    }

    #[inline(always)]
    fn max(self) -> f32 {
        let mut most = f32::NEG_INFINITY;
        for i in 0..T::PER_PACK {
            most = float::max_nan(most, self.0[i]);
        }
        most
    }

    #[inline(always)]
    fn exponentiate(&mut self, exponent: Exponent, maximum: f32, start: f32) -> f32 {
        let mut sum = start;
        for i in 0..T::PER_PACK {
            self.0[i] = exponent.exp(self.0[i] - maximum);
            sum += self.0[i];
        }
        sum
    }

    #[inline(always)]
    fn exponentiate_by(&mut self, _: Exponent, _: f32, start: f32) -> f32 {
        start
    }

    #[inline(always)]
    fn normalise_by(self, _: Exponent, _: f32) -> Pack {
        [0; 4]
    }

    #[inline(always)]
    fn normalise(self, _: Exponent, end: &Normaliser) -> Pack {
        T::pack_from(|i| T::from_f32(self.0[i] * end.factor))
    }
}
