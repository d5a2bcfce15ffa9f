//! Opening the driver's library, and finding functions in it.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::types::{CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_FOUND, CUresult};

/// Tried in this order. The plain `libcuda.so` comes with the driver's development files; the paths are
/// where containers and WSL put the library without telling the loader.
#[cfg(not(windows))]
const NAMES: &[&str] =
    &["libcuda.so.1", "libcuda.so", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"];
#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];

pub(crate) struct Library {
    pub(crate) name: &'static str,
    handle: libloading::Library,
}

/// The library, opened by the first call and never closed: the driver runs threads of its own.
pub(crate) fn get() -> Result<&'static Library, &'static str> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(open).as_ref().map_err(String::as_str)
}

fn open() -> Result<Library, String> {
    let mut reason = None;
    for &name in NAMES {
        // SAFETY: loading runs the library's initialisers; a file of this name is NVIDIA's driver, whose
        // initialisers have no preconditions.
        match unsafe { libloading::Library::new(name) } {
            Ok(handle) => return Ok(Library { name, handle }),
            // The first name is the one that an installed driver has, so its error is the one to tell.
            Err(error) => reason = reason.or_else(|| Some(describe(name, &error))),
        }
    }
    Err(reason.unwrap_or_else(|| "no library name to try".into()))
}

/// The loader's own words are the error's source; they span lines on some systems.
fn describe(name: &str, error: &libloading::Error) -> String {
    let text =
        std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.contains(name) { text } else { format!("{name}: {text}") }
}

/// A driver function's name, and its address once it was looked up.
pub(crate) struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function's address, never null; else what the call has to return.
    #[inline]
    pub(crate) fn address(&self) -> Result<*mut c_void, CUresult> {
        let address = self.address.load(Ordering::Acquire);
        if address.is_null() { self.look_up() } else { Ok(address) }
    }

    #[cold]
    fn look_up(&self) -> Result<*mut c_void, CUresult> {
        let library = get().map_err(|_| CUDA_ERROR_NO_DEVICE)?;
        // SAFETY: the symbol is only read as an address here; `sys` gives it the type that the driver
        // documents for this name.
        let symbol = unsafe { library.handle.get::<*mut c_void>(self.name.to_bytes_with_nul()) };
        let address = symbol.map_or(ptr::null_mut(), |symbol| *symbol);
        if address.is_null() {
            return Err(CUDA_ERROR_NOT_FOUND);
        }
        // Threads that race here store the same address.
        self.address.store(address, Ordering::Release);
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_function_is_an_error_code() {
        static SYMBOL: Symbol = Symbol::new(c"cuNoSuchFunction");
        let expected = if get().is_ok() { CUDA_ERROR_NOT_FOUND } else { CUDA_ERROR_NO_DEVICE };
        assert_eq!(SYMBOL.address(), Err(expected));
    }

    #[test]
    fn the_reason_is_one_line() {
        if let Err(reason) = get() {
            assert!(reason.contains(NAMES[0]), "{reason}");
            assert!(!reason.contains('\n'), "{reason}");
        }
    }
}
