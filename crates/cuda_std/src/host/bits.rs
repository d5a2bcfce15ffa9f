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
pub fn opaque(word: u32) -> u32 {
    word
}
