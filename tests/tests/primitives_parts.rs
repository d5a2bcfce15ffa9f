//! Accesses narrower than a pack, polls of packs, and copies of parts from global to shared memory.

use cuda_std::kernel::Kernel;
use cuda_std::{Global, GlobalMut, bf16, f16};
use kernels_gpu::probe::{
    async_parts, load_bits, poll_packs, shared_eights, store_parts, store_ranges, words_around,
};
use warpwright::{Device, Grid, Result};
use warpwright_tests::{Array, POISON, Plain, Random, assert_same, bytes, on_each_device};

fn random<T: Plain>(count: usize, of: impl Fn(u64) -> T) -> Vec<T> {
    let mut random = Random::new(80);
    (0..count).map(|_| of(random.bits())).collect()
}

/// What an array of so many bytes holds of which `from` was written where `written` holds of a byte's place.
fn written(count: usize, from: impl Fn(usize) -> u8, written: impl Fn(usize) -> bool) -> Vec<u8> {
    (0..count).map(|at| if written(at) { from(at) } else { POISON }).collect()
}

fn bits<T: Plain + load_bits::Instances>(device: &Device, of: impl Fn(u64) -> T) -> Result<()> {
    let kernel = &load_bits::kernels::<T>()[0];
    for (count, loaded) in [(1, 1), (1000, 1000), (1000, 777), (100, 0)] {
        let values = random(loaded, &of);
        // Nothing lies behind the elements that are read: the checker reports a read or a prefetch that should not be.
        let (x, out) = (Array::new(device, &values)?, Array::poisoned(device, count)?);
        let args = (x.view()?, out.view_mut()?, count as u32, loaded as u32, 0xfeed_beef);
        let grid = Grid::covering(count as u64, kernel.bounds.threads.into())?;
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid, args)? };
        let element = |number: &T| {
            let mut word = bytes(&[*number]);
            word.resize(4, 0);
            u32::from_le_bytes([word[0], word[1], word[2], word[3]])
        };
        let mut want: Vec<u32> = values.iter().map(element).collect();
        want.resize(count, 0xfeed_beef);
        assert_same(&out.read()?, &want, format!("{}, {loaded} of {count}", kernel.name));
    }
    Ok(())
}

fn stores<T: Plain + store_parts::Instances>(device: &Device, of: impl Fn(u64) -> T) -> Result<()> {
    let kernel = &store_parts::kernels::<T>()[0];
    let per_pack = 16 / size_of::<T>();
    for count in [1, 2, 131] {
        let values = random(count * per_pack, &of);
        let (x, y) = (Array::new(device, &values)?, Array::<T>::poisoned(device, 8 * count * per_pack)?);
        let grid = Grid::covering(count as u64, kernel.bounds.threads.into())?;
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid, (x.view()?, y.view_mut()?, count as u32))? };
        let (got, values) = (bytes(&y.read()?), bytes(&values));
        let row = 16 * count;
        let want = written(
            8 * row,
            |at| values[at % row],
            |at| {
                let (number, byte) = (at % row / 16, at % 16);
                match at / row {
                    0 => number % 2 == 1,
                    1 => (number + byte / 8) % 2 == 1,
                    2 | 5 => number % 4 == byte / 4,
                    3 => true,
                    4 => number % 2 == byte / 8,
                    6 => number % 8 == byte / 2,
                    _ => number % 16 == byte,
                }
            },
        );
        assert_same(&got, &want, format!("{} of {count} packs, by bytes", kernel.name));
    }
    Ok(())
}

