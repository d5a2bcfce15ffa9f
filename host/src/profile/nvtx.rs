//! Ranges for NVIDIA's tools, by the NVTX library where one is installed: Nsight Systems shows them beside the
//! kernels. The library is looked for once, at the first range.

use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

/// NVTX 3 as a library, and its predecessor, which came with toolkits before CUDA 13.
#[cfg(not(windows))]
const NAMES: &[&str] = &["libnvtx3interop.so.1", "libnvToolsExt.so.1"];
#[cfg(windows)]
const NAMES: &[&str] = &["nvToolsExt64_1.dll"];

struct Nvtx {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
    /// Where both are.
    _library: libloading::Library,
}

fn nvtx() -> Option<&'static Nvtx> {
    static NVTX: OnceLock<Option<Nvtx>> = OnceLock::new();
    NVTX.get_or_init(|| NAMES.iter().find_map(|name| open(name))).as_ref()
}

fn open(name: &str) -> Option<Nvtx> {
    // SAFETY: libraries of these names are NVIDIA's, whose initialisers have no preconditions and whose functions
    // have these types (nvToolsExt.h, `nvtxRangePushA` and `nvtxRangePop`).
    unsafe {
        let library = libloading::Library::new(name).ok()?;
        let push = *library.get(c"nvtxRangePushA".to_bytes_with_nul()).ok()?;
        let pop = *library.get(c"nvtxRangePop".to_bytes_with_nul()).ok()?;
        Some(Nvtx { push, pop, _library: library })
    }
}

/// A range of this thread, which ends when this is dropped.
pub struct Pushed(Option<&'static Nvtx>);

/// Begins a range inside those that this thread has open.
pub fn push(name: &str) -> Pushed {
    let nvtx = nvtx();
    if let Some(nvtx) = nvtx {
        let name = CString::new(name.replace('\0', " ")).unwrap_or_default();
        // SAFETY: a string that the library copies.
        unsafe { (nvtx.push)(name.as_ptr()) };
    }
    Pushed(nvtx)
}

impl Drop for Pushed {
    fn drop(&mut self) {
        if let Some(nvtx) = self.0 {
            // SAFETY: takes nothing; there is a range, which `push` began.
            unsafe { (nvtx.pop)() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_none() {
        assert!(open("libwarpwright-has-no-such-library.so").is_none());
        let outer = push("outer");
        drop(push("inner, with a \0 in it"));
        assert_eq!(outer.0.is_some(), nvtx().is_some());
    }
}
