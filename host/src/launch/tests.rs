use kernels_gpu::probe::{copy, empty};

use super::*;
use crate::{Checks, DType, Tensor};

/// Copies `x` by the probe's kernel; `packs` may be a lie.
fn copied(device: &Device, x: &Tensor, packs: u64) -> Result<Tensor> {
    let y = Tensor::uninit(device, x.dtype(), x.shape())?;
    let kernel = &copy::ALL[0];
    let per_block = u64::from(kernel.bounds.threads) * kernel.constant("PACKS") as u64;
    let grid = Grid::covering(packs, per_block)?;
    // SAFETY: the CPU's checker tests each access.
    unsafe { device.launch(kernel, grid, (x.view()?, y.view_mut()?, packs))? };
    Ok(y)
}

#[test]
fn the_copy_kernel_copies_under_every_level_of_checks() {
    let data: Vec<u32> = (0..4 * 1500u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    for checks in [Checks::None, Checks::Bounds, Checks::Full] {
        let device = Device::cpu_with(checks);
        let x = Tensor::from_slice(&device, &[1500, 4], &data).unwrap();
        let y = copied(&device, &x, 1500).unwrap();
        assert_eq!(y.to_vec::<u32>().unwrap(), data);
        // A view that starts further on.
        let rows = x.narrow(0, 3, 7).unwrap();
        assert_eq!(copied(&device, &rows, 7).unwrap().to_vec::<u32>().unwrap(), data[12..40]);
    }
}

#[test]
fn a_kernel_that_runs_past_its_output_is_stopped() {
    let device = Device::cpu();
    let x = Tensor::zeros(&device, DType::U32, &[12]).unwrap();
    let part = x.narrow(0, 0, 8).unwrap(); // the input goes on, the output does not
    let error = copied(&device, &part, 3).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Checker { .. }), "{text}");
    assert!(text.starts_with("the checker stopped `probe_copy_1_128`: OutOfBounds"), "{text}");
    assert!(text.contains("basics.rs") && !text.contains('\n'), "{text}");
}

#[test]
fn a_kernel_that_reads_unwritten_memory_is_stopped() {
    let device = Device::cpu();
    let x = Tensor::uninit(&device, DType::U32, &[8]).unwrap();
    let error = copied(&device, &x, 2).unwrap_err().to_string();
    assert!(error.contains("Uninitialized"), "{error}");
}

#[test]
fn no_blocks_no_launch() {
    let device = Device::cpu();
    let x = Tensor::zeros(&device, DType::U32, &[0]).unwrap();
    assert_eq!(copied(&device, &x, 0).unwrap().to_vec::<u32>().unwrap(), [0u32; 0]);
}

#[test]
fn grids_past_the_limits_are_refused() {
    assert_eq!(Grid::new(Grid::MAX_X).unwrap().blocks, [i32::MAX as u32, 1, 1]);
    let text = |grid: Result<Grid>| grid.unwrap_err().to_string();
    assert_eq!(text(Grid::new(1 << 31)), "launch: blocks along x must be at most 2147483647, got 2147483648");
    assert_eq!(
        text(Grid::xyz(1, 1 << 40, 1)),
        "launch: blocks along y must be at most 65535, got 1099511627776"
    );
    assert_eq!(Grid::covering(1025, 1024).unwrap().blocks, [2, 1, 1]);
    assert_eq!(Grid::covering(0, 1024).unwrap().blocks, [0, 1, 1]);
}

#[test]
fn launches_past_the_limits_are_refused_as_on_a_gpu() {
    let one = Grid::new(1).unwrap();
    let cases = [
        (Grid { blocks: [1, 1, 65536], ..one }, "blocks along z must be at most 65535, got 65536"),
        (one.shared(232_449), "bytes of shared memory a block must be at most 232448, got 232449"),
        (one.cluster(17), "blocks of a cluster must be at most 16, got 17"),
        (one.cluster(2), "`cluster` must be a divisor of the grid's x, got cluster 2 of grid [1, 1, 1]"),
        (one.cluster(0), "`cluster` must be a divisor of the grid's x, got cluster 0 of grid [1, 1, 1]"),
        (
            Grid::new(5000).unwrap().cooperative(),
            "blocks of a cooperative grid must be at most 4224, got 5000",
        ),
    ];
    for (grid, want) in cases {
        // SAFETY: the kernel touches no memory.
        let error = unsafe { Device::cpu().launch(&empty::ALL[0], grid, ()) }.unwrap_err();
        assert_eq!(error.to_string(), format!("probe_empty: {want}"));
    }
    // SAFETY: as above.
    unsafe { Device::cpu().launch(&empty::ALL[0], one.shared(232_448), ()) }.unwrap();
}

