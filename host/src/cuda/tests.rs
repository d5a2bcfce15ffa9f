//! The runtime on a GPU. Without one, each test says so and ends.

use std::sync::Arc;

use super::*;
use crate::error::{Error, Result};

static FAMILY: PtxFamily = PtxFamily::text("runtime_test", &[(PtxArch::Sm80, PTX)]);
static BROKEN: PtxFamily = PtxFamily::text("broken_test", &[(PtxArch::Sm80, BROKEN_PTX)]);

/// `add` adds `value` to `n` integers; `exact` does nothing, in blocks of 64.
const PTX: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 data, .param .u32 n, .param .u32 value)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [data];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [value];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %d2, %d1;
    mul.wide.u32 %d3, %r6, 4;
    add.s64 %d2, %d2, %d3;
    ld.global.u32 %r7, [%d2];
    add.u32 %r7, %r7, %r2;
    st.global.u32 [%d2], %r7;
DONE:
    ret;
}
.visible .entry exact()
.reqntid 64, 1, 1
{
    ret;
}
";

const BROKEN_PTX: &str = "
.version 7.0
.target sm_80
.address_size 64
.visible .entry broken()
{
    no_such_instruction.u32 %r1;
    ret;
}
.visible .entry sound()
{
    ret;
}
";

const N: u32 = 1000;
const PLAIN: LaunchConfig = LaunchConfig {
    grid: [16, 1, 1],
    block: [64, 1, 1],
    shared_bytes: 0,
    cluster: None,
    cooperative: false,
    early: false,
};

/// Runs `body` with the first GPU.
fn on_gpu(body: impl FnOnce(&Arc<Context>) -> Result<()>) {
    match Context::open(0) {
        Ok(context) => body(&context).unwrap(),
        Err(error @ (Error::NoDriver { .. } | Error::NoDevice { .. })) => println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    }
}

fn add(
    context: &Context,
    data: &DeviceBuffer,
    value: u32,
    cfg: &LaunchConfig,
    stream: &Stream,
) -> Result<()> {
    data.keep_for(stream)?;
    let mut args = data.ptr().to_le_bytes().to_vec();
    args.extend(N.to_le_bytes());
    args.extend(value.to_le_bytes());
    // SAFETY: the arguments are those of `add`, and `data` holds N integers.
    unsafe { context.launch(&FAMILY, "add", cfg, &args, stream) }
}

fn numbers(context: &Arc<Context>, stream: &Arc<Stream>) -> Result<DeviceBuffer> {
    let bytes: Vec<u8> = (0..N).flat_map(u32::to_le_bytes).collect();
    let data = context.alloc(bytes.len(), stream)?;
    data.upload(0, &bytes, stream)?;
    Ok(data)
}

fn read(data: &DeviceBuffer, stream: &Stream) -> Result<Vec<u32>> {
    let mut bytes = vec![0; data.bytes()];
    data.download(0, &mut bytes, stream)?;
    Ok(bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect())
}

fn raised_by(value: u32) -> Vec<u32> {
    (0..N).map(|number| number + value).collect()
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let error = Context::open(99).unwrap_err();
    assert!(matches!(error, Error::NoDriver { .. } | Error::NoDevice { ordinal: 99, .. }), "{error}");
}

#[test]
fn a_context_is_opened_once_and_knows_its_device() {
    on_gpu(|context| {
        println!("{:?}, driver {:?}", context.info(), driver_version()?);
        assert!(Arc::ptr_eq(context, &Context::open(0)?));
        let (free, total) = context.free_and_total()?;
        assert!(free <= total && total > 1 << 30);
        assert!(context.info().sm_count > 0 && context.info().max_shared_per_block > 48 << 10);
        Ok(())
    });
}