/// Every range of a pack, and ranges that reach beyond it.
fn ranges<T: Plain + store_ranges::Instances>(device: &Device, of: impl Fn(u64) -> T) -> Result<()> {
    let kernel = &store_ranges::kernels::<T>()[0];
    let per_pack = 16 / size_of::<T>() as i32;
    let ends = -2..=per_pack + 3;
    let ranges: Vec<[i32; 2]> =
        ends.clone().flat_map(|low| ends.clone().map(move |high| [low, high])).collect();
    // A whole pack is for stores of packs: a part leaves out an end at least.
    let ranges: Vec<[i32; 2]> =
        ranges.into_iter().filter(|&[low, high]| low > 0 || high < per_pack).collect();
    by_ranges(device, kernel, &random(ranges.len() * per_pack as usize, of), 16, &ranges)
}

/// Every range of five words.
fn words<T: Plain + words_around::Instances>(device: &Device, of: impl Fn(u64) -> T) -> Result<()> {
    let kernel = &words_around::kernels::<T>()[0];
    let elements = 20 / size_of::<T>() as u32;
    let ranges: Vec<[u32; 2]> =
        (0..elements).flat_map(|low| (low + 1..=elements).map(move |high| [low, high])).collect();
    by_ranges(device, kernel, &random(ranges.len() * elements as usize, of), 20, &ranges)
}

/// x, y, the ranges, and how many these are.
type ByRanges<T, U, R> = Kernel<(Global<T>, GlobalMut<U>, Global<R>, u32)>;

/// Launches a kernel that copies, of each so many bytes, the elements in a range, and checks that it writes these and nothing else.
fn by_ranges<T: Plain, U: Plain, R: Plain + Into<i64>>(
    device: &Device,
    kernel: &ByRanges<T, U, R>,
    values: &[T],
    each: usize,
    ranges: &[[R; 2]],
) -> Result<()> {
    let count = ranges.len();
    let (x, y) = (Array::new(device, values)?, Array::<U>::poisoned(device, count * each / size_of::<U>())?);
    let of_ranges = Array::new(device, ranges.as_flattened())?;
    let grid = Grid::covering(count as u64, kernel.bounds.threads.into())?;
    // SAFETY: the arrays have the sizes that the kernel states.
    unsafe { device.launch(kernel, grid, (x.view()?, y.view_mut()?, of_ranges.view()?, count as u32))? };
    let values = bytes(values);
    let want = written(
        values.len(),
        |at| values[at],
        |at| {
            let [low, high]: [i64; 2] = ranges[at / each].map(Into::into);
            (low..high).contains(&((at % each / size_of::<T>()) as i64))
        },
    );
    assert_same(&bytes(&y.read()?), &want, format!("{} of {count} ranges, by bytes", kernel.name));
    Ok(())
}

fn copies<T: Plain + async_parts::Instances>(device: &Device, of: impl Fn(u64) -> T) -> Result<()> {
    let kernel = &async_parts::kernels::<T>()[0];
    let threads = kernel.bounds.threads as usize;
    let per_pack = 16 / size_of::<T>();
    let values = random(threads * per_pack, &of);
    let (x, y) = (Array::new(device, &values)?, Array::<T>::poisoned(device, 5 * values.len())?);
    let grid = Grid::new(1)?.shared(80 * threads as u32);
    // SAFETY: the arrays and the shared memory have the sizes that the kernel states.
    unsafe { device.launch(kernel, grid, (x.view()?, y.view_mut()?, 0u32))? };
    let values = bytes(&values);
    let want: Vec<u8> = (0..5 * values.len())
        .map(|at| {
            let (row, thread, byte) = (at / values.len(), at % values.len() / 16, at % 16);
            let value = values[at % values.len()];
            let low = thread % per_pack;
            let part = low..low + (per_pack - low).div_ceil(2);
            match row {
                0 if thread % 2 == 1 => (thread as u32).to_le_bytes()[byte % 4],
                1 if thread % 2 == 1 => 0,
                2 if byte / 4 > thread % 4 => 0,
                3 if !part.contains(&(byte / size_of::<T>())) => POISON,
                _ => value,
            }
        })
        .collect();
    assert_same(&bytes(&y.read()?), &want, format!("{}, [form, thread] by bytes", kernel.name));
    Ok(())
}

