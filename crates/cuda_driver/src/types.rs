//! The types and constants of `cuda.h` that [`sys`](crate::sys) uses, under the header's names.

use std::ffi::c_void;

/// What every driver function returns: [`CUDA_SUCCESS`] or an error code.
pub type CUresult = u32;
/// A device, as `cuDeviceGet` gives it.
pub type CUdevice = i32;
/// An address in device memory.
pub type CUdeviceptr = u64;
/// A context.
pub type CUcontext = *mut c_void;
/// A loaded module.
pub type CUmodule = *mut c_void;
/// A kernel of a loaded module.
pub type CUfunction = *mut c_void;
/// A stream; null is the legacy default stream.
pub type CUstream = *mut c_void;
/// An event.
pub type CUevent = *mut c_void;
/// A graph that is being built.
pub type CUgraph = *mut c_void;
/// A graph that can be launched.
pub type CUgraphExec = *mut c_void;
/// A node of a graph.
pub type CUgraphNode = *mut c_void;
/// A memory pool.
pub type CUmemoryPool = *mut c_void;
/// The state of the device linker.
pub type CUlinkState = *mut c_void;
/// A CUDA array.
pub type CUarray = *mut c_void;
/// Imported external memory.
pub type CUexternalMemory = *mut c_void;
/// A texture object.
pub type CUtexObject = u64;
/// A surface object.
pub type CUsurfObject = u64;
/// A function that runs on the host in stream order.
pub type CUhostFn = Option<unsafe extern "C" fn(*mut c_void)>;
/// Gives the dynamic shared memory of a block of this many threads.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(i32) -> usize>;

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $value:expr;)*) => {$(
        $(#[$doc])*
        pub const $name: $ty = $value;
    )*};
}

constants! {
    /// No error.
    CUDA_SUCCESS: CUresult = 0;
    /// An argument is not acceptable.
    CUDA_ERROR_INVALID_VALUE: CUresult = 1;
    /// Not enough memory.
    CUDA_ERROR_OUT_OF_MEMORY: CUresult = 2;
    /// The library is the toolkit's stub, not a driver.
    CUDA_ERROR_STUB_LIBRARY: CUresult = 34;
    /// No GPU, or no driver.
    CUDA_ERROR_NO_DEVICE: CUresult = 100;
    /// Something named does not exist; here also a function that the driver lacks.
    CUDA_ERROR_NOT_FOUND: CUresult = 500;
    /// Asynchronous work has not finished.
    CUDA_ERROR_NOT_READY: CUresult = 600;
    /// The device or driver does not support the operation.
    CUDA_ERROR_NOT_SUPPORTED: CUresult = 801;
    /// An error without a code of its own.
    CUDA_ERROR_UNKNOWN: CUresult = 999;

    /// `CUdevice_attribute`: block size limit, in threads.
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: u32 = 1;
    /// `CUdevice_attribute`: block limit along x; y and z follow.
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: u32 = 2;
    /// `CUdevice_attribute`: grid limit along x; y and z follow.
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: u32 = 5;
    /// `CUdevice_attribute`: shared memory of a block after opting in.
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: u32 = 97;
    /// `CUdevice_attribute`: whether stream-ordered allocation works.
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: u32 = 115;

    /// `CUfunction_attribute`: block size limit of this kernel.
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: u32 = 0;
    /// `CUfunction_attribute`: static shared memory in bytes.
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: u32 = 1;
    /// `CUfunction_attribute`: local memory of a thread in bytes.
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: u32 = 3;
    /// `CUfunction_attribute`: registers of a thread.
    CU_FUNC_ATTRIBUTE_NUM_REGS: u32 = 4;
    /// `CUfunction_attribute`: limit of dynamic shared memory, settable.
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: u32 = 8;
    /// `CUfunction_attribute`: preferred part of L1 used as shared memory, settable.
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: u32 = 9;
    /// `CUfunction_attribute`: whether clusters of more than 8 blocks are allowed, settable.
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: u32 = 14;

    /// `extra` of a launch: end of the list.
    CU_LAUNCH_PARAM_END: *mut c_void = std::ptr::null_mut();
    /// `extra` of a launch: the packed arguments follow.
    CU_LAUNCH_PARAM_BUFFER_POINTER: *mut c_void = std::ptr::without_provenance_mut(1);
    /// `extra` of a launch: a pointer to the packed arguments' size follows.
    CU_LAUNCH_PARAM_BUFFER_SIZE: *mut c_void = std::ptr::without_provenance_mut(2);

    /// `CUlaunchAttributeID`: a grid whose blocks all run at once and can synchronise.
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE: u32 = 2;
    /// `CUlaunchAttributeID`: blocks of a cluster.
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: u32 = 4;
    /// `CUlaunchAttributeID`: the kernel may start before the one ahead of it has ended.
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;

    /// `CUjit_option`: where the informational log goes.
    CU_JIT_INFO_LOG_BUFFER: u32 = 3;
    /// `CUjit_option`: its size.
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: u32 = 4;
    /// `CUjit_option`: where the error log goes.
    CU_JIT_ERROR_LOG_BUFFER: u32 = 5;
    /// `CUjit_option`: its size.
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;

    /// `CUmemPool_attribute`: bytes that a pool keeps when it could give memory back (`u64`).
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: u32 = 4;

    /// `CUstream_flags`: a stream without implicit ordering against the legacy default stream.
    CU_STREAM_NON_BLOCKING: u32 = 1;
    /// `CUevent_flags`: an event without a time stamp, cheaper to record.
    CU_EVENT_DISABLE_TIMING: u32 = 2;
    /// `CUstreamCaptureMode`: no call is forbidden during the capture.
    CU_STREAM_CAPTURE_MODE_RELAXED: u32 = 2;
    /// `CUstreamCaptureStatus`: not capturing.
    CU_STREAM_CAPTURE_STATUS_NONE: u32 = 0;
    /// `CUstreamCaptureStatus`: capturing.
    CU_STREAM_CAPTURE_STATUS_ACTIVE: u32 = 1;
    /// `CUstreamCaptureStatus`: capturing, but something went wrong and the capture is lost.
    CU_STREAM_CAPTURE_STATUS_INVALIDATED: u32 = 2;

    /// `CUpointer_attribute`: host (1), device (2) or managed memory, as `u32`.
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE: u32 = 2;
    /// `CUpointer_attribute`: the device that holds the memory, as `i32`.
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: u32 = 9;

    /// `CUtensorMapDataType`: unsigned bytes.
    CU_TENSOR_MAP_DATA_TYPE_UINT8: u32 = 0;
    /// `CUtensorMapDataType`: IEEE half.
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16: u32 = 6;
    /// `CUtensorMapDataType`: IEEE single.
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32: u32 = 7;
    /// `CUtensorMapDataType`: bfloat16.
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: u32 = 9;
    /// `CUtensorMapDataType`: IEEE single, which loads round to tf32.
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: u32 = 11;
    /// `CUtensorMapInterleave`: none.
    CU_TENSOR_MAP_INTERLEAVE_NONE: u32 = 0;
    /// `CUtensorMapSwizzle`: none.
    CU_TENSOR_MAP_SWIZZLE_NONE: u32 = 0;
    /// `CUtensorMapSwizzle`: 32-byte span.
    CU_TENSOR_MAP_SWIZZLE_32B: u32 = 1;
    /// `CUtensorMapSwizzle`: 64-byte span.
    CU_TENSOR_MAP_SWIZZLE_64B: u32 = 2;
    /// `CUtensorMapSwizzle`: 128-byte span.
    CU_TENSOR_MAP_SWIZZLE_128B: u32 = 3;
    /// `CUtensorMapL2promotion`: none.
    CU_TENSOR_MAP_L2_PROMOTION_NONE: u32 = 0;
    /// `CUtensorMapL2promotion`: 128 bytes.
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B: u32 = 2;
    /// `CUtensorMapL2promotion`: 256 bytes.
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B: u32 = 3;
    /// `CUtensorMapFloatOOBfill`: zeros outside of the tensor.
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE: u32 = 0;
}

