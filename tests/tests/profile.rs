//! Recordings of what operations launch.

use std::time::Duration;

use warpwright::ops::{self, Positions};
use warpwright::{DType, Device, Graph, Result, Tensor, profile};
use warpwright_tests::{first_gpu_apart, on_each_device};

on_each_device! {
    fn every_kernel_of_an_operation_is_recorded_with_its_times(device: &Device) -> Result<()> {
        let tokens = Tensor::zeros(device, DType::I32, &[2, 100])?;
        let dy = Tensor::zeros(device, DType::F32, &[2, 100, 8])?;
        let (wte, wpe) = (Tensor::zeros(device, DType::F32, &[300, 8])?, Tensor::zeros(device, DType::F32, &[100, 8])?);
        let positions = Some(Positions::new(&wpe));
        let backward = || ops::embedding_backward(&tokens, &dy, &wte, positions);
        backward()?; // loads the kernels
        let (recorded, _) = profile::record(device, || {
            profile::range("first", backward)?;
            profile::range("second", backward)
        })?;
        let launches = recorded.launches();
        assert!(launches.len() > 2 && launches.len().is_multiple_of(2), "{launches:?}");
        let (first, second) = launches.split_at(launches.len() / 2);
        for (a, b) in first.iter().zip(second) {
            assert_eq!((a.kernel, a.grid, a.bytes), (b.kernel, b.grid, b.bytes));
            assert_eq!((a.range, b.range), (Some(0), Some(1)));
            assert!(a.kernel.starts_with("embedding_") && a.bytes > 0, "{a:?}");
        }
        // A stream runs one after the other.
        let runs: Vec<_> = launches.iter().map(|launch| launch.run.expect("not captured")).collect();
        let blur = Duration::from_micros(2);
        for pair in runs.windows(2) {
            assert!(pair[0].start + pair[0].length <= pair[1].start + blur, "{pair:?}");
        }
        assert!(runs.iter().all(|run| run.length > Duration::ZERO && run.length < recorded.elapsed()), "{runs:?}");
        Ok(())
    }
}

#[test]
fn launches_into_a_graph_have_no_time_on_the_device() -> Result<()> {
    let test = "launches_into_a_graph_have_no_time_on_the_device";
    let Some(device) = first_gpu_apart(test)? else { return Ok(()) };
    let x = Tensor::from_slice(&device, &[3], &[1.0f32, 2.0, 3.0])?;
    let y = Tensor::uninit(&device, DType::F32, &[3])?;
    let (recorded, graph) = profile::record(&device, || {
        Graph::capture(&device, |_| ops::add_into(&x, &x, &y)).map(|(graph, ())| graph)
    })?;
    assert_eq!(recorded.launches().len(), 1);
    assert_eq!(recorded.launches()[0].run, None);
    let (replayed, ()) = profile::record(&device, || graph.launch())?;
    assert!(replayed.launches().is_empty(), "a replay is no launch");
    assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
    Ok(())
}
