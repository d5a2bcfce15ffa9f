//! Arrays of any plain type, for kernels that take other types than tensors have.

use std::marker::PhantomData;

use cuda_std::{Global, GlobalMut, bf16, f16};
use warpwright::{DType, Device, Result, Tensor};

use crate::POISON;

/// A number as its bytes.
pub trait Plain: Copy + 'static {
    /// Appends the bytes.
    fn write(self, bytes: &mut Vec<u8>);
    /// The number of these bytes.
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($ty:ty)*) => {$(
        impl Plain for $ty {
            fn write(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_ne_bytes());
            }
            fn read(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().expect("the bytes of one number"))
            }
        }
    )*};
}
plain!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 f16 bf16);

impl Plain for bool {
    fn write(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self));
    }
    /// # Panics
    /// For a byte that is no bool, such as one that nothing wrote.
    fn read(bytes: &[u8]) -> Self {
        match bytes {
            [0] => false,
            [1] => true,
            other => panic!("{other:02x?} is no bool"),
        }
    }
}

/// The bytes of numbers, one behind the other.
pub fn bytes<T: Plain>(numbers: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(numbers));
    numbers.iter().for_each(|number| number.write(&mut bytes));
    bytes
}

/// Numbers on a device.
pub struct Array<T> {
    bytes: Tensor,
    element: PhantomData<T>,
}

impl<T: Plain> Array<T> {
    /// An array of these numbers.
    pub fn new(device: &Device, numbers: &[T]) -> Result<Array<T>> {
        let bytes = bytes(numbers);
        let bytes = Tensor::from_bytes(device, DType::U8, &[bytes.len()], &bytes)?;
        Ok(Array { bytes, element: PhantomData })
    }

    /// An array whose every byte is 0xa5, for a kernel to write.
    pub fn poisoned(device: &Device, count: usize) -> Result<Array<T>> {
        let bytes = crate::poisoned(device, DType::U8, &[count * size_of::<T>()], POISON)?;
        Ok(Array { bytes, element: PhantomData })
    }

    /// For a kernel that reads.
    pub fn view(&self) -> Result<Global<T>> {
        // SAFETY: the array's bytes are numbers of this type, and allocations are aligned to 16 bytes.
        Ok(unsafe { Global::from_raw(self.bytes.raw_view()?) })
    }

    /// For a kernel that writes.
    pub fn view_mut(&self) -> Result<GlobalMut<T>> {
        // SAFETY: as in `view`.
        Ok(unsafe { GlobalMut::from_raw(self.bytes.raw_view()?) })
    }

    /// The numbers.
    pub fn read(&self) -> Result<Vec<T>> {
        Ok(self.bytes.to_bytes()?.chunks_exact(size_of::<T>()).map(T::read).collect())
    }

    /// The numbers at `indices`, of an array that need not have numbers elsewhere.
    pub fn read_at(&self, indices: impl IntoIterator<Item = usize>) -> Result<Vec<T>> {
        let (bytes, size) = (self.bytes.to_bytes()?, size_of::<T>());
        Ok(indices.into_iter().map(|index| T::read(&bytes[index * size..(index + 1) * size])).collect())
    }

    /// Whether element `index` has only bytes that nothing wrote.
    pub fn is_poison(&self, index: usize) -> Result<bool> {
        let size = size_of::<T>();
        Ok(self.bytes.to_bytes()?[index * size..(index + 1) * size].iter().all(|&byte| byte == POISON))
    }
}
