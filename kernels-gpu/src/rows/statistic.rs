//! What parts of rows contribute, and how the parts are combined.

use cuda_std::prelude::*;

/// The contribution of a part of a row. Parts are combined in an order that the shape of the launch fixes.
pub(crate) trait Statistic: Copy {
    /// How many numbers it is, the first of [`Statistic::words`].
    const NUMBERS: usize;

    /// That of no elements.
    const EMPTY: Self;

    /// Combines those of each `WIDTH` lanes, which all get the result. All lanes of a warp must call.
    fn over_lanes<const WIDTH: usize>(self) -> Self;

    /// Combines two.
    fn with(self, other: Self) -> Self;

    /// As numbers.
    fn words(self) -> [f32; 3];

    /// From numbers.
    fn from_words(words: [f32; 3]) -> Self;

    /// Combines those of the `LANES` threads of a block, whole warps, as often as `turn` is 0 and 1 by turns: a part of the
    /// scratch is written again only after the barrier of the other.
    ///
    /// # Safety
    /// All threads of the block call, with the same `turn`.
    #[inline(always)]
    unsafe fn over_block<const LANES: usize>(self, turn: u32) -> Self {
        let lane = warp::lane_id();
        let words = self.over_lanes::<32>().words();
        // SAFETY: each warp writes its own elements before the barrier.
        unsafe {
            let scratch = shared_array!(rows_partials: [f32; 192]);
            let at = |warp: u32| 96 * turn + 3 * warp;
            if lane == 0 {
                for word in 0..3 {
                    scratch.set(at(warp::warp_id()) + word, words[word as usize]);
                }
            }
            thread::sync_threads();
            // Every lane has a warp's or none, and each group of lanes has them all.
            let (warps, lanes) = const { (LANES as u32 / 32, (LANES as u32 / 32).next_power_of_two()) };
            let warp = lane % lanes;
            let mut mine =
                Self::from_words([0, 1, 2].map(|word| scratch.get(at(warp.min(warps - 1)) + word)));
            if warp >= warps {
                mine = Self::EMPTY;
            }
            match lanes {
                2 => mine.over_lanes::<2>(),
                4 => mine.over_lanes::<4>(),
                8 => mine.over_lanes::<8>(),
                16 => mine.over_lanes::<16>(),
                _ => mine.over_lanes::<32>(),
            }
        }
    }
}

/// a/b for b ≥ 1, nearly correctly rounded.
#[inline(always)]
pub(crate) fn divide(a: f32, b: f32) -> f32 {
    let inverse = float::rcp(b);
    let quotient = a * inverse;
    float::fma(float::fma(-quotient, b, a), inverse, quotient)
}

/// Number, mean, and the sum of the squares of the differences from it. No difference of large numbers is taken
/// where the mean is large, as Σx² − (Σx)²/n would.
#[derive(Clone, Copy)]
pub(crate) struct Moments {
    pub count: f32,
    pub mean: f32,
    pub squares: f32,
}

impl Moments {
    /// What a part adds to the squares when they are taken from another mean.
    #[inline(always)]
    fn squares_about(self, mean: f32) -> f32 {
        let off = self.mean - mean;
        float::fma(self.count * off, off, self.squares)
    }
}

impl Statistic for Moments {
    const NUMBERS: usize = 3;
    const EMPTY: Self = Moments { count: 0.0, mean: 0.0, squares: 0.0 };

    #[inline(always)]
    fn over_lanes<const WIDTH: usize>(self) -> Self {
        let count = warp::sum::<f32, WIDTH>(self.count);
        let sum = warp::sum::<f32, WIDTH>(self.count * self.mean);
        let mean = divide(sum, count.max(1.0));
        Moments { count, mean, squares: warp::sum::<f32, WIDTH>(self.squares_about(mean)) }
    }

    #[inline(always)]
    fn with(self, other: Self) -> Self {
        let count = self.count + other.count;
        let mean = self.mean + (other.mean - self.mean) * divide(other.count, count.max(1.0));
        Moments { count, mean, squares: self.squares_about(mean) + other.squares_about(mean) }
    }

    #[inline(always)]
    fn words(self) -> [f32; 3] {
        [self.count, self.mean, self.squares]
    }

    #[inline(always)]
    fn from_words([count, mean, squares]: [f32; 3]) -> Self {
        Moments { count, mean, squares }
    }
}

/// One or two sums; the other is 0.
#[derive(Clone, Copy)]
pub(crate) struct Sums<const K: usize>(pub [f32; K]);

impl<const K: usize> Statistic for Sums<K> {
    const NUMBERS: usize = K;
    const EMPTY: Self = Sums([0.0; K]);

    #[inline(always)]
    fn over_lanes<const WIDTH: usize>(self) -> Self {
        let mut sums = self.0;
        for k in 0..K {
            sums[k] = warp::sum::<f32, WIDTH>(sums[k]);
        }
        Sums(sums)
    }

    #[inline(always)]
    fn with(self, other: Self) -> Self {
        let mut sums = self.0;
        for k in 0..K {
            sums[k] += other.0[k];
        }
        Sums(sums)
    }

    #[inline(always)]
    fn words(self) -> [f32; 3] {
        let mut words = [0.0; 3];
        for k in 0..K {
            words[k] = self.0[k];
        }
        words
    }

    #[inline(always)]
    fn from_words(words: [f32; 3]) -> Self {
        let mut sums = [0.0; K];
        for k in 0..K {
            sums[k] = words[k];
        }
        Sums(sums)
    }
}
