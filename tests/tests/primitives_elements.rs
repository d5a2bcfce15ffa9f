//! Element types, bit operations, division and random words: all exact.

use cuda_std::divide::Divisor;
use cuda_std::{Float, bf16, f16};
use kernels_gpu::probe::{
    BIT_RESULTS, Division, WORD_RESULTS, bit_operations, divide, narrow, pairs, random_words, widen, words,
};
use warpwright::{Device, Grid, Result};
use warpwright_tests::{Array, EDGES, Plain, Random, assert_same, on_each_device};

/// A float format, in plain arithmetic: not what the library or the `half` crate compute by.
#[derive(Clone, Copy)]
struct Format {
    bits: u32,
    mantissa: i32,
    smallest_exponent: i32,
}

const F32: Format = Format { bits: 32, mantissa: 23, smallest_exponent: -126 };
const F16: Format = Format { bits: 16, mantissa: 10, smallest_exponent: -14 };
const BF16: Format = Format { bits: 16, mantissa: 7, smallest_exponent: -126 };

impl Format {
    fn sign(self) -> u32 {
        1 << (self.bits - 1)
    }

    /// The bits of infinity.
    fn infinity(self) -> u32 {
        self.sign() - (1 << self.mantissa)
    }

    fn decode(self, bits: u32) -> f64 {
        let (magnitude, sign) = (bits & (self.sign() - 1), bits & self.sign() != 0);
        let fraction = f64::from(magnitude & ((1 << self.mantissa) - 1));
        let exponent = (magnitude >> self.mantissa) as i32;
        let unit = f64::from(self.smallest_exponent + (exponent - 1).max(0) - self.mantissa).exp2();
        let value = match magnitude {
            m if m == self.infinity() => f64::INFINITY,
            m if m > self.infinity() => f64::NAN,
            _ if exponent == 0 => fraction * unit,
            _ => (fraction + f64::from(self.mantissa).exp2()) * unit,
        };
        if sign { -value } else { value }
    }

    /// To nearest, ties to even; `None` for NaN, of which there are many.
    fn encode(self, value: f64) -> Option<u32> {
        if value.is_nan() {
            return None;
        }
        let sign = if value.is_sign_negative() { self.sign() } else { 0 };
        let exponent = value.abs().log2().floor().clamp(self.smallest_exponent.into(), 1e4) as i32;
        // `log2` may have rounded up to a power of two that the value does not reach: then the mantissa is
        // one bit too coarse.
        let exponent = if value != 0.0
            && f64::from(exponent).exp2() > value.abs()
            && exponent > self.smallest_exponent
        {
            exponent - 1
        } else {
            exponent
        };
        let units = (value.abs() / f64::from(exponent - self.mantissa).exp2()).round_ties_even();
        // A carry into the next exponent comes out right: the formats are in the order of their values.
        let steps = f64::from(exponent - self.smallest_exponent) * f64::from(self.mantissa).exp2();
        Some(sign | (units + steps).min(self.infinity().into()) as u32)
    }

    /// The elements of words.
    fn elements(self, words: &[u32]) -> Vec<u32> {
        match self.bits {
            32 => words.to_vec(),
            _ => words.iter().flat_map(|word| [word & 0xffff, word >> 16]).collect(),
        }
    }
}

/// Checks bits of results: any NaN will do for `None`.
#[track_caller]
fn assert_bits(format: Format, got: &[u32], want: &[Option<u32>], what: &str) {
    let agreed: Vec<u32> = got
        .iter()
        .zip(want)
        .map(|(&got, want)| want.unwrap_or(if format.decode(got).is_nan() { got } else { !got }))
        .collect();
    assert_same(got, &agreed, what);
}

trait Case: Float + Plain + narrow::Instances + widen::Instances + words::Instances {
    const FORMAT: Format;
}
impl Case for f32 {
    const FORMAT: Format = F32;
}
impl Case for f16 {
    const FORMAT: Format = F16;
}
impl Case for bf16 {
    const FORMAT: Format = BF16;
}

fn grid(count: usize, threads: u32) -> Result<Grid> {
    Grid::covering(count as u64, threads.into())
}

/// Every value of 16 bits, the middles between neighbours, which are ties, and what is just beside them.
fn rounding_cases(format: Format) -> Vec<f32> {
    let mut x = EDGES.to_vec();
    x.extend(Random::new(60).words(20_000).into_iter().map(f32::from_bits));
    if format.bits == 16 {
        for bits in 0..format.infinity() {
            let (low, high) = (format.decode(bits), format.decode(bits + 1));
            // Past the largest number, as if there were one more.
            let high = if high.is_finite() { high } else { 2.0 * low - format.decode(bits - 1) };
            let tie = (0.5 * (low + high)) as f32;
            let sign = if bits % 2 == 0 { 1.0 } else { -1.0 };
            x.extend([low as f32, tie, tie.next_up(), tie.next_down(), -tie].map(|x| sign * x));
        }
    }
    x
}

