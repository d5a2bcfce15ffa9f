//! Division by a number that is known before the launch, as a multiplication and a shift.

/// A divisor of 31-bit dividends: `n / d = (n · magic) >> shift`, exact for n < 2^31 and 1 ≤ d < 2^31.
///
/// With s = ⌈log2 d⌉ and magic = ⌈2^(31+s) / d⌉ the error of `magic` is below 1, so n·magic/2^(31+s)
/// exceeds n/d by less than n/2^(31+s) ≤ 1/d (Granlund and Montgomery, PLDI 1994).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    value: u32,
    magic: u32,
    shift: u32,
}

impl Divisor {
    /// Divides by 1.
    pub const ONE: Divisor = Divisor { value: 1, magic: 1 << 31, shift: 31 };

    /// Precomputes; `None` unless 1 ≤ `value` < 2^31.
    pub const fn new(value: u32) -> Option<Divisor> {
        if value == 0 || value >= 1 << 31 {
            return None;
        }
        let shift = 31 + (32 - (value - 1).leading_zeros());
        let magic = ((1u64 << shift) as u128).div_ceil(value as u128);
        Some(Divisor { value, magic: magic as u32, shift })
    }

    /// The divisor.
    #[inline(always)]
    pub const fn value(self) -> u32 {
        self.value
    }

    /// The same, of which nothing is computed ahead of the place of this call and kept: see [`bits::pinned`](crate::bits::pinned).
    #[inline(always)]
    pub fn pinned(self) -> Divisor {
        Divisor { shift: crate::bits::pinned(self.shift), ..self }
    }

    /// Quotient and remainder of `n` < 2^31.
    #[inline(always)]
    pub const fn div_rem(self, n: u32) -> (u32, u32) {
        let quotient = ((n as u64 * self.magic as u64) >> self.shift) as u32;
        (quotient, n.wrapping_sub(quotient.wrapping_mul(self.value)))
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    #[test]
    fn agrees_with_hardware_division_at_the_edges() {
        let interesting = |d: u32| {
            let top = (1u32 << 31) - 1;
            [0, 1, d - 1, d, d + 1, 2 * (d / 2), top / d * d, (top / d * d).saturating_sub(1), top - 1, top]
        };
        let powers = (0..31).flat_map(|k| [1u32 << k, (1u32 << k) + 1, (1u32 << k).max(2) - 1]);
        for d in (1..2000).chain(powers).filter(|&d| d < 1 << 31) {
            let divisor = Divisor::new(d).expect("in range");
            for n in interesting(d).into_iter().filter(|&n| n < 1 << 31) {
                assert_eq!(divisor.div_rem(n), (n / d, n % d), "{n} / {d}");
            }
        }
        assert_eq!(Divisor::new(1), Some(Divisor::ONE));
    }

    #[test]
    fn refuses_divisors_without_a_quotient() {
        assert_eq!(Divisor::new(0), None);
        assert_eq!(Divisor::new(1 << 31), None);
    }
}
