//! Bit operations that are one instruction on the GPU.

/// PTX `prmt.b32`: builds a word from four bytes of `b:a`, each chosen by a nibble of `selector`;
/// bit 3 of a nibble replicates the chosen byte's sign bit over the byte.
#[inline(always)]
pub fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    crate::imp::bits::prmt(a, b, selector)
}

/// `(on & mask) | (off & !mask)`, one `lop3`.
#[inline(always)]
pub fn select(mask: u32, on: u32, off: u32) -> u32 {
    (on & mask) | (off & !mask)
}

/// Sets the sign bit of every byte that is not zero, and clears all other bits.
#[inline(always)]
pub fn nonzero_bytes(word: u32) -> u32 {
    // The low seven bits carry into bit 7 unless all are zero; bit 7 itself counts too.
    (((word & 0x7f7f_7f7f).wrapping_add(0x7f7f_7f7f)) | word) & 0x8080_8080
}

/// The sign bits of a word's bytes as its lowest four bits, the lowest byte's first; all other bits of `word` must be 0, as
/// [`nonzero_bytes`] leaves them.
#[inline(always)]
pub fn of_bytes(word: u32) -> u32 {
    // No two of the product's terms meet in a bit.
    word.wrapping_mul(0x0020_4081) >> 28
}

/// The way back of [`of_bytes`]: the lowest four bits of a word as the sign bits of its bytes.
#[inline(always)]
pub fn to_bytes(bits: u32) -> u32 {
    (bits & 0xf).wrapping_mul(0x1020_4080) & 0x8080_8080
}

/// `word << by`, 0 for 32 and more: PTX's shift, where Rust's would be masked or checked.
#[inline(always)]
pub fn shift_left(word: u32, by: u32) -> u32 {
    crate::imp::bits::shift_left(word, by)
}

/// The low word of `high:low >> by`, for `by` below 32: `shf.r`.
#[inline(always)]
pub fn funnel_right(low: u32, high: u32, by: u32) -> u32 {
    crate::imp::bits::funnel_right(low, high, by)
}

/// The same number, which the optimiser does not know: keeps a loop that runs this often from being
/// unrolled. No instruction.
#[inline(always)]
pub fn opaque(word: u32) -> u32 {
    crate::imp::bits::opaque(word)
}

/// [`opaque`] that stays where it is: what is computed from it is not moved in front of a loop, and what it is computed from
/// not down to where it is used. No instruction.
#[inline(always)]
pub fn pinned(word: u32) -> u32 {
    crate::imp::bits::pinned(word)
}

/// At the head of a loop's body: keeps the assembler, too, from unrolling it, whatever it knows of the number of turns. No
/// instruction.
#[inline(always)]
pub fn no_unroll() {
    crate::imp::bits::no_unroll();
}

/// [`opaque`] for 64 bits: what is computed from it in a loop is not taken apart and partly moved in front.
#[inline(always)]
pub fn opaque_64(word: u64) -> u64 {
    crate::imp::bits::opaque_64(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_bits_of_bytes_become_four_bits_and_come_back() {
        for kept in 0..16u32 {
            let bytes = (0..4).map(|byte| (kept >> byte & 1) << (8 * byte + 7)).sum();
            assert_eq!((of_bytes(bytes), to_bytes(kept)), (kept, bytes));
            assert_eq!(to_bytes(kept | 0xabcd_ef50), bytes, "other bits do not matter");
            assert_eq!(nonzero_bytes(bytes), bytes);
        }
    }
}
