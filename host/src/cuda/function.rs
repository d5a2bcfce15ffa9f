//! Kernels of a loaded module, with what the driver knows of them.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use cuda_driver::sys;
use cust::function::FunctionAttribute;

use super::capture::Relaxed;
use super::module::Module;
use super::status::{check, check_cust};
use super::{Handle, lock};
use crate::error::{Error, Result};

/// Dynamic and static shared memory that a block may have without opting in.
const DEFAULT_SHARED: u32 = 48 << 10;

/// What a kernel demands of its launches.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionLimits {
    pub(super) max_threads: u32,
    pub(super) static_shared: u32,
    pub(super) required_block: Option<[u32; 3]>,
}

/// A kernel, ready to be launched in its context.
#[derive(Clone, Debug)]
pub struct Function(Arc<Kernel>);

#[derive(Debug)]
struct Kernel {
    name: &'static str,
    raw: Handle,
    limits: FunctionLimits,
    registers: u32,
    local_bytes: u32,
    arguments: Option<Arguments>,
    /// Where each argument begins in that buffer, from the first on; empty if the driver cannot tell.
    argument_offsets: Vec<usize>,
    can_start_early: bool,
    /// Held while the driver's attributes of the kernel are changed.
    opt_in: Mutex<()>,
    /// Dynamic shared memory that launches may ask for so far.
    shared_allowed: AtomicU32,
    /// Whether clusters of more than 8 blocks are allowed so far.
    large_clusters: AtomicBool,
    _module: Module,
}

