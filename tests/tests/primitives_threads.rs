//! Barriers, indices, memory order, clusters, parameters and launches in a row.

use cuda_std::kernel::Kernel;
use kernels_gpu::probe::{
    INDICES, MESSAGES, flag_packs, flags, halves_meet, indices, last_block_sums, message, parameters, posts,
    relay_begun, relay_waited, remote_packs, ring, voting_barriers, way,
};
use warpwright::{Device, Grid, Result};
use warpwright_tests::{Array, Random, assert_same, on_each_device};

/// Has each block of clusters receive so many words from its left neighbour, three times in turn: word w of turn t of the block of a rank is
/// 1000·(t + 1) + 100·rank + w.
fn flags_come(device: &Device, kernel: &Kernel<flags::Args>, words: usize) -> Result<()> {
    const BLOCKS: usize = 16;
    if device.info().is_some_and(|info| info.arch != (9, 0)) {
        return Ok(());
    }
    for size in [2, 4, 8] {
        let out = Array::poisoned(device, BLOCKS * 3 * words)?;
        let grid = Grid::new(BLOCKS as u64)?.cluster(size as u32);
        // SAFETY: the array has the size that the kernel states.
        unsafe { device.launch(kernel, grid, (out.view_mut()?,))? };
        let mut want = Vec::new();
        for block in 0..BLOCKS {
            let left = ((block % size + size - 1) % size) as u32;
            for turn in 1..4 {
                want.extend((0..words as u32).map(|word| 1000 * turn + 100 * left + word));
            }
        }
        assert_same(&out.read()?, &want, format!("clusters of {size}: [block, turn, word]"));
    }
    Ok(())
}

