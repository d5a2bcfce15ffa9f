//! How long a call takes: replays of a graph of many calls, so that the host's launches do not count.

use std::time::{Duration, Instant};

use warpwright::{Device, Event, Graph, Result, Stream};

/// A graph holds at least so many calls, each set the same number of times.
const CALLS: usize = 16;
const REPLAYS: usize = 9;
/// A GPU that had nothing to do raises its clocks first.
const WARM_UP: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The median of the replays, in microseconds a call.
    pub us: f64,
    /// The slowest replay over the fastest, minus one.
    pub spread: f64,
}

impl Timing {
    /// GB/s of a call that moves so many bytes.
    pub fn gbps(&self, bytes: u64) -> f64 {
        bytes as f64 / self.us / 1e3
    }
}

/// Times `launch`, which is called with the sets in turn, and which must work on this device's stream.
pub fn time(device: &Device, sets: usize, launch: &dyn Fn(usize) -> Result<()>) -> Result<Timing> {
    let sets = sets.max(1);
    let calls = CALLS.next_multiple_of(sets);
    (0..sets).try_for_each(launch)?; // loads the kernel
    device.synchronize()?;
    let (graph, ()) = Graph::capture(device, |_| (0..calls).try_for_each(|call| launch(call % sets)))?;
    let stream: Stream = match device.stream() {
        Some(stream) => stream.clone(),
        None => device.new_stream()?, // the CPU's error
    };
    let warm = Instant::now();
    while warm.elapsed() < WARM_UP {
        graph.launch()?;
        stream.synchronize()?;
    }
    // Nothing waits for the host from here on, so no replay that counts begins on an idle GPU.
    graph.launch()?;
    let mut marks: Vec<Event> = vec![stream.record()?];
    for _ in 0..REPLAYS {
        graph.launch()?;
        marks.push(stream.record()?);
    }
    device.synchronize()?;
    let replays: Vec<f32> =
        marks.windows(2).map(|pair| pair[1].elapsed_ms_since(&pair[0])).collect::<Result<_>>()?;
    Ok(summary(replays.into_iter().map(|ms| f64::from(ms) * 1e3 / calls as f64).collect()))
}

fn summary(mut times: Vec<f64>) -> Timing {
    times.sort_by(f64::total_cmp);
    match (times.first(), times.last()) {
        (Some(fastest), Some(slowest)) => {
            Timing { us: times[times.len() / 2], spread: slowest / fastest - 1.0 }
        }
        _ => Timing { us: f64::NAN, spread: f64::NAN },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpwright::Error;

    #[test]
    fn the_figure_is_the_median() {
        assert_eq!(summary(vec![3.0, 100.0, 2.0]), Timing { us: 3.0, spread: 49.0 });
        assert_eq!(summary(vec![5.0]), Timing { us: 5.0, spread: 0.0 });
        assert!(summary(Vec::new()).us.is_nan());
        assert_eq!(Timing { us: 2.0, spread: 0.0 }.gbps(6_000_000), 3000.0);
    }

    #[test]
    fn the_cpu_is_not_timed() {
        let error = time(&Device::cpu(), 2, &|_| Ok(())).unwrap_err();
        assert!(matches!(error, Error::State { .. }), "{error}");
    }
}
