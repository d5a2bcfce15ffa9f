//! Copies of boxes of a tensor between global and shared memory, by the unit that knows its shape from a map:
//! `cp.async.bulk.tensor`, the tensor memory accelerator; and of bytes to other blocks of a cluster.
//!
//! A load happens when somebody waits for its barrier, on behalf of the thread that issued it: what that thread did not
//! wait for races with it, and what reads the box without waiting for the barrier finds nothing, or races, too. A store
//! reads the box when the thread waits for it; whoever has written there since it was issued is in a race with it. It
//! wants every write to the box to have a proxy fence behind it.

use std::collections::VecDeque;
use std::panic::Location;

use crate::ctx::{At, Block, Ctx, FULL, Lane, Warp, ctx};
use crate::fault::{fault, other_of_word};
use crate::mbarrier::{self, Post};
use crate::memory::View;
use crate::race::Space;
use crate::report::Kind;
use crate::shared::{SharedView, living};

/// Dimensions of a tensor, the innermost first.
pub const RANK: usize = 4;
/// Bytes of a swizzled line, of a piece that stays whole, and what boxes are aligned to.
const LINE: usize = 128;
const PIECE: usize = 16;

/// What a tensor map holds: a tensor of elements of 2 or 4 bytes, and the box that is copied at a time, in lines of at
/// most 128 bytes whose 16-byte pieces are permuted by the number of the line's 128 bytes among eight.
#[derive(Clone, Copy, Debug)]
pub struct TensorMap {
    /// The tensor's bytes.
    pub data: View<u8>,
    /// Bytes of an element.
    pub element: usize,
    /// Elements along each dimension.
    pub extents: [u64; RANK],
    /// Bytes from one to the next; those of the innermost dimension are neighbours.
    pub strides: [u64; RANK],
    /// Elements of a box.
    pub boxed: [u32; RANK],
    /// Loads round elements, of 4 bytes, to tf32.
    pub tf32: bool,
}

/// The nearest number of 11 bits, the even one if there are two: as an H100 does it.
fn to_tf32(number: f32) -> f32 {
    let bits = number.to_bits();
    let odd = bits >> 13 & 1;
    if number.is_nan() { number } else { f32::from_bits((bits + 0xfff + odd) & !0x1fff) }
}

impl TensorMap {
    /// Bytes of a box.
    fn bytes(&self) -> usize {
        self.boxed.iter().product::<u32>() as usize * self.element
    }

    /// Calls `f` for each 16-byte piece of a box: its byte in the box, the byte of the tensor where it begins, and how
    /// many of its elements exist.
    fn pieces(&self, at: [i32; RANK], mut f: impl FnMut(usize, usize, usize)) {
        let [width, rows, depth, last] = self.boxed.map(|extent| extent as usize);
        let per_piece = PIECE / self.element;
        let place = |dim: usize, i: usize| i64::from(at[dim]) + i as i64;
        let exists = |dim: usize, i: i64| (0..self.extents[dim] as i64).contains(&i);
        for line in 0..rows * depth * last {
            let [y, z, w] = [line % rows, line / rows % depth, line / rows / depth];
            let outer = [place(1, y), place(2, z), place(3, w)];
            let inside = (0..3).all(|i| exists(i + 1, outer[i]));
            let start: i64 = (0..3).map(|i| outer[i] * self.strides[i + 1] as i64).sum();
            for piece in 0..width / per_piece {
                let x = place(0, piece * per_piece);
                let left = (self.extents[0] as i64 - x).clamp(0, per_piece as i64);
                let count = if inside && x >= 0 { left as usize } else { 0 };
                let from = if count > 0 { (start + x * self.element as i64) as usize } else { 0 };
                f(line * width * self.element + piece * PIECE, from, count);
            }
        }
    }

    /// What the hardware asks of a map and a box.
    fn check(&self, ctx: &Ctx, shared: SharedView<u8>, at: At) {
        let line = self.boxed[0] as usize * self.element;
        let misaligned = (!(self.data.ptr as usize).is_multiple_of(PIECE))
            .then(|| "the tensor's address".to_owned())
            .or_else(|| {
                let strides =
                    self.strides[1..].iter().find(|&&stride| !(stride as usize).is_multiple_of(PIECE));
                strides.map(|stride| format!("a stride of {stride} bytes"))
            });
        if let Some(what) = misaligned {
            fault(ctx, Kind::Misaligned, at, None, format!("{what} is no multiple of 16 bytes"));
        }
        if !(shared.byte_offset() as usize).is_multiple_of(LINE) {
            let detail = format!("byte {} of shared memory is no multiple of {LINE}", shared.byte_offset());
            fault(ctx, Kind::Misaligned, at, None, detail);
        }
        let boxed = self.boxed.iter().all(|&extent| (1..=256).contains(&extent));
        if !boxed || line > LINE || !line.is_multiple_of(PIECE) || self.extents.contains(&0) {
            let detail = format!("boxes of {:?} elements of a tensor of {:?}", self.boxed, self.extents);
            fault(ctx, Kind::LaunchLimit, at, None, detail);
        }
    }
}

