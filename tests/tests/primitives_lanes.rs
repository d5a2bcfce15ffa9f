//! Shuffles, votes, matches, bitwise reductions and `sync_warp`, in whole warps and in parts.

use cuda_std::{bf16, f16};
use kernels_gpu::probe::{bitwise, exchange, matches, shuffle, vote};
use warpwright::{Device, Grid, Result};
use warpwright_tests::{Array, Plain, Random, assert_same, on_each_device};

/// All lanes, all but one, halves, every other lane, one lane, and no pattern.
const MASKS: [u32; 8] =
    [u32::MAX, 0x7fff_ffff, 0xffff_0000, 0x0000_ffff, 0x5555_5555, 1, 0x8000_0000, 0x1c39_f042];

fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}

/// The lane that each shuffle reads from and whether it is valid, by PTX's definition of `shfl.sync`.
fn sources(lane: usize, amount: usize, width: usize) -> [(usize, bool); 4] {
    let first = lane & !(width - 1);
    let last = first + width - 1;
    let or_own = |source: usize, valid: bool| if valid { (source, true) } else { (lane, false) };
    [
        or_own(lane.wrapping_sub(amount), lane >= first + amount),
        or_own(lane + amount, lane + amount <= last),
        (first + amount % width, true),
        or_own(lane ^ amount, lane ^ amount <= last),
    ]
}

fn bits<T: Plain>(value: T) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.write(&mut bytes);
    bytes
}

fn shuffles<T>(device: &Device, of: impl Fn(u64) -> T) -> Result<()>
where
    T: Plain + shuffle::Instances + std::fmt::Debug,
{
    let mut random = Random::new(1);
    let kernel = &shuffle::kernels::<T>()[0];
    for mask in MASKS {
        let values: Vec<T> = (0..32).map(|_| of(random.bits())).collect();
        let x = Array::new(device, &values)?;
        for width in [32, 16, 8, 4, 2, 1] {
            for amount in [0, 1, 2, 3, 7, 8, 13, 16, 31] {
                let (moved, valid) = (Array::poisoned(device, 128)?, Array::<u32>::poisoned(device, 128)?);
                let args = (x.view()?, moved.view_mut()?, valid.view_mut()?, mask, amount, width);
                // SAFETY: the arrays have the sizes that the kernel states.
                unsafe { device.launch(kernel, Grid::new(1)?, args)? };
                let valid = valid.read()?;
                // Lanes that took no part have no values.
                let places: Vec<usize> =
                    (0..4).flat_map(|op| lanes_of(mask).map(move |lane| 32 * op + lane)).collect();
                for (got, &place) in moved.read_at(places.iter().copied())?.into_iter().zip(&places) {
                    let (op, lane) = (place / 32, place % 32);
                    let (source, want) = sources(lane, amount as usize, width as usize)[op];
                    let case = || {
                        let name = ["up", "down", "idx", "xor"][op];
                        format!(
                            "{}: {name} by {amount}, width {width}, lane {lane} of {mask:#x}",
                            kernel.name
                        )
                    };
                    assert_eq!(valid[place], u32::from(want), "{}", case());
                    // What a lane outside the mask would give is not defined.
                    if mask >> source & 1 == 1 {
                        assert_eq!(bits(got), bits(values[source]), "{}", case());
                    }
                }
                for lane in lanes_of(!mask) {
                    assert_eq!(valid[lane], 0xa5a5_a5a5, "lane {lane} is not in {mask:#x}");
                }
            }
        }
    }
    Ok(())
}