#[test]
fn bytes_come_back_as_they_were_uploaded_filled_and_copied() {
    on_gpu(|context| {
        let stream = context.new_stream()?;
        let (a, b) = (context.alloc(1000, &stream)?, context.alloc(1000, &stream)?);
        let bytes: Vec<u8> = (0..1000_u32).map(|i| (i * 7 % 251) as u8).collect();
        a.upload(0, &bytes, &stream)?;
        b.fill(0, 1000, 0xA5, &stream)?;
        b.copy_from(100, &a, 50, 300, &stream)?;
        let mut back = vec![0; 1000];
        b.download(0, &mut back, &stream)?;
        assert_eq!(back[..100], [0xA5; 100]);
        assert_eq!(back[100..400], bytes[50..350]);
        assert_eq!(back[400..], [0xA5; 600]);
        assert!(matches!(a.upload(1, &bytes, &stream), Err(Error::TooLarge { limit: 1000, .. })));
        assert!(matches!(a.fill(usize::MAX, 2, 0, &stream), Err(Error::TooLarge { .. })));
        assert!(matches!(a.copy_from(0, &a, 10, 20, &stream), Err(Error::Parameter { .. })));
        let empty = context.alloc(0, &stream)?;
        assert_eq!((empty.ptr(), empty.bytes()), (0, 0));
        empty.upload(0, &[], &stream)
    });
}

#[test]
fn an_allocation_past_the_memory_says_how_much_there_was() {
    on_gpu(|context| {
        let error = context.alloc(1 << 50, context.default_stream()).unwrap_err();
        println!("{error}");
        assert!(
            matches!(error, Error::OutOfMemory { requested, total, .. } if requested == 1 << 50 && total > 0)
        );
        Ok(())
    });
}

#[test]
fn plain_large_shared_clustered_and_cooperative_launches_run() {
    on_gpu(|context| {
        let stream = context.default_stream();
        let hopper = context.info().arch.0 >= 9;
        let cluster = |size| hopper.then_some(size);
        for cfg in [
            PLAIN,
            LaunchConfig { shared_bytes: 100 << 10, ..PLAIN },
            LaunchConfig { shared_bytes: context.info().max_shared_per_block, ..PLAIN },
            LaunchConfig { cluster: cluster(1), ..PLAIN },
            LaunchConfig { cluster: cluster(2), ..PLAIN },
            LaunchConfig { cluster: cluster(16), ..PLAIN },
            LaunchConfig { cooperative: true, ..PLAIN },
            LaunchConfig { cooperative: true, cluster: cluster(4), ..PLAIN },
        ] {
            let data = numbers(context, stream)?;
            add(context, &data, 5, &cfg, stream)?;
            assert_eq!(read(&data, stream)?, raised_by(5), "{cfg:?}");
        }
        assert!(context.max_blocks_per_sm(&FAMILY, "add", 64, 0)? >= 1);
        if hopper {
            let cfg = LaunchConfig { cluster: Some(2), ..PLAIN };
            assert!(context.max_active_clusters(&FAMILY, "add", &cfg)? >= 1);
        }
        let add = context.function(&FAMILY, "add")?;
        println!("add: {} registers, arguments {:?} bytes", add.registers(), add.arguments());
        println!("{:?}", context.module_loads());
        assert_eq!(context.module_loads().iter().filter(|load| load.kernel == "add").count(), 1);
        Ok(())
    });
}

