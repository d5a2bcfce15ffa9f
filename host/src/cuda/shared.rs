//! How blocks share the shared memory of a multiprocessor.

/// Bytes that a multiprocessor keeps for itself, of each block.
pub(crate) const OF_SYSTEM: u32 = 1 << 10;
/// What shared memory is handed out by.
const UNIT: u32 = 128;

/// How many blocks fit that ask for so much each, of `bytes` of a multiprocessor.
pub(crate) fn blocks_that_fit(bytes: u32, per_block: u32) -> u32 {
    bytes / (per_block + OF_SYSTEM)
}

/// The most that each block can ask for, so that so many fit.
pub(crate) fn share(bytes: u32, blocks: u32) -> u32 {
    (bytes / blocks).saturating_sub(OF_SYSTEM) & !(UNIT - 1)
}

/// The least that each block can ask for, so that no more than so many fit.
pub(crate) fn least_share(bytes: u32, blocks: u32) -> u32 {
    share(bytes, blocks + 1) + UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_fit_with_their_share_and_no_more() {
        for bytes in [228 << 10, 164 << 10, 100 << 10, (228 - 12) << 10] {
            for blocks in 2..=16 {
                let share = share(bytes, blocks);
                assert_eq!(share % UNIT, 0);
                assert_eq!(blocks_that_fit(bytes, share), blocks, "{bytes} {blocks}");
                // What is rounded up to a unit has too many of them.
                assert!((share + UNIT + OF_SYSTEM) * blocks > bytes, "{bytes} {blocks}");
            }
        }
        assert_eq!(share(1000, 2), 0);
    }

    #[test]
    fn no_more_fit_than_are_to() {
        for bytes in [228 << 10, 227 << 10, 164 << 10, 100 << 10, (100 << 10) + 2] {
            for blocks in 1..=8 {
                let least = least_share(bytes, blocks);
                assert_eq!(blocks_that_fit(bytes, least), blocks, "{bytes} {blocks}");
                assert!(blocks_that_fit(bytes, least - UNIT) > blocks, "{bytes} {blocks}");
            }
        }
    }
}