on_each_device! {
    fn barriers_vote(device: &Device) -> Result<()> {
        const THREADS: usize = 128;
        let mut random = Random::new(20);
        let mut one = vec![0; THREADS];
        one[77] = 9;
        let mut all_but_one = vec![3; THREADS];
        all_but_one[100] = 0;
        let some = (0..THREADS).map(|_| random.below(2) as u32).collect();
        let blocks: Vec<Vec<u32>> = vec![vec![0; THREADS], vec![1; THREADS], one, all_but_one, some];
        let (x, out) = (Array::new(device, &blocks.concat())?, Array::poisoned(device, blocks.len() * 3 * THREADS)?);
        let grid = Grid::new(blocks.len() as u64)?;
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(&voting_barriers::ALL[0], grid, (x.view()?, out.view_mut()?))? };
        let mut want = Vec::new();
        for block in &blocks {
            let count = block.iter().filter(|&&value| value != 0).count();
            for result in [count, usize::from(count == THREADS), usize::from(count > 0)] {
                want.extend([result as u32; THREADS]);
            }
        }
        assert_same(&out.read()?, &want, "[block, (count, and, or), thread]");
        Ok(())
    }

    fn named_barriers_and_the_block_barrier_order_shared_memory(device: &Device) -> Result<()> {
        let values = Random::new(21).words(128);
        let (x, out) = (Array::new(device, &values)?, Array::poisoned(device, 128)?);
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(&halves_meet::ALL[0], Grid::new(1)?, (x.view()?, out.view_mut()?))? };
        assert_same(&out.read()?, &[&values[64..], &values[..64]].concat(), "the halves, exchanged");
        Ok(())
    }

    fn threads_know_where_they_are(device: &Device) -> Result<()> {
        const THREADS: u32 = 96;
        let [x, y, z] = [5, 3, 2];
        let out = Array::poisoned(device, (x * y * z * THREADS) as usize * INDICES.len())?;
        let grid = Grid::xyz(x.into(), y.into(), z.into())?;
        // SAFETY: the array has the size that the kernel states.
        unsafe { device.launch(&indices::ALL[0], grid, (out.view_mut()?,))? };
        let mut want = Vec::new();
        for block in 0..x * y * z {
            for t in 0..THREADS {
                let at = [block % x, block / x % y, block / x / y];
                let index = at[0] * THREADS + t;
                want.extend([t, 0, 0, at[0], at[1], at[2], THREADS, 1, 1, x, y, z, t, index, 0, t % 32, t / 32]);
            }
        }
        assert_same(&out.read()?, &want, "[block, thread, index]");
        Ok(())
    }

    fn messages_arrive_whole_by_every_way_of_ordering(device: &Device) -> Result<()> {
        for (round, kernel) in message::ALL.iter().enumerate() {
            let key = 1000 * (round as u32 + 1);
            let data = Array::new(device, &[0u32; MESSAGES])?;
            let (flags, out) = (Array::new(device, &[0u32; MESSAGES])?, Array::poisoned(device, MESSAGES)?);
            // Blocks that wait for one another must run at once.
            let blocks = if kernel.constant("WAY") >= way::BLOCK { 1 } else { 2 };
            let grid = Grid::new(blocks)?.cooperative();
            let args = (data.view_mut()?, flags.view_mut()?, out.view_mut()?, key);
            // SAFETY: the arrays have the sizes that the kernel states.
            unsafe { device.launch(kernel, grid, args)? };
            let want: Vec<u32> = (0..MESSAGES as u32).map(|i| key + i).collect();
            assert_same(&out.read()?, &want, kernel.name);
        }
        Ok(())
    }

    fn the_last_block_sees_what_the_others_wrote(device: &Device) -> Result<()> {
        for blocks in [1, 2, 300] {
            let values = Random::new(22).words(256 * blocks);
            let x = Array::new(device, &values)?;
            let partials = Array::<u32>::poisoned(device, blocks)?;
            let (finished, total) = (Array::new(device, &[0u32])?, Array::poisoned(device, 1)?);
            let args = (x.view()?, partials.view_mut()?, finished.view_mut()?, total.view_mut()?);
            // SAFETY: the arrays have the sizes that the kernel states.
            unsafe { device.launch(&last_block_sums::ALL[0], Grid::new(blocks as u64)?, args)? };
            let want = values.iter().fold(0u32, |sum, value| sum.wrapping_add(*value));
            assert_same(&total.read()?, &[want], format!("{blocks} blocks"));
            assert_same(&finished.read()?, &[blocks as u32], "the blocks that finished");
        }
        Ok(())
    }

    fn words_posted_to_the_next_block_of_a_cluster_arrive(device: &Device) -> Result<()> {
        const THREADS: usize = 64;
        const BLOCKS: usize = 16;
        if device.info().is_some_and(|info| info.arch != (9, 0)) {
            return Ok(());
        }
        for size in [2, 4, 8] {
            let out = Array::poisoned(device, BLOCKS * 3 * THREADS)?;
            let grid = Grid::new(BLOCKS as u64)?.cluster(size as u32);
            // SAFETY: the array has the size that the kernel states.
            unsafe { device.launch(&posts::ALL[0], grid, (out.view_mut()?,))? };
            let mut want = Vec::new();
            for block in 0..BLOCKS {
                want.extend([((block % size + size - 1) % size) as u32; THREADS]);
                want.extend((0..THREADS as u32).map(|thread| thread * thread));
                want.extend([(BLOCKS / size) as u32; THREADS]);
            }
            assert_same(&out.read()?, &want, format!("clusters of {size}: [block, what, thread]"));
        }
        Ok(())
    }

    fn words_that_a_block_of_a_cluster_stores_are_their_own_flags(device: &Device) -> Result<()> {
        flags_come(device, &flags::ALL[0], 64)
    }

    fn packs_that_a_block_of_a_cluster_stores_are_their_own_flags(device: &Device) -> Result<()> {
        flags_come(device, &flag_packs::ALL[0], 256)
    }

    fn blocks_of_a_cluster_reach_one_anothers_shared_memory(device: &Device) -> Result<()> {
        const BLOCKS: usize = 8;
        const THREADS: usize = 64;
        let values = Random::new(23).floats(BLOCKS * THREADS, -100.0, 100.0);
        let x = Array::new(device, &values)?;
        for size in [2, 4, 8] {
            let out = Array::poisoned(device, BLOCKS * 4 * THREADS)?;
            let grid = Grid::new(BLOCKS as u64)?.cluster(size as u32);
            // SAFETY: the arrays have the sizes that the kernel states.
            unsafe { device.launch(&ring::ALL[0], grid, (x.view()?, out.view_mut()?))? };
            let mut want = Vec::new();
            for block in 0..BLOCKS {
                let (rank, first) = (block % size, block / size * size);
                let of = |rank: usize, thread: usize| values[(first + rank % size) * THREADS + thread];
                want.extend([rank as u32; THREADS]);
                want.extend([size as u32; THREADS]);
                want.extend((0..THREADS).map(|t| of(rank + 1, THREADS - 1 - t).to_bits()));
                // Two blocks back, which is the block itself in a cluster of two.
                want.extend((0..THREADS).map(|t| (of(rank + size - 2, t) + 0.5).to_bits()));
            }
            assert_same(&out.read()?, &want, format!("clusters of {size}: [block, what, thread]"));
        }
        Ok(())
    }

    fn parameters_of_every_type_arrive(device: &Device) -> Result<()> {
        for sign in [1i64, -1] {
            let out = Array::poisoned(device, 10)?;
            let (a, b, c, d, e) = (0xa1u8, sign << 40 | 5, (sign * 101) as i8, sign as f32 * 1.5, 0xb2b3u16);
            let (f, g, h, i, j) = (sign as f64 * 2.25, (sign * 30_000) as i16, 0xc4c5_c6c7u32, 0xd1d2_d3d4_d5d6_d7d8u64, (sign << 29) as i32);
            let args = (a, b, c, d, e, f, g, out.view_mut()?, h, i, j);
            // SAFETY: the array has the size that the kernel states.
            unsafe { device.launch(&parameters::ALL[0], Grid::new(1)?, args)? };
            let want = [
                a.into(), b as u64, c as i64 as u64, d.to_bits().into(), e.into(), f.to_bits(), g as i64 as u64,
                h.into(), i, j as i64 as u64,
            ];
            assert_same(&out.read()?, &want, "the parameters");
        }
        Ok(())
    }

    fn packs_and_words_of_the_next_block_of_a_cluster_are_read_where_the_predicate_holds(device: &Device) -> Result<()> {
        const BLOCKS: usize = 8;
        const THREADS: usize = 64;
        if device.info().is_some_and(|info| info.arch != (9, 0)) {
            return Ok(());
        }
        let values = Random::new(24).words(BLOCKS * THREADS * 4);
        let x = Array::new(device, &values)?;
        for size in [2, 4, 8] {
            let (packs, words) = (Array::poisoned(device, values.len())?, Array::poisoned(device, BLOCKS * THREADS)?);
            let grid = Grid::new(BLOCKS as u64)?.cluster(size as u32);
            let args = (x.view()?, packs.view_mut()?, words.view_mut()?);
            // SAFETY: the arrays have the sizes that the kernel states.
            unsafe { device.launch(&remote_packs::ALL[0], grid, args)? };
            let of = |number: usize, thread: usize, word: usize| {
                let block = number / THREADS;
                let right = block / size * size + (block + 1) % size;
                values[(right * THREADS + thread) * 4 + word]
            };
            let numbers = 0..BLOCKS * THREADS;
            let pack = |number: usize| {
                let thread = number % THREADS;
                (0..4).map(move |word| if thread.is_multiple_of(3) { 0 } else { of(number, THREADS - 1 - thread, word) })
            };
            let word = |number: usize| if number.is_multiple_of(2) { of(number, number % THREADS, 1) } else { 0 };
            assert_same(&packs.read()?, &numbers.clone().flat_map(pack).collect::<Vec<u32>>(), format!("packs, clusters of {size}"));
            assert_same(&words.read()?, &numbers.map(word).collect::<Vec<u32>>(), format!("words, clusters of {size}"));
        }
        Ok(())
    }

    /// As many launches as begin early on GPUs that can: each wants all that the one ahead writes at its end.
    fn launches_in_a_row_wait_for_one_another(device: &Device) -> Result<()> {
        let mut kernels = vec![&relay_begun::ALL[0]];
        if device.info().is_none_or(|info| info.arch == (9, 0)) {
            kernels.push(&relay_waited::ALL[0]);
        }
        let (count, launches) = if device.is_cuda() { (1 << 20, 41) } else { (1000, 5) };
        let values = Random::new(25).words(count);
        for kernel in kernels {
            let arrays = [Array::new(device, &values)?, Array::<u32>::poisoned(device, count)?];
            for launch in 0..launches {
                let (x, y) = (&arrays[launch % 2], &arrays[(launch + 1) % 2]);
                let grid = Grid::covering(count as u64, kernel.bounds.threads.into())?;
                // SAFETY: the arrays have the sizes that the kernel states.
                unsafe { device.launch(kernel, grid, (x.view_mut()?, y.view_mut()?, count as u32))? };
            }
            // An odd number of launches turns them round.
            let want: Vec<u32> = values.iter().rev().map(|value| value.wrapping_add(launches as u32)).collect();
            assert_same(&arrays[launches % 2].read()?, &want, kernel.name);
        }
        Ok(())
    }
}
