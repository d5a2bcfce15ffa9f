//! Views of global memory and shared memory, for each element size.

use std::fmt::Debug;

use cuda_std::{bf16, f16};
use kernels_gpu::probe::{
    LOADS, SHARED_ELEMENTS, STATIC_BYTES, async_packs, copy_elements, dynamic_array, load_packs,
    static_arrays,
};
use warpwright::{Device, Grid, Result};
use warpwright_tests::{Array, Plain, Random, assert_same, bytes, on_each_device};

/// `count` different numbers.
fn numbers<T: Plain>(count: usize, of: impl Fn(u64) -> T) -> Vec<T> {
    let mut random = Random::new(40);
    (0..count).map(|_| of(random.bits())).collect()
}

fn copies<T: Plain + copy_elements::Instances>(device: &Device, of: impl Fn(u64) -> T) -> Result<()> {
    let kernel = &copy_elements::kernels::<T>()[0];
    for (count, shift) in [(2, 0), (2, 1), (200, 7), (200, 199)] {
        let values = numbers(count, &of);
        let (x, y) = (Array::new(device, &values)?, Array::poisoned(device, count)?);
        let (again, steps) = (Array::poisoned(device, count)?, Array::<u64>::poisoned(device, 2)?);
        let args = (x.view()?, y.view_mut()?, again.view_mut()?, steps.view_mut()?, shift, count as u32);
        let grid = Grid::covering(count as u64, kernel.bounds.threads.into())?;
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid, args)? };
        assert_same(&bytes(&y.read()?), &bytes(&values), kernel.name);
        assert_same(&bytes(&again.read()?), &bytes(&values), kernel.name);
        assert_same(&steps.read()?, &[size_of::<T>() as u64; 2], kernel.name);
    }
    Ok(())
}

fn packs<T: Plain + load_packs::Instances>(device: &Device, of: impl Fn(u64) -> T) -> Result<()> {
    let kernel = &load_packs::kernels::<T>()[0];
    let per_pack = 16 / size_of::<T>();
    // Packs, those that are read, and those whose first result is stored.
    for (packs, loaded, stored) in [(1, 1, 1), (150, 150, 150), (150, 97, 120), (70, 0, 0)] {
        let values = numbers(loaded * per_pack, &of);
        // Nothing lies behind the packs that are read: the checker reports a read that should not be.
        let (x, out) =
            (Array::new(device, &values)?, Array::<T>::poisoned(device, packs * LOADS * per_pack)?);
        let otherwise = 0x0102_0304u32;
        let args = (x.view()?, out.view_mut()?, packs as u32, loaded as u32, stored as u32, otherwise);
        let grid = Grid::covering(packs as u64, kernel.bounds.threads.into())?;
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid, args)? };
        let got = bytes(&out.read()?);
        let same = otherwise.to_ne_bytes().repeat(4);
        let counted: Vec<u8> = (0..4).flat_map(|word| (otherwise + word).to_ne_bytes()).collect();
        let values = bytes(&values);
        for pack in 0..packs {
            let read = values.get(16 * pack..16 * (pack + 1));
            for (load, fallback) in [&same, &counted, &same, &counted].into_iter().enumerate() {
                let want = match (load, pack < stored) {
                    (0, false) => &[0xa5; 16],
                    _ => read.unwrap_or(fallback),
                };
                let name = ["get_pack_if", "get_pack_or", "get_8_if", "get_4_if"][load];
                let case = format!(
                    "{}: {name}, pack {pack} of {packs}, {loaded} read, {stored} stored",
                    kernel.name
                );
                assert_same(&got[16 * (LOADS * pack + load)..][..16], want, case);
            }
        }
    }
    Ok(())
}

fn dynamic<T: Plain + dynamic_array::Instances>(device: &Device, of: impl Fn(u64) -> T) -> Result<()> {
    let kernel = &dynamic_array::kernels::<T>()[0];
    let bytes_each = SHARED_ELEMENTS * size_of::<T>();
    for offset in [0, 16, 4096, 60_000] {
        let values = numbers(SHARED_ELEMENTS, &of);
        let x = Array::new(device, &values)?;
        let (y, packs) =
            (Array::poisoned(device, SHARED_ELEMENTS)?, Array::poisoned(device, SHARED_ELEMENTS)?);
        // The last offset takes more than a kernel gets without asking for it.
        let grid = Grid::new(1)?.shared(offset + 2 * bytes_each as u32);
        let args = (x.view()?, y.view_mut()?, packs.view_mut()?, offset);
        // SAFETY: the arrays and the shared memory have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid, args)? };
        let reversed: Vec<T> = values.into_iter().rev().collect();
        assert_same(&bytes(&y.read()?), &bytes(&reversed), format!("{} at {offset}", kernel.name));
        let want: Vec<u8> = bytes(&reversed).chunks(16).rev().flatten().copied().collect();
        assert_same(&bytes(&packs.read()?), &want, format!("{} at {offset}, packs", kernel.name));
    }
    Ok(())
}

