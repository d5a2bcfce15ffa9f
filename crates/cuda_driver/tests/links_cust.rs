//! `cust` links without a CUDA toolkit, and fails with an error where there is no driver.

use cust::sys;

macro_rules! addresses {
    ($($name:ident),* $(,)?) => { [$((stringify!($name), sys::$name as *const ())),*] };
}

/// Every driver function that the source of `cust` 0.3.2 names: a missing definition does not link.
fn linked() -> Vec<(&'static str, *const ())> {
    addresses![
        cuArray3DCreate_v2,
        cuArray3DGetDescriptor_v2,
        cuArrayDestroy,
        cuCtxCreate_v2,
        cuCtxDestroy_v2,
        cuCtxGetApiVersion,
        cuCtxGetCacheConfig,
        cuCtxGetCurrent,
        cuCtxGetDevice,
        cuCtxGetFlags,
        cuCtxGetLimit,
        cuCtxGetSharedMemConfig,
        cuCtxGetStreamPriorityRange,
        cuCtxPopCurrent_v2,
        cuCtxPushCurrent_v2,
        cuCtxSetCacheConfig,
        cuCtxSetCurrent,
        cuCtxSetLimit,
        cuCtxSetSharedMemConfig,
        cuCtxSynchronize,
        cuDestroyExternalMemory,
        cuDeviceGet,
        cuDeviceGetAttribute,
        cuDeviceGetCount,
        cuDeviceGetName,
        cuDevicePrimaryCtxRelease_v2,
        cuDevicePrimaryCtxReset_v2,
        cuDevicePrimaryCtxRetain,
        cuDevicePrimaryCtxSetFlags_v2,
        cuDeviceTotalMem_v2,
        cuDriverGetVersion,
        cuEventCreate,
        cuEventDestroy_v2,
        cuEventElapsedTime,
        cuEventQuery,
        cuEventRecord,
        cuEventSynchronize,
        cuExternalMemoryGetMappedBuffer,
        cuFuncGetAttribute,
        cuFuncSetCacheConfig,
        cuFuncSetSharedMemConfig,
        cuGetErrorString,
        cuGraphAddKernelNode,
        cuGraphCreate,
        cuGraphDebugDotPrint,
        cuGraphDestroy,
        cuGraphGetEdges,
        cuGraphGetNodes,
        cuGraphKernelNodeGetParams,
        cuGraphNodeGetType,
        cuImportExternalMemory,
        cuInit,
        cuLaunchHostFunc,
        cuLaunchKernel,
        cuLinkAddData_v2,
        cuLinkComplete,
        cuLinkCreate_v2,
        cuLinkDestroy,
        cuMemAdvise,
        cuMemAllocAsync,
        cuMemAllocHost_v2,
        cuMemAllocManaged,
        cuMemAlloc_v2,
        cuMemFreeAsync,
        cuMemFreeHost,
        cuMemFree_v2,
        cuMemGetInfo_v2,
        cuMemPrefetchAsync,
        cuMemcpy2D_v2,
        cuMemcpyAtoH_v2,
        cuMemcpyDtoDAsync_v2,
        cuMemcpyDtoD_v2,
        cuMemcpyDtoHAsync_v2,
        cuMemcpyDtoH_v2,
        cuMemcpyHtoA_v2,
        cuMemcpyHtoDAsync_v2,
        cuMemcpyHtoD_v2,
        cuMemsetD16Async,
        cuMemsetD16_v2,
        cuMemsetD32Async,
        cuMemsetD32_v2,
        cuMemsetD8Async,
        cuMemsetD8_v2,
        cuModuleGetFunction,
        cuModuleGetGlobal_v2,
        cuModuleLoad,
        cuModuleLoadData,
        cuModuleLoadDataEx,
        cuModuleUnload,
        cuOccupancyAvailableDynamicSMemPerBlock,
        cuOccupancyMaxActiveBlocksPerMultiprocessor,
        cuOccupancyMaxPotentialBlockSize,
        cuStreamCreateWithPriority,
        cuStreamDestroy_v2,
        cuStreamGetFlags,
        cuStreamGetPriority,
        cuStreamSynchronize,
        cuStreamWaitEvent,
        cuSurfObjectCreate,
        cuSurfObjectDestroy,
        cuSurfObjectGetResourceDesc,
        cuTexObjectCreate,
        cuTexObjectDestroy,
        cuTexObjectGetResourceDesc,
        cuTexObjectGetResourceViewDesc,
    ]
    .to_vec()
}

#[test]
fn every_function_that_cust_names_is_defined() {
    cuda_driver::available().ok(); // links the crate, as every real program does
    for (name, address) in linked() {
        assert!(!address.is_null(), "{name}");
    }
}

#[test]
fn cust_reports_a_missing_driver_as_an_error() {
    let result = cust::init(cust::CudaFlags::empty());
    match cuda_driver::available() {
        // With a driver the outcome depends on the machine; it is only not to crash.
        Ok(()) => println!("driver {:?}: {result:?}", cuda_driver::library_name()),
        Err(reason) => {
            let error = result.unwrap_err();
            assert_eq!(error, cust::error::CudaError::NoDevice);
            assert!(!error.to_string().is_empty() && !reason.is_empty());
            assert!(cust::device::Device::num_devices().is_err());
            assert!(cust::stream::Stream::new(cust::stream::StreamFlags::DEFAULT, None).is_err());
            assert!(cust::module::Module::from_ptx("", &[]).is_err());
        }
    }
}