fn eights<T: Plain + shared_eights::Instances>(device: &Device, of: impl Fn(u64) -> T) -> Result<()> {
    let kernel = &shared_eights::kernels::<T>()[0];
    let threads = kernel.bounds.threads as usize;
    let values = random(8 * threads / size_of::<T>(), &of);
    let (x, y) = (Array::new(device, &values)?, Array::<T>::poisoned(device, values.len())?);
    let grid = Grid::new(1)?.shared(8 * threads as u32);
    // SAFETY: the arrays and the shared memory have the sizes that the kernel states.
    unsafe { device.launch(kernel, grid, (x.view()?, y.view_mut()?))? };
    let want: Vec<u8> = bytes(&values).chunks(8).rev().flatten().copied().collect();
    assert_same(&bytes(&y.read()?), &want, kernel.name);
    Ok(())
}

/// Runs a generic test for each element type named.
macro_rules! for_types {
    ($test:ident($device:ident): $($ty:ty = $of:expr),* $(,)?) => {{
        $($test::<$ty>($device, $of)?;)*
        Ok(())
    }};
}

on_each_device! {
    fn bits_of_elements_are_read_where_the_predicate_holds(device: &Device) -> Result<()> {
        for_types!(bits(device):
            u8 = |b| b as u8, i8 = |b| b as i8, u16 = |b| b as u16, i16 = |b| b as i16,
            f16 = |b| f16::from_bits(b as u16), bf16 = |b| bf16::from_bits(b as u16), u32 = |b| b as u32,
            i32 = |b| b as i32, f32 = |b| f32::from_bits(b as u32),
        )
    }

    fn halves_and_quarters_are_written_where_the_predicate_holds(device: &Device) -> Result<()> {
        for_types!(stores(device):
            u8 = |b| b as u8, u16 = |b| b as u16, u32 = |b| b as u32, f16 = |b| f16::from_bits(b as u16),
            bf16 = |b| bf16::from_bits(b as u16), f32 = |b| f32::from_bits(b as u32),
        )
    }

    fn parts_of_packs_are_written_and_nothing_else(device: &Device) -> Result<()> {
        for_types!(ranges(device):
            f16 = |b| f16::from_bits(b as u16), bf16 = |b| bf16::from_bits(b as u16),
            f32 = |b| f32::from_bits(b as u32),
        )
    }

    fn words_around_elements_are_read(device: &Device) -> Result<()> {
        for_types!(words(device): u8 = |b| b as u8, f16 = |b| f16::from_bits(b as u16), f32 = |b| f32::from_bits(b as u32))
    }

    fn parts_are_copied_to_shared_memory_by_every_form(device: &Device) -> Result<()> {
        for_types!(copies(device): u8 = |b| b as u8, f16 = |b| f16::from_bits(b as u16), u32 = |b| b as u32)
    }

    fn eights_of_bytes_pass_through_shared_memory(device: &Device) -> Result<()> {
        for_types!(eights(device): u8 = |b| b as u8, f16 = |b| f16::from_bits(b as u16), f32 = |b| f32::from_bits(b as u32))
    }

    fn packs_are_polled(device: &Device) -> Result<()> {
        let (count, polled) = (300, 201);
        let values = random(4 * polled, |b| b as u32);
        let (x, out) = (Array::new(device, &values)?, Array::<u32>::poisoned(device, 8 * count)?);
        let kernel = &poll_packs::ALL[0];
        let grid = Grid::covering(count as u64, kernel.bounds.threads.into())?;
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid, (x.view_mut()?, out.view_mut()?, count as u32, polled as u32))? };
        let mut want = values.clone();
        want.resize(4 * count, u32::from_le_bytes([POISON; 4]));
        want.extend(&values);
        want.extend((polled..count).flat_map(|number| (0..4).map(move |word| number as u32 + word)));
        assert_same(&out.read()?, &want, "[form, pack, word]");
        Ok(())
    }
}
