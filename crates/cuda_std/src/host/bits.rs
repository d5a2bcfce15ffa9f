#[inline(always)]
pub fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = ((b as u64) << 32 | a as u64).to_le_bytes();
    let pick = |nibble: u32| {
        let byte = bytes[(nibble & 7) as usize];
        if nibble & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte }
    };
    u32::from_le_bytes([0, 4, 8, 12].map(|shift| pick(selector >> shift & 15)))
}
#[inline(always)]
pub fn shift_right(word: u32, by: u32) -> u32 {
    word.checked_shr(by).unwrap_or(0)
}

#[inline(always)]
pub fn pinned(word: u32) -> u32 {
    word
}
#[inline(always)]
pub fn opaque(word: u32) -> u32 {
    word
}

#[inline(always)]
pub fn no_unroll() {}

#[inline(always)]
pub fn opaque_64(word: u64) -> u64 {
    word
}

#[inline(always)]
pub fn shift_left(word: u32, by: u32) -> u32 {
    word.checked_shl(by).unwrap_or(0)
}
#[inline(always)]
pub fn funnel_right(low: u32, high: u32, by: u32) -> u32 {
    ((u64::from(high) << 32 | u64::from(low)) >> (by & 31)) as u32
}
