//! What devices there are, and what they can do.

use std::env;

use cuda_driver::sys;
use cust::CudaFlags;
use cust::device::{Device, DeviceAttribute};
use cust::error::CudaError;

use super::status::{check, check_cust};
use crate::error::{Error, Result};

/// What the driver tells about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number, from 0.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub arch: (u32, u32),
    /// Bytes of memory.
    pub total_memory: usize,
    /// Number of multiprocessors.
    pub sm_count: u32,
    /// Bytes of L2 cache.
    pub l2_bytes: usize,
    /// Bytes of shared memory that a block can have after opting in.
    pub max_shared_per_block: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub max_shared_per_sm: u32,
    /// Threads of a block.
    pub max_threads_per_block: u32,
    /// Threads that a multiprocessor holds.
    pub max_threads_per_sm: u32,
    /// Blocks of a grid along x, y and z.
    pub max_grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub max_block: [u32; 3],
    /// Threads of a warp.
    pub warp_size: u32,
    /// Multiprocessor clock in kHz.
    pub clock_khz: u32,
    /// Memory clock in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: u32,
    /// Whether memory errors are corrected.
    pub ecc: bool,
    /// Whether a kernel may start before what is ahead of it in its stream is done: from compute capability 9.0 and drivers
    /// of CUDA 12.3 on, which also capture such launches, unless `WARPWRIGHT_EARLY_STARTS=0` is in the environment.
    pub early_starts: bool,
}

impl DeviceInfo {
    pub(super) fn query(ordinal: usize, device: Device) -> Result<Self> {
        use DeviceAttribute as A;
        let get = |attribute: DeviceAttribute| -> Result<u32> {
            let value = check_cust("cuDeviceGetAttribute", device.get_attribute(attribute))?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let max_shared = attribute(device, sys::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let arch = (get(A::ComputeCapabilityMajor)?, get(A::ComputeCapabilityMinor)?);
        let wanted = env::var_os("WARPWRIGHT_EARLY_STARTS").is_none_or(|value| value != "0");
        Ok(Self {
            ordinal,
            name: check_cust("cuDeviceGetName", device.name())?,
            arch,
            total_memory: check_cust("cuDeviceTotalMem", device.total_memory())?,
            sm_count: get(A::MultiprocessorCount)?,
            l2_bytes: get(A::L2CacheSize)? as usize,
            max_shared_per_block: max_shared.max(get(A::MaxSharedMemoryPerBlock)?),
            max_shared_per_sm: get(A::MaxSharedMemoryPerMultiprocessor)?,
            max_threads_per_block: get(A::MaxThreadsPerBlock)?,
            max_threads_per_sm: get(A::MaxThreadsPerMultiprocessor)?,
            max_grid: [get(A::MaxGridDimX)?, get(A::MaxGridDimY)?, get(A::MaxGridDimZ)?],
            max_block: [get(A::MaxBlockDimX)?, get(A::MaxBlockDimY)?, get(A::MaxBlockDimZ)?],
            warp_size: get(A::WarpSize)?,
            clock_khz: get(A::ClockRate)?,
            memory_clock_khz: get(A::MemoryClockRate)?,
            memory_bus_bits: get(A::GlobalMemoryBusWidth)?,
            ecc: get(A::EccEnabled)? != 0,
            early_starts: wanted && can_start_early(arch, driver_version()?),
        })
    }
}

/// Whether a device has early starts: older drivers cannot capture them.
fn can_start_early(arch: (u32, u32), driver: (u32, u32)) -> bool {
    arch >= (9, 0) && driver >= (12, 3)
}

/// An attribute newer than the ones `cust` names.
pub(super) fn attribute(device: Device, attribute: u32) -> Result<u32> {
    let mut value = 0;
    // SAFETY: `value` is a valid place for the result.
    let code = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device.as_raw()) };
    check("cuDeviceGetAttribute", code)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// Opens and initialises the driver; cheap after the first time.
fn init() -> Result<()> {
    cuda_driver::available().map_err(|reason| Error::NoDriver { reason })?;
    let Err(error) = cust::init(CudaFlags::empty()) else { return Ok(()) };
    if error == CudaError::NoDevice {
        return Err(Error::NoDevice { ordinal: 0, count: 0 });
    }
    // `cust` does not keep the codes newer than itself; the driver repeats them.
    // SAFETY: no preconditions.
    let code = unsafe { sys::cuInit(0) };
    if code == sys::CUDA_ERROR_STUB_LIBRARY {
        return Err(Error::NoDriver { reason: "the libcuda found is the CUDA toolkit's stub".into() });
    }
    check("cuInit", code)
}

/// The number of CUDA devices. No driver is an error, a driver without a device is not.
pub fn device_count() -> Result<usize> {
    match init() {
        Ok(()) => Ok(check_cust("cuDeviceGetCount", Device::num_devices())? as usize),
        Err(Error::NoDevice { .. }) => Ok(0),
        Err(error) => Err(error),
    }
}

/// The newest CUDA version that the driver supports, major and minor.
pub fn driver_version() -> Result<(u32, u32)> {
    cuda_driver::available().map_err(|reason| Error::NoDriver { reason })?;
    let version = check_cust("cuDriverGetVersion", cust::CudaApiVersion::get())?;
    Ok((version.major() as u32, version.minor() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_starts_want_hopper_and_a_driver_that_captures_them() {
        for (arch, driver, want) in [
            ((8, 9), (13, 0), false),
            ((9, 0), (12, 2), false),
            ((9, 0), (12, 3), true),
            ((9, 0), (13, 0), true),
            ((12, 0), (12, 8), true),
        ] {
            assert_eq!(can_start_early(arch, driver), want, "{arch:?} {driver:?}");
        }
    }

    #[test]
    fn without_a_driver_the_error_says_so() {
        match cuda_driver::available() {
            Ok(()) => assert!(driver_version().is_ok()),
            Err(reason) => {
                for error in [device_count().unwrap_err(), driver_version().map(|_| ()).unwrap_err()] {
                    assert!(matches!(error, Error::NoDriver { .. }), "{error}");
                    assert!(error.to_string().contains(&reason), "{error}");
                }
            }
        }
    }
}
