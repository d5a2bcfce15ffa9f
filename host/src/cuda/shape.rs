//! Launch shapes, and whether a device takes them.

use super::device::DeviceInfo;
use super::function::FunctionLimits;
use crate::error::{Error, Result};

/// The largest cluster that every GPU with clusters runs.
const PORTABLE_CLUSTER: u32 = 8;
/// The largest cluster of all, after opting in.
const MAX_CLUSTER: u32 = 16;

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks along x, y and z; without any, nothing is launched.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Blocks of a cluster along x; none for a launch without clusters.
    pub cluster: Option<u32>,
    /// Whether all blocks must run at once, so that they can wait for one another.
    pub cooperative: bool,
    /// Whether the kernel may start before what is ahead of it in the stream is done, where it
    /// [can](super::Function::can_start_early).
    pub early: bool,
}

impl LaunchConfig {
    /// Whether device and kernel take this launch.
    pub(super) fn check(
        &self,
        kernel: &'static str,
        limits: &FunctionLimits,
        device: &DeviceInfo,
    ) -> Result<()> {
        let at_most = |what, limit: u64, got: u64| {
            if got <= limit { Ok(()) } else { Err(Error::LaunchLimit { kernel, what, limit, got }) }
        };
        let axes = |names: [&'static str; 3], limit: [u32; 3], got: [u32; 3]| {
            (0..3).try_for_each(|axis| at_most(names[axis], limit[axis].into(), got[axis].into()))
        };
        axes(["blocks along x", "blocks along y", "blocks along z"], device.max_grid, self.grid)?;
        axes(["threads along x", "threads along y", "threads along z"], device.max_block, self.block)?;
        // At most 2^30: each side is within its limit.
        let threads = self.block.iter().map(|&side| u64::from(side)).product::<u64>();
        at_most("threads of a block", limits.max_threads.min(device.max_threads_per_block).into(), threads)?;
        if threads == 0 {
            return Err(self.refused(kernel, "block", "at least one thread".into()));
        }
        if let Some(required) = limits.required_block.filter(|&required| required != self.block) {
            let count = required.iter().product();
            return Err(match u64::from(count) == threads {
                true => self.refused(kernel, "block", format!("{required:?}")),
                false => Error::BlockSize { kernel, required: count, got: threads as u32 },
            });
        }
        let shared = u64::from(self.shared_bytes) + u64::from(limits.static_shared);
        at_most("bytes of shared memory a block", device.max_shared_per_block.into(), shared)?;
        if let Some(cluster) = self.cluster {
            let limit = if device.arch.0 >= 9 { MAX_CLUSTER } else { 1 };
            at_most("blocks of a cluster", limit.into(), cluster.into())?;
            if cluster == 0 || !self.grid[0].is_multiple_of(cluster) {
                return Err(self.refused(kernel, "cluster", "a divisor of the grid's x".into()));
            }
        }
        Ok(())
    }

    /// Whether the kernel must be allowed clusters of this size.
    pub(super) fn has_large_clusters(&self) -> bool {
        self.cluster.is_some_and(|blocks| blocks > PORTABLE_CLUSTER)
    }