on_each_device! {
    fn shuffles_move_bytes(device: &Device) -> Result<()> {
        shuffles::<u8>(device, |b| b as u8)?;
        shuffles::<i8>(device, |b| b as i8)?;
        shuffles::<bool>(device, |b| b & 1 == 1)
    }

    fn shuffles_move_halves(device: &Device) -> Result<()> {
        shuffles::<u16>(device, |b| b as u16)?;
        shuffles::<i16>(device, |b| b as i16)?;
        shuffles::<f16>(device, |b| f16::from_bits(b as u16))?;
        shuffles::<bf16>(device, |b| bf16::from_bits(b as u16))
    }

    fn shuffles_move_words(device: &Device) -> Result<()> {
        shuffles::<u32>(device, |b| b as u32)?;
        shuffles::<i32>(device, |b| b as i32)?;
        shuffles::<f32>(device, |b| f32::from_bits(b as u32))
    }

    fn shuffles_move_pairs_of_words(device: &Device) -> Result<()> {
        shuffles::<u64>(device, |b| b)?;
        shuffles::<i64>(device, |b| b as i64)?;
        shuffles::<f64>(device, f64::from_bits)
    }

    fn votes_count_the_lanes_of_the_mask_only(device: &Device) -> Result<()> {
        let mut random = Random::new(2);
        let picks = [0, u32::MAX, random.bits() as u32, random.bits() as u32, 1, 0x8000_0000];
        for mask in MASKS {
            for ballot in picks.into_iter().chain([mask, !mask]) {
                let values: Vec<u32> = (0..32).map(|lane| (ballot >> lane & 1) << lane).collect();
                let (x, out) = (Array::new(device, &values)?, Array::poisoned(device, 128)?);
                // SAFETY: the arrays have the sizes that the kernel states.
                unsafe { device.launch(&vote::ALL[0], Grid::new(1)?, (x.view()?, out.view_mut()?, mask))? };
                let got = out.read()?;
                for lane in 0..32 {
                    let case = format!("lane {lane} of {mask:#x} with votes {ballot:#x}");
                    if mask >> lane & 1 == 0 {
                        assert_eq!(got[lane], 0xa5a5_a5a5, "{case}");
                        continue;
                    }
                    let want = [u32::from(ballot & mask == mask), u32::from(ballot & mask != 0), ballot & mask];
                    assert_eq!([got[lane], got[32 + lane], got[64 + lane]], want, "{case}");
                    // Which other lanes run at the same time is not defined.
                    assert_eq!(got[96 + lane] >> lane & 1, 1, "{case}: the active mask lacks the lane itself");
                }
            }
        }
        Ok(())
    }

    fn matches_find_the_lanes_with_the_same_value(device: &Device) -> Result<()> {
        let mut random = Random::new(3);
        for mask in MASKS {
            for kinds in [1, 2, 5, 1000] {
                // Values that differ in either half alone.
                let pool: Vec<u64> =
                    (0..kinds).map(|i| if i % 2 == 0 { i << 32 | 7 } else { 7 << 32 | i }).collect();
                let values: Vec<u64> =
                    (0..32).map(|_| pool[random.below(pool.len() as u64) as usize]).collect();
                let (x, out) = (Array::new(device, &values)?, Array::poisoned(device, 192)?);
                // SAFETY: the arrays have the sizes that the kernel states.
                unsafe { device.launch(&matches::ALL[0], Grid::new(1)?, (x.view()?, out.view_mut()?, mask))? };
                let got = out.read()?;
                for lane in lanes_of(mask) {
                    let like = |same: &dyn Fn(usize) -> bool| {
                        lanes_of(mask).filter(|&other| same(other)).fold(0u32, |found, other| found | 1 << other)
                    };
                    let narrow = like(&|other| values[other] as u32 == values[lane] as u32);
                    let wide = like(&|other| values[other] == values[lane]);
                    let all = |found: u32| if found == mask { [mask, 1] } else { [0, 0] };
                    let want = [[narrow, wide], all(narrow), all(wide)].concat();
                    let got: Vec<u32> = (0..6).map(|what| got[32 * what + lane]).collect();
                    assert_same(&got, &want, format!("lane {lane} of {mask:#x}, {kinds} kinds"));
                }
            }
        }
        Ok(())
    }

    fn bitwise_reductions_cover_the_mask(device: &Device) -> Result<()> {
        let mut random = Random::new(4);
        for mask in MASKS {
            let values = random.words(32);
            let (x, out) = (Array::new(device, &values)?, Array::poisoned(device, 96)?);
            // SAFETY: the arrays have the sizes that the kernel states.
            unsafe { device.launch(&bitwise::ALL[0], Grid::new(1)?, (x.view()?, out.view_mut()?, mask))? };
            let fold = |op: fn(u32, u32) -> u32| lanes_of(mask).map(|lane| values[lane]).reduce(op).unwrap();
            let totals = [fold(|a, b| a & b), fold(|a, b| a | b), fold(|a, b| a ^ b)];
            let want: Vec<u32> = (0..96)
                .map(|i| if mask >> (i % 32) & 1 == 1 { totals[i / 32] } else { 0xa5a5_a5a5 })
                .collect();
            assert_same(&out.read()?, &want, format!("mask {mask:#x}"));
        }
        Ok(())
    }

    fn sync_warp_orders_the_lanes_of_the_mask(device: &Device) -> Result<()> {
        for mask in MASKS {
            let lanes: Vec<usize> = lanes_of(mask).collect();
            let next = |lane: usize| lanes.iter().copied().find(|&l| l > lane).unwrap_or(lanes[0]);
            let values: Vec<u32> = (0..32).map(|lane| 100 + lane).collect();
            let partners: Vec<u32> = (0..32).map(|lane| next(lane) as u32).collect();
            let (x, partner) = (Array::new(device, &values)?, Array::new(device, &partners)?);
            let out = Array::poisoned(device, 32)?;
            let args = (x.view()?, partner.view()?, out.view_mut()?, mask);
            // SAFETY: the arrays have the sizes that the kernel states; partners are lanes of the mask.
            unsafe { device.launch(&exchange::ALL[0], Grid::new(1)?, args)? };
            let want: Vec<u32> = (0..32)
                .map(|lane| match mask >> lane & 1 {
                    1 => values[(0..8).fold(lane, |lane, _| next(lane))],
                    _ => 0xa5a5_a5a5,
                })
                .collect();
            assert_same(&out.read()?, &want, format!("mask {mask:#x}"));
        }
        Ok(())
    }
}