/// Where byte `byte` of a box lies in shared memory, from the box's start on.
fn swizzled(shared: SharedView<u8>, byte: usize) -> usize {
    let start = shared.byte_offset() as usize;
    let linear = start + byte;
    (linear ^ ((linear / LINE % 8) * PIECE)) - start
}

/// Copies the box at these coordinates to shared memory, zeros for what is outside of the tensor, and counts its bytes
/// at the barrier.
///
/// # Safety
/// As for [`SharedView`] and [`View`].
#[track_caller]
pub unsafe fn load_box(
    to: SharedView<u8>,
    map: &TensorMap,
    coordinates: [i32; RANK],
    barrier: SharedView<u64>,
    index: usize,
) {
    let (ctx, at) = (ctx(), Location::caller());
    if ctx.stopping.get() {
        return;
    }
    map.check(ctx, to, at);
    let load = Load { to, map: *map, coordinates, at, lane: ctx.lane.get(), warp: ctx.warp.get() };
    mbarrier::expect_copy(barrier, index, load, at);
}

/// A load under way.
pub(crate) struct Load {
    to: SharedView<u8>,
    map: TensorMap,
    coordinates: [i32; RANK],
    at: At,
    lane: *const Lane,
    warp: *const Warp,
}

impl Load {
    pub(crate) fn bytes(&self) -> u32 {
        self.map.bytes() as u32
    }

    /// Who has started it.
    pub(crate) fn issuer(&self) -> (*const Lane, *const Warp) {
        (self.lane, self.warp)
    }

    /// Writes the box, as the running lane.
    pub(crate) fn land(&self) {
        let Load { to, map, at, .. } = self;
        map.pieces(self.coordinates, |byte, from, count| {
            let bytes = count * map.element;
            let mut piece = [0u8; PIECE];
            // SAFETY: the checker tests the accesses.
            unsafe {
                if bytes == PIECE && from.is_multiple_of(PIECE) {
                    piece = map.data.load_vector_at::<PIECE>(from, at);
                } else {
                    for i in (0..bytes).step_by(2) {
                        let half = map.data.load_vector_at::<2>(from + i, at);
                        piece[i..i + 2].copy_from_slice(&half);
                    }
                }
                if map.tf32 {
                    for word in piece.as_chunks_mut::<4>().0 {
                        *word = to_tf32(f32::from_ne_bytes(*word)).to_ne_bytes();
                    }
                }
                store_bulk(*to, swizzled(*to, byte), piece, at);
            }
        });
    }
}

/// Bytes under way to another block of the cluster.
pub(crate) struct Sent {
    /// The block that sends, from where, and what: all that it has at the time, which is to stay.
    rank: u32,
    from: SharedView<u8>,
    pieces: Vec<[u8; SENT]>,
    /// Shadow words of the last writers of the pieces.
    written: Vec<u64>,
    to: SharedView<u8>,
    at: At,
}

/// Bytes of a piece of these.
const SENT: usize = 8;

