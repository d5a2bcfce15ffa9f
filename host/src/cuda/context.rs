//! A device's primary context, opened once per process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock};

use cuda_driver::sys;
use cust::device::Device;

use super::capture::Captures;
use super::device::{self, DeviceInfo, device_count};
use super::memory::FreeBlocks;
use super::module::Modules;
use super::status::{check, check_cust};
use super::stream::Stream;
use super::{Handle, lock};
use crate::error::{Error, Result};

/// The oldest architecture that the PTX is built for.
const REQUIRED_ARCH: (u32, u32) = (8, 0);

/// A device's primary context, which other libraries of the process share.
#[derive(Debug)]
pub struct Context {
    info: DeviceInfo,
    /// Keeps the primary context retained.
    _primary: cust::context::Context,
    raw: Handle,
    /// The device's default memory pool, if it has stream-ordered allocation.
    pub(super) pool: Option<Handle>,
    pub(super) free_blocks: Mutex<FreeBlocks>,
    pub(super) captures: Captures,
    pub(super) modules: Modules,
    /// Addresses of foreign streams that `Stream::end` was called for.
    pub(super) ended_streams: Mutex<BTreeSet<usize>>,
    /// Set by `open` before anybody else sees the context; a cycle, which is fine for what never ends.
    default_stream: OnceLock<Arc<Stream>>,
}

impl Context {
    /// The context of a device; the same one for the same ordinal.
    pub fn open(ordinal: usize) -> Result<Arc<Self>> {
        static OPEN: Mutex<BTreeMap<usize, Arc<Context>>> = Mutex::new(BTreeMap::new());

        let mut open = lock(&OPEN);
        if let Some(context) = open.get(&ordinal) {
            return Ok(context.clone());
        }
        let count = device_count()?;
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        let context = Arc::new(Self::new(ordinal)?);
        let stream = Stream::non_blocking(&context)?;
        context.default_stream.get_or_init(|| stream);
        open.insert(ordinal, context.clone());
        Ok(context)
    }

    fn new(ordinal: usize) -> Result<Self> {
        let device = check_cust("cuDeviceGet", Device::get_device(ordinal as u32))?;
        let info = DeviceInfo::query(ordinal, device)?;
        if info.arch < REQUIRED_ARCH {
            return Err(Error::Architecture { device: info.name, required: REQUIRED_ARCH, got: info.arch });
        }
        let primary = check_cust("cuDevicePrimaryCtxRetain", cust::context::Context::new(device))?;
        let raw = Handle(primary.as_raw().cast());
        Ok(Self {
            info,
            _primary: primary,
            raw,
            pool: memory_pool(device)?,
            free_blocks: Mutex::default(),
            captures: Captures::default(),
            ended_streams: Mutex::default(),
            modules: Modules::default(),
            default_stream: OnceLock::new(),
        })
    }

    /// What the driver tells about the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The device in messages.
    pub(super) fn label(&self) -> String {
        format!("cuda:{}", self.info.ordinal)
    }

    /// The driver's handle.
    pub fn raw(&self) -> *mut c_void {
        self.raw.0
    }

    /// Makes this context current on the calling thread.
    ///
    /// The driver is asked each time, since other libraries of the thread switch contexts too; the
    /// question costs a few nanoseconds, the switch is only made when needed.
    #[inline]
    pub fn make_current(&self) -> Result<()> {
        let mut current = ptr::null_mut();
        // SAFETY: `current` is a valid place for the result.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut current) })?;
        if current == self.raw.0 {
            return Ok(());
        }
        // SAFETY: the context is retained for as long as `self` lives.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw.0) })
    }

    /// The context's own stream, which does not synchronise with the legacy default stream.
    pub fn default_stream(&self) -> &Arc<Stream> {
        self.default_stream.get().expect("`open`, the only constructor, sets it")
    }

    /// A new stream, which does not synchronise with the legacy default stream.
    pub fn new_stream(self: &Arc<Self>) -> Result<Arc<Stream>> {
        Stream::non_blocking(self)
    }

    /// An embedder's stream; null is the legacy default stream. It is never destroyed here.
    ///
    /// # Safety
    ///
    /// `raw` is a stream of this context, and the embedder keeps it until the result and every buffer
    /// allocated on it are dropped.
    pub unsafe fn foreign_stream(self: &Arc<Self>, raw: *mut c_void) -> Arc<Stream> {
        Stream::foreign(self, raw)
    }

    /// Free and total bytes of the device's memory. Memory that the pool keeps counts as used.
    pub fn free_and_total(&self) -> Result<(usize, usize)> {
        self.make_current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are valid places for the results.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free, total))
    }

    /// `arg` must belong to this context.
    pub(super) fn expect_same(&self, other: &Context, op: &'static str, arg: &'static str) -> Result<()> {
        if ptr::eq(self, other) {
            return Ok(());
        }
        Err(Error::DeviceMismatch { op, arg, required: self.label(), got: other.label() })
    }
}

/// The default pool, told to keep freed memory: giving it back at each synchronisation, as it does
/// otherwise, makes the next allocation slow.
fn memory_pool(device: Device) -> Result<Option<Handle>> {
    if device::attribute(device, sys::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED).unwrap_or(0) == 0 {
        return Ok(None);
    }
    let mut pool = ptr::null_mut();
    // SAFETY: `pool` is a valid place for the result.
    let code = unsafe { sys::cuDeviceGetDefaultMemPool(&mut pool, device.as_raw()) };
    check("cuDeviceGetDefaultMemPool", code)?;
    let mut keep = u64::MAX;
    // SAFETY: this attribute's value is a `u64`.
    let code = unsafe {
        sys::cuMemPoolSetAttribute(pool, sys::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut keep).cast())
    };
    check("cuMemPoolSetAttribute", code)?;
    Ok(Some(Handle(pool)))
}
