//! Encoding tensor maps, which the bulk copies of Hopper know a tensor by.

use std::ffi::c_void;

use cuda_driver::sys::{
    self, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, CU_TENSOR_MAP_INTERLEAVE_NONE,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_SWIZZLE_128B, CUtensorMap,
};

use super::status::check;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Dimensions of every map; those that a tensor lacks have one element.
pub const RANK: usize = 4;

/// A tensor and the box that is copied at a time, innermost dimension first, with lines of 128 bytes permuted.
#[derive(Clone, Copy, Debug)]
pub struct Tiled {
    /// The type of the elements, one that tensor cores multiply.
    pub dtype: DType,
    /// Where the first element is: a multiple of 16.
    pub address: u64,
    /// Elements along each dimension. Of a tensor that is stored to, lines are whole 16 bytes: an H100 writes the last ones as a whole,
    /// beyond the line's end.
    pub extents: [u64; RANK],
    /// Bytes from one to the next beyond the innermost dimension: multiples of 16 below 2^40.
    pub strides: [u64; RANK - 1],
    /// Elements of a box along each dimension, at most 256.
    pub boxed: [u32; RANK],
    /// Loads round elements of f32 to tf32.
    pub tf32: bool,
}

impl Tiled {
    /// The driver's form.
    pub fn encode(&self) -> Result<[u64; 16]> {
        let data_type = match self.dtype {
            DType::F16 => CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            DType::BF16 => CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            DType::F32 if self.tf32 => CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
            DType::F32 => CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            got => {
                let required = "f16, bf16 or f32".to_owned();
                return Err(Error::DType { op: "cuTensorMapEncodeTiled", arg: "tensor", required, got });
            }
        };
        let mut map = CUtensorMap::zeroed();
        let steps = [1u32; RANK];
        // SAFETY: the arrays have `RANK` elements, the strides one less; the driver checks the values and writes the map.
        let code = unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                data_type,
                RANK as u32,
                self.address as *mut c_void,
                self.extents.as_ptr(),
                self.strides.as_ptr(),
                self.boxed.as_ptr(),
                steps.as_ptr(),
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        check("cuTensorMapEncodeTiled", code)?;
        Ok(map.opaque)
    }
}
