//! Matrix fragments of a warp: `ldmatrix` and `mma.sync`.
//!
//! Both are collectives of all 32 lanes. The last lane to arrive computes what every lane gets, from fragments
//! that it decodes as the PTX manual lays them out.

use crate::shared::SharedView;
use crate::warp::collective;

/// The 16 bytes that a lane names for `ldmatrix`: a row of eight 16-bit elements.
type Row = [u32; 4];

/// What the lanes of a warp bring to a collective, and what it gives them.
struct Meeting<I, O> {
    input: I,
    output: O,
}

/// A collective of the whole warp whose operands are more than two words: each lane brings the address of its
/// own, which stay where they are while it waits.
#[track_caller]
#[inline]
fn exchange<I: Copy, O: Copy, F>(name: &'static str, input: I, nothing: O) -> O
where
    F: Exchange<I, O>,
{
    let mut meeting = Meeting { input, output: nothing };
    let address = (&raw mut meeting).expose_provenance() as u64;
    collective(name, u32::MAX, [address, 0], |lanes, _, _| {
        let of =
            |lane: usize| std::ptr::with_exposed_provenance_mut::<Meeting<I, O>>(lanes[lane][0] as usize);
        // SAFETY: each lane waits in this collective, with its meeting on its stack, until it has been computed;
        // lanes of a warp run one at a time.
        let inputs: [I; 32] = std::array::from_fn(|lane| unsafe { (*of(lane)).input });
        for (lane, output) in F::compute(&inputs).into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { (*of(lane)).output = output };
        }
    });
    // SAFETY: a read of the own variable, which other lanes may have written.
    unsafe { (&raw const meeting.output).read_volatile() }
}

/// The lanes' results from the lanes' operands.
trait Exchange<I, O> {
    fn compute(inputs: &[I; 32]) -> [O; 32];
}

/// Loads one, two or four matrices of 8×8 elements of 16 bits: `ldmatrix.sync.aligned.m8n8`.
///
/// Lane 8·i + r names row r of matrix i by the byte offset of its 16 bytes; lanes beyond the matrices name
/// nothing. Word i of lane l holds elements 2·(l % 4) and 2·(l % 4) + 1 of row l / 4 of matrix i, or with `TRANSPOSED`
/// rows 2·(l % 4) and 2·(l % 4) + 1 of column l / 4. Words of matrices that are not loaded are 0.
///
/// # Safety
/// As for [`SharedView`].
#[track_caller]
#[inline]
pub unsafe fn load_matrices<const COUNT: usize, const TRANSPOSED: bool>(
    tile: SharedView<u8>,
    byte: usize,
) -> [u32; COUNT] {
    struct Load<const COUNT: usize, const TRANSPOSED: bool>;
    impl<const COUNT: usize, const TRANSPOSED: bool> Exchange<Row, [u32; COUNT]> for Load<COUNT, TRANSPOSED> {
        fn compute(rows: &[Row; 32]) -> [[u32; COUNT]; 32] {
            let element = |matrix: usize, row: usize, column: usize| {
                rows[8 * matrix + row][column / 2] >> (16 * (column % 2)) & 0xffff
            };
            std::array::from_fn(|lane| {
                let (own, pair) = (lane / 4, 2 * (lane % 4));
                std::array::from_fn(|matrix| match TRANSPOSED {
                    false => element(matrix, own, pair) | element(matrix, own, pair + 1) << 16,
                    true => element(matrix, pair, own) | element(matrix, pair + 1, own) << 16,
                })
            })
        }
    }
    const { assert!(COUNT == 1 || COUNT == 2 || COUNT == 4, "ldmatrix loads one, two or four matrices") };
    let row = if crate::thread::lane_id() < 8 * COUNT as u32 {
        // SAFETY: the caller's contract.
        let bytes = unsafe { tile.load_vector::<16>(byte) };
        std::array::from_fn(|word| u32::from_le_bytes(std::array::from_fn(|i| bytes[4 * word + i])))
    } else {
        [0; 4]
    };
    exchange::<Row, [u32; COUNT], Load<COUNT, TRANSPOSED>>("ldmatrix", row, [0; COUNT])
}

