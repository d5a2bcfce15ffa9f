//! Typed handles: what `#[kernel]` leaves on the host for each entry point.
//!
//! The host crate launches through handles only, so a wrong number or type of arguments does not
//! compile, and there are no kernel names as strings.

use crate::global::{Global, GlobalMut};

/// The block size and occupancy that an entry point was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchBounds {
    /// Threads of a block; launches must use exactly this many (`.reqntid`).
    pub threads: u32,
    /// Blocks that an SM should hold, which limits the registers; 0 leaves it to the compiler.
    pub min_blocks: u32,
}

/// One entry point: its name in the PTX, what it was compiled for, and the same function on the CPU.
pub struct Kernel<A: 'static> {
    /// The entry's name.
    pub name: &'static str,
    /// The PTX family that holds it.
    pub family: &'static str,
    /// Block size and occupancy.
    pub bounds: LaunchBounds,
    /// Whether the entry is in the PTX for sm_90a only.
    pub requires_sm_90a: bool,
    /// The const generics of this instance, by name.
    pub consts: &'static [(&'static str, usize)],
    /// Runs the kernel's body as one thread of a checked launch.
    ///
    /// # Safety
    /// As the kernel's own.
    pub body: unsafe fn(A),
}

impl<A> Clone for Kernel<A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<A> Copy for Kernel<A> {}

impl<A> core::fmt::Debug for Kernel<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).field("bounds", &self.bounds).finish()
    }
}

impl<A> Kernel<A> {
    /// The const generic called `name`.
    pub const fn constant(&self, name: &str) -> usize {
        let mut i = 0;
        while i < self.consts.len() {
            let (key, value) = self.consts[i];
            if same(key, name) {
                return value;
            }
            i += 1;
        }
        panic!("the kernel has no constant of this name")
    }
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Kernel parameters packed as the driver wants them: each at its natural alignment.
#[derive(Clone, Copy, Debug)]
pub struct ArgBuffer {
    bytes: [u64; ArgBuffer::CAPACITY / 8],
    length: usize,
}

impl ArgBuffer {
    /// Most bytes of parameters; CUDA allows 4096.
    pub const CAPACITY: usize = 1024;

    /// No parameters yet.
    pub const fn new() -> Self {
        ArgBuffer { bytes: [0; Self::CAPACITY / 8], length: 0 }
    }

    /// Appends a parameter.
    ///
    /// # Panics
    /// Where the parameters do not fit, which depends on the kernel's signature alone.
    pub fn push(&mut self, bytes: &[u8], align: usize) {
        let start = self.length.next_multiple_of(align);
        assert!(start + bytes.len() <= Self::CAPACITY, "kernel parameters exceed {} bytes", Self::CAPACITY);
        // SAFETY: in bounds by the assertion; u64 storage is valid for any bytes.
        unsafe {
            let base = self.bytes.as_mut_ptr().cast::<u8>();
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(start), bytes.len());
        }
        self.length = start + bytes.len();
    }

    /// The packed parameters.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes are within the buffer and initialised.
        unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.length) }
    }
}

impl Default for ArgBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// A type that a kernel takes as a parameter.
///
/// # Safety
/// `push` must append exactly the bytes that the type has on the GPU, at its alignment there.
pub unsafe trait KernelArg: Copy + Send + Sync + 'static {
    /// Appends the parameter.
    fn push(self, buffer: &mut ArgBuffer);

    /// Bytes of memory behind the parameter, from where a view begins to the end of its allocation; 0 for numbers.
    fn operand_bytes(&self) -> u64 {
        0
    }
}

macro_rules! view_arg {
    ($($view:ident),*) => {$(
        // SAFETY: a view is a 64-bit address on the GPU.
        unsafe impl<T: Copy + 'static> KernelArg for $view<T> {
            fn push(self, buffer: &mut ArgBuffer) {
                buffer.push(&self.address().to_ne_bytes(), 8);
            }

            #[cfg(not(target_arch = "nvptx64"))]
            fn operand_bytes(&self) -> u64 {
                self.raw().bytes() as u64
            }
        }
    )*};
}
view_arg!(Global, GlobalMut);

macro_rules! scalar_arg {
    ($($ty:ty),*) => {$(
        // SAFETY: the same bytes on both sides.
        unsafe impl KernelArg for $ty {
            fn push(self, buffer: &mut ArgBuffer) {
                buffer.push(&self.to_ne_bytes(), align_of::<$ty>());
            }
        }
    )*};
}
scalar_arg!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// Lets a `#[repr(C)]` struct of plain numbers be a kernel parameter.
#[macro_export]
macro_rules! plain_parameter {
    ($ty:ty) => {
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: a `repr(C)` struct of numbers has the same layout on both sides (both are
        // little-endian, with natural alignment up to 8 bytes).
        unsafe impl $crate::kernel::KernelArg for $ty {
            fn push(self, buffer: &mut $crate::kernel::ArgBuffer) {
                const { assert!(align_of::<$ty>() <= 8) };
                let first = (&raw const self).cast::<u8>();
                // SAFETY: the value is initialised; padding bytes are never looked at by the kernel.
                let bytes = unsafe { core::slice::from_raw_parts(first, size_of::<$ty>()) };
                buffer.push(bytes, align_of::<$ty>());
            }
        }
    };
}

/// The parameters of a kernel, as a tuple.
pub trait KernelArgs: Copy + Send + Sync + 'static {
    /// Packs them in order.
    fn pack(self) -> ArgBuffer;

    /// The sum of [`KernelArg::operand_bytes`].
    fn operand_bytes(&self) -> u64;
}

macro_rules! tuple_args {
    ($($name:ident)*) => {
        impl<$($name: KernelArg),*> KernelArgs for ($($name,)*) {
            #[allow(non_snake_case, unused_mut)]
            fn pack(self) -> ArgBuffer {
                let ($($name,)*) = self;
                let mut buffer = ArgBuffer::new();
                $($name.push(&mut buffer);)*
                buffer
            }

            #[allow(non_snake_case)]
            fn operand_bytes(&self) -> u64 {
                let ($($name,)*) = self;
                0 $(+ $name.operand_bytes())*
            }
        }
    };
}
tuple_args!();
tuple_args!(A);
tuple_args!(A B);
tuple_args!(A B C);
tuple_args!(A B C D);
tuple_args!(A B C D E);
tuple_args!(A B C D E F);
tuple_args!(A B C D E F G);
tuple_args!(A B C D E F G H);
tuple_args!(A B C D E F G H I);
tuple_args!(A B C D E F G H I J);
tuple_args!(A B C D E F G H I J K);
tuple_args!(A B C D E F G H I J K L);
tuple_args!(A B C D E F G H I J K L M);
tuple_args!(A B C D E F G H I J K L M N);
tuple_args!(A B C D E F G H I J K L M N O);
tuple_args!(A B C D E F G H I J K L M N O P);
tuple_args!(A B C D E F G H I J K L M N O P Q);
tuple_args!(A B C D E F G H I J K L M N O P Q R);
tuple_args!(A B C D E F G H I J K L M N O P Q R S);
