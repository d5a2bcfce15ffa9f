//! From a kernel's handle to a launch: on a GPU, or on the CPU under the checker.

use cuda_std::kernel::{ArgBuffer, Kernel, KernelArgs, LaunchBounds};

use crate::cuda::LaunchConfig;
use crate::cuda::shared::least_share;
use crate::device::{Device, Kind};
use crate::error::{Error, Result};
use crate::families;
use crate::profile;

/// Most blocks of a multiprocessor that [`Grid::spread`] sees to. A transposition with eight of them took as long, or longer.
const MOST_SPREAD: u32 = 6;
/// Multiprocessors that clusters of more than two blocks may leave over: a GPU's come in groups, which clusters do not fill. 32 clusters of four took an H100
/// with its 132 11.7 µs, where 26 with more to do for each took 8.9 (a GRU's cell of 1024 units, 64 rows).
pub(crate) const LEFT_OVER_BY_CLUSTERS: u32 = 12;

/// The blocks of a launch and what each of them gets. The threads of a block are the kernel's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x, y and z; without any, nothing is launched.
    pub blocks: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Blocks of a cluster along x; none for a launch without clusters.
    pub cluster: Option<u32>,
    /// Whether all blocks must run at once, so that they can wait for one another.
    pub cooperative: bool,
    /// Whether the kernel may start before what is ahead of it is done, on GPUs that can; it then waits for that by itself.
    pub early: bool,
}

impl Grid {
    /// The most blocks along x; along y and z it is [`Grid::MAX_YZ`].
    pub const MAX_X: u64 = i32::MAX as u64;
    /// The most blocks along y and along z.
    pub const MAX_YZ: u64 = u16::MAX as u64;

    /// Blocks along x.
    pub fn new(blocks: u64) -> Result<Grid> {
        Grid::xyz(blocks, 1, 1)
    }

    /// Blocks along all three axes.
    pub fn xyz(x: u64, y: u64, z: u64) -> Result<Grid> {
        let side = |what, limit: u64, got: u64| match u32::try_from(got) {
            Ok(side) if got <= limit => Ok(side),
            _ => Err(Error::TooLarge { op: "launch", what, limit, got: got.to_string() }),
        };
        let blocks = [
            side("blocks along x", Grid::MAX_X, x)?,
            side("blocks along y", Grid::MAX_YZ, y)?,
            side("blocks along z", Grid::MAX_YZ, z)?,
        ];
        Ok(Grid { blocks, shared_bytes: 0, cluster: None, cooperative: false, early: true })
    }

    /// As many blocks along x as hold `items`, at `per_block` each (at least 1).
    pub fn covering(items: u64, per_block: u64) -> Result<Grid> {
        Grid::new(items.div_ceil(per_block.max(1)))
    }

    /// With dynamic shared memory.
    pub fn shared(self, bytes: u32) -> Grid {
        Grid { shared_bytes: bytes, ..self }
    }

    /// With room for no more than their share of few blocks on each of the device's multiprocessors. Blocks that start early otherwise come to lie where those
    /// ahead of them end first, as many as find room: several on one multiprocessor, and none on others. What follows a launch of the same kind starts some
    /// 0.1 µs later by it.
    pub fn spread(self, device: &Device) -> Grid {
        let Some(info) = device.info() else { return self };
        let shared_bytes = self.spread_over(info.sm_count, info.max_shared_per_sm);
        Grid { shared_bytes: shared_bytes.min(info.max_shared_per_block).max(self.shared_bytes), ..self }
    }

    /// The shared memory of each block that is spread over so many multiprocessors, of which each has so much.
    fn spread_over(&self, multiprocessors: u32, bytes: u32) -> u32 {
        let blocks = self.blocks.iter().map(|&side| u128::from(side)).product::<u128>();
        let left_over = if self.cluster.is_some_and(|blocks| blocks > 2) { LEFT_OVER_BY_CLUSTERS } else { 0 };
        let of_each = blocks.div_ceil(multiprocessors.saturating_sub(left_over).max(1).into());
        match u32::try_from(of_each) {
            Ok(of_each) if of_each <= MOST_SPREAD => least_share(bytes, of_each).max(self.shared_bytes),
            _ => self.shared_bytes,
        }
    }

    /// With clusters of `blocks` along x.
    pub fn cluster(self, blocks: u32) -> Grid {
        Grid { cluster: Some(blocks), ..self }
    }

    /// With all blocks running at once: behind what is ahead, unless [`early_if`](Self::early_if) says otherwise.
    pub fn cooperative(self) -> Grid {
        Grid { cooperative: true, early: false, ..self }
    }

    /// Starting before what is ahead of it is done only where `early` holds. It gains some 0.3 µs, or 1 of what does little but read, and costs more than that
    /// where few long blocks come to lie unevenly, since they took the places that were free first.
    pub fn early_if(self, early: bool) -> Grid {
        Grid { early, ..self }
    }
}

