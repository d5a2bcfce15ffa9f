use clap::Parser;
use warpwright::Checks;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(line: &str) -> Args {
    Line::parse_from(line.split(' ')).args
}

/// What the checker has time for.
const SMALL: usize = 50_000;

#[test]
fn every_small_case_of_every_operation_runs_on_the_cpu() {
    let device = Device::cpu_with(Checks::Bounds);
    let data = Data::small(&device);
    for op in OPS {
        let setting = Setting { dtypes: op.dtypes.to_vec(), bytes: 1, quick: false };
        let cases = (op.bench)(&setting);
        assert!(cases.iter().all(|case| case.op == op.name));
        let small = |case: &&Case| case.shape.iter().product::<usize>() <= SMALL;
        let mut ran = 0;
        for case in cases.iter().filter(small) {
            let prepared = case.prepare(&data, 2).unwrap();
            assert!(prepared.floor > 0, "{case}");
            // The kernels of each way are tested elsewhere; here is only whether the case fits them.
            for way in [prepared.ways.first(), prepared.ways.last()].into_iter().flatten() {
                (way.launch)(1).unwrap_or_else(|error| panic!("{case} {}: {error}", way.plan));
            }
            ran += 1;
        }
        assert!(ran > 0, "{} has no case that the CPU can run", op.name);
    }
}

#[test]
fn cases_are_chosen_by_operation_type_and_text() {
    let count =
        |line: &str| selected(&args(line)).map(|cases| cases.len()).map_err(|error| error.to_string());
    let all = count("bench").unwrap();
    let softmax = count("bench masked_softmax").unwrap();
    assert!(softmax < all);
    let three_types = count("bench masked_softmax --dtype f32,bf16,f16");
    assert_eq!(three_types.map(|three| 2 * three), Ok(3 * softmax));
    assert!(count("bench --quick").unwrap() < all / 2);
    assert_eq!(count("bench --only x1500 --dtype f32"), Ok(2));
    assert_eq!(count("bench masked_softmax --only bias --dtype bf16"), Ok(3));
    assert!(count("bench --only x7777").unwrap_err().starts_with("no case is left"));
    assert!(count("bench softmax").unwrap_err().starts_with("unknown operation `softmax`"));
}

#[test]
fn without_a_gpu_it_says_so() {
    assert_eq!(
        open("cpu").unwrap_err().to_string(),
        "bench needs a GPU: the CPU device is a checker, whose times say nothing"
    );
    let error = open("cuda:4095").unwrap_err();
    assert!(error.to_string().starts_with("bench needs a GPU: no "), "{error}");
    assert_eq!((error.exit_status(), open("gpu").unwrap_err().exit_status()), (1, 2));
}