/// Stores four matrices of 8×8 elements of 16 bits: `stmatrix.sync.aligned.m8n8.x4`, the counterpart of
/// [`load_matrices`]. Lane 8·i + r names row r of matrix i by the byte offset of its 16 bytes; with `TRANSPOSED` (`.trans`) that is column r of
/// what the words hold.
///
/// # Safety
/// As for [`SharedView`].
#[track_caller]
#[inline]
pub unsafe fn store_matrices<const TRANSPOSED: bool>(tile: SharedView<u8>, byte: usize, words: [u32; 4]) {
    struct Store<const TRANSPOSED: bool>;
    impl<const TRANSPOSED: bool> Exchange<Row, Row> for Store<TRANSPOSED> {
        fn compute(words: &[Row; 32]) -> [Row; 32] {
            let element = |matrix: usize, row: usize, column: usize| {
                words[4 * row + column / 2][matrix] >> (16 * (column % 2)) & 0xffff
            };
            std::array::from_fn(|lane| {
                let (matrix, own) = (lane / 8, lane % 8);
                std::array::from_fn(|word| match TRANSPOSED {
                    false => words[4 * own + word][matrix],
                    true => element(matrix, 2 * word, own) | element(matrix, 2 * word + 1, own) << 16,
                })
            })
        }
    }
    let row = exchange::<Row, Row, Store<TRANSPOSED>>("stmatrix", words, [0; 4]);
    let bytes: [u8; 16] = std::array::from_fn(|i| row[i / 4].to_le_bytes()[i % 4]);
    // SAFETY: the caller's contract.
    unsafe { tile.store_vector::<16>(byte, bytes) }
}

/// How the 16-bit elements of a product are read.
pub trait Widen: 'static {
    /// The value of an element's bits.
    fn widen(bits: u16) -> f32;
}

/// The fragments of a product that a lane brings: of A four words, of B two, and of the sum four numbers.
type Operands = ([u32; 4], [u32; 2], [f32; 4]);

/// c + A·B for a 16×16 A and a 16×8 B of 16-bit elements: `mma.sync.aligned.m16n8k16.row.col` with sums in f32.
///
/// With g = lane / 4 and t = lane % 4, word w of `a` holds row g + 8·(w % 2), columns 2t + 8·(w / 2) and the next; word w of
/// `b` column g, rows 2t + 8·w and the next; number i of `c` row g + 8·(i / 2), column 2t + i % 2. Products are
/// exact and are added in f32, the lowest k first; the order and the rounding of hardware are its own.
#[track_caller]
#[inline]
pub fn multiply_16x8x16<T: Widen>(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    struct Multiply<T>(T);
    impl<T: Widen> Exchange<Operands, [f32; 4]> for Multiply<T> {
        fn compute(lanes: &[Operands; 32]) -> [[f32; 4]; 32] {
            let half = |word: u32, k: usize| T::widen((word >> (16 * (k % 2))) as u16);
            let mut a = [[0.0; 16]; 16];
            for (row, values) in a.iter_mut().enumerate() {
                for (k, value) in values.iter_mut().enumerate() {
                    let lane = 4 * (row % 8) + k % 8 / 2;
                    *value = half(lanes[lane].0[row / 8 + 2 * (k / 8)], k);
                }
            }
            let mut b = [[0.0; 16]; 8];
            for (column, values) in b.iter_mut().enumerate() {
                for (k, value) in values.iter_mut().enumerate() {
                    *value = half(lanes[4 * column + k % 8 / 2].1[k / 8], k);
                }
            }
            std::array::from_fn(|lane| {
                std::array::from_fn(|i| {
                    let (a, b) = (&a[lane / 4 + 8 * (i / 2)], &b[2 * (lane % 4) + i % 2]);
                    a.iter().zip(b).fold(lanes[lane].2[i], |sum, (a, b)| sum + a * b)
                })
            })
        }
    }
    exchange::<Operands, [f32; 4], Multiply<T>>("mma", (a, b, c), [0.0; 4])
}

/// c + A·B for a 16×8 A and an 8×8 B of f32, of which only the upper 19 bits count (tf32):
/// `mma.sync.aligned.m16n8k8.row.col` with sums in f32.
///
/// With g = lane / 4 and t = lane % 4, word w of `a` holds row g + 8·(w % 2), column t + 4·(w / 2); word w of `b` column g,
/// row t + 4·w; `c` is as in [`multiply_16x8x16`], and so are the additions.
#[track_caller]
#[inline]
pub fn multiply_16x8x8(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    struct Multiply;
    impl Exchange<Operands, [f32; 4]> for Multiply {
        fn compute(lanes: &[Operands; 32]) -> [[f32; 4]; 32] {
            let value = |word: u32| f32::from_bits(word & !0x1fff);
            let a = |row: usize, k: usize| value(lanes[4 * (row % 8) + k % 4].0[row / 8 + 2 * (k / 4)]);
            let b = |column: usize, k: usize| value(lanes[4 * column + k % 4].1[k / 4]);
            std::array::from_fn(|lane| {
                std::array::from_fn(|i| {
                    let (row, column) = (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2);
                    (0..8).fold(lanes[lane].2[i], |sum, k| sum + a(row, k) * b(column, k))
                })
            })
        }
    }
    exchange::<Operands, [f32; 4], Multiply>("mma", (a, b, c), [0.0; 4])
}
