//! Launching kernels.

use std::ffi::c_void;
use std::ptr;

use cuda_driver::sys::{self, CUlaunchAttribute, CUlaunchConfig};
use cuda_std::kernel::ArgBuffer;

use super::context::Context;
use super::function::{Arguments, Function, FunctionLimits};
use super::module::PtxFamily;
use super::shape::LaunchConfig;
use super::status::check;
use super::stream::Stream;
use crate::error::{Error, Result};

impl Context {
    /// Launches a kernel.
    ///
    /// `args` are the kernel's arguments, packed at their natural alignments. What the launch asks for is
    /// held against the limits of device and kernel first; a grid without blocks is not launched.
    ///
    /// # Safety
    ///
    /// `args` are what the kernel takes, and the memory they point to is valid for what the kernel does
    /// until it is done (with a captured stream: whenever the graph runs, see `DeviceBuffer::keep_for`).
    pub unsafe fn launch(
        &self,
        family: &'static PtxFamily,
        kernel: &'static str,
        cfg: &LaunchConfig,
        args: &[u8],
        stream: &Stream,
    ) -> Result<()> {
        if cfg.grid.contains(&0) {
            return Ok(());
        }
        self.expect_same(stream.context(), kernel, "stream")?;
        self.make_current()?;
        let function = self.function(family, kernel)?;
        cfg.check(kernel, function.limits(), self.info())?;
        let (first, mut size) = check_arguments(&function, args)?;
        // The arguments where the driver looks for them; nearly always that is where they are.
        let packed = args;
        let mut moved;
        let args = if first > 0 {
            moved = [0u64; MOST_ARGUMENT_BYTES / 8];
            moved_by(first, args, &mut moved)
        } else {
            args
        };
        function.allow(cfg.shared_bytes, cfg.has_large_clusters())?;
        let mut extra: [*mut c_void; 5] = [
            sys::CU_LAUNCH_PARAM_BUFFER_POINTER,
            args.as_ptr().cast_mut().cast(),
            sys::CU_LAUNCH_PARAM_BUFFER_SIZE,
            (&raw mut size).cast(),
            sys::CU_LAUNCH_PARAM_END,
        ];
        let extra = if size == 0 { ptr::null_mut() } else { extra.as_mut_ptr() };
        let early = cfg.early && function.can_start_early();
        if cfg.cluster.is_none() && !cfg.cooperative && !early {
            let ([gx, gy, gz], [bx, by, bz]) = (cfg.grid, cfg.block);
            // SAFETY: function and stream are alive and of the current context; `extra` gives the packed
            // arguments, whose size was checked and whose content the caller vouches for; the driver
            // copies them before it returns.
            let code = unsafe {
                let (function, stream, shared) = (function.raw(), stream.raw(), cfg.shared_bytes);
                sys::cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, ptr::null_mut(), extra)
            };
            return check("cuLaunchKernel", code);
        }
        if cfg.cooperative {
            self.check_cooperative(&function, cfg)?;
        }
        let mut attributes = Attributes::new(&LaunchConfig { early, ..*cfg });
        let config = attributes.config(cfg, stream.raw());
        // A capture refuses a cooperative launch with packed arguments, so each is pointed to, behind the first as far as the driver
        // says.
        let at = |&offset: &usize| packed.as_ptr().wrapping_add(offset).cast_mut().cast();
        let mut each: Vec<*mut c_void> =
            if cfg.cooperative { function.argument_offsets().iter().map(at).collect() } else { Vec::new() };
        let (each, extra) =
            if each.is_empty() { (ptr::null_mut(), extra) } else { (each.as_mut_ptr(), ptr::null_mut()) };
        // SAFETY: as above; `config` points to `attributes`, which outlives the call, as do the pointers to arguments.
        let code = unsafe { sys::cuLaunchKernelEx(&config, function.raw(), each, extra) };
        check("cuLaunchKernelEx", code)
    }

    /// A grid of more blocks than fit at once could never get past its first grid-wide barrier.
    #[cold]
    fn check_cooperative(&self, function: &Function, cfg: &LaunchConfig) -> Result<()> {
        let blocks = cfg.grid.iter().map(|&side| u64::from(side)).product::<u64>();
        let threads = cfg.block.iter().product();
        let per_sm = occupancy(function, threads, cfg.shared_bytes)?;
        let limit = u64::from(per_sm) * u64::from(self.info().sm_count);
        if blocks <= limit {
            return Ok(());
        }
        let what = "blocks of a cooperative grid";
        Err(Error::LaunchLimit { kernel: function.name(), what, limit, got: blocks })
    }

    /// How many blocks of a kernel a multiprocessor holds at once.
    pub fn max_blocks_per_sm(
        &self,
        family: &'static PtxFamily,
        kernel: &'static str,
        threads: u32,
        shared_bytes: u32,
    ) -> Result<u32> {
        self.make_current()?;
        let function = self.function(family, kernel)?;
        let block = [threads, 1, 1];
        let cfg = LaunchConfig {
            grid: [1; 3],
            block,
            shared_bytes,
            cluster: None,
            cooperative: false,
            early: false,
        };
        let limits = FunctionLimits { required_block: None, ..*function.limits() };
        cfg.check(kernel, &limits, self.info())?;
        function.allow(shared_bytes, false)?;
        occupancy(&function, threads, shared_bytes)
    }

    /// How many clusters of a launch the device holds at once.
    pub fn max_active_clusters(
        &self,
        family: &'static PtxFamily,
        kernel: &'static str,
        cfg: &LaunchConfig,
    ) -> Result<u32> {
        self.make_current()?;
        let function = self.function(family, kernel)?;
        cfg.check(kernel, function.limits(), self.info())?;
        function.allow(cfg.shared_bytes, cfg.has_large_clusters())?;
        let mut attributes = Attributes([CUlaunchAttribute::cluster([cfg.cluster.unwrap_or(1), 1, 1]); 3], 1);
        let config = attributes.config(cfg, ptr::null_mut());
        let mut clusters = 0;
        // SAFETY: the function is alive, `config` points to `attributes`, which outlives the call.
        let code = unsafe { sys::cuOccupancyMaxActiveClusters(&mut clusters, function.raw(), &config) };
        check("cuOccupancyMaxActiveClusters", code)?;
        Ok(u32::try_from(clusters).unwrap_or(0))
    }
}