/// Runs a generic test for each element type named.
macro_rules! for_types {
    ($test:ident($device:ident): $($ty:ty = $of:expr),* $(,)?) => {{
        $($test::<$ty>($device, $of)?;)*
        Ok(())
    }};
}

/// Two packs a thread, through shared memory; of the last, each number of elements.
fn copied_packs<T: Plain + async_packs::Instances>(device: &Device, of: impl Fn(u64) -> T) -> Result<()> {
    let kernel = &async_packs::kernels::<T>()[0];
    let (threads, pack) = (kernel.bounds.threads as usize, 16 / size_of::<T>());
    for count in 0..=pack {
        let values = numbers(2 * threads * pack - pack + count, &of);
        let x = Array::new(device, &values)?;
        let y = Array::poisoned(device, 2 * threads * pack)?;
        let grid = Grid::new(1)?.shared(32 * threads as u32);
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid, (x.view()?, y.view_mut()?, count as u32))? };
        let mut want = bytes(&values);
        want.resize(32 * threads, 0);
        assert_same(&bytes(&y.read()?), &want, format!("{}, {count} elements of the last", kernel.name));
    }
    Ok(())
}

on_each_device! {
    fn elements_of_every_size_are_copied(device: &Device) -> Result<()> {
        for_types!(copies(device):
            u8 = |b| b as u8, i8 = |b| b as i8, bool = |b| b & 1 == 1, u16 = |b| b as u16,
            f16 = |b| f16::from_bits(b as u16), bf16 = |b| bf16::from_bits(b as u16), u32 = |b| b as u32,
            f32 = |b| f32::from_bits(b as u32), u64 = |b| b, f64 = f64::from_bits,
        )
    }

    fn packs_are_read_and_written_where_the_predicate_holds(device: &Device) -> Result<()> {
        for_types!(packs(device):
            u8 = |b| b as u8, u16 = |b| b as u16, f16 = |b| f16::from_bits(b as u16),
            bf16 = |b| bf16::from_bits(b as u16), u32 = |b| b as u32, f32 = |b| f32::from_bits(b as u32),
            u64 = |b| b, f64 = f64::from_bits,
        )
    }

    fn dynamic_shared_memory_holds_every_element_size(device: &Device) -> Result<()> {
        for_types!(dynamic(device):
            u8 = |b| b as u8, u16 = |b| b as u16, f16 = |b| f16::from_bits(b as u16),
            bf16 = |b| bf16::from_bits(b as u16), u32 = |b| b as u32, f32 = |b| f32::from_bits(b as u32),
            u64 = |b| b, f64 = f64::from_bits,
        )
    }

    fn packs_are_copied_while_others_are_used(device: &Device) -> Result<()> {
        for_types!(copied_packs(device):
            u8 = |b| b as u8, f16 = |b| f16::from_bits(b as u16), u32 = |b| b as u32, f64 = f64::from_bits,
        )
    }

    fn declared_shared_arrays_of_every_type_are_apart(device: &Device) -> Result<()> {
        // Element sizes, in the kernel's order.
        let sizes = [4, 4, 4, 8, 8, 8, 2, 2, 2, 1];
        let values = numbers(sizes.len() * STATIC_BYTES / 8, |b| b);
        let (x, y) = (Array::new(device, &values)?, Array::<u64>::poisoned(device, values.len())?);
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(&static_arrays::ALL[0], Grid::new(1)?, (x.view()?, y.view_mut()?))? };
        let (values, got) = (bytes(&values), bytes(&y.read()?));
        for (part, size) in sizes.into_iter().enumerate() {
            let used = size * SHARED_ELEMENTS;
            let (values, got) = (&values[part * STATIC_BYTES..], &got[part * STATIC_BYTES..][..STATIC_BYTES]);
            let mut want: Vec<u8> = values[..used].chunks(size).rev().flatten().copied().collect();
            want.resize(STATIC_BYTES, 0xa5);
            assert_same(got, &want, format!("part {part}, by bytes"));
        }
        Ok(())
    }
}

/// What the helpers above rely on.
#[test]
fn arrays_keep_numbers_and_know_what_nothing_wrote() {
    fn round<T: Plain + PartialEq + Debug>(values: &[T]) {
        let array = Array::new(&Device::cpu(), values).unwrap();
        assert_eq!(array.read().unwrap(), values);
        assert!((0..values.len()).all(|i| !array.is_poison(i).unwrap()));
    }
    round(&[true, false]);
    round(&[u64::MAX, 1 << 60, 0]);
    round(&[f16::from_f32(1.5), f16::from_f32(-0.0)]);
    assert!(Array::<f64>::poisoned(&Device::cpu(), 3).unwrap().is_poison(2).unwrap());
}
