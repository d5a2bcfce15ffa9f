//! From problem to launches.

use super::problem::Problem;
use super::{OP, Positions};
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::faults::ValueSlot;
use crate::launch::Grid;
use crate::ops::pointwise::with_float;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::divide::Divisor;
use cuda_std::kernel::Kernel;
use cuda_std::{Float, Global, warp};
use kernels_gpu::embedding::{
    self as kernels, FAULT_BITS, Lookup, Strips, Tokens, added, strips, token_kind,
};

/// Bytes of a row that words are for: a warp has one row, and with fewer most of its lanes would have none.
const LEAST_BYTES: usize = 128;
/// Columns of rows that windows are for: of shorter ones too many packs lie in two rows, or in more.
const LEAST_COLUMNS: usize = 128;
/// Blocks of packs that a multiprocessor has at a time, of threads that take few registers.
const BLOCKS_OF_PACKS: u32 = 16;
/// Units of a launch: kernels count in 31 bits.
const MOST_UNITS: usize = 1 << 30;

/// Computes y, which matches the problem; the tensors are those that it was made of.
pub fn run(
    problem: &Problem,
    tokens: &Tensor,
    wte: &Tensor,
    positions: Option<Positions>,
    y: &Tensor,
) -> Result<()> {
    let starts = problem.boundaries(OP, tokens, positions)?;
    if y.is_empty() {
        // No kernel reads the tokens; still they must be right.
        return launch_keys(OP, problem, tokens, None).map(drop);
    }
    with_float!(problem.dtype, T => typed::<T>(problem, tokens, starts.as_ref(), wte, positions, y))
}

fn typed<T>(
    problem: &Problem,
    tokens: &Tensor,
    starts: Option<&Tensor>,
    wte: &Tensor,
    positions: Option<Positions>,
    y: &Tensor,
) -> Result<()>
where
    T: Element
        + Float
        + kernels::lookup_packs::Instances
        + kernels::lookup_windows::Instances
        + kernels::lookup_words::Instances
        + kernels::lookup_elements::Instances,
{
    let device = tokens.device();
    let wte = wte.adopted(device, OP, "wte")?;
    let all = positions.map(|positions| positions.wpe.adopted(device, OP, "wpe")).transpose()?;
    // Positions begin with the first step's, so that kernels need not know the offset.
    let of_steps = match (positions, &all) {
        (Some(positions), Some(all)) => Some(all.narrow(0, positions.offset, problem.steps())?),
        _ => None,
    };
    let slot = token_slot(OP, problem, device)?;
    // SAFETY: words of tokens, of one or two each.
    let words = unsafe { Global::from_raw(tokens.raw_view()?) };
    let added = match (&all, starts) {
        (None, _) => added::NOTHING,
        (Some(_), None) => added::POSITIONS,
        (Some(_), Some(_)) => added::PACKED,
    };
    let starts = read::<u32>(starts)?;
    let (of_wte, of_y) = (wte.view::<T>()?, y.view_mut::<T>()?);
    let first_and_rows =
        [positions.map_or(0, |positions| positions.offset), all.as_ref().map_or(0, |all| all.shape()[0])];
    // Below: the operands match the problem, of which the pieces are; the grids cover these. Tensors are freed in the
    // order of their streams, which `adopted` has made wait for one another.
    match layout::<T>(problem, &wte, all.as_ref(), of_steps.as_ref(), y) {
        Layout::Windows => {
            let kernel = &kernels::lookup_windows::kernels::<T>()[added];
            let wpe = read::<T>(all.as_ref())?;
            // Elements for units.
            for piece in launches(problem, problem.cols, MOST_UNITS, T::PER_PACK, first_and_rows) {
                let per_block = kernel.bounds.threads as usize * T::PER_PACK;
                let grid = Grid::covering(u64::from(piece.lookup.units), per_block as u64)?;
                // SAFETY: as above.
                unsafe {
                    device.launch(kernel, grid, (words, starts, of_wte, wpe, of_y, slot.view(), piece))?
                };
            }
        }
        Layout::Words => {
            let kernels = kernels::lookup_words::kernels::<T>();
            let of_row = |words: usize| strips(problem.cols, words, T::PER_WORD);
            let serves = |kernel: &&Kernel<_>| {
                kernel.constant("WPE") == added && of_row(kernel.constant("WORDS")) == 1
            };
            let longest = |kernel: &&Kernel<_>| kernel.constant("WPE") == added;
            let kernel =
                kernels.iter().find(serves).or_else(|| kernels.iter().rfind(longest)).unwrap_or(&kernels[0]);
            let wpe = read::<T>(all.as_ref())?;
            let warps = u64::from(kernel.bounds.threads / warp::SIZE);
            for piece in launches(problem, of_row(kernel.constant("WORDS")), MOST_UNITS, 1, first_and_rows) {
                let grid = Grid::covering(u64::from(piece.lookup.units), warps)?;
                // SAFETY: as above.
                unsafe {
                    device.launch(kernel, grid, (words, starts, of_wte, wpe, of_y, slot.view(), piece))?
                };
            }
        }
        layout => {
            let packs = layout == Layout::Packs;
            let kernels: &'static [Kernel<kernels::lookup_packs::Args<T>>] = if packs {
                kernels::lookup_packs::kernels::<T>()
            } else {
                kernels::lookup_elements::kernels::<T>()
            };
            let (kernel, wpe) = (&kernels[added], read::<T>(of_steps.as_ref())?);
            let unit = if packs { T::PER_PACK } else { 1 };
            for piece in pieces(problem, problem.cols / unit, MOST_UNITS, 1) {
                let per_block = u64::from(kernel.bounds.threads) * kernel.constant("UNITS") as u64;
                let grid = Grid::covering(u64::from(piece.units), per_block)?;
                let piece = Lookup { early: if packs { early_blocks(device, grid) } else { 0 }, ..piece };
                // SAFETY: as above.
                unsafe {
                    device.launch(kernel, grid, (words, starts, of_wte, wpe, of_y, slot.view(), piece))?
                };
            }
        }
    }
    slot.finish()
}

