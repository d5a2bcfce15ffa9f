//! The command line of `bench`.

use std::path::PathBuf;

use clap::ValueEnum;
use warpwright::DType;

#[derive(clap::Args)]
pub struct Args {
    /// The operations [default: all]
    #[arg(value_name = "OP")]
    pub ops: Vec<String>,
    /// Print a line of JSON for each result
    #[arg(long)]
    pub json: bool,
    /// The types, with commas between them
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f32,bf16")]
    pub dtype: Vec<Type>,
    /// The size of a case's largest input, where its shape leaves a choice
    #[arg(long, value_name = "MIB", default_value_t = 256, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub size: u32,
    /// Only some cases of each operation
    #[arg(long)]
    pub quick: bool,
    /// Time every kernel that could serve; the planned one comes first
    #[arg(long)]
    pub sweep: bool,
    /// Run GELU over so many numbers of bf16 ahead of each operation, as other operations are in a model, and count its time with it
    #[arg(long, value_name = "NUMBERS", conflicts_with = "against", value_parser = clap::value_parser!(u32).range(1..))]
    pub behind: Option<u32>,
    /// Only cases whose line has one of these in it, such as x1024 or mask=keep
    #[arg(long, value_name = "SUBSTRINGS", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Time another library on the same cases in turn
    #[arg(long, value_name = "LIBRARY")]
    pub against: Option<Library>,
    /// Have PyTorch compile every case, not only some of each operation; seconds for each
    #[arg(long, requires = "against")]
    pub compile_all: bool,
    /// The Python that has PyTorch
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: String,
    /// Write a page with charts and tables; it appears complete or not at all
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cuda")]
    pub device: String,
    /// Begin no more cases after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub budget: Option<u64>,
}

/// A type that kernels compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Type {
    F32,
    F16,
    Bf16,
    I8,
}

impl Type {
    pub const fn dtype(self) -> DType {
        match self {
            Type::F32 => DType::F32,
            Type::F16 => DType::F16,
            Type::Bf16 => DType::BF16,
            Type::I8 => DType::I8,
        }
    }
}

/// What there is to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Library {
    /// PyTorch: eager, and torch.compile for some cases
    Torch,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.args)
    }

    #[test]
    fn everything_has_a_default() {
        let args = parse("bench").unwrap();
        assert_eq!(args.dtype, [Type::F32, Type::Bf16]);
        assert_eq!((args.size, args.device.as_str(), args.python.as_str()), (256, "cuda", "python3"));
        assert!(args.ops.is_empty() && args.against.is_none() && args.budget.is_none());
    }

    #[test]
    fn everything_can_be_chosen() {
        let line = "bench masked_softmax gelu --json --dtype f16,f32 --size 64 --quick --sweep --only x1024 --against \
                    torch --compile-all --python /opt/python --report r.html --device cuda:1 --budget 90";
        let args = parse(line).unwrap();
        assert_eq!(args.ops, ["masked_softmax", "gelu"]);
        assert_eq!(args.dtype.iter().map(|t| t.dtype()).collect::<Vec<_>>(), [DType::F16, DType::F32]);
        assert_eq!((args.size, args.budget, args.against), (64, Some(90), Some(Library::Torch)));
        assert!(args.compile_all && args.behind.is_none());
        assert_eq!(parse("bench --behind 400000").unwrap().behind, Some(400_000));
        for wrong in [
            "bench --compile-all",
            "bench --dtype f64",
            "bench --size 0",
            "bench --against jax",
            "bench --budget -1",
            "bench --behind 0",
            "bench --behind 4096 --against torch",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