#[test]
fn launches_that_cannot_work_are_refused_with_a_reason() {
    on_gpu(|context| {
        let stream = context.default_stream();
        // SAFETY: `exact` takes no arguments, and none of these launches takes place.
        let exact =
            |cfg: LaunchConfig, args: &[u8]| unsafe { context.launch(&FAMILY, "exact", &cfg, args, stream) };
        exact(PLAIN, &[])?;
        exact(LaunchConfig { grid: [0, 1, 1], block: [7, 1, 1], ..PLAIN }, &[])?;
        let error = exact(LaunchConfig { block: [32, 1, 1], ..PLAIN }, &[]).unwrap_err();
        assert!(matches!(error, Error::BlockSize { required: 64, got: 32, .. }), "{error}");
        let huge = LaunchConfig { grid: [1 << 20, 1, 1], cooperative: true, ..PLAIN };
        assert!(matches!(exact(huge, &[]), Err(Error::LaunchLimit { .. })));
        // Only newer drivers know the size of the arguments.
        if context.function(&FAMILY, "add")?.arguments().is_some() {
            // SAFETY: the launch does not take place.
            let error = unsafe { context.launch(&FAMILY, "add", &PLAIN, &[0; 8], stream) }.unwrap_err();
            assert_eq!(error.to_string(), "add: `arguments` must be 16 bytes, got 8 bytes");
        }
        let error = context.function(&FAMILY, "no_such_kernel").unwrap_err();
        assert!(error.to_string().contains("no kernel `no_such_kernel`"), "{error}");
        let error = context.function(&BROKEN, "broken").unwrap_err();
        println!("{error}");
        assert!(
            matches!(&error, Error::Module { log, .. } if log.contains("no_such_instruction") && log.starts_with("broken: ")),
            "{error}"
        );
        // A kernel beside it is none the worse.
        context.function(&BROKEN, "sound")?;
        Ok(())
    });
}

#[test]
fn events_order_streams_and_measure_time() {
    on_gpu(|context| {
        let (a, b) = (context.new_stream()?, context.new_stream()?);
        let data = numbers(context, &a)?;
        let start = a.record()?;
        add(context, &data, 1, &PLAIN, &a)?;
        let middle = a.record()?;
        b.wait(&middle)?;
        add(context, &data, 2, &PLAIN, &b)?;
        let end = b.record()?;
        end.synchronize()?;
        assert!(end.is_done()? && end.elapsed_ms_since(&start)? > 0.0);
        assert_eq!(read(&data, &b)?, raised_by(3));
        // SAFETY: null is the legacy default stream, which always exists.
        let legacy = unsafe { context.foreign_stream(std::ptr::null_mut()) };
        add(context, &data, 4, &PLAIN, &legacy)?;
        assert_eq!(read(&data, &legacy)?, raised_by(7));
        Ok(())
    });
}

#[test]
fn a_graph_repeats_its_work_and_keeps_its_memory() {
    on_gpu(|context| {
        let stream = context.new_stream()?;
        let input = numbers(context, &stream)?;
        let mut output = None;
        let mut reused = None;
        let graph = Graph::capture(&stream, || {
            assert!(stream.is_capturing()?);
            assert!(matches!(input.upload(0, &[1], &stream), Err(Error::State { .. })));
            assert!(matches!(stream.synchronize(), Err(Error::State { .. })));
            let first = context.alloc(input.bytes(), &stream)?;
            first.copy_from(0, &input, 0, input.bytes(), &stream)?;
            add(context, &first, 10, &PLAIN, &stream)?;
            let second = context.alloc(input.bytes(), &stream)?;
            second.copy_from(0, &first, 0, first.bytes(), &stream)?;
            let first_ptr = first.ptr();
            drop(first);
            let third = context.alloc(input.bytes(), &stream)?;
            reused = Some(third.ptr() == first_ptr);
            third.copy_from(0, &second, 0, second.bytes(), &stream)?;
            add(context, &third, 100, &PLAIN, &stream)?;
            output = Some(third);
            Ok(())
        })?;
        assert_eq!(reused, Some(true), "what a capture has done with serves its next allocation");
        assert_eq!(graph.node_count(), 5);
        let output = output.unwrap();
        graph.launch(&stream)?;
        assert_eq!(read(&output, &stream)?, raised_by(110));
        add(context, &input, 1000, &PLAIN, &stream)?;
        let other = context.new_stream()?;
        other.wait(&stream.record()?)?;
        drop(input); // the graph reads it, so it keeps it
        graph.launch(&other)?;
        drop(graph);
        assert_eq!(read(&output, &other)?, raised_by(1110));
        drop(output);
        context.trim()
    });
}