/// Copies bytes to a window of block `rank` of the cluster, and counts them at the same barrier there: `cp.async.bulk` from
/// shared memory to another block's. They land when a thread of that block waits for the barrier, as that thread's own stores. The
/// block that sends them must be there until then.
///
/// # Safety
/// As for [`SharedView`].
#[track_caller]
pub unsafe fn send(
    from: SharedView<u8>,
    to: SharedView<u8>,
    bytes: u32,
    rank: u32,
    barrier: SharedView<u64>,
    number: usize,
) {
    let (ctx, at) = (ctx(), Location::caller());
    if ctx.stopping.get() {
        return;
    }
    let places = [from.byte_offset(), to.byte_offset(), bytes];
    if let Some(odd) = places.into_iter().find(|place| !place.is_multiple_of(PIECE as u32)) {
        let detail = format!("a copy of {bytes} bytes between blocks: {odd} is no multiple of {PIECE}");
        fault(ctx, Kind::Misaligned, at, None, detail);
    }
    let places = (0..bytes as usize).step_by(SENT);
    // SAFETY: the checker tests the accesses.
    let pieces = places.clone().map(|place| unsafe { from.load_vector_at(place, at) }).collect();
    let checked = places.filter(|_| ctx.level.get() == FULL);
    let written: Vec<u64> = checked.map(|place| last_writer::<SENT>(ctx, ctx.block(), from, place)).collect();
    for (i, &word) in written.iter().enumerate() {
        if let Some(detail) = unfenced(ctx, word, from.byte_offset() as usize + i * SENT) {
            fault(ctx, Kind::InvalidAccess, at, Some(other_of_word(ctx, word)), detail);
        }
    }
    let sent = Sent { rank: crate::cluster_rank(), from, pieces, written, to, at };
    mbarrier::deliver(ctx, rank, Post::Bytes(sent), barrier, number);
}

impl Sent {
    pub(crate) fn at(&self) -> At {
        self.at
    }

    pub(crate) fn bytes(&self) -> u32 {
        (self.pieces.len() * SENT) as u32
    }

    /// Writes the bytes, as the running lane. The block that sends them must still be there, and have left them as they were.
    pub(crate) fn land(&self) {
        let (ctx, at) = (ctx(), self.at);
        let sender = living(ctx, self.rank, at);
        for (i, &piece) in self.pieces.iter().enumerate() {
            let place = i * SENT;
            if self
                .written
                .get(i)
                .is_some_and(|&word| word != last_writer::<SENT>(ctx, sender, self.from, place))
            {
                let offset = self.from.byte_offset() as usize + place;
                let detail =
                    format!("byte {offset} of shared memory was overwritten while it was being sent");
                fault(ctx, Kind::Race, at, None, detail);
            }
            // SAFETY: the checker tests the access.
            unsafe { store_bulk(self.to, place, piece, at) };
        }
    }
}

/// Writes a piece of what a copy brings, as the running lane, and marks it as such.
///
/// # Safety
/// As for [`SharedView`].
unsafe fn store_bulk<const N: usize>(to: SharedView<u8>, place: usize, piece: [u8; N], at: At) {
    let ctx = ctx();
    // SAFETY: the caller's contract.
    unsafe { to.store_vector_at(place, piece, at) };
    if ctx.level.get() == FULL {
        let shadow = ctx.block().arena.shadow(N.trailing_zeros(), ctx.time.get());
        shadow.mark_bulk(to.byte_offset() as usize + place, N);
    }
}

/// The shadow word of the last write to the piece of `N` bytes at `place` of a window of the block.
fn last_writer<const N: usize>(ctx: &Ctx, block: &Block, view: SharedView<u8>, place: usize) -> u64 {
    let shadow = block.arena.shadow(N.trailing_zeros(), ctx.time.get());
    shadow.last_writer(view.byte_offset() as usize + place)
}

struct Pending {
    from: SharedView<u8>,
    map: TensorMap,
    coordinates: [i32; RANK],
    at: At,
    /// Shadow words of the last writers of its pieces.
    written: Vec<u64>,
}

/// The stores of a thread that it has not waited for.
#[derive(Default)]
pub(crate) struct Stores {
    groups: VecDeque<Vec<Pending>>,
    open: Vec<Pending>,
}

fn with_stores<R>(use_them: impl FnOnce(&mut Stores) -> R) -> R {
    let ctx = ctx();
    ctx.warp().copied.set(true);
    use_them(ctx.lane().stores.borrow_mut().get_or_insert_with(Box::default))
}

/// Starts to copy the box in shared memory to these coordinates; what is beyond the tensor's end is dropped. A box that begins before
/// the tensor is refused: loads may, but a Hopper GPU takes such a store for an illegal instruction.
///
/// # Safety
/// As for [`SharedView`] and [`View`].
#[track_caller]
pub unsafe fn store_box(from: SharedView<u8>, map: &TensorMap, coordinates: [i32; RANK]) {
    let (ctx, at) = (ctx(), Location::caller());
    if !ctx.stopping.get() {
        map.check(ctx, from, at);
        if let Some((dim, begin)) = coordinates.iter().enumerate().find(|(_, begin)| **begin < 0) {
            let detail = format!("a box is stored from {begin} on along dimension {dim} of its tensor");
            fault(ctx, Kind::InvalidAccess, at, None, detail);
        }
        let pieces = if ctx.level.get() == FULL { map.bytes() / PIECE } else { 0 };
        let written = (0..pieces).map(|piece| writer_of_box(ctx, from, piece * PIECE)).collect();
        with_stores(|stores| stores.open.push(Pending { from, map: *map, coordinates, at, written }));
    }
}