/// How the operands lie.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    /// All rows begin and end with a pack, and their columns lie side by side.
    Packs,
    /// The tables and y begin with a pack, and their columns lie side by side.
    Windows,
    /// The tables and y begin with a word, and their columns lie side by side.
    Words,
    /// Anyhow.
    Elements,
}

/// `all` is the table of positions, `of_steps` its rows that are used.
fn layout<T: Float>(
    problem: &Problem,
    wte: &Tensor,
    all: Option<&Tensor>,
    of_steps: Option<&Tensor>,
    y: &Tensor,
) -> Layout {
    let aligned = |tensor: &Tensor| tensor.address().is_multiple_of(16);
    let in_words = |tensor: &Tensor| tensor.address().is_multiple_of(4);
    let dense = |[_, column]: [isize; 2]| column == 1;
    let whole = |[row, _]: [isize; 2]| row.unsigned_abs().is_multiple_of(T::PER_PACK);
    let (wte_strides, wpe_strides) = (problem.wte_strides, problem.wpe_strides);
    if !dense(wte_strides) || (all.is_some() && !dense(wpe_strides)) {
        return Layout::Elements;
    }
    let packs = aligned(y)
        && aligned(wte)
        && problem.cols.is_multiple_of(T::PER_PACK)
        && whole(wte_strides)
        && of_steps.is_none_or(|wpe| aligned(wpe) && whole(wpe_strides));
    // Words of 16-bit elements lie across two: more loads than packs take.
    let words = T::PER_WORD == 1
        && problem.cols * size_of::<T>() >= LEAST_BYTES
        && [y, wte].into_iter().chain(all).all(in_words);
    let windows = T::PER_WORD == 2
        && (LEAST_COLUMNS..=MOST_UNITS / T::PER_PACK).contains(&problem.cols)
        && [y, wte].into_iter().chain(all).all(aligned);
    match packs {
        true => Layout::Packs,
        false if words => Layout::Words,
        false if windows => Layout::Windows,
        false => Layout::Elements,
    }
}

/// The tokens, for a kernel.
pub fn token_params(problem: &Problem) -> Tokens {
    let [(_, sequence), (steps, step)] = problem.tokens;
    Tokens {
        sequence: sequence as i64,
        step: step as i64,
        vocabulary: problem.vocabulary as i64,
        steps: divisor(steps),
        kind: kind(problem.token_dtype),
    }
}