    #[cold]
    fn refused(&self, kernel: &'static str, arg: &'static str, required: String) -> Error {
        let got = match arg {
            "block" => format!("{:?}", self.block),
            _ => format!("cluster {} of grid {:?}", self.cluster.unwrap_or(1), self.grid),
        };
        Error::Parameter { op: kernel, arg, required, got }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(arch: (u32, u32)) -> DeviceInfo {
        DeviceInfo {
            ordinal: 0,
            name: "test".into(),
            arch,
            total_memory: 1 << 30,
            sm_count: 4,
            l2_bytes: 1 << 20,
            max_shared_per_block: 232_448,
            max_shared_per_sm: 233_472,
            max_threads_per_block: 1024,
            max_threads_per_sm: 2048,
            max_grid: [i32::MAX as u32, 65_535, 65_535],
            max_block: [1024, 1024, 64],
            warp_size: 32,
            clock_khz: 1,
            memory_clock_khz: 1,
            memory_bus_bits: 1,
            ecc: true,
            early_starts: arch >= (9, 0),
        }
    }

    const PLAIN: LaunchConfig = LaunchConfig {
        grid: [8, 1, 1],
        block: [256, 1, 1],
        shared_bytes: 0,
        cluster: None,
        cooperative: false,
        early: false,
    };
    const LIMITS: FunctionLimits =
        FunctionLimits { max_threads: 512, static_shared: 1024, required_block: None };

    fn message(cfg: LaunchConfig, limits: FunctionLimits, arch: (u32, u32)) -> String {
        cfg.check("k", &limits, &device(arch)).map_or_else(|error| error.to_string(), |()| "ok".into())
    }

    #[test]
    fn each_limit_holds_at_its_edge_and_names_itself_one_past() {
        let cases = [
            (LaunchConfig { grid: [8, 65_535, 1], ..PLAIN }, "ok"),
            (
                LaunchConfig { grid: [8, 65_536, 1], ..PLAIN },
                "k: blocks along y must be at most 65535, got 65536",
            ),
            (
                LaunchConfig { grid: [1 << 31, 1, 1], ..PLAIN },
                "k: blocks along x must be at most 2147483647, got 2147483648",
            ),
            (LaunchConfig { block: [1, 1, 65], ..PLAIN }, "k: threads along z must be at most 64, got 65"),
            (LaunchConfig { block: [32, 16, 1], ..PLAIN }, "ok"),
            (
                LaunchConfig { block: [33, 16, 1], ..PLAIN },
                "k: threads of a block must be at most 512, got 528",
            ),
            (
                LaunchConfig { block: [32, 0, 1], ..PLAIN },
                "k: `block` must be at least one thread, got [32, 0, 1]",
            ),
            (LaunchConfig { shared_bytes: 231_424, ..PLAIN }, "ok"),
            (
                LaunchConfig { shared_bytes: 231_425, ..PLAIN },
                "k: bytes of shared memory a block must be at most 232448, got 232449",
            ),
            (
                LaunchConfig { shared_bytes: u32::MAX, ..PLAIN },
                "k: bytes of shared memory a block must be at most 232448, got 4294968319",
            ),
        ];
        for (cfg, expected) in cases {
            assert_eq!(message(cfg, LIMITS, (9, 0)), expected, "{cfg:?}");
        }
    }

    #[test]
    fn clusters_need_hopper_and_divide_the_grid() {
        let with = |grid, cluster| LaunchConfig { grid: [grid, 1, 1], cluster: Some(cluster), ..PLAIN };
        assert_eq!(message(with(8, 4), LIMITS, (9, 0)), "ok");
        assert_eq!(message(with(32, 16), LIMITS, (9, 0)), "ok");
        assert_eq!(message(with(8, 2), LIMITS, (8, 9)), "k: blocks of a cluster must be at most 1, got 2");
        assert_eq!(
            message(with(34, 17), LIMITS, (9, 0)),
            "k: blocks of a cluster must be at most 16, got 17"
        );
        let refused = "k: `cluster` must be a divisor of the grid's x, got cluster 4 of grid [9, 1, 1]";
        assert_eq!(message(with(9, 4), LIMITS, (9, 0)), refused);
        assert!(message(with(9, 0), LIMITS, (9, 0)).contains("divisor"));
    }

    #[test]
    fn a_required_block_is_required_exactly() {
        let limits = FunctionLimits { required_block: Some([256, 1, 1]), ..LIMITS };
        let with = |block| LaunchConfig { block, ..PLAIN };
        assert_eq!(message(with([256, 1, 1]), limits, (8, 0)), "ok");
        assert_eq!(message(with([128, 1, 1]), limits, (8, 0)), "k: the block must have 256 threads, got 128");
        let refused = "k: `block` must be [256, 1, 1], got [16, 16, 1]";
        assert_eq!(message(with([16, 16, 1]), limits, (8, 0)), refused);
    }
}
