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
crate::plain_parameter!(Divisor);

impl Divisor {
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

    /// Quotient and remainder of `n` < 2^31.
    #[inline(always)]
    pub const fn div_rem(self, n: u32) -> (u32, u32) {
        let quotient = ((n as u64 * self.magic as u64) >> self.shift) as u32;
        (quotient, n.wrapping_sub(quotient.wrapping_mul(self.value)))
    }
}

/// The quotients of 31-bit dividends by a divisor: `n / d = (2·n · magic >> 32) >> shift`, exact for n < 2^31 and 1 ≤ d < 2^31, with the magic
/// of a [`Divisor`]. A shift of 32 bits takes any number as it is; of that of 64 bits kernels that stay for several tiles keep the last bits in a
/// register of which there are few.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotient {
    magic: u32,
    shift: u32,
}
crate::plain_parameter!(Quotient);

impl Quotient {
    /// Of 1.
    pub const ONE: Quotient = Quotient { magic: 1 << 31, shift: 0 };

    /// Precomputes; `None` unless 1 ≤ `divisor` < 2^31.
    pub const fn new(divisor: u32) -> Option<Quotient> {
        match Divisor::new(divisor) {
            Some(Divisor { magic, shift, .. }) => Some(Quotient { magic, shift: shift - 31 }),
            None => None,
        }
    }

    /// That of `n` < 2^31.
    #[inline(always)]
    pub fn of(self, n: u32) -> u32 {
        let high = (((2 * n) as u64 * self.magic as u64) >> 32) as u32;
        crate::imp::bits::shift_right(high, self.shift)
    }
}

/// A divisor of 31-bit dividends by way of its [`Quotient`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortDivisor {
    value: u32,
    quotient: Quotient,
}

impl ShortDivisor {
    /// Divides by 1.
    pub const ONE: ShortDivisor = ShortDivisor { value: 1, quotient: Quotient::ONE };

    /// Precomputes; `None` unless 1 ≤ `value` < 2^31.
    pub const fn new(value: u32) -> Option<ShortDivisor> {
        match Quotient::new(value) {
            Some(quotient) => Some(ShortDivisor { value, quotient }),
            None => None,
        }
    }

    /// The divisor.
    #[inline(always)]
    pub const fn value(self) -> u32 {
        self.value
    }

    /// Quotient and remainder of `n` < 2^31.
    #[inline(always)]
    pub fn div_rem(self, n: u32) -> (u32, u32) {
        let quotient = self.quotient.of(n);
        (quotient, n.wrapping_sub(quotient.wrapping_mul(self.value)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Divisor, ShortDivisor};

    #[test]
    fn agrees_with_hardware_division_at_the_edges() {
        let interesting = |d: u32| {
            let top = (1u32 << 31) - 1;
            [0, 1, d - 1, d, d + 1, 2 * (d / 2), top / d * d, (top / d * d).saturating_sub(1), top - 1, top]
        };
        let powers = (0..31).flat_map(|k| [1u32 << k, (1u32 << k) + 1, (1u32 << k).max(2) - 1]);
        for d in (1..2000).chain(powers).filter(|&d| d < 1 << 31) {
            let divisor = Divisor::new(d).expect("in range");
            let short = ShortDivisor::new(d).expect("in range");
            for n in interesting(d).into_iter().filter(|&n| n < 1 << 31) {
                assert_eq!(divisor.div_rem(n), (n / d, n % d), "{n} / {d}");
                assert_eq!(short.div_rem(n), (n / d, n % d), "{n} / {d}");
            }
        }
    }

    #[test]
    fn refuses_divisors_without_a_quotient() {
        for value in [0, 1 << 31] {
            assert_eq!((Divisor::new(value), ShortDivisor::new(value)), (None, None));
        }
        assert_eq!(ShortDivisor::new(1), Some(ShortDivisor::ONE));
    }
}
