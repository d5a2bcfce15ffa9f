//! The architectures a device crate can be compiled for.

use std::{fmt, str::FromStr};

/// A target architecture: what LLVM may use, and so the oldest GPU that the PTX runs on.
///
/// PTX for a plain architecture runs on it and on everything newer. PTX for one with an `a` may use
/// that generation's own instructions (`wgmma` on `sm_90a`) and runs on that generation only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names tell
pub enum Arch {
    Sm70,
    Sm75,
    Sm80,
    Sm86,
    Sm87,
    Sm89,
    Sm90,
    Sm90a,
    Sm100,
    Sm100a,
    Sm120,
    Sm120a,
}

impl Arch {
    /// All of them, oldest first.
    pub const ALL: [Arch; 12] = [
        Arch::Sm70,
        Arch::Sm75,
        Arch::Sm80,
        Arch::Sm86,
        Arch::Sm87,
        Arch::Sm89,
        Arch::Sm90,
        Arch::Sm90a,
        Arch::Sm100,
        Arch::Sm100a,
        Arch::Sm120,
        Arch::Sm120a,
    ];

    /// The name that rustc, ptxas and the driver use: `sm_90a`.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Sm70 => "sm_70",
            Arch::Sm75 => "sm_75",
            Arch::Sm80 => "sm_80",
            Arch::Sm86 => "sm_86",
            Arch::Sm87 => "sm_87",
            Arch::Sm89 => "sm_89",
            Arch::Sm90 => "sm_90",
            Arch::Sm90a => "sm_90a",
            Arch::Sm100 => "sm_100",
            Arch::Sm100a => "sm_100a",
            Arch::Sm120 => "sm_120",
            Arch::Sm120a => "sm_120a",
        }
    }

    /// The PTX version that is asked for unless [`CudaBuilder::ptx_isa`](crate::CudaBuilder::ptx_isa)
    /// says otherwise. Up to `sm_90` that is 8.0, which drivers since 525 accept and which has the L2
    /// cache hints; `sm_90a` gets 8.6, because LLVM's own choice for it lacks some of Hopper's
    /// instructions.
    pub fn default_ptx_isa(self) -> u32 {
        match self {
            Arch::Sm90a | Arch::Sm100 | Arch::Sm100a => 86,
            Arch::Sm120 | Arch::Sm120a => 87,
            _ => 80,
        }
    }

    /// 90 for `sm_90a`.
    pub fn number(self) -> u32 {
        let digits = self.name().trim_start_matches("sm_").trim_end_matches('a');
        digits.parse().unwrap_or(0)
    }

    /// The crate feature that is switched on for this architecture where the crate has it: kernels
    /// that need a generation's own instructions are written behind it.
    pub fn crate_feature(self) -> Option<&'static str> {
        self.name().ends_with('a').then(|| self.name())
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no architecture of [`Arch::ALL`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown architecture `{0}`: known are {known}", known = known())]
pub struct UnknownArch(pub String);

fn known() -> String {
    Arch::ALL.map(Arch::name).join(", ")
}

impl FromStr for Arch {
    type Err = UnknownArch;
    fn from_str(name: &str) -> Result<Arch, UnknownArch> {
        Arch::ALL.into_iter().find(|arch| arch.name() == name).ok_or_else(|| UnknownArch(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back_and_carries_its_number() {
        for arch in Arch::ALL {
            assert_eq!(arch.name().parse(), Ok(arch));
            assert!(arch.number() >= 70, "{arch}");
        }
        assert_eq!(Arch::Sm90a.number(), 90);
        assert_eq!(Arch::Sm90a.crate_feature(), Some("sm_90a"));
        assert_eq!(Arch::Sm80.crate_feature(), None);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "sm_99".parse::<Arch>().unwrap_err().to_string();
        assert!(error.starts_with("unknown architecture `sm_99`: known are sm_70, sm_75,"), "{error}");
    }
}