/// The attributes of a launch, of which the first so many count.
struct Attributes([CUlaunchAttribute; 3], u32);

impl Attributes {
    fn new(cfg: &LaunchConfig) -> Self {
        let cooperative = CUlaunchAttribute::cooperative();
        let wanted = [
            (cfg.cluster.is_some(), CUlaunchAttribute::cluster([cfg.cluster.unwrap_or(1), 1, 1])),
            (cfg.cooperative, cooperative),
            (cfg.early, CUlaunchAttribute::programmatic_stream_serialization()),
        ];
        let mut attributes = Self([cooperative; 3], 0);
        for (_, attribute) in wanted.into_iter().filter(|(wanted, _)| *wanted) {
            attributes.0[attributes.1 as usize] = attribute;
            attributes.1 += 1;
        }
        attributes
    }

    /// Points into `self`, so it is not to outlive it.
    fn config(&mut self, cfg: &LaunchConfig, stream: sys::CUstream) -> CUlaunchConfig {
        CUlaunchConfig {
            grid: cfg.grid,
            block: cfg.block,
            shared_bytes: cfg.shared_bytes,
            stream,
            attributes: self.0.as_mut_ptr(),
            attribute_count: self.1,
        }
    }
}

fn occupancy(function: &Function, threads: u32, shared_bytes: u32) -> Result<u32> {
    let mut blocks = 0;
    // SAFETY: the function is alive, `blocks` a valid place for the result.
    let code = unsafe {
        let (threads, shared) = (threads as i32, shared_bytes as usize);
        sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function.raw(), threads, shared)
    };
    check("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
    Ok(u32::try_from(blocks).unwrap_or(0))
}

/// Room for arguments that are moved.
const MOST_ARGUMENT_BYTES: usize = ArgBuffer::CAPACITY + LARGEST_ALIGNMENT;
/// Of tensor maps.
const LARGEST_ALIGNMENT: usize = 64;

/// The arguments behind `first` bytes of nothing.
#[cold]
fn moved_by<'a>(first: usize, args: &[u8], to: &'a mut [u64; MOST_ARGUMENT_BYTES / 8]) -> &'a [u8] {
    let to: &mut [u8] = bytes_of(to);
    to[first..first + args.len()].copy_from_slice(args);
    &to[..first + args.len()]
}

fn bytes_of(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: any bytes are words and words are bytes; the borrow goes on.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

/// Where the driver looks for the first argument, and the size to tell it, up to which it reads; padding at the end is
/// allowed.
#[inline]
fn check_arguments(function: &Function, args: &[u8]) -> Result<(usize, usize)> {
    let Some(Arguments { first, end }) = function.arguments() else { return Ok((0, args.len())) };
    let required = end - first;
    let fits = first < LARGEST_ALIGNMENT && args.len() <= ArgBuffer::CAPACITY;
    if fits && args.len() >= required && args.len() - required < LARGEST_ALIGNMENT {
        return Ok((first, end));
    }
    let (required, got) = (format!("{required} bytes"), format!("{} bytes", args.len()));
    Err(Error::Parameter { op: function.name(), arg: "arguments", required, got })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_move_to_where_the_driver_looks() {
        let mut room = [0; MOST_ARGUMENT_BYTES / 8];
        let args: Vec<u8> = (1..=100).collect();
        let moved = moved_by(48, &args, &mut room);
        assert_eq!((&moved[..48], &moved[48..]), (&[0; 48][..], &args[..]));
    }

    #[test]
    fn attributes_are_counted() {
        let count = |cluster, cooperative| {
            let (grid, block) = ([8, 1, 1], [64, 1, 1]);
            Attributes::new(&LaunchConfig {
                grid,
                block,
                shared_bytes: 0,
                cluster,
                cooperative,
                early: false,
            })
            .1
        };
        let counts = [count(None, false), count(Some(1), false), count(None, true), count(Some(2), true)];
        assert_eq!(counts, [0, 1, 1, 2]);
    }
}
