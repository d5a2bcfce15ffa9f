//! Graphs: operations captured once, launched many times.

use std::fmt;
use std::sync::Arc;

use crate::cuda;
use crate::device::{Device, Gpu, Kind};
use crate::error::{Error, Result};
use crate::faults::{self, GraphSlots};
use crate::stream::Stream;

/// Operations on a GPU that were captured once and are launched together, which costs the host one call.
///
/// The graph owns the memory that its operations use. Launching it reads the inputs and writes the outputs
/// at the addresses they had during the capture.
pub struct Graph {
    /// Dropped first, since that waits for the last launch.
    inner: Option<cuda::Graph>,
    gpu: Arc<Gpu>,
    stream: Stream,
    slots: GraphSlots,
}

impl Graph {
    /// Captures the operations that `f` makes on the device it is given, without running them. The tensors
    /// that `f` returns hold the results of the latest launch.
    pub fn capture<T>(device: &Device, f: impl FnOnce(&Device) -> Result<T>) -> Result<(Graph, T)> {
        let op = "Graph::capture";
        let Kind::Cuda(gpu, stream) = device.kind() else {
            return Err(Error::State { op, reason: "the CPU device has no graphs" });
        };
        device.refuse_capture(op)?;
        // Words that wait for this stream could not be looked at during the capture.
        device.check_values()?;
        let mut output = None;
        let (captured, words) = faults::capture(|| {
            cuda::Graph::capture(stream.raw_arc(), || {
                output = Some(f(device)?);
                Ok(())
            })
        });
        match (captured, output) {
            (Ok(inner), Some(output)) => {
                let (gpu, stream, slots) = (gpu.clone(), stream.clone(), gpu.slots.adopt(words, stream));
                Ok((Graph { inner: Some(inner), gpu, stream, slots }, output))
            }
            (captured, _) => {
                gpu.slots.abandon(words);
                Err(captured.err().unwrap_or(Error::State { op, reason: "nothing was captured" }))
            }
        }
    }

    /// Launches the operations on the stream they were captured on.
    pub fn launch(&self) -> Result<()> {
        let Some(graph) = &self.inner else { return Ok(()) };
        self.gpu.slots.launch(&self.slots, || graph.launch(self.stream.raw_arc()))
    }

    /// The number of captured operations of the GPU.
    pub fn node_count(&self) -> usize {
        self.inner.as_ref().map_or(0, cuda::Graph::node_count)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.inner = None;
        self.gpu.slots.release(&self.slots);
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("nodes", &self.node_count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Grid, Tensor};

    #[test]
    fn the_cpu_has_no_graphs() {
        let error = Graph::capture(&Device::cpu(), |_| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "Graph::capture: the CPU device has no graphs");
    }

    #[test]
    fn a_graph_keeps_its_memory_and_repeats() {
        let gpu = match Device::cuda(0) {
            Ok(gpu) => gpu,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let device = gpu.on_stream(&gpu.new_stream().unwrap()).unwrap();
        let other = device.on_stream(&device.new_stream().unwrap()).unwrap();
        let data: Vec<u32> = (0..4096).collect();
        let x = Tensor::from_slice(&other, &[4096], &data).unwrap();
        let kernel = &kernels_gpu::probe::copy::ALL[0];
        let (graph, (y, address)) = Graph::capture(&device, |device| {
            assert!(x.to_vec::<u32>().is_ok(), "the other stream is not captured");
            let x = x.on(device)?;
            assert!(matches!(x.to_vec::<u32>(), Err(Error::State { .. })));
            let slot = device.value_slot("op", "lengths", 0, 9)?;
            let y = Tensor::uninit(device, x.dtype(), x.shape())?;
            let grid = Grid::covering(1024, kernel.bounds.threads.into())?;
            // SAFETY: 1024 packs on both sides.
            unsafe { device.launch(kernel, grid, (x.view()?, y.view_mut()?, 1024))? };
            let address = slot.view().address();
            slot.finish()?;
            Ok((y, address))
        })
        .unwrap();
        drop(x);
        for round in 0..3u64 {
            graph.launch().unwrap();
            assert_eq!(y.to_vec::<u32>().unwrap(), data);
            // What a kernel of the graph would do with the word.
            let Kind::Cuda(gpu, stream) = device.kind() else { return };
            // SAFETY: a word that the graph holds.
            let word = unsafe { gpu.context.foreign_memory(address, 8) };
            graph.launch().unwrap();
            word.upload(0, &(round << 32 | 77).to_ne_bytes(), stream.raw_arc()).unwrap();
            let error = device.synchronize().unwrap_err();
            assert!(matches!(error, Error::Value { index, got: 77, .. } if index == round), "{error}");
            device.synchronize().unwrap();
        }
        assert!(graph.node_count() >= 1);
        drop(graph);
        assert_eq!(y.to_vec::<u32>().unwrap(), data);
    }
}
