//! Names and texts of the driver's error codes, with or without a driver.

use std::ffi::{CStr, c_char};
use std::ptr;

use crate::sys;
use crate::types::*;

/// The constant's name of an error code, such as `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn error_name(code: CUresult) -> String {
    describe(code, sys::cuGetErrorName).unwrap_or_else(|| match fallback(code) {
        Some((name, _)) => name.to_string_lossy().into_owned(),
        None => format!("CUDA_ERROR_{code}"),
    })
}

/// What an error code means, in the driver's words.
pub fn error_text(code: CUresult) -> String {
    describe(code, sys::cuGetErrorString).unwrap_or_else(|| match fallback(code) {
        Some((_, text)) => text.to_string_lossy().into_owned(),
        None => "the driver has no text for this code".into(),
    })
}

type Describe = unsafe fn(CUresult, *mut *const c_char) -> CUresult;

fn describe(code: CUresult, function: Describe) -> Option<String> {
    let mut text = ptr::null();
    // SAFETY: `text` is a valid place for the result.
    let status = unsafe { function(code, &mut text) };
    if status != CUDA_SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: on success the driver gives a string with a terminator that it never frees.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// The codes that can arise without a driver, or from one too old to know them.
fn fallback(code: CUresult) -> Option<(&'static CStr, &'static CStr)> {
    Some(match code {
        CUDA_SUCCESS => (c"CUDA_SUCCESS", c"no error"),
        CUDA_ERROR_OUT_OF_MEMORY => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        CUDA_ERROR_NO_DEVICE => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
        CUDA_ERROR_NOT_FOUND => (c"CUDA_ERROR_NOT_FOUND", c"the driver lacks this function"),
        CUDA_ERROR_UNKNOWN => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
        _ => return None,
    })
}

/// For `cust`, whose `Display` of an error fails, and so panics in `to_string`, unless this succeeds.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(code: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller passes a valid place for the result, as the driver demands.
    let status = unsafe { sys::cuGetErrorString(code, text) };
    if status != CUDA_SUCCESS {
        let words = fallback(code).map_or(c"no text for this error code", |(_, text)| text);
        // SAFETY: as above.
        unsafe { *text = words.as_ptr() };
    }
    CUDA_SUCCESS
}

/// A code as `cust_raw` can hold it: its enum knows the codes of CUDA 11, and a value outside of it would
/// be undefined behaviour.
#[inline]
pub(crate) fn known_to_cust(code: CUresult) -> CUresult {
    match code {
        0..=8 | 34 | 100..=102 | 200..=202 | 205..=224 | 300..=304 | 400 | 401 | 500 | 600 => code,
        700..=705 | 708..=720 | 800..=809 | 900..=911 => code,
        _ => CUDA_ERROR_UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_name_and_a_text() {
        assert_eq!(error_name(CUDA_ERROR_NO_DEVICE), "CUDA_ERROR_NO_DEVICE");
        assert_eq!(error_text(CUDA_ERROR_NO_DEVICE), "no CUDA-capable device is detected");
        assert_eq!(error_name(123_456), "CUDA_ERROR_123456");
        assert!(!error_text(123_456).is_empty());
    }

    #[test]
    fn codes_newer_than_cust_become_unknown() {
        for code in [0, 1, 2, 100, 218, 500, 719, 801, 900, 999] {
            assert_eq!(known_to_cust(code), code);
        }
        for code in [9, 36, 46, 203, 225, 402, 721, 912, 100_100] {
            assert_eq!(known_to_cust(code), CUDA_ERROR_UNKNOWN);
        }
    }
}