/// A word for the first token that has no row.
pub fn token_slot(op: &'static str, problem: &Problem, device: &Device) -> Result<ValueSlot> {
    let (rows, wider) = (0..=problem.vocabulary as i64 - 1, problem.token_dtype == DType::I64);
    device.clipped_value_slot(op, "tokens", rows, FAULT_BITS, wider)
}

/// The type of tokens or boundaries, for a kernel.
pub fn kind(dtype: DType) -> u32 {
    match dtype {
        DType::I64 => token_kind::I64,
        DType::I32 => token_kind::I32,
        _ => token_kind::U32,
    }
}

/// Blocks of a launch of packs that let rows come to L2 while they wait: those that find a place while the launch ahead ends, where launches start
/// early and there are enough blocks for that to matter; a few rows arrive as soon without. The checker has all of them do it.
fn early_blocks(device: &Device, grid: Grid) -> u32 {
    match device.info() {
        None => u32::MAX,
        Some(info) => {
            let at_once = info.sm_count * BLOCKS_OF_PACKS;
            if info.early_starts && grid.blocks[0] >= at_once { at_once } else { 0 }
        }
    }
}

/// The launches for rows of so many units: whole rows, at most `most` units or else as few rows as can be, and but for the last a
/// multiple of `together` rows.
fn pieces(problem: &Problem, per_row: usize, most: usize, together: usize) -> impl Iterator<Item = Lookup> {
    let tokens = problem.token_count();
    // A row that is longer has a launch of its own: its units are below 2^31 too.
    let step = (most / per_row / together).max(1) * together;
    let [wte_row, wte_column] = problem.wte_strides.map(|stride| stride as i64);
    let [wpe_row, wpe_column] = problem.wpe_strides.map(|stride| stride as i64);
    let params = token_params(problem);
    let follow = follow(&params, tokens);
    (0..tokens).step_by(step).map(move |first| {
        let count = step.min(tokens - first);
        let sectors = params.words_of(count as u32).div_ceil(kernels::SECTOR_WORDS) as u32;
        Lookup {
            tokens: params,
            wte_row,
            wte_column,
            wpe_row,
            wpe_column,
            first: first as u32,
            units: (count * per_row) as u32,
            per_row: divisor(per_row),
            sequences: problem.packed.map_or(0, |packed| packed.sequences as u32),
            positions: problem.packed.map_or(0, |packed| packed.most as u32),
            sectors: if follow { sectors } else { 0 },
            early: 0,
            unused: 0,
        }
    })
}

/// Whether so many tokens follow one another in memory.
fn follow(tokens: &Tokens, count: usize) -> bool {
    let steps = tokens.steps.value();
    tokens.step == 1 && (tokens.sequence == i64::from(steps) || count <= steps as usize)
}

/// Elements of wte and of wpe, counted to the end of their last rows, and where the first step's row is in wpe. `of_steps` is that
/// row's number and the rows of the table of positions.
fn table_ends(problem: &Problem, [offset, rows]: [usize; 2]) -> [i64; 3] {
    let len = |rows: usize, [row, _]: [isize; 2]| {
        rows.checked_sub(1).map_or(0, |last| (last as isize * row) as i64 + problem.cols as i64)
    };
    [
        len(problem.vocabulary, problem.wte_strides),
        len(rows, problem.wpe_strides),
        offset as i64 * problem.wpe_strides[0] as i64,
    ]
}

/// As [`pieces`], with the ends of the tables; `of_steps` as in [`table_ends`].
fn launches(
    problem: &Problem,
    per_row: usize,
    most: usize,
    together: usize,
    of_steps: [usize; 2],
) -> impl Iterator<Item = Strips> {
    let [wte_len, wpe_len, wpe_first] = table_ends(problem, of_steps);
    let cols = problem.cols as u32;
    pieces(problem, per_row, most, together).map(move |lookup| Strips {
        lookup,
        wte_len,
        wpe_len,
        wpe_first,
        cols,
        unused: 0,
    })
}

/// The divisor for a number from 1 to below 2^31.
pub fn divisor(number: usize) -> Divisor {
    u32::try_from(number).ok().and_then(Divisor::new).expect("`Problem` has checked the numbers")
}

