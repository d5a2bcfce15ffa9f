//! A made-up run, for tests of what is printed.

use super::cold::{ColdStart, Load};
use super::copy::{Contender, Yardstick};
use super::{Begun, Ended, TorchBegun};

fn yardstick(gbps: f64) -> Yardstick {
    let contender = |name: &str, gbps| Contender { name: name.to_owned(), gbps };
    let all = vec![contender("copy_4", gbps - 100.0), contender("copy_8", gbps)];
    Yardstick { gbps, by: "copy_8".to_owned(), all }
}

pub fn begun() -> Begun {
    Begun {
        device: "cuda:0".to_owned(),
        name: "Sample GPU".to_owned(),
        driver_cuda: (13, 0),
        size_mib: 256,
        cold_start: ColdStart {
            open_ms: 250.0,
            first_result_ms: 20.0,
            loads: vec![Load { kernel: "row", ms: 5.0, ptx_bytes: 9000 }],
        },
        copy: yardstick(4000.0),
        torch: Some(TorchBegun { version: "2.11".to_owned(), copy_gbps: Some(3990.0) }),
    }
}

pub fn ended() -> Ended {
    Ended { copy: Some(yardstick(4010.0)), cases: 19, failed: 1, skipped: 2, seconds: 61.2 }
}