/// Makes a group of the thread's stores since the last.
pub fn commit_stores() {
    with_stores(|stores| {
        let group = std::mem::take(&mut stores.open);
        stores.groups.push_back(group);
    });
}

/// Waits until at most the thread's last `pending` groups of stores are under way.
pub fn wait_stores(pending: usize) {
    let done = with_stores(|stores| {
        let count = stores.groups.len().saturating_sub(pending);
        stores.groups.drain(..count).flatten().collect::<Vec<_>>()
    });
    done.iter().for_each(Pending::land);
}

impl Pending {
    fn land(&self) {
        let (ctx, at, map) = (ctx(), self.at, &self.map);
        if ctx.stopping.get() {
            return;
        }
        map.pieces(self.coordinates, |byte, to, count| {
            let place = swizzled(self.from, byte);
            if count == 0 {
                return;
            }
            if ctx.level.get() == FULL {
                self.check_writers(ctx, byte);
            }
            // SAFETY: the checker tests the accesses.
            unsafe {
                let piece = self.from.load_vector_at::<PIECE>(place, at);
                let bytes = count * map.element;
                if bytes == PIECE && to.is_multiple_of(PIECE) {
                    map.data.store_vector_at(to, piece, at);
                } else {
                    for i in (0..bytes).step_by(2) {
                        map.data.store_vector_at(to + i, [piece[i], piece[i + 1]], at);
                    }
                }
            }
        });
    }

    /// The last write to a piece must be from before the store, with a fence of its warp behind it.
    fn check_writers(&self, ctx: &Ctx, byte: usize) {
        let word = writer_of_box(ctx, self.from, byte);
        let offset = self.from.byte_offset() as usize + swizzled(self.from, byte);
        if word != self.written[byte / PIECE] {
            let detail =
                format!("byte {offset} of shared memory was overwritten while a store of it was under way");
            fault(ctx, Kind::Race, self.at, Some(other_of_word(ctx, word)), detail);
        }
        if let Some(detail) = unfenced(ctx, word, offset) {
            fault(ctx, Kind::InvalidAccess, self.at, Some(other_of_word(ctx, word)), detail);
        }
    }
}

/// What is wrong where the byte at `offset` of shared memory, last written by `word`, is read by a bulk store or a warpgroup's
/// product: a write of this launch that has no proxy fence of its warp behind it, and was not a bulk copy's.
pub(crate) fn unfenced(ctx: &Ctx, word: u64, offset: usize) -> Option<String> {
    let (is_bulk, clock) = (word & crate::word::BULK != 0, crate::word::clock(word));
    if is_bulk || clock < ctx.base.get() || crate::word::block(word ^ ctx.word.get()) != 0 {
        return None;
    }
    let mut fenced = true;
    ctx.for_warps(ctx.block(), |warp| {
        if warp.index.get() == crate::word::thread(word) / 32 {
            fenced = warp.proxy_fence.get() >= clock;
        }
    });
    let detail = || format!("byte {offset} of shared memory was written without a proxy fence behind it");
    (!fenced).then(detail)
}

/// That of a piece of a box of the running lane's block.
fn writer_of_box(ctx: &Ctx, view: SharedView<u8>, byte: usize) -> u64 {
    last_writer::<PIECE>(ctx, ctx.block(), view, swizzled(view, byte))
}

/// Makes what the thread has written to shared memory visible to copies and products that are started behind the next
/// barrier: `fence.proxy.async`.
pub fn fence_proxy() {
    let ctx = ctx();
    let warp = ctx.warp();
    warp.proxy_fence.set(warp.clock.get());
    ctx.advance(warp, warp.clock.get() + 1);
}

/// A thread has ended: has it waited for its stores?
pub(crate) fn check_exit(ctx: &Ctx) {
    let stores = ctx.lane().stores.borrow();
    let pending = stores.iter().flat_map(|stores| stores.groups.iter().flatten().chain(&stores.open)).next();
    if let Some(store) = pending {
        let detail = "the thread ends before its stores from shared memory have read it".into();
        crate::fault::record(ctx, Kind::InvalidAccess, crate::site::Site::from(store.at), None, detail);
    }
}