impl Function {
    /// The kernel of a module.
    pub(super) fn load(module: Module) -> Result<Self> {
        let name = module.kernel;
        let _relaxed = Relaxed::enter();
        let function = match module.inner.get_function(name) {
            Err(cust::error::CudaError::NotFound) => {
                let log = format!("it has no kernel `{name}`");
                return Err(Module::failure(module.family, module.arch, sys::CUDA_ERROR_NOT_FOUND, log));
            }
            result => check_cust("cuModuleGetFunction", result)?,
        };
        let get = |attribute| -> Result<u32> {
            let value = check_cust("cuFuncGetAttribute", function.get_attribute(attribute))?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let limits = FunctionLimits {
            max_threads: get(FunctionAttribute::MaxThreadsPerBlock)?,
            static_shared: get(FunctionAttribute::SharedMemorySizeBytes)?,
            required_block: module.required_block,
        };
        let raw = function.to_raw().cast();
        Ok(Self(Arc::new(Kernel {
            name,
            raw: Handle(raw),
            limits,
            registers: get(FunctionAttribute::NumRegisters)?,
            local_bytes: get(FunctionAttribute::LocalSizeBytes)?,
            arguments: arguments(raw, module.parameters),
            argument_offsets: argument_offsets(raw, module.parameters),
            can_start_early: module.can_start_early,
            opt_in: Mutex::new(()),
            shared_allowed: AtomicU32::new(DEFAULT_SHARED.saturating_sub(limits.static_shared)),
            large_clusters: AtomicBool::new(false),
            _module: module,
        })))
    }

    /// The kernel's name.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// The driver's handle.
    pub fn raw(&self) -> *mut c_void {
        self.0.raw.0
    }

    /// Registers of a thread.
    pub fn registers(&self) -> u32 {
        self.0.registers
    }

    /// Bytes of local memory of a thread: spills and arrays that are indexed.
    pub fn local_bytes(&self) -> u32 {
        self.0.local_bytes
    }

    /// Bytes of static shared memory of a block.
    pub fn static_shared_bytes(&self) -> u32 {
        self.0.limits.static_shared
    }

    /// Threads that a block may have at most.
    pub fn max_threads_per_block(&self) -> u32 {
        self.0.limits.max_threads
    }

    /// Where the packed arguments lie, if the driver can tell.
    pub(super) fn arguments(&self) -> Option<Arguments> {
        self.0.arguments
    }

    /// Where each argument begins among the packed ones; empty if the driver cannot tell.
    pub(super) fn argument_offsets(&self) -> &[usize] {
        &self.0.argument_offsets
    }

    /// Whether the kernel may start before what is ahead of it is done: it waits by itself, on a device that can.
    pub fn can_start_early(&self) -> bool {
        self.0.can_start_early
    }

    pub(super) fn limits(&self) -> &FunctionLimits {
        &self.0.limits
    }

    /// Opts in to what a launch needs beyond the defaults; later launches find it done.
    #[inline]
    pub(super) fn allow(&self, shared_bytes: u32, large_cluster: bool) -> Result<()> {
        let kernel = &*self.0;
        if shared_bytes > kernel.shared_allowed.load(Ordering::Acquire)
            || (large_cluster && !kernel.large_clusters.load(Ordering::Acquire))
        {
            return kernel.opt_in(shared_bytes, large_cluster);
        }
        Ok(())
    }
}

impl Kernel {
    #[cold]
    fn opt_in(&self, shared_bytes: u32, large_cluster: bool) -> Result<()> {
        let _guard = lock(&self.opt_in);
        let set = |attribute, value: u32| {
            // SAFETY: the function is alive; the driver checks attribute and value.
            let code = unsafe { sys::cuFuncSetAttribute(self.raw.0, attribute, value as i32) };
            check("cuFuncSetAttribute", code)
        };
        // Only raised, so that a launch of another thread does not lose what it just asked for.
        if shared_bytes > self.shared_allowed.load(Ordering::Acquire) {
            set(sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)?;
            self.shared_allowed.store(shared_bytes, Ordering::Release);
        }
        if large_cluster && !self.large_clusters.load(Ordering::Acquire) {
            set(sys::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
            self.large_clusters.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// Where a kernel's arguments lie in the buffer that a launch gives the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    /// Bytes in front of the first: the driver aligns arguments of more than 16 bytes to their place in constant memory,
    /// not in the buffer.
    pub first: usize,
    /// Where the last one ends.
    pub end: usize,
}

/// `None` if the driver (before CUDA 12.4) cannot tell. Only the `parameters` that there are are asked for: an index past the
/// last is an error, which tools such as compute-sanitizer report.
fn arguments(function: sys::CUfunction, parameters: usize) -> Option<Arguments> {
    let Some(last) = parameters.checked_sub(1) else { return Some(Arguments { first: 0, end: 0 }) };
    let (offset, bytes) = argument(function, last)?;
    Some(Arguments { first: argument(function, 0)?.0, end: offset + bytes })
}

/// Where each of the `parameters` begins behind the first; empty if the driver cannot tell.
fn argument_offsets(function: sys::CUfunction, parameters: usize) -> Vec<usize> {
    let offset = |index| argument(function, index).map(|(offset, _)| offset);
    let Some(first) = (parameters > 0).then(|| offset(0)).flatten() else { return Vec::new() };
    (0..parameters).map(|index| Some(offset(index)? - first)).collect::<Option<_>>().unwrap_or_default()
}

/// Offset and bytes of a parameter that the function has.
fn argument(function: sys::CUfunction, index: usize) -> Option<(usize, usize)> {
    let (mut offset, mut bytes) = (0, 0);
    // SAFETY: the function is alive and has the parameter, both places for the results are valid.
    match unsafe { sys::cuFuncGetParamInfo(function, index, &mut offset, &mut bytes) } {
        sys::CUDA_SUCCESS => Some((offset, bytes)),
        _ => None,
    }
}

/// The text of an entry from its name to its body.
fn header<'a>(ptx: &'a str, kernel: &str) -> Option<&'a str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
    ptx.split(".entry").skip(1).find_map(|entry| {
        let rest = entry.trim_start().strip_prefix(kernel)?;
        if rest.starts_with(is_name) { None } else { rest.split('{').next() }
    })
}

/// How many parameters an entry has.
pub(super) fn parameter_count(ptx: &str, kernel: &str) -> usize {
    header(ptx, kernel).map_or(0, |header| header.matches(".param").count())
}

/// The block that an entry's `.reqntid` demands. The driver refuses others, but does not say why.
pub(super) fn required_block(ptx: &str, kernel: &str) -> Option<[u32; 3]> {
    let header = header(ptx, kernel)?;
    let list = header.split_once(".reqntid")?.1;
    // The directive ends where something else than a digit, a comma or a space follows.
    let list = list.split(|c: char| !(c.is_ascii_digit() || c == ',' || c.is_whitespace())).next()?;
    let mut block = [1; 3];
    for (place, number) in block.iter_mut().zip(list.split(',')) {
        *place = number.trim().parse().ok()?;
    }
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_required_block_is_read_from_the_entry_of_that_name_only() {
        let ptx = ".visible .entry softmax_wide(\n\t.param .u64 p0\n)\n.reqntid 256, 2, 1\n.minnctapersm 2\n{\n}\n\
                   .visible .entry softmax(\n\t.param .u64 p0\n)\n.reqntid 128\n{\n\tret;\n}\n\
                   .entry free()\n{\n}\n.visible .entry after()\n.reqntid 32, 1, 1\n{\n}\n";
        assert_eq!(required_block(ptx, "softmax_wide"), Some([256, 2, 1]));
        let two = ".visible .entry f(\n.param .u64 a,\n.param .u32 b\n)\n{ ld.param.u64 x, [a]; }";
        assert_eq!([parameter_count(two, "f"), parameter_count(two, "g")], [2, 0]);
        assert_eq!(required_block(ptx, "softmax"), Some([128, 1, 1]));
        assert_eq!(required_block(ptx, "free"), None);
        assert_eq!(required_block(ptx, "after"), Some([32, 1, 1]));
        assert_eq!(required_block(ptx, "soft"), None);
    }
}
