//! What a recording comes to: the table, and the object of `--json`.

use std::time::Duration;

use serde::Serialize;
use warpwright::Device;
use warpwright::profile::{KernelTotal, Profile};

use crate::bench::case::{Case, shape_name};
use crate::table::Table;

#[derive(Debug, Serialize)]
pub struct Report {
    device: String,
    name: String,
    op: &'static str,
    shape: Vec<usize>,
    dtype: &'static str,
    variant: String,
    calls: usize,
    /// What a copy moves in GB/s; none on the CPU.
    copy_gbps: Option<f64>,
    kernels: Vec<Kernel>,
    /// Of a call of the operation.
    call: Call,
    /// From the first launch to the end, in microseconds.
    elapsed_us: f64,
}

/// A kernel; times and bytes are those of a launch, on average.
#[derive(Debug, Serialize)]
struct Kernel {
    kernel: &'static str,
    launches: usize,
    host_us: f64,
    device_us: f64,
    /// Of the time of all kernels.
    share_of_time: f64,
    /// What its operands have: what it moves if it touches all of it once.
    bytes: f64,
    gbps: f64,
    /// Of the copy.
    share_of_copy: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Call {
    launches: f64,
    host_us: f64,
    device_us: f64,
    /// The least that it must move.
    floor_bytes: u64,
    gbps: f64,
    share_of_copy: Option<f64>,
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl Report {
    pub fn new(
        device: &Device,
        case: &Case,
        floor: u64,
        calls: usize,
        copy: Option<f64>,
        profile: &Profile,
    ) -> Report {
        let totals = profile.kernels();
        let all: Duration = totals.iter().map(|total| total.run).sum();
        let host: Duration = totals.iter().map(|total| total.call).sum();
        let share = |gbps: f64| copy.map(|copy| gbps / copy);
        let kernel = |total: &KernelTotal| {
            let launches = total.calls as f64;
            let (bytes, device_us) = (total.bytes as f64 / launches, micros(total.run) / launches);
            let gbps = bytes / device_us / 1e3;
            Kernel {
                kernel: total.kernel,
                launches: total.calls,
                host_us: micros(total.call) / launches,
                device_us,
                share_of_time: total.run.as_secs_f64() / all.as_secs_f64(),
                bytes,
                gbps,
                share_of_copy: share(gbps),
            }
        };
        let device_us = micros(all) / calls as f64;
        let gbps = floor as f64 / device_us / 1e3;
        let call = Call {
            launches: profile.launches().len() as f64 / calls as f64,
            host_us: micros(host) / calls as f64,
            device_us,
            floor_bytes: floor,
            gbps,
            share_of_copy: share(gbps),
        };
        Report {
            device: device.to_string(),
            name: device.name().to_owned(),
            op: case.op,
            shape: case.shape.clone(),
            dtype: case.dtype.name(),
            variant: case.variant.clone(),
            calls,
            copy_gbps: copy,
            kernels: totals.iter().map(kernel).collect(),
            call,
            elapsed_us: micros(profile.elapsed()),
        }
    }

    /// A row for each kernel, and one for a call of the operation. Of the CPU, where every launch is checked, a rate says
    /// nothing.
    pub fn text(&self) -> String {
        let header = ["kernel", "launches", "host µs", "device µs", "of time", "MB", "GB/s", "of copy"];
        let mut table = Table::new(&header, 1);
        let share = |share: Option<f64>| share.map_or("–".to_owned(), |share| format!("{share:.3}"));
        let rate = |gbps: f64| if self.copy_gbps.is_some() { format!("{gbps:.0}") } else { "–".to_owned() };
        for kernel in &self.kernels {
            table.row(vec![
                kernel.kernel.to_owned(),
                kernel.launches.to_string(),
                format!("{:.2}", kernel.host_us),
                format!("{:.2}", kernel.device_us),
                format!("{:.1} %", kernel.share_of_time * 100.0),
                format!("{:.3}", kernel.bytes / 1e6),
                rate(kernel.gbps),
                share(kernel.share_of_copy),
            ]);
        }
        table.row(vec![
            format!("a call of {}", self.op),
            format!("{}", self.call.launches),
            format!("{:.2}", self.call.host_us),
            format!("{:.2}", self.call.device_us),
            "100.0 %".to_owned(),
            format!("{:.3}", self.call.floor_bytes as f64 / 1e6),
            rate(self.call.gbps),
            share(self.call.share_of_copy),
        ]);
        let copy = self.copy_gbps.map_or_else(String::new, |copy| format!("; a copy moves {copy:.0} GB/s"));
        let variant = if self.variant.is_empty() { String::new() } else { format!(" {}", self.variant) };
        format!(
            "{} {} {}{variant}: {} {} in {:.0} µs on {}, {}{copy}\n\n{}\n\
             Times are those of a launch on average. A kernel's bytes are those of its operands, the operation's the \
             least that it must move.",
            self.op,
            shape_name(&self.shape),
            self.dtype,
            self.calls,
            if self.calls == 1 { "call" } else { "calls" },
            self.elapsed_us,
            self.device,
            self.name,
            table.render(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpwright::{DType, Tensor, ops, profile};

    use crate::bench::case::Prepared;

    fn report(copy: Option<f64>) -> Report {
        let device = Device::cpu();
        let x = Tensor::from_slice(&device, &[1000], &[1.0f32; 1000]).unwrap();
        let case = Case::new("add", &[1000], DType::F32, "", 1, |_, _| Ok(Prepared::new(1, "", |_| Ok(()))));
        let twice = || (0..2).try_for_each(|_| ops::add(&x, &x).map(drop));
        let (profile, ()) = profile::record(&device, twice).unwrap();
        Report::new(&device, &case, 12_000, 2, copy, &profile)
    }

    fn close(got: f64, want: f64) {
        assert!((got / want - 1.0).abs() < 1e-9, "{got} is not {want}");
    }

    #[test]
    fn rates_are_bytes_over_time_and_shares_those_of_the_copy() {
        let report = report(Some(2.0));
        let [kernel] = &report.kernels[..] else { panic!("{report:?}") };
        assert_eq!((kernel.launches, kernel.bytes), (2, 12_000.0));
        close(kernel.gbps, 12.0 / kernel.device_us);
        close(kernel.share_of_copy.unwrap(), kernel.gbps / 2.0);
        close(kernel.share_of_time, 1.0);
        close(report.call.launches, 1.0);
        close(report.call.device_us, kernel.device_us);
        close(report.call.share_of_copy.unwrap(), 6.0 / report.call.device_us);
    }

    #[test]
    fn the_cpu_has_times_and_no_rates() {
        let text = report(None).text();
        let line =
            |of: &str| text.lines().find(|line| line.starts_with(of)).unwrap_or_else(|| panic!("{text}"));
        assert!(line("pointwise_add").ends_with('–') && line("a call of add").contains("100.0 %"), "{text}");
        assert!(text.starts_with("add 1000 f32: 2 calls in "), "{text}");
    }
}