/// One attribute of a launch; the value is a union of 64 bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct CUlaunchAttribute {
    id: u32,
    pad: u32,
    value: [u32; 16],
}

impl CUlaunchAttribute {
    /// Clusters of this many blocks along x, y and z.
    pub const fn cluster([x, y, z]: [u32; 3]) -> Self {
        Self::new(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [x, y, z])
    }

    /// A grid whose blocks all run at once.
    pub const fn cooperative() -> Self {
        Self::new(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, [1, 0, 0])
    }

    /// A kernel that may start before the one ahead of it in the stream has ended.
    pub const fn programmatic_stream_serialization() -> Self {
        Self::new(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, [1, 0, 0])
    }

    const fn new(id: u32, [a, b, c]: [u32; 3]) -> Self {
        let mut value = [0; 16];
        value[0] = a;
        value[1] = b;
        value[2] = c;
        Self { id, pad: 0, value }
    }
}

/// A launch, for `cuLaunchKernelEx`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUlaunchConfig {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// The stream that the kernel runs in.
    pub stream: CUstream,
    /// The attributes; may be null when there are none.
    pub attributes: *mut CUlaunchAttribute,
    /// How many attributes there are.
    pub attribute_count: u32,
}

/// A tensor map: what the bulk tensor copy unit knows about a tensor in global memory.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUtensorMap {
    /// Filled by `cuTensorMapEncodeTiled`; the layout is the driver's own.
    pub opaque: [u64; 16],
}

impl CUtensorMap {
    /// A map to be filled in.
    pub const fn zeroed() -> Self {
        Self { opaque: [0; 16] }
    }
}

// The layout of `cuda.h` on 64-bit machines.
const _: () = {
    assert!(size_of::<CUlaunchAttribute>() == 72);
    assert!(std::mem::offset_of!(CUlaunchAttribute, value) == 8);
    assert!(size_of::<CUlaunchConfig>() == 56);
    assert!(std::mem::offset_of!(CUlaunchConfig, stream) == 32);
    assert!(size_of::<CUtensorMap>() == 128);
};