/// The tokens as keys, those without a row as V; and the check of them. The rows that they choose become 1 in `marks`.
pub fn launch_keys(
    op: &'static str,
    problem: &Problem,
    tokens: &Tensor,
    marks: Option<&Tensor>,
) -> Result<Tensor> {
    let (device, count) = (tokens.device(), problem.token_count());
    let keys = Tensor::uninit(device, DType::U32, &[count])?;
    if count == 0 {
        return Ok(keys);
    }
    let kernel = &kernels::make_keys::ALL[0];
    let grid = Grid::covering(count as u64, u64::from(kernel.bounds.threads))?;
    let slot = token_slot(op, problem, device)?;
    let marking = u32::from(marks.is_some());
    // SAFETY: words of tokens, of one or two each; the grid covers them. Memory is freed in the order of the stream.
    unsafe {
        let words = Global::from_raw(tokens.raw_view()?);
        let (marks, params) = (write::<u32>(marks)?, token_params(problem));
        let args = (words, keys.view_mut::<u32>()?, marks, slot.view(), count as u32, marking, params);
        device.launch(kernel, grid, args)?;
    }
    slot.finish()?;
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Desc;

    fn problem(tokens: &[usize], wte: &[usize]) -> Problem {
        let desc = |dtype, shape: &[usize]| Desc::new(&Device::cpu(), dtype, shape).unwrap();
        let (tokens, wte) = (desc(DType::I32, tokens), desc(DType::BF16, wte));
        Problem::new::<Desc>(OP, &tokens, &wte, None).unwrap()
    }

    #[test]
    fn pieces_are_whole_rows_in_order() {
        let problem = problem(&[3, 5], &[7, 24]);
        for (unit, most) in [(8, 1 << 30), (8, 6), (8, 7), (1, 100), (1, 24), (1, 1)] {
            let per_row = 24 / unit;
            let mut next = 0;
            for piece in pieces(&problem, per_row, most, 1) {
                assert_eq!((piece.first, piece.per_row.value()), (next, per_row as u32));
                assert!(piece.units as usize <= most.max(per_row) && piece.units > 0);
                assert!((piece.units as usize).is_multiple_of(per_row));
                next += piece.units / per_row as u32;
            }
            assert_eq!(next, 15, "{unit} {most}");
        }
    }

    #[test]
    fn strips_cover_their_rows_and_know_where_their_tables_end() {
        let problem = problem(&[3, 5], &[7, 1003]);
        for (most, strips) in [(1 << 30, 2), (7, 2), (1, 2)] {
            let mut next = 0;
            for piece in launches(&problem, 2, most, 1, [2, 9]) {
                assert_eq!(
                    (piece.lookup.first, piece.lookup.per_row.value(), piece.cols),
                    (next, strips, 1003)
                );
                assert!(piece.lookup.units.is_multiple_of(strips) && piece.lookup.units > 0);
                assert_eq!((piece.wte_len, piece.wpe_len, piece.wpe_first), (7 * 1003, 1003, 0));
                next += piece.lookup.units / strips;
            }
            assert_eq!(next, 15, "{most}");
        }
    }

    #[test]
    fn launches_of_windows_begin_with_packs() {
        let problem = problem(&[3, 9], &[7, 1003]);
        for (most, rows) in
            [(1 << 30, vec![27]), (9000, vec![8, 8, 8, 3]), (17_000, vec![16, 11]), (1, vec![8, 8, 8, 3])]
        {
            let launches = launches(&problem, 1003, most, 8, [2, 9]);
            let got: Vec<u32> = launches.map(|piece| piece.lookup.units / 1003).collect();
            assert_eq!(got, rows, "{most}");
        }
    }

    /// 2^30 tokens of 768 columns: elements past 2^39, of which each launch counts less than 2^31.
    #[test]
    fn results_past_2_to_the_31_take_launches_that_count_in_31_bits() {
        let problem = problem(&[1 << 20, 1 << 10], &[50257, 768]);
        let launches: Vec<Lookup> = pieces(&problem, 96, MOST_UNITS, 1).collect();
        assert_eq!(launches.len(), 97);
        let last = launches.last().unwrap();
        assert_eq!(last.first as usize + (last.units / 96) as usize, 1 << 30);
        // A row alone is one launch, whatever its length.
        let wide = self::problem(&[2], &[1, (1 << 31) - 1]);
        let units: Vec<u32> = pieces(&wide, (1 << 31) - 1, MOST_UNITS, 1).map(|piece| piece.units).collect();
        assert_eq!(units, [(1 << 31) - 1; 2]);
    }
}