/// An empty kernel by [`Device::launch`] takes at most a tenth longer than by the driver's own call. Nanoseconds of each are the
/// least of several batches, taken in turn, since other work on the machine only adds to them.
#[test]
fn a_launch_costs_little_more_than_the_drivers_own() {
    const BATCHES: u32 = 60;
    const LAUNCHES: u32 = 500; // fewer than the driver queues before it blocks
    let device = match Device::cuda(0) {
        Ok(device) => device,
        Err(error @ (Error::NoDriver { .. } | Error::NoDevice { .. })) => {
            return println!("skipped: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let Kind::Cuda(gpu, stream) = device.kind() else { unreachable!("it is a GPU") };
    let kernel = &empty::ALL[0];
    let function = gpu.context.function(families::find(kernel.into()).unwrap(), kernel.name).unwrap();
    let time = |launch: &dyn Fn() -> Result<()>| {
        device.synchronize().unwrap();
        let start = std::time::Instant::now();
        (0..LAUNCHES).try_for_each(|_| launch()).unwrap();
        start.elapsed().as_nanos() as f64 / f64::from(LAUNCHES)
    };
    let grid = Grid::new(1).unwrap();
    // SAFETY: the kernel takes no arguments and touches no memory.
    let early = || unsafe { device.launch(kernel, grid, ()) };
    // SAFETY: as above.
    let ours = || unsafe { device.launch(kernel, grid.early_if(false), ()) };
    let bare = || {
        let (stream, threads, none) = (stream.raw(), kernel.bounds.threads, std::ptr::null_mut());
        // SAFETY: as above; function and stream are alive.
        let code = unsafe {
            let function = function.raw();
            cuda_driver::sys::cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, none, none.cast())
        };
        assert_eq!(code, cuda_driver::sys::CUDA_SUCCESS);
        Ok(())
    };
    let mut least = [f64::INFINITY; 3];
    for _ in 0..BATCHES {
        for (least, taken) in least.iter_mut().zip([time(&ours), time(&early), time(&bare)]) {
            *least = least.min(taken);
        }
    }
    let [ours, early, bare] = least;
    println!("a launch: {ours:.0} ns, where it may start early {early:.0} ns, the driver's own {bare:.0} ns");
    assert!(ours <= 1.1 * bare, "{ours:.0} ns, {bare:.0} ns by the driver alone");
}

#[test]
fn few_blocks_are_spread_and_many_are_left_alone() {
    let (multiprocessors, bytes) = (132, 228 << 10);
    let room = |blocks: [u64; 3], shared: u32| {
        let grid = Grid::xyz(blocks[0], blocks[1], blocks[2]).unwrap().shared(shared);
        crate::cuda::shared::blocks_that_fit(bytes, grid.spread_over(multiprocessors, bytes))
    };
    for (blocks, fit) in [(1, 1), (132, 1), (133, 2), (264, 2), (265, 3), (6 * 132, 6)] {
        assert_eq!(room([blocks, 1, 1], 0), fit, "{blocks}");
    }
    assert_eq!(room([11, 3, 4], 0), 1);
    // What they need anyway stays, and where there are many of them nothing is added.
    assert_eq!(room([264, 1, 1], 200 << 10), 1);
    let of_clusters = |blocks, cluster| {
        let grid = Grid::new(blocks).unwrap().cluster(cluster);
        crate::cuda::shared::blocks_that_fit(bytes, grid.spread_over(multiprocessors, bytes))
    };
    assert_eq!(
        [(132, 2), (120, 8), (128, 8)].map(|(blocks, cluster)| of_clusters(blocks, cluster)),
        [1, 1, 2]
    );
    let many = Grid::new(6 * 132 + 1).unwrap().shared(100);
    assert_eq!(many.spread_over(multiprocessors, bytes), 100);
    // The CPU has no multiprocessors.
    assert_eq!(many.spread(&Device::cpu()), many);
}
