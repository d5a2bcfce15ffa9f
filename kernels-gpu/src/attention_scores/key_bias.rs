//! A bias that all queries of a product share: one for each key, in shared memory.

use super::scores::{Scores, THREADS, of_eights};
use super::{Params, start};
use crate::masked_softmax::mask_kind;
use cuda_std::prelude::*;

/// The bias of a product's keys in f32; 0 beyond the last.
#[derive(Clone, Copy)]
pub(super) struct KeyBias(Shared<f32>);

impl KeyBias {
    /// Bytes of shared memory of a bias for so many keys.
    pub const fn bytes(keys: u32) -> u32 {
        keys * 4
    }

    /// That of a tile of `keys` keys at byte `offset` of dynamic shared memory, where `p` has one.
    ///
    /// # Safety
    /// The launch gives as much then.
    #[inline(always)]
    pub unsafe fn at(p: &Params, offset: u32, keys: u32) -> Self {
        // SAFETY: the caller's contract.
        KeyBias(unsafe { Shared::dynamic(offset, if p.has_bias() { keys } else { 0 }) })
    }

    /// Fetches that of `keys` keys; a barrier of the block follows.
    ///
    /// # Safety
    /// There is one, as `p` says.
    #[inline(always)]
    pub unsafe fn fill<T: Half>(self, p: &Params, mask: Global<u8>, outer: u32, inner: u32, keys: u32) {
        let mut key = thread::thread_idx_x();
        while key < keys {
            let at = (start(p.mask, outer, inner) + key as i64 * p.mask.col) as usize;
            let mut bias = 0.0;
            if key < p.keys {
                // SAFETY: the caller's contract; the kind says which type the elements have.
                bias = unsafe {
                    if p.mask_kind == mask_kind::BIAS_F32 {
                        Global::<f32>::from_raw(mask.raw()).get(at)
                    } else {
                        Global::<T>::from_raw(mask.raw()).get(at).to_f32()
                    }
                };
            }
            // SAFETY: as above.
            unsafe { self.0.set(key, bias) };
            key += THREADS;
        }
    }

    /// Scales scores and adds the bias of their keys.
    ///
    /// # Safety
    /// It was fetched, and a barrier has followed.
    #[inline(always)]
    pub unsafe fn add<const PIECES: usize, const N: usize>(self, p: &Params, scores: &mut Scores<PIECES, N>) {
        let first = warp::lane_id() % 4 * 2;
        of_eights(scores, |eight, pairs| {
            // SAFETY: the caller's contract.
            let bias = unsafe { self.0.get_8(eight + first) }.map(f32::from_bits);
            pairs.map(|[a, b]| [float::fma(a, p.scale, bias[0]), float::fma(b, p.scale, bias[1])])
        });
    }
}
