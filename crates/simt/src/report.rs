//! What a stopped launch says.

use crate::site::Site;
use std::fmt;

/// The class of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An index at or past the end of a view.
    OutOfBounds,
    /// An address that is not a multiple of the access's size or alignment.
    Misaligned,
    /// A read of bytes that nothing has written.
    Uninitialized,
    /// Two unordered accesses to one place, at least one of them a plain write or a plain access to an atomic.
    Race,
    /// A barrier that only part of its threads reached.
    BarrierDivergence,
    /// A warp collective whose mask does not match the lanes that arrive.
    WarpMask,
    /// More shared memory than the launch or the hardware has.
    SharedLimit,
    /// A launch shape that the hardware would refuse, or an operation that this launch does not allow.
    LaunchLimit,
    /// Every live thread waits.
    Deadlock,
    /// A loop that waits for something which nothing can bring about.
    Spin,
    /// A thread used up its stack.
    StackOverflow,
    /// The kernel panicked.
    Panic,
    /// A view that is null, foreign, or outside its allocation.
    InvalidAccess,
}

/// The second party of a report: the other access of a race, the thread that did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Block index.
    pub block: [u32; 3],
    /// Thread index within the block.
    pub thread: [u32; 3],
    /// Where in the source.
    pub site: Site,
}

/// A mistake that stopped a launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Report {
    /// Class of mistake.
    pub kind: Kind,
    /// Name of the kernel, as given to the launch.
    pub kernel: String,
    /// Block index of the thread at fault.
    pub block: [u32; 3],
    /// Its index within the block.
    pub thread: [u32; 3],
    /// Its position in the source.
    pub site: Site,
    /// The other party, where there is one.
    pub other: Option<Other>,
    /// One sentence with the values.
    pub detail: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} in kernel `{}`: {}", self.kind, self.kernel, self.detail)?;
        write!(f, "  at {} (block {}, thread {})", self.site, Triple(self.block), Triple(self.thread))?;
        if let Some(other) = &self.other {
            let (block, thread) = (Triple(other.block), Triple(other.thread));
            write!(f, "\n  and {} (block {block}, thread {thread})", other.site)?;
        }
        Ok(())
    }
}

struct Triple([u32; 3]);

impl fmt::Display for Triple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {}, {})", self.0[0], self.0[1], self.0[2])
    }
}
