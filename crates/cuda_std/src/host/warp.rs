use crate::warp::Reduce;

/// What the checker returns for a lane that the mask leaves out.
const POISON: u64 = 0xdead_beef_dead_beef;

/// An operation that a warp reduces by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Add,
    Max,
    Min,
}

impl Op {
    #[inline(always)]
    pub fn apply<T: Reduce>(self, a: T, b: T) -> T {
        match self {
            Op::Add => a.plus(b),
            Op::Max => a.larger(b),
            Op::Min => a.smaller(b),
        }
    }
}

pub fn lane_id() -> u32 {
    simt::lane_id()
}
#[inline(always)]
#[track_caller]
pub fn activemask() -> u32 {
    simt::active_mask()
}
#[inline(always)]
#[track_caller]
pub fn sync_warp(mask: u32) {
    simt::sync_warp(mask);
}

fn set_bits(mask: u32) -> impl Iterator<Item = usize> {
    (0..32usize).filter(move |lane| mask >> lane & 1 == 1)
}

#[inline(always)]
#[track_caller]
pub fn ballot(mask: u32, predicate: bool) -> u32 {
    simt::collective("vote.ballot", mask, [predicate as u64, 0], |lanes, mask, out| {
        let votes = set_bits(mask).fold(0, |votes, lane| votes | (lanes[lane][0] << lane));
        out.fill(votes);
    }) as u32
}

fn match_any(lanes: &[[u64; 2]; 32], mask: u32, out: &mut [u64; 32]) {
    for lane in set_bits(mask) {
        out[lane] = set_bits(mask)
            .filter(|&other| lanes[other][0] == lanes[lane][0])
            .fold(0, |found, other| found | 1 << other);
    }
}

#[inline(always)]
#[track_caller]
pub fn match_any_32(mask: u32, value: u32) -> u32 {
    simt::collective("match.any.b32", mask, [value as u64, 0], match_any) as u32
}
#[inline(always)]
#[track_caller]
pub fn match_any_64(mask: u32, value: u64) -> u32 {
    simt::collective("match.any.b64", mask, [value, 0], match_any) as u32
}

/// Each lane brings its value and the lane it reads from.
fn shuffle(lanes: &[[u64; 2]; 32], mask: u32, out: &mut [u64; 32]) {
    for lane in set_bits(mask) {
        let source = lanes[lane][1] as usize;
        out[lane] = if mask >> source & 1 == 1 { lanes[source][0] } else { POISON };
    }
}

/// First and last lane of this lane's segment, from PTX's control operand.
fn segment(control: u32) -> (u32, u32) {
    let mask = control >> 8;
    let first = lane_id() & mask;
    (first, first | (31 & !mask))
}

#[inline(always)]
#[track_caller]
pub fn shuffle_up(mask: u32, word: u32, delta: u32, control: u32) -> u32 {
    let (first, _) = segment(control);
    let source = lane_id().checked_sub(delta).filter(|&s| s >= first).unwrap_or(lane_id());
    simt::collective("shfl.up", mask, [word as u64, source as u64], shuffle) as u32
}
#[inline(always)]
#[track_caller]
pub fn shuffle_down(mask: u32, word: u32, delta: u32, control: u32) -> u32 {
    let (_, last) = segment(control);
    let source = if lane_id() + delta <= last { lane_id() + delta } else { lane_id() };
    simt::collective("shfl.down", mask, [word as u64, source as u64], shuffle) as u32
}
#[inline(always)]
#[track_caller]
pub fn shuffle_idx(mask: u32, word: u32, index: u32, control: u32) -> u32 {
    let (first, last) = segment(control);
    let source = (first | index).min(last);
    simt::collective("shfl.idx", mask, [word as u64, source as u64], shuffle) as u32
}
#[inline(always)]
#[track_caller]
pub fn shuffle_xor(mask: u32, word: u32, lane_mask: u32, control: u32) -> u32 {
    let (_, last) = segment(control);
    let source = if lane_id() ^ lane_mask <= last { lane_id() ^ lane_mask } else { lane_id() };
    simt::collective("shfl.bfly", mask, [word as u64, source as u64], shuffle) as u32
}

/// The same tree of operations as the GPU's five shuffles, as one event.
#[inline(always)]
#[track_caller]
pub fn butterfly<T: Reduce, const WIDTH: usize>(value: T, op: Op) -> T {
    fn tree<T: Reduce, const WIDTH: usize>(lanes: &[[u64; 2]; 32], op: Op, out: &mut [u64; 32]) {
        let mut values: [T; 32] = core::array::from_fn(|lane| from_bits(lanes[lane][0]));
        let mut distance = WIDTH / 2;
        while distance > 0 {
            let before = values;
            for lane in 0..32 {
                values[lane] = op.apply(before[lane], before[lane ^ distance]);
            }
            distance /= 2;
        }
        for (slot, value) in out.iter_mut().zip(values) {
            *slot = to_bits(value);
        }
    }
    let bits = [to_bits(value), 0];
    let full = crate::warp::FULL;
    let total = match op {
        Op::Add => simt::collective("reduce.add", full, bits, |l, _, out| tree::<T, WIDTH>(l, Op::Add, out)),
        Op::Max => simt::collective("reduce.max", full, bits, |l, _, out| tree::<T, WIDTH>(l, Op::Max, out)),
        Op::Min => simt::collective("reduce.min", full, bits, |l, _, out| tree::<T, WIDTH>(l, Op::Min, out)),
    };
    from_bits(total)
}

fn to_bits<T: Copy>(value: T) -> u64 {
    const { assert!(size_of::<T>() <= 8) };
    let mut bits = 0u64;
    // SAFETY: at most eight bytes, into a u64 of our own.
    unsafe { core::ptr::write((&raw mut bits).cast::<T>(), value) };
    bits
}

fn from_bits<T: Copy>(bits: u64) -> T {
    const { assert!(size_of::<T>() <= 8) };
    // SAFETY: the bits came from `to_bits` of the same type.
    unsafe { core::ptr::read((&raw const bits).cast::<T>()) }
}

fn bitwise(lanes: &[[u64; 2]; 32], mask: u32, out: &mut [u64; 32], op: fn(u64, u64) -> u64) {
    let total = set_bits(mask).map(|lane| lanes[lane][0]).reduce(op).unwrap_or(0);
    out.fill(total);
}

#[inline(always)]
#[track_caller]
pub fn reduce_and(mask: u32, value: u32) -> u32 {
    simt::collective("redux.and", mask, [value as u64, 0], |l, m, out| bitwise(l, m, out, |a, b| a & b))
        as u32
}
#[inline(always)]
#[track_caller]
pub fn reduce_or(mask: u32, value: u32) -> u32 {
    simt::collective("redux.or", mask, [value as u64, 0], |l, m, out| bitwise(l, m, out, |a, b| a | b)) as u32
}
#[inline(always)]
#[track_caller]
pub fn reduce_xor(mask: u32, value: u32) -> u32 {
    simt::collective("redux.xor", mask, [value as u64, 0], |l, m, out| bitwise(l, m, out, |a, b| a ^ b))
        as u32
}
