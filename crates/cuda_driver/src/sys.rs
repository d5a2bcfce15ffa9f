//! The driver's functions, under the names and with the types of `cuda.h` (enums are `u32`, structures
//! that only `cust` fills are `c_void`).
//!
//! # Safety
//!
//! Each function has the preconditions that NVIDIA's driver API reference gives for it.

#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::ffi::{c_char, c_void};

use crate::library::Symbol;
pub use crate::types::*;

/// The table below: `link fn` is called by `cust` too, so a definition of its link name is emitted;
/// `only fn` is for callers of this module.
macro_rules! driver {
    ($($(#[$doc:meta])* $kind:ident fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {$(
        $(#[$doc])*
        #[inline]
        pub unsafe fn $name($($arg: $ty),*) -> CUresult {
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            static SYMBOL: Symbol = Symbol::new(NAME);
            type Function = unsafe extern "C" fn($($ty),*) -> CUresult;
            match SYMBOL.address() {
                // SAFETY: the driver's function of this name has this type; the caller meets its
                // preconditions.
                Ok(address) => unsafe {
                    std::mem::transmute::<*mut c_void, Function>(address)($($arg),*)
                },
                Err(code) => code,
            }
        }
        driver!(@$kind $name($($arg: $ty),*));
    )*};
    (@link $name:ident($($arg:ident: $ty:ty),*)) => {
        const _: () = {
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                // SAFETY: the caller's obligations are passed on.
                crate::error::known_to_cust(unsafe { crate::sys::$name($($arg),*) })
            }
        };
    };
    (@only $name:ident($($arg:ident: $ty:ty),*)) => {};
}

driver! {
    // Version and errors.

    /// Initialises the driver; to be called before anything else.
    link fn cuInit(flags: u32);
    /// The newest CUDA version that the driver supports, as 1000·major + 10·minor.
    link fn cuDriverGetVersion(driver_version: *mut i32);
    /// The text of an error code.
    only fn cuGetErrorString(code: CUresult, text: *mut *const c_char);
    /// The name of an error code.
    only fn cuGetErrorName(code: CUresult, text: *mut *const c_char);

    // Devices.

    /// The device of an ordinal.
    link fn cuDeviceGet(device: *mut CUdevice, ordinal: i32);
    /// An attribute of a device.
    link fn cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: CUdevice);
    /// The number of devices.
    link fn cuDeviceGetCount(count: *mut i32);
    /// The name of a device.
    link fn cuDeviceGetName(name: *mut c_char, len: i32, device: CUdevice);
    /// Releases a device's primary context.
    link fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    /// Destroys everything in a device's primary context.
    link fn cuDevicePrimaryCtxReset_v2(device: CUdevice);
    /// Retains a device's primary context.
    link fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    /// Sets the flags of a device's primary context.
    link fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: u32);
    /// The memory of a device in bytes.
    link fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    /// The pool that stream-ordered allocations come from by default.
    only fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);

    // Contexts.

    /// Creates a context that is not the primary one.
    link fn cuCtxCreate_v2(context: *mut CUcontext, flags: u32, device: CUdevice);
    /// Destroys such a context.
    link fn cuCtxDestroy_v2(context: CUcontext);
    /// The API version of a context.
    link fn cuCtxGetApiVersion(context: CUcontext, version: *mut u32);
    /// The cache preference of the current context.
    link fn cuCtxGetCacheConfig(config: *mut u32);
    /// The calling thread's current context, null for none.
    link fn cuCtxGetCurrent(context: *mut CUcontext);
    /// The device of the current context.
    link fn cuCtxGetDevice(device: *mut CUdevice);
    /// The flags of the current context.
    link fn cuCtxGetFlags(flags: *mut u32);
    /// A resource limit of the current context.
    link fn cuCtxGetLimit(value: *mut usize, limit: u32);
    /// The shared-memory bank size of the current context.
    link fn cuCtxGetSharedMemConfig(config: *mut u32);
    /// The range of stream priorities.
    link fn cuCtxGetStreamPriorityRange(least_priority: *mut i32, greatest_priority: *mut i32);
    /// Pops the calling thread's current context.
    link fn cuCtxPopCurrent_v2(context: *mut CUcontext);
    /// Pushes a context onto the calling thread's stack.
    link fn cuCtxPushCurrent_v2(context: CUcontext);
    /// Sets the cache preference of the current context.
    link fn cuCtxSetCacheConfig(config: u32);
    /// Makes a context current on the calling thread.
    link fn cuCtxSetCurrent(context: CUcontext);
    /// Sets a resource limit of the current context.
    link fn cuCtxSetLimit(limit: u32, value: usize);
    /// Sets the shared-memory bank size of the current context.
    link fn cuCtxSetSharedMemConfig(config: u32);
    /// Waits for all work of the current context.
    link fn cuCtxSynchronize();

    // Memory.

    /// Advises on managed memory.
    link fn cuMemAdvise(pointer: CUdeviceptr, count: usize, advice: u32, device: CUdevice);
    /// Allocates memory in stream order.
    link fn cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    /// Allocates page-locked host memory.
    link fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize);
    /// Allocates managed memory.
    link fn cuMemAllocManaged(pointer: *mut CUdeviceptr, bytes: usize, flags: u32);
    /// Allocates memory.
    link fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize);
    /// Frees memory in stream order.
    link fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream);
    /// Frees page-locked host memory.
    link fn cuMemFreeHost(pointer: *mut c_void);
    /// Frees memory.
    link fn cuMemFree_v2(pointer: CUdeviceptr);
    /// Free and total memory of the current device in bytes.
    link fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    /// Prefetches managed memory.
    link fn cuMemPrefetchAsync(pointer: CUdeviceptr, count: usize, dst: CUdevice, stream: CUstream);
    /// Copies a rectangle.
    link fn cuMemcpy2D_v2(copy: *const c_void);
    /// Copies from a CUDA array to the host.
    link fn cuMemcpyAtoH_v2(dst: *mut c_void, src_array: CUarray, src_offset: usize, bytes: usize);
    /// Copies within the device in stream order.
    link fn cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
    /// Copies within the device.
    link fn cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize);
    /// Copies to the host in stream order.
    link fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream);
    /// Copies to the host.
    link fn cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize);
    /// Copies from the host to a CUDA array.
    link fn cuMemcpyHtoA_v2(dst_array: CUarray, dst_offset: usize, src: *const c_void, bytes: usize);
    /// Copies to the device in stream order.
    link fn cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream);
    /// Copies to the device.
    link fn cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize);
    /// Sets 16-bit values in stream order.
    link fn cuMemsetD16Async(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream);
    /// Sets 16-bit values.
    link fn cuMemsetD16_v2(dst: CUdeviceptr, value: u16, count: usize);
    /// Sets 32-bit values in stream order.
    link fn cuMemsetD32Async(dst: CUdeviceptr, value: u32, count: usize, stream: CUstream);
    /// Sets 32-bit values.
    link fn cuMemsetD32_v2(dst: CUdeviceptr, value: u32, count: usize);
    /// Sets bytes in stream order.
    link fn cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    /// Sets bytes.
    link fn cuMemsetD8_v2(dst: CUdeviceptr, value: u8, count: usize);
    /// Sets an attribute of a pool.
    only fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: u32, value: *mut c_void);
    /// Gives a pool's free memory back, down to `keep` bytes.
    only fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
    /// Copies between two contexts in stream order.
    only fn cuMemcpyPeerAsync(
        dst: CUdeviceptr,
        dst_context: CUcontext,
        src: CUdeviceptr,
        src_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    );
    /// Asks what is known of an address.
    only fn cuPointerGetAttribute(data: *mut c_void, attribute: u32, pointer: CUdeviceptr);
    /// Creates a CUDA array.
    link fn cuArray3DCreate_v2(array: *mut CUarray, p_allocate_array: *const c_void);
    /// The shape of a CUDA array.
    link fn cuArray3DGetDescriptor_v2(p_array_descriptor: *mut c_void, array: CUarray);
    /// Destroys a CUDA array.
    link fn cuArrayDestroy(array: CUarray);

    // Streams and events.

    /// Creates a stream with a priority.
    link fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: u32, priority: i32);
    /// Destroys a stream once its work has finished.
    link fn cuStreamDestroy_v2(stream: CUstream);
    /// The flags of a stream.
    link fn cuStreamGetFlags(stream: CUstream, flags: *mut u32);
    /// The priority of a stream.
    link fn cuStreamGetPriority(stream: CUstream, priority: *mut i32);
    /// Waits for all work of a stream.
    link fn cuStreamSynchronize(stream: CUstream);
    /// Makes a stream wait for an event.
    link fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32);
    /// Creates a stream.
    only fn cuStreamCreate(stream: *mut CUstream, flags: u32);
    /// Whether all work of a stream has finished.
    only fn cuStreamQuery(stream: CUstream);
    /// Begins to record a stream's work in a graph.
    only fn cuStreamBeginCapture_v2(stream: CUstream, mode: u32);
    /// Ends a capture and gives the graph, null if the capture was lost.
    only fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    /// Whether a stream is capturing.
    only fn cuStreamIsCapturing(stream: CUstream, status: *mut u32);
    /// Whether a stream is capturing, and the number of that capture.
    only fn cuStreamGetCaptureInfo_v2(
        stream: CUstream,
        status: *mut u32,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        dependency_count: *mut usize,
    );
    /// Creates an event.
    link fn cuEventCreate(event: *mut CUevent, flags: u32);
    /// Destroys an event.
    link fn cuEventDestroy_v2(event: CUevent);
    /// Milliseconds between two recorded events.
    link fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    /// Whether an event's work has finished.
    link fn cuEventQuery(event: CUevent);
    /// Records an event in a stream.
    link fn cuEventRecord(event: CUevent, stream: CUstream);
    /// Waits for an event's work.
    link fn cuEventSynchronize(event: CUevent);
    /// Swaps which calls captures forbid to this thread.
    only fn cuThreadExchangeStreamCaptureMode(mode: *mut u32);
    /// Calls a host function in stream order.
    link fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, user_data: *mut c_void);

    // Modules and kernels.

    /// A kernel of a module.
    link fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    /// A global variable of a module.
    link fn cuModuleGetGlobal_v2(
        pointer: *mut CUdeviceptr,
        bytes: *mut usize,
        module: CUmodule,
        name: *const c_char,
    );
    /// Loads a module from a file.
    link fn cuModuleLoad(module: *mut CUmodule, file: *const c_char);
    /// Loads a module from memory.
    link fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    /// Loads a module from memory, with options for the compiler.
    link fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        num_options: u32,
        options: *mut u32,
        option_values: *mut *mut c_void,
    );
    /// Unloads a module.
    link fn cuModuleUnload(module: CUmodule);
    /// Adds an image to a link.
    link fn cuLinkAddData_v2(
        state: CUlinkState,
        kind: u32,
        data: *mut c_void,
        size: usize,
        name: *const c_char,
        num_options: u32,
        options: *mut u32,
        option_values: *mut *mut c_void,
    );
    /// Completes a link.
    link fn cuLinkComplete(state: CUlinkState, cubin_out: *mut *mut c_void, size_out: *mut usize);
    /// Begins a link.
    link fn cuLinkCreate_v2(
        num_options: u32,
        options: *mut u32,
        option_values: *mut *mut c_void,
        state_out: *mut CUlinkState,
    );
    /// Destroys a link's state.
    link fn cuLinkDestroy(state: CUlinkState);
    /// An attribute of a kernel.
    link fn cuFuncGetAttribute(value: *mut i32, attribute: u32, function: CUfunction);
    /// Sets the cache preference of a kernel.
    link fn cuFuncSetCacheConfig(function: CUfunction, config: u32);
    /// Sets the shared-memory bank size of a kernel.
    link fn cuFuncSetSharedMemConfig(function: CUfunction, config: u32);
    /// Sets an attribute of a kernel.
    only fn cuFuncSetAttribute(function: CUfunction, attribute: u32, value: i32);
    /// The place of a kernel parameter in the packed arguments.
    only fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, bytes: *mut usize);
    /// Launches a kernel.
    link fn cuLaunchKernel(
        function: CUfunction,
        grid_dim_x: u32,
        grid_dim_y: u32,
        grid_dim_z: u32,
        block_dim_x: u32,
        block_dim_y: u32,
        block_dim_z: u32,
        shared_mem_bytes: u32,
        stream: CUstream,
        kernel_params: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    /// Launches a kernel with attributes.
    only fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        function: CUfunction,
        kernel_params: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    /// The dynamic shared memory left to each of so many blocks.
    link fn cuOccupancyAvailableDynamicSMemPerBlock(
        dynamic_smem_size: *mut usize,
        function: CUfunction,
        num_blocks: i32,
        block_size: i32,
    );
    /// How many blocks of a kernel a multiprocessor holds.
    link fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        num_blocks: *mut i32,
        function: CUfunction,
        block_size: i32,
        dynamic_smem_size: usize,
    );
    /// A block size that fills the device.
    link fn cuOccupancyMaxPotentialBlockSize(
        min_grid_size: *mut i32,
        block_size: *mut i32,
        function: CUfunction,
        block_size_to_dynamic_smem_size: CUoccupancyB2DSize,
        dynamic_smem_size: usize,
        block_size_limit: i32,
    );
    /// How many clusters of a launch run at once.
    only fn cuOccupancyMaxActiveClusters(
        clusters: *mut i32,
        function: CUfunction,
        config: *const CUlaunchConfig,
    );
    /// Encodes a tiled tensor map.
    only fn cuTensorMapEncodeTiled(
        map: *mut CUtensorMap,
        data_type: u32,
        rank: u32,
        address: *mut c_void,
        dim: *const u64,
        strides: *const u64,
        box_dim: *const u32,
        element_strides: *const u32,
        interleave: u32,
        swizzle: u32,
        l2_promotion: u32,
        oob_fill: u32,
    );

    // Graphs.

    /// Adds a kernel node.
    link fn cuGraphAddKernelNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        num_dependencies: usize,
        params: *const c_void,
    );
    /// Creates an empty graph.
    link fn cuGraphCreate(graph: *mut CUgraph, flags: u32);
    /// Writes a graph as a DOT file.
    link fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: u32);
    /// Destroys a graph.
    link fn cuGraphDestroy(graph: CUgraph);
    /// The edges of a graph.
    link fn cuGraphGetEdges(
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        num_edges: *mut usize,
    );
    /// The nodes of a graph, or their number.
    link fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, num_nodes: *mut usize);
    /// The launch of a kernel node.
    link fn cuGraphKernelNodeGetParams(node: CUgraphNode, params: *mut c_void);
    /// The kind of a node.
    link fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut u32);
    /// Makes a graph launchable.
    only fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    /// Launches a graph in stream order.
    only fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    /// Destroys a launchable graph.
    only fn cuGraphExecDestroy(exec: CUgraphExec);

    // Textures, surfaces and imported memory.

    /// Creates a texture object.
    link fn cuTexObjectCreate(
        p_tex_object: *mut CUtexObject,
        p_res_desc: *const c_void,
        p_tex_desc: *const c_void,
        p_res_view_desc: *const c_void,
    );
    /// Destroys a texture object.
    link fn cuTexObjectDestroy(tex_object: CUtexObject);
    /// The resource of a texture object.
    link fn cuTexObjectGetResourceDesc(p_res_desc: *mut c_void, tex_object: CUtexObject);
    /// The resource view of a texture object.
    link fn cuTexObjectGetResourceViewDesc(p_res_view_desc: *mut c_void, tex_object: CUtexObject);
    /// Creates a surface object.
    link fn cuSurfObjectCreate(p_surf_object: *mut CUsurfObject, p_res_desc: *const c_void);
    /// Destroys a surface object.
    link fn cuSurfObjectDestroy(surf_object: CUsurfObject);
    /// The resource of a surface object.
    link fn cuSurfObjectGetResourceDesc(p_res_desc: *mut c_void, surf_object: CUsurfObject);
    /// Imports memory of another API.
    link fn cuImportExternalMemory(memory: *mut CUexternalMemory, mem_handle_desc: *const c_void);
    /// Maps a buffer onto imported memory.
    link fn cuExternalMemoryGetMappedBuffer(
        pointer: *mut CUdeviceptr,
        memory: CUexternalMemory,
        buffer_desc: *const c_void,
    );
    /// Destroys imported memory.
    link fn cuDestroyExternalMemory(memory: CUexternalMemory);
}
