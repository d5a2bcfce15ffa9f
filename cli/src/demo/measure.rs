//! Times on a GPU, and the copy rate that they are compared with.

use warpwright::{DType, Device, Event, Result, Stream, Tensor};

use super::random;
use crate::probe;

/// Bytes of the copy that gives the rate, where the GPU has room for it.
const COPY_BYTES: usize = 1 << 30;
const WARM_UP: usize = 5;
const LAUNCHES: usize = 25;
/// Copies given to the GPU ahead of what is timed, so that it never waits for the host.
const HEAD_START: usize = 3;

pub struct Meter {
    stream: Stream,
    x: Tensor,
    y: Tensor,
    /// Bytes a second, read and written.
    rate: f64,
}

impl Meter {
    /// Measures the copy rate.
    pub fn new(device: &Device) -> Result<Meter> {
        let room = device.info().map_or(COPY_BYTES, |info| info.total_memory / 8);
        let words = COPY_BYTES.min(room) / 16 * 4;
        // Random bits: memory and buses take longer over them than over zeros.
        let x = random::tensor(device, DType::F32, &[words], 1.0, u64::from(u32::MAX))?;
        let x = Tensor::from_bytes(device, DType::U32, &[words], &x.to_bytes()?)?;
        let y = Tensor::uninit(device, DType::U32, &[words])?;
        let stream = match device.stream() {
            Some(stream) => stream.clone(),
            None => device.new_stream()?, // the CPU's error
        };
        let mut meter = Meter { stream, x, y, rate: 0.0 };
        let ms = meter.median_ms(1, |_| probe::copy(&meter.x, &meter.y))?;
        meter.rate = (2 * 4 * words) as f64 / (ms / 1e3);
        Ok(meter)
    }

    /// Bytes a second that a copy reads and writes.
    pub fn copy_rate(&self) -> f64 {
        self.rate
    }

    /// The median time of a launch, with the sets taking turns.
    pub fn median_ms(&self, sets: usize, launch: impl Fn(usize) -> Result<()>) -> Result<f64> {
        let sets = sets.max(1);
        for turn in 0..WARM_UP {
            launch(turn % sets)?;
        }
        for _ in 0..HEAD_START {
            probe::copy(&self.x, &self.y)?;
        }
        let mut marks: Vec<Event> = vec![self.stream.record()?];
        for turn in 0..LAUNCHES {
            launch((WARM_UP + turn) % sets)?;
            marks.push(self.stream.record()?);
        }
        self.stream.synchronize()?;
        self.x.device().check_values()?;
        let mut times: Vec<f32> =
            marks.windows(2).map(|pair| pair[1].elapsed_ms_since(&pair[0])).collect::<Result<_>>()?;
        times.sort_by(f32::total_cmp);
        Ok(times[times.len() / 2].into())
    }
}