impl Device {
    /// Launches a kernel. On a GPU this returns before it is done; on the CPU it is done, and a mistake
    /// that the checker finds is an error.
    ///
    /// # Safety
    /// The kernel's own contract: the memory that `args` point to is on this device, large enough, and
    /// not freed before the kernel is done.
    pub unsafe fn launch<A: KernelArgs>(&self, kernel: &Kernel<A>, grid: Grid, args: A) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.launch_bound(&Bound { kernel, args }, grid) }
    }

    /// # Safety
    /// As [`Device::launch`].
    unsafe fn launch_bound(&self, call: &dyn Call, grid: Grid) -> Result<()> {
        if grid.blocks.contains(&0) {
            return Ok(());
        }
        // SAFETY: the caller's contract.
        let launch = |grid| unsafe { self.launch_blocks(call, grid) };
        if profile::is_recording() { profile::recorded(self, call, grid, launch) } else { launch(grid) }
    }

    /// # Safety
    /// As [`Device::launch`]; there are blocks.
    unsafe fn launch_blocks(&self, call: &dyn Call, grid: Grid) -> Result<()> {
        let entry = call.entry();
        match self.kind() {
            Kind::Cpu(checks, seed) => {
                // SAFETY: the caller's contract.
                launch_on_cpu(entry, grid, (*checks, *seed), &|| unsafe { call.run() })
            }
            Kind::Cuda(gpu, stream) => {
                let info = gpu.context.info();
                if entry.requires_sm_90a && info.arch != (9, 0) {
                    let (kernel, device, got) = (entry.name, info.name.clone(), info.arch);
                    return Err(Error::ArchitectureSpecific { kernel, device, required: (9, 0), got });
                }
                let cfg = LaunchConfig {
                    grid: grid.blocks,
                    block: [entry.bounds.threads, 1, 1],
                    shared_bytes: grid.shared_bytes,
                    cluster: grid.cluster,
                    cooperative: grid.cooperative,
                    early: grid.early,
                };
                let (family, args) = (families::find(entry)?, call.pack());
                // SAFETY: the handle has the kernel's own argument types; the rest is the caller's contract.
                unsafe { gpu.context.launch(family, entry.name, &cfg, args.as_bytes(), stream.raw_arc()) }
            }
        }
    }
}

/// What is known of a kernel whatever its parameters.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub name: &'static str,
    pub family: &'static str,
    pub bounds: LaunchBounds,
    pub requires_sm_90a: bool,
}

impl<A> From<&Kernel<A>> for Entry {
    fn from(kernel: &Kernel<A>) -> Entry {
        let Kernel { name, family, bounds, requires_sm_90a, .. } = *kernel;
        Entry { name, family, bounds, requires_sm_90a }
    }
}

/// A kernel with its arguments, of any types: what a launch takes is compiled once, and not for each signature.
pub(crate) trait Call: Sync {
    fn entry(&self) -> Entry;

    /// Runs as one thread of a checked launch.
    ///
    /// # Safety
    /// As the kernel's own.
    unsafe fn run(&self);

    fn pack(&self) -> ArgBuffer;

    fn operand_bytes(&self) -> u64;
}

struct Bound<'a, A: 'static> {
    kernel: &'a Kernel<A>,
    args: A,
}

impl<A: KernelArgs> Call for Bound<'_, A> {
    fn entry(&self) -> Entry {
        self.kernel.into()
    }

    unsafe fn run(&self) {
        // SAFETY: the caller's contract.
        unsafe { (self.kernel.body)(self.args) }
    }

    fn pack(&self) -> ArgBuffer {
        self.args.pack()
    }

    fn operand_bytes(&self) -> u64 {
        self.args.operand_bytes()
    }
}

fn launch_on_cpu(
    entry: Entry,
    grid: Grid,
    (checks, seed): (simt::Checks, u64),
    body: &(dyn Fn() + Sync),
) -> Result<()> {
    let launch = simt::Launch {
        kernel: entry.name,
        grid: grid.blocks,
        block: [entry.bounds.threads, 1, 1],
        shared_bytes: grid.shared_bytes,
        cluster: grid.cluster.unwrap_or(1),
        cooperative: grid.cooperative,
        checks,
        limits: simt::Limits::default(),
        seed,
    };
    check_limits(entry.name, &launch)?;
    match simt::launch(&launch, body) {
        Ok(_) => Ok(()),
        Err(report) => Err(Error::Checker { kernel: entry.name.into(), report: report.to_string() }),
    }
}

/// The limits that a GPU would hold the launch to, with the same errors.
fn check_limits(kernel: &'static str, launch: &simt::Launch) -> Result<()> {
    let at_most = |what, limit: u64, got: u64| {
        if got <= limit { Ok(()) } else { Err(Error::LaunchLimit { kernel, what, limit, got }) }
    };
    let limits = &launch.limits;
    let [x, y, z] = launch.grid.map(u64::from);
    at_most("blocks along x", limits.max_grid[0].into(), x)?;
    at_most("blocks along y", limits.max_grid[1].into(), y)?;
    at_most("blocks along z", limits.max_grid[2].into(), z)?;
    at_most("threads of a block", limits.max_threads_per_block.into(), launch.block[0].into())?;
    at_most(
        "bytes of shared memory a block",
        limits.max_shared_per_block.into(),
        launch.shared_bytes.into(),
    )?;
    at_most("blocks of a cluster", limits.max_cluster.into(), launch.cluster.into())?;
    if launch.cluster == 0 || !launch.grid[0].is_multiple_of(launch.cluster) {
        let got = format!("cluster {} of grid {:?}", launch.cluster, launch.grid);
        let required = "a divisor of the grid's x".into();
        return Err(Error::Parameter { op: kernel, arg: "cluster", required, got });
    }
    if launch.cooperative {
        let limit = limits.resident_blocks(launch.block[0], launch.shared_bytes);
        at_most("blocks of a cooperative grid", limit, x.saturating_mul(y).saturating_mul(z))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