fn rounds<T: Case>(device: &Device) -> Result<()> {
    let x = rounding_cases(T::FORMAT);
    let (input, output) = (Array::new(device, &x)?, Array::<T>::poisoned(device, x.len())?);
    let kernel = &narrow::kernels::<T>()[0];
    let args = (input.view()?, output.view_mut()?, x.len() as u32);
    // SAFETY: the arrays have the sizes that the kernel states.
    unsafe { device.launch(kernel, grid(x.len(), kernel.bounds.threads)?, args)? };
    let got: Vec<u32> = output.read()?.into_iter().map(T::bits).collect();
    let want: Vec<Option<u32>> = x.iter().map(|&x| T::FORMAT.encode(x.into())).collect();
    assert_bits(T::FORMAT, &got, &want, kernel.name);
    Ok(())
}

fn widens<T: Case>(device: &Device) -> Result<()> {
    let x: Vec<u32> = match T::FORMAT.bits {
        16 => (0..1 << 16).collect(),
        _ => Random::new(61).words(10_000),
    };
    let values: Vec<T> = x.iter().map(|&bits| T::from_bits(bits)).collect();
    let (input, output) = (Array::new(device, &values)?, Array::poisoned(device, x.len())?);
    let kernel = &widen::kernels::<T>()[0];
    let args = (input.view()?, output.view_mut()?, x.len() as u32);
    // SAFETY: the arrays have the sizes that the kernel states.
    unsafe { device.launch(kernel, grid(x.len(), kernel.bounds.threads)?, args)? };
    let want: Vec<f32> = x.iter().map(|&bits| T::FORMAT.decode(bits) as f32).collect();
    assert_same(&output.read()?, &want, kernel.name);
    Ok(())
}

/// Everything that [`Float`] does with words and packs.
fn packs<T: Case>(device: &Device) -> Result<()> {
    let format = T::FORMAT;
    let mut random = Random::new(62);
    let mut special = || {
        // Elements of any bits, zeros, infinities, NaN and the smallest numbers.
        let picks = [0, format.sign(), format.infinity(), format.infinity() + 1, 1, random.bits() as u32];
        let element =
            |i: usize| picks[random.below(6) as usize].wrapping_add(if i == 0 { 0 } else { i as u32 & 1 });
        let elements: Vec<u32> = (0..T::PER_WORD).map(element).collect();
        elements
            .iter()
            .rev()
            .fold(0u64, |word, &e| word << format.bits | u64::from(e) & ((1 << format.bits) - 1))
            as u32
    };
    let count = 500;
    let mut a: Vec<u32> = (0..4 * count).map(|_| special()).collect();
    let mut b: Vec<u32> = (0..4 * count).map(|_| special()).collect();
    a.extend(random.words(4 * count));
    b.extend(random.words(4 * count));
    let count = 2 * count;
    let kernel = &words::kernels::<T>()[0];
    let (xa, xb) = (Array::new(device, &a)?, Array::new(device, &b)?);
    for (low, high) in [(0, 8), (3, 5), (-2, 1), (2, 20), (5, 5), (6, 2), (-(1 << 25), 1 << 25)] {
        let out = Array::poisoned(device, 4 * WORD_RESULTS * count)?;
        let args = (xa.view()?, xb.view()?, out.view_mut()?, low, high, 0, count as u32);
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid(count, kernel.bounds.threads)?, args)? };
        let out = out.read()?;
        for i in 0..count {
            let case = |what: &str| format!("{}: {what} of pack {i}, range {low}..{high}", kernel.name);
            let (a, b) = (&a[4 * i..][..4], &b[4 * i..][..4]);
            let (ea, eb) = (format.elements(a), format.elements(b));
            let got = |result: usize| &out[4 * (WORD_RESULTS * i + result)..][..4];
            let value = |bits: u32| format.decode(bits);
            let larger = |(&a, &b): (&u32, &u32)| match value(a).is_nan() || value(b).is_nan() {
                true => None,
                false => Some(if value(a).total_cmp(&value(b)).is_lt() { b } else { a }),
            };
            let want: Vec<_> = ea.iter().zip(&eb).map(larger).collect();
            assert_bits(format, &format.elements(got(0)), &want, &case("max_words"));
            let want: Vec<_> = ea.iter().map(|&e| format.encode(0.5 * value(e))).collect();
            assert_bits(format, &format.elements(got(1)), &want, &case("map"));
            let fold = |word: &[u32]| word.iter().fold(1f32, |s, &e| 2f32.mul_add(s, value(e) as f32));
            let want: Vec<_> = ea.chunks(T::PER_WORD).map(|word| F32.encode(fold(word).into())).collect();
            assert_bits(F32, got(2), &want, &case("fold"));
            let reversed: Vec<u32> = ea.iter().rev().copied().collect();
            assert_same(&format.elements(got(3)), &reversed, case("pack_from"));
            let full = |on: bool| if on { (1u64 << format.bits) as u32 - 1 } else { 0 };
            let full = |on: bool| if format.bits == 32 { if on { u32::MAX } else { 0 } } else { full(on) };
            let bytes: Vec<u8> = b[..2].iter().flat_map(|word| word.to_le_bytes()).collect();
            let want: Vec<u32> = (0..T::PER_PACK).map(|e| full(bytes[e] & 0x80 != 0)).collect();
            assert_same(&format.elements(got(4)), &want, case("byte_mask"));
            let want: Vec<u32> = (0..T::PER_PACK as i32).map(|e| full((low..high).contains(&e))).collect();
            assert_same(&format.elements(got(5)), &want, case("range_mask"));
            assert_same(got(6), a, case("renew"));
            let last = T::PER_PACK - 1;
            assert_same(got(7), &[ea[0], ea[last], eb[0], eb[last]], case("element"));
            let every = |element: u32| (0..T::PER_WORD).fold(0, |word, e| word | element << (e as u32 * 16));
            let per_word = 32 / format.bits;
            let want =
                [every(format.infinity() | format.sign()), every(format.sign()), per_word, 4 * per_word];
            assert_same(got(8), &want, case("constants"));
        }
    }
    Ok(())
}