#[test]
fn a_failed_capture_leaves_the_stream_usable() {
    on_gpu(|context| {
        let stream = context.new_stream()?;
        let data = numbers(context, &stream)?;
        let result = Graph::capture(&stream, || {
            add(context, &data, 1, &PLAIN, &stream)?;
            let _dropped = context.alloc(1 << 20, &stream)?;
            Err(Error::State { op: "test", reason: "on purpose" })
        });
        assert!(matches!(result, Err(Error::State { op: "test", .. })));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Graph::capture(&stream, || panic!("on purpose"))
        }));
        assert!(panic.is_err() && !stream.is_capturing()?);
        add(context, &data, 2, &PLAIN, &stream)?;
        assert_eq!(read(&data, &stream)?, raised_by(2));
        Ok(())
    });
}

#[test]
fn threads_share_a_context() {
    on_gpu(|context| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|value| {
                    scope.spawn(move || -> Result<()> {
                        let stream = context.new_stream()?;
                        for _ in 0..50 {
                            let data = numbers(context, &stream)?;
                            add(context, &data, value, &PLAIN, &stream)?;
                            assert_eq!(read(&data, &stream)?, raised_by(value));
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })
    });
}

#[test]
fn the_first_use_of_a_kernel_loads_it_alone_and_once() {
    on_gpu(|context| {
        let family = &crate::families::PROBE;
        let kernel = family.kernels().into_iter().find(|name| name.starts_with("probe_copy_")).unwrap();
        let loads = || context.module_loads().into_iter().filter(|load| load.family == family.name);
        let before = loads().filter(|load| load.kernel != kernel).count();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| context.function(family, kernel))).collect();
            let functions = threads.into_iter().map(|thread| thread.join().unwrap());
            let functions = functions.collect::<Result<Vec<_>>>()?;
            assert!(functions.iter().all(|function| function.raw() == functions[0].raw()));
            // The same name elsewhere in the program is the same kernel.
            let copy: &'static str = kernel.to_owned().leak();
            assert_eq!(context.function(family, copy)?.raw(), functions[0].raw());
            Ok::<_, Error>(())
        })?;
        let load = loads().find(|load| load.kernel == kernel).unwrap();
        println!("{load:?}");
        let early = context.info().early_starts;
        assert_eq!(context.function(family, kernel)?.can_start_early(), early);
        let ptx =
            if early { family.ptx_that_waits(load.arch, kernel) } else { family.ptx(load.arch, kernel) };
        assert_eq!(load.ptx_bytes, ptx.unwrap().len());
        assert_eq!(loads().filter(|load| load.kernel == kernel).count(), 1);
        assert_eq!(loads().filter(|load| load.kernel != kernel).count(), before);
        Ok(())
    });
}

/// What the first use of each kernel costs; `CUDA_CACHE_DISABLE=1` makes it the first one of all.
#[test]
#[ignore = "a measurement"]
fn loads_of_all_kernels() {
    on_gpu(|context| {
        for family in crate::families() {
            let arch = family.arch_for(context.info().arch).unwrap();
            let kernels = family.kernels();
            let mut failures = Vec::new();
            for kernel in kernels.iter().filter(|kernel| family.ptx(arch, kernel).is_some()) {
                failures.extend(context.function(family, kernel).err());
            }
            let mut loads = context.module_loads();
            loads.retain(|load| load.family == family.name);
            loads.sort_by_key(|load| load.micros);
            let [first, middle, last] = [0, loads.len() / 2, loads.len() - 1].map(|index| &loads[index]);
            println!("{} loads of {} for {arch}:\n{first:?}\n{middle:?}\n{last:?}", loads.len(), family.name);
            assert!(failures.is_empty(), "{failures:?}");
        }
        Ok(())
    });
}
