//! From a device back to the host.

use half::{bf16, f16};

use super::Tensor;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::shape::merge;
use crate::storage::out_of_memory;

impl Tensor {
    /// The elements in row-major order.
    ///
    /// Waits for the work given to the tensor's stream, and reports values that kernels found to be out of
    /// range. Bools may also be read as `u8`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let op = "Tensor::to_vec";
        self.expect_dtype::<T>(op)?;
        let bytes = self.read_bytes(op)?;
        let mut elements = Vec::new();
        reserve(&mut elements, self.len())?;
        // SAFETY: the bytes are elements of this type (bools are 0 or 1), and there is room for them.
        unsafe {
            let target: *mut T = elements.as_mut_ptr();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.cast(), bytes.len());
            elements.set_len(self.len());
        }
        Ok(elements)
    }

    /// The elements in row-major order as bytes, little-endian; bools are 0 or 1.
    ///
    /// Waits and reports as [`Tensor::to_vec`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.read_bytes("Tensor::to_bytes")
    }

    /// The elements in row-major order, widened; integers beyond 2^53 are rounded.
    ///
    /// Waits and reports as [`Tensor::to_vec`].
    ///
    /// # Errors
    /// [`DType`](Error::DType) for complex numbers.
    pub fn to_f64(&self) -> Result<Vec<f64>> {
        let op = "Tensor::to_f64";
        let bytes = self.read_bytes(op)?;
        fn widen<const N: usize>(bytes: &[u8], to_f64: impl Fn([u8; N]) -> f64) -> Vec<f64> {
            bytes.as_chunks().0.iter().map(|element| to_f64(*element)).collect()
        }
        Ok(match self.dtype() {
            DType::F32 => widen(&bytes, |b| f32::from_ne_bytes(b).into()),
            DType::F16 => widen(&bytes, |b| f16::from_ne_bytes(b).into()),
            DType::BF16 => widen(&bytes, |b| bf16::from_ne_bytes(b).into()),
            DType::F64 => widen(&bytes, f64::from_ne_bytes),
            DType::Bool | DType::U8 => widen(&bytes, |[b]| b.into()),
            DType::I8 => widen(&bytes, |b| i8::from_ne_bytes(b).into()),
            DType::F8E4M3 => widen(&bytes, |[b]| e4m3(b)),
            DType::F8E5M2 => widen(&bytes, |[b]| f16::from_bits(u16::from(b) << 8).into()),
            DType::F8E8M0 => widen(&bytes, |[b]| e8m0(b)),
            DType::I16 => widen(&bytes, |b| i16::from_ne_bytes(b).into()),
            DType::U16 => widen(&bytes, |b| u16::from_ne_bytes(b).into()),
            DType::I32 => widen(&bytes, |b| i32::from_ne_bytes(b).into()),
            DType::U32 => widen(&bytes, |b| u32::from_ne_bytes(b).into()),
            DType::I64 => widen(&bytes, |b| i64::from_ne_bytes(b) as f64),
            DType::U64 => widen(&bytes, |b| u64::from_ne_bytes(b) as f64),
            got @ (DType::C64 | DType::C128) => {
                return Err(Error::DType { op, arg: "tensor", required: "a real one".to_owned(), got });
            }
        })
    }

    fn read_bytes(&self, op: &'static str) -> Result<Vec<u8>> {
        self.device().refuse_capture(op)?;
        let range = self.storage_range();
        // What lies far apart is brought together where it is, since all in between would be copied, too.
        let spread = range.len() > SPREAD_BYTES && range.len() / 4 > self.desc.bytes();
        if self.device().is_cuda() && spread && self.strides().iter().all(|&stride| stride >= 0) {
            return crate::ops::contiguous(self)?.read_bytes(op);
        }
        let mut held = Vec::new();
        reserve(&mut held, range.len())?;
        held.resize(range.len(), 0);
        self.storage.read(range.start, &mut held, self.device())?;
        self.device().check_values()?;
        let mut bytes = match self.is_contiguous() {
            true => held,
            false => {
                let mut bytes = Vec::new();
                reserve(&mut bytes, self.desc.bytes())?;
                self.gather(&held, self.offset - range.start, &mut bytes);
                bytes
            }
        };
        if self.dtype() == DType::Bool {
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(bytes)
    }

    /// Appends the elements in row-major order; element 0 is at byte `first` of `held`.
    fn gather(&self, held: &[u8], first: usize, bytes: &mut Vec<u8>) {
        let size = self.dtype().size();
        let walk = merge(self.shape(), [self.strides()]);
        let (shape, [strides]) = (walk.shape, walk.strides);
        // The innermost dimension is copied at once where its elements are neighbours.
        let (outer, run) = match (shape.last(), strides.last()) {
            (Some(&extent), Some(1)) => (shape.len() - 1, extent * size),
            _ => (shape.len(), size),
        };
        let mut index = [0; crate::MAX_RANK];
        let mut at = first;
        loop {
            let Some(elements) = held.get(at..at + run) else { return };
            bytes.extend_from_slice(elements);
            // The next index, like an odometer.
            let Some(dim) = (0..outer).rev().find(|&dim| index[dim] + 1 < shape[dim]) else { return };
            index[dim] += 1;
            index[dim + 1..].fill(0);
            at = (0..outer)
                .fold(first, |at, dim| at.wrapping_add_signed((index[dim] * size) as isize * strides[dim]));
        }
    }
}

/// The value of a byte of [`DType::F8E4M3`].
fn e4m3(byte: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
    let size = match (exponent, byte & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa * (-9f64).exp2(),
        _ => (8.0 + mantissa) * f64::from(exponent - 10).exp2(),
    };
    if byte & 0x80 == 0 { size } else { -size }
}

/// The value of a byte of [`DType::F8E8M0`].
fn e8m0(byte: u8) -> f64 {
    if byte == u8::MAX { f64::NAN } else { f64::from(i16::from(byte) - 127).exp2() }
}

/// Bytes that are copied from a GPU sooner than a kernel is launched.
const SPREAD_BYTES: usize = 1 << 20;

/// Room for `len` elements, or an error instead of the end of the process.
fn reserve<T>(elements: &mut Vec<T>, len: usize) -> Result<()> {
    let bytes = len.saturating_mul(size_of::<T>());
    elements.try_reserve_exact(len).map_err(|_| out_of_memory("the host".into(), bytes))
}