on_each_device! {
    fn rounding_is_to_nearest_with_ties_to_even(device: &Device) -> Result<()> {
        rounds::<f32>(device)?;
        rounds::<f16>(device)?;
        rounds::<bf16>(device)
    }

    fn widening_is_exact_for_every_value(device: &Device) -> Result<()> {
        widens::<f32>(device)?;
        widens::<f16>(device)?;
        widens::<bf16>(device)
    }

    fn words_and_packs_of_f32(device: &Device) -> Result<()> {
        packs::<f32>(device)
    }

    fn words_and_packs_of_f16(device: &Device) -> Result<()> {
        packs::<f16>(device)
    }

    fn words_and_packs_of_bf16(device: &Device) -> Result<()> {
        packs::<bf16>(device)
    }

    fn pairs_round_both_halves(device: &Device) -> Result<()> {
        let mut random = Random::new(63);
        let mut low: Vec<f32> = EDGES.iter().flat_map(|&edge| [edge; EDGES.len()]).collect();
        let mut high = EDGES.repeat(EDGES.len());
        low.extend(random.floats(5000, -70_000.0, 70_000.0));
        high.extend(random.floats(5000, -1e-4, 1e-4));
        let count = low.len();
        let (xl, xh) = (Array::new(device, &low)?, Array::new(device, &high)?);
        let out = Array::poisoned(device, 2 * count)?;
        let args = (xl.view()?, xh.view()?, out.view_mut()?, count as u32);
        let kernel = &pairs::ALL[0];
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid(count, kernel.bounds.threads)?, args)? };
        let out = out.read()?;
        for (format, got) in [F16, BF16].into_iter().zip(out.chunks(count)) {
            let want: Vec<Option<u32>> =
                low.iter().zip(&high).flat_map(|(&l, &h)| [l, h].map(|x| format.encode(x.into()))).collect();
            assert_bits(format, &format.elements(got), &want, kernel.name);
        }
        Ok(())
    }

    fn bytes_are_chosen_replicated_and_marked(device: &Device) -> Result<()> {
        let mut random = Random::new(64);
        // Each nibble's sixteen meanings in each place, then selectors of any bits; high bits are ignored.
        let mut selectors: Vec<u32> = (0..4).flat_map(|place| (0..16).map(move |kind| kind << (4 * place))).collect();
        selectors.extend(random.words(2000));
        let count = selectors.len();
        // Bytes whose sign bits vary and many that are zero.
        let mut sparse = || (0..count).map(|_| (random.bits() & random.bits() & random.bits()) as u32).collect::<Vec<u32>>();
        let (a, b) = (sparse(), sparse());
        let (xa, xb, xs) = (Array::new(device, &a)?, Array::new(device, &b)?, Array::new(device, &selectors)?);
        let out = Array::poisoned(device, BIT_RESULTS * count)?;
        let args = (xa.view()?, xb.view()?, xs.view()?, out.view_mut()?, count as u32);
        let kernel = &bit_operations::ALL[0];
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid(count, kernel.bounds.threads)?, args)? };
        let mut want = vec![[0; BIT_RESULTS]; count];
        for (i, want) in want.iter_mut().enumerate() {
            let bytes = [a[i].to_le_bytes(), b[i].to_le_bytes()].concat();
            let pick = |place: u32| {
                let nibble = selectors[i] >> (4 * place) & 15;
                let byte = bytes[(nibble % 8) as usize];
                if nibble < 8 { byte } else if byte >= 128 { 0xff } else { 0 }
            };
            let marked = a[i].to_le_bytes().map(|byte| if byte != 0 { 0x80 } else { 0 });
            let mixed = (0..32).fold(0, |word, bit| {
                let from = if selectors[i] >> bit & 1 == 1 { a[i] } else { b[i] };
                word | (from & 1 << bit)
            });
            let by = b[i] % 64;
            let shifted = if by < 32 { a[i] << by } else { 0 };
            let funnel = (u64::from(b[i]) << 32 | u64::from(a[i])) >> (by % 32);
            let chosen = u32::from_le_bytes([0, 1, 2, 3].map(pick));
            let signs = |word: u32| (0..4).map(|byte| (word >> (8 * byte + 7) & 1) << byte).sum::<u32>();
            let spread = (0..4).map(|bit| (a[i] >> bit & 1) << (8 * bit + 7)).sum::<u32>();
            let marks = u32::from_le_bytes(marked);
            *want = [chosen, mixed, marks, a[i], shifted, funnel as u32, a[i], a[i], b[i], signs(marks), spread];
        }
        let want: Vec<u32> = (0..BIT_RESULTS).flat_map(|what| want.iter().map(move |results| results[what])).collect();
        assert_same(&out.read()?, &want, "[(prmt, select, nonzero_bytes, opaque, shift_left, funnel_right, pinned, opaque_64 twice, of_bytes, to_bytes), case]");
        Ok(())
    }

    fn division_by_multiplication_is_exact(device: &Device) -> Result<()> {
        let mut random = Random::new(65);
        let top = (1u32 << 31) - 1;
        let mut divisors = vec![1, 2, 3, 5, 7, 10, 641, 65_535, 65_536, 65_537, 1 << 30, (1 << 30) + 1, top - 1, top];
        divisors.extend((0..20).map(|i| (random.bits() as u32 & top) >> i | 1));
        for d in divisors {
            let mut dividends: Vec<u32> = (0..300).map(|i| random.bits() as u32 & top >> (i % 31)).collect();
            let multiple = top / d * d;
            dividends.extend([0, 1, d - 1, d, d.saturating_add(1).min(top), multiple, multiple - 1, top - 1, top]);
            let count = dividends.len();
            let (x, out) = (Array::new(device, &dividends)?, Array::poisoned(device, 3 * count)?);
            let division = Division { count: count as u32, divisor: Divisor::new(d).expect("in range") };
            let kernel = &divide::ALL[0];
            let args = (x.view()?, out.view_mut()?, division);
            // SAFETY: the arrays have the sizes that the kernel states.
            unsafe { device.launch(kernel, grid(count, kernel.bounds.threads)?, args)? };
            let quotients = dividends.iter().map(|n| n / d);
            let remainders = dividends.iter().map(|n| n % d);
            let want: Vec<u32> = quotients.chain(remainders).chain(dividends.iter().map(|_| d)).collect();
            assert_same(&out.read()?, &want, format!("[(quotient, remainder, divisor), dividend] by {d}"));
        }
        Ok(())
    }

    /// Random123's known answers, and streams made of them.
    fn random_words_are_philox(device: &Device) -> Result<()> {
        let published = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        let mut random = Random::new(66);
        let mut counters: Vec<u32> = published.iter().flat_map(|(counter, ..)| *counter).collect();
        let mut keys: Vec<u32> = published.iter().flat_map(|(_, key, _)| *key).collect();
        // Streams count their words in 64 bits: the group's upper half has 30.
        counters.extend(random.words(4 * 500).iter().enumerate().map(|(i, word)| if i % 4 == 1 { word >> 2 } else { *word }));
        keys.extend(random.words(2 * 500));
        let count = keys.len() / 2;
        let (xc, xk, out) = (Array::new(device, &counters)?, Array::new(device, &keys)?, Array::poisoned(device, 12 * count)?);
        let kernel = &random_words::ALL[0];
        let args = (xc.view()?, xk.view()?, out.view_mut()?, count as u32);
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid(count, kernel.bounds.threads)?, args)? };
        let out = out.read()?;
        let (words, streams) = out.split_at(4 * count);
        let want: Vec<u32> = published.iter().flat_map(|(.., words)| *words).collect();
        assert_same(&words[..want.len()], &want, "the published words");
        assert_same(&streams[..4 * count], words, "groups of streams");
        let first = 4 * published.len();
        assert_same(&streams[4 * count..][first..], &words[first..], "words of streams, one by one");
        Ok(())
    }
}
