//! Counter-based random numbers: Philox4x32-10.
//!
//! The same counter and key give the same four words on every machine, and neighbouring counters give
//! unrelated ones, so each thread computes the numbers of its own elements and a backward pass computes them
//! again instead of reading them.
//!
//! Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// What the key grows by from round to round: the golden ratio, and √3 − 1.
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// Four uniform random words. 20 wide multiplications and 20 three-operand xors on the GPU, where the key is
/// the same for all threads.
#[inline(always)]
pub const fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k, mut l]) = (counter, key);
    let mut round = 0;
    while round < 10 {
        let (p, q) = (MULTIPLIERS[0] as u64 * a as u64, MULTIPLIERS[1] as u64 * c as u64);
        (a, b, c, d) = ((q >> 32) as u32 ^ b ^ k, q as u32, (p >> 32) as u32 ^ d ^ l, p as u32);
        (k, l) = (k.wrapping_add(WEYL[0]), l.wrapping_add(WEYL[1]));
        round += 1;
    }
    [a, b, c, d]
}

/// A stream of random words that elements index: word `index` of the stream that `seed` and `offset` name.
///
/// Words 4·n to 4·n + 3 are Philox4x32-10 of the counter (n, offset) and the key `seed`, 64 bits each, low word
/// first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The key.
    pub seed: u64,
    /// The upper half of the counter: another offset is another stream of the same seed.
    pub offset: u64,
}

impl Stream {
    /// Words 4·`group` to 4·`group` + 3.
    #[inline(always)]
    pub const fn four(self, group: u64) -> [u32; 4] {
        let counter = [group as u32, (group >> 32) as u32, self.offset as u32, (self.offset >> 32) as u32];
        philox4x32_10(counter, [self.seed as u32, (self.seed >> 32) as u32])
    }

    /// Word `index`. Costs as much as [`Stream::four`].
    #[inline(always)]
    pub const fn word(self, index: u64) -> u32 {
        let [a, b, c, d] = self.four(index / 4);
        // Selections: a run-time index would put the words into local memory.
        let (low, high) = if index & 1 == 0 { (a, c) } else { (b, d) };
        if index & 2 == 0 { low } else { high }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that Random123 publishes (`kat_vectors`, philox4x32 of 10 rounds).
    #[test]
    fn known_answers() {
        for (counter, key, want) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox4x32_10(counter, key), want);
        }
    }

    #[test]
    fn words_of_a_stream_are_those_of_its_groups() {
        let stream = Stream { seed: 0x0123_4567_89ab_cdef, offset: 0xfedc_ba98_7654_3210 };
        let key = [0x89ab_cdef, 0x0123_4567];
        assert_eq!(stream.four(7 << 32 | 5), philox4x32_10([5, 7, 0x7654_3210, 0xfedc_ba98], key));
        for index in [0, 1, 2, 3, 4, 5, 6, 7, 1 << 33, (1 << 34) - 1, (1 << 34) - 2] {
            assert_eq!(stream.word(index), stream.four(index / 4)[(index % 4) as usize]);
        }
    }
}
